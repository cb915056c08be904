-- Purpose: the next payments in the order of id, with their last observations; and note that a batch starts here.
--   One row at least: where there is no payment left, its payment columns are null.
-- Parameters: 1 job text; 2 limit bigint; 3, 4 the position to go on from (created_at timestamptz, id text), null for the
--   start; 5 keyset text. The same as of the other order, so 3 is not used here.
-- Locks: the job's cursor row, until this one statement ends.
-- The comparison with a null position folds away when the statement is planned, so the walk is an index scan.
with started as (
    insert into reconciliation.cursor as c (job, keyset, starts)
    values ($1, $5, 1)
    on conflict (job) do update set starts = c.starts + 1
    returning c.revision, c.starts
),
next_payment as (
    select p.id, p.external_ref, p.match_key, p.state, p.created_at, p.updated_at, p.version
    from reconciliation.payment p
    where ($4::text is null or p.id > $4::text::reconciliation.payment_id)
    order by p.id
    limit $2
)
select
    s.revision,
    s.starts,
    p.id::text as id,
    p.external_ref,
    p.match_key,
    p.state,
    -- A wrong date must not stop the walk: what no calendar holds is cut off, and what is missing is made up.
    least(greatest(coalesce(p.created_at, 'epoch'), '0001-01-02'), '9999-12-30') as created_at,
    least(greatest(coalesce(p.updated_at, p.created_at, 'epoch'), '0001-01-02'), '9999-12-30') as updated_at,
    coalesce(p.version, '') as version,
    o.external_status,
    o.observed_at,
    o.external_created_at,
    open.kinds as open_kinds
from started s
left join next_payment p on true
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
order by p.id
