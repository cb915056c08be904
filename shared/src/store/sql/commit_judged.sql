-- Purpose: the middle of every commit, the same for all scans: observations, findings, commands and events of the payments
--   that were judged. What stands before it says whether the tick may write at all (moved), what stands behind it adds what
--   is the job's own and returns the facts; the three are one statement, so all of it is written or nothing.
-- Parameters: 3 now timestamptz; then one array a column, one element a row that was judged, each payment at most once:
--   11 payment_id text[]; 12 version text[]; 13 observed_at timestamptz[], null where there is no confirmed answer;
--   14 external_status text[]; 15 external_created_at timestamptz[]; 16 local_state text[]; 17 external_ref text[];
--   18 verdict text[]; 19 kind text[], null where there is no drift; 20 evidence jsonb as text[]; 21 command text[];
--   22 compensation boolean[];
--   23 a command that was delivered before this, timestamptz, should have taken effect by now; 24 how often a command is
--   issued for one finding, bigint, before a person has to decide.
-- Gives: fact, with a row for each finding `opened`, `closed` and `escalated`, each command `queued`, each event
--   `announced`, and each row that was judged with an answer but `passed_by`: it changed, went away, or was observed by a
--   faster scan meanwhile.
-- Locks: observations, then findings, each in the order of payment_id.
judged as (
    select
        u.payment_id::reconciliation.payment_id as payment_id,
        u.version, u.observed_at, u.external_status, u.external_created_at, u.local_state, u.external_ref,
        u.verdict, u.kind, u.evidence::jsonb as evidence, u.command, u.compensation
    from moved
    cross join unnest(
        $11::text[], $12::text[], $13::timestamptz[], $14::text[], $15::timestamptz[], $16::text[], $17::text[],
        $18::text[], $19::text[], $20::text[], $21::text[], $22::boolean[]
    ) as u (
        payment_id, version, observed_at, external_status, external_created_at, local_state, external_ref,
        verdict, kind, evidence, command, compensation)
),
-- The rows as they are now. One whose version is another by now was judged by what is no longer true. Each is looked up by
-- its key (the limit keeps it so): a join would read the whole of a table that is not much larger than a batch.
current as (
    select j.*, p.created_at, coalesce(p.version = j.version, false) as unchanged
    from judged j
    cross join lateral (
        select coalesce(p.created_at, 'epoch') as created_at, p.version
        from reconciliation.payment p
        where p.id = j.payment_id
        limit 1
    ) p
),
observed as (
    insert into reconciliation.observation as o
        (payment_id, payment_created_at, external_status, external_created_at, observed_at, verified_through)
    select
        c.payment_id,
        c.created_at,
        case when c.unchanged then c.external_status end,
        case when c.unchanged then c.external_created_at end,
        case when c.unchanged then c.observed_at end,
        coalesce(case when c.unchanged then c.observed_at end, c.created_at)
    from current c
    order by c.payment_id
    on conflict (payment_id) do update
    set external_status = excluded.external_status,
        external_created_at = excluded.external_created_at,
        observed_at = excluded.observed_at,
        verified_through = excluded.verified_through
    where excluded.observed_at > o.observed_at
       or (o.observed_at is null and excluded.observed_at is not null)
    returning o.payment_id, o.observed_at
),
accepted as (
    select c.*
    from current c
    where c.payment_id in (select o.payment_id from observed o where o.observed_at is not null)
),
-- A finding is over when both sides agree again, or when the drift has become another one.
over as (
    select f.id, a.verdict = 'in_sync' as in_sync
    from reconciliation.finding f
    join accepted a on a.payment_id = f.payment_id
    where f.resolved_at is null
      and (a.verdict = 'in_sync' or f.kind <> a.kind)
    order by f.payment_id, f.id
    for update of f
),
closed as (
    update reconciliation.finding f
    set resolved_at = greatest($3, f.last_seen_at),
        resolution = case when over.in_sync then 'in_sync_again' else 'replaced' end
    from over
    where f.id = over.id
    returning f.id, f.payment_id, f.kind, f.verdict
),
-- What a person accepted stays closed while kind, states and reference are what they were then.
wanted as (
    select a.*
    from accepted a
    where a.kind is not null
      and not exists (
        select
        from reconciliation.finding f
        where f.payment_id = a.payment_id
          and f.resolution = 'accepted'
          and f.kind = a.kind
          and f.local_state is not distinct from a.local_state
          and f.external_status is not distinct from a.external_status
          and f.external_ref is not distinct from a.external_ref)
),
-- Open drifts whose commands all died, or were delivered long enough ago to have taken effect.
helpless as (
    select w.payment_id, f.id as finding_id, c.issued
    from wanted w
    join reconciliation.finding f on f.payment_id = w.payment_id and f.kind = w.kind
    cross join lateral (
        select
            count(*) as issued,
            coalesce(bool_and(o.dead_at is not null or coalesce(o.delivered_at < $23, false)), true) as helpless
        from reconciliation.outbox o
        where o.kind = 'command'
          and o.payload ->> 'finding_id' = f.id::text
          and o.created_at >= coalesce(f.retried_at, '-infinity') -- a person's retry begins from zero
    ) c
    where w.command is not null
      and f.resolved_at is null
      and f.escalated_at is null
      and c.helpless
),
reported as (
    insert into reconciliation.finding as f
        (payment_id, external_ref, kind, verdict, local_state, external_status, evidence, detected_at, last_seen_at,
         escalated_at)
    select
        w.payment_id, w.external_ref, w.kind,
        case when h.issued >= $24 then 'needs_review' else w.verdict end,
        w.local_state, w.external_status, w.evidence, $3, $3,
        case when h.issued >= $24 then $3 end
    from wanted w
    left join helpless h on h.payment_id = w.payment_id
    order by w.payment_id
    on conflict (payment_id, kind) where resolved_at is null and payment_id is not null do update
    set last_seen_at = greatest(f.last_seen_at, excluded.last_seen_at),
        external_ref = excluded.external_ref,
        local_state = excluded.local_state,
        external_status = excluded.external_status,
        evidence = case
            when f.local_state is not distinct from excluded.local_state
             and f.external_status is not distinct from excluded.external_status
             and f.external_ref is not distinct from excluded.external_ref then f.evidence
            else excluded.evidence
        end,
        verdict = case when f.escalated_at is null then excluded.verdict else f.verdict end,
        escalated_at = coalesce(f.escalated_at, excluded.escalated_at)
    -- xmax is 0 in a row that was inserted, and the locking transaction in one that was there
    returning f.id, f.payment_id, f.kind, f.verdict, xmax = 0 as opened
),
opened as (
    select r.id, r.payment_id, r.kind, r.verdict
    from reported r
    where r.opened
),
to_issue as (
    select o.id as finding_id, w.*
    from opened o
    join wanted w on w.payment_id = o.payment_id
    where w.command is not null
    union all
    select h.finding_id, w.*
    from helpless h
    join wanted w on w.payment_id = h.payment_id
    where h.issued < $24
      and h.finding_id in (select r.id from reported r)
),
queued as (
    insert into reconciliation.outbox (aggregate, kind, type, payload, created_at, available_at)
    select
        i.payment_id::text, 'command', i.command,
        jsonb_build_object(
            'payment_id', i.payment_id::text,
            'finding_id', i.finding_id,
            'expected_local_state', i.local_state,
            'external_ref', i.external_ref,
            'external_status', i.external_status,
            'observed_at', i.observed_at),
        $3, $3
    from to_issue i
    order by i.payment_id
    on conflict ((payload ->> 'finding_id')) where kind = 'command' and delivered_at is null and dead_at is null
    do nothing
    returning id, aggregate, type
),
announced as (
    insert into reconciliation.outbox (aggregate, kind, type, payload, created_at, available_at)
    -- not of the opened ones only: a finding that was open before may come to need it by another state or reference
    select
        w.payment_id::text, 'event', 'PaymentCompensationRequired',
        jsonb_build_object(
            'payment_id', w.payment_id::text,
            'finding_id', r.id,
            'external_ref', w.external_ref,
            'external_status', w.external_status,
            'observed_at', w.observed_at),
        $3, $3
    from wanted w
    join reported r on r.payment_id = w.payment_id
    where w.compensation
    order by w.payment_id
    on conflict (aggregate, coalesce(payload ->> 'external_ref', '')) where type = 'PaymentCompensationRequired'
    do nothing
    returning id, aggregate, type
),
fact as (
    select 'opened' as fact, o.id, o.payment_id::text as payment_id, null::text as external_ref, o.kind, o.verdict
    from opened o
    union all
    select 'closed', c.id, c.payment_id::text, null, c.kind, c.verdict from closed c
    union all
    select 'escalated', r.id, r.payment_id::text, null, r.kind, r.verdict
    from reported r
    join helpless h on h.finding_id = r.id
    where h.issued >= $24
    union all
    select 'queued', q.id, q.aggregate, null, q.type, null from queued q
    union all
    select 'announced', a.id, a.aggregate, null, a.type, null from announced a
    union all
    select 'passed_by', null, j.payment_id::text, null, null, j.verdict
    from judged j
    where j.observed_at is not null
      and not exists (select from accepted a where a.payment_id = j.payment_id)
),
