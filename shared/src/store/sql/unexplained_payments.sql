-- Purpose: payments that were sent to Stripe, have no reference, and whose charge is not there: everything that Stripe created
--   around their time was listed to the end, and nothing of it names them. Those without an open finding come first.
-- Parameters: 1 everything was listed from here, 2 to here, timestamptz, the slack taken off; 3 not changed since before this,
--   timestamptz: an older one is stalled, which the forward scan reports; 4 limit bigint.
-- Locks: none.
select
    0::bigint as revision,
    0 as starts,
    p.id::text as id,
    p.external_ref,
    p.match_key,
    p.state,
    p.created_at,
    p.updated_at,
    coalesce(p.version, '') as version,
    o.external_status,
    o.observed_at,
    o.external_created_at,
    '{}'::text[] as open_kinds -- nothing is asked of Stripe about them
from reconciliation.payment p
left join reconciliation.observation o on o.payment_id = p.id
where p.state in ('finalizing', 'expired')
  and p.external_ref is null
  and p.match_key is not null
  and p.created_at >= $1
  and greatest(p.created_at, p.updated_at) < $2
  and p.updated_at >= $3
  and not exists (select from reconciliation.orphan_candidate c where c.match_key = p.match_key)
  -- an order that was paid by another attempt: the charge that names it is that one's
  and not exists (
    select
    from reconciliation.payment q
    where q.match_key = p.match_key
      and q.external_ref is not null)
  and not exists (
    select
    from reconciliation.finding f
    where f.payment_id is null
      and f.evidence ->> 'match_key' = p.match_key
      and (f.resolved_at is null or f.resolution = 'accepted'))
order by
    exists (
        select
        from reconciliation.finding f
        where f.payment_id = p.id
          and f.kind = 'no_external_reference'
          and (f.resolved_at is null or f.resolution = 'accepted')),
    p.created_at,
    p.id
limit $4
