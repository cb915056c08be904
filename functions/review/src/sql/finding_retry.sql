-- Purpose: a person has the repair asked for again, from zero attempts.
-- Parameters: 1 finding bigint; 2 revision bigint; 3 review bigint; 4 now timestamptz; 5 command text.
-- Returns: the command's id in the outbox; no row where the finding is closed or at another revision, or a command waits.
-- Locks: the finding's row, until the transaction ends.
with changed as (
    update reconciliation.finding f
    set verdict = 'repairable',
        escalated_at = null,
        retried_at = $4,
        snoozed_until = null,
        review_id = $3
    where f.id = $1
      and f.revision = $2
      and f.resolved_at is null
    returning f.*
)
insert into reconciliation.outbox (aggregate, kind, type, payload, created_at, available_at)
select
    c.payment_id::text, 'command', $5,
    jsonb_build_object(
        'payment_id', c.payment_id::text,
        'finding_id', c.id,
        'expected_local_state', c.local_state,
        'external_ref', c.external_ref,
        'external_status', c.external_status,
        'observed_at', o.observed_at,
        'review_id', $3),
    $4, $4
from changed c
left join reconciliation.observation o on o.payment_id = c.payment_id
on conflict ((payload ->> 'finding_id')) where kind = 'command' and delivered_at is null and dead_at is null
do nothing
returning id
