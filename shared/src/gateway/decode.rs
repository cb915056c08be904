//! The pure decoder: HTTP status, headers and body → a fact or an error.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::intent::{Member, decode_id, decode_intent, expect_object, object, required};
use super::redact::scrub;
use super::{
    Call, Exchange, Flaw, GatewayError, ListPage, ListQuery, RateLimitReason, TransientCause, UnreadableObject,
};
use crate::domain::external::External;
use crate::domain::id::ExternalRef;

const REQUEST_ID: &str = "request-id";
const RATE_LIMITED_REASON: &str = "stripe-rate-limited-reason";

/// The longest `Retry-After` that is honoured: a strange header must not stop the walk for days.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// A complete HTTP answer.
#[derive(Clone, Copy)]
pub struct Answer<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The body.
    pub body: &'a [u8],
}

/// `{"error": {…}}`; empty where the body is something else.
#[derive(Default, Deserialize)]
struct StripeError {
    code: Option<String>,
    message: Option<String>,
    param: Option<String>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    error: Member<'a>,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    object: Member<'a>,
    data: Member<'a>,
    has_more: Member<'a>,
}

/// Reads the answer to `GET /v1/payment_intents/{id}`.
pub fn decode_retrieve(id: &ExternalRef, answer: Answer<'_>) -> Result<External, GatewayError> {
    let call = Call::Retrieve(id.clone());
    match answer.status {
        200 => {
            let payment = text(answer.body).and_then(decode_intent);
            match payment {
                Ok(payment) if payment.id == *id => Ok(External::Present(payment)),
                Ok(_) => Err(unreadable(Flaw::OtherId, call, answer)),
                Err(flaw) => Err(unreadable(flaw, call, answer)),
            }
        }
        404 => {
            let error = stripe_error(answer.body);
            let message = error.message.as_deref().unwrap_or_default();
            let about_it = error.code.as_deref() == Some("resource_missing")
                && error.param.as_deref() == Some("intent")
                && !names_another(message, id);
            if about_it {
                Ok(External::NotFound { other_mode: says_other_mode(message) })
            } else {
                Err(refusal(call, answer))
            }
        }
        _ => Err(refusal(call, answer)),
    }
}

/// Reads the answer to `GET /v1/payment_intents`.
pub fn decode_list(query: &ListQuery, answer: Answer<'_>) -> Result<ListPage, GatewayError> {
    let call = Call::List { starting_after: query.starting_after.clone() };
    if answer.status != 200 {
        return Err(refusal(call, answer));
    }
    let (objects, has_more) = match text(answer.body).and_then(page) {
        Ok(page) => page,
        Err(flaw) => return Err(unreadable(flaw, call, answer)),
    };
    let mut payments = Vec::with_capacity(objects.len());
    let mut unreadable_objects = Vec::new();
    for json in &objects {
        match decode_intent(json.get()) {
            Ok(payment) => payments.push(payment),
            Err(flaw) => unreadable_objects.push(UnreadableObject { id: decode_id(json.get()), flaw }),
        }
    }
    let next = match objects.last().map(|last| decode_id(last.get())) {
        _ if !has_more => None,
        Some(Some(last)) if query.starting_after.as_ref() != Some(&last) => Some(last),
        // without the last object's id there is no way to the next page
        Some(None) => return Err(unreadable(Flaw::WrongKind("id"), call, answer)),
        Some(Some(_)) | None => return Err(GatewayError::EndlessPage { exchange: exchange(call, answer) }),
    };
    Ok(ListPage { payments, unreadable: unreadable_objects, next })
}

fn page(json: &str) -> Result<(Vec<&RawValue>, bool), Flaw> {
    let page: Page<'_> = object(json)?;
    expect_object(page.object, "list")?;
    Ok((required("data", page.data)?, required("has_more", page.has_more)?))
}

/// Whether status and headers say what to do whatever the body is, even where it broke off.
pub(super) fn head_is_enough(status: u16) -> bool {
    matches!(status, 401 | 403 | 409 | 429 | 500..=599)
}

/// The error of an answer that is no fact.
pub(super) fn refusal(call: Call, answer: Answer<'_>) -> GatewayError {
    let error = stripe_error(answer.body);
    let code = error.code.as_deref();
    let retry_after = retry_after(answer.headers);
    match answer.status {
        401 | 403 => GatewayError::Unauthorized { exchange: exchange(call, answer) },
        429 => {
            let reason = match header(answer.headers, RATE_LIMITED_REASON) {
                Some(text) => Some(RateLimitReason::from_header(&text)),
                // Not the documented sign, but nothing else has this code, and to press on would cost the checkout.
                None if code == Some("rate_limit") => Some(RateLimitReason::Unstated),
                None => None,
            };
            let exchange = exchange(call, answer);
            match reason {
                Some(reason) => GatewayError::RateLimited { reason, retry_after, exchange },
                None => GatewayError::Transient { cause: TransientCause::Refused, retry_after, exchange, source: None },
            }
        }
        409 | 500..=599 => GatewayError::Transient {
            cause: TransientCause::Refused,
            retry_after,
            exchange: exchange(call, answer),
            source: None,
        },
        400 if code == Some("resource_missing")
            && error.param.as_deref() == Some("starting_after")
            // only for a cursor that was sent: to restart for any other reason could go on for ever
            && matches!(call, Call::List { starting_after: Some(_) }) =>
        {
            GatewayError::PageCursorInvalid { exchange: exchange(call, answer) }
        }
        404 => unreadable(Flaw::OtherNotFound, call, answer),
        _ => unreadable(Flaw::Status, call, answer),
    }
}

/// The error of an answer that cannot be understood.
pub(super) fn unreadable(flaw: Flaw, call: Call, answer: Answer<'_>) -> GatewayError {
    GatewayError::Unreadable { flaw, exchange: exchange(call, answer) }
}

/// The call and what came back, fit for a log.
pub(super) fn exchange(call: Call, answer: Answer<'_>) -> Box<Exchange> {
    let error = stripe_error(answer.body);
    Box::new(Exchange {
        call,
        http_status: Some(answer.status),
        request_id: header(answer.headers, REQUEST_ID),
        code: error.code.as_deref().map(scrub),
        message: error.message.as_deref().map(scrub),
    })
}

fn text(body: &[u8]) -> Result<&str, Flaw> {
    std::str::from_utf8(body).ok().ok_or(Flaw::NotJson)
}

fn stripe_error(body: &[u8]) -> StripeError {
    let error = text(body)
        .and_then(object::<Envelope<'_>>)
        .and_then(|envelope| envelope.error.map_or_else(|| Ok(StripeError::default()), |error| object(error.get())));
    // a proxy's page, say: then status and headers are all there is
    error.unwrap_or_default()
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| scrub(&String::from_utf8_lossy(value.as_bytes())))
}

/// `Retry-After` in seconds. Its other form, a date, would need a clock.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

/// "…; a similar object exists in live mode, but a test mode key was used to make this request.", or the reverse.
fn says_other_mode(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["live", "test"].iter().any(|mode| message.contains(&format!("a similar object exists in {mode} mode")))
}

/// Whether a message speaks of a PaymentIntent that was not asked for: then answers got mixed up on the way.
fn names_another(message: &str, id: &ExternalRef) -> bool {
    message
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter_map(ExternalRef::parse)
        .any(|named| named != *id)
}

#[cfg(test)]
mod tests;
