-- Purpose: a page of the open findings that a filter leaves.
-- Parameters: 1 now timestamptz; 2 kinds text[] and 3 their ranks integer[]; 4 kind text; 5 state text (needs_review, repairable,
--   snoozed, all); 6 local_state text; 7 external_status text; 8 found at or before timestamptz; 9 payment text; 10 order text
--   (severity, oldest, newest); 11 rank integer, 12 found at timestamptz, 13 id bigint of the finding before the page;
--   14 limit bigint. A filter that is null leaves everything.
-- Returns: a row a finding, in order; each with how many the filter leaves.
-- Locks: none.
with ranked as (
    select
        f.id, f.payment_id::text as payment_id, f.external_ref, f.kind, f.verdict, f.local_state, f.external_status,
        f.detected_at, f.last_seen_at, f.escalated_at, f.snoozed_until, f.revision,
        case when f.verdict = 'repairable' then 3 else coalesce(k.rank, 0) end as rank,
        coalesce(
            nullif(substring(f.evidence ->> 'amount_received_minor' from '^-?[0-9]{1,15}$')::bigint, 0),
            substring(f.evidence ->> 'amount_minor' from '^-?[0-9]{1,15}$')::bigint
        ) as amount_minor,
        case when jsonb_typeof(f.evidence -> 'currency') = 'string' then f.evidence ->> 'currency' end as currency,
        f.evidence ->> 'match_key' as match_key,
        f.evidence #>> '{previous,status}' is distinct from f.external_status
            and f.evidence #>> '{previous,status}' is not null as stripe_changed
    from reconciliation.finding f
    left join unnest($2::text[], $3::integer[]) as k (kind, rank) on k.kind = f.kind
    where f.resolved_at is null
      and ($4::text is null or f.kind = $4)
      and case $5::text
            when 'needs_review' then f.verdict = 'needs_review' and coalesce(f.snoozed_until <= $1, true)
            when 'repairable' then f.verdict = 'repairable'
            when 'snoozed' then coalesce(f.snoozed_until > $1, false)
            else true
          end
      and ($6::text is null or f.local_state = $6)
      and ($7::text is null or f.external_status = $7)
      and f.detected_at <= $8::timestamptz
      and ($9::text is null or f.payment_id::text = $9 or f.external_ref = $9 or f.evidence ->> 'match_key' = $9)
)
select r.*, (select count(*) from ranked) as matching
from ranked r
where $13::bigint is null
   or case $10::text
        when 'severity' then (r.rank, r.detected_at, r.id) > ($11::integer, $12::timestamptz, $13::bigint)
        when 'oldest' then (r.detected_at, r.id) > ($12::timestamptz, $13::bigint)
        else (r.detected_at, r.id) < ($12::timestamptz, $13::bigint)
      end
order by
    case when $10 = 'severity' then r.rank end,
    case when $10 <> 'newest' then r.detected_at end,
    case when $10 <> 'newest' then r.id end,
    r.detected_at desc,
    r.id desc
limit $14
