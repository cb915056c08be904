-- Purpose: carry a command out and mark it delivered, both or neither.
-- Parameters: 1 outbox id bigint; 2 fence bigint of the claim; 3 now timestamptz; 4 payment_id text; 5 transition text;
--   6 evidence jsonb; 7 finding_id bigint.
-- Returns: written, already_written or superseded; no row where the claim is outdated: another worker has the command, or
--   has carried it out.
-- Locks: the outbox row, the payment's, the finding's, until this one statement ends.
with marked as (
    update reconciliation.outbox o
    set delivered_at = $3,
        lease_expires_at = null,
        last_error = null
    where o.id = $1
      and o.fence = $2
      and o.delivered_at is null
      and o.dead_at is null
    returning o.id
)
select reconciliation.transition($4::text::reconciliation.payment_id, $5, $6::jsonb, $7)
from marked
