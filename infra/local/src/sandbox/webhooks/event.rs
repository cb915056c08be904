//! What is told: which events a change makes, and their JSON.

use reconciler::domain::Timestamp;
use reconciler::domain::external::ExternalStatus;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::account::{API_VERSION, Account, made_up};
use super::super::intent::PaymentIntent;
use super::super::render;
use super::super::wire::Request;

/// The types of event that are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EventType {
    /// It was created.
    #[serde(rename = "payment_intent.created")]
    Created,
    /// A bank debit is under way.
    #[serde(rename = "payment_intent.processing")]
    Processing,
    /// The money was taken.
    #[serde(rename = "payment_intent.succeeded")]
    Succeeded,
    /// It was canceled.
    #[serde(rename = "payment_intent.canceled")]
    Canceled,
    /// An attempt failed.
    #[serde(rename = "payment_intent.payment_failed")]
    PaymentFailed,
    /// The customer has to do something.
    #[serde(rename = "payment_intent.requires_action")]
    RequiresAction,
    /// Money is authorised and can be captured.
    #[serde(rename = "payment_intent.amount_capturable_updated")]
    AmountCapturableUpdated,
}

/// An event, the same in every delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// `evt_…`
    pub id: String,
    /// What happened.
    pub event_type: EventType,
    /// To which one.
    pub payment_intent: String,
    /// When.
    #[serde(skip)]
    pub created: Timestamp,
    /// In which mode.
    pub livemode: bool,
    /// In which connected account.
    pub account: Option<String>,
    /// The JSON that is posted, to the byte. It holds the PaymentIntent as it was then.
    #[serde(skip)]
    pub body: Vec<u8>,
}

/// What caused a change; the event's `request`.
#[derive(Clone, Debug, Default, Serialize)]
pub(in super::super) struct Cause {
    /// The request's id, `req_…`; null where Stripe did it by itself.
    id: Option<String>,
    idempotency_key: Option<String>,
}

impl Cause {
    /// The request that is being handled.
    pub(in super::super) fn of(account: &Account, request: &Request) -> Self {
        let idempotency_key = request.header_value("Idempotency-Key").map(str::to_owned);
        Self { id: Some(account.this_requests_id()), idempotency_key }
    }
}

/// The id of the nth event.
pub(super) fn id(number: u64) -> String {
    format!("evt_3{}", made_up(number ^ 0xe7e7))
}

/// The events of a change, in the order in which they are made. An event is made if and only if
///
/// - `created`: there was nothing before;
/// - `processing`, `succeeded`, `canceled`, `requires_action`: the status has become that one;
/// - `amount_capturable_updated`: more can be captured than before;
/// - `payment_failed`: an attempt has ended in an error, which shows as an error that was not there before, or as one that
///   ended the customer's or the bank's turn.
pub(super) fn told(before: Option<&PaymentIntent>, after: &PaymentIntent) -> Vec<EventType> {
    let mut told = Vec::new();
    if before.is_none() {
        told.push(EventType::Created);
    }
    if before.is_none_or(|before| before.status != after.status) {
        told.extend(of_status(&after.status));
    }
    if after.amount_capturable > before.map_or(0, |before| before.amount_capturable) {
        told.push(EventType::AmountCapturableUpdated);
    }
    let ended = before.is_none_or(|before| {
        let under_way = matches!(before.status, ExternalStatus::RequiresAction | ExternalStatus::Processing);
        under_way || before.last_payment_error != after.last_payment_error
    });
    let declined = after.status == ExternalStatus::RequiresPaymentMethod && after.last_payment_error.is_some();
    if ended && declined {
        told.push(EventType::PaymentFailed);
    }
    told
}

fn of_status(status: &ExternalStatus) -> Option<EventType> {
    match status {
        ExternalStatus::Processing => Some(EventType::Processing),
        ExternalStatus::Succeeded => Some(EventType::Succeeded),
        ExternalStatus::Canceled => Some(EventType::Canceled),
        ExternalStatus::RequiresAction => Some(EventType::RequiresAction),
        ExternalStatus::RequiresPaymentMethod
        | ExternalStatus::RequiresConfirmation
        | ExternalStatus::RequiresCapture
        | ExternalStatus::Unknown(_) => None,
    }
}

/// The JSON, indented as Stripe indents it: whoever parses and writes it again has other bytes than were signed.
pub(super) fn body(event: &Event, intent: &PaymentIntent, cause: &Cause, pending_webhooks: usize) -> Vec<u8> {
    let mut json = json!({
        "id": event.id,
        "object": "event",
        "api_version": API_VERSION,
        "created": event.created.unix_timestamp(),
        "data": {"object": render::intent(intent, false)},
        "livemode": event.livemode,
        "pending_webhooks": pending_webhooks,
        "request": cause,
        "type": event.event_type,
    });
    if let (Value::Object(members), Some(account)) = (&mut json, &event.account) {
        members.insert("account".to_owned(), json!(account));
    }
    format!("{json:#}").into_bytes()
}
