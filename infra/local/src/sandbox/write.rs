//! Create, update, confirm, capture and cancel.
//!
//! Only the parameters that have an effect here are taken; any other one is refused as unknown rather than
//! swallowed. A test payment method decides how a confirmation goes, by Stripe's own names.

use std::collections::BTreeMap;

use reconciler::domain::Timestamp;
use reconciler::domain::external::ExternalStatus;

use super::account::{API_VERSION, Account, Space};
use super::course::{Course, card_error, course, no_method, require_open, run, unexpected_state};
use super::error::ApiError;
use super::intent::{CaptureMethod, PaymentIntent};
use super::params::{Accepts, Params};
use super::read::{expands_charge, missing, rendered};
use super::seed::PaymentIntentSeed;
use super::webhooks::Cause;
use super::wire::Request;

const CREATE: Accepts = Accepts {
    plain: &[
        "amount",
        "automatic_payment_methods[allow_redirects]",
        "automatic_payment_methods[enabled]",
        "capture_method",
        "confirm",
        "currency",
        "customer",
        "customer_account",
        "description",
        "payment_method",
        "return_url",
    ],
    lists: &["expand"],
    maps: &["metadata"],
};
const UPDATE: Accepts = Accepts {
    plain: &["amount", "customer", "customer_account", "description", "payment_method"],
    lists: &["expand"],
    maps: &["metadata"],
};
const CONFIRM: Accepts = Accepts { plain: &["payment_method", "return_url"], lists: &["expand"], maps: &[] };
const CAPTURE: Accepts = Accepts { plain: &["amount_to_capture"], lists: &["expand"], maps: &["metadata"] };
const CANCEL: Accepts = Accepts { plain: &["cancellation_reason"], lists: &["expand"], maps: &[] };

/// Stripe takes at most eight digits for most currencies.
const AMOUNT_MAX: i64 = 99_999_999;

pub(super) fn create(
    account: &mut Account,
    request: &Request,
    space: &Space,
    now: Timestamp,
) -> Result<Vec<u8>, ApiError> {
    refuse_method_types(request)?;
    let params = Params::read(request, &CREATE)?;
    expands_charge(&params, "latest_charge")?;
    params.required("amount")?;
    let currency = currency(params.required("currency")?)?;
    let amount = amount(&params, "amount", AMOUNT_MAX)?.unwrap_or_default();
    let capture_method = match params.choice("capture_method", &CaptureMethod::WORDS)? {
        Some("automatic") => CaptureMethod::Automatic,
        Some("manual") => CaptureMethod::Manual,
        Some(_) | None => CaptureMethod::AutomaticAsync,
    };
    let course = params.text("payment_method")?.map(course).transpose()?;
    let confirm = params.boolean("confirm")?.unwrap_or(false);
    let mut metadata = BTreeMap::new();
    apply_metadata(&mut metadata, &params)?;
    let seed = PaymentIntentSeed {
        amount,
        currency,
        livemode: space.livemode,
        customer: params.text("customer")?.map(str::to_owned),
        metadata,
        capture_method,
        ..PaymentIntentSeed::new(now)
    };
    let mut intent = seed.grow(account.new_intent_id());
    intent.description = params.text("description")?.map(str::to_owned);
    intent.customer_account = params.text("customer_account")?.map(str::to_owned);
    if let Some(course) = course {
        intent.method_kind = course.kind();
        intent.move_to(ExternalStatus::RequiresConfirmation, now);
    }
    if confirm && course.is_none() {
        return Err(no_method(&intent));
    }
    let declined = match course {
        Some(course) if confirm => run(&mut intent, course, now),
        Some(_) | None => None,
    };
    let answer = match declined {
        Some(decline) => Err(card_error(&intent, &decline)),
        None => rendered(&intent, &params),
    };
    // A declined PaymentIntent exists all the same.
    account.tell(space, None, &intent, &Cause::of(account, request), now);
    account.put(space.clone(), intent);
    answer
}

pub(super) fn update(
    account: &mut Account,
    request: &Request,
    space: &Space,
    id: &str,
    now: Timestamp,
) -> Result<Vec<u8>, ApiError> {
    refuse_method_types(request)?;
    let params = Params::read(request, &UPDATE)?;
    expands_charge(&params, "latest_charge")?;
    let mut intent = find(account, space, id)?;
    if let Some(new) = amount(&params, "amount", AMOUNT_MAX)? {
        require_open(&intent, "amount")?;
        intent.amount = new;
    }
    if let Some(method) = params.text("payment_method")? {
        require_open(&intent, "payment_method")?;
        intent.method_kind = course(method)?.kind();
        intent.payment_method = None;
        intent.attach();
        intent.status = ExternalStatus::RequiresConfirmation;
    }
    apply_metadata(&mut intent.metadata, &params)?;
    for (name, field) in [
        ("customer", &mut intent.customer),
        ("customer_account", &mut intent.customer_account),
        ("description", &mut intent.description),
    ] {
        if let Some(value) = params.text(name)? {
            *field = Some(value.to_owned());
        }
    }
    store(account, request, space, &intent, &params, now)
}

pub(super) fn confirm(
    account: &mut Account,
    request: &Request,
    space: &Space,
    id: &str,
    now: Timestamp,
) -> Result<Vec<u8>, ApiError> {
    refuse_method_types(request)?;
    let params = Params::read(request, &CONFIRM)?;
    expands_charge(&params, "latest_charge")?;
    let mut intent = find(account, space, id)?;
    let given = params.text("payment_method")?.map(course).transpose()?;
    match &intent.status {
        ExternalStatus::RequiresPaymentMethod
        | ExternalStatus::RequiresConfirmation
        | ExternalStatus::RequiresAction => {}
        ExternalStatus::Succeeded => {
            let message = "You cannot confirm this PaymentIntent because it has already succeeded after being previously confirmed.";
            return Err(unexpected_state(&intent, message.to_owned()));
        }
        ExternalStatus::Processing
        | ExternalStatus::RequiresCapture
        | ExternalStatus::Canceled
        | ExternalStatus::Unknown(_) => {
            let message = format!(
                "You cannot confirm this PaymentIntent because it has a status of {}. Only a PaymentIntent with one of \
                 the following statuses may be confirmed: requires_confirmation, requires_action.",
                intent.status.as_str()
            );
            return Err(unexpected_state(&intent, message));
        }
    }
    let course = match (given, &intent.payment_method) {
        (Some(course), _) => course,
        // One that was attached before goes through.
        (None, Some(_)) => Course::Pays(intent.method_kind),
        (None, None) => return Err(no_method(&intent)),
    };
    match run(&mut intent, course, now) {
        None => store(account, request, space, &intent, &params, now),
        Some(decline) => {
            let error = card_error(&intent, &decline);
            store(account, request, space, &intent, &params, now)?;
            Err(error)
        }
    }
}

pub(super) fn capture(
    account: &mut Account,
    request: &Request,
    space: &Space,
    id: &str,
    now: Timestamp,
) -> Result<Vec<u8>, ApiError> {
    let params = Params::read(request, &CAPTURE)?;
    expands_charge(&params, "latest_charge")?;
    let mut intent = find(account, space, id)?;
    match &intent.status {
        ExternalStatus::RequiresCapture => {}
        ExternalStatus::Succeeded => {
            let message = "This PaymentIntent could not be captured because it has already been captured.";
            return Err(unexpected_state(&intent, message.to_owned()));
        }
        ExternalStatus::RequiresPaymentMethod
        | ExternalStatus::RequiresConfirmation
        | ExternalStatus::RequiresAction
        | ExternalStatus::Processing
        | ExternalStatus::Canceled
        | ExternalStatus::Unknown(_) => {
            let message = format!(
                "This PaymentIntent could not be captured because it has a status of {}. Only a PaymentIntent with one \
                 of the following statuses may be captured: requires_capture.",
                intent.status.as_str()
            );
            return Err(unexpected_state(&intent, message));
        }
    }
    let taken = amount(&params, "amount_to_capture", AMOUNT_MAX)?.unwrap_or(intent.amount_capturable);
    if taken > intent.amount_capturable {
        let message = format!(
            "You cannot capture more than the authorized amount: {taken} is more than {}.",
            intent.amount_capturable
        );
        return Err(ApiError::invalid(400, message).code("amount_too_large").param("amount_to_capture"));
    }
    apply_metadata(&mut intent.metadata, &params)?;
    intent.capture(taken, now);
    store(account, request, space, &intent, &params, now)
}

pub(super) fn cancel(
    account: &mut Account,
    request: &Request,
    space: &Space,
    id: &str,
    now: Timestamp,
) -> Result<Vec<u8>, ApiError> {
    let params = Params::read(request, &CANCEL)?;
    expands_charge(&params, "latest_charge")?;
    // The other reasons are Stripe's own to give.
    let reasons = ["duplicate", "fraudulent", "requested_by_customer", "abandoned"];
    let reason = params.choice("cancellation_reason", &reasons)?;
    let mut intent = find(account, space, id)?;
    match &intent.status {
        ExternalStatus::RequiresPaymentMethod
        | ExternalStatus::RequiresConfirmation
        | ExternalStatus::RequiresAction
        | ExternalStatus::RequiresCapture
        | ExternalStatus::Processing => {}
        ExternalStatus::Canceled | ExternalStatus::Succeeded | ExternalStatus::Unknown(_) => {
            let message = format!(
                "You cannot cancel this PaymentIntent because it has a status of {}. Only a PaymentIntent with one of \
                 the following statuses may be canceled: requires_payment_method, requires_capture, \
                 requires_confirmation, requires_action, processing.",
                intent.status.as_str()
            );
            return Err(unexpected_state(&intent, message));
        }
    }
    intent.move_to(ExternalStatus::Canceled, now);
    intent.cancellation_reason = reason.map(str::to_owned);
    store(account, request, space, &intent, &params, now)
}

/// A copy: what is refused halfway has changed nothing.
fn find(account: &Account, space: &Space, id: &str) -> Result<PaymentIntent, ApiError> {
    let intent = account.ledger(space).and_then(|ledger| ledger.get(id));
    intent.cloned().ok_or_else(|| missing(account, space, id))
}

fn store(
    account: &mut Account,
    request: &Request,
    space: &Space,
    intent: &PaymentIntent,
    params: &Params<'_>,
    now: Timestamp,
) -> Result<Vec<u8>, ApiError> {
    let answer = rendered(intent, params)?;
    let id = intent.id().to_owned();
    let Some(place) = account.intent_mut(space, &id) else { return Err(missing(account, space, &id)) };
    let before = std::mem::replace(place, intent.clone());
    account.tell(space, Some(&before), intent, &Cause::of(account, request), now);
    Ok(answer)
}

fn amount(params: &Params<'_>, name: &str, most: i64) -> Result<Option<i64>, ApiError> {
    params.integer_within(name, 1, most)
}

fn currency(text: &str) -> Result<String, ApiError> {
    if text.len() == 3 && text.bytes().all(|b| b.is_ascii_alphabetic()) {
        return Ok(text.to_ascii_lowercase());
    }
    Err(ApiError::invalid(400, format!("Invalid currency: {text}.")).param("currency"))
}

/// Since 2026-09-30 the parameter is gone, with a code of its own.
fn refuse_method_types(request: &Request) -> Result<(), ApiError> {
    let sent = request.query.iter().chain(&request.form).any(|(name, _)| name.starts_with("payment_method_types"));
    let version = request.header_value("Stripe-Version").unwrap_or(API_VERSION);
    if !sent || version < "2026-09-30" {
        return Ok(());
    }
    let message = "The payment_method_types parameter is no longer supported. Use dynamic payment methods instead.";
    Err(ApiError::invalid(400, message).code("payment_method_types_no_longer_supported").param("payment_method_types"))
}

fn apply_metadata(metadata: &mut BTreeMap<String, String>, params: &Params<'_>) -> Result<(), ApiError> {
    if params.contains("metadata") {
        metadata.clear();
    }
    for (key, value) in params.entries("metadata") {
        let refuse = |message: String| Err(ApiError::invalid(400, message).param(&format!("metadata[{key}]")));
        if value.is_empty() {
            metadata.remove(key);
        } else if key.chars().count() > 40 {
            return refuse(format!("Metadata keys can have up to 40 characters, but you passed in '{key}'."));
        } else if value.chars().count() > 500 {
            let length = value.chars().count();
            return refuse(format!(
                "Metadata values can have up to 500 characters, but you passed in a value that is {length} characters. \
                 Invalid value: {value}"
            ));
        } else {
            metadata.insert(key.to_owned(), value.to_owned());
        }
    }
    if metadata.len() > 50 {
        return Err(ApiError::invalid(400, "Metadata can have up to 50 keys.").param("metadata"));
    }
    Ok(())
}
