-- Purpose: record an event, once.
-- Parameters: 1 event_id text; 2 type text; 3 external_ref text; 4 outcome text.
-- Returns: the number of rows: 0 where the event was recorded before.
-- Locks: the event's key. Another transaction that records the same event is waited for.
insert into reconciliation.webhook_inbox (event_id, type, external_ref, received_at, outcome)
values ($1, $2, $3, now(), $4)
on conflict (event_id) do nothing
