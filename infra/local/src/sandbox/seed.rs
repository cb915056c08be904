//! PaymentIntents that are put in from Rust.

use std::collections::BTreeMap;

use reconciler::domain::Timestamp;
use reconciler::domain::external::ExternalStatus;

use super::attempt::{Decline, MethodKind};
use super::intent::{CaptureMethod, PaymentIntent};

/// A PaymentIntent to put into the account, with the amounts and the charge that its status needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentIntentSeed {
    /// Taken as it is; made up where absent.
    pub id: Option<String>,
    /// Kept to the second.
    pub created: Timestamp,
    /// Where it stands; a charge that this needs gets the same creation time.
    pub status: ExternalStatus,
    /// Minor unit.
    pub amount: i64,
    /// ISO code in lower case.
    pub currency: String,
    /// Live mode or test mode.
    pub livemode: bool,
    /// The connected account it belongs to; `None` is the platform's own.
    pub account: Option<String>,
    /// `cus_…`
    pub customer: Option<String>,
    /// The merchant's own keys and values.
    pub metadata: BTreeMap<String, String>,
    /// When money is taken.
    pub capture_method: CaptureMethod,
    /// A failed last attempt; leaves the status `requires_payment_method`, whatever is said above.
    pub decline: Option<Decline>,
}

impl PaymentIntentSeed {
    /// 10.00 USD in test mode, with nothing attempted yet.
    pub fn new(created: Timestamp) -> Self {
        Self {
            id: None,
            created,
            status: ExternalStatus::RequiresPaymentMethod,
            amount: 1000,
            currency: "usd".to_owned(),
            livemode: false,
            account: None,
            customer: None,
            metadata: BTreeMap::new(),
            capture_method: CaptureMethod::default(),
            decline: None,
        }
    }

    pub(super) fn grow(self, id: String) -> PaymentIntent {
        let mut intent = PaymentIntent {
            id,
            created: self.created.unix_timestamp(),
            livemode: self.livemode,
            status: ExternalStatus::RequiresPaymentMethod,
            amount: self.amount,
            amount_received: 0,
            amount_capturable: 0,
            capture_method: self.capture_method,
            currency: self.currency,
            customer: self.customer,
            customer_account: None,
            description: None,
            metadata: self.metadata,
            canceled_at: None,
            cancellation_reason: None,
            last_payment_error: None,
            latest_charge: None,
            payment_method: None,
            method_kind: MethodKind::Card,
        };
        match self.decline {
            Some(decline) => intent.decline(decline, self.created),
            None => intent.move_to(self.status, self.created),
        }
        intent
    }
}
