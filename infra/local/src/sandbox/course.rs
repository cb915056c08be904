//! How a confirmation goes, and what Stripe says when it does not.

use reconciler::domain::Timestamp;
use reconciler::domain::external::ExternalStatus;
use serde_json::json;

use super::attempt::{Decline, MethodKind};
use super::error::{ApiError, Kind};
use super::intent::{CaptureMethod, PaymentIntent};
use super::render;

/// How a confirmation goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Course {
    Pays(MethodKind),
    Declines(&'static str),
    AsksTheCustomer,
}

impl Course {
    pub(super) fn kind(self) -> MethodKind {
        match self {
            Self::Pays(kind) => kind,
            Self::Declines(_) | Self::AsksTheCustomer => MethodKind::Card,
        }
    }
}

/// What a test payment method does; any other is 400, as Stripe has no such one.
pub(super) fn course(payment_method: &str) -> Result<Course, ApiError> {
    match payment_method {
        "pm_card_visa" | "pm_card_mastercard" | "pm_card_amex" => Ok(Course::Pays(MethodKind::Card)),
        "pm_usBankAccount" | "pm_usBankAccount_success" => Ok(Course::Pays(MethodKind::UsBankAccount)),
        "pm_sepaDebit" => Ok(Course::Pays(MethodKind::SepaDebit)),
        "pm_card_visa_chargeDeclined" | "pm_card_chargeDeclined" => Ok(Course::Declines("generic_decline")),
        "pm_card_visa_chargeDeclinedInsufficientFunds" | "pm_card_chargeDeclinedInsufficientFunds" => {
            Ok(Course::Declines("insufficient_funds"))
        }
        "pm_card_chargeDeclinedExpiredCard" => Ok(Course::Declines("expired_card")),
        "pm_card_authenticationRequired" | "pm_card_threeDSecure2Required" => Ok(Course::AsksTheCustomer),
        other => Err(ApiError::invalid(400, format!("No such PaymentMethod: '{other}'"))
            .code("resource_missing")
            .param("payment_method")),
    }
}

/// Confirms; the decline where there was one.
pub(super) fn run(intent: &mut PaymentIntent, course: Course, now: Timestamp) -> Option<Decline> {
    intent.method_kind = course.kind();
    let manual = intent.capture_method == CaptureMethod::Manual;
    match course {
        Course::Pays(MethodKind::Card) if manual => intent.move_to(ExternalStatus::RequiresCapture, now),
        Course::Pays(MethodKind::Card) => intent.move_to(ExternalStatus::Succeeded, now),
        Course::Pays(MethodKind::UsBankAccount | MethodKind::SepaDebit) => {
            intent.move_to(ExternalStatus::Processing, now);
        }
        Course::AsksTheCustomer => intent.move_to(ExternalStatus::RequiresAction, now),
        Course::Declines(code) => {
            let decline = Decline::Card(code.to_owned());
            intent.decline(decline.clone(), now);
            return Some(decline);
        }
    }
    None
}

pub(super) fn require_open(intent: &PaymentIntent, param: &str) -> Result<(), ApiError> {
    match &intent.status {
        ExternalStatus::RequiresPaymentMethod
        | ExternalStatus::RequiresConfirmation
        | ExternalStatus::RequiresAction => Ok(()),
        ExternalStatus::Processing
        | ExternalStatus::RequiresCapture
        | ExternalStatus::Canceled
        | ExternalStatus::Succeeded
        | ExternalStatus::Unknown(_) => {
            let message = format!(
                "This PaymentIntent's {param} could not be updated because it has a status of {}. You may only update \
                 the {param} of a PaymentIntent with one of the following statuses: requires_payment_method, \
                 requires_confirmation, requires_action.",
                intent.status.as_str()
            );
            Err(unexpected_state(intent, message).param(param))
        }
    }
}

pub(super) fn no_method(intent: &PaymentIntent) -> ApiError {
    let message = "You cannot confirm this PaymentIntent because it's missing a payment method. You can either update \
                   the PaymentIntent with a payment method and then confirm it again, or confirm it again directly \
                   with a payment method or ConfirmationToken.";
    unexpected_state(intent, message.to_owned())
}

pub(super) fn unexpected_state(intent: &PaymentIntent, message: String) -> ApiError {
    ApiError::invalid(400, message)
        .code("payment_intent_unexpected_state")
        .with("payment_intent", json!(render::intent(intent, false)))
}

/// The 402 of a declined attempt.
pub(super) fn card_error(intent: &PaymentIntent, decline: &Decline) -> ApiError {
    let mut error = ApiError::invalid(402, decline.message())
        .kind(Kind::Card)
        .code(decline.code())
        .with("payment_intent", json!(render::intent(intent, false)));
    if let Some(code) = decline.decline_code() {
        error = error.with("decline_code", json!(code));
    }
    if let Some(last) = &intent.last_payment_error {
        error = error.with("payment_method", render::payment_method(intent, &last.payment_method, last.kind));
        if let Some(charge) = &last.charge {
            error = error.with("charge", json!(charge));
        }
    }
    error
}
