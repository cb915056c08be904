-- Purpose: claim the next rows of the outbox for a while. A row waits for the earlier ones of its kind and payment, so that
--   events go out in order per payment.
-- Parameters: 1 now timestamptz; 2 limit bigint; 3 lease, seconds bigint.
-- Returns: the rows with the fence of this claim, oldest first.
-- Locks: the claimed rows, until this one statement ends; rows that somebody else has locked are passed.
with due as (
    select o.id
    from reconciliation.outbox o
    where o.delivered_at is null
      and o.dead_at is null
      and o.available_at <= $1
      and (o.lease_expires_at is null or o.lease_expires_at <= $1)
      and not exists (
        select
        from reconciliation.outbox earlier
        where earlier.aggregate = o.aggregate
          and earlier.kind = o.kind
          and earlier.id < o.id
          and earlier.delivered_at is null
          and earlier.dead_at is null
        offset 0) -- looked up row by row: as a join it would read all that waits
    order by o.id
    limit $2
    for update skip locked
),
claimed as (
    update reconciliation.outbox o
    set lease_expires_at = $1 + $3::bigint * interval '1 second',
        fence = o.fence + 1,
        attempts = o.attempts + 1
    where o.id = any (array(select due.id from due)) -- an array, so that each is looked up by its key
    returning o.id, o.aggregate, o.kind, o.type, o.payload, o.fence, o.attempts
)
select c.id, c.aggregate, c.kind, c.type, c.payload, c.fence, c.attempts
from claimed c
order by c.id
