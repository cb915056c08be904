-- Purpose: what is true now of a job's batch.
-- Parameters: 1 job text.
-- Returns: revision bigint, withheld boolean, released boolean; no row where there is no such job.
-- Locks: none.
select
    c.revision,
    coalesce(c.withheld_revision = c.revision, false) as withheld,
    coalesce(c.released_revision = c.revision, false) as released
from reconciliation.cursor c
where c.job = $1
