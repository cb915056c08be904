-- Purpose: a few references that Stripe once knew, to tell a wrong key from wrong rows.
-- Parameters: none.
-- Locks: none.
select p.external_ref
from reconciliation.observation o
join reconciliation.payment p on p.id = o.payment_id
where o.external_status <> 'not_found'
  and p.external_ref is not null
limit 3
