-- Purpose: the open findings by kind and verdict. What was closed within the last hour is named with zero, so that a graph
--   comes down and an alarm ends.
-- Parameters: 1 now timestamptz.
-- Returns: one row for a kind and verdict: open bigint; oldest timestamptz, of those that nobody has put off,
--   null where there is none.
-- Locks: none.
with open_now as (
    select f.kind, f.verdict, count(*) as open,
        min(f.detected_at) filter (where coalesce(f.snoozed_until <= $1::timestamptz, true)) as oldest
    from reconciliation.finding f
    where f.resolved_at is null
    group by f.kind, f.verdict
),
closed_lately as (
    select distinct f.kind, f.verdict
    from reconciliation.finding f
    where f.resolved_at > $1::timestamptz - interval '1 hour'
)
select kind, verdict, coalesce(o.open, 0) as open, o.oldest
from open_now o
full join closed_lately c using (kind, verdict)
order by kind, verdict
