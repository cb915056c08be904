//! Puts the demo's payments into Postgres, and what belongs to them into the sandbox.

use anyhow::Context;
use reconciler::clock::Clock;
use reconciler::config::{Secret, StripeSettings};
use reconciler::domain::Timestamp;
use reconciler::domain::external::{ExternalPayment, ExternalStatus};
use reconciler::gateway::{Gateway, ListQuery, PAGE_MAX, StripeClient};
use time::Duration;
use tokio_postgres::Client;

use super::scenario::{AtStripe, FINE, Planned, awaits_a_webhook, plan};
use super::webhooks::{Happening, happen};
use crate::sandbox::{Decline, PaymentIntentSeed, Sandbox};

/// The key of a PaymentIntent's metadata that holds the order.
pub const METADATA_KEY: &str = "order_id";

/// What was put in.
#[derive(Clone, Copy, Debug)]
pub struct Filled {
    /// Rows.
    pub payments: u64,
    /// Of these, such as do not agree with Stripe in some way.
    pub drifts: u64,
}

/// The rows' columns.
#[derive(Default)]
struct Rows {
    references: Vec<Option<String>>,
    states: Vec<&'static str>,
    created: Vec<Timestamp>,
}

impl Rows {
    fn push(&mut self, reference: Option<String>, state: &'static str, created: Timestamp) {
        self.references.push(reference);
        self.states.push(state);
        self.created.push(created);
    }

    async fn insert(&self, db: &Client) -> anyhow::Result<()> {
        let sql = "insert into payments (order_id, stripe_payment_intent_id, status, created_at, updated_at)
                   select 'order-' || n, reference, state, created, created
                   from unnest($1::text[], $2::text[], $3::timestamptz[]) with ordinality as u (reference, state, created, n)
                   order by n";
        db.execute(sql, &[&self.references, &self.states, &self.created]).await.context("the demo's payments")?;
        db.batch_execute("analyze payments").await.context("the demo's payments")
    }
}

/// The scenario's payments, in Postgres and in the sandbox. What webhooks are still to tell of happens at the end.
pub async fn from_scenario(db: &Client, sandbox: &Sandbox, payments: i64) -> anyhow::Result<Filled> {
    let now = Clock::System.now();
    let planned = plan(payments);
    let mut rows = Rows::default();
    let mut happenings = Vec::new();
    for (number, Planned { sort, age_minutes }) in planned.iter().enumerate() {
        let created = now - Duration::minutes(*age_minutes);
        let id = format!("pi_demo{number:06}");
        let seed = |created| seed(&id, number + 1, created);
        let (reference, at_stripe) = match sort.at_stripe {
            AtStripe::NoReference => (None, None),
            AtStripe::Malformed => (Some(format!("demo/{number}")), None),
            AtStripe::Unheard => (Some(id.clone()), None),
            AtStripe::Status(status) if awaits_a_webhook(sort) => {
                happenings.push((id.clone(), Happening::Status(ExternalStatus::from_stripe(status))));
                (Some(id.clone()), Some(seed(created)))
            }
            AtStripe::Status(status) => {
                let status = ExternalStatus::from_stripe(status);
                (Some(id.clone()), Some(PaymentIntentSeed { status, ..seed(created) }))
            }
            AtStripe::Declined { ago } => {
                let declined = now - Duration::hours(ago);
                let decline = Decline::Card("insufficient_funds".to_owned());
                happenings.push((id.clone(), Happening::Declined(decline, declined)));
                (Some(id.clone()), Some(seed(declined)))
            }
            AtStripe::OtherMode => (Some(id.clone()), Some(PaymentIntentSeed { livemode: true, ..seed(created) })),
            AtStripe::Unlinked(status) => {
                let status = ExternalStatus::from_stripe(status);
                (None, Some(PaymentIntentSeed { status, ..seed(created) }))
            }
        };
        if let Some(at_stripe) = at_stripe {
            sandbox.with(|account, _| account.insert(at_stripe))?;
        }
        rows.push(reference, sort.local, created);
    }
    for (number, (status, days)) in ORPHANS.into_iter().enumerate() {
        let status = ExternalStatus::from_stripe(status);
        let id = Some(format!("pi_nobodys{number}"));
        let seed = PaymentIntentSeed { id, status, ..PaymentIntentSeed::new(now - Duration::days(days)) };
        sandbox.with(|account, _| account.insert(seed))?;
    }
    happen(sandbox, happenings)?;
    rows.insert(db).await?;
    let drifts = planned.iter().filter(|planned| is_drift(planned)).count();
    Ok(Filled { payments: u64::try_from(planned.len())?, drifts: u64::try_from(drifts)? })
}

/// PaymentIntents that no row here names, by status and age in days: two of them are money.
const ORPHANS: [(&str, i64); 4] =
    [("succeeded", 2), ("requires_capture", 3), ("canceled", 1), ("requires_payment_method", 4)];

/// Those of them that are money.
pub const ORPHANS_OF_MONEY: usize = 2;

/// A PaymentIntent that names its order, as the application writes it.
fn seed(id: &str, order: usize, created: Timestamp) -> PaymentIntentSeed {
    let metadata = [(METADATA_KEY.to_owned(), format!("order-{order}"))].into();
    PaymentIntentSeed { id: Some(id.to_owned()), metadata, ..PaymentIntentSeed::new(created) }
}

/// Everything but the sorts that open the scenario, which are fine or too fresh.
fn is_drift(planned: &Planned) -> bool {
    let fine = super::scenario::SORTS.iter().take(5).map(|sort| sort.story).chain([FINE.story]);
    !fine.into_iter().any(|story| story == planned.sort.story)
}

/// Payments that agree with the PaymentIntents of a real account, but for one in twenty, and one that it has never heard of.
pub async fn from_account(db: &Client, base: &str, key: &str, payments: u32) -> anyhow::Result<Filled> {
    let client = StripeClient::new(
        &StripeSettings {
            api_base: base.to_owned(),
            account: None,
            connect_timeout: std::time::Duration::from_secs(5),
            request_timeout: std::time::Duration::from_secs(30),
        },
        &Secret::new(key),
    )?;
    let mut found: Vec<ExternalPayment> = Vec::new();
    let wanted = usize::try_from(payments)?;
    let mut query = ListQuery { created_from: None, created_before: None, limit: PAGE_MAX, starting_after: None };
    while found.len() < wanted {
        let page = client.list(&query).await.context("the account's PaymentIntents")?;
        found.extend(page.payments);
        match page.next {
            Some(next) => query.starting_after = Some(next),
            None => break,
        }
    }
    found.truncate(wanted);
    found.reverse(); // oldest first
    let mut rows = Rows::default();
    let mut drifts = 1;
    let oldest = found.first().map_or_else(|| Clock::System.now() - Duration::days(1), |payment| payment.created);
    rows.push(Some("pi_neverheardof".to_owned()), "paid", oldest);
    for (number, payment) in found.iter().enumerate() {
        let ended = matches!(payment.status, ExternalStatus::Succeeded | ExternalStatus::Canceled);
        let missed = ended && number % 20 == 7;
        drifts += u64::from(missed);
        let state = match payment.status {
            _ if missed => "pending",
            ExternalStatus::Succeeded => "paid",
            ExternalStatus::Canceled => "failed",
            ExternalStatus::RequiresPaymentMethod
            | ExternalStatus::RequiresConfirmation
            | ExternalStatus::RequiresAction
            | ExternalStatus::Processing
            | ExternalStatus::RequiresCapture
            | ExternalStatus::Unknown(_) => "pending",
        };
        rows.push(Some(payment.id.to_string()), state, payment.created);
    }
    rows.insert(db).await?;
    Ok(Filled { payments: u64::try_from(rows.states.len())?, drifts })
}
