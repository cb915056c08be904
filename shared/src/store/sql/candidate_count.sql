-- Purpose: how many PaymentIntents are candidates for an orphan.
-- Parameters: none.
-- Locks: none.
select count(*) from reconciliation.orphan_candidate
