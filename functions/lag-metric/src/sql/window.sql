-- Purpose: where the reverse scan stands.
-- Parameters: none.
-- Returns: one row a job that has begun a window: when the one under way began, null between two; when the last one was
--   complete; and up to where everything that Stripe created has been listed to the end.
-- Locks: none.
select w.job, w.started_at, w.last_completed_at, w.completed_to
from reconciliation.reverse_window w
order by w.job
