//! The decision about a PaymentIntent that no payment here names: pure and total.
//!
//! An orphan is
//! - **unlinked** if and only if money moved or is held, and its metadata names a payment here that has no reference;
//! - an **orphan charge** if and only if money moved or is held, and nothing here explains it;
//! - **pending** if and only if it may still come to that: it is kept as a candidate and looked at again;
//! - **harmless** in every other case: nothing was taken and nothing will be.
//!
//! A candidate is looked at again ([`next_look`]) after as long as it has been known, so that one that never ends costs a
//! dozen requests in a month; at the latest after a day where the money is under way or held, after a week where all depends
//! on a customer. Such an abandoned cart is given up when nothing is in flight for as long any more; what is under way never.

use time::Duration;

use super::Timestamp;
use super::classify::Policy;
use super::external::{ExternalPayment, ExternalStatus};
use super::id::PaymentId;
use super::verdict::Kind;

/// What an orphan comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrphanVerdict {
    /// Nothing was taken and nothing will be.
    Harmless,
    /// Not an end yet, or a status that we do not know: looked at again until it is terminal.
    Pending,
    /// A person decides.
    NeedsReview {
        /// `orphan_charge` or `unlinked_charge`.
        kind: Kind,
        /// The payment that its metadata names, for `unlinked_charge`.
        payment_id: Option<PaymentId>,
    },
}

/// Judges a PaymentIntent that no payment names. `unlinked` is the payment without a reference whose `match_key` stands in
/// its metadata, if there is one.
pub fn classify_orphan(external: &ExternalPayment, unlinked: Option<&PaymentId>) -> OrphanVerdict {
    match &external.status {
        ExternalStatus::Succeeded | ExternalStatus::RequiresCapture => OrphanVerdict::NeedsReview {
            kind: if unlinked.is_some() { Kind::UnlinkedCharge } else { Kind::OrphanCharge },
            payment_id: unlinked.cloned(),
        },
        ExternalStatus::Canceled => OrphanVerdict::Harmless,
        ExternalStatus::RequiresPaymentMethod
        | ExternalStatus::RequiresConfirmation
        | ExternalStatus::RequiresAction
        | ExternalStatus::Processing
        | ExternalStatus::Unknown(_) => OrphanVerdict::Pending,
    }
}

/// The shortest interval between two looks, so that without a grace period no candidate is asked for in every tick.
const SHORTEST: Duration = Duration::SECOND;

/// The longest one while money is under way or held.
const LONGEST_UNDER_WAY: Duration = Duration::days(1);

/// The longest one while all depends on a customer, or on an answer.
const LONGEST_WAITING: Duration = Duration::days(7);

/// When a candidate is looked at for the second time: no sooner than a grace period after it was seen first.
pub fn second_look(first_seen: Timestamp, policy: &Policy) -> Timestamp {
    first_seen + policy.grace.max(SHORTEST)
}

/// When a candidate is looked at again. `status` is what it was just now, `None` where that was not answered; the answer is
/// `None` where there is nothing more to look for.
pub fn next_look(
    status: Option<&ExternalStatus>,
    first_seen: Timestamp,
    policy: &Policy,
    now: Timestamp,
) -> Option<Timestamp> {
    let age = now - first_seen;
    let within = |longest: Duration| Some(now + age.min(longest).max(policy.grace.max(SHORTEST)));
    match status {
        Some(ExternalStatus::Succeeded | ExternalStatus::Canceled) => None,
        Some(ExternalStatus::Processing | ExternalStatus::RequiresCapture | ExternalStatus::Unknown(_)) => {
            within(LONGEST_UNDER_WAY)
        }
        None
        | Some(
            ExternalStatus::RequiresPaymentMethod
            | ExternalStatus::RequiresConfirmation
            | ExternalStatus::RequiresAction,
        ) => {
            if age > policy.in_flight_max {
                None
            } else {
                within(LONGEST_WAITING)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::domain::id::ExternalRef;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;
    const POLICY: Policy =
        Policy { grace: Duration::minutes(10), retry_window: Duration::days(1), in_flight_max: Duration::days(30) };

    fn external(status: ExternalStatus) -> ExternalPayment {
        ExternalPayment {
            id: ExternalRef::parse("pi_1").unwrap(),
            status,
            amount_minor: 1,
            amount_received_minor: 0,
            currency: "eur".to_owned(),
            created: NOW,
            livemode: false,
            metadata: BTreeMap::new(),
            decline: None,
            cancellation_reason: None,
        }
    }

    #[test]
    fn every_status_with_and_without_a_payment_that_it_names() {
        let payment = PaymentId::new("7");
        let unknown = ExternalStatus::Unknown("partially_funded".to_owned());
        for status in ExternalStatus::KNOWN.into_iter().chain([unknown]) {
            let review = |kind, payment_id| OrphanVerdict::NeedsReview { kind, payment_id };
            let (alone, named) = match status.as_str() {
                "succeeded" | "requires_capture" => {
                    (review(Kind::OrphanCharge, None), review(Kind::UnlinkedCharge, Some(payment.clone())))
                }
                "canceled" => (OrphanVerdict::Harmless, OrphanVerdict::Harmless),
                _ => (OrphanVerdict::Pending, OrphanVerdict::Pending),
            };
            assert_eq!(classify_orphan(&external(status.clone()), None), alone, "{status:?}");
            assert_eq!(classify_orphan(&external(status.clone()), Some(&payment)), named, "{status:?}");
        }
    }

    #[test]
    fn what_is_pending_is_looked_at_again_and_what_has_ended_is_not() {
        let unknown = ExternalStatus::Unknown("partially_funded".to_owned());
        for status in ExternalStatus::KNOWN.into_iter().chain([unknown]) {
            let again = next_look(Some(&status), NOW, &POLICY, NOW);
            let ended = matches!(status, ExternalStatus::Succeeded | ExternalStatus::Canceled);
            assert_eq!(again.is_none(), ended, "{status:?}");
            if classify_orphan(&external(status.clone()), None) == OrphanVerdict::Pending {
                assert!(again.is_some(), "{status:?}");
            }
        }
    }

    #[test]
    fn intervals_grow_and_carts_are_given_up_but_nothing_that_is_under_way() {
        let looks = |status: Option<ExternalStatus>| {
            let mut at = second_look(NOW, &POLICY);
            let mut gaps = Vec::new();
            while let Some(next) = next_look(status.as_ref(), NOW, &POLICY, at) {
                gaps.push(next - at);
                at = next;
                if gaps.len() > 200 {
                    break;
                }
            }
            gaps
        };
        for waiting in [Some(ExternalStatus::RequiresPaymentMethod), Some(ExternalStatus::RequiresAction), None] {
            let gaps = looks(waiting);
            assert!(gaps.is_sorted() && (10..20).contains(&gaps.len()), "{gaps:?}");
            assert_eq!((gaps[0], gaps[gaps.len() - 1]), (Duration::minutes(10), Duration::days(7)));
        }
        for under_way in [ExternalStatus::Processing, ExternalStatus::RequiresCapture] {
            let gaps = looks(Some(under_way));
            assert_eq!((gaps.len(), gaps[200]), (201, Duration::days(1)));
        }
        let no_grace = Policy { grace: Duration::ZERO, ..POLICY };
        assert_eq!(second_look(NOW, &no_grace), NOW + Duration::SECOND);
    }
}
