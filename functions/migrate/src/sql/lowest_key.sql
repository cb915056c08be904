-- Purpose: a key that is before all others, as text.
-- Parameters: none.
-- Locks: none.
select case format_type(t.typbasetype, null)
    when 'bigint' then '-9223372036854775808'
    when 'uuid' then '00000000-0000-0000-0000-000000000000'
    else ''
end
from pg_type t
where t.typname = 'payment_id'
  and t.typnamespace = to_regnamespace('reconciliation')
