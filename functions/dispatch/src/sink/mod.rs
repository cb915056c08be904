//! Where events go. The trait is small so that a laptop needs nothing but its log.

pub mod eventbridge;

use std::future::Future;
use std::time::Duration;

use reconciler::config::{ConfigError, DispatchSettings};
use serde_json::{Value, json};

use eventbridge::EventBridgeSink;

/// The most events that the dispatcher hands to a sink in one call: what EventBridge takes in one request.
///
/// No two of them are of one payment: a claim leaves the later one of two until the earlier one is out (`claim.sql`). So a sink
/// may send them in any order, and some may fail, without disturbing the order per payment.
pub const EVENTS_PER_CALL: usize = 10;

/// An event for the rest of the company.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The outbox row; the same event may come twice, and this says so.
    pub id: i64,
    /// `PaymentCaptured`, `PaymentFailed` or `PaymentCompensationRequired`.
    pub name: String,
    /// What happened, as a JSON object.
    pub detail: Value,
}

impl Event {
    /// The detail as it is sent: with `event_id`, the outbox row's id as text, by which a consumer knows an event that came
    /// twice. Stripe's event id, which the webhook's events carry under that name, is sent as `stripe_event_id`.
    pub fn sent_detail(&self) -> Value {
        let mut sent = match &self.detail {
            Value::Object(detail) => detail.clone(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return json!({"event_id": self.id.to_string(), "detail": self.detail});
            }
        };
        if let Some(stripes) = sent.insert("event_id".to_owned(), Value::String(self.id.to_string())) {
            sent.insert("stripe_event_id".to_owned(), stripes);
        }
        Value::Object(sent)
    }
}

/// An event did not get out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event was not accepted: {0}")]
pub struct SinkError(pub String);

/// Takes events out of the house.
pub trait EventSink: Send + Sync {
    /// The longest that one call of [`EventSink::publish`] with at most [`EVENTS_PER_CALL`] events may take. No call begins
    /// that could outlast the lease of its rows.
    fn takes_at_most(&self) -> Duration {
        Duration::ZERO
    }

    /// Publishes events of different payments. One result for each of them, in the same order; a missing result counts as a
    /// failure. `Ok` is only what was answered for that very event.
    fn publish(&self, events: &[Event]) -> impl Future<Output = Vec<Result<(), SinkError>>> + Send;
}

/// Writes events into the log: for a laptop, and for those who route their logs.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogSink;

impl EventSink for LogSink {
    async fn publish(&self, events: &[Event]) -> Vec<Result<(), SinkError>> {
        for event in events {
            tracing::info!(id = event.id, event = %event.name, detail = %event.sent_detail(), "event");
        }
        vec![Ok(()); events.len()]
    }
}

/// The sink that the settings choose.
#[derive(Debug)]
pub enum Sink {
    /// `EVENT_BUS` is not set.
    Log(LogSink),
    /// `EVENT_BUS` names a bus.
    EventBridge(EventBridgeSink),
}

impl Sink {
    /// Reads AWS's own settings where a bus is named. Calls nothing.
    pub async fn chosen(settings: &DispatchSettings) -> Result<Self, ConfigError> {
        Ok(match &settings.event_bus {
            None => Self::Log(LogSink),
            Some(bus) => Self::EventBridge(EventBridgeSink::from_environment(bus).await?),
        })
    }
}

impl EventSink for Sink {
    fn takes_at_most(&self) -> Duration {
        match self {
            Self::Log(sink) => sink.takes_at_most(),
            Self::EventBridge(sink) => sink.takes_at_most(),
        }
    }

    async fn publish(&self, events: &[Event]) -> Vec<Result<(), SinkError>> {
        match self {
            Self::Log(sink) => sink.publish(events).await,
            Self::EventBridge(sink) => sink.publish(events).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Result as IoResult, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Keeps what is written.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> IoResult<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> IoResult<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn the_log_has_one_line_an_event_with_all_that_a_bus_would_get() {
        let kept = Kept::default();
        let writer = kept.clone();
        let log = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone()).finish();
        let events =
            [3, 4].map(|id| Event { id, name: "PaymentFailed".to_owned(), detail: json!({"payment_id": "7"}) });
        let _here = tracing::subscriber::set_default(log);
        assert_eq!(LogSink.publish(&events).await, [Ok(()), Ok(())]);
        let lines = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[1]["id"], &lines[1]["event"]), (&json!(4), &json!("PaymentFailed")));
        let detail: Value = serde_json::from_str(lines[1]["detail"].as_str().unwrap()).unwrap();
        assert_eq!(detail, json!({"payment_id": "7", "event_id": "4"}));
    }
}
