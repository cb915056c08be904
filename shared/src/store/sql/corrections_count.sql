-- Purpose: how many findings the canonical writer has closed as repaired since this job last asked; each is counted once,
--   however many ask at once, since the mark moves with the count.
-- Parameters: 1 job text; 2 up to when timestamptz: no writer that began before may still be under way.
-- Returns: one row: corrected bigint; 0 the first time, for nothing was counted from then on.
-- Locks: the job's cursor row, until this one statement ends.
with before as materialized (
    select c.corrections_counted_to as since
    from reconciliation.cursor c
    where c.job = $1
    for update
),
marked as (
    update reconciliation.cursor c
    set corrections_counted_to = $2
    from before b
    where c.job = $1
      and (b.since is null or b.since < $2)
    returning b.since
)
select count(*) as corrected
from marked m
join reconciliation.finding f on f.resolved_at > m.since and f.resolved_at <= $2
where f.resolution = 'repaired'
