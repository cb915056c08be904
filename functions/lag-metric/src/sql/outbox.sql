-- Purpose: what waits in the outbox, since when, and what is dead.
-- Parameters: none.
-- Returns: two rows, for commands and events: waiting bigint; oldest timestamptz, null where nothing waits; dead bigint.
-- Locks: none.
select
    k.kind,
    (
        select count(*)
        from reconciliation.outbox o
        where o.kind = k.kind and o.delivered_at is null and o.dead_at is null
    ) as waiting,
    (
        select min(o.created_at)
        from reconciliation.outbox o
        where o.kind = k.kind and o.delivered_at is null and o.dead_at is null
    ) as oldest,
    (select count(*) from reconciliation.outbox o where o.kind = k.kind and o.dead_at is not null) as dead
from (values ('command'), ('event')) as k (kind)
