-- Purpose: the payments that name one of these PaymentIntents, with their last observations, the kinds of their open
--   findings, and what a person accepted of them as they are now: kind and external status with a space between.
-- Parameters: 1 external_ref text[].
-- Locks: none.
select
    0::bigint as revision,
    0 as starts,
    p.id::text as id,
    p.external_ref,
    p.match_key,
    p.state,
    least(greatest(coalesce(p.created_at, 'epoch'), '0001-01-02'), '9999-12-30') as created_at,
    least(greatest(coalesce(p.updated_at, p.created_at, 'epoch'), '0001-01-02'), '9999-12-30') as updated_at,
    coalesce(p.version, '') as version,
    o.external_status,
    o.observed_at,
    o.external_created_at,
    array(
        select f.kind
        from reconciliation.finding f
        where f.payment_id = p.id
          and f.resolved_at is null
    ) as open_kinds,
    array(
        select f.kind || ' ' || coalesce(f.external_status, '')
        from reconciliation.finding f
        where f.payment_id = p.id
          and f.resolution = 'accepted'
          and f.local_state is not distinct from p.state
          and f.external_ref is not distinct from p.external_ref
    ) as accepted
from reconciliation.payment p
left join reconciliation.observation o on o.payment_id = p.id
where p.external_ref = any ($1::text[])
order by p.id
