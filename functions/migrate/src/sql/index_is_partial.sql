-- Purpose: whether an index is of some of its table's rows only.
-- Parameters: 1 name text, as a plan gives it.
-- Locks: none.
select exists (
    select
    from pg_index i
    join pg_class c on c.oid = i.indexrelid
    where c.relname = $1
      and i.indpred is not null
)
