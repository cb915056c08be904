-- Purpose: the other findings of the same payment, or of the same object of Stripe's.
-- Parameters: 1 finding bigint; 2 payment_id text, null where it is about an object of Stripe's alone; 3 external_ref text.
-- Returns: a row a finding, the newest first.
-- Locks: none.
select f.id, f.kind, f.verdict, f.detected_at, f.resolved_at, f.resolution
from reconciliation.finding f
where f.id <> $1
  and case
        when $2::text is null then f.payment_id is null and f.external_ref = $3
        else f.payment_id = $2::text::reconciliation.payment_id
      end
order by f.id desc
limit 20
