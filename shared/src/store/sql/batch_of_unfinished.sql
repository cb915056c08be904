-- Purpose: the next unfinished payments of the youngest so and so many days, oldest first, with their last observations; and
--   note that a batch starts here. Unfinished are finalizing, expired, and pending with a reference. One row at least: where
--   none is left, its payment columns are null.
-- Parameters: 1 job text; 2 limit bigint; 3, 4 the position to go on from (created_at timestamptz, id text), null for the
--   start; 5 created at this time or later, timestamptz.
-- Locks: the job's cursor row, until this one statement ends.
-- The comparison with a null position folds away when the statement is planned.
with started as (
    insert into reconciliation.cursor as c (job, keyset, starts)
    values ($1, 'created_at', 1)
    on conflict (job) do update set starts = c.starts + 1
    returning c.revision, c.starts
),
unfinished as (
    select p.id, p.external_ref, p.match_key, p.state, p.created_at, p.updated_at, p.version
    from reconciliation.payment p
    where (
        $3::timestamptz is null
        or (p.created_at, p.id) > ($3::timestamptz, $4::text::reconciliation.payment_id))
      and (p.state in ('finalizing', 'expired') or (p.state = 'pending' and p.external_ref is not null))
      and p.created_at >= $5
      and p.created_at < '9999-12-30' -- a position behind it could not be kept
    order by p.created_at, p.id
    limit $2
)
select
    s.revision,
    s.starts,
    p.id::text as id,
    p.external_ref,
    p.match_key,
    p.state,
    p.created_at,
    -- a wrong date must not stop the walk
    least(greatest(coalesce(p.updated_at, p.created_at), '0001-01-02'), '9999-12-30') as updated_at,
    coalesce(p.version, '') as version,
    o.external_status,
    o.observed_at,
    o.external_created_at,
    open.kinds as open_kinds
from started s
left join unfinished p on true
left join reconciliation.observation o on o.payment_id = p.id
-- the drifts that are reported already, of the row as it is now
cross join lateral (
    select coalesce(array_agg(f.kind), '{}') as kinds
    from reconciliation.finding f
    where f.payment_id = p.id
      and f.resolved_at is null
      and f.local_state is not distinct from p.state
      and f.external_ref is not distinct from p.external_ref
) open
order by p.created_at, p.id
