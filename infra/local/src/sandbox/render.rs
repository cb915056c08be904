//! The JSON of PaymentIntents and charges, as API version 2026-10-28 writes it: `id` and `object` first, then the
//! rest by name, with null where there is nothing.

use std::collections::BTreeMap;

use reconciler::domain::external::ExternalStatus;
use serde::Serialize;
use serde_json::{Value, json};

use super::attempt::{Charge, ChargeStatus, MethodKind, PaymentError};
use super::error::doc_url;
use super::intent::PaymentIntent;

/// A page as Stripe wraps it.
#[derive(Serialize)]
pub(super) struct ListJson<'a> {
    pub(super) object: &'static str,
    pub(super) data: Vec<IntentJson<'a>>,
    pub(super) has_more: bool,
    pub(super) url: &'static str,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct AmountDetails {
    tip: Empty,
}

#[derive(Serialize)]
struct AutomaticPaymentMethods {
    allow_redirects: &'static str,
    enabled: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum LatestCharge<'a> {
    Id(&'a str),
    Object(Box<ChargeJson<'a>>),
}

#[derive(Serialize)]
pub(super) struct IntentJson<'a> {
    id: &'a str,
    object: &'static str,
    amount: i64,
    amount_capturable: i64,
    amount_details: AmountDetails,
    amount_received: i64,
    application: (),
    application_fee_amount: (),
    automatic_payment_methods: AutomaticPaymentMethods,
    canceled_at: Option<i64>,
    cancellation_reason: Option<&'a str>,
    capture_method: &'static str,
    client_secret: String,
    confirmation_method: &'static str,
    created: i64,
    currency: &'a str,
    customer: Option<&'a str>,
    customer_account: Option<&'a str>,
    description: Option<&'a str>,
    excluded_payment_method_types: (),
    last_payment_error: Option<Value>,
    latest_charge: Option<LatestCharge<'a>>,
    livemode: bool,
    metadata: &'a BTreeMap<String, String>,
    next_action: Option<Value>,
    on_behalf_of: (),
    payment_method: Option<&'a str>,
    payment_method_configuration_details: (),
    payment_method_options: Empty,
    payment_method_types: [&'static str; 1],
    processing: (),
    receipt_email: (),
    review: (),
    setup_future_usage: (),
    shipping: (),
    source: (),
    statement_descriptor: (),
    statement_descriptor_suffix: (),
    status: &'a str,
    transfer_data: (),
    transfer_group: (),
}

pub(super) fn intent(intent: &PaymentIntent, expand_charge: bool) -> IntentJson<'_> {
    let latest_charge = intent.latest_charge.as_ref().map(|latest| {
        if expand_charge {
            LatestCharge::Object(Box::new(charge(intent, latest)))
        } else {
            LatestCharge::Id(&latest.id)
        }
    });
    IntentJson {
        id: &intent.id,
        object: "payment_intent",
        amount: intent.amount,
        amount_capturable: intent.amount_capturable,
        amount_details: AmountDetails { tip: Empty {} },
        amount_received: intent.amount_received,
        application: (),
        application_fee_amount: (),
        automatic_payment_methods: AutomaticPaymentMethods { allow_redirects: "always", enabled: true },
        canceled_at: intent.canceled_at,
        cancellation_reason: intent.cancellation_reason.as_deref(),
        capture_method: intent.capture_method.as_str(),
        client_secret: format!("{}_secret_{:08x}sandbox", intent.id, intent.created),
        confirmation_method: "automatic",
        created: intent.created,
        currency: &intent.currency,
        customer: intent.customer.as_deref(),
        customer_account: intent.customer_account.as_deref(),
        description: intent.description.as_deref(),
        excluded_payment_method_types: (),
        last_payment_error: intent.last_payment_error.as_ref().map(|error| last_payment_error(intent, error)),
        latest_charge,
        livemode: intent.livemode,
        metadata: &intent.metadata,
        next_action: (intent.status == ExternalStatus::RequiresAction)
            .then(|| json!({"type": "use_stripe_sdk", "use_stripe_sdk": {"type": "three_d_secure_redirect"}})),
        on_behalf_of: (),
        payment_method: intent.payment_method.as_deref(),
        payment_method_configuration_details: (),
        payment_method_options: Empty {},
        payment_method_types: [intent.method_kind.as_str()],
        processing: (),
        receipt_email: (),
        review: (),
        setup_future_usage: (),
        shipping: (),
        source: (),
        statement_descriptor: (),
        statement_descriptor_suffix: (),
        status: intent.status.as_str(),
        transfer_data: (),
        transfer_group: (),
    }
}

/// The failed attempt, with the payment method as an object, which is no longer attached.
fn last_payment_error(intent: &PaymentIntent, error: &PaymentError) -> Value {
    let mut json = json!({
        "code": error.decline.code(),
        "doc_url": doc_url(error.decline.code()),
        "message": error.decline.message(),
        "payment_method": payment_method(intent, &error.payment_method, error.kind),
        "type": error_type(error),
    });
    if let (Some(object), Some(code)) = (json.as_object_mut(), error.decline.decline_code()) {
        object.insert("decline_code".to_owned(), json!(code));
    }
    if let (Some(object), Some(charge)) = (json.as_object_mut(), &error.charge) {
        object.insert("charge".to_owned(), json!(charge));
    }
    json
}

/// A card that the bank refused is a `card_error`; failed 3-D Secure is not.
fn error_type(error: &PaymentError) -> &'static str {
    if error.decline.decline_code().is_some() { "card_error" } else { "invalid_request_error" }
}

pub(super) fn payment_method(intent: &PaymentIntent, id: &str, kind: MethodKind) -> Value {
    json!({
        "id": id,
        "object": "payment_method",
        "billing_details": {"address": null, "email": null, "name": null, "phone": null},
        "created": intent.created,
        "customer": intent.customer,
        "livemode": intent.livemode,
        "metadata": {},
        "type": kind.as_str(),
        kind.as_str(): method_details(kind),
    })
}

fn method_details(kind: MethodKind) -> Value {
    match kind {
        MethodKind::Card => json!({"brand": "visa", "country": "US", "exp_month": 12, "exp_year": 2034,
            "funding": "credit", "last4": "4242"}),
        MethodKind::UsBankAccount => {
            json!({"account_type": "checking", "bank_name": "STRIPE TEST BANK", "last4": "6789"})
        }
        MethodKind::SepaDebit => json!({"bank_code": "37040044", "country": "DE", "last4": "3000"}),
    }
}

#[derive(Serialize)]
struct ChargeJson<'a> {
    id: &'a str,
    object: &'static str,
    amount: i64,
    amount_captured: i64,
    amount_refunded: i64,
    application: (),
    application_fee: (),
    application_fee_amount: (),
    balance_transaction: Option<String>,
    billing_details: Empty,
    calculated_statement_descriptor: Option<&'static str>,
    captured: bool,
    created: i64,
    currency: &'a str,
    customer: Option<&'a str>,
    description: Option<&'a str>,
    disputed: bool,
    failure_balance_transaction: (),
    failure_code: Option<&'a str>,
    failure_message: Option<&'static str>,
    fraud_details: Empty,
    livemode: bool,
    metadata: &'a BTreeMap<String, String>,
    on_behalf_of: (),
    outcome: Value,
    paid: bool,
    payment_intent: &'a str,
    payment_method: &'a str,
    payment_method_details: Value,
    receipt_email: (),
    receipt_number: (),
    receipt_url: (),
    refunded: bool,
    review: (),
    shipping: (),
    source: (),
    source_transfer: (),
    statement_descriptor: (),
    statement_descriptor_suffix: (),
    status: &'static str,
    transfer_data: (),
    transfer_group: (),
}

fn charge<'a>(intent: &'a PaymentIntent, charge: &'a Charge) -> ChargeJson<'a> {
    let status = match charge.status {
        ChargeStatus::Failed => "failed",
        ChargeStatus::Pending => "pending",
        ChargeStatus::Succeeded => "succeeded",
    };
    let paid = charge.status == ChargeStatus::Succeeded;
    let outcome = match &charge.failure {
        Some(decline) => json!({"network_status": "declined_by_network", "reason": decline.decline_code(),
            "seller_message": "The bank did not return any further details with this decline.",
            "type": "issuer_declined"}),
        None => json!({"network_status": "approved_by_network", "reason": null, "risk_level": "normal",
            "seller_message": "Payment complete.", "type": "authorized"}),
    };
    ChargeJson {
        id: &charge.id,
        object: "charge",
        amount: charge.amount,
        amount_captured: charge.amount_captured,
        amount_refunded: charge.amount_refunded,
        application: (),
        application_fee: (),
        application_fee_amount: (),
        balance_transaction: (paid && charge.captured)
            .then(|| format!("txn_{}", charge.id.get(3..).unwrap_or_default())),
        billing_details: Empty {},
        calculated_statement_descriptor: paid.then_some("SANDBOX"),
        captured: charge.captured,
        created: charge.created,
        currency: &intent.currency,
        customer: intent.customer.as_deref(),
        description: intent.description.as_deref(),
        disputed: charge.disputed,
        failure_balance_transaction: (),
        failure_code: charge.failure.as_ref().map(|decline| decline.code()),
        failure_message: charge.failure.as_ref().map(|decline| decline.message()),
        fraud_details: Empty {},
        livemode: intent.livemode,
        metadata: &intent.metadata,
        on_behalf_of: (),
        outcome,
        paid,
        payment_intent: &intent.id,
        payment_method: &charge.payment_method,
        payment_method_details: json!({"type": charge.kind.as_str(), charge.kind.as_str(): method_details(charge.kind)}),
        receipt_email: (),
        receipt_number: (),
        receipt_url: (),
        refunded: charge.amount_refunded >= charge.amount,
        review: (),
        shipping: (),
        source: (),
        source_transfer: (),
        statement_descriptor: (),
        statement_descriptor_suffix: (),
        status,
        transfer_data: (),
        transfer_group: (),
    }
}
