//! `lag-metric`: how long ago every payment was verified, and what waits. Reads only, with the rights of `reconciler_metrics`,
//! in one snapshot, so that its figures belong together; a read replica will do.
//!
//! **Lag** is the age of the payment that has gone unverified longest:
//!
//! - of a payment that a scan has met, since the last confirmed answer, or since its creation while there was none. It is a
//!   probe of the index over `verified_through`; observations whose payment was deleted are passed over;
//! - of a payment that no scan has met, since its creation. Those are the payments beyond the furthest one that the forward
//!   scan has passed, but for those that another function has met meanwhile.
//!
//! That is exact but for payments whose transaction stays open for longer than the grace period: such a row appears behind
//! the walk, and is counted from the next cycle on, which meets it. More than [`queries::NOT_MET_MAX`] payments that were not
//! met, or [`queries::DELETED_MAX`] deleted ones in a row, are not looked at one by one: then the lag may be given as longer
//! than it is, never as shorter.
//!
//! A confirmed 404 is a confirmed answer. An outage confirms nothing, so the lag grows.
//!
//! The probe begins an hour before the oldest that this process has found within the last hour: further down are only index
//! entries of rows that have moved on, which cost time until they are vacuumed away. A tick that commits more than an hour
//! after it asked could still write there, so the bound is forgotten every hour, and looked for anew.
//!
//! The **window age** says the same of the other direction: everything that Stripe created longer ago than this has been listed
//! to the end by the reverse scan.

pub mod metrics;
pub mod pace;
pub mod queries;
pub mod report;

use bootstrap::database::{Database, DatabaseError};
use reconciler::clock::Clock;
use reconciler::config::{ConfigError, DatabaseSettings, LagSettings, Lookup};
use reconciler::domain::Timestamp;
use reconciler::store::{Keyset, StoreError, database_time};
use time::Duration;
use tokio::sync::Mutex;
use tokio_postgres::{Client, IsolationLevel};

use pace::{cycle_age, pace_of, seconds_since, since_completed};
use queries::{Cursor, Findings, Waiting, Window};
pub use report::{FindingsReport, JobReport, LagReport, OutboxReport, QueueReport};

/// The name of the function.
pub const FUNCTION: &str = "lag-metric";

/// The Postgres role whose rights it runs with, whoever logs in.
pub const ROLE: &str = "reconciler_metrics";

/// The forward scan's job: the one that meets every payment.
pub const WALK: &str = "payments-vs-stripe";

/// The jobs that are reported whether they have ever run or not. One that runs besides is reported as well.
pub const JOBS: [&str; 3] = [WALK, "suspects-vs-stripe", REVERSE];

/// The reverse scan's job, whose cycles are windows.
pub const REVERSE: &str = "stripe-vs-payments";

/// The probe begins this much before what the last tick found, and forgets it after as much time.
const PROBE_SLACK: Duration = Duration::hours(1);

/// The budget's counter has steps of ten minutes.
const BUDGET_STEP_SECONDS: u64 = 600;

/// A tick failed. Nothing is reported: figures that could not be read are not zero.
#[derive(Debug, thiserror::Error)]
pub enum LagError {
    /// A setting is missing or malformed.
    #[error(transparent)]
    Settings(#[from] ConfigError),
    /// Postgres is out of reach, or not ready.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The database's time could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The snapshot could not be taken or let go of.
    #[error("could not take a snapshot for the figures")]
    Snapshot(#[source] tokio_postgres::Error),
    /// A figure could not be read.
    #[error("could not read {what}")]
    Query {
        /// The statement's name.
        what: &'static str,
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// A statement that always answers with a row did not.
    #[error("{what} has no answer that can be read")]
    NoRow {
        /// The statement's name.
        what: &'static str,
    },
}

impl LagError {
    /// A name that does not change, for alarms and for Lambda's `errorType`.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::Settings(_) => "SettingsUnusable",
            Self::Database(error) => error.error_type(),
            Self::Store(_) | Self::Snapshot(_) | Self::Query { .. } | Self::NoRow { .. } => "DatabaseFailed",
        }
    }
}

/// What is kept between two ticks.
#[derive(Debug)]
pub struct Host {
    database: Database,
    settings: LagSettings,
    /// When it was learned, and from where the probe may begin.
    probe: Mutex<Option<(Timestamp, Timestamp)>>,
}

impl Host {
    /// Reads all settings. Calls nothing.
    pub fn from_lookup(lookup: Lookup<'_>) -> Result<Self, LagError> {
        let database = Database::new(&DatabaseSettings::from_lookup(lookup)?, ROLE)?;
        Ok(Self { database, settings: LagSettings::from_lookup(lookup)?, probe: Mutex::new(None) })
    }

    /// One tick.
    pub async fn tick(&self) -> Result<LagReport, LagError> {
        let clock = Clock::System;
        let began = clock.now();
        let mut session = self.database.exclusive_session().await?;
        let keyset = self.settings.keyset.unwrap_or(session.ports.keyset);
        let now = database_time(&session.client).await?;
        let mut probe = self.probe.lock().await;
        *probe = probe.filter(|(learned_at, _)| now - *learned_at < PROBE_SLACK);
        let from = probe.map(|(_, from)| from);
        let mut report = run(&mut session.client, &self.settings, keyset, from, now).await?;
        if probe.is_none() {
            *probe = report.oldest_met.map(|oldest| (now, oldest.saturating_sub(PROBE_SLACK)));
        }
        report.duration_ms = u64::try_from((clock.now() - began).whole_milliseconds()).unwrap_or_default();
        Ok(report)
    }
}

/// Reads all figures in one snapshot. `probe_from`: nothing that was met was verified last before this, where that is known.
/// `now` is the database's time.
pub async fn run(
    db: &mut Client,
    settings: &LagSettings,
    keyset: Keyset,
    probe_from: Option<Timestamp>,
    now: Timestamp,
) -> Result<LagReport, LagError> {
    let snapshot = db.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    let db = snapshot.start().await.map_err(LagError::Snapshot)?;
    let cursors = queries::cursors(&db).await?;
    let windows = queries::windows(&db).await?;
    let walk = cursors.iter().find(|cursor| cursor.job == WALK);
    // in another order the walk starts over
    let furthest = walk.filter(|walk| walk.keyset == keyset.as_str()).and_then(|walk| walk.furthest.as_ref());
    let met = queries::oldest_met(&db, probe_from).await?;
    let not_met = queries::not_met(&db, keyset, furthest).await?;
    let inflow = match furthest {
        Some((created_at, _)) => queries::inflow(&db, *created_at).await?,
        None => 0,
    };
    let findings = queries::findings(&db, now).await?;
    let queue = queries::review_queue(&db, now).await?;
    let outbox = queries::outbox(&db).await?;
    let budget = queries::budget(&db, &settings.account, now).await?;
    let payments_estimate = queries::payments_estimate(&db).await?;
    db.commit().await.map_err(LagError::Snapshot)?;

    let oldest = [met.oldest, not_met.oldest].into_iter().flatten().min();
    let lag_seconds = age(oldest, now);
    let pace = pace_of(walk, now);
    let allowed = u64::from(settings.requests_per_second) * BUDGET_STEP_SECONDS;
    Ok(LagReport {
        function: FUNCTION,
        lag_seconds,
        never_verified: count(met.never_verified),
        not_met: count(not_met.count),
        payments_estimate,
        throughput_per_hour: pace.per_hour(),
        projected_cycle_seconds: pace.projected_seconds(payments_estimate),
        inflow_permille: pace.inflow_permille(count(inflow)),
        reverse_window_age_seconds: window_age(&windows, lag_seconds, now),
        jobs: jobs_of(&cursors, &windows, lag_seconds, now),
        open_findings: findings.iter().map(|findings| count(findings.open)).sum(),
        oldest_finding_seconds: age(findings.iter().filter_map(|findings| findings.oldest).min(), now),
        findings: findings.iter().map(|findings| findings_of(findings, now)).collect(),
        review_queue: queue.bands.map(|(age_band, open)| QueueReport { age_band, open: count(open) }),
        snoozed: count(queue.snoozed),
        commands: outbox_of(&outbox, "command", now),
        events: outbox_of(&outbox, "event", now),
        budget_used_permille: count(budget.reads_lately).saturating_mul(1_000) / allowed.max(1),
        throttle_level: u64::try_from(budget.throttle_level).unwrap_or(0),
        stripe_reads_30_days: count(budget.reads),
        duration_ms: 0,
        oldest_met: met.oldest,
    })
}

fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn age(since: Option<Timestamp>, now: Timestamp) -> u64 {
    since.map_or(0, |since| seconds_since(since, now))
}

/// The age of the moment up to which everything that Stripe created has been listed to the end; since the first window began
/// where none is complete, and `lag` where none has begun.
fn window_age(windows: &[Window], lag: u64, now: Timestamp) -> u64 {
    let window = windows.iter().find(|window| window.job == REVERSE);
    let since = window.and_then(|window| window.completed_to.or(window.started_at));
    since.map_or(lag, |since| seconds_since(since, now))
}

/// A window as a cycle of its job.
fn cycle_of(window: &Window) -> Cursor {
    Cursor {
        job: window.job.clone(),
        keyset: String::new(),
        cycle_started_at: window.started_at,
        last_cycle_completed_at: window.last_completed_at,
        cycle_rows: 0,
        furthest: None,
    }
}

/// The jobs that are always there, then the others.
fn jobs_of(cursors: &[Cursor], windows: &[Window], lag: u64, now: Timestamp) -> Vec<JobReport> {
    let cursors: Vec<Cursor> = cursors.iter().cloned().chain(windows.iter().map(cycle_of)).collect();
    let others = cursors.iter().map(|cursor| cursor.job.as_str()).filter(|job| !JOBS.contains(job));
    JOBS.into_iter()
        .chain(others)
        .map(|job| {
            let cursor = cursors.iter().find(|cursor| cursor.job == job);
            JobReport {
                job: job.to_owned(),
                cycle_age_seconds: cycle_age(cursor, now),
                since_completed_seconds: since_completed(cursor, lag, now),
            }
        })
        .collect()
}

fn findings_of(findings: &Findings, now: Timestamp) -> FindingsReport {
    FindingsReport {
        kind: findings.kind.clone(),
        verdict: findings.verdict.clone(),
        open: count(findings.open),
        oldest_seconds: age(findings.oldest, now),
    }
}

fn outbox_of(outbox: &[Waiting], kind: &str, now: Timestamp) -> OutboxReport {
    let found = outbox.iter().find(|waiting| waiting.kind == kind);
    found.map_or(OutboxReport::default(), |waiting| OutboxReport {
        waiting: count(waiting.waiting),
        oldest_seconds: age(waiting.oldest, now),
        dead: count(waiting.dead),
    })
}
