-- Purpose: the payments that name a PaymentIntent, as the webhook receiver and the reverse scan look them up; for its plan.
-- Parameters: 1 external_ref text.
-- Locks: none.
select p.id::text
from reconciliation.payment p
where p.external_ref = $1
limit 2
