-- Purpose: put a row back for later, or among the dead.
-- Parameters: 1 id bigint; 2 fence bigint of the claim; 3 when it is due again timestamptz; 4 when it died timestamptz, null
--   where it lives; 5 what went wrong text.
-- Returns: the id; no row where another worker claimed it meanwhile.
-- Locks: the row, until this one statement ends.
update reconciliation.outbox o
set available_at = $3,
    dead_at = $4,
    lease_expires_at = null,
    last_error = $5
where o.id = $1
  and o.fence = $2
  and o.delivered_at is null
  and o.dead_at is null
returning o.id
