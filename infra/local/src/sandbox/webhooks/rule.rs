//! Scripted mishaps: which deliveries go wrong, and how. Of the rules that strike a delivery all apply.

use serde::{Deserialize, Serialize};

use super::super::fault::{Chance, Turns};
use super::event::{Event, EventType};

/// What happens to a delivery on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mishap {
    /// It is never sent. What is asked for with `resend` is.
    Lose,
    /// So many further ones follow it, with the same event.
    Duplicate(u32),
    /// It is held back until so many later events have been sent to the same endpoint, or everything is released.
    HoldBack(u32),
    /// It is sent so many milliseconds after its event.
    Delay {
        /// By the sandbox's clock.
        milliseconds: u32,
    },
    /// It is signed with nobody's secret, the first time and whenever it is tried again.
    WrongSignature,
}

/// When a mishap strikes. What is left out matches every delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliveryRule {
    /// What happens.
    pub mishap: Mishap,
    /// Only to this type.
    #[serde(default)]
    pub event_type: Option<EventType>,
    /// Only where it is about this one.
    #[serde(default)]
    pub payment_intent: Option<String>,
    /// Lets so many matching deliveries through first: the nth one is `after: n - 1, times: 1`.
    #[serde(default)]
    pub after: u64,
    /// Strikes so often; `None` is for ever.
    #[serde(default)]
    pub times: Option<u64>,
    /// Strikes only now and then.
    #[serde(default)]
    pub chance: Option<Chance>,
}

impl DeliveryRule {
    /// Strikes every delivery, for ever.
    pub fn always(mishap: Mishap) -> Self {
        Self { mishap, event_type: None, payment_intent: None, after: 0, times: None, chance: None }
    }

    /// Strikes the next delivery.
    pub fn once(mishap: Mishap) -> Self {
        Self { times: Some(1), ..Self::always(mishap) }
    }

    /// Only this type.
    #[must_use]
    pub fn on(self, event_type: EventType) -> Self {
        Self { event_type: Some(event_type), ..self }
    }

    /// Only about this PaymentIntent.
    #[must_use]
    pub fn for_id(self, payment_intent: &str) -> Self {
        Self { payment_intent: Some(payment_intent.to_owned()), ..self }
    }

    /// Only so many of a million, by a generator of its own.
    #[must_use]
    pub fn now_and_then(self, per_million: u32, seed: u64) -> Self {
        Self { chance: Some(Chance { per_million, seed }), ..self }
    }
}

/// A rule's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeliveryRuleId(pub u64);

/// What is to become of one delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) lost: bool,
    pub(super) copies: u32,
    pub(super) hold_back: u32,
    pub(super) delay_ms: u32,
    pub(super) forged: bool,
}

#[derive(Clone, Debug)]
struct Armed {
    id: DeliveryRuleId,
    rule: DeliveryRule,
    turns: Turns,
}

/// The rules that are in force.
#[derive(Clone, Debug, Default)]
pub(super) struct DeliveryRules {
    armed: Vec<Armed>,
    last_id: u64,
}

impl DeliveryRules {
    pub(super) fn add(&mut self, rule: DeliveryRule) -> DeliveryRuleId {
        self.last_id += 1;
        let id = DeliveryRuleId(self.last_id);
        let turns = Turns::new(rule.after, rule.times, rule.chance);
        self.armed.push(Armed { id, rule, turns });
        id
    }

    pub(super) fn clear(&mut self) {
        self.armed.clear();
    }

    pub(super) fn rules(&self) -> impl Iterator<Item = (DeliveryRuleId, &DeliveryRule)> {
        self.armed.iter().map(|armed| (armed.id, &armed.rule))
    }

    /// What becomes of the delivery of this event.
    pub(super) fn strike(&mut self, event: &Event) -> Plan {
        let mut plan = Plan::default();
        for Armed { rule, turns, .. } in &mut self.armed {
            let matches = rule.event_type.is_none_or(|wanted| wanted == event.event_type)
                && rule.payment_intent.as_ref().is_none_or(|wanted| *wanted == event.payment_intent);
            if !matches || !turns.is_up() {
                continue;
            }
            match rule.mishap {
                Mishap::Lose => plan.lost = true,
                Mishap::Duplicate(copies) => plan.copies += copies,
                Mishap::HoldBack(later) => plan.hold_back = plan.hold_back.max(later),
                Mishap::Delay { milliseconds } => plan.delay_ms = plan.delay_ms.max(milliseconds),
                Mishap::WrongSignature => plan.forged = true,
            }
        }
        plan
    }
}
