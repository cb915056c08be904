//! `cargo demo -- watch`: all functions on their schedules, against a shop in which things go wrong now and then, and one screen
//! that is drawn anew each minute, until Ctrl-C. A minute of the schedules takes a second or two here; the grace period and
//! the other thresholds are as much shorter.

use std::io::IsTerminal as _;
use std::time::Duration;

use bootstrap::ScanHost;
use dispatch::sink::LogSink;
use lag_metric::LagReport;
use reconciler::clock::Clock;
use reconciler::telemetry::Report;
use reverse_scan::Input;
use tokio_postgres::Client;

use super::fill::{METADATA_KEY, from_scenario};
use super::live::Shop;
use super::screen::say;
use super::{Options, connect, database, stripe, watch_screen, webhooks};
use crate::sandbox::Sandbox;

/// How to watch.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long a minute of the schedules takes here.
    pub minute: Duration,
    /// Ends after so many minutes; by default only Ctrl-C does.
    pub minutes: Option<u64>,
}

/// Every fifth minute; the others go every minute.
const REVERSE_EVERY: u64 = 5;

/// What the screen shows of a minute.
#[derive(Debug)]
pub struct Seen {
    /// Minutes of the schedules since the beginning.
    pub minute: u64,
    /// What went wrong on purpose so far.
    pub mishaps: u64,
    /// The last tick of each function: its name, and what it said, or how it failed.
    pub ticks: Vec<(&'static str, String)>,
    /// The last figures, if they could be read.
    pub lag: Option<LagReport>,
    /// The forward scan's cycle: its number, payments judged in it, all payments.
    pub cycle: (i64, i64, i64),
    /// Payments that were changed, ledger rows, and the most that one payment has of these.
    pub effects: (i64, i64, i64),
    /// Webhooks: accepted, lost, duplicated.
    pub webhooks: (u64, u64, u64),
}

/// The functions.
struct Functions {
    forward: ScanHost,
    sweep: ScanHost,
    reverse: ScanHost,
    dispatch: dispatch::Host<LogSink>,
    lag: lag_metric::Host,
}

/// Watches until it is dropped, or to the end of `pace`.
pub async fn run(options: &Options, pace: Pace) -> anyhow::Result<()> {
    let database = database(options).await?;
    let db = connect(&database.url()).await?;
    let (Some(sandbox), base, key) = stripe(options).await? else {
        anyhow::bail!("watch works with the sandbox alone: leave --stripe-key out");
    };
    let seconds = pace.minute.as_secs().max(1);
    let settings = [
        ("DATABASE_URL", database.url()),
        ("STRIPE_API_KEY", key),
        ("STRIPE_API_BASE", base),
        ("STRIPE_WEBHOOK_SECRETS", webhooks::SECRET.to_owned()),
        ("STRIPE_LIVEMODE", "false".to_owned()),
        ("MATCH_METADATA_KEY", METADATA_KEY.to_owned()),
        ("BATCH_SIZE", options.batch.to_string()),
        ("REQUESTS_PER_SECOND", options.requests_per_second.to_string()),
        ("CONCURRENCY", "32".to_owned()),
        ("GRACE_SECONDS", (2 * seconds).to_string()),
        ("SWEEP_AFTER_SECONDS", (2 * seconds).to_string()),
        ("MIN_CYCLE_SECONDS", (10 * seconds).to_string()),
    ];
    let lookup = |key: &str| settings.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone());
    let _front = webhooks::listen(&sandbox, &lookup).await?; // kept open to the end
    from_scenario(&db, &sandbox, i64::from(options.payments)).await?;
    let functions = Functions {
        forward: ScanHost::from_lookup(&lookup, None)?,
        sweep: ScanHost::from_lookup(&lookup, Some(sweep::SHARE))?,
        reverse: ScanHost::from_lookup(&lookup, Some(reverse_scan::SHARE))?,
        dispatch: dispatch::Host::from_lookup(&lookup, LogSink)?,
        lag: lag_metric::Host::from_lookup(&lookup)?,
    };
    let on_a_terminal = std::io::stdout().is_terminal();
    let mut shop = Shop::open();
    let (mut ticks, mut reverse) = (Vec::new(), "not yet".to_owned());
    let clock = Clock::System;
    for minute in 1.. {
        let next = clock.now() + pace.minute;
        shop.minute(&db, &sandbox).await?;
        let deadline = Some(next.max(clock.now() + Duration::from_secs(1)));
        ticks.clear();
        ticks.push(("forward-scan", said(functions.forward.tick(deadline, forward_scan::run).await)));
        ticks.push(("sweep", said(functions.sweep.tick(deadline, sweep::run).await)));
        if minute % REVERSE_EVERY == 1 {
            let input = Input::default();
            let tick = functions.reverse.tick(deadline, async |deps, now| reverse_scan::run(deps, now, &input).await);
            reverse = said(tick.await);
        }
        ticks.push(("reverse-scan", reverse.clone()));
        // webhooks come while the dispatcher works
        let (dispatched, _) = tokio::join!(functions.dispatch.tick(deadline), sandbox.deliver());
        ticks.push((
            "dispatch",
            match dispatched {
                Ok(report) => format!(
                    "{} repaired, {} there already, {} events published",
                    report.written, report.already_written, report.published
                ),
                Err(error) => format!("FAILED: {}", bootstrap::chain(&error)),
            },
        ));
        let lag = functions.lag.tick().await;
        ticks.push((
            "lag-metric",
            match &lag {
                Ok(report) => format!("read in {} ms", report.duration_ms),
                Err(error) => format!("FAILED: {}", bootstrap::chain(error)),
            },
        ));
        let seen = see(&db, &sandbox, minute, &shop, &ticks, lag.ok()).await?;
        let seen = if on_a_terminal { watch_screen::drawn(&seen, pace)? } else { watch_screen::line(&seen)? };
        say(&seen)?;
        if pace.minutes == Some(minute) {
            return Ok(());
        }
        clock.reach(next).await;
    }
    Ok(())
}

fn said(ended: Result<Report, bootstrap::TickError>) -> String {
    match ended {
        Ok(report) => watch_screen::of_a_scan(&report),
        Err(error) => format!("FAILED: {}", error.chain()),
    }
}

async fn see(
    db: &Client,
    sandbox: &Sandbox,
    minute: u64,
    shop: &Shop,
    ticks: &[(&'static str, String)],
    lag: Option<LagReport>,
) -> anyhow::Result<Seen> {
    let sql = "select coalesce((select cycle from reconciliation.cursor where job = $1), 0),
                      coalesce((select cycle_rows from reconciliation.cursor where job = $1), 0),
                      (select count(*) from payments),
                      (select count(*) from payments where version > 1),
                      (select count(*) from payment_ledger),
                      (select coalesce(max(n), 0) from (select count(*) n from payment_ledger group by payment_id) of_one)";
    let row = db.query_one(sql, &[&forward_scan::JOB]).await?;
    let webhooks = sandbox.with(|account, _| account.webhook_counters().clone());
    Ok(Seen {
        minute,
        mishaps: shop.mishaps + webhooks.lost,
        ticks: ticks.to_vec(),
        lag,
        cycle: (row.get(0), row.get(1), row.get(2)),
        effects: (row.get(3), row.get(4), row.get(5)),
        webhooks: (webhooks.accepted, webhooks.lost, webhooks.duplicated),
    })
}
