-- Purpose: record a decision, with what was to be seen when it was written.
-- Parameters: 1 finding bigint; 2 revision bigint; 3 decision text; 4 transition text, null but for apply; 5 snoozed until
--   timestamptz, null but for snooze; 6 who text; 7 who_is text; 8 request_id text; 9 claimed_by text; 10 note text;
--   11 now timestamptz.
-- Returns: the review's id; no row where the finding is closed, is at another revision, or was decided on at this one.
-- Locks: the finding's row against deletion, and the place of the review in its unique index, until the transaction ends.
insert into reconciliation.review
    (finding_id, revision, decision, transition, snoozed_until, who, who_is, request_id, claimed_by, note, evidence, decided_at)
select
    f.id, f.revision, $3, $4, $5, $6, $7, $8, $9, $10,
    jsonb_build_object(
        'finding', to_jsonb(f),
        'payment', jsonb_build_object(
            'id', p.id::text, 'state', p.state, 'external_ref', split_part(p.external_ref, '_secret_', 1),
            'updated_at', p.updated_at, 'version', p.version),
        'observation', jsonb_build_object('external_status', o.external_status, 'observed_at', o.observed_at)),
    $11
from reconciliation.finding f
left join reconciliation.payment p on p.id = f.payment_id
left join reconciliation.observation o on o.payment_id = f.payment_id
where f.id = $1
  and f.revision = $2
  and f.resolved_at is null
on conflict do nothing
returning id
