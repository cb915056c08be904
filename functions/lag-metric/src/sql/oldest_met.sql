-- Purpose: of the payments that a scan has met, the one that has gone unverified longest, and how many were never verified.
-- Parameters: 1 timestamptz, a moment before which nothing was verified last, null where none is known: the probe of the index
--   begins there, past the dead entries that every verification leaves; 2 how many observations of deleted payments are
--   passed over, bigint, before the next one counts as if its payment were there; 3 how far to count, bigint.
-- Returns: one row: oldest timestamptz, null where nothing is met; never_verified bigint, at most parameter 3.
-- Locks: none.
-- The two probes stop at the first observation whose payment is there. The second one is of the never verified, whose time is
-- their payment's creation and may lie before parameter 1.
select
    least(
        (
            select o.verified_through
            from (
                select o.payment_id, o.verified_through, row_number() over (order by o.verified_through) as place
                from reconciliation.observation o
                where ($1::timestamptz is null or o.verified_through >= $1::timestamptz)
                order by o.verified_through
                limit $2::bigint + 1
            ) o
            where o.place > $2::bigint
               or (select true from reconciliation.payment p where p.id = o.payment_id limit 1)
            order by o.verified_through
            limit 1
        ),
        (
            select o.verified_through
            from (
                select o.payment_id, o.verified_through, row_number() over (order by o.verified_through) as place
                from reconciliation.observation o
                where o.observed_at is null
                order by o.verified_through
                limit $2::bigint + 1
            ) o
            where o.place > $2::bigint
               or (select true from reconciliation.payment p where p.id = o.payment_id limit 1)
            order by o.verified_through
            limit 1
        )
    ) as oldest,
    (
        select count(*)
        from (
            select o.payment_id
            from reconciliation.observation o
            where o.observed_at is null
            order by o.verified_through
            limit $3::bigint
        ) o
    ) as never_verified
