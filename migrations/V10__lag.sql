-- Why: the lag and what else alarms stand on is read every minute, so each figure needs an index or a counter, and none may
-- read a whole table.

-- How far the walk has come, whatever the position is now: beyond it are the payments that the walk has not met yet. (The
-- observations do not say it: the sweep observes payments far ahead of the walk.)
alter table reconciliation.cursor
    add column furthest_created_at timestamptz,
    add column furthest_id reconciliation.payment_id,
    add column cycle_rows bigint not null default 0,
    add column corrections_counted_to timestamptz,
    add constraint furthest_is_whole_or_absent check ((furthest_created_at is null) = (furthest_id is null));
comment on column reconciliation.cursor.furthest_id is 'The furthest payment that was passed, in the order of keyset; set anew where a cycle ends. Beyond it nothing has been met by this job.';
comment on column reconciliation.cursor.cycle_rows is 'How many payments were judged in the cycle that runs, or in the last one while none runs. With its time that is the throughput.';
comment on column reconciliation.cursor.corrections_counted_to is 'Repairs that were written up to this moment are counted in a report of this job.';
-- A cursor that is there already has passed everything up to its position. Where it stands at the start it has no mark until
-- its next cycle, and the lag errs on the side of too long.
update reconciliation.cursor c
set furthest_created_at = c.position_created_at,
    furthest_id = c.position_id
where c.position_id is not null;

-- Met, and never verified: few, but for the first cycle and an outage within it.
create index observation_never_verified on reconciliation.observation (verified_through) where observed_at is null;

create index finding_open_by_kind on reconciliation.finding (kind, verdict, detected_at) where resolved_at is null;
create index finding_by_end on reconciliation.finding (resolved_at, resolution, kind, verdict) where resolved_at is not null;

create index outbox_waiting_by_age on reconciliation.outbox (kind, created_at) where delivered_at is null and dead_at is null;
create index outbox_dead on reconciliation.outbox (kind) where dead_at is not null;

-- Stripe allows so many reads in 30 days. Counted where the slot of the budget is taken, in the same statement: whoever
-- takes one has the account's budget row locked, so nobody waits for this row in addition.
create table reconciliation.stripe_reads (
    account  text        not null,
    began_at timestamptz not null,
    requests bigint      not null,
    constraint one_row_per_account_and_ten_minutes primary key (account, began_at),
    constraint requests_do_not_fall_below_zero check (requests >= 0)
) with (fillfactor = 50);
comment on table reconciliation.stripe_reads is
    'How many slots of the request budget were taken, in steps of ten minutes, for the last 31 days. A slot is one request, retries included.';
