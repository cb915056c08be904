-- Why: the reverse scan walks what Stripe created, window by window and page by page, and has to go on where it stood. A
-- window is no position among payments, so it has a table of its own beside reconciliation.cursor. A candidate for an orphan
-- gets what its second look and the payments without a reference need: when to look again, and which payment it names.

create table reconciliation.reverse_window (
    job               text        primary key,
    revision          bigint      not null default 0,
    terms             text        not null default '',
    window_from       timestamptz,
    window_to         timestamptz,
    page_after        text,
    started_at        timestamptz,
    pages             bigint      not null default 0,
    objects           bigint      not null default 0,
    matched           bigint      not null default 0,
    unread            bigint      not null default 0,
    known             bigint      not null default 0,
    completed_to      timestamptz,
    last_completed_at timestamptz,
    proven_from       timestamptz,
    proven_matched    bigint      not null default 0,
    constraint window_is_whole_or_absent check (
        (window_from is null) = (window_to is null) and (window_from is null) = (started_at is null)),
    constraint page_belongs_to_a_window check (page_after is null or window_from is not null),
    constraint window_is_not_empty check (window_from < window_to),
    constraint completed_to_iff_completed check ((completed_to is null) = (last_completed_at is null)),
    constraint proven_needs_a_completed_window check (proven_from is null or completed_to is not null),
    constraint reverse_counters_do_not_fall_below_zero check (
        least(revision, pages, objects, matched, unread, known, proven_matched) >= 0)
);
comment on table reconciliation.reverse_window is
    'One row a job: which part of what Stripe created is being walked, how far, and up to where all of it has been.';
comment on column reconciliation.reverse_window.revision is 'Grows with every commit; everything is written by compare-and-set on it.';
comment on column reconciliation.reverse_window.terms is 'The settings by which objects are told apart and matched. Others begin the window anew, and prove nothing about the past.';
comment on column reconciliation.reverse_window.window_from is 'The window under way, half-open, in Stripe''s created; null between two windows.';
comment on column reconciliation.reverse_window.page_after is 'The last object of the page that was read last; null before the first page. Newest first.';
comment on column reconciliation.reverse_window.matched is 'Objects of this window whose metadata names the very payment that names them.';
comment on column reconciliation.reverse_window.unread is 'Objects of this window that could not be read: with one of them the window proves no absence.';
comment on column reconciliation.reverse_window.known is 'Objects that a payment here names, of all windows. None at all looks like a wrong account.';
comment on column reconciliation.reverse_window.completed_to is 'Everything that Stripe created before this, from the first window on, has been listed to the end.';
comment on column reconciliation.reverse_window.proven_from is 'From here to completed_to every object was read under these terms: a charge that was not met is not there.';
comment on column reconciliation.reverse_window.proven_matched is 'matched of all windows of that proof. At 0 the metadata key is a wrong one, and nothing is concluded.';

alter table reconciliation.orphan_candidate
    add column match_key text,
    add column external_created_at timestamptz,
    add column next_look_at timestamptz;
update reconciliation.orphan_candidate set next_look_at = last_checked_at;
alter table reconciliation.orphan_candidate alter column next_look_at set not null;
create index orphan_candidate_due on reconciliation.orphan_candidate (next_look_at);
create index orphan_candidate_by_match_key on reconciliation.orphan_candidate (match_key) where match_key is not null;
comment on column reconciliation.orphan_candidate.status is
    'The status that was seen last; unreadable where the object was on a page and could not be read.';
comment on column reconciliation.orphan_candidate.match_key is 'What its metadata says under MATCH_METADATA_KEY: the payment that it is for.';
comment on column reconciliation.orphan_candidate.next_look_at is 'When it is retrieved again; the intervals grow.';

create index finding_of_an_orphan on reconciliation.finding (external_ref, kind) where payment_id is null;
create index finding_that_names_a_payment on reconciliation.finding ((evidence ->> 'match_key')) where payment_id is null;
