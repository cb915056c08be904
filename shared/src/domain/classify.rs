//! The decision about one payment: pure and total.
//!
//! A payment is
//! - **in sync** if and only if both sides have ended the same way, or neither has taken money and nothing is under way;
//! - **in flight** if and only if it changed within the grace period, or one side is on its way to an end and has not been
//!   for longer than anything takes. A `paid` payment never is: that would be false health for ever;
//! - **repairable** if and only if Stripe has ended, we have not, and following Stripe is all there is to do;
//! - in **need of review** in every other case: whatever would move money, whatever we do not understand.
//!
//! Two steps, since most of the reasons not to ask Stripe are known before: [`before_asking`], then [`classify`].

use time::Duration;

use super::Timestamp;
use super::external::{External, ExternalPayment};
use super::id::ExternalRef;
use super::payment::{LocalState, Payment, Reference};
use super::verdict::{Column, ExternalWord, Judgement, Kind, LocalWord, Repair};

/// The ages that decisions turn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A row that changed more recently than this is left alone: its webhook may be on the way.
    pub grace: Duration,
    /// A declined customer has this long to try again in the same form.
    pub retry_window: Duration,
    /// Nothing is in flight for longer than this.
    pub in_flight_max: Duration,
}

/// What is to be done with a row before Stripe is asked anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BeforeAsking {
    /// Too fresh: in flight, not asked, not verified.
    TooFresh,
    /// Judged from the row alone; counts as verified, since Stripe has nothing to say about it.
    Settled(Judgement),
    /// Stripe has to be asked for this id.
    Ask(ExternalRef),
}

/// Decides whether Stripe has to be asked at all.
///
/// A row counts as too fresh up to one grace period *ahead* of `now`, for clocks differ; a row dated later than that is
/// not, or a wrong date would keep it from ever being verified.
pub fn before_asking(payment: &Payment, policy: &Policy, now: Timestamp) -> BeforeAsking {
    let age = now - payment.updated_at;
    if age < policy.grace && -age <= policy.grace {
        return BeforeAsking::TooFresh;
    }
    match &payment.reference {
        Reference::WellFormed(id) => BeforeAsking::Ask(id.clone()),
        Reference::Malformed(_) => BeforeAsking::Settled(review(Kind::MalformedReference)),
        Reference::Absent => BeforeAsking::Settled(without_reference(&payment.state, age > policy.in_flight_max)),
    }
}

/// A row without a reference. `paid` without any PaymentIntent is a claim that nothing stands behind, so a person looks;
/// payments that are taken by other means than Stripe do not belong into the view.
fn without_reference(state: &LocalState, stalled: bool) -> Judgement {
    match state {
        LocalState::Pending | LocalState::Failed => Judgement::InSync,
        // The reverse scan looks for their charge by match_key, and reports it when a complete window has none. This is the
        // net below that net.
        LocalState::Finalizing | LocalState::Expired if stalled => review(Kind::StalledInFlight),
        LocalState::Finalizing | LocalState::Expired => Judgement::InFlight,
        LocalState::Paid => review(Kind::NoExternalReference),
        LocalState::Unmapped(_) => review(Kind::UnmappedState),
    }
}

/// Compares a payment with a confirmed answer of Stripe.
pub fn classify(payment: &Payment, external: &External, policy: &Policy, now: Timestamp) -> Judgement {
    match external {
        External::NotFound { other_mode } => not_found(&payment.state, *other_mode),
        External::Present(present) => present_at_stripe(payment, present, policy, now),
    }
}

/// Stripe has never heard of it, whatever we believe. In the other mode it has, so nobody is to be compensated for it.
fn not_found(state: &LocalState, other_mode: bool) -> Judgement {
    match state {
        LocalState::Finalizing | LocalState::Expired => {
            Judgement::NeedsReview { kind: Kind::MissingExternally, compensation: !other_mode }
        }
        LocalState::Pending | LocalState::Paid | LocalState::Failed => review(Kind::MissingExternally),
        LocalState::Unmapped(_) => review(Kind::UnmappedState),
    }
}

fn present_at_stripe(payment: &Payment, external: &ExternalPayment, policy: &Policy, now: Timestamp) -> Judgement {
    use Column as E;
    use LocalState as L;

    match (&payment.state, Column::from(&external.status)) {
        (L::Pending | L::Finalizing | L::Expired, E::Succeeded) => Judgement::Repairable(Repair::MissedSuccess),
        (L::Pending | L::Finalizing | L::Expired, E::Canceled) => Judgement::Repairable(Repair::MissedCancel),

        (L::Pending, E::RequiresPaymentMethod) => Judgement::InSync,
        (L::Finalizing | L::Expired, E::RequiresPaymentMethod) if gave_up(payment, external, policy, now) => {
            Judgement::Repairable(Repair::MissedFailure)
        }
        (L::Finalizing, E::RequiresPaymentMethod) => in_flight(payment, external, policy, now),
        (L::Expired, E::RequiresPaymentMethod) => Judgement::InSync,

        (L::Pending | L::Finalizing | L::Expired, E::Moving(_)) => in_flight(payment, external, policy, now),

        (L::Pending, E::Unknown) => review(Kind::Unexpected(LocalWord::Pending, ExternalWord::Unknown)),
        (L::Finalizing, E::Unknown) => Judgement::NeedsReview {
            kind: Kind::Unexpected(LocalWord::Finalizing, ExternalWord::Unknown),
            compensation: true,
        },
        (L::Expired, E::Unknown) => Judgement::NeedsReview {
            kind: Kind::Unexpected(LocalWord::Expired, ExternalWord::Unknown),
            compensation: true,
        },

        (L::Paid, E::Succeeded) => Judgement::InSync,
        (L::Paid, E::Canceled | E::RequiresPaymentMethod | E::Moving(_) | E::Unknown) => {
            review(Kind::PaidLocallyNotExternally)
        }

        (L::Failed, E::Canceled | E::RequiresPaymentMethod) => Judgement::InSync,
        (L::Failed, E::Succeeded) => review(Kind::Unexpected(LocalWord::Failed, ExternalWord::Succeeded)),
        (L::Failed, E::Moving(moving)) => review(Kind::Unexpected(LocalWord::Failed, moving.into())),
        (L::Failed, E::Unknown) => review(Kind::Unexpected(LocalWord::Failed, ExternalWord::Unknown)),

        (L::Unmapped(_), E::Succeeded | E::Canceled | E::RequiresPaymentMethod | E::Moving(_) | E::Unknown) => {
            review(Kind::UnmappedState)
        }
    }
}

fn review(kind: Kind) -> Judgement {
    Judgement::NeedsReview { kind, compensation: false }
}

/// The last attempt was declined, and the customer did not try again within the retry window. It runs from the last failed
/// charge; where the attempt failed before any charge, from the later of the two sides' last sign of life.
fn gave_up(payment: &Payment, external: &ExternalPayment, policy: &Policy, now: Timestamp) -> bool {
    external.decline.as_ref().is_some_and(|decline| {
        let since = decline.charged_at.unwrap_or_else(|| last_sign_of_life(payment, external, now));
        now - since > policy.retry_window
    })
}

fn in_flight(payment: &Payment, external: &ExternalPayment, policy: &Policy, now: Timestamp) -> Judgement {
    if now - last_sign_of_life(payment, external, now) > policy.in_flight_max {
        review(Kind::StalledInFlight)
    } else {
        Judgement::InFlight
    }
}

/// The later of the row's last change and the PaymentIntent's creation. A row that is dated in the future has no say, or it
/// would be in flight until then.
fn last_sign_of_life(payment: &Payment, external: &ExternalPayment, now: Timestamp) -> Timestamp {
    if payment.updated_at > now { external.created } else { payment.updated_at.max(external.created) }
}
