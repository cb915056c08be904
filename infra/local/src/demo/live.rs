//! What goes on in a shop while the demo watches: customers pay, and now and then something goes wrong.

use std::collections::VecDeque;

use anyhow::Context;
use reconciler::domain::external::ExternalStatus;
use tokio_postgres::Client;

use super::fill::METADATA_KEY;
use crate::sandbox::{Decline, PaymentIntentSeed, Sandbox};

/// A shop with customers.
#[derive(Debug)]
pub struct Shop {
    chance: fastrand::Rng,
    orders: u64,
    /// PaymentIntents that are under way with a customer.
    open: VecDeque<String>,
    /// What went wrong on purpose so far.
    pub mishaps: u64,
}

/// What happens with one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// The customer pays, and the webhook tells, unless it is lost.
    Pays,
    /// The customer pays, and the worker dies before it has read the answer.
    WorkerDies,
    /// The card is declined; perhaps there is another attempt.
    Declined,
    /// Somebody cancels it in the dashboard.
    Canceled,
    /// The row is lost, and with it all that we know.
    RowLost,
    /// The row was saved and Stripe was never asked.
    NeverSent,
}

impl Course {
    /// Out of a hundred.
    fn of(number: u32) -> Self {
        match number {
            0..8 => Self::WorkerDies,
            8..16 => Self::Declined,
            16..20 => Self::Canceled,
            20..23 => Self::RowLost,
            23..25 => Self::NeverSent,
            _ => Self::Pays,
        }
    }
}

impl Shop {
    /// Nothing has been sold yet. The same happens every time.
    pub fn open() -> Self {
        Self { chance: fastrand::Rng::with_seed(23), orders: 0, open: VecDeque::new(), mishaps: 0 }
    }

    /// A minute of the shop. The webhooks of what happens wait until they are sent.
    pub async fn minute(&mut self, db: &Client, sandbox: &Sandbox) -> anyhow::Result<()> {
        for _ in 0..self.chance.u32(3..9) {
            let course = Course::of(self.chance.u32(0..100));
            self.order(course, db, sandbox).await?;
        }
        while self.open.len() > 3 {
            let Some(id) = self.open.pop_front() else { break };
            sandbox.with(|account, now| account.set_status(&id, ExternalStatus::Succeeded, now))?;
        }
        Ok(())
    }

    async fn order(&mut self, course: Course, db: &Client, sandbox: &Sandbox) -> anyhow::Result<()> {
        self.orders += 1;
        let (id, order) = (format!("pi_live{:06}", self.orders), format!("live-{}", self.orders));
        self.mishaps += u64::from(course != Course::Pays);
        let state = if course == Course::WorkerDies { "finalizing" } else { "pending" };
        if course != Course::RowLost {
            let insert = "insert into payments (order_id, stripe_payment_intent_id, status) values ($1, $2, $3)";
            db.execute(insert, &[&order, &id, &state]).await.context("an order")?;
        }
        if course == Course::NeverSent {
            return Ok(());
        }
        let metadata = [(METADATA_KEY.to_owned(), order)].into();
        sandbox.with(|account, now| {
            account.insert(PaymentIntentSeed { id: Some(id.clone()), metadata, ..PaymentIntentSeed::new(now) })?;
            match course {
                Course::Pays | Course::WorkerDies | Course::RowLost | Course::NeverSent => {
                    account.set_status(&id, ExternalStatus::Succeeded, now)
                }
                Course::Declined => account.decline(&id, Decline::Card("insufficient_funds".to_owned()), now),
                Course::Canceled => account.set_status(&id, ExternalStatus::Canceled, now),
            }
            .context("an order at Stripe")
        })?;
        if course == Course::Declined {
            self.open.push_back(id);
        }
        Ok(())
    }
}
