-- Purpose: where each job stands, and how far it has come.
-- Parameters: none.
-- Returns: one row a job.
-- Locks: none.
select
    c.job,
    c.keyset,
    c.cycle_started_at,
    c.last_cycle_completed_at,
    c.cycle_rows,
    c.furthest_created_at,
    c.furthest_id::text as furthest_id
from reconciliation.cursor c
order by c.job
