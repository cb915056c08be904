//! `cargo bench -p local --bench cold_start`: from the start of a function's process to its first answer, under a Lambda Runtime
//! API on this machine. The real `forward-scan`: settings, two secrets from a Secrets Manager (moto's), TLS to Postgres with a
//! bundle of one authority, one tick over an empty table. Beside it the same with the password in the settings and a socket,
//! and a function that answers and does nothing else. Medians of so many starts, taken in turn, so that what disturbs one
//! disturbs all. Nothing here passes or fails by a number.

#![allow(
    clippy::disallowed_methods,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    reason = "a benchmark reads the clock and prints ratios"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use lambda_simulator::Simulator;
use local::moto::Moto;
use local::postgres::{ClusterOptions, Settings, environment, own_cluster};
use local::tls_front::{TlsFront, acceptor, authority};
use serde_json::{Value, json};
use tokio_postgres::NoTls;

const STARTS: usize = 15;
const LOGIN: &str = "bench_login";

/// What it is called, its binary, its settings.
type Row<'a> = (&'a str, &'a Path, &'a [(&'a str, &'a str)]);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let functions = build()?;
    let options = ClusterOptions { password_of: Some(LOGIN), ..ClusterOptions::default() };
    let cluster = own_cluster(Settings::from_lookup(&environment, None)?, options).await?;
    let database = cluster.empty_database().await?;
    let (mut db, connection) = tokio_postgres::connect(&database.url(), NoTls).await?;
    tokio::spawn(connection);
    migrate::apply(&mut db, Some(migrate::DEFAULT_ADAPTER)).await?;
    db.batch_execute(&format!("create role {LOGIN} login password 'bench' in role reconciler_scan")).await?;

    let moto = Moto::start(environment).await?;
    let issuer = authority("bench")?;
    let front = TlsFront::start(&database.url(), Some(acceptor(&issuer, "localhost")?)).await?;
    let ca = std::env::temp_dir().join(format!("reconciler-bench-{}.pem", std::process::id()));
    std::fs::write(&ca, issuer.pem())?;
    let behind: tokio_postgres::Config = database.url().parse()?;
    let name = behind.get_dbname().context("a database")?;
    let login = json!({"engine": "postgres", "host": "localhost", "port": front.port, "dbname": name, "username": LOGIN,
                       "password": "bench"});
    let login = secret(&moto, "login", &login.to_string()).await?;
    let key = secret(&moto, "key", "rk_test_bench").await?;
    let endpoint = moto.url();
    let url = database.url();
    let stripe = ("STRIPE_API_BASE", "http://127.0.0.1:1");
    let whole = [
        ("DATABASE_SECRET_ARN", login.as_str()),
        ("STRIPE_SECRET_ARN", &key),
        ("DATABASE_CA_FILE", ca.to_str().context("a path")?),
        ("AWS_ENDPOINT_URL", &endpoint),
        ("AWS_ACCESS_KEY_ID", "none"),
        ("AWS_SECRET_ACCESS_KEY", "none"),
        stripe,
    ];
    let plain = [("DATABASE_URL", url.as_str()), ("STRIPE_API_KEY", "rk_test_bench"), stripe];

    let (bare, ours) = (functions.join("examples/bare"), functions.join("forward-scan"));
    let rows: [Row<'_>; 3] = [
        ("a bare function", &bare, &[]),
        ("forward-scan: settings, socket", &ours, &plain),
        ("forward-scan: two secrets, TLS", &ours, &whole),
    ];
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..STARTS {
        for ((_, binary, settings), times) in rows.iter().zip(&mut times) {
            times.push(first_answer(binary, settings).await?);
        }
    }
    std::fs::remove_file(&ca)?;
    println!("from the start of the process to the first answer, milliseconds, {STARTS} starts");
    println!("{:<34} {:>8} {:>8} {:>8}", "", "median", "least", "most");
    for ((label, _, _), times) in rows.iter().zip(&mut times) {
        times.sort_unstable();
        let at = |place: usize| times[place].as_secs_f64() * 1_000.0;
        println!("{label:<34} {:>8.1} {:>8.1} {:>8.1}", at(STARTS / 2), at(0), at(STARTS - 1));
    }
    Ok(())
}

/// The optimised binaries, and the folder that they are in.
fn build() -> anyhow::Result<PathBuf> {
    let bench = std::env::current_exe()?;
    let folder = bench.parent().and_then(Path::parent).context("target/release/deps/<bench>")?.to_owned();
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--profile", "bench", "-p", "forward-scan", "-p", "bootstrap"])
        .args(["--bin", "forward-scan", "--example", "bare", "--target-dir"])
        .arg(folder.parent().context("target")?)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .status()?;
    ensure!(status.success(), "the binaries do not build");
    Ok(folder)
}

async fn secret(moto: &Moto, name: &str, text: &str) -> anyhow::Result<String> {
    let input = json!({"Name": name, "SecretString": text});
    let created: Value = moto.call("secretsmanager", "secretsmanager.CreateSecret", &input).await?;
    Ok(created["ARN"].as_str().context("an ARN")?.to_owned())
}

async fn first_answer(binary: &Path, settings: &[(&str, &str)]) -> anyhow::Result<Duration> {
    let simulator =
        Simulator::builder().function_name("bench").invocation_timeout(Duration::from_secs(60)).build().await?;
    let variables = simulator.lambda_env_vars();
    let id = simulator.enqueue_payload(json!({})).await;
    let began = Instant::now();
    let mut child = Command::new(binary)
        .env_clear()
        .envs(variables)
        .envs(settings.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let ended = simulator.wait_for_invocation_complete(&id, Duration::from_secs(60)).await;
    let took = began.elapsed();
    child.kill()?;
    child.wait()?;
    let ended = ended?;
    ensure!(ended.error.is_none() && ended.response.is_some(), "it failed: {:?}", ended.error);
    Ok(took)
}
