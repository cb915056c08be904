//! `cargo bench -p local --bench requests`: what a cycle costs in requests, one by one and in bulk, on accounts of different
//! shapes. Stripe is the fake, in this process; Postgres is real; the clock stands. Nothing here passes or fails by a number.

#![allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::float_arithmetic,
    reason = "a benchmark prints ratios"
)]

use anyhow::ensure;
use local::fake::FakeStripe;
use local::postgres::{ClusterOptions, Settings, environment, own_cluster};
use reconciler::budget::Budget;
use reconciler::clock::Clock;
use reconciler::config::{ScanSettings, StripeSettings};
use reconciler::domain::Timestamp;
use reconciler::scan::Deps;
use reconciler::scan::steps::Steps;
use reconciler::store::Keyset;
use reconciler::telemetry::Outcome;
use time::Duration;
use tokio_postgres::{Client, NoTls};

const PAYMENTS: i64 = 4_000;
const BATCH: i64 = 1_000;

/// An account.
struct Shape {
    label: &'static str,
    /// Our payments a second.
    a_second: f64,
    /// A PaymentIntent is made so many seconds after its row, at the least and at the most.
    offset: (i64, i64),
    /// Objects of others for each of ours.
    foreign: i64,
    /// The target of requests for 1,000 payments.
    target: u32,
}

const SHAPES: [Shape; 7] = [
    Shape { label: "0.005 a second, made within seconds", a_second: 0.005, offset: (-3, 8), foreign: 0, target: 12 },
    Shape { label: "0.05 a second, made within seconds", a_second: 0.05, offset: (-3, 8), foreign: 0, target: 12 },
    Shape { label: "1 a second, made within seconds", a_second: 1.0, offset: (-3, 8), foreign: 0, target: 12 },
    Shape { label: "10 a second, made within seconds", a_second: 10.0, offset: (-3, 8), foreign: 0, target: 12 },
    Shape { label: "100 a second, made within seconds", a_second: 100.0, offset: (-3, 8), foreign: 0, target: 20 },
    Shape { label: "0.05 a second, minutes to hours", a_second: 0.05, offset: (60, 10_800), foreign: 0, target: 25 },
    Shape { label: "0.05 a second, nine others for one", a_second: 0.05, offset: (-3, 8), foreign: 9, target: 115 },
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let cluster = own_cluster(Settings::from_lookup(&environment, None)?, ClusterOptions::default()).await?;
    println!("requests for 1,000 payments, {PAYMENTS} payments, batches of {BATCH}");
    println!("{:<38} {:>8} {:>10} {:>10} {:>8}", "account", "single", "bulk, 1st", "bulk, 2nd", "target");
    for shape in SHAPES {
        let database = cluster.empty_database().await?;
        let mut db = connect(&database.url()).await?;
        migrate::apply(&mut db, Some(migrate::DEFAULT_ADAPTER)).await?;
        let now = Timestamp::UNIX_EPOCH + Duration::seconds(1_795_000_000);
        let stripe = FakeStripe::new();
        fill(&db, &stripe, &shape, now).await?;
        let single = cycle(&db, &stripe, "single", now).await?;
        db.batch_execute("truncate reconciliation.cursor, reconciliation.observation, reconciliation.api_budget")
            .await?;
        let first = cycle(&db, &stripe, "bulk", now + Duration::days(1)).await?;
        let second = cycle(&db, &stripe, "bulk", now + Duration::days(2)).await?;
        let a_thousand = |requests: u64| requests as f64 * 1_000.0 / PAYMENTS as f64;
        println!(
            "{:<38} {:>8.0} {:>10.1} {:>10.1} {:>8}",
            shape.label,
            a_thousand(single),
            a_thousand(first),
            a_thousand(second),
            shape.target
        );
    }
    Ok(())
}

async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn fill(db: &Client, stripe: &FakeStripe, shape: &Shape, now: Timestamp) -> anyhow::Result<()> {
    let mut chance = fastrand::Rng::with_seed(5);
    let (mut references, mut created) = (Vec::new(), Vec::new());
    let gap = Duration::seconds_f64(1.0 / shape.a_second);
    let begin = now - Duration::days(2) - gap * PAYMENTS as i32;
    let mut objects = Vec::new();
    for number in 0..PAYMENTS {
        let row = begin + gap * number as i32;
        let made = row + Duration::seconds(chance.i64(shape.offset.0..=shape.offset.1));
        references.push(format!("pi_{number}"));
        created.push(row);
        objects.push((format!("pi_{number}"), made));
        for foreign in 0..shape.foreign {
            objects.push((
                format!("pi_foreign{number}x{foreign}"),
                row + gap.checked_div(10).unwrap_or_default() * foreign as i32,
            ));
        }
    }
    objects.sort_by_key(|(_, made)| *made);
    objects.iter().for_each(|(id, made)| stripe.put(id, "succeeded", *made));
    let sql = "insert into payments (order_id, stripe_payment_intent_id, status, created_at, updated_at)
               select 'o' || n, reference, 'paid', created, created
               from unnest($1::text[], $2::timestamptz[]) with ordinality as u (reference, created, n) order by n";
    db.execute(sql, &[&references, &created]).await?;
    db.batch_execute("analyze payments").await?;
    Ok(())
}

/// A whole cycle: how many requests it took. Everything has to be in sync at its end.
async fn cycle(db: &Client, stripe: &FakeStripe, observe: &str, now: Timestamp) -> anyhow::Result<u64> {
    let lookup = |key: &str| match key {
        "STRIPE_API_KEY" => Some("sk_test_bench".to_owned()),
        "STRIPE_API_BASE" => Some("http://127.0.0.1:1".to_owned()),
        "BATCH_SIZE" => Some(BATCH.to_string()),
        "REQUESTS_PER_SECOND" => Some("10000".to_owned()),
        "MIN_CYCLE_SECONDS" => Some("0".to_owned()),
        "OBSERVE" => Some(observe.to_owned()),
        _ => None,
    };
    let settings = ScanSettings::from_lookup(&lookup, &StripeSettings::from_lookup(&lookup)?)?;
    let clock = Clock::manual(now);
    let (mut requests, mut in_sync) = (0, 0);
    for _ in 0..100 {
        let budget = Budget::new("own", settings.requests_per_second, clock.clone());
        let deps = Deps {
            db,
            gateway: stripe,
            budget: &budget,
            clock: &clock,
            settings: &settings,
            keyset: Keyset::Id,
            deadline: None,
            steps: &Steps::Unwatched,
        };
        clock.advance(std::time::Duration::from_secs(1));
        let report = forward_scan::run(&deps, clock.now()).await?;
        requests += report.requests;
        in_sync += report.in_sync;
        if report.outcome == Outcome::Wrapped {
            ensure!(in_sync == PAYMENTS as u64, "{in_sync} of {PAYMENTS} are in sync");
            return Ok(requests);
        }
    }
    anyhow::bail!("no cycle has completed")
}
