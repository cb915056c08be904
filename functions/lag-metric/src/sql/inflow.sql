-- Purpose: how many payments were created in the hour before the furthest one that the walk has passed.
-- Parameters: 1 that payment's creation timestamptz; 2 how far to count, bigint.
-- Returns: one row: inflow bigint, at most parameter 2.
-- Locks: none.
select count(*) as inflow
from (
    select o.payment_id
    from reconciliation.observation o
    where o.payment_created_at > $1::timestamptz - interval '1 hour'
      and o.payment_created_at <= $1::timestamptz
    order by o.payment_created_at, o.payment_id
    limit $2::bigint
) o
