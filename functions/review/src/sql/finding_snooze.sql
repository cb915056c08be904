-- Purpose: a person puts a finding off.
-- Parameters: 1 finding bigint; 2 revision bigint; 3 review bigint; 4 until timestamptz.
-- Returns: the finding's id; no row where it is closed or at another revision.
-- Locks: the finding's row, until the transaction ends.
update reconciliation.finding f
set snoozed_until = $4,
    review_id = $3
where f.id = $1
  and f.revision = $2
  and f.resolved_at is null
returning f.id
