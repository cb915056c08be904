//! `cargo demo`: see the reconciler at work on this machine.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use local::demo::screen::NobodyReads;
use local::demo::watch::Pace;
use local::demo::{Options, run, watch};

/// See the reconciler at work on this machine: a throw-away Postgres, a Stripe sandbox, payments with every kind of drift, one
/// whole cycle of the forward scan with an outage in the middle, the repairs with late webhooks beside them, and a closing
/// screen. Leaves nothing running. Exit code 1 where a payment was changed twice or a repair is left over.
#[derive(Parser)]
#[command(name = "cargo demo", bin_name = "cargo demo")]
struct Arguments {
    /// `watch`: all functions on their schedules against a shop in which things go wrong, on one screen, until Ctrl-C.
    #[arg(value_enum)]
    what: Option<What>,
    /// Of watch: how long a minute of the schedules takes, in milliseconds.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(100..=60_000), requires = "what")]
    minute_ms: u64,
    /// Of watch: ends after so many minutes of the schedules.
    #[arg(long, requires = "what")]
    minutes: Option<u64>,
    /// How many payments; a few more where that is less than one of each sort.
    #[arg(long, default_value_t = 3_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    payments: u32,
    /// Requests a second to Stripe. 25 at the most with a real key.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rps: Option<u32>,
    /// Payments in one tick.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    batch: u32,
    /// How long the sandbox takes for an answer, in milliseconds.
    #[arg(long, default_value_t = 20)]
    latency_ms: u64,
    /// Use this Postgres server; the demo works in a database of its own making there, and drops it.
    #[arg(long)]
    database_url: Option<String>,
    /// Use Stripe with this test key instead of the sandbox. Nothing is written to Stripe.
    #[arg(long)]
    stripe_key: Option<String>,
    /// Where that key is good.
    #[arg(long, requires = "stripe_key", hide = true)]
    stripe_base: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    Watch,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // `cargo demo -- watch` is as good as `cargo demo watch`
    let (first, rest): (Vec<_>, Vec<_>) = std::env::args_os().enumerate().partition(|(place, _)| *place == 0);
    let rest = rest.into_iter().skip_while(|(place, word)| *place == 1 && word == "--");
    let arguments = Arguments::parse_from(first.into_iter().chain(rest).map(|(_, word)| word));
    let options = Options {
        payments: arguments.payments,
        requests_per_second: arguments.rps.unwrap_or(if arguments.stripe_key.is_some() { 10 } else { 400 }),
        batch: arguments.batch,
        latency: Duration::from_millis(arguments.latency_ms),
        database_url: arguments.database_url,
        stripe_key: arguments.stripe_key,
        stripe_base: arguments.stripe_base,
    };
    if options.stripe_key.as_ref().is_some_and(|key| !key.contains("_test_")) {
        eprintln!("error: --stripe-key takes a test key only (rk_test_… or sk_test_…)");
        return ExitCode::from(2);
    }
    // Ctrl-C ends the run by dropping it, so that the demo's database goes too where the server is somebody's.
    let pace = Pace { minute: Duration::from_millis(arguments.minute_ms), minutes: arguments.minutes };
    let shown = async {
        match arguments.what {
            None => run(&options).await,
            Some(What::Watch) => watch::run(&options, pace).await,
        }
    };
    let ended = tokio::select! {
        ended = shown => ended,
        interrupted = tokio::signal::ctrl_c(), if arguments.what.is_some() => interrupted.map_err(Into::into),
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Into::into).and(Err(anyhow::anyhow!("interrupted"))),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        // `cargo demo | head`: there is nobody to tell
        Err(error) if error.is::<NobodyReads>() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
