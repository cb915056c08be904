-- Purpose: the daily summary, as an event in the outbox; once a day.
-- Parameters: 1 payload jsonb, which names the day; 2 now timestamptz.
-- Returns: the event's id; no row where the day has one.
-- Locks: the day's place in the unique index, until this one statement ends.
insert into reconciliation.outbox (aggregate, kind, type, payload, created_at, available_at)
values ('review', 'event', 'ReviewDigest', $1, $2, $2)
on conflict ((payload ->> 'day')) where type = 'ReviewDigest' do nothing
returning id
