-- Purpose: for each of these match keys the oldest payment that has it and has no reference.
-- Parameters: 1 match_key text[].
-- Locks: none.
select distinct on (p.match_key)
    p.match_key,
    p.id::text as id
from reconciliation.payment p
where p.match_key = any ($1::text[])
  and p.external_ref is null
order by p.match_key, p.created_at, p.id
