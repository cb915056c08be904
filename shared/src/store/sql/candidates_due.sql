-- Purpose: the candidates for an orphan that are due for another look, those that may be money first; and the open findings of
--   orphans that a payment names by now.
-- Parameters: 1 now timestamptz; 2 limit bigint.
-- Returns: named true: nothing has to be asked about it any more. first_seen_at is null where there is only a finding.
-- Locks: none.
with due as (
    select c.external_ref, c.status, c.first_seen_at
    from reconciliation.orphan_candidate c
    where c.next_look_at <= $1
    -- an abandoned cart may wait, however many there are
    order by c.status = 'requires_payment_method', c.next_look_at, c.external_ref
    limit $2
)
select
    d.external_ref,
    d.status,
    d.first_seen_at,
    coalesce((select true from reconciliation.payment p where p.external_ref = d.external_ref limit 1), false) as named
from due d
union all
select distinct f.external_ref, coalesce(f.external_status, ''), null::timestamptz, true
from reconciliation.finding f
where f.payment_id is null
  and f.resolved_at is null
  and (select true from reconciliation.payment p where p.external_ref = f.external_ref limit 1)
  and f.external_ref not in (select d.external_ref from due d)
