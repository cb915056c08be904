-- Why: to answer for many payments with one list call, a job has to know when their PaymentIntents were created, and how many
-- objects of others lie between them. It learns both as it goes, and has to remember them from one tick to the next.

create table reconciliation.bulk_learned (
    job                         text        primary key,
    offset_from_seconds         bigint,
    offset_to_seconds           bigint,
    foreign_per_million_seconds bigint,
    learned_at                  timestamptz not null,
    constraint offsets_are_a_range_or_absent check (
        (offset_from_seconds is null) = (offset_to_seconds is null) and offset_from_seconds <= offset_to_seconds),
    constraint density_is_not_negative check (foreign_per_million_seconds >= 0)
);
comment on table reconciliation.bulk_learned is
    'What a job has learned of its Stripe account. It decides how many requests a batch costs, and nothing else: deleting a row is harmless.';
comment on column reconciliation.bulk_learned.offset_from_seconds is 'A PaymentIntent is created this many seconds after its row at the earliest; negative where it comes first. Without outliers.';
comment on column reconciliation.bulk_learned.offset_to_seconds is 'The same at the latest.';
comment on column reconciliation.bulk_learned.foreign_per_million_seconds is 'Objects in a million seconds (11.6 days) that are none of the job''s payments.';
