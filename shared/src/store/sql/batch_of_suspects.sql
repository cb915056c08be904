-- Purpose: the next suspects, oldest first, with their last observations; and note that a batch starts here. A suspect is a
--   payment that should have ended by now: finalizing, expired, or pending with a reference and still young. Each is asked
--   again after half of the time that it had been waiting when it was asked last, so that one that never resolves costs less
--   and less. One row at least: where no suspect is left, its payment columns are null.
-- Parameters: 1 job text; 2 limit bigint; 3, 4 the position to go on from (created_at timestamptz, id text), null for the
--   start; 5 now timestamptz; 6 threshold, microseconds bigint: not updated for longer, and not asked again sooner;
--   7 age up to which a pending payment is a suspect, microseconds bigint.
-- Locks: the job's cursor row, until this one statement ends.
-- The comparison with a null position folds away when the statement is planned.
with started as (
    insert into reconciliation.cursor as c (job, keyset, starts)
    values ($1, 'created_at', 1)
    on conflict (job) do update set starts = c.starts + 1
    returning c.revision, c.starts
),
suspect as (
    select
        p.id, p.external_ref, p.match_key, p.state, p.created_at, p.updated_at, p.version,
        o.external_status, o.observed_at, o.external_created_at
    from reconciliation.payment p
    left join reconciliation.observation o on o.payment_id = p.id
    where (
        $3::timestamptz is null
        or (p.created_at, p.id) > ($3::timestamptz, $4::text::reconciliation.payment_id))
      and (
        p.state in ('finalizing', 'expired')
        or (p.state = 'pending'
            and p.external_ref is not null
            and p.created_at > $5 - $7::bigint * interval '1 microsecond'))
      and p.created_at < '9999-12-30' -- a position behind it could not be kept
      and p.updated_at < $5 - $6::bigint * interval '1 microsecond'
      and (
        o.observed_at is null
        or o.observed_at < p.updated_at
        or $5 - o.observed_at >= greatest($6::bigint * interval '1 microsecond', (o.observed_at - p.updated_at) / 2))
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
    greatest(p.created_at, '0001-01-02') as created_at,
    greatest(p.updated_at, '0001-01-02') as updated_at,
    coalesce(p.version, '') as version,
    p.external_status,
    p.observed_at,
    p.external_created_at,
    open.kinds as open_kinds
from started s
left join suspect p on true
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
