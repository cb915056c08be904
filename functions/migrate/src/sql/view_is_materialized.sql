-- Purpose: whether the read port is a copy that has to be refreshed.
-- Parameters: none.
-- Locks: none.
select exists (
    select
    from pg_class c
    where c.oid = to_regclass('reconciliation.payment')
      and c.relkind = 'm'
)
