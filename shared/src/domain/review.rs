//! What a person may decide about a finding, and whether it still can be decided.
//!
//! A decision **stands** if and only if
//!
//! - the finding is open, and at the revision that the person was shown;
//! - the payment has the state and the reference that the finding has, and Stripe's status was not seen to be another since; and
//! - the decision fits:
//!   - **accept**: nothing is repairing it;
//!   - **apply**: the transition leads from the payment's state to what Stripe's status says ([`PersonOnly::leads_to_stripe`]);
//!   - **retry**: its kind has a command, and none is waiting;
//!   - **snooze**: nothing is repairing it, and the end lies ahead, at most [`SNOOZE_MAX`].
//!
//! What a person was shown and what is there are compared here, in one place; that nothing changes between the comparison and
//! the writing is the transaction's business.

use time::Duration;

use super::Timestamp;
use super::external::ExternalStatus;
use super::payment::LocalState;
use super::verdict::{Kind, Repair, Verdict};

/// A finding can be put off for so long at once.
pub const SNOOZE_MAX: Duration = Duration::days(30);

/// A transition that only a person asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PersonOnly {
    /// `paid` → `failed`.
    ReversePaid,
    /// `failed` → `paid`.
    AcceptLateSuccess,
}

impl PersonOnly {
    /// Both.
    pub const ALL: [Self; 2] = [Self::ReversePaid, Self::AcceptLateSuccess];

    /// The word that `reconciliation.transition` knows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReversePaid => "reverse_paid",
            Self::AcceptLateSuccess => "accept_late_success",
        }
    }

    /// Whether it brings a payment in `local` to what Stripe says. Where Stripe's side may still come to take the money
    /// (`processing`, `requires_capture`), or says what we do not know, nothing does.
    pub fn leads_to_stripe(self, local: &LocalState, external: ExternalSide<'_>) -> bool {
        match self {
            Self::AcceptLateSuccess => {
                *local == LocalState::Failed && external == ExternalSide::Present(&ExternalStatus::Succeeded)
            }
            Self::ReversePaid => {
                *local == LocalState::Paid
                    && match external {
                        ExternalSide::NotFound => true,
                        ExternalSide::NotAsked => false,
                        ExternalSide::Present(status) => match status {
                            ExternalStatus::Canceled
                            | ExternalStatus::RequiresPaymentMethod
                            | ExternalStatus::RequiresConfirmation
                            | ExternalStatus::RequiresAction => true,
                            ExternalStatus::Succeeded
                            | ExternalStatus::Processing
                            | ExternalStatus::RequiresCapture
                            | ExternalStatus::Unknown(_) => false,
                        },
                    }
            }
        }
    }
}

/// Stripe's side of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalSide<'a> {
    /// There was nothing to ask for.
    NotAsked,
    /// A confirmed 404.
    NotFound,
    /// A PaymentIntent.
    Present(&'a ExternalStatus),
}

/// What a person decides about a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The difference is all right while kind, states and reference are what they are.
    Accept,
    /// The payment changes.
    Apply(PersonOnly),
    /// The repair is asked for again, from zero attempts.
    Retry,
    /// Somebody looks again then.
    Snooze {
        /// When.
        until: Timestamp,
    },
}

impl Decision {
    /// The word in `reconciliation.review`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Apply(_) => "apply",
            Self::Retry => "retry",
            Self::Snooze { .. } => "snooze",
        }
    }
}

/// One side as the finding has it, and as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentNow {
    /// The view's state.
    pub state: Option<String>,
    /// The view's reference, a client secret in it cut off.
    pub external_ref: Option<String>,
    /// The last status that was confirmed, `not_found` included; `None` where nothing was.
    pub external_status: Option<String>,
}

/// A finding as it is, with what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingNow {
    /// Which.
    pub id: i64,
    /// Its kind.
    pub kind: String,
    /// `repairable` or `needs_review`.
    pub verdict: String,
    /// Grows when anything changes that a decision depends on.
    pub revision: i64,
    /// The payment's state, as it was found.
    pub local_state: Option<String>,
    /// Stripe's status, as it was found.
    pub external_status: Option<String>,
    /// The reference, as it was found.
    pub external_ref: Option<String>,
    /// How it ended, where it has.
    pub resolution: Option<String>,
    /// It is put off until then.
    pub snoozed_until: Option<Timestamp>,
    /// A command that repairs it waits in the outbox.
    pub command_waits: bool,
    /// Whether it is about a payment here, rather than about an object of Stripe's alone.
    pub has_payment: bool,
    /// That payment; `None` where it is gone.
    pub payment: Option<PaymentNow>,
}

/// Why a decision does not stand, with what is true now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is closed.
    #[error("the finding is closed: {resolution}")]
    Closed {
        /// How it ended.
        resolution: String,
    },
    /// It has changed since it was shown.
    #[error(
        "the finding has changed since it was shown: it is at revision {now} and not at {shown}; kind {kind}, {verdict}, \
         here {local_state}, at Stripe {external_status}"
    )]
    Changed {
        /// The revision that was shown.
        shown: i64,
        /// The revision that it has.
        now: i64,
        /// Its kind.
        kind: String,
        /// Its verdict.
        verdict: String,
        /// The payment's state.
        local_state: String,
        /// Stripe's status.
        external_status: String,
    },
    /// The payment is gone.
    #[error("the payment is not there any more")]
    PaymentGone,
    /// The payment has changed since the finding was looked at last.
    #[error(
        "the payment has changed since the last scan, which found {found}: it is {now} now; the next scan judges it"
    )]
    PaymentChanged {
        /// As it was found.
        found: String,
        /// As it is.
        now: String,
    },
    /// Stripe's status was seen to be another one.
    #[error(
        "Stripe's status has changed since the finding was written: it was {found} and is {now}; the next scan judges it"
    )]
    StripeChanged {
        /// As it was found.
        found: String,
        /// As it was seen last.
        now: String,
    },
    /// The transition does not lead to what Stripe says.
    #[error("{transition} does not lead from {local_state} here to {external_status} at Stripe")]
    DoesNotLead {
        /// The transition.
        transition: &'static str,
        /// The payment's state.
        local_state: String,
        /// Stripe's status.
        external_status: String,
    },
    /// There is no payment to change.
    #[error("the finding is about an object of Stripe's that no payment here names: there is no payment to change")]
    NoPayment,
    /// The reconciler is repairing it.
    #[error("the reconciler is repairing it: nothing is to be decided unless that does not help")]
    BeingRepaired,
    /// Its kind has no command.
    #[error("no command repairs a finding of kind {kind}")]
    NoCommand {
        /// Its kind.
        kind: String,
    },
    /// A command waits.
    #[error("a command that repairs it is waiting in the outbox already")]
    CommandWaits,
    /// It would not end, or in the past.
    #[error("a finding is put off until a time that lies ahead, at most {} days", SNOOZE_MAX.whole_days())]
    SnoozeEnd,
    /// It is put off until then already.
    #[error("the finding is put off until then already")]
    SnoozedAlready,
}

impl Refusal {
    /// A name that does not change, for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Closed { .. } => "closed",
            Self::Changed { .. } => "changed",
            Self::PaymentGone => "payment_gone",
            Self::PaymentChanged { .. } => "payment_changed",
            Self::StripeChanged { .. } => "stripe_changed",
            Self::DoesNotLead { .. } => "does_not_lead",
            Self::NoPayment => "no_payment",
            Self::BeingRepaired => "being_repaired",
            Self::NoCommand { .. } => "no_command",
            Self::CommandWaits => "command_waits",
            Self::SnoozeEnd => "snooze_end",
            Self::SnoozedAlready => "snoozed_already",
        }
    }
}

/// What a decision that stands comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The finding closes as `accepted`.
    Accept,
    /// The canonical writer is called.
    Apply(PersonOnly),
    /// A command goes out.
    Issue(Repair),
    /// The finding is put off.
    Snooze {
        /// Until then.
        until: Timestamp,
    },
}

/// Whether `decision`, taken on the finding as it was shown at `revision`, stands at `now`.
pub fn judge(decision: Decision, revision: i64, finding: &FindingNow, now: Timestamp) -> Result<Act, Refusal> {
    still_as_shown(revision, finding)?;
    let being_repaired = finding.verdict == Verdict::Repairable.as_str();
    match decision {
        Decision::Accept if being_repaired => Err(Refusal::BeingRepaired),
        Decision::Accept => Ok(Act::Accept),
        Decision::Apply(transition) => apply(transition, finding),
        Decision::Retry => match Kind::parse(&finding.kind).and_then(Kind::repair) {
            None => Err(Refusal::NoCommand { kind: finding.kind.clone() }),
            Some(_) if finding.command_waits => Err(Refusal::CommandWaits),
            Some(repair) => Ok(Act::Issue(repair)),
        },
        Decision::Snooze { .. } if being_repaired => Err(Refusal::BeingRepaired),
        Decision::Snooze { until } if finding.snoozed_until == Some(until) => Err(Refusal::SnoozedAlready),
        Decision::Snooze { until } if until <= now || until - now > SNOOZE_MAX => Err(Refusal::SnoozeEnd),
        Decision::Snooze { until } => Ok(Act::Snooze { until }),
    }
}

/// What can be decided about it, for the buttons. Of snoozing only whether it can be put off at all.
pub fn choices(finding: &FindingNow, now: Timestamp) -> Vec<Decision> {
    let apply = PersonOnly::ALL.map(Decision::Apply);
    let all =
        apply.into_iter().chain([Decision::Retry, Decision::Accept, Decision::Snooze { until: now + SNOOZE_MAX }]);
    all.filter(|decision| judge(*decision, finding.revision, finding, now).is_ok()).collect()
}

fn still_as_shown(revision: i64, finding: &FindingNow) -> Result<(), Refusal> {
    if let Some(resolution) = &finding.resolution {
        return Err(Refusal::Closed { resolution: resolution.clone() });
    }
    if revision != finding.revision {
        return Err(Refusal::Changed {
            shown: revision,
            now: finding.revision,
            kind: finding.kind.clone(),
            verdict: finding.verdict.clone(),
            local_state: word(finding.local_state.as_deref()),
            external_status: word(finding.external_status.as_deref()),
        });
    }
    if !finding.has_payment {
        return Ok(());
    }
    let Some(payment) = &finding.payment else { return Err(Refusal::PaymentGone) };
    if payment.state != finding.local_state || payment.external_ref != finding.external_ref {
        let written = |state: &Option<String>, reference: &Option<String>| {
            format!("{} with {}", word(state.as_deref()), reference.as_deref().unwrap_or("no reference"))
        };
        return Err(Refusal::PaymentChanged {
            found: written(&finding.local_state, &finding.external_ref),
            now: written(&payment.state, &payment.external_ref),
        });
    }
    if payment.external_status != finding.external_status {
        return Err(Refusal::StripeChanged {
            found: word(finding.external_status.as_deref()),
            now: word(payment.external_status.as_deref()),
        });
    }
    Ok(())
}

fn apply(transition: PersonOnly, finding: &FindingNow) -> Result<Act, Refusal> {
    if !finding.has_payment {
        return Err(Refusal::NoPayment);
    }
    let local = LocalState::from_view(finding.local_state.as_deref());
    let status = finding.external_status.as_deref();
    let present = status.map(ExternalStatus::from_stripe);
    let external = match (status, &present) {
        (Some("not_found"), _) => ExternalSide::NotFound,
        (_, Some(present)) => ExternalSide::Present(present),
        (_, None) => ExternalSide::NotAsked,
    };
    if finding.external_ref.is_some() && transition.leads_to_stripe(&local, external) {
        return Ok(Act::Apply(transition));
    }
    Err(Refusal::DoesNotLead {
        transition: transition.as_str(),
        local_state: word(finding.local_state.as_deref()),
        external_status: word(status),
    })
}

fn word(text: Option<&str>) -> String {
    text.unwrap_or("nothing").to_owned()
}

#[cfg(test)]
#[path = "review_tests.rs"]
mod tests;
