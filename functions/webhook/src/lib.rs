//! `webhook`: receives Stripe's events over a Lambda Function URL and hands them to the canonical writer.
//!
//! The answer is
//!
//! - **2xx** if and only if the event is committed, was before, or asks nothing of us (a type that is not used, the other
//!   mode's event of a connected account);
//! - **400** (413 for a body that is too long) where it is not known to be Stripe's, cannot be read, or is of the other mode.
//!   Nothing is written and the database is not asked;
//! - **5xx** where it could not be committed. Stripe sends it again for three days, and the scans meet the payment anyway.
//!
//! An event of the other mode: Stripe sends a platform's live endpoint the test events of its connected accounts too, and
//! refusing those would in the end disable the endpoint. Without a connected account it can only be a wrong setting here or
//! a wrong endpoint there, and an acknowledged event would be lost without a sign.

pub mod endpoint;
pub mod event;
pub mod http;
pub mod inbox;
pub mod metrics;
pub mod signature;

use bootstrap::database::{Database, DatabaseError};
use bootstrap::secrets::SecretError;
use reconciler::config::{ConfigError, DatabaseSettings, Lookup, WebhookSettings};
use reconciler::domain::Timestamp;
use reconciler::writer::WriteOutcome;
use serde_json::Value;

use endpoint::Endpoint;
use event::{Event, EventError, Reading};
use http::{BodyError, Request, Response};
use inbox::{InboxError, Outcome};
use signature::SignatureError;

/// The Postgres role whose rights the function runs with, whoever logs in.
pub const ROLE: &str = "reconciler_writer";

/// What is kept between two invocations.
#[derive(Debug)]
pub struct Host {
    database: Database,
    endpoint: Endpoint,
}

/// An event could not be taken for a reason of ours. The answer is 5xx.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// A setting is missing or malformed.
    #[error(transparent)]
    Settings(#[from] ConfigError),
    /// The signing secrets cannot be had.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Postgres is out of reach, or not ready.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// Postgres refused, or went away.
    #[error(transparent)]
    Inbox(#[from] InboxError),
}

/// A request that is not taken. The answer is 4xx.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("the payload is no request of a Function URL")]
    Payload(#[source] serde_json::Error),
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Signature(#[from] SignatureError),
    #[error(transparent)]
    Event(#[from] EventError),
    #[error("event {event_id} has livemode {livemode}, which STRIPE_LIVEMODE is not")]
    OtherMode { event_id: String, livemode: bool },
}

impl WebhookError {
    /// A name that does not change, for alarms.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::Settings(_) => "SettingsUnusable",
            Self::Secret(error) => error.error_type(),
            Self::Database(error) => error.error_type(),
            Self::Inbox(_) => "EventNotCommitted",
        }
    }

    /// What Stripe is told.
    pub fn response(&self) -> Response {
        match self {
            Self::Settings(_) => Response::new(500, "not set up"),
            Self::Secret(_) | Self::Database(_) | Self::Inbox(_) => Response::new(503, "not committed: send it again"),
        }
    }
}

impl Refusal {
    fn response(&self) -> Response {
        match self {
            Self::Payload(_) => Response::new(400, "no request of a Function URL"),
            Self::Body(BodyError::TooLong) => Response::new(413, "body too long"),
            Self::Body(BodyError::Base64(_)) => Response::new(400, "body not in base64"),
            Self::Signature(_) => Response::new(400, "signature refused"),
            Self::Event(_) => Response::new(400, "not an event that can be read"),
            Self::OtherMode { .. } => Response::new(400, "livemode is not the one that this endpoint is for"),
        }
    }
}

impl Host {
    /// Reads all settings and builds what is built once. Calls nothing.
    pub fn from_lookup(lookup: Lookup<'_>) -> Result<Self, WebhookError> {
        let endpoint = Endpoint::new(WebhookSettings::from_lookup(lookup)?);
        let database = Database::new(&DatabaseSettings::from_lookup(lookup)?, ROLE)?;
        Ok(Self { database, endpoint })
    }

    /// Takes one delivery.
    pub async fn take(&self, payload: Value, now: Timestamp) -> Result<Taken, WebhookError> {
        take(&self.database, &self.endpoint, payload, now).await
    }
}

/// Logs what went wrong, and says what Stripe is told.
pub fn answer_error(error: &WebhookError) -> Response {
    tracing::error!(error_type = error.error_type(), error = %bootstrap::chain(error), "the event was not taken");
    error.response()
}

/// A delivery that was dealt with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// What came of it.
    pub delivery: Delivery,
    /// What Stripe is told.
    pub response: Response,
}

/// What came of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// An event of a type that is used.
    Event(Outcome),
    /// An event of a type that is not.
    OtherType,
    /// An event of a connected account's other mode.
    OtherMode,
    /// Answered with 4xx.
    Refused,
}

/// Takes one delivery: `request` is the payload of a Function URL, `now` the time that the signature's is compared with.
pub async fn take(db: &Database, endpoint: &Endpoint, request: Value, now: Timestamp) -> Result<Taken, WebhookError> {
    match judge(endpoint, request, now).await? {
        Ok(Judged::Event(event)) => {
            let outcome = receive(db, &event).await?;
            log_outcome(&event, outcome);
            Ok(Taken { delivery: Delivery::Event(outcome), response: Response::new(200, outcome.as_str()) })
        }
        Ok(Judged::OfAnotherType { id, event_type }) => {
            tracing::info!(event = id, event_type, "an event of a type that is not used");
            Ok(Taken { delivery: Delivery::OtherType, response: Response::new(200, "type not used") })
        }
        Ok(Judged::OfAConnectedAccountsOtherMode(event)) => {
            let Event { id, livemode, account, .. } = &event;
            tracing::info!(event = id, livemode, account, "an event of a connected account's other mode");
            Ok(Taken { delivery: Delivery::OtherMode, response: Response::new(200, "other mode") })
        }
        Err(refusal) => {
            tracing::warn!(error = %bootstrap::chain(&refusal), "a delivery was refused");
            Ok(Taken { delivery: Delivery::Refused, response: refusal.response() })
        }
    }
}

enum Judged {
    Event(Event),
    OfAnotherType { id: String, event_type: String },
    OfAConnectedAccountsOtherMode(Event),
}

/// Everything that needs no database. Nothing of a body is read before its signature is known to be good.
async fn judge(endpoint: &Endpoint, request: Value, now: Timestamp) -> Result<Result<Judged, Refusal>, SecretError> {
    let (signature, body) = match read(request) {
        Ok(read) => read,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let verified = endpoint.verify(&signature, &body, now).await?;
    Ok(verified.map_err(Refusal::from).and_then(|()| judge_body(&body, endpoint.livemode)))
}

/// The signature and the bytes that it is for.
fn read(request: Value) -> Result<(String, Vec<u8>), Refusal> {
    let request: Request = serde_json::from_value(request).map_err(Refusal::Payload)?;
    Ok((request.signature(), request.raw_body()?))
}

fn judge_body(body: &[u8], livemode: bool) -> Result<Judged, Refusal> {
    match event::read(body)? {
        Reading::OfAnotherType { id, event_type } => Ok(Judged::OfAnotherType { id, event_type }),
        Reading::Event(event) if event.livemode == livemode => Ok(Judged::Event(event)),
        Reading::Event(event) if event.account.is_some() => Ok(Judged::OfAConnectedAccountsOtherMode(event)),
        Reading::Event(event) => Err(Refusal::OtherMode { event_id: event.id, livemode: event.livemode }),
    }
}

/// Lambda freezes the process between two events, so a kept connection may be gone without our knowing: that is tried once
/// more, over a new one. If it was lost in the commit itself, the second try finds the event recorded.
async fn receive(db: &Database, event: &Event) -> Result<Outcome, WebhookError> {
    let mut session = db.exclusive_session().await?;
    match inbox::receive(&mut session.client, event).await {
        Err(error) if error.is_the_connections() => {
            tracing::warn!(error = %bootstrap::chain(&error), "the connection was gone; trying a new one");
            drop(session);
            let mut session = db.new_exclusive_session().await?;
            Ok(inbox::receive(&mut session.client, event).await?)
        }
        ended => Ok(ended?),
    }
}

/// One line an event.
fn log_outcome(event: &Event, outcome: Outcome) {
    let Event { id, event_type, external_ref, .. } = event;
    let (event_type, external_ref, outcome_word) = (event_type.as_str(), external_ref.as_str(), outcome.as_str());
    match outcome {
        Outcome::Asked(WriteOutcome::Written | WriteOutcome::AlreadyWritten)
        | Outcome::Duplicate
        | Outcome::NoSuchPayment
        | Outcome::NoTransition => {
            tracing::info!(event = id, event_type, external_ref, outcome = outcome_word, "event received");
        }
        Outcome::Asked(WriteOutcome::Superseded) | Outcome::SeveralPayments => {
            tracing::warn!(event = id, event_type, external_ref, outcome = outcome_word, "event received, not applied");
        }
    }
}
