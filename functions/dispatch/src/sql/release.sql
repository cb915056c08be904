-- Purpose: give rows back that were claimed and not worked, because the tick ended first. The claim does not count.
-- Parameters: 1 ids bigint[]; 2 fences bigint[] of their claims.
-- Returns: the ids that were given back. One that is missing was claimed by another worker meanwhile.
-- Locks: the rows, in the order of id, until this one statement ends.
with ours as (
    select o.id
    from reconciliation.outbox o
    join unnest($1::bigint[], $2::bigint[]) as u (id, fence) on u.id = o.id and u.fence = o.fence
    where o.delivered_at is null
      and o.dead_at is null
    order by o.id
    for update of o
)
update reconciliation.outbox o
set lease_expires_at = null,
    attempts = greatest(0, o.attempts - 1)
from ours
where o.id = ours.id
returning o.id
