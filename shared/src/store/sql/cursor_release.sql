-- Purpose: a person lets the withheld batch of one revision through. The next commit outdates it.
-- Parameters: 1 job text; 2 revision bigint.
-- Returns: the job; no row where the cursor is at another revision, no batch is withheld at it, or it was released before.
-- Locks: the job's cursor row, until this one statement ends.
update reconciliation.cursor c
set released_revision = c.revision
where c.job = $1
  and c.revision = $2
  and c.withheld_revision = c.revision
  and c.released_revision is distinct from c.revision
returning c.job
