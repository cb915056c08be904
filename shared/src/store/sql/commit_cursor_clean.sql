-- Purpose: the end of a walk's commit: what is forgotten on the way, and the facts.
-- Parameters: those of commit_cursor_move.sql and commit_judged.sql, and
--   25 boolean: forget observations whose payment is gone.
-- Returns: nothing at all when another tick moved the cursor first. Else a row `moved`, and the rows of fact.
-- Locks: those observations, and the open findings of their payments.
-- Observations of payments that are gone would pin the lag. Only those between the two positions: every batch cleans
-- behind itself. The comparisons with null positions and with the order fold away when the statement is planned.
gone as (
    select o.payment_id
    from reconciliation.observation o
    where $25
      and $4 = 'id'
      and ($6::text is null or o.payment_id > $6::text::reconciliation.payment_id)
      and ($9 or o.payment_id <= $8::text::reconciliation.payment_id)
      and exists (select from moved)
      and (select true from reconciliation.payment p where p.id = o.payment_id limit 1) is null
    union all
    select o.payment_id
    from reconciliation.observation o
    where $25
      and $4 = 'created_at'
      and ($5::timestamptz is null
        or (o.payment_created_at, o.payment_id) > ($5::timestamptz, $6::text::reconciliation.payment_id))
      and ($9
        or (o.payment_created_at, o.payment_id) <= ($7::timestamptz, $8::text::reconciliation.payment_id))
      and exists (select from moved)
      and (select true from reconciliation.payment p where p.id = o.payment_id limit 1) is null
),
forgotten as (
    delete from reconciliation.observation o
    where o.payment_id in (select g.payment_id from gone g)
    returning o.payment_id
),
closed_with_payment as (
    update reconciliation.finding f
    set resolved_at = greatest($3, f.last_seen_at),
        resolution = 'payment_deleted'
    from forgotten g
    where f.payment_id = g.payment_id
      and f.resolved_at is null
    returning f.id, f.payment_id, f.kind, f.verdict
)
select 'moved' as fact, m.revision as id, null::text as payment_id, null::text as external_ref, null::text as kind,
    null::text as verdict
from moved m
union all
select f.fact, f.id, f.payment_id, f.external_ref, f.kind, f.verdict from fact f
union all
select 'closed', c.id, c.payment_id::text, null, c.kind, c.verdict from closed_with_payment c
