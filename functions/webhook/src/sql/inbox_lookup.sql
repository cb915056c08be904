-- Purpose: whether an event was recorded before, and which payments name its PaymentIntent.
-- Parameters: 1 event_id text; 2 external_ref text.
-- Returns: one row: seen boolean; payment_ids text[], two at most, for two are as good as many.
-- Locks: none.
select
    exists (select from reconciliation.webhook_inbox i where i.event_id = $1) as seen,
    array(select p.id::text from reconciliation.payment p where p.external_ref = $2 limit 2) as payment_ids
