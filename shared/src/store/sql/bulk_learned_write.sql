-- Purpose: remember what a committed batch has taught about the account.
-- Parameters: 1 job text; 2, 3 offsets, seconds bigint, null where none are known; 4 foreign objects in a million seconds
--   bigint, null where nothing was listed; 5 now timestamptz.
-- Returns: nothing.
-- Locks: the job's row, until this one statement ends.
insert into reconciliation.bulk_learned as l
    (job, offset_from_seconds, offset_to_seconds, foreign_per_million_seconds, learned_at)
values ($1, $2, $3, $4, $5)
on conflict (job) do update
set offset_from_seconds = excluded.offset_from_seconds,
    offset_to_seconds = excluded.offset_to_seconds,
    foreign_per_million_seconds = excluded.foreign_per_million_seconds,
    learned_at = excluded.learned_at
where excluded.learned_at >= l.learned_at
