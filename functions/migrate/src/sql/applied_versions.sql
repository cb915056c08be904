-- Purpose: the versions of the schema that are applied.
-- Parameters: none.
-- Locks: none.
select version from reconciliation.applied_migration order by version
