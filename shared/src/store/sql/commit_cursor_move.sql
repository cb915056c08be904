-- Purpose: the beginning of a walk's commit: its cursor moves, or nothing of the commit is written.
-- Parameters:
--   1 job text; 2 revision bigint that the batch was loaded at; 3 now timestamptz;
--   4 keyset text; 5, 6 position before (created_at timestamptz, id text); 7, 8 position after; null for the start;
--   9 wraps boolean, the cycle ends here; 10 begins boolean, the cycle begins here.
-- Gives: moved (revision), empty when another tick moved the cursor first. commit_judged.sql follows.
-- Locks: the cursor's row.
with moved as (
    update reconciliation.cursor c
    set keyset = $4,
        position_created_at = case when $9 then null else $7::timestamptz end,
        position_id = case when $9 then null else $8::text::reconciliation.payment_id end,
        -- A tick that came no further leaves the revision alone, and with it a better one that is under way, and a release.
        revision = c.revision + case
            when not $9 and c.position_id is not distinct from $8::text::reconciliation.payment_id then 0
            else 1
        end,
        starts = case
            when not $9 and c.position_id is not distinct from $8::text::reconciliation.payment_id then c.starts
            else 0
        end,
        cycle = c.cycle + case when $10 then 1 else 0 end,
        cycle_started_at = case when $10 then $3 else c.cycle_started_at end,
        last_cycle_completed_at = case when $9 then $3 else c.last_cycle_completed_at end,
        cycle_rows = case when $10 then 0 else c.cycle_rows end + case
            when not $9 and c.position_id is not distinct from $8::text::reconciliation.payment_id then 0
            else cardinality($11::text[])
        end,
        -- Set anew where the cycle ends, and in another order; else it only moves on.
        (furthest_created_at, furthest_id) = (
            select f.created_at, f.id
            from (values
                (1, $7::timestamptz, $8::text::reconciliation.payment_id),
                (2, c.furthest_created_at, c.furthest_id)
            ) as f (rank, created_at, id)
            order by
                f.id is null,
                case when $9 or c.keyset <> $4 then f.rank end,
                case when $4 = 'created_at' then f.created_at end desc,
                f.id desc
            limit 1)
    where c.job = $1
      and c.revision = $2
    returning c.revision
),
