//! The canonical writer, from Rust: a thin caller of `reconciliation.transition`.
//!
//! All that a transition is (the payment, its event, the finding's closing) is one SQL function, so that every caller in any
//! language gets the same one. Needs the rights of `reconciler_writer`.

use serde_json::Value;
use tokio_postgres::GenericClient;
use tokio_postgres::types::{Json, Type};

use crate::domain::Timestamp;
use crate::domain::id::PaymentId;

/// A transition of a payment because of Stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transition {
    /// Stripe took the money.
    Succeeded,
    /// Stripe canceled.
    Canceled,
    /// The last attempt was declined and nobody tried again.
    Failed,
    /// A person's: what was paid is not.
    ReversePaid,
    /// A person's: what had failed was paid after all.
    AcceptLateSuccess,
}

impl Transition {
    /// The word that `reconciliation.transition` knows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Canceled => "canceled",
            Self::Failed => "failed",
            Self::ReversePaid => "reverse_paid",
            Self::AcceptLateSuccess => "accept_late_success",
        }
    }
}

/// What came of it. Losing a race is no error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteOutcome {
    /// The payment changed, its event is in the outbox, the finding is closed.
    Written,
    /// It was so already; the finding is closed, and there is no second event.
    AlreadyWritten,
    /// The row is in another state, or points to another PaymentIntent by now. Nothing is written.
    Superseded,
}

/// The writer could not be asked, or refused.
#[derive(Debug, thiserror::Error)]
pub enum WriterError {
    /// Postgres refused the call. A person's transition without a review is one of the reasons.
    #[error("could not write the transition {transition} of payment {payment_id}")]
    Transition {
        /// Which payment.
        payment_id: String,
        /// Which transition.
        transition: &'static str,
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The function answered with a word that is none of its own.
    #[error("the canonical writer answered {answer} for payment {payment_id}")]
    Answer {
        /// Which payment.
        payment_id: String,
        /// The word.
        answer: String,
    },
}

/// A command of the outbox, claimed.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// The row.
    pub outbox_id: i64,
    /// The number of the claim.
    pub fence: i64,
    /// Which payment.
    pub payment_id: PaymentId,
    /// What is to happen.
    pub transition: Transition,
    /// A JSON object that names `external_ref`.
    pub evidence: Value,
    /// The finding that it repairs.
    pub finding_id: Option<i64>,
}

/// Carries a command out and marks it delivered: both or neither, in one statement. `None` where the claim is outdated:
/// another worker has the command, or has carried it out.
pub async fn apply_command(
    db: &impl GenericClient,
    command: &Command,
    now: Timestamp,
) -> Result<Option<WriteOutcome>, WriterError> {
    let failed = |source| WriterError::Transition {
        payment_id: command.payment_id.to_string(),
        transition: command.transition.as_str(),
        source,
    };
    let row = db
        .query_typed_opt(
            include_str!("apply_command.sql"),
            &[
                (&command.outbox_id, Type::INT8),
                (&command.fence, Type::INT8),
                (&now, Type::TIMESTAMPTZ),
                (&command.payment_id.as_str(), Type::TEXT),
                (&command.transition.as_str(), Type::TEXT),
                (&Json(&command.evidence), Type::JSONB),
                (&command.finding_id, Type::INT8),
            ],
        )
        .await
        .map_err(failed)?;
    let answer: Option<String> = row.map(|row| row.try_get(0)).transpose().map_err(failed)?;
    answer.map(|answer| outcome_of(&command.payment_id, answer)).transpose()
}

/// Asks the canonical writer, within the caller's transaction if it has one. `evidence` is a JSON object that names
/// `external_ref`, the PaymentIntent that was seen. `review_id`: the review that decided so, which a person's transition needs.
pub async fn transition(
    db: &impl GenericClient,
    payment_id: &PaymentId,
    transition: Transition,
    evidence: &Value,
    finding_id: Option<i64>,
    review_id: Option<i64>,
) -> Result<WriteOutcome, WriterError> {
    let failed = |source| WriterError::Transition {
        payment_id: payment_id.to_string(),
        transition: transition.as_str(),
        source,
    };
    let row = db
        .query_typed_one(
            include_str!("transition.sql"),
            &[
                (&payment_id.as_str(), Type::TEXT),
                (&transition.as_str(), Type::TEXT),
                (&Json(evidence), Type::JSONB),
                (&finding_id, Type::INT8),
                (&review_id, Type::INT8),
            ],
        )
        .await
        .map_err(failed)?;
    outcome_of(payment_id, row.try_get(0).map_err(failed)?)
}

fn outcome_of(payment_id: &PaymentId, answer: String) -> Result<WriteOutcome, WriterError> {
    match answer.as_str() {
        "written" => Ok(WriteOutcome::Written),
        "already_written" => Ok(WriteOutcome::AlreadyWritten),
        "superseded" => Ok(WriteOutcome::Superseded),
        _ => Err(WriterError::Answer { payment_id: payment_id.to_string(), answer }),
    }
}
