-- Purpose: about how many payments there are, as the planner estimates it from the statistics of the view's tables; counting
--   them would read them all.
-- Parameters: none.
-- Returns: one row: the plan as JSON.
-- Locks: none.
explain (format json) select from reconciliation.payment
