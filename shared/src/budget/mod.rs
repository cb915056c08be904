//! The account's budget of requests, shared by every process (promise 9).
//!
//! A rate limiter (GCRA, burst 1) in one row of Postgres: whoever wants to send a request takes the next free instant and
//! waits for it. The row counts by the database's clock and answers with the time to wait, so that no client's clock
//! matters. A process takes its next slot only when it has used the one before: a process that stalls therefore holds one
//! slot at the most, and in any second Stripe sees no more than the rate and one late request a process.
//!
//! Every slot of the total is counted beside it (`reconciliation.stripe_reads`): Stripe allows so many reads in 30 days.
//!
//! After a 429 the rate is halved for everybody, with every further one again (six times at the most), and one halving
//! falls away with each minute that passes without.
//!
//! The design keyed the rows by account and endpoint. Stripe's limit on one endpoint (25 a second) is also the most that
//! may be configured for everything together, so a row per endpoint could never bind; the second part of the key is the
//! function's share instead, `total` being everybody's.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::clock::Clock;
use crate::domain::Timestamp;

/// Everybody's share.
const TOTAL: &str = "total";

/// A function's part of the budget: it takes a slot of its own row first, and of everybody's then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The row's name.
    pub name: &'static str,
    /// Of the whole rate, 1 to 100.
    pub percent: u32,
}

/// The right to send one request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The database's time at or before which the request did not start.
    pub at: Timestamp,
}

/// The budget was asked and did not answer.
#[derive(Debug, thiserror::Error)]
pub enum BudgetError {
    /// No slot could be taken.
    #[error("could not take a slot of the request budget of account {account}")]
    Take {
        /// Whose budget.
        account: String,
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// A 429 could not be told to the other processes.
    #[error("could not throttle the request budget of account {account}")]
    Throttle {
        /// Whose budget.
        account: String,
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
}

/// One process's access to the shared budget.
#[derive(Debug)]
pub struct Budget {
    account: String,
    pace: Pace,
    share: Option<Share>,
    clock: Clock,
    turn: Mutex<()>,
}

#[derive(Debug)]
enum Pace {
    Interval(Duration),
    /// For the benchmark: no limit and no round trip. Slots count from an instant that both clocks knew.
    Unmetered {
        database_time: Timestamp,
        process_time: Timestamp,
    },
}

impl Budget {
    /// A budget of `per_second` requests for `account`. At 0 it is as at 1: the settings refuse that before.
    pub fn new(account: impl Into<String>, per_second: u32, clock: Clock) -> Self {
        let interval = Duration::from_secs(1) / per_second.max(1);
        Self { account: account.into(), pace: Pace::Interval(interval), share: None, clock, turn: Mutex::new(()) }
    }

    /// The same budget, of which this process uses a share only.
    pub fn with_share(self, share: Option<Share>) -> Self {
        Self { share, ..self }
    }

    /// No limit at all, for a benchmark against something that is not Stripe. `database_time` is the database's time now.
    pub fn unmetered(database_time: Timestamp, clock: Clock) -> Self {
        let process_time = clock.now();
        let pace = Pace::Unmetered { database_time, process_time };
        Self { account: "unmetered".to_owned(), pace, share: None, clock, turn: Mutex::new(()) }
    }

    /// Takes the next slot and waits for it. `None`: it is further off than `longest_wait`, and was not taken.
    pub async fn take(&self, db: &Client, longest_wait: Duration) -> Result<Option<Slot>, BudgetError> {
        let interval = match &self.pace {
            Pace::Interval(interval) => *interval,
            Pace::Unmetered { database_time, process_time } => {
                return Ok(Some(Slot { at: *database_time + (self.clock.now() - *process_time) }));
            }
        };
        let began = self.clock.now();
        let left = || longest_wait.saturating_sub(Duration::try_from(self.clock.now() - began).unwrap_or_default());
        let _turn = self.turn.lock().await; // the wait for it is part of the wait
        if let Some(share) = self.share {
            let slower = interval * 100 / share.percent.clamp(1, 100);
            if self.take_of(db, share.name, slower, left()).await?.is_none() {
                return Ok(None);
            }
        }
        self.take_of(db, TOTAL, interval, left()).await
    }

    /// Takes the next slot of one row, and waits for it.
    async fn take_of(
        &self,
        db: &Client,
        share: &str,
        interval: Duration,
        longest_wait: Duration,
    ) -> Result<Option<Slot>, BudgetError> {
        let taken = db
            .query_typed_opt(
                include_str!("take_slot.sql"),
                &[
                    (&self.account, Type::TEXT),
                    (&share, Type::TEXT),
                    (&micros(interval), Type::INT8),
                    (&micros(longest_wait), Type::INT8),
                    (&self.clock.instead_of_the_databases(), Type::TIMESTAMPTZ),
                ],
            )
            .await
            .and_then(|row| row.map(|row| Ok((row.try_get("slot_at")?, row.try_get("wait_us")?))).transpose())
            .map_err(|source| BudgetError::Take { account: self.account.clone(), source })?;
        let Some((at, wait_us)): Option<(Timestamp, i64)> = taken else { return Ok(None) };
        self.clock.sleep(Duration::from_micros(wait_us.unsigned_abs())).await;
        Ok(Some(Slot { at }))
    }

    /// Stripe refused the request of `slot` with a 429: everybody steps back, for `retry_after` at least.
    pub async fn throttle(&self, db: &Client, slot: Slot, retry_after: Option<Duration>) -> Result<(), BudgetError> {
        let interval = match &self.pace {
            Pace::Interval(interval) => *interval,
            Pace::Unmetered { .. } => return Ok(()),
        };
        let pause = retry_after.unwrap_or_default().max(interval * 2);
        db.query_typed(
            include_str!("throttle.sql"),
            &[
                (&self.account, Type::TEXT),
                (&TOTAL, Type::TEXT),
                (&micros(pause), Type::INT8),
                (&slot.at, Type::TIMESTAMPTZ),
                (&self.clock.instead_of_the_databases(), Type::TIMESTAMPTZ),
            ],
        )
        .await
        .map(drop)
        .map_err(|source| BudgetError::Throttle { account: self.account.clone(), source })
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
