//! `cargo bench`: what the reconciler itself costs, with a Stripe that answers at once. Prints tables; nothing here passes or
//! fails by a time. Postgres keeps its own defaults for durability. Numbers of one run compare with each other, not with
//! those of another machine.

#![allow(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    reason = "a benchmark reads the clock and prints ratios"
)]

use std::time::{Duration, Instant};

use anyhow::Context;
use lag_metric::queries;
use local::postgres::{ClusterOptions, Database, Settings, environment, own_cluster};
use reconciler::budget::Budget;
use reconciler::clock::Clock;
use reconciler::config::{ScanSettings, StripeSettings};
use reconciler::domain::external::{External, ExternalPayment, ExternalStatus};
use reconciler::domain::id::ExternalRef;
use reconciler::gateway::{Gateway, GatewayError, ListPage, ListQuery};
use reconciler::scan::Deps;
use reconciler::scan::steps::Steps;
use reconciler::store::{Keyset, database_time};
use reconciler::telemetry::Outcome;
use tokio_postgres::{Client, NoTls};

const ROWS: i64 = 100_000;
const DEEP_ROWS: i64 = 1_000_000;

/// A Stripe that answers at once: everything has succeeded.
struct AtOnce;

impl Gateway for AtOnce {
    async fn retrieve(&self, id: &ExternalRef) -> Result<External, GatewayError> {
        Ok(External::Present(ExternalPayment {
            id: id.clone(),
            status: ExternalStatus::Succeeded,
            amount_minor: 1_000,
            amount_received_minor: 1_000,
            currency: "eur".to_owned(),
            created: time::OffsetDateTime::UNIX_EPOCH,
            livemode: true,
            metadata: std::collections::BTreeMap::new(),
            decline: None,
            cancellation_reason: None,
        }))
    }

    async fn list(&self, _query: &ListQuery) -> Result<ListPage, GatewayError> {
        Ok(ListPage { payments: Vec::new(), unreadable: Vec::new(), next: None })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let settings = Settings::from_lookup(&environment, None)?;
    let cluster =
        own_cluster(settings, ClusterOptions { durable: true, tcp_port: None, ..ClusterOptions::default() }).await?;
    let database = cluster
        .database("bench", async |url| {
            migrate::apply(&mut connect(&url).await?, Some(migrate::DEFAULT_ADAPTER)).await?;
            Ok(())
        })
        .await?;
    let version: String = connect(&database.url()).await?.query_one("show server_version", &[]).await?.get(0);
    println!("PostgreSQL {version}, its own durability settings, on this machine\n");
    throughput(&database).await?;
    repairs(&database).await?;
    deep_reads(&database).await
}

async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn throughput(database: &Database) -> anyhow::Result<()> {
    let db = connect(&database.url()).await?;
    fill(&db, ROWS).await?;
    println!("load + judge + commit of {ROWS} payments that are in sync, Stripe answering at once, no rate limit");
    println!("{:<28} {:>10} {:>12} {:>26}", "", "rows/s", "against (a)", "round trips per batch");
    println!("{:>80}", "(autovacuum's included)");
    let baseline = one_statement_a_row(&db).await?;
    println!("{:<28} {:>10} {:>12} {:>26}", "(a) one statement a row", rate(ROWS, baseline), "1.0 x", "one a row");
    for (cycle, batch) in [("first", 200), ("first", 1_000), ("second", 1_000), ("first", 5_000)] {
        if cycle == "first" {
            db.batch_execute("truncate reconciliation.cursor, reconciliation.observation").await?;
        }
        let (took, ticks, round_trips) = one_cycle(database, batch).await?;
        let label = format!("batch {batch}, {cycle} cycle");
        let ratio = baseline.as_secs_f64() / took.as_secs_f64();
        let per_batch = round_trips as f64 / ticks as f64;
        println!("{label:<28} {:>10} {:>11.1}x {per_batch:>26.1}", rate(ROWS, took), ratio);
    }
    println!();
    Ok(())
}

fn rate(rows: i64, took: Duration) -> String {
    format!("{:.0}", rows as f64 / took.as_secs_f64())
}

async fn fill(db: &Client, rows: i64) -> anyhow::Result<()> {
    let sql = format!(
        "truncate payments restart identity;
         insert into payments (order_id, stripe_payment_intent_id, status, created_at, updated_at)
         select 'o' || n, 'pi_' || n, 'paid', now() - interval '90 days' + n * interval '1 second', now() - interval '1 day'
         from generate_series(1, {rows}) n"
    );
    db.batch_execute(&sql).await.context("could not fill the payments")?;
    db.batch_execute("vacuum analyze payments").await.context("could not analyze the payments")
}

/// The plain way, for comparison: read a batch, then write each row's observation with a statement of its own.
async fn one_statement_a_row(db: &Client) -> anyhow::Result<Duration> {
    let read = db.prepare("select id, created_at from payments where id > $1 order by id limit 1000").await?;
    let write = db
        .prepare(
            "insert into reconciliation.observation as o
                 (payment_id, payment_created_at, external_status, observed_at, verified_through)
             select p.id, p.created_at, 'succeeded', clock_timestamp(), clock_timestamp()
             from reconciliation.payment p where p.id = $1
             on conflict (payment_id) do update set observed_at = excluded.observed_at,
                 verified_through = excluded.verified_through",
        )
        .await?;
    let began = Instant::now();
    let mut last = 0_i64;
    loop {
        let rows = db.query(&read, &[&last]).await?;
        let Some(end) = rows.last() else { return Ok(began.elapsed()) };
        last = end.get(0);
        db.batch_execute("begin").await?;
        for row in &rows {
            db.execute(&write, &[&row.get::<_, i64>(0)]).await?;
        }
        db.batch_execute("commit").await?;
    }
}

/// One cycle: how long it took, in how many ticks, with how many statements.
async fn one_cycle(database: &Database, batch: i64) -> anyhow::Result<(Duration, i64, i64)> {
    let db = connect(&database.url()).await?;
    db.batch_execute(bootstrap::database::SESSION).await?;
    db.batch_execute(&format!("set role reconciler_scan; {}", bootstrap::database::SCAN_SESSION)).await?;
    let watch = connect(&database.url()).await?;
    let settings = scan_settings(batch)?;
    let clock = Clock::System;
    let budget = Budget::unmetered(database_time(&db).await?, clock.clone());
    let steps = Steps::Unwatched;
    let deps = Deps {
        db: &db,
        gateway: &AtOnce,
        budget: &budget,
        clock: &clock,
        settings: &settings,
        keyset: Keyset::Id,
        deadline: None,
        steps: &steps,
    };
    statements(&db, &watch).await?;
    let counting = statements(&db, &watch).await?;
    let before = statements(&db, &watch).await?;
    let counting = before - counting; // what counting itself costs
    let began = Instant::now();
    let mut ticks = 0;
    loop {
        let now = database_time(&db).await?;
        let report = forward_scan::run(&deps, now).await?;
        ticks += 1;
        if report.outcome == Outcome::Wrapped {
            break;
        }
        anyhow::ensure!(report.outcome == Outcome::Advanced, "unexpected: {report:?}");
    }
    let took = began.elapsed();
    Ok((took, ticks, statements(&db, &watch).await? - before - counting))
}

/// How many transactions this database has seen: a tick's statements are one each. Both sessions publish their
/// counts first.
async fn statements(db: &Client, watch: &Client) -> anyhow::Result<i64> {
    for session in [db, watch] {
        session.batch_execute("select pg_stat_force_next_flush()").await?;
    }
    let count = watch.query_one("select xact_commit from pg_stat_database where datname = current_database()", &[]);
    Ok(count.await?.get(0))
}

fn scan_settings(batch: i64) -> anyhow::Result<ScanSettings> {
    let lookup = |key: &str| match key {
        "STRIPE_API_KEY" => Some("sk_test_bench".to_owned()),
        "STRIPE_API_BASE" => Some("http://127.0.0.1:1".to_owned()),
        "BATCH_SIZE" => Some(batch.to_string()),
        "OBSERVE" => Some("single".to_owned()), // its Stripe has no lists
        "MIN_CYCLE_SECONDS" => Some("0".to_owned()),
        _ => None,
    };
    Ok(ScanSettings::from_lookup(&lookup, &StripeSettings::from_lookup(&lookup)?)?)
}

/// The dispatcher over commands that all apply, and its claim with a million delivered rows behind them.
async fn repairs(database: &Database) -> anyhow::Result<()> {
    const COMMANDS: i64 = 10_000;
    let db = connect(&database.url()).await?;
    db.batch_execute(&format!(
        "truncate payments, payment_ledger, reconciliation.outbox restart identity;
         insert into payments (order_id, stripe_payment_intent_id, created_at, updated_at)
         select 'o' || n, 'pi_' || n, now() - interval '2 h', now() - interval '1 h' from generate_series(1, {COMMANDS}) n;
         insert into reconciliation.outbox (aggregate, kind, type, payload, created_at, available_at, delivered_at)
         select n::text, 'event', 'PaymentCaptured', '{{}}', now(), now(), now() from generate_series(1, 1000000) n;
         insert into reconciliation.outbox (aggregate, kind, type, payload, created_at, available_at)
         select n::text, 'command', 'ApplyPaymentSucceeded',
                jsonb_build_object('payment_id', n::text, 'external_ref', 'pi_' || n, 'finding_id', n), now(), now()
         from generate_series(1, {COMMANDS}) n"
    ))
    .await?;
    for table in ["payments", "reconciliation.outbox"] {
        db.batch_execute(&format!("vacuum analyze {table}")).await?;
    }
    db.batch_execute(bootstrap::database::SESSION).await?;
    let settings = reconciler::config::DispatchSettings::from_lookup(&|_| None)?;
    let now = database_time(&db).await?;
    let mut claims = Vec::new();
    let (began, mut written) = (Instant::now(), 0);
    while written < COMMANDS {
        let claiming = Instant::now();
        let claimed = dispatch::outbox::claim(&db, now, settings.batch, settings.lease_seconds).await?;
        claims.push(claiming.elapsed());
        anyhow::ensure!(!claimed.is_empty(), "only {written} of {COMMANDS} commands were there");
        let tick = dispatch::Tick::begin(&Clock::System, now, None);
        let report = dispatch::work(&db, &dispatch::sink::LogSink, &settings, &tick, &claimed).await?;
        written += i64::try_from(report.written)?;
    }
    let took = began.elapsed();
    claims.sort_unstable();
    println!("one dispatcher, batches of {}, 1,000,000 delivered rows behind {COMMANDS} commands", settings.batch);
    println!("{:<28} {:>10}", "commands applied a second", rate(COMMANDS, took));
    println!("{:<28} {:>7.2} ms (median, a batch)\n", "claim", claims[claims.len() / 2].as_secs_f64() * 1_000.0);
    Ok(())
}

/// Every figure of `lag-metric`, with everything met and the walk a hundred payments before its end.
async fn figures(database: &Database) -> anyhow::Result<()> {
    let mut db = connect(&database.url()).await?;
    db.batch_execute("set role reconciler_metrics").await?;
    let last = "select payment_created_at, payment_id::text from reconciliation.observation order by payment_id desc limit 1 offset 100";
    let last = db.query_one(last, &[]).await?;
    let furthest = (last.get(0), last.get(1));
    let now = database_time(&db).await?;
    println!("\neach figure of lag-metric, warm, median of 21");
    let mut times: Vec<(&str, Vec<Duration>)> = Vec::new();
    for _ in 0..21 {
        let db = db.transaction().await?;
        let mut took = Vec::new();
        let mut began = Instant::now();
        let mut lap = |name| {
            took.push((name, began.elapsed()));
            began = Instant::now();
        };
        queries::cursors(&db).await?;
        lap("cursors");
        queries::oldest_met(&db, None).await?;
        lap("oldest_met");
        queries::not_met(&db, Keyset::Id, Some(&furthest)).await?;
        lap("not_met, 100 beyond");
        queries::not_met(&db, Keyset::Id, None).await?;
        lap("not_met, all beyond");
        queries::inflow(&db, furthest.0).await?;
        lap("inflow");
        queries::findings(&db, now).await?;
        lap("findings");
        queries::outbox(&db).await?;
        lap("outbox");
        queries::budget(&db, "own", now).await?;
        lap("budget");
        queries::payments_estimate(&db).await?;
        lap("payments_estimate");
        db.commit().await?;
        for (name, took) in took {
            match times.iter_mut().find(|(known, _)| *known == name) {
                Some((_, times)) => times.push(took),
                None => times.push((name, vec![took])),
            }
        }
    }
    for (name, mut times) in times {
        times.sort_unstable();
        println!("{name:<24} {:>8.2} ms", times[10].as_secs_f64() * 1_000.0);
    }
    Ok(())
}

async fn deep_reads(database: &Database) -> anyhow::Result<()> {
    let db = connect(&database.url()).await?;
    db.batch_execute("truncate payments, reconciliation.cursor, reconciliation.observation restart identity").await?;
    fill(&db, DEEP_ROWS).await?;
    db.batch_execute(
        "insert into reconciliation.observation
             (payment_id, payment_created_at, external_status, observed_at, verified_through)
         select id, created_at, 'succeeded', now() - random() * interval '1 day', now() - random() * interval '1 day'
         from payments",
    )
    .await?;
    for table in ["payments", "reconciliation.observation"] {
        db.batch_execute(&format!("vacuum analyze {table}")).await?;
    }
    println!("reads with {DEEP_ROWS} payments, the cursor at the middle, warm, median of 21");
    let by_id = include_str!("../../../shared/src/store/sql/batch_by_id.sql");
    let lag = "select min(verified_through) from reconciliation.observation";
    for (label, sql) in [("load a batch of 200", by_id.replace("$2", "200")), ("read the lag", lag.to_owned())] {
        let sql = sql
            .replace("$1", "'bench'")
            .replace("$3", "null")
            .replace("$4", &format!("'{}'", DEEP_ROWS / 2))
            .replace("$5", "'id'");
        let mut times = Vec::new();
        for _ in 0..21 {
            let began = Instant::now();
            db.simple_query(&sql).await?;
            times.push(began.elapsed());
        }
        times.sort_unstable();
        println!("{label:<24} {:>8.2} ms", times[10].as_secs_f64() * 1_000.0);
        for row in db.query(&format!("explain (costs off) {sql}"), &[]).await? {
            let line: &str = row.get(0);
            if ["Index", "Seq Scan", "Sort", "Limit"].iter().any(|word| line.contains(word)) && !line.contains("Cond") {
                println!("    {line}");
            }
        }
    }
    figures(database).await
}
