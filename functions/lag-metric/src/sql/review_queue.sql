-- Purpose: how many findings wait for a person, by how long they have been open; and how many a person has put off.
-- Parameters: 1 now timestamptz.
-- Returns: one row: under_1h, from_1h, from_1d, from_3d, snoozed bigint.
-- Locks: none.
select
    count(*) filter (where not q.snoozed and q.age < interval '1 hour') as under_1h,
    count(*) filter (where not q.snoozed and q.age >= interval '1 hour' and q.age < interval '24 hours') as from_1h,
    count(*) filter (where not q.snoozed and q.age >= interval '24 hours' and q.age < interval '72 hours') as from_1d,
    count(*) filter (where not q.snoozed and q.age >= interval '72 hours') as from_3d,
    count(*) filter (where q.snoozed) as snoozed
from (
    select $1::timestamptz - f.detected_at as age, coalesce(f.snoozed_until > $1::timestamptz, false) as snoozed
    from reconciliation.finding f
    where f.resolved_at is null
      and f.verdict = 'needs_review'
) q
