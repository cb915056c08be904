-- Why: what the reconciler has to remember between two ticks. The application's own table is not touched by any of it.

create table reconciliation.cursor (
    job                     text        primary key,
    keyset                  text        not null default 'id',
    position_created_at     timestamptz,
    position_id             reconciliation.payment_id,
    revision                bigint      not null default 0,
    starts                  integer     not null default 0,
    cycle                   bigint      not null default 0,
    cycle_started_at        timestamptz,
    last_cycle_completed_at timestamptz,
    released_revision       bigint,
    constraint keyset_is_known check (keyset in ('id', 'created_at')),
    constraint position_is_whole_or_absent check ((position_created_at is null) = (position_id is null)),
    constraint counters_do_not_fall_below_zero check (revision >= 0 and starts >= 0 and cycle >= 0)
);
comment on table reconciliation.cursor is 'One row a job: how far the walk has come.';
comment on column reconciliation.cursor.keyset is 'The order of the walk that the position belongs to: by id, or by (created_at, id).';
comment on column reconciliation.cursor.position_id is 'The last payment that was passed; null before the first of a cycle.';
comment on column reconciliation.cursor.revision is 'Grows with every commit. The cursor moves by compare-and-set on it, since a position alone can come round again.';
comment on column reconciliation.cursor.starts is 'How many ticks have started a batch at this position without moving it.';
comment on column reconciliation.cursor.cycle is 'The number of the cycle that runs, or of the last one while none runs.';
comment on column reconciliation.cursor.cycle_started_at is 'When that cycle began. It still runs while this is later than last_cycle_completed_at.';
comment on column reconciliation.cursor.released_revision is 'A person has looked at the withheld batch of this revision and lets it through. Any commit outdates it.';

create table reconciliation.observation (
    payment_id          reconciliation.payment_id primary key,
    payment_created_at  timestamptz not null,
    external_status     text,
    external_created_at timestamptz,
    observed_at         timestamptz,
    verified_through    timestamptz not null,
    constraint status_needs_an_observation check (external_status is null or observed_at is not null)
) with (
    -- Every verification moves verified_through, which is indexed: dead index entries made the lag's index probe slow.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05
);
create index observation_by_age on reconciliation.observation (verified_through);
create index observation_by_payment_age on reconciliation.observation (payment_created_at, payment_id);
comment on table reconciliation.observation is 'One narrow row a payment: the last thing that Stripe really said, and when.';
comment on column reconciliation.observation.external_status is 'The PaymentIntent''s status or not_found; null while there is no answer, or where the payment has no reference to ask for.';
comment on column reconciliation.observation.observed_at is 'The database''s time before the request. Only a newer one replaces it.';
comment on column reconciliation.observation.verified_through is 'observed_at of the last confirmed answer; the payment''s creation while there was none. The oldest is the lag.';

create table reconciliation.finding (
    id              bigint      generated always as identity primary key,
    payment_id      reconciliation.payment_id,
    external_ref    text,
    kind            text        not null,
    verdict         text        not null,
    local_state     text,
    external_status text,
    evidence        jsonb       not null default '{}',
    detected_at     timestamptz not null,
    last_seen_at    timestamptz not null,
    escalated_at    timestamptz,
    resolved_at     timestamptz,
    resolution      text,
    constraint payment_or_external_ref_is_named check (payment_id is not null or external_ref is not null),
    constraint verdict_is_a_drift check (verdict in ('repairable', 'needs_review')),
    constraint escalated_is_for_a_person check (escalated_at is null or verdict = 'needs_review'),
    constraint resolved_at_iff_resolution check ((resolved_at is null) = (resolution is null)),
    constraint resolution_is_known check (
        resolution in ('in_sync_again', 'replaced', 'repaired', 'already_written', 'payment_deleted', 'accepted')),
    constraint seen_after_detected check (last_seen_at >= detected_at)
);
-- Two partial indexes, since nulls do not collide in one over both columns.
create unique index one_open_finding_of_a_kind_per_payment
    on reconciliation.finding (payment_id, kind) where resolved_at is null and payment_id is not null;
create unique index one_open_finding_of_a_kind_per_external_ref
    on reconciliation.finding (external_ref, kind) where resolved_at is null and payment_id is null;
create index finding_accepted_by_a_person on reconciliation.finding (payment_id) where resolution = 'accepted';
create index finding_of_a_payment on reconciliation.finding (payment_id, id);
comment on table reconciliation.finding is 'One drift of one kind of one payment, or of one Stripe-only object.';
comment on column reconciliation.finding.evidence is 'What was seen when it opened, and the previous observation. Refreshed only when either side changes.';
comment on column reconciliation.finding.escalated_at is 'A repair did not help: from here on a person decides, and no scan takes that back.';

create table reconciliation.orphan_candidate (
    external_ref    text        primary key,
    status          text        not null,
    first_seen_at   timestamptz not null,
    last_checked_at timestamptz not null,
    constraint checked_after_seen check (last_checked_at >= first_seen_at)
);
comment on table reconciliation.orphan_candidate is 'A PaymentIntent that no payment names: the memory of the second look.';

create table reconciliation.outbox (
    id               bigint      generated always as identity primary key,
    aggregate        text        not null,
    kind             text        not null,
    type             text        not null,
    payload          jsonb       not null,
    created_at       timestamptz not null,
    attempts         integer     not null default 0,
    available_at     timestamptz not null,
    lease_expires_at timestamptz,
    fence            bigint      not null default 0,
    delivered_at     timestamptz,
    dead_at          timestamptz,
    last_error       text,
    constraint type_is_of_its_kind check (
        (kind = 'command' and type in ('ApplyPaymentSucceeded', 'ApplyPaymentCanceled', 'ApplyPaymentFailed'))
        or (kind = 'event' and type in ('PaymentCaptured', 'PaymentFailed', 'PaymentCompensationRequired'))),
    constraint delivered_or_dead_not_both check (delivered_at is null or dead_at is null),
    constraint attempts_do_not_fall_below_zero check (attempts >= 0)
);
create index outbox_waiting on reconciliation.outbox (available_at, id) where delivered_at is null and dead_at is null;
create index outbox_of_an_aggregate on reconciliation.outbox (aggregate, id);
-- Somebody may pay a customer back on this event, so it exists once for a payment and reference, for ever.
create unique index one_compensation_per_payment_and_reference
    on reconciliation.outbox (aggregate, coalesce(payload ->> 'external_ref', ''))
    where type = 'PaymentCompensationRequired';
comment on table reconciliation.outbox is 'Commands to the canonical writer and events to the rest of the company, committed with what caused them.';
comment on column reconciliation.outbox.aggregate is 'The payment''s key as text.';
comment on column reconciliation.outbox.fence is 'Grows with every claim: a worker whose lease ran out cannot mark the row any more.';

create table reconciliation.api_budget (
    account        text        not null,
    share          text        not null,
    slot_at        timestamptz not null,
    next_free_at   timestamptz not null,
    throttle_level integer     not null default 0,
    throttled_at   timestamptz not null default '-infinity',
    constraint api_budget_key primary key (account, share),
    constraint throttle_level_is_in_range check (throttle_level between 0 and 6)
) with (fillfactor = 50);
comment on table reconciliation.api_budget is
    'A rate limiter (GCRA, burst 1) that all processes share. One row for an account''s total; a function that may use only a part of it has a row of its own beside that.';
comment on column reconciliation.api_budget.slot_at is 'The slot that was given out last.';
comment on column reconciliation.api_budget.next_free_at is 'The first instant at which the next request may start.';
comment on column reconciliation.api_budget.throttle_level is 'Each level halves the rate; one is added by a 429 and one falls away with every minute since.';

create function reconciliation.throttle_level_at(throttle_level integer, throttled_at timestamptz, at timestamptz)
returns integer
language sql
immutable
parallel safe
return case
    when throttle_level = 0 then 0
    when at - throttled_at >= interval '6 minutes' then 0
    else greatest(0, throttle_level - floor(extract(epoch from at - throttled_at) / 60)::integer)
end;
comment on function reconciliation.throttle_level_at is 'The throttle level that is left at a moment: one less with every minute since the last 429.';
