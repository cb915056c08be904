//! `cargo demo`: a throw-away Postgres, a Stripe sandbox, payments with every kind of drift, one whole cycle of the real
//! forward scan with an outage in the middle, the repairs with late webhooks beside them, and a closing screen. It fails where
//! a payment was changed twice or a repair is left over.

pub mod facts;
pub mod fill;
pub mod live;
pub mod orphans;
pub mod scenario;
pub mod screen;
pub mod watch;
pub mod watch_screen;
pub mod webhooks;

use std::time::Duration;

use anyhow::Context;
use bootstrap::ScanHost;
use dispatch::sink::LogSink;
use dispatch::{DispatchReport, Host};
use indicatif::{ProgressBar, ProgressStyle};
use reconciler::clock::Clock;
use reconciler::telemetry::{Outcome, Report};
use tokio_postgres::{Client, NoTls};

use crate::postgres::{ClusterOptions, Database, Settings, environment, own_cluster};
use crate::sandbox::{Fault, FaultRule, Sandbox, Sending};
use facts::Facts;
use fill::Filled;
use screen::{Race, Summary, say};

/// How the demo is to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many payments.
    pub payments: u32,
    /// Requests a second.
    pub requests_per_second: u32,
    /// Payments in one tick.
    pub batch: u32,
    /// How long the sandbox takes for an answer.
    pub latency: Duration,
    /// A server to use instead of a throw-away one; the demo works in a database of its own making there.
    pub database_url: Option<String>,
    /// A real test key instead of the sandbox. Nothing is written to Stripe.
    pub stripe_key: Option<String>,
    /// Where that key is good.
    pub stripe_base: Option<String>,
}

/// The key for the sandbox, which takes any.
const SANDBOX_KEY: &str = "rk_test_demo";

/// Ticks after which the demo gives up.
const TICKS_MAX: u32 = 5_000;

/// Runs the demo, and prints what a person wants to see.
pub async fn run(options: &Options) -> anyhow::Result<()> {
    let database = database(options).await?;
    let db = connect(&database.url()).await?;
    let (sandbox, base, key) = stripe(options).await?;
    let rate = options.requests_per_second;
    let settings = [
        ("DATABASE_URL", database.url()),
        ("STRIPE_API_KEY", key.clone()),
        ("STRIPE_API_BASE", base.clone()),
        ("STRIPE_WEBHOOK_SECRETS", webhooks::SECRET.to_owned()),
        ("STRIPE_LIVEMODE", "false".to_owned()),
        ("BATCH_SIZE", options.batch.to_string()),
        ("REQUESTS_PER_SECOND", rate.to_string()),
        ("CONCURRENCY", "32".to_owned()),
        // small, so that the webhooks have their turns between the repairs
        ("DISPATCH_BATCH", (options.payments / 1_000).max(2).to_string()),
    ];
    let lookup = |key: &str| settings.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone());
    // kept open to the end
    let _front = match &sandbox {
        Some(sandbox) => Some(webhooks::listen(sandbox, &lookup).await?),
        None => None,
    };

    let filled = match &sandbox {
        Some(sandbox) => fill::from_scenario(&db, sandbox, i64::from(options.payments)).await?,
        None => fill::from_account(&db, &base, &key, options.payments).await?,
    };
    say(&format!("Payments  {} of them, with {} drifts among them", filled.payments, filled.drifts))?;
    let waiting = match &sandbox {
        Some(sandbox) => format!("{} on their way", sandbox.with(|account, _| account.webhook_counters().events)),
        None => "left out: Stripe cannot reach this machine".to_owned(),
    };
    say(&format!("Webhooks  {waiting}"))?;

    let host = ScanHost::from_lookup(&lookup, None)?;
    say(&format!("Scan      forward-scan, batches of {}, up to {rate} requests a second\n", options.batch))?;
    let summary = cycle(&host, &db, &filled, sandbox.as_ref()).await?;
    say(&screen::after_the_scan(&db, &summary).await?)?;

    if sandbox.is_some() {
        say(&orphans::look(&settings).await?)?;
    }

    let dispatcher = Host::from_lookup(&lookup, LogSink)?;
    let (repairs, received) = match &sandbox {
        Some(sandbox) => {
            webhooks::race(sandbox, &dispatcher).await.map(|(repairs, received)| (repairs, Some(received)))?
        }
        None => (repair(&dispatcher).await?, None),
    };
    let race = Race::count(&db, &repairs, received).await?;
    say(&screen::after_the_race(&race)?)?;
    say(&screen::findings(&db).await?)?;
    if sandbox.is_some() {
        say(&format!("  What had happened to these payments:\n{}\n", stories(i64::from(options.payments))))?;
    }
    say(&screen::lag(&lag_metric::Host::from_lookup(&lookup)?.tick().await?)?)?;
    let facts = Facts::count(&db).await?;
    say(&screen::facts(&facts)?)?;
    anyhow::ensure!(
        facts.hold() && race.written() == facts.ledger_rows,
        "a payment was changed more than once, or a repair is left over: {facts:?}, {race:?}"
    );
    Ok(())
}

/// The dispatcher, until nothing is left to do.
async fn repair(host: &Host<LogSink>) -> anyhow::Result<Vec<DispatchReport>> {
    let mut reports = Vec::new();
    for _ in 0..TICKS_MAX {
        let report = host.tick(Some(host.own_deadline())).await?;
        if report.claimed == 0 {
            return Ok(reports);
        }
        reports.push(report);
    }
    anyhow::bail!("the outbox is not empty after {TICKS_MAX} ticks: {:?}", reports.last())
}

async fn database(options: &Options) -> anyhow::Result<Database> {
    let lookup = |name: &str| match name {
        "DATABASE_URL" => options.database_url.clone(),
        _ => environment(name),
    };
    let settings = Settings::from_lookup(&lookup, Some("DATABASE_URL"))?;
    let cluster = own_cluster(settings, ClusterOptions::default()).await?;
    let database = cluster.empty_database().await?;
    let mut db = connect(&database.url()).await?;
    let applied = migrate::apply(&mut db, Some(migrate::DEFAULT_ADAPTER)).await?;
    let version: String = db.query_one("show server_version", &[]).await?.get(0);
    let whose = if options.database_url.is_some() { "yours, in a database of the demo's own" } else { "throw-away" };
    say(&format!("Postgres  {version}, {whose}; schema {} applied", applied.versions.len()))?;
    Ok(database)
}

async fn stripe(options: &Options) -> anyhow::Result<(Option<Sandbox>, String, String)> {
    if let Some(key) = &options.stripe_key {
        let base = options.stripe_base.clone();
        let base = base.unwrap_or_else(|| reconciler::config::STRIPE_API_BASE_DEFAULT.to_owned());
        say(&format!("Stripe    {base}, with your test key; nothing is written there"))?;
        return Ok((None, base, key.clone()));
    }
    let sandbox = crate::sandbox::Options {
        latency: options.latency,
        sending: Sending::WhenAsked,
        ..crate::sandbox::Options::default()
    };
    let sandbox = Sandbox::start(sandbox).await.context("the Stripe sandbox")?;
    let base = sandbox.base_url.clone();
    say(&format!("Stripe    a sandbox at {base}, {} ms an answer", options.latency.as_millis()))?;
    Ok((Some(sandbox), base, SANDBOX_KEY.to_owned()))
}

pub(crate) async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.context("connecting to the demo's database")?;
    tokio::spawn(connection);
    Ok(client)
}

/// Tick by tick until every payment has been seen, with an outage of Stripe in the middle.
async fn cycle(host: &ScanHost, db: &Client, filled: &Filled, sandbox: Option<&Sandbox>) -> anyhow::Result<Summary> {
    let mut summary = Summary { lag_seconds: (screen::lag_seconds(db).await?, 0), ..Summary::default() };
    let bar = ProgressBar::new(filled.payments);
    bar.set_style(ProgressStyle::with_template("  [{bar:40}] {pos}/{len}  {msg}")?.progress_chars("=> "));
    let clock = Clock::System;
    let began = clock.now();
    let mut outage = Outage::Ahead;
    for _ in 0..TICKS_MAX {
        if let Some(sandbox) = sandbox {
            outage = outage.next(sandbox, bar.position() * 2 >= filled.payments);
        }
        let report = host.tick(None, forward_scan::run).await?;
        let passed = "select count(*) from reconciliation.observation";
        let passed: i64 = db.query_one(passed, &[]).await?.get(0);
        bar.set_position(u64::try_from(passed).unwrap_or_default());
        bar.set_message(message(&report, outage));
        if bar.is_hidden() {
            say(&format!("  {passed:>7}/{}  {}", filled.payments, message(&report, outage)))?; // no terminal: a line a tick
        }
        let wrapped = report.outcome == Outcome::Wrapped;
        summary.reports.push(report);
        if wrapped {
            bar.finish_with_message("the cycle is complete");
            say("")?;
            summary.took_ms = u64::try_from((clock.now() - began).whole_milliseconds()).unwrap_or_default();
            summary.lag_seconds.1 = screen::lag_seconds(db).await?;
            return Ok(summary);
        }
    }
    anyhow::bail!("no cycle has completed within {TICKS_MAX} ticks: {:?}", summary.reports.last())
}

/// The outage in the middle of the cycle: two ticks long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outage {
    Ahead,
    Begins,
    GoesOn,
    Over,
}

impl Outage {
    fn next(self, sandbox: &Sandbox, half_way: bool) -> Self {
        match self {
            Self::Ahead if half_way => {
                sandbox.with(|account, _| account.add_fault(FaultRule::always(Fault::Dropped)));
                Self::Begins
            }
            Self::Ahead => Self::Ahead,
            Self::Begins => Self::GoesOn,
            Self::GoesOn => {
                sandbox.with(|account, _| account.clear_faults());
                Self::Over
            }
            Self::Over => Self::Over,
        }
    }
}

fn message(report: &Report, outage: Outage) -> String {
    match outage {
        Outage::Begins | Outage::GoesOn => "Stripe is away: nothing is passed, nothing is called healthy".to_owned(),
        Outage::Ahead | Outage::Over => {
            format!("{}, findings opened: {}", report.outcome.as_str(), report.findings_opened)
        }
    }
}

fn stories(payments: i64) -> String {
    let drifts = scenario::SORTS.iter().skip(4); // the first are fine
    let lines = drifts.map(|sort| format!("  {:>6}  {}", scenario::count(sort, payments), sort.story));
    let orphans =
        std::iter::once(format!("  {:>6}  money at Stripe that no payment here names", fill::ORPHANS_OF_MONEY));
    lines.chain(orphans).collect::<Vec<_>>().join("\n")
}
