-- Purpose: what waits for a person, as a whole: how many by severity, the oldest, the money at risk by currency; and what is
--   put off or being repaired.
-- Parameters: 1 now timestamptz; 2 kinds text[] and 3 their ranks integer[].
-- Returns: one row a severity and currency of what waits (rank, currency null where it is not known, findings, oldest,
--   amount_minor), a row with rank null for what is put off, and one with rank -1 for what is being repaired.
-- Locks: none.
with ranked as (
    select
        case
            when f.verdict = 'repairable' then -1
            when f.snoozed_until > $1::timestamptz then null
            else coalesce(k.rank, 0)
        end as rank,
        f.detected_at,
        f.evidence ->> 'currency' as currency,
        case when jsonb_typeof(f.evidence -> 'amount_minor') = 'number' then
            coalesce(
                nullif(case when jsonb_typeof(f.evidence -> 'amount_received_minor') = 'number'
                    then (f.evidence ->> 'amount_received_minor')::bigint end, 0),
                (f.evidence ->> 'amount_minor')::bigint)
        end as amount_minor
    from reconciliation.finding f
    left join unnest($2::text[], $3::integer[]) as k (kind, rank) on k.kind = f.kind
    where f.resolved_at is null
)
select r.rank, r.currency, count(*) as findings, min(r.detected_at) as oldest, sum(r.amount_minor)::text as amount_minor
from ranked r
group by r.rank, r.currency
order by r.rank, r.currency
