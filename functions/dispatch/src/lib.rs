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
//! What fails comes back later, twice as late each time, until it is dead. Dead rows are kept and counted. What a tick has no
//! time for is given back at once. The rules of that are at the top of `work.rs`.

pub mod metrics;
pub mod outbox;
pub mod sink;
mod work;

use bootstrap::database::{Database, DatabaseError};
use reconciler::clock::Clock;
use reconciler::config::{ConfigError, DatabaseSettings, DispatchSettings, Lookup};
use reconciler::domain::Timestamp;
use reconciler::store::{StoreError, database_time};
use serde::Serialize;

use outbox::OutboxError;
use sink::{EventSink, Sink};

pub use work::{Tick, run, work};

/// The name of the function.
pub const FUNCTION: &str = "dispatch";

/// The Postgres role whose rights it runs with, whoever logs in.
pub const ROLE: &str = "reconciler_writer";

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
    /// Events that were accepted outside. Where another worker claimed one meanwhile, it is in `outdated`, too.
    pub published: u64,
    /// Rows that come back later.
    pub failed: u64,
    /// Rows that do not come back.
    pub dead: u64,
    /// Rows that another worker claimed meanwhile.
    pub outdated: u64,
    /// Rows that there was no time for: any worker may claim them at once.
    pub given_back: u64,
    /// From the tick's start to this report, milliseconds.
    pub duration_ms: u64,
}

impl DispatchReport {
    /// The one line of a tick, for the log.
    pub fn log(&self) {
        tracing::info!(
            function = self.function,
            claimed = self.claimed,
            written = self.written,
            already_written = self.already_written,
            superseded = self.superseded,
            published = self.published,
            failed = self.failed,
            dead = self.dead,
            outdated = self.outdated,
            given_back = self.given_back,
            duration_ms = self.duration_ms,
            "tick"
        );
    }
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
            Self::Database(error) => error.error_type(),
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

impl Host<Sink> {
    /// Reads all settings, and has the sink that they choose. Calls nothing.
    pub async fn from_settings(lookup: Lookup<'_>) -> Result<Self, DispatchError> {
        let sink = Sink::chosen(&DispatchSettings::from_lookup(lookup)?).await?;
        Self::from_lookup(lookup, sink)
    }
}

impl<S: EventSink> Host<S> {
    /// Reads all settings. Calls nothing.
    pub fn from_lookup(lookup: Lookup<'_>, sink: S) -> Result<Self, DispatchError> {
        let database = Database::new(&DatabaseSettings::from_lookup(lookup)?, ROLE)?;
        Ok(Self { database, settings: DispatchSettings::from_lookup(lookup)?, sink })
    }

    /// When a tick that begins now has to end, where nobody else says so: after `TICK_SECONDS`.
    pub fn own_deadline(&self) -> Timestamp {
        Clock::System.now() + self.settings.tick
    }

    /// One tick: one batch of the outbox. Nothing begins after `deadline`.
    pub async fn tick(&self, deadline: Option<Timestamp>) -> Result<DispatchReport, DispatchError> {
        let clock = Clock::System;
        let began = clock.now();
        let session = self.database.session().await?;
        let tick = Tick::begin(&clock, database_time(&session.client).await?, deadline);
        let mut report = run(&session.client, &self.sink, &self.settings, &tick).await?;
        report.duration_ms = u64::try_from((clock.now() - began).whole_milliseconds()).unwrap_or_default();
        Ok(report)
    }
}
