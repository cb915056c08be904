-- Purpose: the beginning of the reverse scan's commit: its window gets the state that the tick has come to, or nothing of the
--   commit is written.
-- Parameters:
--   1 job text; 2 revision bigint that the window was read at; 3 now timestamptz;
--   4, 5 window from and to, 7 started at, timestamptz, null between two windows; 6 page after, text; 8 terms text;
--   9 completed to, 10 last completed at, 26 proven from, timestamptz;
--   25 counters bigint[]: pages, objects, matched, unread, known, proven_matched.
-- Gives: moved (revision), empty when another tick wrote first. commit_judged.sql follows.
-- Locks: the window's row.
with moved as (
    update reconciliation.reverse_window w
    set revision = w.revision + 1,
        window_from = $4,
        window_to = $5,
        page_after = $6,
        started_at = $7,
        terms = $8,
        completed_to = $9,
        last_completed_at = $10,
        pages = ($25::bigint[])[1],
        objects = ($25::bigint[])[2],
        matched = ($25::bigint[])[3],
        unread = ($25::bigint[])[4],
        known = ($25::bigint[])[5],
        proven_matched = ($25::bigint[])[6],
        proven_from = $26
    where w.job = $1
      and w.revision = $2
    returning w.revision
),
