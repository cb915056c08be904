-- Purpose: mark events delivered.
-- Parameters: 1 now timestamptz; 2 ids bigint[]; 3 fences bigint[] of their claims.
-- Returns: the ids that were marked. One that is missing was claimed by another worker meanwhile.
-- Locks: the rows, in the order of id, until this one statement ends.
with ours as (
    select o.id
    from reconciliation.outbox o
    join unnest($2::bigint[], $3::bigint[]) as u (id, fence) on u.id = o.id and u.fence = o.fence
    where o.delivered_at is null
      and o.dead_at is null
    order by o.id
    for update of o
)
update reconciliation.outbox o
set delivered_at = $1,
    lease_expires_at = null,
    last_error = null
from ours
where o.id = ours.id
returning o.id
