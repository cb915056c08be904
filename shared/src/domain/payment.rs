//! A payment as the reconciler sees it: one row of the view `reconciliation.payment`, and what is known of it so far.

use super::Timestamp;
use super::id::{CLIENT_SECRET_MARK, ExternalRef, PaymentId};

/// What the application believes about a payment (the desired side of the comparison).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LocalState {
    /// Not sent to Stripe, or sent and never said so.
    Pending,
    /// Sent to Stripe, outcome not known here.
    Finalizing,
    /// The worker that should have finished it lost its lease.
    Expired,
    /// Captured.
    Paid,
    /// Will not be captured.
    Failed,
    /// A state that the adapter's view does not map, word for word; `None` for SQL's NULL.
    Unmapped(Option<String>),
}

impl LocalState {
    /// The five states that have a meaning here.
    pub const MAPPED: [Self; 5] = [Self::Pending, Self::Finalizing, Self::Expired, Self::Paid, Self::Failed];

    /// Reads the view's column `state`; never fails.
    pub fn from_view(text: Option<&str>) -> Self {
        Self::MAPPED
            .into_iter()
            .find(|mapped| mapped.as_str() == text)
            .unwrap_or_else(|| Self::Unmapped(text.map(str::to_owned)))
    }

    /// The view's word; `None` for SQL's NULL.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Pending => Some("pending"),
            Self::Finalizing => Some("finalizing"),
            Self::Expired => Some("expired"),
            Self::Paid => Some("paid"),
            Self::Failed => Some("failed"),
            Self::Unmapped(text) => text.as_deref(),
        }
    }
}

/// What the application's row says about its PaymentIntent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// NULL: there is nothing to ask Stripe for.
    Absent,
    /// Looks like the id of a PaymentIntent.
    WellFormed(ExternalRef),
    /// Anything else, word for word but for a client secret. Never sent to Stripe.
    Malformed(String),
}

impl Reference {
    /// Reads the view's column `external_ref`; never fails.
    pub fn from_view(text: Option<String>) -> Self {
        match text {
            None => Self::Absent,
            Some(text) => match (ExternalRef::parse(&text), text.split_once(CLIENT_SECRET_MARK)) {
                (Some(id), _) => Self::WellFormed(id),
                // a client secret was stored for an id: it must not get into a log, a finding or an event
                (None, Some((before, _secret))) => Self::Malformed(format!("{before}{CLIENT_SECRET_MARK}…")),
                (None, None) => Self::Malformed(text),
            },
        }
    }

    /// The column's text; `None` for SQL's NULL.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Absent => None,
            Self::WellFormed(id) => Some(id.as_str()),
            Self::Malformed(text) => Some(text),
        }
    }
}

/// One payment with the last observation of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    /// The application's key.
    pub id: PaymentId,
    /// Which PaymentIntent it is, if any.
    pub reference: Reference,
    /// What the application writes into the PaymentIntent's metadata, e.g. the order id.
    pub match_key: Option<String>,
    /// What the application believes.
    pub state: LocalState,
    /// When the application made the row.
    pub created_at: Timestamp,
    /// When the application last changed the row.
    pub updated_at: Timestamp,
    /// Changes with every write of the row; compared for equality only.
    pub version: String,
    /// The last confirmed answer about it, if there was one.
    pub previous: Option<Observation>,
}

/// The last external status that was really read for a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Stripe's word or `not_found`; `None` where the payment had no reference to ask for.
    pub external_status: Option<String>,
    /// The database's time before the request.
    pub observed_at: Timestamp,
    /// When Stripe created the PaymentIntent, where that is known.
    pub external_created_at: Option<Timestamp>,
    /// The kinds of the findings that are open about the payment, in the state and with the reference that it has now.
    pub open_kinds: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_read_back_and_everything_else_is_unmapped() {
        for state in LocalState::MAPPED {
            assert_eq!(LocalState::from_view(state.as_str()), state);
        }
        assert_eq!(LocalState::from_view(None), LocalState::Unmapped(None));
        for text in ["", "PAID", "refunded", "unmapped"] {
            assert_eq!(LocalState::from_view(Some(text)), LocalState::Unmapped(Some(text.to_owned())));
        }
    }

    #[test]
    fn null_is_absent_and_empty_is_malformed() {
        assert_eq!(Reference::from_view(None), Reference::Absent);
        assert_eq!(Reference::from_view(Some(String::new())), Reference::Malformed(String::new()));
        assert_eq!(Reference::from_view(Some("pi_1_secret_hush".into())).as_str(), Some("pi_1_secret_…"));
        assert!(matches!(Reference::from_view(Some("pi_1".into())), Reference::WellFormed(_)));
        assert!(matches!(Reference::from_view(Some("pi_1/refunds".into())), Reference::Malformed(_)));
    }
}
