-- Purpose: Stripe said 429: halve the rate for every process, from now on. Several answers to requests of the same moment
--   count once: only a request whose slot is later than the last throttling adds a level.
-- Parameters: 1 account text; 2 share text; 3 what to wait at least, microseconds bigint;
--   4 slot of the request that was refused timestamptz; 5 now timestamptz, null for the database's clock.
-- Returns: the level from now on.
-- Locks: the share's row, until this one statement ends.
update reconciliation.api_budget b
set throttle_level = least(6,
        reconciliation.throttle_level_at(b.throttle_level, b.throttled_at, clock.now)
        + case when b.throttled_at < $4::timestamptz then 1 else 0 end),
    throttled_at = clock.now,
    next_free_at = greatest(b.next_free_at, clock.now + $3::bigint * interval '1 microsecond')
from (select coalesce($5::timestamptz, clock_timestamp()) as now) as clock
where b.account = $1
  and b.share = $2
returning b.throttle_level
