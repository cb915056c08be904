//! What the database says at the end, counted by SQL and not from anybody's report.

use anyhow::Context;
use tokio_postgres::Client;

/// The counts behind the demo's claim that every change was made once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Payments that are not as they were inserted.
    pub changed: i64,
    /// Payments that changed more than once.
    pub changed_twice: i64,
    /// Rows of the ledger.
    pub ledger_rows: i64,
    /// The most that one payment has.
    pub ledger_rows_max: i64,
    /// Payments that changed without a ledger row, or the other way round.
    pub unequal: i64,
    /// Events that tell of a change.
    pub events: i64,
    /// Commands that are neither done nor dead.
    pub open_commands: i64,
    /// Rows of the outbox that nobody tries any more.
    pub dead: i64,
}

/// Counts. The default adapter's `version` begins at 1 and grows with every change.
const FACTS: &str = "
    select
        (select count(*) from payments where version > 1),
        (select count(*) from payments where version > 2),
        (select count(*) from payment_ledger),
        (select coalesce(max(n), 0) from (select count(*) n from payment_ledger group by payment_id) of_a_payment),
        (select count(*) from payments p
         where (p.version > 1) is distinct from exists (select from payment_ledger l where l.payment_id = p.id)),
        (select count(*) from reconciliation.outbox where kind = 'event' and type in ('PaymentCaptured', 'PaymentFailed')),
        (select count(*) from reconciliation.outbox where kind = 'command' and delivered_at is null and dead_at is null),
        (select count(*) from reconciliation.outbox where dead_at is not null)";

impl Facts {
    /// Counts.
    pub async fn count(db: &Client) -> anyhow::Result<Self> {
        let row = db.query_one(FACTS, &[]).await.context("the facts")?;
        Ok(Self {
            changed: row.get(0),
            changed_twice: row.get(1),
            ledger_rows: row.get(2),
            ledger_rows_max: row.get(3),
            unequal: row.get(4),
            events: row.get(5),
            open_commands: row.get(6),
            dead: row.get(7),
        })
    }

    /// Whether each payment changed at most once, with one ledger row and one event, and no command is left.
    pub fn hold(&self) -> bool {
        self.changed_twice == 0
            && self.ledger_rows_max <= 1
            && self.unequal == 0
            && self.events == self.changed
            && self.ledger_rows == self.changed
            && self.open_commands == 0
            && self.dead == 0
    }
}

#[cfg(test)]
mod tests {
    use super::Facts;

    #[test]
    fn anything_that_was_done_twice_or_not_at_all_breaks_the_claim() {
        let fine = Facts { changed: 3, ledger_rows: 3, ledger_rows_max: 1, events: 3, ..Facts::default() };
        assert!(fine.hold() && Facts::default().hold());
        for broken in [
            Facts { changed_twice: 1, ..fine },
            Facts { ledger_rows_max: 2, ..fine },
            Facts { ledger_rows: 4, ..fine },
            Facts { unequal: 1, ..fine },
            Facts { events: 4, ..fine },
            Facts { open_commands: 1, ..fine },
            Facts { dead: 1, ..fine },
        ] {
            assert!(!broken.hold(), "{broken:?}");
        }
    }
}
