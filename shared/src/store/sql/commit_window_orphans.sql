-- Purpose: the end of the reverse scan's commit: what becomes of the PaymentIntents that no payment names, and the facts.
-- Parameters: those of commit_window_move.sql and commit_judged.sql, and one array a column, each PaymentIntent at most once:
--   27 external_ref text[]; 28 how it was come by, text[]: `listed` on a page, `retrieved`, or `unanswered`; 29 status text[];
--   30 match_key text[]; 31 external_created_at timestamptz[]; 32 next look at timestamptz[], null where it is no candidate
--   any more; 33 kind text[] of the finding that it is, null where it is none; 34 evidence jsonb as text[].
-- Returns: nothing at all when another tick wrote first. Else a row `moved`, the rows of fact, a row for each finding of an
--   orphan `opened` and `closed`, and a row `named` for each PaymentIntent that a payment names by now.
-- Locks: candidates in the order of external_ref, then open findings of orphans in the order of id.
looked as (
    select u.*
    from moved
    cross join unnest(
        $27::text[], $28::text[], $29::text[], $30::text[], $31::timestamptz[], $32::timestamptz[], $33::text[], $34::text[]
    ) as u (external_ref, how, status, match_key, external_created_at, next_look_at, kind, evidence)
),
-- Whether a payment names it is asked again here, as of this statement's snapshot: whoever has a payment is no orphan. Reported
-- is what has an open finding, or one that a person accepted, with this same status: seen on a page again, it is no news.
stranger as (
    select
        l.*,
        coalesce(
            (select true from reconciliation.payment p where p.external_ref = l.external_ref limit 1), false) as named,
        exists (
            select
            from reconciliation.finding f
            where f.payment_id is null
              and f.external_ref = l.external_ref
              and f.external_status is not distinct from l.status
              and (f.resolved_at is null or f.resolution = 'accepted')) as reported
    from looked l
),
dropped as (
    delete from reconciliation.orphan_candidate c
    where c.external_ref in (select s.external_ref from stranger s where s.named or s.next_look_at is null)
    returning c.external_ref
),
-- A look says when the next one is. A sighting on a page can only bring it forward.
watched as (
    insert into reconciliation.orphan_candidate as c
        (external_ref, status, match_key, external_created_at, first_seen_at, last_checked_at, next_look_at)
    select s.external_ref, s.status, s.match_key, s.external_created_at, $3, $3, s.next_look_at
    from stranger s
    where not s.named
      and s.next_look_at is not null
      and not (s.how = 'listed' and s.reported)
    order by s.external_ref
    on conflict (external_ref) do update
    set status = case when excluded.status in ('unreadable', 'not_found') then c.status else excluded.status end,
        match_key = coalesce(excluded.match_key, c.match_key),
        external_created_at = coalesce(excluded.external_created_at, c.external_created_at),
        last_checked_at = greatest(c.last_checked_at, excluded.last_checked_at),
        next_look_at = case
            when (select s.how = 'listed' from stranger s where s.external_ref = c.external_ref)
                then least(c.next_look_at, excluded.next_look_at)
            else excluded.next_look_at
        end
    returning c.external_ref
),
orphan_over as (
    select f.id, s.named or s.kind is null as in_sync
    from reconciliation.finding f
    join stranger s on s.external_ref = f.external_ref
    where f.payment_id is null
      and f.resolved_at is null
      and (s.named or (s.how = 'retrieved' and s.kind is distinct from f.kind))
    order by f.id
    for update of f
),
orphan_closed as (
    update reconciliation.finding f
    set resolved_at = greatest($3, f.last_seen_at),
        resolution = case when o.in_sync then 'in_sync_again' else 'replaced' end
    from orphan_over o
    where f.id = o.id
    returning f.id, f.external_ref, f.kind, f.verdict
),
orphan_seen_again as (
    update reconciliation.finding f
    set last_seen_at = greatest(f.last_seen_at, $3)
    from stranger s
    where f.payment_id is null
      and f.external_ref = s.external_ref
      and f.resolved_at is null
      and s.how = 'listed'
      and s.reported
      and not s.named
    returning f.id
),
orphan_reported as (
    insert into reconciliation.finding as f
        (external_ref, kind, verdict, external_status, evidence, detected_at, last_seen_at)
    select s.external_ref, s.kind, 'needs_review', s.status, s.evidence::jsonb, $3, $3
    from stranger s
    where not s.named
      and s.how = 'retrieved'
      and s.kind is not null
      -- what a person accepted stays closed while kind and status are what they were then
      and not exists (
        select
        from reconciliation.finding f
        where f.payment_id is null
          and f.external_ref = s.external_ref
          and f.kind = s.kind
          and f.resolution = 'accepted'
          and f.external_status is not distinct from s.status)
    order by s.external_ref
    on conflict (external_ref, kind) where resolved_at is null and payment_id is null do update
    set last_seen_at = greatest(f.last_seen_at, excluded.last_seen_at),
        external_status = excluded.external_status,
        evidence = excluded.evidence
    -- xmax is 0 in a row that was inserted, and the locking transaction in one that was there
    returning f.id, f.external_ref, f.kind, f.verdict, xmax = 0 as opened
)
select 'moved' as fact, m.revision as id, null::text as payment_id, null::text as external_ref, null::text as kind,
    null::text as verdict
from moved m
union all
select f.fact, f.id, f.payment_id, f.external_ref, f.kind, f.verdict from fact f
union all
select 'opened', r.id, null, r.external_ref, r.kind, r.verdict from orphan_reported r where r.opened
union all
select 'closed', c.id, null, c.external_ref, c.kind, c.verdict from orphan_closed c
union all
select 'named', null, null, s.external_ref, null, null from stranger s where s.named
