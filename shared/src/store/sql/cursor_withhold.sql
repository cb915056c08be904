-- Purpose: keep that the batch of a revision is withheld, and why, so that a person can be shown it.
-- Parameters: 1 job text; 2 revision bigint; 3 now timestamptz; 4 reason text.
-- Returns: nothing. Nothing is kept where the cursor is at another revision. Withheld again, it keeps the time of the first.
-- Locks: the job's cursor row, until this one statement ends.
update reconciliation.cursor c
set withheld_revision = c.revision,
    withheld_at = case when c.withheld_revision = c.revision then c.withheld_at else $3::timestamptz end,
    withheld_because = $4::text
where c.job = $1
  and c.revision = $2
