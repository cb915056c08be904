//! The inbox: an event and its transition commit together, or neither does.
//!
//! look up → transition → record → commit, in one transaction. The record comes last since it holds the outcome. Two
//! deliveries of one event at once meet in the payment's row or, at the latest, in the event's key: the second waits for the
//! first, finds the event recorded, and rolls back whatever it had done. So does a delivery that dies anywhere before the
//! commit; Stripe sends it again.
//!
//! Locks are taken in the order payment, finding, event. Nobody else takes an event's.

use std::error::Error;

use reconciler::domain::id::PaymentId;
use reconciler::writer::{Transition, WriteOutcome, WriterError, transition};
use serde_json::json;
use tokio_postgres::error::Severity;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Transaction};

use crate::event::Event;

/// What came of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was recorded before. Nothing is written.
    Duplicate,
    /// The canonical writer was asked, and answered this. Superseded is no error: the next scan judges the payment.
    Asked(WriteOutcome),
    /// No payment names the PaymentIntent. It may be on its way, or another system's; the scans will meet it.
    NoSuchPayment,
    /// More than one payment does. Which of them was paid is not for this function to say; the scans judge each.
    SeveralPayments,
    /// Events of this type change nothing.
    NoTransition,
}

impl Outcome {
    /// The word in the inbox and in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate",
            Self::Asked(WriteOutcome::Written) => "written",
            Self::Asked(WriteOutcome::AlreadyWritten) => "already_written",
            Self::Asked(WriteOutcome::Superseded) => "superseded",
            Self::NoSuchPayment => "no_such_payment",
            Self::SeveralPayments => "several_payments",
            Self::NoTransition => "no_transition",
        }
    }
}

/// The event could not be dealt with. Nothing is written, unless the connection was lost in the commit itself: then it may
/// be, and the redelivery finds out.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// The transaction could not be begun.
    #[error("could not begin the transaction of event {event_id}")]
    Begin {
        /// Which event.
        event_id: String,
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The event and its payment could not be looked up.
    #[error("could not look up event {event_id} and the payment of {external_ref}")]
    Lookup {
        /// Which event.
        event_id: String,
        /// Which PaymentIntent.
        external_ref: String,
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The transition failed.
    #[error("could not apply event {event_id}")]
    Transition {
        /// Which event.
        event_id: String,
        /// What the writer says.
        #[source]
        source: WriterError,
    },
    /// The event could not be recorded.
    #[error("could not record event {event_id}")]
    Record {
        /// Which event.
        event_id: String,
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The commit, or the rollback of a duplicate, did not succeed.
    #[error("could not end the transaction of event {event_id}")]
    End {
        /// Which event.
        event_id: String,
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
}

impl InboxError {
    /// Whether the connection is what failed, so that another one may do better. A statement that Postgres refused is not
    /// helped by that.
    pub fn is_the_connections(&self) -> bool {
        let error = match self {
            Self::Begin { source, .. }
            | Self::Lookup { source, .. }
            | Self::Record { source, .. }
            | Self::End { source, .. }
            | Self::Transition { source: WriterError::Transition { source, .. }, .. } => source,
            Self::Transition { source: WriterError::Answer { .. }, .. } => return false,
        };
        match error.as_db_error() {
            Some(refusal) => matches!(refusal.parsed_severity(), Some(Severity::Fatal | Severity::Panic)),
            None => error.is_closed() || error.source().is_some_and(|cause| cause.is::<std::io::Error>()),
        }
    }
}

/// Applies and records an event. `Ok` means that it is committed, or was before. Needs the rights of `reconciler_writer`.
pub async fn receive(db: &mut Client, event: &Event) -> Result<Outcome, InboxError> {
    let event_id = || event.id.clone();
    let within = db.transaction().await.map_err(|source| InboxError::Begin { event_id: event_id(), source })?;
    let outcome = match event.event_type.transition() {
        None => Outcome::NoTransition,
        Some(transition) => apply(&within, event, transition).await?,
    };
    let recorded = outcome != Outcome::Duplicate && record(&within, event, outcome).await?;
    if recorded {
        within.commit().await.map_err(|source| InboxError::End { event_id: event_id(), source })?;
        Ok(outcome)
    } else {
        within.rollback().await.map_err(|source| InboxError::End { event_id: event_id(), source })?;
        Ok(Outcome::Duplicate)
    }
}

async fn apply(within: &Transaction<'_>, event: &Event, asked: Transition) -> Result<Outcome, InboxError> {
    let failed = |source| InboxError::Lookup {
        event_id: event.id.clone(),
        external_ref: event.external_ref.to_string(),
        source,
    };
    let lookup = include_str!("sql/inbox_lookup.sql");
    let row = within
        .query_typed_one(lookup, &[(&event.id, Type::TEXT), (&event.external_ref.as_str(), Type::TEXT)])
        .await
        .map_err(failed)?;
    let payments: Vec<String> = row.try_get("payment_ids").map_err(failed)?;
    if row.try_get("seen").map_err(failed)? {
        return Ok(Outcome::Duplicate);
    }
    match payments.as_slice() {
        [] => Ok(Outcome::NoSuchPayment),
        [payment] => {
            let evidence = json!({
                "external_ref": event.external_ref.as_str(),
                "event_id": event.id,
                "external_status": event.external_status,
                "source": "webhook",
            });
            let written = transition(within, &PaymentId::new(payment), asked, &evidence, None, None).await;
            let failed = |source| InboxError::Transition { event_id: event.id.clone(), source };
            Ok(Outcome::Asked(written.map_err(failed)?))
        }
        [_, _, ..] => Ok(Outcome::SeveralPayments),
    }
}

async fn record(within: &Transaction<'_>, event: &Event, outcome: Outcome) -> Result<bool, InboxError> {
    let rows = within
        .execute_typed(
            include_str!("sql/inbox_insert.sql"),
            &[
                (&event.id, Type::TEXT),
                (&event.event_type.as_str(), Type::TEXT),
                (&event.external_ref.as_str(), Type::TEXT),
                (&outcome.as_str(), Type::TEXT),
            ],
        )
        .await;
    rows.map(|rows| rows == 1).map_err(|source| InboxError::Record { event_id: event.id.clone(), source })
}
