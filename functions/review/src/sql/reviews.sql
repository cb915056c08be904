-- Purpose: what was decided about a finding.
-- Parameters: 1 finding bigint.
-- Returns: a row a review, the newest first.
-- Locks: none.
select r.id, r.revision, r.decision, r.transition, r.snoozed_until, r.who, r.who_is, r.request_id, r.claimed_by, r.note, r.decided_at
from reconciliation.review r
where r.finding_id = $1
order by r.id desc
limit 50
