-- Purpose: ask the canonical writer for a transition.
-- Parameters: 1 payment_id text; 2 transition text; 3 evidence jsonb; 4 finding_id bigint, null where none is repaired;
--   5 review_id bigint, null where no person decided it.
-- Returns: written, already_written or superseded.
-- Locks: the payment's row, then the finding's, until the transaction ends.
select reconciliation.transition($1::text::reconciliation.payment_id, $2, $3::jsonb, $4, $5)
