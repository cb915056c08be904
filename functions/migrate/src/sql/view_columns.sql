-- Purpose: the columns of the read port, with the view's oid and their numbers in it.
-- Parameters: none.
-- Locks: none.
select a.attname::text, a.attrelid, a.attnum
from pg_attribute a
where a.attrelid = to_regclass('reconciliation.payment')
  and a.attnum > 0
  and not a.attisdropped
order by a.attnum
