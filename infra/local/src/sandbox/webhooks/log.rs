//! What became of the deliveries, for assertions and for the demo's screen.

use std::collections::VecDeque;

use reconciler::domain::Timestamp;
use serde::Serialize;

use super::super::log::{LOG_CAPACITY, unix_milliseconds};
use super::endpoint::WebhookEndpointId;
use super::event::{Event, EventType};
use super::queue::Waiting;
use super::rule::Plan;

/// What became of one delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivered {
    /// A rule lost it: it was not sent.
    Lost,
    /// The endpoint answered.
    Answered {
        /// HTTP status.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
    /// No answer came, and why.
    Unanswered(String),
}

impl Delivered {
    /// Whether the event need not be sent again.
    pub fn is_success(&self) -> bool {
        match self {
            Self::Answered { status, .. } => (200..300).contains(status),
            Self::Lost | Self::Unanswered(_) => false,
        }
    }
}

/// One attempt at a delivery, or one that was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeliveryEntry {
    /// When.
    #[serde(serialize_with = "unix_milliseconds", rename = "at_unix_ms")]
    pub at: Timestamp,
    /// To which endpoint.
    pub endpoint: WebhookEndpointId,
    /// `evt_…`
    pub event: String,
    /// What it tells.
    pub event_type: EventType,
    /// Of which PaymentIntent.
    pub payment_intent: String,
    /// From 1; 0 where it was lost.
    pub attempt: u32,
    /// Whether a rule sent it a further time.
    pub copy: bool,
    /// What became of it.
    pub delivered: Delivered,
}

/// How many there were since the last clear.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WebhookCounters {
    /// Events that were made.
    pub events: u64,
    /// Deliveries that rules lost.
    pub lost: u64,
    /// Deliveries that rules added.
    pub duplicated: u64,
    /// Deliveries that rules held back behind later ones.
    pub held_back: u64,
    /// Deliveries that rules delayed.
    pub delayed: u64,
    /// Attempts that were answered 2xx.
    pub accepted: u64,
    /// Attempts that were answered otherwise.
    pub refused: u64,
    /// Attempts without an answer.
    pub unanswered: u64,
    /// Deliveries that failed for three days.
    pub given_up: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct DeliveryLog {
    entries: VecDeque<DeliveryEntry>,
    pub(super) counters: WebhookCounters,
}

impl DeliveryLog {
    /// Takes down what rules have done to a delivery.
    pub(super) fn planned(&mut self, now: Timestamp, event: &Event, endpoint: WebhookEndpointId, plan: &Plan) {
        if plan.lost {
            self.counters.lost += 1;
            self.push(now, event, endpoint, 0, false, Delivered::Lost);
            return;
        }
        self.counters.duplicated += u64::from(plan.copies);
        self.counters.held_back += u64::from(plan.hold_back > 0);
        self.counters.delayed += u64::from(plan.delay_ms > 0);
    }

    /// Takes down an attempt.
    pub(super) fn settled(&mut self, now: Timestamp, waiting: &Waiting, delivered: Delivered) {
        match &delivered {
            Delivered::Answered { .. } if delivered.is_success() => self.counters.accepted += 1,
            Delivered::Answered { .. } => self.counters.refused += 1,
            Delivered::Unanswered(_) => self.counters.unanswered += 1,
            Delivered::Lost => self.counters.lost += 1,
        }
        self.push(now, &waiting.event, waiting.endpoint, waiting.attempts, waiting.copy, delivered);
    }

    fn push(
        &mut self,
        at: Timestamp,
        event: &Event,
        endpoint: WebhookEndpointId,
        attempt: u32,
        copy: bool,
        delivered: Delivered,
    ) {
        if self.entries.len() == LOG_CAPACITY {
            self.entries.pop_front();
        }
        let Event { id, event_type, payment_intent, .. } = event;
        let (event, event_type, payment_intent) = (id.clone(), *event_type, payment_intent.clone());
        self.entries.push_back(DeliveryEntry {
            at,
            endpoint,
            event,
            event_type,
            payment_intent,
            attempt,
            copy,
            delivered,
        });
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &DeliveryEntry> {
        self.entries.iter()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
