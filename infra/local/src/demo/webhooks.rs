//! The demo's webhooks. Those of the payments that drift are still on their way when the scan looks; then they come in while
//! the dispatcher repairs the same payments. Some come twice, some out of order, and some are lost.

use std::sync::Arc;

use anyhow::Context;
use dispatch::DispatchReport;
use dispatch::Host;
use dispatch::sink::LogSink;
use reconciler::clock::Clock;
use reconciler::config::Lookup;
use reconciler::domain::Timestamp;
use reconciler::domain::external::ExternalStatus;

use super::repair;
use crate::function_url::{self, FunctionUrl};
use crate::sandbox::{
    ChangeError, Decline, Delivered, DeliveryRule, Mishap, Sandbox, WebhookCounters, WebhookEndpoint,
};

/// What the endpoint's deliveries are signed with.
pub const SECRET: &str = "whsec_demo";

/// Rounds after which what is still not accepted is left to the scan.
const ROUNDS_MAX: u32 = 5;

/// Opens the front of the webhook function, and has the sandbox send there.
pub async fn listen(sandbox: &Sandbox, lookup: Lookup<'_>) -> anyhow::Result<FunctionUrl> {
    let host = Arc::new(webhook::Host::from_lookup(lookup)?);
    let front = FunctionUrl::start(Clock::System, function_url::webhook(host, Clock::System)).await?;
    sandbox.with(|account, _| {
        account.add_webhook_endpoint(WebhookEndpoint::new(&front.base_url, SECRET))?;
        for (mishap, seed) in [(Mishap::Lose, 3), (Mishap::Duplicate(1), 1), (Mishap::HoldBack(4), 2)] {
            account.add_delivery_rule(DeliveryRule::always(mishap).now_and_then(250_000, seed));
        }
        anyhow::Ok(front)
    })
}

/// What happens at Stripe to one payment, and is told by a webhook.
#[derive(Clone, Debug)]
pub enum Happening {
    /// It comes to this status.
    Status(ExternalStatus),
    /// An attempt was declined, at this time.
    Declined(Decline, Timestamp),
}

/// Lets it happen, in no particular order but the same every time. The webhooks wait until they are sent.
pub fn happen(sandbox: &Sandbox, mut happenings: Vec<(String, Happening)>) -> Result<(), ChangeError> {
    fastrand::Rng::with_seed(11).shuffle(&mut happenings);
    sandbox.with(|account, now| {
        happenings.into_iter().try_for_each(|(id, happening)| match happening {
            Happening::Status(status) => account.set_status(&id, status, now),
            Happening::Declined(decline, at) => account.decline(&id, decline, at),
        })
    })
}

/// What came of the webhooks.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// As the sandbox counts.
    pub counters: WebhookCounters,
    /// Deliveries of an event that had been recorded before.
    pub known_before: usize,
    /// Deliveries that were not accepted to the end.
    pub waiting: usize,
}

/// The dispatcher and the webhooks at once, until neither has anything left to do.
pub async fn race(sandbox: &Sandbox, dispatcher: &Host<LogSink>) -> anyhow::Result<(Vec<DispatchReport>, Received)> {
    let (repairs, ()) = tokio::join!(repair(dispatcher), deliver_all(sandbox));
    let mut repairs = repairs?;
    // the last webhooks have put events into the outbox
    repairs.extend(repair(dispatcher).await.context("the outbox after the webhooks")?);
    let received = sandbox.with(|account, _| Received {
        counters: account.webhook_counters().clone(),
        known_before: account.deliveries().filter(|entry| is_duplicate(&entry.delivered)).count(),
        waiting: account.deliveries_waiting(),
    });
    Ok((repairs, received))
}

/// Those that are held back to the end come last; those that are not accepted come again.
async fn deliver_all(sandbox: &Sandbox) {
    sandbox.deliver().await;
    for _ in 0..ROUNDS_MAX {
        if sandbox.with(|account, now| account.release_deliveries(now)) == 0 {
            return;
        }
        sandbox.deliver().await;
    }
}

fn is_duplicate(delivered: &Delivered) -> bool {
    match delivered {
        Delivered::Answered { body, .. } => body == webhook::inbox::Outcome::Duplicate.as_str(),
        Delivered::Lost | Delivered::Unanswered(_) => false,
    }
}
