//! The review desk: what moves money is decided by a person, who has an AWS console and a role, and no database client. So the
//! desk is a Lambda function.
//!
//! - `list`: what is open, the most severe first ([`list`]);
//! - `show`: one finding with its evidence, its history, and what can be decided ([`show`]);
//! - `decide`: accept, apply, retry, snooze, release ([`decide`]);
//! - `digest`: the daily summary as an event ([`digest`]);
//! - `{"describe": true}`: the documentation that CloudWatch shows of a widget.
//!
//! The answer is JSON, or a page where a dashboard asks ([`widget`], [`html`]).
//!
//! It is deployed twice: many may look ([`Desk::Reading`], with the rights of `reconciler_metrics`), few may decide
//! ([`Desk::Deciding`], `reconciler_reviewer`). Which of them one may invoke is IAM's business.
//!
//! A request that cannot be used, and a decision that does not stand, are answers and no failures: they say why, and nothing is
//! written. What is asked is read in [`request`], who asks in [`caller`].

pub mod caller;
pub mod decide;
pub mod digest;
pub mod html;
pub mod list;
pub mod metrics;
pub mod money;
pub mod request;
pub mod show;
pub mod text;
pub mod widget;

use std::borrow::Cow;

use bootstrap::database::{Database, DatabaseError};
use reconciler::config::{ConfigError, DatabaseSettings, Lookup};
use reconciler::store::{StoreError, database_time};
use reconciler::writer::WriterError;
use serde::Serialize;
use serde_json::{Value, json};
use tokio_postgres::{Client, IsolationLevel, Transaction};

use caller::{Caller, Identity};
use decide::{Decided, Recorded, Refused};
use digest::Digest;
use list::Listing;
use request::{REQUEST_MAX, Request, RequestError};
use show::Shown;

pub use reconciler::config::ReviewDesk as Desk;

/// The Postgres role whose rights a desk runs with, whoever logs in.
pub fn role_of(desk: Desk) -> &'static str {
    match desk {
        Desk::Reading => "reconciler_metrics",
        Desk::Deciding => "reconciler_reviewer",
    }
}

/// The desk that a request is for.
pub fn desk_of(request: &Request) -> Desk {
    match request {
        Request::List(_) | Request::Show { .. } => Desk::Reading,
        Request::Decide(_) | Request::Release(_) | Request::Digest => Desk::Deciding,
    }
}

/// What the desk says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Answer {
    /// A page of the list.
    Listed(Listing),
    /// One finding.
    Shown(Box<Shown>),
    /// A decision that is written.
    Recorded(Recorded),
    /// The daily summary.
    Digest(Digest),
    /// Nothing is written.
    Refused(Refused),
    /// What a dashboard shows of the widget.
    Described {
        /// In Markdown.
        markdown: &'static str,
    },
}

/// An answer as it is sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Body<'a> {
    /// For a dashboard: a page, or Markdown.
    Text(Cow<'a, str>),
    /// For everybody else.
    Json(&'a Answer),
}

/// The desk could not answer. Nothing is written.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// A setting is missing or malformed.
    #[error(transparent)]
    Settings(#[from] ConfigError),
    /// Postgres is out of reach, or not ready.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The database's time could not be read, or a batch not be released.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The canonical writer could not be asked, or refused.
    #[error(transparent)]
    Writer(#[from] WriterError),
    /// A transaction could not be begun.
    #[error("could not begin a transaction")]
    Begin {
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// A statement failed.
    #[error("could not read or write {what}")]
    Query {
        /// What it was about.
        what: &'static str,
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// A decision could not be committed. Whether it is written is to be seen by asking again.
    #[error("could not commit the decision: ask for the finding again, which says whether it is written")]
    Commit {
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// Others wrote all the time.
    #[error("finding {finding} was changed by others each time that the decision was to be written: try again")]
    Contended {
        /// Which.
        finding: i64,
    },
}

impl ReviewError {
    /// A name that does not change, for alarms and for Lambda's `errorType`.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::Settings(_) => "SettingsUnusable",
            Self::Database(error) => error.error_type(),
            Self::Store(_)
            | Self::Writer(_)
            | Self::Begin { .. }
            | Self::Query { .. }
            | Self::Commit { .. }
            | Self::Contended { .. } => "DatabaseFailed",
        }
    }
}

/// What is kept between two invocations.
#[derive(Debug)]
pub struct Host {
    database: Database,
    desk: Desk,
    decide_arn: Option<String>,
}

impl Host {
    /// Reads all settings. Calls nothing.
    pub fn from_lookup(lookup: Lookup<'_>, desk: Desk) -> Result<Self, ReviewError> {
        let database = Database::new(&DatabaseSettings::from_lookup(lookup)?, role_of(desk))?;
        let decide_arn = match desk {
            Desk::Reading => Desk::decide_arn(lookup),
            Desk::Deciding => None, // its pages have no buttons
        };
        Ok(Self { database, desk, decide_arn })
    }

    /// Which of the two it is.
    pub fn desk(&self) -> Desk {
        self.desk
    }

    /// An answer as it is to be sent to who sent `payload` to the function with this ARN.
    pub fn body<'a>(&self, answer: &'a Answer, payload: &Value, function_arn: &str) -> Body<'a> {
        match (answer, widget::page(payload)) {
            (Answer::Described { markdown }, _) => Body::Text(Cow::Borrowed(markdown)),
            (_, None) => Body::Json(answer),
            (_, Some(page)) => {
                let endpoints = html::Endpoints { this: function_arn, decide: self.decide_arn.as_deref() };
                Body::Text(html::page(answer, &page, &endpoints).into())
            }
        }
    }

    /// Answers a payload. `caller`: who an invocation says is behind it; `None` on a laptop, where it is the database's login.
    pub async fn answer(&self, payload: &Value, caller: Option<&Caller>) -> Result<Answer, ReviewError> {
        if widget::describes(payload) {
            return Ok(Answer::Described { markdown: include_str!("describe.md") });
        }
        let request = match read(payload) {
            Ok(request) => request,
            Err(error) => return Ok(refused("request_unusable", error.to_string())),
        };
        if desk_of(&request) != self.desk {
            return Ok(refused(
                "other_desk",
                match self.desk {
                    Desk::Reading => "this function lists and shows: decisions are taken by the deciding function",
                    Desk::Deciding => "this function decides: lists are given by the reading function",
                },
            ));
        }
        let mut session = self.database.exclusive_session().await?;
        let db = &mut session.client;
        let now = database_time(db).await?;
        match &request {
            Request::List(page) => {
                let within = snapshot(db).await?;
                list::list(&within, page, now).await.map(Answer::Listed)
            }
            Request::Show { finding } => {
                let within = snapshot(db).await?;
                let shown = show::show(&within, *finding, now).await?;
                Ok(shown.map_or_else(
                    || refused("no_such_finding", format!("there is no finding {finding}")),
                    |shown| Answer::Shown(Box::new(shown)),
                ))
            }
            Request::Decide(asked) => {
                let caller = known(caller, db).await?;
                decide::decide(db, asked, &caller, now).await.map(Answer::from)
            }
            Request::Release(asked) => {
                let caller = known(caller, db).await?;
                decide::release_batch(db, asked, &caller, now).await.map(Answer::from)
            }
            Request::Digest => digest::digest(db, now).await.map(Answer::Digest),
        }
    }
}

impl Answer {
    /// What a log says of it: no list and no evidence.
    pub fn summary(&self, desk: Desk) -> Value {
        let function = metrics::function(desk).name;
        match self {
            Self::Listed(listing) => {
                json!({"function": function, "outcome": "listed", "findings": listing.findings.len()})
            }
            Self::Shown(shown) => json!({"function": function, "outcome": "shown", "finding": shown.finding}),
            Self::Recorded(recorded) => json!({"function": function, "outcome": "recorded", "recorded": recorded}),
            Self::Digest(digest) => json!({"function": function, "outcome": "digest", "announced": digest.announced}),
            Self::Refused(refused) => json!({"function": function, "outcome": "refused", "reason": refused.reason}),
            Self::Described { .. } => json!({"function": function, "outcome": "described"}),
        }
    }
}

impl From<Decided> for Answer {
    fn from(decided: Decided) -> Self {
        match decided {
            Decided::Recorded(recorded) => Self::Recorded(recorded),
            Decided::Refused(refused) => Self::Refused(refused),
        }
    }
}

/// Reads a payload of no more than [`REQUEST_MAX`] bytes.
pub fn read(payload: &Value) -> Result<Request, RequestError> {
    let length = payload.to_string().len();
    if length > REQUEST_MAX {
        return Err(RequestError(format!("the request has {length} bytes; it may have {REQUEST_MAX}")));
    }
    Request::parse(&widget::request(payload)?)
}

fn refused(reason: &'static str, message: impl Into<String>) -> Answer {
    Answer::Refused(Refused { reason, message: message.into() })
}

async fn snapshot(db: &mut Client) -> Result<Transaction<'_>, ReviewError> {
    let snapshot = db.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    snapshot.start().await.map_err(|source| ReviewError::Begin { source })
}

/// The caller; without an invocation the login of the session, whatever role it has taken on.
async fn known(caller: Option<&Caller>, db: &Client) -> Result<Caller, ReviewError> {
    if let Some(caller) = caller {
        return Ok(caller.clone());
    }
    let login = db.query_typed_one("select session_user::text", &[]).await.and_then(|row| row.try_get(0));
    let login = login.map_err(|source| ReviewError::Query { what: "the login", source })?;
    Ok(Caller { identity: Identity::DatabaseLogin(login), request_id: None })
}
