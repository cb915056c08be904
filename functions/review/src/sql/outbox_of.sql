-- Purpose: the commands and events that came of a finding.
-- Parameters: 1 finding bigint.
-- Returns: a row each, the newest first.
-- Locks: none.
select o.id, o.kind, o.type, o.created_at, o.attempts, o.delivered_at, o.dead_at, o.last_error
from reconciliation.outbox o
where o.aggregate = (select f.payment_id::text from reconciliation.finding f where f.id = $1)
  and o.payload ->> 'finding_id' = $1::bigint::text
order by o.id desc
limit 20
