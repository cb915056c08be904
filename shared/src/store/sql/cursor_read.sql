-- Purpose: where a job's walk stands, and what it has learned of its account. No row: it has never started.
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
    c.released_revision,
    l.offset_from_seconds,
    l.offset_to_seconds,
    l.foreign_per_million_seconds
from reconciliation.cursor c
left join reconciliation.bulk_learned l on l.job = c.job
where c.job = $1
