-- Purpose: what waits for a person, as a whole: how many by severity, the oldest, the money at risk by currency; and what is
--   put off or being repaired.
-- Parameters: 1 now timestamptz; 2 kinds text[] and 3 their ranks integer[].
-- Returns: one row a severity and currency of what waits (rank, currency null where it or the amount is not known, findings,
--   oldest, amount_minor), a row with rank null for what is put off, and one with rank -1 for what is being repaired.
-- Locks: none.
with ranked as (
    select
        case
            when f.verdict = 'repairable' then -1
            when f.snoozed_until > $1::timestamptz then null
            else coalesce(k.rank, 0)
        end as rank,
        f.detected_at,
        case when jsonb_typeof(f.evidence -> 'currency') = 'string' then f.evidence ->> 'currency' end as currency,
        coalesce(
            nullif(substring(f.evidence ->> 'amount_received_minor' from '^-?[0-9]{1,15}$')::bigint, 0),
            substring(f.evidence ->> 'amount_minor' from '^-?[0-9]{1,15}$')::bigint
        ) as amount_minor
    from reconciliation.finding f
    left join unnest($2::text[], $3::integer[]) as k (kind, rank) on k.kind = f.kind
    where f.resolved_at is null
)
select
    r.rank,
    case when r.amount_minor is not null then r.currency end as currency,
    count(*) as findings,
    min(r.detected_at) as oldest,
    sum(r.amount_minor)::text as amount_minor
from ranked r
group by r.rank, case when r.amount_minor is not null then r.currency end
order by 1, 2
