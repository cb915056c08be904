-- Purpose: where a job's walk stands. No row: it has never started.
-- Parameters: 1 job text.
-- Locks: none.
select
    c.keyset,
    c.position_created_at,
    c.position_id::text as position_id,
    c.revision,
    c.starts,
    c.cycle,
    c.cycle_started_at,
    c.last_cycle_completed_at,
    c.released_revision
from reconciliation.cursor c
where c.job = $1
