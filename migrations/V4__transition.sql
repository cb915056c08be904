-- Why: the canonical writer. Whoever changes a payment because of Stripe (webhook, dispatcher, the application's own
-- handler in any language) calls this one function, so that the transition, its event and the finding's closing are one
-- transaction for every caller. It runs with its owner's rights: its callers need none on the payments.
--
-- Parameters: transition   succeeded | canceled | failed; reverse_paid and accept_late_success are a person's.
--             evidence     must carry external_ref, the PaymentIntent that was seen.
--             finding_id   the finding that this repairs, if any.
-- Returns:    written          the payment changed; the event is in the outbox; the finding is closed.
--             already_written  it was so already; the finding is closed, no second event.
--             superseded       the row is in another state or points to another PaymentIntent by now: nothing is
--                              written and the finding stays open for the next scan to judge.
-- Locks:      the payment's row (by apply_transition), then the finding's.

create function reconciliation.transition(
    payment_id reconciliation.payment_id,
    transition text,
    evidence   jsonb,
    finding_id bigint default null
) returns text
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    outcome text;
begin
    if transition in ('reverse_paid', 'accept_late_success') then
        raise exception 'the transition % moves money and belongs to a person', transition
            using errcode = 'insufficient_privilege',
                  hint = 'It needs the id of a recorded review, and there is no review desk in this version of the schema.';
    elsif transition is null or transition not in ('succeeded', 'canceled', 'failed') then
        raise exception 'unknown transition %', coalesce(transition, 'null') using errcode = 'invalid_parameter_value';
    elsif coalesce(evidence ->> 'external_ref', '') = '' then
        raise exception 'the evidence for payment % names no external_ref', payment_id
            using errcode = 'invalid_parameter_value';
    end if;

    outcome := reconciliation.apply_transition(transition.payment_id, transition.transition, transition.evidence);

    if outcome = 'written' then
        insert into reconciliation.outbox (aggregate, kind, type, payload, created_at, available_at)
        values (
            transition.payment_id::text,
            'event',
            case when transition.transition = 'succeeded' then 'PaymentCaptured' else 'PaymentFailed' end,
            transition.evidence || pg_catalog.jsonb_build_object(
                'payment_id', transition.payment_id::text,
                'transition', transition.transition,
                'finding_id', transition.finding_id),
            pg_catalog.now(),
            pg_catalog.now());
    elsif outcome is null or outcome not in ('already_written', 'superseded') then
        raise exception 'apply_transition answered % for payment %', coalesce(outcome, 'null'), transition.payment_id
            using hint = 'It must answer written, already_written or superseded: mend the write port of the adapter.';
    end if;

    if outcome in ('written', 'already_written') then
        update reconciliation.finding f
        set resolved_at = greatest(pg_catalog.now(), f.last_seen_at),
            resolution = case when outcome = 'written' then 'repaired' else 'already_written' end
        where f.id = transition.finding_id
          and f.payment_id = transition.payment_id
          and f.resolved_at is null;
    end if;

    return outcome;
end
$$;
comment on function reconciliation.transition is
    'The canonical writer: the only code that changes a payment because of Stripe. Returns written, already_written or superseded.';
