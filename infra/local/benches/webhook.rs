//! `cargo bench --bench webhook`: how long Stripe waits for the webhook's 2xx, over HTTP on the loopback interface, with Postgres
//! and the sender on the same cores. Requests come at a fixed pace whether or not earlier ones were answered, and each one's
//! time runs from the moment at which it was due, so that a pause here counts for everything behind it. Four receivers take
//! turns, as so many Lambda processes would: one takes one event at a time. Beside the events that commit, the same number of
//! a type that is not used, which touch no database: what is left of the time is HTTP and this machine.

#![allow(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::disallowed_methods,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    reason = "a benchmark reads the clock and prints ratios"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hmac::{Hmac, KeyInit, Mac};
use local::function_url::{FunctionUrl, webhook};
use local::postgres::{ClusterOptions, Settings, environment, own_cluster};
use reconciler::clock::Clock;
use serde_json::json;
use sha2::Sha256;
use tokio_postgres::{Client, NoTls};

const A_SECOND: u32 = 200;
const SECONDS: u32 = 30;
const REQUESTS: u32 = A_SECOND * SECONDS;
const RECEIVERS: usize = 4;
const SECRET: &str = "whsec_bench";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // the HTTP client wants one, if only to build
    ensure!(rustls::crypto::ring::default_provider().install_default().is_ok(), "there is a crypto provider already");
    let options = ClusterOptions { durable: true, tcp_port: None, ..ClusterOptions::default() };
    let cluster = own_cluster(Settings::from_lookup(&environment, None)?, options).await?;
    let database = cluster
        .database("bench", async |url| {
            migrate::apply(&mut connect(&url).await?, Some(migrate::DEFAULT_ADAPTER)).await?;
            Ok(())
        })
        .await?;
    let db = connect(&database.url()).await?;
    let version: String = db.query_one("show server_version", &[]).await?.get(0);
    let fill = format!(
        "insert into payments (order_id, stripe_payment_intent_id, created_at, updated_at)
         select 'o' || n, 'pi_' || n, now() - interval '2 h', now() - interval '1 h' from generate_series(1, {REQUESTS}) n"
    );
    db.batch_execute(&fill).await?;
    db.batch_execute("vacuum analyze payments").await?;

    let settings = [
        ("DATABASE_URL", database.url()),
        ("STRIPE_WEBHOOK_SECRETS", SECRET.to_owned()),
        ("STRIPE_LIVEMODE", "true".to_owned()),
    ];
    let lookup = |key: &str| settings.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone());
    let mut receivers = Vec::new();
    for _ in 0..RECEIVERS {
        let host = Arc::new(webhook::Host::from_lookup(&lookup)?);
        receivers.push(FunctionUrl::start(Clock::System, webhook(host, Clock::System)).await?);
    }
    println!(
        "PostgreSQL {version}, its own durability settings; {A_SECOND} requests a second for {SECONDS} s, {RECEIVERS} receivers"
    );
    println!("{:<44} {:>9} {:>9} {:>9}", "from due to answered, milliseconds", "median", "p99", "most");
    for (label, event_type) in [
        ("a type that is not used, no database", "payment_intent.created"),
        ("payment paid: event, transition, commit", "payment_intent.succeeded"),
    ] {
        let times = paced(&receivers, event_type).await.context(label)?;
        let at = |per_mille: usize| times[(times.len() - 1) * per_mille / 1000].as_secs_f64() * 1_000.0;
        println!("{label:<44} {:>9.2} {:>9.2} {:>9.2}", at(500), at(990), at(1000));
    }
    let paid: i64 = db.query_one("select count(*) from payments where status = 'paid'", &[]).await?.get(0);
    ensure!(paid == i64::from(REQUESTS), "{paid} of {REQUESTS} payments are paid");
    println!("{paid} payments are paid");
    Ok(())
}

async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The time of each request, in growing order.
async fn paced(receivers: &[FunctionUrl], event_type: &str) -> anyhow::Result<Vec<Duration>> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let began = Instant::now() + Duration::from_millis(100);
    let mut under_way = Vec::new();
    for number in 0..REQUESTS {
        let due = began + Duration::from_secs(1) * number / A_SECOND;
        tokio::time::sleep_until(due.into()).await;
        let body = json!({
            "id": format!("evt_{event_type}_{number}"), "object": "event", "type": event_type, "livemode": true,
            "data": {"object": {"id": format!("pi_{}", number + 1), "object": "payment_intent", "status": "succeeded"}},
        });
        let url = &receivers[number as usize % receivers.len()].base_url;
        let request = signed(http.post(url), &body.to_string())?;
        under_way.push(tokio::spawn(async move {
            let answer = request.send().await?;
            ensure!(answer.status().is_success(), "answered {}", answer.status());
            answer.bytes().await?;
            Ok(due.elapsed())
        }));
    }
    let mut times = Vec::new();
    for request in under_way {
        times.push(request.await??);
    }
    times.sort_unstable();
    Ok(times)
}

fn signed(request: reqwest::RequestBuilder, body: &str) -> anyhow::Result<reqwest::RequestBuilder> {
    let time = Clock::System.now().unix_timestamp();
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes())?;
    mac.update(format!("{time}.{body}").as_bytes());
    let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(request
        .header("content-type", "application/json")
        .header("stripe-signature", format!("t={time},v1={hex}"))
        .body(body.to_owned()))
}
