-- Purpose: record that a person lets a withheld batch through.
-- Parameters: 1 job text; 2 revision bigint; 3 who text; 4 who_is text; 5 request_id text; 6 claimed_by text; 7 note text;
--   8 now timestamptz.
-- Returns: the review's id and the time at which the batch was first withheld; no row where none is withheld at this revision,
--   or it was decided on before.
-- Locks: the place of the review in its unique index, until the transaction ends.
insert into reconciliation.review
    (job, revision, decision, who, who_is, request_id, claimed_by, note, evidence, decided_at)
select
    c.job, c.revision, 'release', $3, $4, $5, $6, $7,
    jsonb_build_object(
        'withheld_at', c.withheld_at, 'withheld_because', c.withheld_because, 'position_id', c.position_id::text,
        'position_created_at', c.position_created_at),
    $8
from reconciliation.cursor c
where c.job = $1
  and c.revision = $2
  and c.withheld_revision = c.revision
on conflict do nothing
returning id, (evidence ->> 'withheld_at')::timestamptz as withheld_at
