//! A PaymentIntent as JSON → [`ExternalPayment`].
//!
//! Every member is kept as raw text first, so that an error can name the member without showing any value (a value may be
//! a client secret or a customer's name), and so that one bad object spoils no page.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::Flaw;
use crate::domain::Timestamp;
use crate::domain::external::{Decline, ExternalPayment, ExternalStatus};
use crate::domain::id::ExternalRef;

/// A member of an object: `None` where it is missing or null.
pub(super) type Member<'a> = Option<&'a RawValue>;

#[derive(Deserialize)]
struct Intent<'a> {
    #[serde(borrow)]
    id: Member<'a>,
    object: Member<'a>,
    status: Member<'a>,
    amount: Member<'a>,
    amount_received: Member<'a>,
    currency: Member<'a>,
    created: Member<'a>,
    livemode: Member<'a>,
    metadata: Member<'a>,
    last_payment_error: Member<'a>,
    latest_charge: Member<'a>,
    cancellation_reason: Member<'a>,
}

#[derive(Deserialize)]
struct Identified<'a> {
    #[serde(borrow)]
    id: Member<'a>,
}

#[derive(Deserialize)]
struct PaymentError {
    code: Option<String>,
    decline_code: Option<String>,
}

#[derive(Deserialize)]
struct Charge {
    status: Option<String>,
    created: Option<i64>,
}

/// Reads one PaymentIntent, whichever it is.
pub(super) fn decode_intent(json: &str) -> Result<ExternalPayment, Flaw> {
    let intent: Intent<'_> = object(json)?;
    expect_object(intent.object, "payment_intent")?;
    let id: String = required("id", intent.id)?;
    let status: String = required("status", intent.status)?;
    let created: i64 = required("created", intent.created)?;
    let metadata: Option<BTreeMap<String, String>> = optional("metadata", intent.metadata)?;
    Ok(ExternalPayment {
        id: ExternalRef::parse(&id).ok_or(Flaw::WrongKind("id"))?,
        status: ExternalStatus::from_stripe(&storable(status)),
        amount_minor: required("amount", intent.amount)?,
        // left out means what Stripe says before a capture
        amount_received_minor: optional("amount_received", intent.amount_received)?.unwrap_or(0),
        currency: storable(required("currency", intent.currency)?),
        created: Timestamp::from_unix_timestamp(created).ok().ok_or(Flaw::WrongKind("created"))?,
        livemode: required("livemode", intent.livemode)?,
        metadata: metadata
            .unwrap_or_default()
            .into_iter()
            .map(|(key, value)| (storable(key), storable(value)))
            .collect(),
        decline: decline(intent.last_payment_error, intent.latest_charge)?,
        cancellation_reason: optional("cancellation_reason", intent.cancellation_reason)?.map(storable),
    })
}

/// The id of an object, where that much can be read.
pub(super) fn decode_id(json: &str) -> Option<ExternalRef> {
    let identified: Identified<'_> = object(json).ok()?;
    let id: String = optional("id", identified.id).ok()??;
    ExternalRef::parse(&id)
}

fn decline(last_payment_error: Member<'_>, latest_charge: Member<'_>) -> Result<Option<Decline>, Flaw> {
    let Some(error) = last_payment_error else { return Ok(None) };
    let error: PaymentError = object(error.get()).or(Err(Flaw::WrongKind("last_payment_error")))?;
    let charged_at = match latest_charge {
        None => None,
        // an id: the charge was not expanded, so nothing says when it failed
        Some(id) if id.get().starts_with('"') => None,
        Some(charge) => {
            let charge: Charge = object(charge.get()).or(Err(Flaw::WrongKind("latest_charge")))?;
            charge.created.filter(|_| charge.status.as_deref() == Some("failed"))
        }
    };
    let charged_at = charged_at.map(Timestamp::from_unix_timestamp).transpose();
    Ok(Some(Decline {
        code: error.decline_code.or(error.code).map(storable),
        charged_at: charged_at.ok().ok_or(Flaw::WrongKind("latest_charge"))?,
    }))
}

/// Reads a JSON object. serde would also take an array for a struct, element by element.
pub(super) fn object<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, Flaw> {
    let parsed = serde_json::from_str(json).map_err(|error| match error.classify() {
        Category::Syntax | Category::Eof | Category::Io => Flaw::NotJson,
        Category::Data => Flaw::NotAnObject,
    })?;
    if json.trim_ascii_start().starts_with('{') { Ok(parsed) } else { Err(Flaw::NotAnObject) }
}

/// `object`, Stripe's name for the kind of a thing, may be left out but not differ.
pub(super) fn expect_object(member: Member<'_>, expected: &str) -> Result<(), Flaw> {
    match optional::<String>("object", member)? {
        Some(kind) if kind != expected => Err(Flaw::OtherObject),
        Some(_) | None => Ok(()),
    }
}

/// A member that has to be there.
pub(super) fn required<'a, T: Deserialize<'a>>(name: &'static str, member: Member<'a>) -> Result<T, Flaw> {
    optional(name, member)?.ok_or(Flaw::Missing(name))
}

fn optional<'a, T: Deserialize<'a>>(name: &'static str, member: Member<'a>) -> Result<Option<T>, Flaw> {
    // serde's own error is dropped: it quotes the value
    member.map(|raw| serde_json::from_str(raw.get())).transpose().or(Err(Flaw::WrongKind(name)))
}

/// Postgres stores no NUL, in text or in jsonb: one such value would fail the commit of its batch again and again.
fn storable(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{FFFD}") } else { text }
}
