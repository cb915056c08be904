-- Why: the dispatcher claims what waits in the order of id, and looks whether something earlier of the same payment waits.
-- Both have to be cheap with a million delivered rows behind them: without these indexes a claim reads them all.

create index outbox_waiting_in_order
    on reconciliation.outbox (id) where delivered_at is null and dead_at is null;
create index outbox_waiting_of_an_aggregate
    on reconciliation.outbox (aggregate, kind, id) where delivered_at is null and dead_at is null;
drop index reconciliation.outbox_waiting;
