//! What waits to be sent. Due ones go first come, first served, by the time at which they are due and then by age; those
//! that are held back stand aside until enough later ones have gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use reconciler::domain::Timestamp;
use time::Duration;

use super::endpoint::WebhookEndpointId;
use super::event::Event;
use super::rule::Plan;

/// Where a delivery stands in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    due: Timestamp,
    sequence: u64,
}

/// One POST, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub(super) place: Place,
    /// To where.
    pub url: String,
    /// The header `Stripe-Signature`.
    pub signature: String,
    /// The event, to the byte.
    pub body: Vec<u8>,
}

/// A delivery that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) event: Arc<Event>,
    pub(super) endpoint: WebhookEndpointId,
    /// Attempts so far.
    pub(super) attempts: u32,
    /// Whether it follows another one of the same event on purpose.
    pub(super) copy: bool,
    pub(super) forged: bool,
}

impl Waiting {
    pub(super) fn new(event: Arc<Event>, endpoint: WebhookEndpointId) -> Self {
        Self { event, endpoint, attempts: 0, copy: false, forged: false }
    }
}

#[derive(Clone, Debug)]
struct Held {
    /// So many later events are still to be sent before it.
    later: u32,
    /// Not before this, even then.
    due: Timestamp,
    waiting: Waiting,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    due: BTreeMap<Place, Waiting>,
    /// By sequence.
    held: BTreeMap<u64, Held>,
    last_sequence: u64,
}

impl Queue {
    /// Puts a delivery in, and its copies behind it.
    pub(super) fn add(&mut self, waiting: &Waiting, plan: &Plan, now: Timestamp) {
        let due = now.saturating_add(Duration::milliseconds(plan.delay_ms.into()));
        for number in 0..=plan.copies {
            self.last_sequence += 1;
            let sequence = self.last_sequence;
            let waiting = Waiting { copy: number > 0, forged: plan.forged, ..waiting.clone() };
            match plan.hold_back {
                0 => drop(self.due.insert(Place { due, sequence }, waiting)),
                later => drop(self.held.insert(sequence, Held { later, due, waiting })),
            }
        }
    }

    pub(super) fn next(&self, now: Timestamp) -> Option<(Place, &Waiting)> {
        let (place, waiting) = self.due.first_key_value()?;
        (place.due <= now).then_some((*place, waiting))
    }

    pub(super) fn next_at(&self) -> Option<Timestamp> {
        self.due.first_key_value().map(|(place, _)| place.due)
    }

    pub(super) fn take(&mut self, place: Place) -> Option<Waiting> {
        self.due.remove(&place)
    }

    /// Puts one back that was taken from `place`.
    pub(super) fn put_back(&mut self, place: Place, waiting: Waiting, due: Timestamp) {
        self.due.insert(Place { due, ..place }, waiting);
    }

    /// Counts a delivery that has just been attempted for those that were held back in its favour.
    pub(super) fn sent(&mut self, place: Place, sent: &Waiting, now: Timestamp) {
        if sent.copy || sent.attempts > 1 {
            return; // the event was counted before
        }
        for held in self.held.range_mut(..place.sequence).map(|(_, held)| held) {
            if held.waiting.endpoint == sent.endpoint {
                held.later -= 1;
            }
        }
        for (sequence, Held { due, waiting, .. }) in self.held.extract_if(.., |_, held| held.later == 0) {
            self.due.insert(Place { due: due.max(now), sequence }, waiting);
        }
    }

    pub(super) fn release(&mut self, now: Timestamp) -> usize {
        let held = std::mem::take(&mut self.held).into_iter().map(|(sequence, held)| (sequence, held.waiting));
        let later =
            self.due.extract_if(.., |place, _| place.due > now).map(|(place, waiting)| (place.sequence, waiting));
        let released: Vec<_> = held.chain(later).collect();
        let count = released.len();
        self.due.extend(released.into_iter().map(|(sequence, waiting)| (Place { due: now, sequence }, waiting)));
        count
    }

    /// Forgets what waits for an endpoint.
    pub(super) fn forget(&mut self, endpoint: WebhookEndpointId) {
        self.due.retain(|_, waiting| waiting.endpoint != endpoint);
        self.held.retain(|_, held| held.waiting.endpoint != endpoint);
    }

    pub(super) fn len(&self) -> usize {
        self.due.len() + self.held.len()
    }
}
