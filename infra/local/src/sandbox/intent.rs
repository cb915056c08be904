//! A PaymentIntent and its latest charge, and what each change of status does to them.

use std::collections::BTreeMap;

use reconciler::domain::Timestamp;
use reconciler::domain::external::ExternalStatus;
use serde::{Deserialize, Serialize};

use super::attempt::{Charge, ChargeStatus, Decline, MethodKind, PaymentError};

/// When money is taken after it is authorised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureMethod {
    /// At once.
    Automatic,
    /// At once, answered sooner; Stripe's default.
    #[default]
    AutomaticAsync,
    /// By a request of ours.
    Manual,
}

impl CaptureMethod {
    /// Stripe's words.
    pub(super) const WORDS: [&'static str; 3] = ["automatic", "automatic_async", "manual"];

    /// Stripe's word.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Automatic => "automatic",
            Self::AutomaticAsync => "automatic_async",
            Self::Manual => "manual",
        }
    }
}

/// A PaymentIntent as Stripe holds it. Id, mode and creation time cannot change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentIntent {
    pub(super) id: String,
    pub(super) created: i64,
    pub(super) livemode: bool,
    /// Where it stands.
    pub status: ExternalStatus,
    /// Minor unit.
    pub amount: i64,
    /// Minor unit.
    pub amount_received: i64,
    /// Minor unit.
    pub amount_capturable: i64,
    /// When money is taken.
    pub capture_method: CaptureMethod,
    /// ISO code in lower case.
    pub currency: String,
    /// `cus_…`
    pub customer: Option<String>,
    /// `acct_…`, for customers that are accounts.
    pub customer_account: Option<String>,
    /// Free text.
    pub description: Option<String>,
    /// The merchant's own keys and values.
    pub metadata: BTreeMap<String, String>,
    /// Unix seconds.
    pub canceled_at: Option<i64>,
    /// Stripe's word.
    pub cancellation_reason: Option<String>,
    /// The last attempt's failure.
    pub last_payment_error: Option<PaymentError>,
    /// The latest attempt.
    pub latest_charge: Option<Charge>,
    /// The payment method that is attached.
    pub payment_method: Option<String>,
    /// Its kind.
    pub method_kind: MethodKind,
}

/// Which later states the charge of a transition is in.
#[derive(Clone, Copy)]
enum ChargeIs {
    Captured,
    Authorised,
    Pending,
}

impl PaymentIntent {
    /// `pi_…`
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Unix seconds.
    pub fn created(&self) -> i64 {
        self.created
    }

    /// Live mode or test mode.
    pub fn livemode(&self) -> bool {
        self.livemode
    }

    /// Moves to a status as Stripe would have moved, with the amounts and the charge that belong to it. An unknown
    /// status changes nothing else.
    pub(super) fn move_to(&mut self, status: ExternalStatus, now: Timestamp) {
        match &status {
            ExternalStatus::Succeeded => {
                self.charge(ChargeIs::Captured, now);
                self.amount_capturable = 0;
                self.amount_received = self.amount;
                self.last_payment_error = None;
            }
            ExternalStatus::RequiresCapture => {
                self.capture_method = CaptureMethod::Manual;
                self.charge(ChargeIs::Authorised, now);
                self.amount_capturable = self.amount;
                self.amount_received = 0;
                self.last_payment_error = None;
            }
            ExternalStatus::Processing => {
                if self.method_kind == MethodKind::Card {
                    self.method_kind = MethodKind::SepaDebit;
                    self.payment_method = None;
                }
                self.charge(ChargeIs::Pending, now);
                self.no_money();
                self.last_payment_error = None;
            }
            ExternalStatus::Canceled => {
                // An authorisation that is given back shows as a full refund of an uncaptured charge.
                if let Some(charge) = self.latest_charge.as_mut()
                    && charge.status == ChargeStatus::Succeeded
                    && !charge.captured
                {
                    charge.amount_refunded = charge.amount;
                }
                self.no_money();
                self.canceled_at = Some(now.unix_timestamp());
            }
            ExternalStatus::RequiresPaymentMethod => {
                self.no_money();
                self.payment_method = None;
            }
            ExternalStatus::RequiresConfirmation | ExternalStatus::RequiresAction => {
                self.no_money();
                self.attach();
            }
            ExternalStatus::Unknown(_) => {}
        }
        if status != ExternalStatus::Canceled {
            self.canceled_at = None;
            self.cancellation_reason = None;
        }
        self.status = status;
    }

    /// The last attempt failed: back to `requires_payment_method`.
    pub(super) fn decline(&mut self, decline: Decline, now: Timestamp) {
        let payment_method = self.attach();
        let charge = match &decline {
            Decline::Card(_) => {
                let mut charge = self.new_charge(now);
                charge.status = ChargeStatus::Failed;
                charge.failure = Some(decline.clone());
                let id = charge.id.clone();
                self.latest_charge = Some(charge);
                Some(id)
            }
            Decline::Authentication => None,
        };
        self.last_payment_error = Some(PaymentError { decline, charge, payment_method, kind: self.method_kind });
        self.move_to(ExternalStatus::RequiresPaymentMethod, now);
    }

    /// Takes all or part of an authorised amount; the rest is given back.
    pub(super) fn capture(&mut self, amount: i64, now: Timestamp) {
        self.move_to(ExternalStatus::Succeeded, now);
        self.amount_received = amount;
        if let Some(charge) = self.latest_charge.as_mut() {
            charge.amount_captured = amount;
        }
    }

    /// The id of the attached payment method, attaching one where there is none.
    pub(super) fn attach(&mut self) -> String {
        let id = &self.id;
        self.payment_method.get_or_insert_with(|| format!("pm_1{}", tail(id))).clone()
    }

    fn no_money(&mut self) {
        self.amount_capturable = 0;
        self.amount_received = 0;
    }

    /// Makes the latest charge what the status needs: the one that is there moves on; a failed one is followed by
    /// a new one.
    fn charge(&mut self, is: ChargeIs, now: Timestamp) {
        let mut charge = match self.latest_charge.take() {
            Some(charge) if charge.status != ChargeStatus::Failed => charge,
            failed_or_none => {
                self.latest_charge = failed_or_none;
                self.new_charge(now)
            }
        };
        self.attach();
        let (status, captured) = match is {
            ChargeIs::Captured => (ChargeStatus::Succeeded, true),
            ChargeIs::Authorised => (ChargeStatus::Succeeded, false),
            ChargeIs::Pending => (ChargeStatus::Pending, true),
        };
        charge.status = status;
        charge.captured = captured;
        charge.amount_captured = if captured { charge.amount } else { 0 };
        self.latest_charge = Some(charge);
    }

    fn new_charge(&mut self, now: Timestamp) -> Charge {
        let payment_method = self.attach();
        let prefix = match self.method_kind {
            MethodKind::Card => "ch",
            MethodKind::UsBankAccount | MethodKind::SepaDebit => "py",
        };
        // A later attempt gets another id: the first is `…1`, the next `…2`.
        let attempt = match &self.latest_charge {
            Some(last) => last.id.rsplit('q').next().and_then(|n| n.parse::<u32>().ok()).unwrap_or(0) + 1,
            None => 1,
        };
        Charge {
            id: format!("{prefix}_3{}q{attempt}", tail(&self.id)),
            created: now.unix_timestamp(),
            status: ChargeStatus::Pending,
            captured: false,
            amount: self.amount,
            amount_captured: 0,
            amount_refunded: 0,
            disputed: false,
            payment_method,
            kind: self.method_kind,
            failure: None,
        }
    }
}

/// The part of an id that its relatives share, as Stripe's do.
fn tail(id: &str) -> &str {
    id.strip_prefix("pi_").unwrap_or(id)
}
