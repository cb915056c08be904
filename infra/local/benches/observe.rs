//! `cargo bench -p local --bench observe`: a whole first cycle, one by one and in bulk: time, CPU, requests, memory, database.
//!
//! - **real** rows are the `tick` binary as a process of its own, against the sandbox over HTTP with 50 ms to each answer, and a
//!   Postgres with its own durability settings, all on this machine. CPU time and peak memory are that process's, from `/proc`.
//! - **clock** rows are for what would take hours: the same scan in this process, with a clock that the budget and the
//!   sandbox's stand-in share and that jumps where somebody waits. The stand-in counts, and refuses what comes sooner than the
//!   rate allows. Their wall time is that clock's; an answer takes no time there, so it is the requests' share alone.
//!
//! Every payment is paid here and succeeded there, one a second, each PaymentIntent made within seconds of its row; a run in
//! which not every payment is in sync at the end fails. Nothing else passes or fails by a number. Takes about ten minutes.

#![allow(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    reason = "a benchmark reads the clock and prints ratios"
)]

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use local::fake::FakeStripe;
use local::postgres::{ClusterOptions, Database, Settings, environment, own_cluster};
use local::sandbox::{Options, PaymentIntentSeed, Sandbox};
use reconciler::budget::Budget;
use reconciler::clock::Clock;
use reconciler::config::{ScanSettings, StripeSettings};
use reconciler::domain::Timestamp;
use reconciler::domain::external::{External, ExternalStatus};
use reconciler::domain::id::ExternalRef;
use reconciler::gateway::{Gateway, GatewayError, ListPage, ListQuery};
use reconciler::scan::Deps;
use reconciler::scan::steps::Steps;
use reconciler::store::Keyset;
use reconciler::telemetry::Outcome;
use tokio_postgres::{Client, NoTls};

const LATENCY: Duration = Duration::from_millis(50);
const UNLIMITED: u32 = 10_000;

/// What one run came to. What the row does not measure is `None`.
#[derive(Default)]
struct Run {
    wall: Duration,
    requests: u64,
    cpu: Option<Duration>,
    peak_kb: Option<u64>,
    round_trips: i64,
    database: Duration,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = ClusterOptions { durable: true, ..ClusterOptions::default() };
    let cluster = own_cluster(Settings::from_lookup(&environment, None)?, options).await?;
    for payments in [10_000, 120_000] {
        let database = cluster.empty_database().await?;
        let mut db = connect(&database.url()).await?;
        migrate::apply(&mut db, Some(migrate::DEFAULT_ADAPTER)).await?;
        let version: String = db.query_one("show server_version", &[]).await?.get(0);
        let created = fill(&db, payments).await?;
        let sandbox = Sandbox::start(Options { latency: LATENCY, ..Options::default() }).await?;
        let stripe = FakeStripe::new();
        for (number, created) in created.iter().enumerate() {
            let id = format!("pi_bench{number}");
            stripe.put(&id, "succeeded", *created);
            let seed = PaymentIntentSeed { status: ExternalStatus::Succeeded, ..PaymentIntentSeed::new(*created) };
            sandbox.with(|account, _| account.insert(PaymentIntentSeed { id: Some(id), ..seed }))?;
        }
        println!("{payments} payments, first cycle; PostgreSQL {version}; {} ms to each answer", LATENCY.as_millis());
        println!(
            "{:<7} {:<7} {:>6} {:>10} {:>9} {:>7} {:>9} {:>9} {:>8} {:>8} {:>8} {:>9}",
            "",
            "observe",
            "batch",
            "rate",
            "wall s",
            "CPU s",
            "requests",
            "per 1,000",
            "rows/s",
            "peak MB",
            "round t.",
            "in db s"
        );
        for (observe, batch, rate, real) in [
            ("single", 1_000, UNLIMITED, payments == 10_000),
            ("single", 1_000, 25, false),
            ("single", 1_000, 5, false),
            ("bulk", 1_000, UNLIMITED, true),
            ("bulk", 1_000, 25, true),
            ("bulk", 1_000, 5, true),
            ("bulk", 20_000, UNLIMITED, true),
            ("bulk", 20_000, 25, true),
        ] {
            reset(&db).await?;
            let settings = Scan { observe, batch, rate };
            let run = if real {
                in_a_process(&database, &db, &sandbox, &settings, payments).await?
            } else {
                by_the_clock(&database, &db, &stripe, &settings, payments).await?
            };
            print(&settings, real, payments, &run);
        }
        println!();
    }
    Ok(())
}

/// How to scan.
struct Scan {
    observe: &'static str,
    batch: u32,
    rate: u32,
}

impl Scan {
    fn setting(&self, key: &str) -> Option<String> {
        match key {
            "STRIPE_API_KEY" => Some("sk_test_bench".to_owned()),
            "STRIPE_API_BASE" => Some("http://127.0.0.1:1".to_owned()),
            "BATCH_SIZE" => Some(self.batch.to_string()),
            "REQUESTS_PER_SECOND" => Some(self.rate.to_string()),
            "CONCURRENCY" => Some("8".to_owned()),
            "MIN_CYCLE_SECONDS" => Some("0".to_owned()),
            "TICK_SECONDS" => Some("600".to_owned()),
            "OBSERVE" => Some(self.observe.to_owned()),
            _ => None,
        }
    }
}

fn print(scan: &Scan, real: bool, payments: i64, run: &Run) {
    let none = || "-".to_owned();
    let wall = run.wall.as_secs_f64();
    println!(
        "{:<7} {:<7} {:>6} {:>10} {:>9.2} {:>7} {:>9} {:>9.1} {:>8.0} {:>8} {:>8} {:>9.2}",
        if real { "real" } else { "clock" },
        scan.observe,
        scan.batch,
        if scan.rate == UNLIMITED { "unlimited".to_owned() } else { format!("{}/s", scan.rate) },
        wall,
        run.cpu.map_or_else(none, |cpu| format!("{:.2}", cpu.as_secs_f64())),
        run.requests,
        run.requests as f64 * 1_000.0 / payments as f64,
        payments as f64 / wall,
        run.peak_kb.map_or_else(none, |kb| format!("{:.1}", kb as f64 / 1_024.0)),
        run.round_trips,
        run.database.as_secs_f64(),
    );
}

async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// One payment a second, the last two days ago. When each PaymentIntent was created.
async fn fill(db: &Client, payments: i64) -> anyhow::Result<Vec<Timestamp>> {
    let mut chance = fastrand::Rng::with_seed(5);
    let last = Clock::System.now() - time::Duration::days(2);
    let (mut references, mut rows, mut created) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..payments {
        let row = last - time::Duration::seconds(payments - number);
        references.push(format!("pi_bench{number}"));
        rows.push(row);
        created.push(row + time::Duration::seconds(chance.i64(-3..=8)));
    }
    let sql = "insert into payments (order_id, stripe_payment_intent_id, status, created_at, updated_at)
               select 'o' || n, reference, 'paid', created, created
               from unnest($1::text[], $2::timestamptz[]) with ordinality as u (reference, created, n) order by n";
    db.execute(sql, &[&references, &rows]).await?;
    db.batch_execute("vacuum analyze payments").await?;
    Ok(created)
}

/// As if no scan had ever run.
async fn reset(db: &Client) -> anyhow::Result<()> {
    let sql = "truncate reconciliation.cursor, reconciliation.observation, reconciliation.bulk_learned, reconciliation.api_budget,
                   reconciliation.stripe_reads;
               checkpoint";
    db.batch_execute(sql).await.context("could not reset")
}

/// Transactions of this database so far, a statement each, and the time that it has spent in statements.
async fn database_work(db: &Client) -> anyhow::Result<(i64, f64)> {
    db.batch_execute("select pg_stat_force_next_flush()").await?;
    let sql = "select xact_commit, active_time from pg_stat_database where datname = current_database()";
    let row = db.query_one(sql, &[]).await?;
    Ok((row.get(0), row.get(1)))
}

/// `cargo tick forward-scan --until-cycle`, as the optimised binary.
async fn in_a_process(
    database: &Database,
    db: &Client,
    sandbox: &Sandbox,
    scan: &Scan,
    payments: i64,
) -> anyhow::Result<Run> {
    let keys = [
        "STRIPE_API_KEY",
        "BATCH_SIZE",
        "REQUESTS_PER_SECOND",
        "CONCURRENCY",
        "MIN_CYCLE_SECONDS",
        "TICK_SECONDS",
        "OBSERVE",
    ];
    sandbox.with(|account, _| account.clear_log());
    let (before, active) = database_work(db).await?;
    let began = Instant::now();
    let child = Command::new(env!("CARGO_BIN_EXE_tick"))
        .args(["forward-scan", "--until-cycle"])
        .env_clear()
        .envs(keys.iter().filter_map(|key| scan.setting(key).map(|value| (key, value))))
        .env("DATABASE_URL", database.url())
        .env("MALLOC_MMAP_THRESHOLD_", "131072") // as the template sets it
        .env("STRIPE_API_BASE", &sandbox.base_url)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (used, output) = tokio::task::spawn_blocking(move || watch(child)).await??;
    let wall = began.elapsed();
    let (mut requests, mut in_sync, mut wrapped) = (0, 0, false);
    for line in output.lines() {
        let report: serde_json::Value = serde_json::from_str(line)?;
        requests += report["requests"].as_u64().context("requests")?;
        in_sync += report["in_sync"].as_i64().context("in_sync")?;
        wrapped = report["outcome"] == "wrapped";
    }
    ensure!(wrapped && in_sync == payments, "{in_sync} of {payments} are in sync: {output}");
    let (after, active_after) = database_work(db).await?;
    Ok(Run {
        wall,
        requests,
        cpu: Some(used.cpu),
        peak_kb: Some(used.peak_kb),
        round_trips: after - before,
        database: Duration::from_secs_f64(((active_after - active) / 1_000.0).max(0.0)),
    })
}

/// What a process has used.
#[derive(Default)]
struct Used {
    cpu: Duration,
    peak_kb: u64,
}

/// Watches a process to its end. Its CPU time is read when it has ended and nobody has taken note of that yet; its peak
/// memory every 10 ms, since that is gone by then.
fn watch(mut child: Child) -> anyhow::Result<(Used, String)> {
    let mut stdout = child.stdout.take().context("stdout")?;
    let reader = std::thread::spawn(move || {
        let mut output = String::new();
        stdout.read_to_string(&mut output).map(|_| output)
    });
    let id = child.id();
    let mut used = Used::default();
    loop {
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("");
        used.peak_kb = used.peak_kb.max(peak.trim().trim_end_matches(" kB").parse().unwrap_or(0));
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
        // behind the name, which may hold anything: state, ten more, and then user and system time in hundredths
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        if fields[0] == "Z" {
            let hundredths: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
            used.cpu = Duration::from_millis(hundredths * 10);
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let status = child.wait()?;
    let output = reader.join().map_err(|_panic| anyhow::anyhow!("the reader has panicked"))??;
    ensure!(status.success(), "{status}: {output}");
    Ok((used, output))
}

/// Stripe by the clock: what comes sooner than the rate allows is refused, and that is an error here.
struct Paced {
    stripe: FakeStripe,
    clock: Clock,
    interval: time::Duration,
    last: Arc<Mutex<Option<Timestamp>>>,
}

impl Paced {
    fn admit(&self) -> Result<(), GatewayError> {
        let now = self.clock.now();
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        assert!(last.is_none_or(|last| now - last >= self.interval), "a request came too soon");
        *last = Some(now);
        Ok(())
    }
}

impl Gateway for Paced {
    async fn retrieve(&self, id: &ExternalRef) -> Result<External, GatewayError> {
        self.admit()?;
        self.stripe.retrieve(id).await
    }

    async fn list(&self, query: &ListQuery) -> Result<ListPage, GatewayError> {
        self.admit()?;
        self.stripe.list(query).await
    }
}

async fn by_the_clock(
    database: &Database,
    db: &Client,
    stripe: &FakeStripe,
    scan: &Scan,
    payments: i64,
) -> anyhow::Result<Run> {
    let session = connect(&database.url()).await?;
    session.batch_execute(bootstrap::database::SESSION).await?;
    session.batch_execute(&format!("set role reconciler_scan; {}", bootstrap::database::SCAN_SESSION)).await?;
    let lookup = |key: &str| scan.setting(key);
    let settings = ScanSettings::from_lookup(&lookup, &StripeSettings::from_lookup(&lookup)?)?;
    let (before, active) = database_work(db).await?;
    let start = Clock::System.now();
    let clock = Clock::manual(start);
    let paced = Paced {
        stripe: stripe.clone(),
        clock: clock.clone(),
        interval: time::Duration::SECOND / scan.rate,
        last: Arc::default(),
    };
    let budget = Budget::new("own", scan.rate, clock.clone());
    let (mut requests, mut in_sync, mut wrapped) = (0, 0, false);
    while !wrapped {
        let deps = Deps {
            db: &session,
            gateway: &paced,
            budget: &budget,
            clock: &clock,
            settings: &settings,
            keyset: Keyset::Id,
            deadline: None,
            steps: &Steps::Unwatched,
        };
        let report = forward_scan::run(&deps, clock.now()).await?;
        ensure!(matches!(report.outcome, Outcome::Advanced | Outcome::Wrapped), "unexpected: {report:?}");
        requests += report.requests;
        in_sync += i64::try_from(report.in_sync)?;
        wrapped = report.outcome == Outcome::Wrapped;
    }
    ensure!(in_sync == payments, "{in_sync} of {payments} are in sync");
    let wall = Duration::try_from(clock.now() - start)?;
    session.batch_execute("select pg_stat_force_next_flush()").await?;
    let (after, active_after) = database_work(db).await?;
    Ok(Run {
        wall,
        requests,
        round_trips: after - before,
        database: Duration::from_secs_f64(((active_after - active) / 1_000.0).max(0.0)),
        ..Run::default()
    })
}
