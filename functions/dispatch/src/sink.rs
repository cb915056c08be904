//! Where events go. The trait is small so that a laptop needs nothing but its log.

use std::future::Future;

use serde_json::Value;

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

/// An event did not get out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event was not accepted: {0}")]
pub struct SinkError(pub String);

/// Takes events out of the house.
pub trait EventSink: Send + Sync {
    /// Publishes events in order. One result for each of them, in the same order; a missing result counts as a failure.
    fn publish(&self, events: &[Event]) -> impl Future<Output = Vec<Result<(), SinkError>>> + Send;
}

/// Writes events into the log: for a laptop, and for those who route their logs.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogSink;

impl EventSink for LogSink {
    async fn publish(&self, events: &[Event]) -> Vec<Result<(), SinkError>> {
        for event in events {
            tracing::info!(id = event.id, event = %event.name, detail = %event.detail, "event");
        }
        vec![Ok(()); events.len()]
    }
}
