-- Why: what moves money is decided by a person, and the decision is kept: who, what, why, and what was to be seen when it
-- was taken. A person-only transition is refused by Postgres itself without such a record, whoever calls the canonical writer.

create table reconciliation.review (
    id            bigint      generated always as identity primary key,
    finding_id    bigint      references reconciliation.finding,
    job           text,
    revision      bigint      not null,
    decision      text        not null,
    transition    text,
    snoozed_until timestamptz,
    who           text        not null,
    who_is        text        not null,
    request_id    text,
    claimed_by    text,
    note          text        not null,
    evidence      jsonb       not null,
    decided_at    timestamptz not null,
    constraint decision_is_known check (decision in ('accept', 'apply', 'retry', 'snooze', 'release')),
    constraint release_is_of_a_batch_and_the_rest_of_a_finding check (
        (finding_id is null) = (decision = 'release') and (job is null) = (decision <> 'release')),
    constraint transition_iff_apply check ((transition is not null) = (decision = 'apply')),
    constraint transition_is_a_persons check (transition in ('reverse_paid', 'accept_late_success')),
    constraint end_iff_snooze check ((snoozed_until is not null) = (decision = 'snooze')),
    constraint snooze_ends_later check (snoozed_until > decided_at),
    constraint note_is_not_blank check (note ~ '\S'),
    constraint who_is_not_blank check (who ~ '\S'),
    constraint who_is_of_a_known_kind check (who_is in ('cognito', 'database_login', 'not_known'))
);
-- Of two who decide at once on what both were shown, one is too late.
create unique index one_review_of_a_finding_as_it_was_shown
    on reconciliation.review (finding_id, revision) where finding_id is not null;
create unique index one_review_of_a_withheld_batch
    on reconciliation.review (job, revision) where job is not null;
comment on table reconciliation.review is 'Decisions of persons. Rows are added, and by no role changed or taken away.';
comment on column reconciliation.review.revision is 'The finding''s revision, or the cursor''s, that was decided on.';
comment on column reconciliation.review.who is 'Whom the caller''s identity names; where it names nobody, the request by which an audit log does.';
comment on column reconciliation.review.who_is is 'What kind of name that is: cognito, database_login, or not_known where the invocation carried no identity.';
comment on column reconciliation.review.request_id is 'Lambda''s id of the invocation, which CloudTrail''s data events know with its caller.';
comment on column reconciliation.review.claimed_by is 'Who the caller says to be. Nobody has checked it.';
comment on column reconciliation.review.evidence is 'The finding, the payment and the observation as they were when the decision was written.';

alter table reconciliation.finding
    add column revision bigint not null default 0,
    add column snoozed_until timestamptz,
    add column retried_at timestamptz,
    add column review_id bigint references reconciliation.review,
    drop constraint resolution_is_known,
    add constraint resolution_is_known check (
        resolution in ('in_sync_again', 'replaced', 'repaired', 'already_written', 'payment_deleted', 'accepted', 'applied')),
    -- not valid: a finding that was accepted by hand, before there was a desk, stays accepted
    add constraint persons_end_has_a_review check (resolution not in ('accepted', 'applied') or review_id is not null)
        not valid;
comment on column reconciliation.finding.revision is 'Grows when anything changes that a decision depends on. A decision names the one that it was shown.';
comment on column reconciliation.finding.snoozed_until is 'A person will look again then. Gone as soon as either side changes.';
comment on column reconciliation.finding.retried_at is 'A person asked for the repair once more: commands from before do not count as attempts.';
comment on column reconciliation.finding.review_id is 'The last decision about it.';

-- One place for every writer, of whatever statement: what a person was shown is no longer what there is.
create function reconciliation.finding_changed() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    new.revision := old.revision + 1;
    if (new.local_state, new.external_status, new.external_ref)
        is distinct from (old.local_state, old.external_status, old.external_ref) then
        new.snoozed_until := null;
    end if;
    return new;
end
$$;
create trigger finding_changed before update on reconciliation.finding
    for each row
    when ((old.verdict, old.local_state, old.external_status, old.external_ref, old.escalated_at, old.resolved_at,
           old.snoozed_until, old.retried_at, old.review_id)
        is distinct from
          (new.verdict, new.local_state, new.external_status, new.external_ref, new.escalated_at, new.resolved_at,
           new.snoozed_until, new.retried_at, new.review_id))
    execute function reconciliation.finding_changed();

alter table reconciliation.cursor
    add column withheld_revision bigint,
    add column withheld_at timestamptz,
    add column withheld_because text,
    add constraint withheld_is_whole_or_absent check (
        (withheld_revision is null) = (withheld_at is null) and (withheld_revision is null) = (withheld_because is null));
comment on column reconciliation.cursor.withheld_revision is 'A batch was withheld at this revision. It is so still while the cursor is at this revision and nobody released it.';

-- A daily summary for chat or tickets, once a day however often it is asked for.
alter table reconciliation.outbox
    drop constraint type_is_of_its_kind,
    add constraint type_is_of_its_kind check (
        (kind = 'command' and type in ('ApplyPaymentSucceeded', 'ApplyPaymentCanceled', 'ApplyPaymentFailed'))
        or (kind = 'event'
            and type in ('PaymentCaptured', 'PaymentFailed', 'PaymentCompensationRequired', 'ReviewDigest')));
create unique index one_digest_a_day on reconciliation.outbox ((payload ->> 'day')) where type = 'ReviewDigest';
comment on column reconciliation.outbox.aggregate is 'The payment''s key as text; of a ReviewDigest the word review.';

do $$
begin
    if not exists (select from pg_catalog.pg_roles r where r.rolname = 'reconciler_reviewer') then
        begin
            create role reconciler_reviewer nologin;
            grant reconciler_reviewer to current_user;
        exception
            when duplicate_object or unique_violation then null; -- made by a migration next door just now
        end;
    end if;
end
$$;

-- The canonical writer once more, with the review that lets a person's transition through.
--
-- Parameters: transition   succeeded | canceled | failed; reverse_paid and accept_late_success are a person's.
--             evidence     must carry external_ref, the PaymentIntent that was seen.
--             finding_id   the finding that this repairs, if any.
--             review_id    the review that decided so; a person's transition needs it. It has to be of this finding as it is
--                          now, of this payment, and to say `apply` and this transition.
-- Returns:    written          the payment changed; the event is in the outbox; the finding is closed.
--             already_written  it was so already; the finding is closed, no second event.
--             superseded       the row is in another state or points to another PaymentIntent by now: nothing is
--                              written and the finding stays open for the next scan to judge.
-- Raises:     insufficient_privilege for a person's transition without its review; serialization_failure where the finding
--             changed between the review and its closing: nothing is written.
-- Locks:      the payment's row (by apply_transition), then the finding's.
drop function reconciliation.transition(reconciliation.payment_id, text, jsonb, bigint);
create function reconciliation.transition(
    payment_id reconciliation.payment_id,
    transition text,
    evidence   jsonb,
    finding_id bigint default null,
    review_id  bigint default null
) returns text
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    outcome  text;
    reviewed bigint;
begin
    if transition is null
        or transition not in ('succeeded', 'canceled', 'failed', 'reverse_paid', 'accept_late_success') then
        raise exception 'unknown transition %', coalesce(transition, 'null') using errcode = 'invalid_parameter_value';
    elsif coalesce(evidence ->> 'external_ref', '') = '' then
        raise exception 'the evidence for payment % names no external_ref', payment_id
            using errcode = 'invalid_parameter_value';
    elsif transition in ('reverse_paid', 'accept_late_success') or review_id is not null then
        select r.revision
        into reviewed
        from reconciliation.review r
        join reconciliation.finding f on f.id = r.finding_id
        where r.id = transition.review_id
          and r.decision = 'apply'
          and r.transition = transition.transition
          and f.id = transition.finding_id
          and f.payment_id = transition.payment_id
          and f.external_ref = transition.evidence ->> 'external_ref'
          and f.revision = r.revision
          and f.resolved_at is null;
        if not found then
            raise exception 'the transition % moves money and belongs to a person', transition
                using errcode = 'insufficient_privilege',
                      hint = 'It needs the id of a review that decided to apply it to this very payment, of a finding that is open and unchanged since.';
        end if;
    end if;

    outcome := reconciliation.apply_transition(transition.payment_id, transition.transition, transition.evidence);

    if outcome = 'written' then
        insert into reconciliation.outbox (aggregate, kind, type, payload, created_at, available_at)
        values (
            transition.payment_id::text,
            'event',
            case when transition.transition in ('succeeded', 'accept_late_success')
                then 'PaymentCaptured' else 'PaymentFailed' end,
            transition.evidence || pg_catalog.jsonb_build_object(
                'payment_id', transition.payment_id::text,
                'transition', transition.transition,
                'finding_id', transition.finding_id)
            || case when transition.review_id is null then '{}'
                else pg_catalog.jsonb_build_object('review_id', transition.review_id) end,
            pg_catalog.now(),
            pg_catalog.now());
    elsif outcome is null or outcome not in ('already_written', 'superseded') then
        raise exception 'apply_transition answered % for payment %', coalesce(outcome, 'null'), transition.payment_id
            using hint = 'It must answer written, already_written or superseded: mend the write port of the adapter.';
    end if;

    if outcome in ('written', 'already_written') then
        update reconciliation.finding f
        set resolved_at = greatest(pg_catalog.now(), f.last_seen_at),
            resolution = case
                when outcome = 'already_written' then 'already_written'
                when transition.review_id is null then 'repaired'
                else 'applied'
            end,
            review_id = coalesce(transition.review_id, f.review_id)
        where f.id = transition.finding_id
          and f.payment_id = transition.payment_id
          and f.resolved_at is null
          and (transition.review_id is null or f.revision = reviewed);
        if not found and transition.review_id is not null then
            raise exception 'finding % changed after review % was written', transition.finding_id, transition.review_id
                using errcode = 'serialization_failure';
        end if;
    end if;

    return outcome;
end
$$;
comment on function reconciliation.transition is
    'The canonical writer: the only code that changes a payment because of Stripe. Returns written, already_written or superseded.';
