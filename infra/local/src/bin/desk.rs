//! `cargo review`: the review desk at a terminal. Settings from the environment, as everywhere; on record is the login of
//! `DATABASE_URL`, which has to be allowed to take on `reconciler_metrics`, and to decide `reconciler_reviewer`.
//!
//! Exit code 0: done. 1: refused or failed, and nothing is written. 2: wrong usage or settings.

use std::io::Write;
use std::process::ExitCode;

use bootstrap::lambda::environment;
use bootstrap::{chain, logging};
use clap::{Args, Parser, Subcommand};
use local::desk;
use review::{Answer, Desk, Host};
use serde_json::{Value, json};
use tracing_subscriber::filter::LevelFilter;

/// List what waits for a person, look at one finding, decide.
#[derive(Parser)]
#[command(name = "cargo review", bin_name = "cargo review")]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// The open findings, the most severe first.
    List {
        /// Only this kind.
        #[arg(long)]
        kind: Option<String>,
        /// needs_review, repairable, snoozed or all.
        #[arg(long)]
        state: Option<String>,
        /// Only what has been open for at least so many hours.
        #[arg(long)]
        min_age_hours: Option<i64>,
        /// Only this payment: its key, its PaymentIntent, or what its metadata names it by.
        #[arg(long)]
        payment: Option<String>,
        /// severity, oldest or newest.
        #[arg(long)]
        sort: Option<String>,
        /// Findings on a page, 1 to 200.
        #[arg(long)]
        limit: Option<i64>,
        /// The next page: what the page before has named.
        #[arg(long)]
        after: Option<String>,
    },
    /// One finding, with all that a decision needs.
    Show {
        /// Its number.
        finding: i64,
    },
    /// The difference is all right while kind, states and reference stay as they are.
    Accept(OfFinding),
    /// Change the payment to what Stripe says.
    Apply {
        /// reverse_paid (paid → failed) or accept_late_success (failed → paid).
        transition: String,
        #[command(flatten)]
        of: OfFinding,
    },
    /// Ask for the repair again, from zero attempts.
    Retry(OfFinding),
    /// Look again later.
    Snooze {
        #[command(flatten)]
        of: OfFinding,
        /// For so many days, 1 to 30.
        #[arg(long, value_parser = clap::value_parser!(i64).range(1..=30))]
        days: i64,
    },
    /// Let a withheld batch through, this once. The error that withheld it names job and revision.
    Release {
        /// Which job's batch.
        #[arg(long)]
        job: String,
        /// The revision that the error named.
        #[arg(long)]
        revision: i64,
        /// Why.
        #[arg(long)]
        note: String,
    },
}

#[derive(Args)]
struct OfFinding {
    /// Its number.
    finding: i64,
    /// As it was shown: a decision on what has changed since is refused.
    #[arg(long)]
    revision: i64,
    /// Why.
    #[arg(long)]
    note: String,
}

fn decision(decision: &str, of: &OfFinding, transition: Option<&str>, days: Option<i64>) -> (Desk, Value) {
    let OfFinding { finding, revision, note } = of;
    let request = json!({"action": "decide", "decision": decision, "finding": finding, "revision": revision, "note": note,
        "transition": transition, "days": days});
    (Desk::Deciding, request)
}

/// The action as the desk is asked everywhere. Members that were not given are left out.
fn request(action: &Action) -> (Desk, Value) {
    let (desk, mut request) = match action {
        Action::List { kind, state, min_age_hours, payment, sort, limit, after } => (
            Desk::Reading,
            json!({"action": "list", "kind": kind, "state": state, "min_age_hours": min_age_hours, "payment": payment,
                "sort": sort, "limit": limit, "after": after}),
        ),
        Action::Show { finding } => (Desk::Reading, json!({"action": "show", "finding": finding})),
        Action::Accept(of) => decision("accept", of, None, None),
        Action::Retry(of) => decision("retry", of, None, None),
        Action::Apply { transition, of } => decision("apply", of, Some(transition), None),
        Action::Snooze { of, days } => decision("snooze", of, None, Some(*days)),
        Action::Release { job, revision, note } => (
            Desk::Deciding,
            json!({"action": "decide", "decision": "release", "job": job, "revision": revision, "note": note}),
        ),
    };
    if let Some(members) = request.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    (desk, request)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    logging::start(logging::Output::Stderr, LevelFilter::WARN);
    let (desk, request) = request(&arguments.action);
    let host = match Host::from_lookup(&environment, desk) {
        Ok(host) => host,
        Err(error) => {
            eprintln!("error: {}", chain(&error));
            return ExitCode::from(2);
        }
    };
    let answer = match host.answer(&request, None).await {
        Ok(answer) => answer,
        Err(error) => {
            eprintln!("error: {}", chain(&error));
            return ExitCode::FAILURE;
        }
    };
    if let Answer::Refused(refused) = &answer {
        eprintln!("refused: {}", review::text::plain(&refused.message));
        // what no finding could be asked for is wrong usage
        return if refused.reason == "request_unusable" { ExitCode::from(2) } else { ExitCode::FAILURE };
    }
    match std::io::stdout().write_all(desk::screen(&answer).as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
