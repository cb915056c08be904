-- Why: Stripe delivers an event at least once, in any order, for up to three days. The row of an event commits in the same
-- transaction as its transition, so an event is either applied and recorded, or neither; and a redelivery changes nothing.

create table reconciliation.webhook_inbox (
    event_id     text        not null,
    type         text        not null,
    external_ref text        not null,
    received_at  timestamptz not null,
    outcome      text        not null,
    constraint one_row_per_event primary key (event_id),
    constraint event_id_is_not_blank check (event_id <> ''),
    constraint outcome_is_known check (
        outcome in ('written', 'already_written', 'superseded', 'no_such_payment', 'several_payments', 'no_transition'))
);
create index webhook_inbox_by_age on reconciliation.webhook_inbox (received_at);
comment on table reconciliation.webhook_inbox is
    'One row for each event of Stripe that was received and dealt with. Nothing needs rows older than 30 days: Stripe keeps events no longer.';
comment on column reconciliation.webhook_inbox.event_id is 'The event''s id at Stripe, evt_….';
comment on column reconciliation.webhook_inbox.type is 'The event''s type, payment_intent.….';
comment on column reconciliation.webhook_inbox.external_ref is 'The PaymentIntent that the event is about.';
comment on column reconciliation.webhook_inbox.received_at is 'The database''s time at the beginning of the transaction.';
comment on column reconciliation.webhook_inbox.outcome is
    'What the canonical writer answered (written, already_written, superseded), or why it was not asked: no payment names the PaymentIntent, several do, or events of this type change nothing.';
