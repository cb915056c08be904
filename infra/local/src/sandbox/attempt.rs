//! One attempt to move the money: how it is paid, the charge, and why it failed.

use serde::{Deserialize, Serialize};

/// How it is paid; only what decides the course of a payment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MethodKind {
    /// A card: the answer comes at once.
    #[default]
    Card,
    /// ACH: `processing` for some days.
    UsBankAccount,
    /// SEPA debit: `processing` for up to two weeks.
    SepaDebit,
}

impl MethodKind {
    /// Stripe's word.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::UsBankAccount => "us_bank_account",
            Self::SepaDebit => "sepa_debit",
        }
    }
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decline {
    /// The bank said no, with this `decline_code`; leaves a failed charge.
    Card(String),
    /// The customer failed 3-D Secure: no charge was made.
    Authentication,
}

impl Decline {
    /// `code`
    pub(super) fn code(&self) -> &str {
        match self {
            Self::Card(code) => match code.as_str() {
                "expired_card" | "incorrect_cvc" | "incorrect_number" | "processing_error" => code,
                _ => "card_declined",
            },
            Self::Authentication => "payment_intent_authentication_failure",
        }
    }

    /// `decline_code`
    pub(super) fn decline_code(&self) -> Option<&str> {
        match self {
            Self::Card(code) => Some(code),
            Self::Authentication => None,
        }
    }

    /// `message`
    pub(super) fn message(&self) -> &'static str {
        match self {
            Self::Card(code) => match code.as_str() {
                "insufficient_funds" => "Your card has insufficient funds.",
                "expired_card" => "Your card has expired.",
                "incorrect_cvc" => "Your card's security code is incorrect.",
                "processing_error" => "An error occurred while processing your card. Try again in a little bit.",
                _ => "Your card was declined.",
            },
            Self::Authentication => {
                "The provided PaymentMethod has failed authentication. You can provide payment_method_data or a new \
                 PaymentMethod to attempt to fulfill this PaymentIntent again."
            }
        }
    }
}

/// `last_payment_error`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentError {
    /// Why.
    pub decline: Decline,
    /// The failed charge, where one was made.
    pub charge: Option<String>,
    /// The payment method that was tried.
    pub payment_method: String,
    /// Its kind.
    pub kind: MethodKind,
}

/// A charge's `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargeStatus {
    /// The bank said no.
    Failed,
    /// With the bank.
    Pending,
    /// Authorised or taken.
    Succeeded,
}

/// The latest attempt to move the money.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// `ch_…`, or `py_…` for a bank debit.
    pub id: String,
    /// Unix seconds.
    pub created: i64,
    /// Where it stands.
    pub status: ChargeStatus,
    /// Whether the money was taken, and not only authorised.
    pub captured: bool,
    /// Minor unit.
    pub amount: i64,
    /// Minor unit.
    pub amount_captured: i64,
    /// Minor unit.
    pub amount_refunded: i64,
    /// Whether the customer has complained to the bank.
    pub disputed: bool,
    /// The payment method that was charged.
    pub payment_method: String,
    /// Its kind.
    pub kind: MethodKind,
    /// Present where it failed.
    pub failure: Option<Decline>,
}
