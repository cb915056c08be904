-- Purpose: a finding as it is, with what it is about.
-- Parameters: 1 finding id bigint.
-- Returns: one row, or none where there is no such finding. A date of the payment that no calendar holds is null.
-- Locks: none.
select
    f.id,
    f.kind,
    f.verdict,
    f.revision,
    f.local_state,
    f.external_status,
    f.external_ref,
    f.evidence::text as evidence,
    f.detected_at,
    f.last_seen_at,
    f.escalated_at,
    f.resolved_at,
    f.resolution,
    f.snoozed_until,
    f.retried_at,
    f.payment_id::text as payment_id,
    p.id is not null as payment_is_there,
    p.state as payment_state,
    p.external_ref as payment_ref,
    p.match_key as payment_match_key,
    case when p.created_at between '0001-01-01' and '9999-12-31' then p.created_at end as payment_created_at,
    case when p.updated_at between '0001-01-01' and '9999-12-31' then p.updated_at end as payment_updated_at,
    o.external_status as observed_status,
    o.observed_at,
    exists (
        select
        from reconciliation.outbox c
        where c.kind = 'command'
          and c.payload ->> 'finding_id' = f.id::text
          and c.delivered_at is null
          and c.dead_at is null) as command_waits
from reconciliation.finding f
left join reconciliation.payment p on p.id = f.payment_id
left join reconciliation.observation o on o.payment_id = f.payment_id
where f.id = $1
