//! What a person should see of a drift: chosen fields of both sides, never Stripe's raw object (it holds the client secret
//! and the customer's data).

use serde_json::{Map, Value, json};
use time::format_description::well_known::Rfc3339;

use crate::domain::Timestamp;
use crate::domain::external::External;
use crate::domain::payment::Payment;

/// Both sides as they were seen, and the previous observation: a drift where Stripe's side changed since we last looked is
/// the more urgent one.
pub fn evidence_of(payment: &Payment, external: Option<&External>) -> Value {
    let mut seen = Map::new();
    put(&mut seen, "local_state", payment.state.as_str());
    put(&mut seen, "external_ref", payment.reference.as_str());
    put(&mut seen, "match_key", payment.match_key.as_deref());
    put(&mut seen, "local_updated_at", written(payment.updated_at));
    if let Some(previous) = &payment.previous {
        let status = previous.external_status.as_deref();
        seen.insert("previous".to_owned(), json!({"status": status, "observed_at": written(previous.observed_at)}));
    }
    match external {
        None => {}
        Some(External::NotFound { other_mode }) => {
            put(&mut seen, "external_status", Some("not_found"));
            put(&mut seen, "other_mode", other_mode.then_some(true));
        }
        Some(External::Present(present)) => {
            put(&mut seen, "external_status", Some(present.status.as_str()));
            put(&mut seen, "amount_minor", Some(present.amount_minor));
            put(&mut seen, "amount_received_minor", Some(present.amount_received_minor));
            put(&mut seen, "currency", Some(present.currency.as_str()));
            put(&mut seen, "external_created_at", written(present.created));
            put(&mut seen, "livemode", Some(present.livemode));
            put(&mut seen, "cancellation_reason", present.cancellation_reason.as_deref());
            if let Some(decline) = &present.decline {
                let charged_at = decline.charged_at.and_then(written);
                seen.insert("decline".to_owned(), json!({"code": decline.code, "charged_at": charged_at}));
            }
        }
    }
    Value::Object(seen)
}

fn put(seen: &mut Map<String, Value>, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        seen.insert(key.to_owned(), value.into());
    }
}

/// RFC 3339; `None` for a year that it cannot write.
fn written(at: Timestamp) -> Option<String> {
    at.format(&Rfc3339).ok()
}
