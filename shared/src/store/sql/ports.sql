-- Purpose: the columns of the read port and the signature of the write port, as they are.
-- Parameters: none.
-- Locks: none.
select 'column' as part, a.attname::text as name, format_type(a.atttypid, null) as type
from pg_attribute a
where a.attrelid = to_regclass('reconciliation.payment')
  and a.attnum > 0
  and not a.attisdropped
union all
select 'domain', t.typname::text, format_type(t.typbasetype, null)
from pg_type t
where t.typname = 'payment_id'
  and t.typnamespace = to_regnamespace('reconciliation')
union all
select
    'function',
    p.proname::text,
    array_to_string(array(select format_type(t, null) from unnest(p.proargtypes) with ordinality u (t, n) order by n), ', ')
        || ' -> ' || format_type(p.prorettype, null)
from pg_proc p
where p.pronamespace = to_regnamespace('reconciliation')
  and p.proname in ('apply_transition', 'transition')
