-- Purpose: the request budget of an account: how far it is throttled, and how much of it is used.
-- Parameters: 1 account text; 2 now timestamptz.
-- Returns: one row: throttle_level integer; reads_lately bigint, in the last whole ten minutes; reads bigint, in the last 30
--   days.
-- Locks: none.
select
    coalesce((
        select reconciliation.throttle_level_at(b.throttle_level, b.throttled_at, $2::timestamptz)
        from reconciliation.api_budget b
        where b.account = $1 and b.share = 'total'
    ), 0) as throttle_level,
    coalesce((
        select r.requests
        from reconciliation.stripe_reads r
        where r.account = $1 and r.began_at = date_bin('10 minutes', $2::timestamptz, 'epoch') - interval '10 minutes'
    ), 0) as reads_lately,
    coalesce((
        select sum(r.requests)::bigint
        from reconciliation.stripe_reads r
        where r.account = $1 and r.began_at > $2::timestamptz - interval '720 hours'
    ), 0) as reads
