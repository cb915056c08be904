//! The decision about a PaymentIntent that no payment here names: pure and total.
//!
//! An orphan is
//! - **unlinked** if and only if money moved or is held, and its metadata names a payment here that has no reference;
//! - an **orphan charge** if and only if money moved or is held, and nothing here explains it;
//! - **pending** if and only if it may still come to that: it is kept as a candidate and looked at again;
//! - **harmless** in every other case: nothing was taken and nothing will be.

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
