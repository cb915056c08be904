-- Who may do what. Applied after every migration and every adapter, since a view or function that was dropped and made
-- again has lost its grants. Grants name their tables and never say ALL: the view is auto-updatable, and a blanket grant
-- would let the scans change payments through it.

-- On PUBLIC nothing is left, least of all EXECUTE, which every new function has by default.
revoke all on all tables in schema reconciliation from public;
revoke execute on all functions in schema reconciliation from public;

grant usage on schema reconciliation
    to reconciler_scan, reconciler_writer, reconciler_metrics, reconciler_reviewer;
grant usage on type reconciliation.payment_id
    to reconciler_scan, reconciler_writer, reconciler_metrics, reconciler_reviewer;

-- The scans read payments, judge them, and ask for repairs. They cannot carry one out.
revoke all on reconciliation.payment
    from reconciler_scan, reconciler_writer, reconciler_metrics, reconciler_reviewer;
grant select on reconciliation.payment to reconciler_scan;
grant select, insert, update on reconciliation.cursor to reconciler_scan;
grant select, insert, update, delete on reconciliation.observation to reconciler_scan;
grant select, insert, update on reconciliation.finding to reconciler_scan;
grant select, insert, update, delete on reconciliation.orphan_candidate to reconciler_scan;
grant select, insert, update on reconciliation.reverse_window to reconciler_scan;
grant select, insert on reconciliation.outbox to reconciler_scan;
grant select, insert, update on reconciliation.api_budget to reconciler_scan;
grant select, insert, update, delete on reconciliation.stripe_reads to reconciler_scan;
grant select, insert, update on reconciliation.bulk_learned to reconciler_scan;
grant execute on function reconciliation.throttle_level_at(integer, timestamptz, timestamptz)
    to reconciler_scan, reconciler_metrics;

-- The writer's callers reach a payment through transition alone, and work the outbox and the inbox.
grant select on reconciliation.payment to reconciler_writer;
grant execute on function reconciliation.transition(reconciliation.payment_id, text, jsonb, bigint, bigint)
    to reconciler_writer, reconciler_reviewer;
grant select, update on reconciliation.outbox to reconciler_writer;
grant select on reconciliation.finding to reconciler_writer;
grant select, insert on reconciliation.webhook_inbox to reconciler_writer;

-- The review desk records what a person decided, and acts on it. It may add a review and change none; of a finding and of a
-- cursor it may write what a decision comes to.
grant select on reconciliation.payment, reconciliation.observation, reconciliation.finding, reconciliation.cursor,
    reconciliation.outbox, reconciliation.review
    to reconciler_reviewer;
grant insert on reconciliation.review to reconciler_reviewer;
grant insert on reconciliation.outbox to reconciler_reviewer;
grant update (verdict, escalated_at, resolved_at, resolution, snoozed_until, retried_at, review_id)
    on reconciliation.finding to reconciler_reviewer;
grant update (released_revision) on reconciliation.cursor to reconciler_reviewer;

-- Metrics read, and so do those who look at the desk.
grant select on reconciliation.payment, reconciliation.cursor, reconciliation.observation, reconciliation.finding,
    reconciliation.orphan_candidate, reconciliation.outbox, reconciliation.api_budget,
    reconciliation.webhook_inbox, reconciliation.reverse_window, reconciliation.stripe_reads,
    reconciliation.bulk_learned, reconciliation.review
    to reconciler_metrics;
