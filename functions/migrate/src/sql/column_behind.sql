-- Purpose: one column of a relation.
-- Parameters: 1 relation oid; 2 attnum smallint.
-- Returns: name; not_null; definition, the query of a view, null for a table.
-- Locks: none.
select
    format('%s.%I', c.oid::regclass, a.attname) as name,
    a.attnotnull as not_null,
    case when c.relkind = 'v' then pg_get_viewdef(c.oid) end as definition
from pg_class c
join pg_attribute a on a.attrelid = c.oid
where c.oid = $1
  and a.attnum = $2
