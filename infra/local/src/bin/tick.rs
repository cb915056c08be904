//! `cargo tick`: one tick of a function on this machine, settings from the environment exactly as in Lambda. Also how the
//! reconciler runs from plain cron. Reports on stdout, one JSON line a tick; logs on stderr.
//!
//! Exit code 0 when the run is done (an aborted overlap too), 1 when it failed, 2 for wrong usage or settings.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use bootstrap::database::{DatabaseError, connect_as_owner};
use bootstrap::lambda::environment;
use bootstrap::{ScanHost, TickError, chain, logging};
use clap::{Parser, Subcommand};
use dispatch::DispatchError;
use forward_scan::unfinished;
use lag_metric::LagError;
use reconciler::budget::Share;
use reconciler::config::{ConfigError, MigrateSettings};
use reconciler::domain::Timestamp;
use reconciler::gateway::StripeClient;
use reconciler::scan::{Deps, RunError};
use reconciler::telemetry::{Outcome, Report};
use review::{Answer, Desk, ReviewError};
use tracing_subscriber::filter::LevelFilter;

/// Ticks without a step forward after which `--until-cycle` gives up: Stripe is away, or somebody else does the work.
const STANDSTILL_MAX: u32 = 20;

/// Run one tick of a function on this machine.
///
/// Settings come from the environment, as in Lambda (the README lists them). Reports go to stdout, one JSON line a tick, and
/// logs to stderr. Exit code 0: done. 1: failed. 2: wrong usage or settings.
#[derive(Parser)]
#[command(name = "cargo tick", bin_name = "cargo tick")]
struct Arguments {
    #[command(subcommand)]
    function: Function,
}

#[derive(Subcommand)]
enum Function {
    /// Compare the next batch of payments with Stripe.
    ForwardScan {
        /// Repeat until a cycle has completed; one report line a tick.
        #[arg(long)]
        until_cycle: bool,
    },
    /// Compare the next batch of the payments that have not ended and are no older than 90 days.
    UnfinishedScan {
        /// Repeat until a cycle has completed; one report line a tick.
        #[arg(long)]
        until_cycle: bool,
    },
    /// Ask Stripe about the payments that should have ended by now.
    Sweep {
        /// Repeat until all suspects have been asked; one report line a tick.
        #[arg(long)]
        until_cycle: bool,
    },
    /// Walk the next pages of what Stripe created, for charges that no payment here names.
    ReverseScan {
        /// `{"from": "2026-01-01"}` walks back to there, this once.
        #[arg(long)]
        input: Option<String>,
        /// Repeat until the window is complete; one report line a tick.
        #[arg(long)]
        until_cycle: bool,
    },
    /// Work the outbox: commands through the canonical writer, events to EVENT_BUS, or into the log without it.
    Dispatch,
    /// Say how long ago everything was verified, and what waits. Needs no key of Stripe's.
    LagMetric,
    /// Apply the schema and the adapter to DATABASE_URL, and check the ports.
    Migrate {
        /// `default`, `uuid_checkout`, or a file with an adapter of your own. Without it the adapter that is there stays, and
        /// `default` is applied where there is none.
        #[arg(long, conflicts_with = "check")]
        adapter: Option<String>,
        /// Change nothing: print one list of what is wrong with the schema, the ports and the privileges, and how to mend it.
        #[arg(long)]
        check: bool,
        /// With --check: the list as JSON.
        #[arg(long, requires = "check")]
        json: bool,
    },
    /// Ask the review desk: the JSON of an invocation, the JSON of its answer. `cargo review` is the same for people.
    Review {
        /// `{"action": "list"}`, say; the README has them all.
        request: String,
    },
}

/// How a run failed, and so with which exit code.
enum Failure {
    Usage(String),
    Run(String),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    logging::start(logging::Output::Stderr, LevelFilter::INFO);
    let ended = match arguments.function {
        Function::ForwardScan { until_cycle } => scan(until_cycle, None, forward_scan::run).await,
        Function::UnfinishedScan { until_cycle } => scan(until_cycle, Some(unfinished::SHARE), unfinished::run).await,
        Function::Sweep { until_cycle } => scan(until_cycle, Some(sweep::SHARE), sweep::run).await,
        Function::ReverseScan { input, until_cycle } => reverse(input.as_deref(), until_cycle).await,
        Function::Dispatch => dispatch_outbox().await,
        Function::LagMetric => read_lag().await,
        Function::Migrate { check: true, json, adapter: _ } => check_database(json).await,
        Function::Migrate { check: false, json: _, adapter } => migrate_database(adapter.as_deref()).await,
        Function::Review { request } => ask_the_desk(&request).await,
    };
    let (message, code) = match ended {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Run(message)) => (message, 1),
        Err(Failure::Usage(message)) => (message, 2),
    };
    eprintln!("error: {message}");
    ExitCode::from(code)
}

async fn scan<F>(until_cycle: bool, share: Option<Share>, run: F) -> Result<(), Failure>
where
    F: AsyncFn(&Deps<'_, StripeClient>, Timestamp) -> Result<Report, RunError>,
{
    let host = ScanHost::from_lookup(&environment, share)?;
    let mut standstill = 0;
    loop {
        let report = match host.tick(Some(host.own_deadline()), &run).await {
            Ok(report) => report,
            Err(error) => {
                error.report().map_or(Ok(()), print)?;
                return Err(error.into());
            }
        };
        print(&report)?;
        let done = match report.outcome {
            Outcome::Wrapped | Outcome::Waiting => true,
            Outcome::Advanced => {
                standstill = 0;
                !until_cycle
            }
            Outcome::Partial | Outcome::Stopped | Outcome::Withheld | Outcome::AbortedConcurrentRun => {
                standstill = if report.scanned > report.unverifiable { 0 } else { standstill + 1 };
                !until_cycle
            }
        };
        if done {
            return Ok(());
        }
        if standstill >= STANDSTILL_MAX {
            return Err(Failure::Run(format!(
                "{STANDSTILL_MAX} ticks in a row came no further; the last report says why"
            )));
        }
    }
}

async fn reverse(input: Option<&str>, until_cycle: bool) -> Result<(), Failure> {
    let payload = input.map_or(Ok(serde_json::Value::Null), serde_json::from_str);
    let payload = payload.map_err(|error| Failure::Usage(format!("--input is not JSON: {error}")))?;
    let input = reverse_scan::Input::parse(&payload).map_err(|error| Failure::Usage(error.to_string()))?;
    let run = async |deps: &Deps<'_, StripeClient>, now: Timestamp| reverse_scan::run(deps, now, &input).await;
    scan(until_cycle, Some(reverse_scan::SHARE), run).await
}

async fn dispatch_outbox() -> Result<(), Failure> {
    let host = dispatch::Host::from_settings(&environment).await?;
    print(&host.tick(Some(host.own_deadline())).await?)
}

async fn read_lag() -> Result<(), Failure> {
    let host = lag_metric::Host::from_lookup(&environment)?;
    print(&host.tick().await?)
}

async fn check_database(json: bool) -> Result<(), Failure> {
    let settings = MigrateSettings::from_lookup(&environment)?;
    let mut db = connect_as_owner(&settings.database).await.map_err(TickError::Database)?;
    let checked = migrate::check::check(&mut db, settings.keyset).await.map_err(|error| Failure::Run(chain(&error)))?;
    if json {
        print(&checked)?;
    } else {
        writeln!(std::io::stdout(), "{checked}").map_err(|error| Failure::Run(error.to_string()))?;
    }
    if checked.is_fit() { Ok(()) } else { Err(Failure::Run("the database is not fit for the reconciler".to_owned())) }
}

async fn migrate_database(adapter: Option<&str>) -> Result<(), Failure> {
    let settings = MigrateSettings::from_lookup(&environment)?;
    let sql = match adapter {
        None => None,
        Some(name) => Some(match migrate::shipped_adapter(name) {
            Some(sql) => sql.to_owned(),
            None => std::fs::read_to_string(PathBuf::from(name))
                .map_err(|error| Failure::Usage(format!("cannot read the adapter {name}: {error}")))?,
        }),
    };
    let mut db = connect_as_owner(&settings.database).await.map_err(TickError::Database)?;
    let applied = migrate::apply_for(&mut db, sql.as_deref(), settings.keyset)
        .await
        .map_err(|error| Failure::Run(chain(&error)))?;
    let versions = match applied.versions.as_slice() {
        [] => "nothing new".to_owned(),
        versions => versions.join(", "),
    };
    let adapter = match (applied.adapter, adapter) {
        (true, Some(name)) => format!("adapter {name} applied"),
        (true, None) => "adapter default applied".to_owned(),
        (false, _) => "the adapter that was there stays".to_owned(),
    };
    eprintln!("schema: {versions}; {adapter}; grants applied; the walk goes by {}", applied.keyset.as_str());
    for warning in &applied.checked.warnings {
        eprintln!("warning: {}\n  mend: {}", warning.what, warning.mend);
    }
    Ok(())
}

/// Answers with the desk that the request is for. What cannot be read is refused by the one that only reads.
async fn ask_the_desk(request: &str) -> Result<(), Failure> {
    let payload: serde_json::Value =
        serde_json::from_str(request).map_err(|error| Failure::Usage(format!("the request is not JSON: {error}")))?;
    let desk = review::read(&payload).map_or(Desk::Reading, |request| review::desk_of(&request));
    let answer = review::Host::from_lookup(&environment, desk)?.answer(&payload, None).await?;
    print(&answer)?;
    match answer {
        Answer::Refused(refused) => Err(Failure::Run(format!("refused: {}", review::text::plain(&refused.message)))),
        Answer::Listed(_) | Answer::Shown(_) | Answer::Recorded(_) | Answer::Digest(_) | Answer::Described { .. } => {
            Ok(())
        }
    }
}

fn print(report: &impl serde::Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(report).context("the report cannot be written as JSON");
    line.and_then(|line| writeln!(std::io::stdout(), "{line}").context("stdout is closed"))
        .map_err(|error| Failure::Run(format!("{error:#}")))
}

impl From<TickError> for Failure {
    fn from(error: TickError) -> Self {
        match error {
            TickError::Settings(_)
            | TickError::Stripe(_)
            | TickError::Database(DatabaseError::Url(_) | DatabaseError::UrlHost) => Self::Usage(error.chain()),
            TickError::Secret(_) | TickError::Database(_) | TickError::Run(_) => Self::Run(error.chain()),
        }
    }
}

impl From<DispatchError> for Failure {
    fn from(error: DispatchError) -> Self {
        match error {
            DispatchError::Settings(_) | DispatchError::Database(DatabaseError::Url(_) | DatabaseError::UrlHost) => {
                Self::Usage(chain(&error))
            }
            DispatchError::Database(_) | DispatchError::Store(_) | DispatchError::Outbox(_) => Self::Run(chain(&error)),
        }
    }
}

impl From<LagError> for Failure {
    fn from(error: LagError) -> Self {
        match error {
            LagError::Settings(_) | LagError::Database(DatabaseError::Url(_) | DatabaseError::UrlHost) => {
                Self::Usage(chain(&error))
            }
            LagError::Database(_)
            | LagError::Store(_)
            | LagError::Snapshot(_)
            | LagError::Query { .. }
            | LagError::NoRow { .. } => Self::Run(chain(&error)),
        }
    }
}

impl From<ReviewError> for Failure {
    fn from(error: ReviewError) -> Self {
        match error {
            ReviewError::Settings(_) | ReviewError::Database(DatabaseError::Url(_) | DatabaseError::UrlHost) => {
                Self::Usage(chain(&error))
            }
            ReviewError::Database(_)
            | ReviewError::Store(_)
            | ReviewError::Writer(_)
            | ReviewError::Begin { .. }
            | ReviewError::Query { .. }
            | ReviewError::Commit { .. }
            | ReviewError::Contended { .. } => Self::Run(chain(&error)),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Usage(error.to_string())
    }
}
