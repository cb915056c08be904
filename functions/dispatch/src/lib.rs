//! `dispatch`: works the outbox. Commands go through the canonical writer, events to the rest of the company.
//!
//! A row is claimed for a while, with a lease and a fence that grows with every claim. A worker that dies lets its lease run
//! out, and another takes the row; a worker that was only slow finds its fence outdated and marks nothing.
//!
//! - A **command** takes effect once: its transition and its mark are one statement. Superseded is an outcome, not a failure:
//!   the finding stays open, and the scans, which see whether the drift is still there, issue the command again.
//! - An **event** goes out at least once: it is marked after it was accepted, so a death in between sends it again, with the
//!   same id. Events of one payment go out in order.
//!
//! What fails comes back later, twice as late each time, until it is dead. Dead rows are kept and counted.

pub mod metrics;
pub mod outbox;
pub mod sink;

use bootstrap::chain;
use bootstrap::database::{Database, DatabaseError};
use futures_util::{StreamExt, stream};
use reconciler::clock::Clock;
use reconciler::config::{ConfigError, DatabaseSettings, DispatchSettings, Lookup};
use reconciler::domain::Timestamp;
use reconciler::domain::id::PaymentId;
use reconciler::store::{StoreError, database_time};
use reconciler::writer::{Command, Transition, WriteOutcome, apply_command};
use serde::Serialize;
use serde_json::{Value, json};
use time::Duration;
use tokio_postgres::Client;

use outbox::{Claimed, OutboxError, claim, mark_delivered, mark_failed};
use sink::{Event, EventSink};

/// The name of the function.
pub const FUNCTION: &str = "dispatch";

/// The Postgres role whose rights it runs with, whoever logs in.
pub const ROLE: &str = "reconciler_writer";

/// Commands under way at once on one connection: Postgres does them one by one, without waiting for us in between.
const PIPELINE: usize = 16;

/// The first pause of a row that failed, and the longest.
const BACKOFF: Duration = Duration::seconds(5);
const BACKOFF_MAX: Duration = Duration::hours(1);

/// One tick of the dispatcher.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DispatchReport {
    /// Which function.
    pub function: &'static str,
    /// Rows claimed.
    pub claimed: u64,
    /// Commands that changed a payment: the drifts that were corrected.
    pub written: u64,
    /// Commands whose payment was there already.
    pub already_written: u64,
    /// Commands whose payment went another way meanwhile.
    pub superseded: u64,
    /// Events that were accepted outside.
    pub published: u64,
    /// Rows that come back later.
    pub failed: u64,
    /// Rows that do not come back.
    pub dead: u64,
    /// Rows that another worker claimed meanwhile.
    pub outdated: u64,
    /// From the tick's start to this report, milliseconds.
    pub duration_ms: u64,
}

/// A tick failed. What was claimed comes back when its lease has run out.
#[derive(Debug, thiserror::Error)]
pub enum DispatchError {
    /// A setting is missing or malformed.
    #[error(transparent)]
    Settings(#[from] ConfigError),
    /// Postgres is out of reach, or not ready.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The database's time could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The outbox could not be worked.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
}

impl DispatchError {
    /// A name that does not change, for alarms and for Lambda's `errorType`.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::Settings(_) => "SettingsUnusable",
            Self::Database(_) => "DatabaseUnreachable",
            Self::Store(_) | Self::Outbox(_) => "DatabaseFailed",
        }
    }
}

/// What is kept between two ticks.
#[derive(Debug)]
pub struct Host<S> {
    database: Database,
    settings: DispatchSettings,
    sink: S,
}

impl<S: EventSink> Host<S> {
    /// Reads all settings. Calls nothing.
    pub fn from_lookup(lookup: Lookup<'_>, sink: S) -> Result<Self, DispatchError> {
        let database = Database::new(&DatabaseSettings::from_lookup(lookup)?, ROLE)?;
        Ok(Self { database, settings: DispatchSettings::from_lookup(lookup)?, sink })
    }

    /// One tick: one batch of the outbox.
    pub async fn tick(&self) -> Result<DispatchReport, DispatchError> {
        let clock = Clock::System;
        let began = clock.now();
        let session = self.database.session().await?;
        let now = database_time(&session.client).await?;
        let mut report = run(&session.client, &self.sink, &self.settings, now).await?;
        report.duration_ms = u64::try_from((clock.now() - began).whole_milliseconds()).unwrap_or_default();
        Ok(report)
    }
}

/// Claims a batch and works it. `now` is the database's time.
pub async fn run<S: EventSink>(
    db: &Client,
    sink: &S,
    settings: &DispatchSettings,
    now: Timestamp,
) -> Result<DispatchReport, DispatchError> {
    let claimed = claim(db, now, settings.batch, settings.lease_seconds).await?;
    work(db, sink, settings, now, &claimed).await
}

/// Works rows that were claimed.
pub async fn work<S: EventSink>(
    db: &Client,
    sink: &S,
    settings: &DispatchSettings,
    now: Timestamp,
    claimed: &[Claimed],
) -> Result<DispatchReport, DispatchError> {
    let mut report = DispatchReport {
        function: FUNCTION,
        claimed: u64::try_from(claimed.len()).unwrap_or(u64::MAX),
        ..DispatchReport::default()
    };
    let (commands, events): (Vec<&Claimed>, Vec<&Claimed>) = claimed.iter().partition(|row| row.is_command);

    let applying = commands.into_iter().map(|row| async move { (row, apply(db, row, now).await) });
    let mut applying = stream::iter(applying).buffer_unordered(PIPELINE);
    while let Some((row, applied)) = applying.next().await {
        match applied {
            Applied::Outcome(Some(WriteOutcome::Written)) => report.written += 1,
            Applied::Outcome(Some(WriteOutcome::AlreadyWritten)) => report.already_written += 1,
            Applied::Outcome(Some(WriteOutcome::Superseded)) => report.superseded += 1,
            Applied::Outcome(None) => report.outdated += 1,
            Applied::Failed(error) => put_back(db, settings, now, row, &error, false, &mut report).await?,
            Applied::Unreadable(error) => put_back(db, settings, now, row, &error, true, &mut report).await?,
        }
    }
    drop(applying);
    publish(db, sink, settings, now, &events, &mut report).await?;
    Ok(report)
}

/// What came of a command.
enum Applied {
    /// `None`: another worker claimed it meanwhile.
    Outcome(Option<WriteOutcome>),
    Failed(String),
    /// It will not read any better the next time.
    Unreadable(String),
}

async fn apply(db: &Client, row: &Claimed, now: Timestamp) -> Applied {
    let transition = match row.name.as_str() {
        "ApplyPaymentSucceeded" => Transition::Succeeded,
        "ApplyPaymentCanceled" => Transition::Canceled,
        "ApplyPaymentFailed" => Transition::Failed,
        other => return Applied::Unreadable(format!("no command is called {other}")),
    };
    let text = |key: &str| row.payload.get(key).and_then(Value::as_str);
    let (Some(payment_id), Some(external_ref)) = (text("payment_id"), text("external_ref")) else {
        return Applied::Unreadable("the command names no payment_id or no external_ref".to_owned());
    };
    let evidence = json!({
        "external_ref": external_ref,
        "external_status": text("external_status"),
        "observed_at": text("observed_at"),
        "source": "dispatch",
    });
    let command = Command {
        outbox_id: row.id,
        fence: row.fence,
        payment_id: PaymentId::new(payment_id),
        transition,
        evidence,
        finding_id: row.payload.get("finding_id").and_then(Value::as_i64),
    };
    match apply_command(db, &command, now).await {
        Ok(outcome) => Applied::Outcome(outcome),
        Err(error) => Applied::Failed(chain(&error)),
    }
}

async fn publish<S: EventSink>(
    db: &Client,
    sink: &S,
    settings: &DispatchSettings,
    now: Timestamp,
    rows: &[&Claimed],
    report: &mut DispatchReport,
) -> Result<(), DispatchError> {
    if rows.is_empty() {
        return Ok(());
    }
    let events: Vec<Event> =
        rows.iter().map(|row| Event { id: row.id, name: row.name.clone(), detail: row.payload.clone() }).collect();
    let mut results = sink.publish(&events).await.into_iter();
    let mut accepted = Vec::new();
    for row in rows {
        match results.next() {
            Some(Ok(())) => accepted.push(*row),
            Some(Err(error)) => put_back(db, settings, now, row, &error.to_string(), false, report).await?,
            None => put_back(db, settings, now, row, "the sink gave no answer for it", false, report).await?,
        }
    }
    let marked = mark_delivered(db, now, &accepted).await?;
    report.published += u64::try_from(accepted.len()).unwrap_or(u64::MAX);
    report.outdated += u64::try_from(accepted.len() - marked).unwrap_or(u64::MAX);
    Ok(())
}

/// A row failed: later again, or dead.
async fn put_back(
    db: &Client,
    settings: &DispatchSettings,
    now: Timestamp,
    row: &Claimed,
    error: &str,
    hopeless: bool,
    report: &mut DispatchReport,
) -> Result<(), DispatchError> {
    let dies = hopeless || row.attempts >= settings.attempts_max;
    // Postgres keeps no NUL in a text, and an error that cannot be kept must not hold up the rows beside it
    let short: String = error.replace('\0', " ").chars().take(500).collect();
    if !mark_failed(db, row, now + backoff(row.attempts), dies.then_some(now), &short).await? {
        report.outdated += 1;
    } else if dies {
        tracing::error!(outbox = row.id, payment = %row.aggregate, name = %row.name, error = %short, "a row of the outbox is dead");
        report.dead += 1;
    } else {
        tracing::warn!(outbox = row.id, payment = %row.aggregate, name = %row.name, error = %short, "a row of the outbox comes back later");
        report.failed += 1;
    }
    Ok(())
}

/// Doubled with each attempt, at most an hour, and between half and one and a half of that.
fn backoff(attempts: i32) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(0).min(16);
    let pause = (BACKOFF * 2_i32.saturating_pow(doublings)).min(BACKOFF_MAX);
    pause * fastrand::i32(500..1500) / 1000
}
