-- Purpose: take the next free instant for one request, so that all processes together keep the rate (GCRA, burst 1).
--   By the database's clock, so that no client's clock matters. A slot of the total is counted, in steps of ten minutes, and
--   with each new step the steps that are older than 31 days are forgotten.
-- Parameters: 1 account text; 2 share text; 3 interval between two requests, microseconds bigint;
--   4 longest wait, microseconds bigint: a slot further off is not taken;
--   5 now timestamptz, null for the database's clock (a test gives its own).
-- Returns: the slot, and the microseconds to wait for it; no row where the slot is too far off.
-- Locks: the share's row, then the counter's, until this one statement ends.
with taken as (
    insert into reconciliation.api_budget as b (account, share, slot_at, next_free_at)
    select $1, $2, clock.now, clock.now + $3::bigint * interval '1 microsecond'
    from (select coalesce($5::timestamptz, clock_timestamp()) as now) as clock
    on conflict (account, share) do update
    set slot_at = greatest(b.next_free_at, excluded.slot_at),
        next_free_at = greatest(b.next_free_at, excluded.slot_at)
            + $3::bigint * interval '1 microsecond'
            * (1 << reconciliation.throttle_level_at(b.throttle_level, b.throttled_at, excluded.slot_at))
    where b.next_free_at <= excluded.slot_at + $4::bigint * interval '1 microsecond'
    returning b.slot_at
),
counted as (
    insert into reconciliation.stripe_reads as r (account, began_at, requests)
    select $1, date_bin('10 minutes', t.slot_at, 'epoch'), 1
    from taken t
    where $2 = 'total'
    on conflict (account, began_at) do update set requests = r.requests + 1
    returning r.began_at, r.requests = 1 as is_first
),
forgotten as (
    delete from reconciliation.stripe_reads r
    using counted c
    where c.is_first
      and r.account = $1
      and r.began_at < c.began_at - interval '744 hours'
)
select
    t.slot_at,
    greatest(0, ceil(extract(epoch from t.slot_at - coalesce($5::timestamptz, clock_timestamp())) * 1000000))::bigint
        as wait_us
from taken t
