-- Purpose: the batches that are withheld now.
-- Parameters: none.
-- Returns: job, revision, withheld_at, withheld_because; a row each.
-- Locks: none.
select c.job, c.revision, c.withheld_at, c.withheld_because
from reconciliation.cursor c
where c.withheld_revision = c.revision
  and c.released_revision is distinct from c.revision
order by c.job
