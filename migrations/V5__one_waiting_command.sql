-- Why: a repair that did not help is asked for again. However many scans come to that at once, one finding has one command
-- waiting; and how often it was asked for is counted by the finding.

create unique index one_waiting_command_per_finding
    on reconciliation.outbox ((payload ->> 'finding_id'))
    where kind = 'command' and delivered_at is null and dead_at is null;

create index command_of_a_finding
    on reconciliation.outbox ((payload ->> 'finding_id'))
    where kind = 'command';
