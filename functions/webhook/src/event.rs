//! The few fields of an event that are needed, read leniently: an event is rendered at the API version of its endpoint, so
//! any other field may be there, be missing or have any form. `data` is looked into only where the type is one of ours.
//!
//! The raw object holds the PaymentIntent's `client_secret`: it is neither kept nor logged.

use reconciler::domain::id::{EXTERNAL_REF_MAX_LEN, ExternalRef};
use reconciler::writer::Transition;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The types of event that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Stripe took the money.
    Succeeded,
    /// The PaymentIntent is canceled.
    Canceled,
    /// An attempt was declined. That is no end: the customer may try again in the same form.
    PaymentFailed,
    /// The outcome takes its time (bank debits).
    Processing,
}

impl EventType {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Succeeded, Self::Canceled, Self::PaymentFailed, Self::Processing];

    /// The type as Stripe writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "payment_intent.succeeded",
            Self::Canceled => "payment_intent.canceled",
            Self::PaymentFailed => "payment_intent.payment_failed",
            Self::Processing => "payment_intent.processing",
        }
    }

    /// What the canonical writer is asked for. Only the two ends of a PaymentIntent, which nothing follows, ask for
    /// anything; so the order in which events come does not matter.
    pub fn transition(self) -> Option<Transition> {
        match self {
            Self::Succeeded => Some(Transition::Succeeded),
            Self::Canceled => Some(Transition::Canceled),
            Self::PaymentFailed | Self::Processing => None,
        }
    }
}

/// An event of a type that is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `evt_…`, the same in every redelivery.
    pub id: String,
    /// What happened.
    pub event_type: EventType,
    /// Of the live mode or a test.
    pub livemode: bool,
    /// The connected account that it happened in, where the endpoint listens to those.
    pub account: Option<String>,
    /// The PaymentIntent that it is about.
    pub external_ref: ExternalRef,
    /// The PaymentIntent's status when the event was made.
    pub external_status: Option<String>,
}

/// What a body says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// An event to record.
    Event(Event),
    /// One of a type that is not used here.
    OfAnotherType {
        /// `evt_…`.
        id: String,
        /// The type as Stripe writes it.
        event_type: String,
    },
}

/// A signed body that is no event, or not one of its type.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// Not UTF-8, not JSON, or without the fields that every event has.
    #[error("the body is no event")]
    Envelope(#[source] serde_json::Error),
    /// The object is not a PaymentIntent.
    #[error("the object of event {id} is no PaymentIntent")]
    Object {
        /// `evt_…`.
        id: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A field is there and cannot be used.
    #[error("{field} of event {id:?} is not usable")]
    Field {
        /// `evt_…`, shortened.
        id: String,
        /// Which field.
        field: &'static str,
    },
}

#[derive(Deserialize)]
struct Envelope<'a> {
    id: String,
    r#type: String,
    livemode: Option<bool>,
    account: Option<String>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Data {
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    id: String,
    status: Option<String>,
}

/// Reads a body.
pub fn read(body: &[u8]) -> Result<Reading, EventError> {
    let Envelope { id, r#type, livemode, account, data } =
        serde_json::from_slice(body).map_err(EventError::Envelope)?;
    let Some(event_type) = EventType::ALL.into_iter().find(|known| known.as_str() == r#type) else {
        return Ok(Reading::OfAnotherType { id, event_type: r#type });
    };
    let unusable = |field| EventError::Field { id: id.chars().take(EXTERNAL_REF_MAX_LEN).collect(), field };
    if id.is_empty() || id.len() > EXTERNAL_REF_MAX_LEN || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(unusable("id"));
    }
    let livemode = livemode.ok_or_else(|| unusable("livemode"))?;
    let data = data.ok_or_else(|| unusable("data"))?;
    let Data { object: Object { id: external_ref, status } } =
        serde_json::from_str(data.get()).map_err(|source| EventError::Object { id: id.clone(), source })?;
    let external_ref = ExternalRef::parse(&external_ref).ok_or_else(|| unusable("data.object.id"))?;
    // Postgres takes every text but this one
    if status.as_ref().is_some_and(|status| status.contains('\0')) {
        return Err(unusable("data.object.status"));
    }
    Ok(Reading::Event(Event { id, event_type, livemode, account, external_ref, external_status: status }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(event_type: &str) -> String {
        format!(
            r#"{{"id":"evt_1","object":"event","api_version":"1999-01-01","type":"{event_type}","livemode":true,"new":[{{}}],
            "data":{{"object":{{"id":"pi_1","status":"odd","client_secret":"hush","charges":{{"data":[1]}}}},"previous_attributes":{{}}}},
            "request":{{"id":null}}}}"#
        )
    }

    #[test]
    fn the_needed_fields_are_read_and_others_do_not_matter() {
        for event_type in EventType::ALL {
            let expected = Event {
                id: "evt_1".into(),
                event_type,
                livemode: true,
                account: None,
                external_ref: ExternalRef::parse("pi_1").unwrap(),
                external_status: Some("odd".into()),
            };
            assert_eq!(read(body(event_type.as_str()).as_bytes()).unwrap(), Reading::Event(expected));
        }
        let spare = br#"{"id":"evt_1","type":"payment_intent.canceled","livemode":false,"account":"acct_1","data":{"object":{"id":"pi_1"}}}"#;
        let Reading::Event(event) = read(spare).unwrap() else { panic!("an event of ours") };
        assert_eq!((event.account.as_deref(), event.external_status, event.livemode), (Some("acct_1"), None, false));
    }

    #[test]
    fn only_the_two_ends_of_a_payment_intent_change_anything() {
        let transitions = EventType::ALL.map(EventType::transition);
        assert_eq!(transitions, [Some(Transition::Succeeded), Some(Transition::Canceled), None, None]);
    }

    #[test]
    fn of_another_type_anything_may_be_missing_or_odd() {
        for body in [
            r#"{"id":"evt_2","type":"balance.available","livemode":true,"data":{"object":{"id":null,"status":7}}}"#,
            r#"{"id":"evt_2","type":"v2.core.event","data":null}"#,
            r#"{"id":"evt_2","type":"payment_intent.created"}"#,
            r#"{"id":"evt_2","type":"payment_intent.succeeded.more","data":[]}"#,
        ] {
            let read = read(body.as_bytes()).unwrap();
            assert!(matches!(&read, Reading::OfAnotherType { id, .. } if id == "evt_2"), "{read:?}");
        }
    }

    #[test]
    fn what_is_no_event_is_an_error_that_shows_no_secret() {
        let ours = |rest: &str| format!(r#"{{"id":"evt_1","type":"payment_intent.succeeded","livemode":true{rest}}}"#);
        for body in [
            String::new(),
            "[]".into(),
            "{}".into(),
            r#"{"id":1,"type":"payment_intent.succeeded"}"#.into(),
            r#"{"id":"evt_1"}"#.into(),
            body("payment_intent.succeeded").replace("true", "1"),
            body("payment_intent.succeeded").replace("\"livemode\":true,", ""),
            body("payment_intent.succeeded").replace("evt_1", ""),
            body("payment_intent.succeeded").replace("evt_1", "evt_\\u0000"),
            body("payment_intent.succeeded").replace("evt_1", &"e".repeat(256)),
            body("payment_intent.succeeded").replace("pi_1", "ch_1"),
            body("payment_intent.succeeded").replace("pi_1", "pi_1/../x"),
            body("payment_intent.succeeded").replace("odd", "o\\u0000d"),
            ours(""),
            ours(r#","data":{}"#),
            ours(r#","data":{"object":{"id":null,"client_secret":"hush"}}"#),
            ours(r#","data":{"object":{"id":"pi_1","status":7}}"#),
            format!("{} trailing", body("payment_intent.succeeded")),
        ] {
            let error = read(body.as_bytes()).expect_err(&body);
            let text = format!("{error:?} {}", bootstrap::chain(&error));
            assert!(!text.contains("hush"), "{text}");
        }
        assert!(matches!(read(b"{\"id\":\"\xff\"}"), Err(EventError::Envelope(_))), "bad UTF-8");
    }
}
