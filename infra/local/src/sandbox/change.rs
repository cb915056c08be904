//! The account's state from Rust: seeding, what happens at Stripe by itself, keys, limits, faults and the log.

use reconciler::domain::Timestamp;
use reconciler::domain::external::ExternalStatus;

use super::account::{Account, Space};
use super::attempt::{Charge, ChargeStatus, Decline};
use super::fault::{FaultId, FaultRule};
use super::intent::PaymentIntent;
use super::key::Grant;
use super::ledger::Ledger;
use super::limit::{Limiter, Limits};
use super::log::{Counters, LogEntry};
use super::seed::PaymentIntentSeed;
use super::webhooks::Cause;

/// Why the state could not be changed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ChangeError {
    /// Neither mode and no connected account has it.
    #[error("the sandbox has no PaymentIntent {id}")]
    NoSuchIntent {
        /// What was asked for.
        id: String,
    },
    /// Ids are unique over all accounts and both modes.
    #[error("the sandbox already has a PaymentIntent {id}")]
    IdTaken {
        /// What was to be inserted.
        id: String,
    },
    /// There is nothing to refund or to dispute.
    #[error("PaymentIntent {id} has no charge that took money")]
    NotCharged {
        /// What was asked for.
        id: String,
    },
}

impl Account {
    /// Puts a PaymentIntent in and gives its id. It counts as the newest of its second. Nobody is told: it was there before.
    pub fn insert(&mut self, mut seed: PaymentIntentSeed) -> Result<String, ChangeError> {
        let id = match seed.id.take() {
            Some(id) => id,
            None => self.new_intent_id(),
        };
        if self.spaces.contains_key(&id) {
            return Err(ChangeError::IdTaken { id });
        }
        let space = Space { account: seed.account.take(), livemode: seed.livemode };
        self.put(space, seed.grow(id.clone()));
        Ok(id)
    }

    /// Moves it to any status, known or not, possible or not, with the amounts and the charge that belong to it.
    pub fn set_status(&mut self, id: &str, status: ExternalStatus, now: Timestamp) -> Result<(), ChangeError> {
        self.happen(id, now, |intent| intent.move_to(status, now))
    }

    /// Cancels it with a reason, `expired` say.
    pub fn cancel(&mut self, id: &str, reason: Option<&str>, now: Timestamp) -> Result<(), ChangeError> {
        self.happen(id, now, |intent| {
            intent.move_to(ExternalStatus::Canceled, now);
            intent.cancellation_reason = reason.map(str::to_owned);
        })
    }

    /// Fails its last attempt: `requires_payment_method` with `last_payment_error`, and a failed charge where the
    /// decline has one.
    pub fn decline(&mut self, id: &str, decline: Decline, now: Timestamp) -> Result<(), ChangeError> {
        self.happen(id, now, |intent| intent.decline(decline, now))
    }

    /// Refunds so much (minor unit) of what was taken, on top of earlier refunds. Stripe changes only the charge.
    pub fn refund(&mut self, id: &str, amount: i64) -> Result<(), ChangeError> {
        self.change_charge(id, |charge| charge.amount_refunded += amount)
    }

    /// The customer complains to the bank. Stripe changes only the charge.
    pub fn dispute(&mut self, id: &str) -> Result<(), ChangeError> {
        self.change_charge(id, |charge| charge.disputed = true)
    }

    fn change_charge(&mut self, id: &str, change: impl FnOnce(&mut Charge)) -> Result<(), ChangeError> {
        let mut changed = false;
        self.change(id, |intent| {
            if let Some(charge) = intent.latest_charge.as_mut()
                && charge.status == ChargeStatus::Succeeded
                && charge.captured
            {
                change(charge);
                changed = true;
            }
        })?;
        if changed { Ok(()) } else { Err(ChangeError::NotCharged { id: id.to_owned() }) }
    }

    /// A change that Stripe makes by itself, and of which it tells.
    fn happen(&mut self, id: &str, now: Timestamp, change: impl FnOnce(&mut PaymentIntent)) -> Result<(), ChangeError> {
        let before = if self.anybody_listens() { self.get(id).cloned() } else { None };
        self.change(id, change)?;
        let after = self.get(id).cloned().filter(|_| before.is_some());
        if let (Some(space), Some(before), Some(after)) = (self.spaces.get(id).cloned(), before, after) {
            self.tell(&space, Some(&before), &after, &Cause::default(), now);
        }
        Ok(())
    }

    /// Changes anything about it; nothing else follows from it, and nobody is told.
    pub fn change(&mut self, id: &str, change: impl FnOnce(&mut PaymentIntent)) -> Result<(), ChangeError> {
        let intent = self.spaces.get(id).and_then(|space| self.ledgers.get_mut(space)?.get_mut(id));
        let intent = intent.ok_or_else(|| ChangeError::NoSuchIntent { id: id.to_owned() })?;
        change(intent);
        Ok(())
    }

    /// Makes it as though it had never been: 404.
    pub fn delete(&mut self, id: &str) -> Result<PaymentIntent, ChangeError> {
        let space = self.spaces.remove(id);
        let intent = space.and_then(|space| self.ledgers.get_mut(&space)?.remove(id));
        intent.ok_or_else(|| ChangeError::NoSuchIntent { id: id.to_owned() })
    }

    /// Puts it into live or test mode.
    pub fn set_livemode(&mut self, id: &str, livemode: bool) -> Result<(), ChangeError> {
        let account = self.spaces.get(id).and_then(|space| space.account.clone());
        let mut intent = self.delete(id)?;
        intent.livemode = livemode;
        self.put(Space { account, livemode }, intent);
        Ok(())
    }

    /// The PaymentIntent of that id, in whatever account and mode.
    pub fn get(&self, id: &str) -> Option<&PaymentIntent> {
        self.ledgers.get(self.spaces.get(id)?)?.get(id)
    }

    /// The platform's own, newest first.
    pub fn intents(&self, livemode: bool) -> impl Iterator<Item = &PaymentIntent> {
        self.ledgers.get(&Space { account: None, livemode }).into_iter().flat_map(Ledger::newest_first)
    }

    /// How many there are, over all accounts and both modes.
    pub fn len(&self) -> usize {
        self.ledgers.values().map(Ledger::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets the platform's keys act for a connected account, with `Stripe-Account`.
    pub fn connect(&mut self, account_id: &str) {
        self.connected.insert(account_id.to_owned());
    }

    /// Says what a key is good for.
    pub fn set_key(&mut self, key: &str, grant: Grant) {
        self.grants.insert(key.to_owned(), grant);
    }

    /// The limits from now on. They hold for each account and mode on its own.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.limiter = Limiter::default();
    }

    /// Adds a fault behind those that there are.
    pub fn add_fault(&mut self, rule: FaultRule) -> FaultId {
        self.faults.add(rule)
    }

    /// Takes a fault out; whether there was one. What it holds stays held.
    pub fn remove_fault(&mut self, id: FaultId) -> bool {
        self.faults.remove(id)
    }

    /// Takes all faults out.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// The faults in force, first come first.
    pub fn faults(&self) -> impl Iterator<Item = (FaultId, &FaultRule)> {
        self.faults.rules()
    }

    /// What was asked since the last clear, oldest first; at most [`LOG_CAPACITY`](super::LOG_CAPACITY).
    pub fn log(&self) -> impl Iterator<Item = &LogEntry> {
        self.log.entries()
    }

    /// How much was asked since the last clear.
    pub fn counters(&self) -> &Counters {
        &self.log.counters
    }

    /// Empties the log and sets the counters to 0.
    pub fn clear_log(&mut self) {
        self.log.clear();
    }
}
