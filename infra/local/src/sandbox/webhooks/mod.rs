//! Webhooks: what the account tells when a PaymentIntent changes, to whom, when, and what becomes of it.
//!
//! An event is made whenever a PaymentIntent changes through the API or through
//! [`set_status`](Account::set_status), [`cancel`](Account::cancel) and [`decline`](Account::decline), and an endpoint
//! listens for its type. Seeding makes none: a seed is what was there before.
//!
//! Each event becomes one delivery for each endpoint, which waits in a queue. [`DeliveryRule`]s say which deliveries are
//! lost, come more than once, later or out of order, or are signed by nobody; without rules they go out in the order in
//! which the events were made. A delivery that is not answered 2xx waits for one minute, then for twice as long each time,
//! at most 12 hours, and is given up three days after its event. All of that goes by the sandbox's clock.
//!
//! Everything here but `sender` is pure: [`Account::next_delivery`] says what is to be posted now, and
//! [`Account::settle_delivery`] takes down what came of it. Nothing is random but a rule's own seeded dice.

pub(super) mod control;
mod endpoint;
mod event;
mod log;
mod queue;
mod rule;
pub(super) mod sender;
mod signature;

use std::collections::BTreeMap;
use std::sync::Arc;

use reconciler::domain::Timestamp;
use time::Duration;

pub use endpoint::{WebhookEndpoint, WebhookEndpointId, WebhookError};
pub use event::{Event, EventType};
pub use log::{Delivered, DeliveryEntry, WebhookCounters};
pub use queue::Delivery;
pub use rule::{DeliveryRule, DeliveryRuleId, Mishap};

use super::account::{Account, Space};
use super::intent::PaymentIntent;
pub(super) use event::Cause;
use event::{body, told};
use log::DeliveryLog;
use queue::{Queue, Waiting};
use rule::{DeliveryRules, Plan};

/// The first pause after a failed attempt, and the longest.
const PAUSE: Duration = Duration::minutes(1);
const PAUSE_MAX: Duration = Duration::hours(12);

/// How long after its event a delivery is tried again.
const GIVE_UP_AFTER: Duration = Duration::days(3);

/// A secret that no endpoint has.
const FORGERS_SECRET: &str = "whsec_nobodys";

/// Everything about webhooks that an account holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Webhooks {
    endpoints: BTreeMap<WebhookEndpointId, WebhookEndpoint>,
    rules: DeliveryRules,
    events: Vec<Arc<Event>>,
    queue: Queue,
    log: DeliveryLog,
    last_endpoint: u64,
    last_event: u64,
}

impl Account {
    /// Registers an endpoint. It hears of what happens from now on.
    pub fn add_webhook_endpoint(&mut self, endpoint: WebhookEndpoint) -> Result<WebhookEndpointId, WebhookError> {
        endpoint.check()?;
        self.webhooks.last_endpoint += 1;
        let id = WebhookEndpointId(self.webhooks.last_endpoint);
        self.webhooks.endpoints.insert(id, endpoint);
        Ok(id)
    }

    /// Takes an endpoint out, with all that waits for it; whether there was one.
    pub fn remove_webhook_endpoint(&mut self, id: WebhookEndpointId) -> bool {
        self.webhooks.queue.forget(id);
        self.webhooks.endpoints.remove(&id).is_some()
    }

    /// Signs for an endpoint with these secrets from now on: one, or both while it is being rolled.
    pub fn set_webhook_secrets(&mut self, id: WebhookEndpointId, secrets: &[&str]) -> Result<(), WebhookError> {
        let known = self.webhooks.endpoints.get_mut(&id).ok_or(WebhookError::NoSuchEndpoint { id })?;
        let changed =
            WebhookEndpoint { secrets: secrets.iter().map(|&secret| secret.to_owned()).collect(), ..known.clone() };
        changed.check()?;
        *known = changed;
        Ok(())
    }

    /// The endpoints, in the order of registration.
    pub fn webhook_endpoints(&self) -> impl Iterator<Item = (WebhookEndpointId, &WebhookEndpoint)> {
        self.webhooks.endpoints.iter().map(|(id, endpoint)| (*id, endpoint))
    }

    /// Adds a rule. Of the rules that strike a delivery all apply.
    pub fn add_delivery_rule(&mut self, rule: DeliveryRule) -> DeliveryRuleId {
        self.webhooks.rules.add(rule)
    }

    /// Takes all rules out. What they did to deliveries that wait stays done.
    pub fn clear_delivery_rules(&mut self) {
        self.webhooks.rules.clear();
    }

    /// The rules in force, in the order in which they were added.
    pub fn delivery_rules(&self) -> impl Iterator<Item = (DeliveryRuleId, &DeliveryRule)> {
        self.webhooks.rules.rules()
    }

    /// The events, oldest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.webhooks.events.iter().map(Arc::as_ref)
    }

    /// What is to be posted now, if anything; signed with the time now. It stays the next one until it is settled.
    pub fn next_delivery(&self, now: Timestamp) -> Option<Delivery> {
        let (place, waiting) = self.webhooks.queue.next(now)?;
        let endpoint = self.webhooks.endpoints.get(&waiting.endpoint)?;
        let forged = [FORGERS_SECRET.to_owned()];
        let secrets = if waiting.forged { &forged } else { endpoint.secrets.as_slice() };
        let body = waiting.event.body.clone();
        let signature = signature::header(secrets, &body, waiting.event.livemode, now);
        Some(Delivery { place, url: endpoint.url.clone(), signature, body })
    }

    /// When the next delivery is due, if any waits that is not held back.
    pub fn next_delivery_at(&self) -> Option<Timestamp> {
        self.webhooks.queue.next_at()
    }

    /// Takes down what came of a delivery. Anything but a 2xx puts it back for later, until it is given up. One that was
    /// settled already, or whose endpoint is gone, changes nothing.
    pub fn settle_delivery(&mut self, delivery: &Delivery, delivered: Delivered, now: Timestamp) {
        let Webhooks { queue, log, .. } = &mut self.webhooks;
        let Some(mut waiting) = queue.take(delivery.place) else { return };
        waiting.attempts += 1;
        queue.sent(delivery.place, &waiting, now);
        let again = (!delivered.is_success()).then(|| now.saturating_add(pause(waiting.attempts)));
        log.settled(now, &waiting, delivered);
        match again {
            None => {}
            Some(at) if at <= waiting.event.created.saturating_add(GIVE_UP_AFTER) => {
                queue.put_back(delivery.place, waiting, at);
            }
            Some(_too_late) => log.counters.given_up += 1,
        }
    }

    /// Makes everything due that waits: held back, delayed, or to be tried again. How much that was.
    pub fn release_deliveries(&mut self, now: Timestamp) -> usize {
        self.webhooks.queue.release(now)
    }

    /// How many deliveries wait, due or not.
    pub fn deliveries_waiting(&self) -> usize {
        self.webhooks.queue.len()
    }

    /// Sends an event again, as the dashboard's button does: to every endpoint that listens, whatever became of it before,
    /// and past all rules. To how many.
    pub fn resend(&mut self, event_id: &str, now: Timestamp) -> Result<usize, WebhookError> {
        let Webhooks { endpoints, events, queue, .. } = &mut self.webhooks;
        let event = events.iter().find(|event| event.id == event_id);
        let event = event.ok_or_else(|| WebhookError::NoSuchEvent { id: event_id.to_owned() })?;
        let listening = endpoints.iter().filter(|(_, endpoint)| endpoint.hears(event));
        let listening: Vec<WebhookEndpointId> = listening.map(|(id, _)| *id).collect();
        for id in &listening {
            queue.add(&Waiting::new(Arc::clone(event), *id), &Plan::default(), now);
        }
        Ok(listening.len())
    }

    /// What became of the deliveries since the last clear, oldest first; at most [`LOG_CAPACITY`](super::LOG_CAPACITY).
    pub fn deliveries(&self) -> impl Iterator<Item = &DeliveryEntry> {
        self.webhooks.log.entries()
    }

    /// How many there were since the last clear.
    pub fn webhook_counters(&self) -> &WebhookCounters {
        &self.webhooks.log.counters
    }

    /// Empties the log of deliveries and sets its counters to 0.
    pub fn clear_deliveries(&mut self) {
        self.webhooks.log.clear();
    }

    /// Whether a change is worth comparing with what was before.
    pub(super) fn anybody_listens(&self) -> bool {
        !self.webhooks.endpoints.is_empty()
    }

    /// Makes the events of a change, and puts their deliveries into the queue. `before` is `None` for a new PaymentIntent.
    pub(super) fn tell(
        &mut self,
        space: &Space,
        before: Option<&PaymentIntent>,
        after: &PaymentIntent,
        cause: &Cause,
        now: Timestamp,
    ) {
        for event_type in told(before, after) {
            let Webhooks { endpoints, rules, events, queue, log, last_event, .. } = &mut self.webhooks;
            let account = space.account.clone();
            let mut event = Event {
                id: event::id(*last_event + 1),
                event_type,
                payment_intent: after.id().to_owned(),
                created: now,
                livemode: space.livemode,
                account,
                body: Vec::new(),
            };
            let listening = endpoints.iter().filter(|(_, endpoint)| endpoint.hears(&event));
            let listening: Vec<WebhookEndpointId> = listening.map(|(id, _)| *id).collect();
            if listening.is_empty() {
                continue;
            }
            event.body = body(&event, after, cause, listening.len());
            *last_event += 1;
            log.counters.events += 1;
            let event = Arc::new(event);
            events.push(Arc::clone(&event));
            for id in listening {
                let plan = rules.strike(&event);
                log.planned(now, &event, id, &plan);
                if !plan.lost {
                    queue.add(&Waiting::new(Arc::clone(&event), id), &plan, now);
                }
            }
        }
    }
}

/// How long a delivery waits after so many attempts.
fn pause(attempts: u32) -> Duration {
    let doublings = attempts.saturating_sub(1).min(16);
    (PAUSE * 2_i32.saturating_pow(doublings)).min(PAUSE_MAX)
}
