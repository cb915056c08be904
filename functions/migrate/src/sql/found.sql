-- Purpose: what is there before the first change. A schema of our name that has no history of ours may hold the two ports,
--   which an adopter may have written first, and nothing else.
-- Parameters: none.
-- Locks: none.
select
    to_regclass('reconciliation.payment') is not null as has_adapter,
    to_regclass('reconciliation.applied_migration') is null
        and exists (
            select
            from pg_class c
            where c.relnamespace = to_regnamespace('reconciliation')
              and c.relname <> 'payment'
        ) as somebody_elses
