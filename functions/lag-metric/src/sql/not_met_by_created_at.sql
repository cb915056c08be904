-- Purpose: the payments beyond the furthest that the walk has passed, in the order of (created_at, id): those that no scan has
--   met.
-- Parameters: 1, 2 the furthest (created_at timestamptz, id text), null where there is none; 3 how far to look, bigint.
-- Returns: one row: not_met bigint, at most parameter 3; oldest timestamptz, their oldest creation. Where there are more than
--   parameter 3, the next one counts as not met for the oldest: the lag may be shorter than that says, never longer.
-- Locks: none.
-- The comparison with a null position folds away when the statement is planned.
with beyond as (
    select p.id, p.created_at
    from reconciliation.payment p
    where (
        $1::timestamptz is null
        or (p.created_at, p.id) > ($1::timestamptz, $2::text::reconciliation.payment_id))
      and p.created_at < '9999-12-30' -- what is dated later has no place in the walk
    order by p.created_at, p.id
    limit $3::bigint + 1
),
looked_up as (
    select
        greatest(b.created_at, '0001-01-02') as created_at,
        row_number() over (order by b.created_at, b.id) > $3::bigint as is_the_next,
        (select true from reconciliation.observation o where o.payment_id = b.id limit 1) is null as is_not_met
    from beyond b
)
select
    count(*) filter (where l.is_not_met and not l.is_the_next) as not_met,
    min(l.created_at) filter (where l.is_not_met or l.is_the_next) as oldest
from looked_up l
