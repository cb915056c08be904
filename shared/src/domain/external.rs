//! What Stripe says about a payment: the authoritative side of every comparison.

use std::collections::BTreeMap;

use super::Timestamp;
use super::id::ExternalRef;

/// A PaymentIntent's `status`. Stripe's enum is open, so a text that we do not know is kept as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExternalStatus {
    /// Nothing was taken: not yet attempted, or declined.
    RequiresPaymentMethod,
    /// Waits for us to confirm.
    RequiresConfirmation,
    /// Waits for the customer, e.g. 3-D Secure.
    RequiresAction,
    /// With the bank.
    Processing,
    /// Authorised: the money is held, not taken.
    RequiresCapture,
    /// Terminal: nothing is taken and nothing will be.
    Canceled,
    /// Terminal: the money was taken.
    Succeeded,
    /// Anything else, word for word.
    Unknown(String),
}

impl ExternalStatus {
    /// Every status that is known today.
    pub const KNOWN: [Self; 7] = [
        Self::RequiresPaymentMethod,
        Self::RequiresConfirmation,
        Self::RequiresAction,
        Self::Processing,
        Self::RequiresCapture,
        Self::Canceled,
        Self::Succeeded,
    ];

    /// Reads Stripe's word; never fails.
    pub fn from_stripe(text: &str) -> Self {
        Self::KNOWN.into_iter().find(|known| known.as_str() == text).unwrap_or_else(|| Self::Unknown(text.to_owned()))
    }

    /// Stripe's word.
    pub fn as_str(&self) -> &str {
        match self {
            Self::RequiresPaymentMethod => "requires_payment_method",
            Self::RequiresConfirmation => "requires_confirmation",
            Self::RequiresAction => "requires_action",
            Self::Processing => "processing",
            Self::RequiresCapture => "requires_capture",
            Self::Canceled => "canceled",
            Self::Succeeded => "succeeded",
            Self::Unknown(text) => text,
        }
    }
}

/// The part of a PaymentIntent that decisions and evidence need. `client_secret` and the raw object stay outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalPayment {
    /// The PaymentIntent's id.
    pub id: ExternalRef,
    /// Its status now.
    pub status: ExternalStatus,
    /// Amount intended, in the currency's minor unit.
    pub amount_minor: i64,
    /// Amount taken, in the currency's minor unit.
    pub amount_received_minor: i64,
    /// ISO code in lower case, as Stripe writes it.
    pub currency: String,
    /// When Stripe created it, to the second.
    pub created: Timestamp,
    /// Live mode or test mode.
    pub livemode: bool,
    /// The application's own keys and values.
    pub metadata: BTreeMap<String, String>,
    /// Present when the last attempt was declined.
    pub decline: Option<Decline>,
    /// Why it was canceled, where it was and Stripe says so.
    pub cancellation_reason: Option<String>,
}

/// The last attempt's failure (`last_payment_error`). Not an end: the customer may try again in the same form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decline {
    /// Stripe's `decline_code`, else its `code`.
    pub code: Option<String>,
    /// When the last failed charge was made; `None` where the attempt failed before any charge, e.g. in 3-D Secure.
    pub charged_at: Option<Timestamp>,
}

/// A confirmed answer to "what is the state of this id?". A missing answer is an error of the gateway, never one of
/// these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum External {
    /// Stripe has it.
    Present(ExternalPayment),
    /// Stripe answered 404 for this id.
    NotFound {
        /// Stripe said that the other mode (live or test) has a similar object.
        other_mode: bool,
    },
}

/// What is kept of an answer when it has been judged: there are 20,000 of them in the largest batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The status; `None` where Stripe has no such object.
    pub status: Option<ExternalStatus>,
    /// When Stripe created it.
    pub created: Option<Timestamp>,
}

impl From<&External> for Seen {
    fn from(external: &External) -> Self {
        match external {
            External::Present(payment) => Self { status: Some(payment.status.clone()), created: Some(payment.created) },
            External::NotFound { .. } => Self { status: None, created: None },
        }
    }
}

impl Seen {
    /// The status as it is stored: Stripe's word, or `not_found`.
    pub fn status_text(&self) -> &str {
        self.status.as_ref().map_or(NOT_FOUND, ExternalStatus::as_str)
    }
}

/// How `not_found` is written where a status is stored or counted.
pub const NOT_FOUND: &str = "not_found";

impl External {
    /// The status as it is stored: Stripe's word, or `not_found`.
    pub fn status_text(&self) -> &str {
        match self {
            Self::Present(payment) => payment.status.as_str(),
            Self::NotFound { .. } => NOT_FOUND,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_status_reads_back_and_an_unknown_one_is_kept() {
        for status in ExternalStatus::KNOWN {
            assert_eq!(ExternalStatus::from_stripe(status.as_str()), status);
            assert!(!matches!(status, ExternalStatus::Unknown(_)));
        }
        for text in ["", "SUCCEEDED", "partially_funded", "not_found"] {
            assert_eq!(ExternalStatus::from_stripe(text), ExternalStatus::Unknown(text.to_owned()));
        }
    }
}
