-- Purpose: where the reverse scan stands. The job's row is made where it has never started.
-- Parameters: 1 job text.
-- Returns: one row; none where another tick is making it just now, which is the same as a new one.
-- Locks: none, but for the row that it makes.
with made as (
    insert into reconciliation.reverse_window (job)
    values ($1)
    on conflict (job) do nothing
    returning *
)
select w.* from made w
union all
select w.* from reconciliation.reverse_window w where w.job = $1
