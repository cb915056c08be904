//! The metrics as they are written: parsed back, and checked against the rules of the Embedded Metric Format and the catalogue.

use std::collections::{BTreeMap, BTreeSet};

use bootstrap::metrics::catalogue::{self, FUNCTIONS, Function, Metric, NAMESPACE, RecordKind};
use bootstrap::metrics::{Record, lines, scan_records};
use dispatch::DispatchReport;
use lag_metric::{FindingsReport, JobReport, LagReport, OutboxReport, QueueReport};
use local::sandbox::{self, Sandbox};
use reconciler::telemetry::{Outcome, Report, ReverseFigures, SweepFacts};
use review::decide::{Recorded, Refused};
use review::digest::Digest;
use review::list::Totals;
use review::{Answer, Desk};
use serde_json::{Value, json};
use webhook::Delivery;

use crate::binaries::binaries;
use crate::lambda::Host;
use crate::world::{START, World};

const KEY: &str = "sk_test_hush_key";

/// A record that was read back.
#[derive(Debug)]
pub(crate) struct Read {
    dimensions: BTreeMap<String, String>,
    metrics: BTreeMap<String, u64>,
    line: Value,
}

/// The records among the lines of standard output; each is checked against the format's rules.
fn records_in(stdout: &str) -> Vec<Read> {
    let lines = stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")));
    lines.filter(|line: &Value| line.get("_aws").is_some()).map(read).collect()
}

fn read(line: Value) -> Read {
    let aws = line["_aws"].as_object().expect("an object");
    assert!(aws["Timestamp"].as_u64().expect("milliseconds") > 1_600_000_000_000, "{line}");
    let directives = aws["CloudWatchMetrics"].as_array().expect("directives");
    assert_eq!(directives.len(), 1, "{line}");
    let directive = &directives[0];
    assert_eq!(directive["Namespace"], NAMESPACE);
    let sets = directive["Dimensions"].as_array().expect("dimension sets");
    assert_eq!(sets.len(), 1, "each set is a metric that is paid for: {line}");
    let names: Vec<&str> = sets[0].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!((1..=30).contains(&names.len()), "{line}");
    let value_of = |name: &&str| {
        let value = line[*name].as_str().unwrap_or_else(|| panic!("the dimension {name} is no text: {line}"));
        assert!((1..=1024).contains(&value.len()) && value.is_ascii(), "{line}");
        ((*name).to_owned(), value.to_owned())
    };
    let dimensions = names.iter().map(value_of).collect();

    let named = directive["Metrics"].as_array().expect("metrics");
    assert!((1..=100).contains(&named.len()), "{line}");
    let mut metrics = BTreeMap::new();
    for metric in named {
        let name = metric["Name"].as_str().expect("a name");
        let value = line[name].as_u64().unwrap_or_else(|| panic!("{name} is no number: {line}"));
        assert!(metrics.insert(name.to_owned(), value).is_none(), "{name} twice: {line}");
        let unit = metric.get("Unit").map_or("None", |unit| unit.as_str().unwrap());
        assert_eq!(unit, unit_of(name), "{name}");
    }
    Read { dimensions, metrics, line }
}

fn unit_of(name: &str) -> &'static str {
    let all = FUNCTIONS.iter().flat_map(|function| std::iter::once(&function.tick).chain(function.further));
    let metric = all.flat_map(|kind| kind.metrics).find(|metric| metric.name == name);
    metric.unwrap_or_else(|| panic!("{name} is not in the catalogue")).unit.as_str()
}

fn written(records: &[Record]) -> Vec<Read> {
    records_in(std::str::from_utf8(&lines(records, START).unwrap()).unwrap())
}

fn names(metrics: &[Metric]) -> Vec<&str> {
    let names: BTreeSet<&str> = metrics.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), metrics.len(), "each name once");
    names.into_iter().collect()
}

/// That a record is of this kind, with every metric and no other.
fn assert_is(read: &Read, function: &Function, kind: &RecordKind) {
    assert_eq!(read.dimensions["Function"], function.name);
    assert_eq!(read.metrics.keys().map(String::as_str).collect::<Vec<_>>(), names(kind.metrics), "{}", function.name);
    let dimensions: BTreeSet<&str> = read.dimensions.keys().map(String::as_str).collect();
    assert_eq!(dimensions, kind.dimensions.iter().copied().collect(), "{}", function.name);
}

/// A report in which no two figures are the same.
fn busy(function: &'static str, sweep: Option<SweepFacts>, reverse: Option<ReverseFigures>) -> Report {
    let mut report = Report::new(function, "a-job", Outcome::AbortedConcurrentRun);
    report.scanned = 1_000;
    report.in_sync = 700;
    report.in_flight = 100;
    report.repairable = 80;
    report.needs_review = 20;
    report.unverifiable = 100;
    report.findings_opened = 5;
    report.findings_closed = 4;
    report.findings_escalated = 3;
    report.opened_by_kind = [("missed_success".to_owned(), 5)].into();
    report.closed_by_kind = [("missed_success".to_owned(), 1), ("unexpected:failed->succeeded".to_owned(), 3)].into();
    report.commands_queued = 6;
    report.requests = 25;
    report.throttled = 2;
    report.duration_ms = 1_234;
    report.sweep = sweep;
    report.reverse = reverse;
    report
}

fn lag_report() -> LagReport {
    LagReport {
        function: lag_metric::FUNCTION,
        lag_seconds: 1,
        never_verified: 2,
        not_met: 3,
        payments_estimate: 4,
        throughput_per_hour: 5,
        projected_cycle_seconds: 6,
        inflow_permille: 7,
        reverse_window_age_seconds: 20,
        jobs: vec![JobReport { job: "a-job".to_owned(), cycle_age_seconds: 21, since_completed_seconds: 22 }],
        open_findings: 8,
        oldest_finding_seconds: 9,
        findings: vec![FindingsReport {
            kind: "missed_success".to_owned(),
            verdict: "repairable".to_owned(),
            open: 31,
            oldest_seconds: 32,
        }],
        review_queue: ["under_1h", "1h_to_24h", "1d_to_3d", "over_3d"]
            .map(|age_band| QueueReport { age_band, open: 41 }),
        snoozed: 42,
        commands: OutboxReport { waiting: 10, oldest_seconds: 11, dead: 12 },
        events: OutboxReport { waiting: 13, oldest_seconds: 14, dead: 15 },
        budget_used_permille: 16,
        throttle_level: 17,
        stripe_reads_30_days: 18,
        duration_ms: 19,
        oldest_met: None,
    }
}

fn golden(read: &Read, expected: &[(&str, u64)]) {
    let expected: BTreeMap<String, u64> = expected.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    assert_eq!(read.metrics, expected);
}

#[test]
fn a_scan_emits_every_metric_and_its_kinds() {
    let facts = SweepFacts { candidates: 41, unresolved: 42, drifts_corrected: 43 };
    let window = ReverseFigures {
        window_complete: true,
        pages: 51,
        restarts: 52,
        objects: 53,
        known: 54,
        foreign: 55,
        unread: 56,
        candidates: 57,
        looks: 58,
        orphans: 59,
        unexplained: 60,
        ..ReverseFigures::default()
    };
    for (function, sweep, reverse) in [
        (&catalogue::FORWARD_SCAN, None, None),
        (&catalogue::UNFINISHED_SCAN, None, None),
        (&catalogue::SWEEP, Some(facts), None),
        (&catalogue::REVERSE_SCAN, None, Some(window)),
    ] {
        let report = busy(function.name, sweep, reverse.clone());
        let read = written(&scan_records(function, &report, false));
        assert_eq!(read.len(), 3, "the tick and two kinds");
        assert_is(&read[0], function, &function.tick);
        let mut expected = vec![
            ("Failed", 0),
            ("Duration", 1_234),
            ("Scanned", 1_000),
            ("InSync", 700),
            ("InFlight", 100),
            ("Repairable", 80),
            ("NeedsReview", 20),
            ("Unverifiable", 100),
            ("UnverifiablePermille", 100),
            ("DriftsPerThousandVerified", 111),
            ("FindingsOpened", 5),
            ("FindingsClosed", 4),
            ("FindingsEscalated", 3),
            ("CommandsQueued", 6),
            ("Requests", 25),
            ("Throttled", 2),
            ("AbortedConcurrentRun", 1),
            ("Withheld", 0),
            ("RowsPerHundredRequests", 4_000),
        ];
        if sweep.is_some() {
            expected.extend([("Candidates", 41), ("Unresolved", 42), ("DriftsCorrected", 43)]);
        }
        if reverse.is_some() {
            let names = ["Pages", "Restarts", "Objects", "Known", "Foreign", "Unread", "OrphanCandidates", "Looks"];
            expected.extend(names.into_iter().zip(51..));
            expected.extend([("Orphans", 59), ("Unexplained", 60), ("WindowsCompleted", 1)]);
        }
        golden(&read[0], &expected);
        assert_eq!(
            (&read[0].line["job"], &read[0].line["outcome"]),
            (&json!("a-job"), &json!("aborted_concurrent_run"))
        );
        for (record, kind, opened, closed) in
            [(&read[1], "missed_success", 5, 1), (&read[2], "unexpected:failed->succeeded", 0, 3)]
        {
            assert_is(record, function, &function.further[0]);
            assert_eq!(record.dimensions["Kind"], kind);
            golden(record, &[("FindingsOpened", opened), ("FindingsClosed", closed)]);
        }
        let withheld = Report { outcome: Outcome::Withheld, ..report };
        let failed = written(&scan_records(function, &withheld, true));
        let of = |name: &str| failed[0].metrics[name];
        assert_eq!((of("Failed"), of("Withheld"), of("AbortedConcurrentRun"), of("Scanned")), (1, 1, 0, 1_000));
    }
}

#[test]
fn a_tick_in_which_nothing_happened_emits_zeros() {
    let report = Report::new("forward-scan", "a-job", Outcome::Waiting);
    let read = written(&scan_records(&catalogue::FORWARD_SCAN, &report, false));
    assert_eq!(read.len(), 1);
    assert_is(&read[0], &catalogue::FORWARD_SCAN, &catalogue::FORWARD_SCAN.tick);
    assert!(read[0].metrics.values().all(|value| *value == 0), "{read:?}");
}

#[test]
fn the_dispatcher_the_webhook_and_the_lag_emit_every_metric() {
    let report = DispatchReport {
        function: dispatch::FUNCTION,
        claimed: 1,
        written: 2,
        already_written: 3,
        superseded: 4,
        published: 5,
        failed: 6,
        dead: 7,
        outdated: 8,
        given_back: 10,
        duration_ms: 9,
    };
    let read = written(&dispatch::metrics::records(&report));
    assert_eq!(read.len(), 1);
    assert_is(&read[0], &catalogue::DISPATCH, &catalogue::DISPATCH.tick);
    golden(
        &read[0],
        &[
            ("Failed", 0),
            ("Claimed", 1),
            ("DriftsCorrected", 2),
            ("AlreadyWritten", 3),
            ("Superseded", 4),
            ("Published", 5),
            ("RowsFailed", 6),
            ("RowsDead", 7),
            ("Outdated", 8),
            ("GivenBack", 10),
            ("Duration", 9),
        ],
    );

    let read = written(&webhook::metrics::records(Delivery::Refused, 5));
    assert_eq!(read.len(), 1);
    assert_is(&read[0], &catalogue::WEBHOOK, &catalogue::WEBHOOK.tick);
    assert_eq!((read[0].metrics["Refused"], read[0].metrics["Received"], read[0].metrics["Written"]), (1, 1, 0));

    let read = written(&lag_metric::metrics::records(&lag_report()));
    assert_eq!(read.len(), 7, "the tick, a job, a kind, four bands");
    let [by_job, by_kind, by_age] = catalogue::LAG_METRIC.further else { panic!("three further kinds of record") };
    for (record, kind) in read.iter().zip([&catalogue::LAG_METRIC.tick, by_job, by_kind, by_age]) {
        assert_is(record, &catalogue::LAG_METRIC, kind);
    }
    golden(
        &read[0],
        &[
            ("Failed", 0),
            ("Lag", 1),
            ("NeverVerified", 2),
            ("NotMet", 3),
            ("Payments", 4),
            ("ThroughputPerHour", 5),
            ("ProjectedCycle", 6),
            ("InflowPermilleOfThroughput", 7),
            ("WindowAge", 20),
            ("OpenFindings", 8),
            ("OldestFinding", 9),
            ("Snoozed", 42),
            ("CommandsWaiting", 10),
            ("OldestCommand", 11),
            ("CommandsDead", 12),
            ("EventsWaiting", 13),
            ("OldestEvent", 14),
            ("EventsDead", 15),
            ("BudgetUsedPermille", 16),
            ("ThrottleLevel", 17),
            ("StripeReads30Days", 18),
            ("Duration", 19),
        ],
    );
    assert_eq!(read[1].dimensions["Job"], "a-job");
    golden(&read[1], &[("CycleAge", 21), ("SinceCompletedCycle", 22)]);
    assert_eq!(
        (read[2].dimensions["Kind"].as_str(), read[2].dimensions["Verdict"].as_str()),
        ("missed_success", "repairable")
    );
    golden(&read[2], &[("OpenFindings", 31), ("OldestFinding", 32)]);
    assert_eq!(read[3].dimensions["AgeBand"], "under_1h");
    golden(&read[3], &[("ReviewQueue", 41)]);
}

#[test]
fn the_desks_emit_every_metric() {
    let recorded = |decision| {
        Answer::Recorded(Recorded {
            review: 1,
            decision,
            result: "accepted",
            finding: Some(2),
            job: None,
            who: "ann".to_owned(),
            who_is: "cognito",
            waited_seconds: 3_600,
        })
    };
    let read = written(&review::metrics::records(Desk::Deciding, &recorded("accept"), 7));
    assert_eq!(read.len(), 2, "the request, the decision");
    assert_is(&read[0], &catalogue::REVIEW_DECIDE, &catalogue::REVIEW_DECIDE.tick);
    golden(&read[0], &[("Failed", 0), ("Duration", 7), ("RequestsRefused", 0), ("Decisions", 1), ("Digests", 0)]);
    assert_is(&read[1], &catalogue::REVIEW_DECIDE, &catalogue::BY_DECISION);
    assert_eq!(read[1].dimensions["Decision"], "accept");
    golden(&read[1], &[("Decisions", 1), ("TimeToDecision", 3_600)]);

    let digest = Answer::Digest(Digest { day: "2026-12-01".to_owned(), announced: true, totals: Totals::default() });
    let read = written(&review::metrics::records(Desk::Deciding, &digest, 7));
    golden(&read[0], &[("Failed", 0), ("Duration", 7), ("RequestsRefused", 0), ("Decisions", 0), ("Digests", 1)]);

    let refused = Answer::Refused(Refused { reason: "closed", message: String::new() });
    let read = written(&review::metrics::records(Desk::Reading, &refused, 7));
    assert_eq!(read.len(), 1);
    assert_is(&read[0], &catalogue::REVIEW, &catalogue::REVIEW.tick);
    golden(&read[0], &[("Failed", 0), ("Duration", 7), ("RequestsRefused", 1)]);
}

#[test]
fn a_failed_tick_says_so_and_claims_no_state() {
    for function in FUNCTIONS {
        let read = written(&[Record::of_failure(&function, 77)]);
        assert_eq!((read[0].metrics["Failed"], read[0].metrics["Duration"]), (1, 77));
        let sums = function.tick.metrics.iter().filter(|metric| metric.nature == catalogue::Nature::Sum);
        assert_eq!(read[0].metrics.len(), sums.count(), "{}: every sum and no gauge", function.name);
        assert!(!read[0].metrics.contains_key("Lag") && !read[0].metrics.contains_key("UnverifiablePermille"));
    }
}

#[test]
fn what_the_format_does_not_allow_is_an_error_and_not_dropped() {
    let twice = vec![(catalogue::FAILED, 0), (catalogue::FAILED, 1)];
    assert!(lines(&[Record::of_tick(&catalogue::DISPATCH, twice)], START).is_err());
}

#[test]
fn functions_and_jobs_have_the_names_that_the_catalogue_says() {
    assert_eq!(
        FUNCTIONS.map(|function| function.name),
        [
            forward_scan::FUNCTION,
            forward_scan::unfinished::FUNCTION,
            sweep::FUNCTION,
            reverse_scan::FUNCTION,
            dispatch::FUNCTION,
            "webhook",
            lag_metric::FUNCTION,
            "review",
            "review-decide"
        ]
    );
    assert_eq!(lag_metric::JOBS, [forward_scan::JOB, sweep::JOB, reverse_scan::JOB]);
    assert_eq!(lag_metric::WALK, forward_scan::JOB);
}

/// Of a process's output: its records with one dimension, and those with more.
fn ticks_in(stdout: &str) -> (Vec<Read>, Vec<Read>) {
    records_in(stdout).into_iter().partition(|read| read.dimensions.len() == 1)
}

/// A function's program with the settings that make it that function.
async fn started(function: &Function, settings: &[(&str, &str)]) -> Host {
    let (program, further) = match function.name {
        "review-decide" => ("review", &[("REVIEW_DESK", "decide")][..]),
        name => (name, &[][..]),
    };
    Host::new(&binaries().join(program), &[settings, further].concat()).await
}

#[tokio::test]
async fn each_real_function_emits_one_record_a_tick_and_one_line() {
    let world = World::new().await;
    let insert = "insert into payments (order_id, stripe_payment_intent_id, status, created_at, updated_at)
                  values ('o', 'pi_1', 'pending', now() - interval '2 h', now() - interval '1 h')";
    world.owner.batch_execute(insert).await.unwrap();
    let stripe = Sandbox::start(sandbox::Options::default()).await.unwrap();
    let url = world.database.url();
    let settings = [
        ("DATABASE_URL", url.as_str()),
        ("STRIPE_API_KEY", KEY),
        ("STRIPE_API_BASE", &stripe.base_url),
        ("STRIPE_WEBHOOK_SECRETS", "whsec_hush"),
        ("STRIPE_LIVEMODE", "false"),
    ];
    for function in FUNCTIONS {
        let host = started(&function, &settings).await;
        host.answer(json!({})).await;
        host.answer(json!({})).await;
        let (stdout, stderr) = host.kill();
        let (ticks, further) = ticks_in(&stdout);
        assert_eq!(ticks.len(), 2, "{}: {stdout}{stderr}", function.name);
        for tick in &ticks {
            assert_is(tick, &function, &function.tick);
            assert_eq!(tick.metrics["Failed"], 0, "{stdout}");
        }
        for record in &further {
            let kind = function.further.iter().find(|kind| kind.dimensions.len() == record.dimensions.len());
            let kind = function.further.iter().find(|kind| record.dimensions.contains_key(kind.dimensions[1])).or(kind);
            assert_is(record, &function, kind.expect("a kind of record that the catalogue has"));
        }
        assert!(!stdout.contains("hush"), "{stdout}");
        let lines: Vec<Value> = stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .filter(|line: &Value| line["message"] == "tick")
            .collect();
        assert_eq!(lines.len(), if function == catalogue::WEBHOOK { 0 } else { 2 }, "{stdout}");
        assert!(lines.iter().all(|line| line["level"] == "INFO" && line["timestamp"].as_str().unwrap().ends_with('Z')));
        if function == catalogue::FORWARD_SCAN {
            assert_eq!(
                (ticks[0].metrics["NeedsReview"], further[0].dimensions["Kind"].as_str()),
                (1, "missing_externally")
            );
        }
        if function == catalogue::LAG_METRIC {
            assert_eq!(
                (ticks[0].metrics["OpenFindings"], ticks[0].metrics["StripeReads30Days"] > 0),
                (1, true),
                "{stdout}"
            );
        }
    }
}

#[tokio::test]
async fn an_error_and_a_panic_emit_the_ticks_record_too() {
    let host = Host::new(&binaries().join("examples/panicking"), &[]).await;
    host.answer(json!({})).await;
    host.failure(json!({"panic": true})).await;
    let (ticks, _) = ticks_in(&host.kill().0);
    assert_eq!(ticks.iter().map(|tick| tick.metrics["Failed"]).collect::<Vec<_>>(), [0, 1], "{ticks:?}");

    let unreachable = "postgres://somebody:hush@127.0.0.1:1/shop";
    let stripe = [("STRIPE_API_KEY", KEY), ("STRIPE_API_BASE", "http://127.0.0.1:1")];
    for function in FUNCTIONS {
        // the settings are missing, then the database is out of reach
        for settings in [vec![], [("DATABASE_URL", unreachable)].into_iter().chain(stripe).collect()] {
            let host = started(&function, &settings).await;
            match function {
                catalogue::WEBHOOK => drop(host.answer(json!({})).await), // Stripe is told 5xx
                catalogue::REVIEW => drop(host.failure(json!({"action": "list"})).await),
                catalogue::REVIEW_DECIDE => drop(host.failure(json!({"action": "digest"})).await),
                _ => drop(host.failure(json!({})).await),
            }
            let (stdout, _) = host.kill();
            let (ticks, _) = ticks_in(&stdout);
            assert_eq!((ticks.len(), ticks[0].metrics["Failed"]), (1, 1), "{}: {stdout}", function.name);
            assert!(!stdout.contains("hush"), "{stdout}");
        }
    }
}

#[tokio::test]
async fn a_withheld_batch_emits_its_counts_as_a_failed_tick() {
    let world = World::new().await;
    let insert = "insert into payments (order_id, stripe_payment_intent_id, status, created_at, updated_at)
                  select 'o', 'pi_' || n, 'paid', now() - interval '2 h', now() - interval '1 h' from generate_series(1, 60) n";
    world.owner.batch_execute(insert).await.unwrap();
    let stripe = Sandbox::start(sandbox::Options::default()).await.unwrap();
    let url = world.database.url();
    let settings = [
        ("DATABASE_URL", url.as_str()),
        ("STRIPE_API_KEY", KEY),
        ("STRIPE_API_BASE", &stripe.base_url),
        ("REQUESTS_PER_SECOND", "1000"),
        ("OBSERVE", "single"), // its requests are counted
    ];
    let host = Host::new(&binaries().join("forward-scan"), &settings).await;
    assert_eq!(host.failure(json!({})).await.0, "BatchWithheld");
    let (stdout, _) = host.kill();
    let (ticks, _) = ticks_in(&stdout);
    assert_eq!((ticks[0].metrics["Failed"], ticks[0].metrics["Requests"]), (1, 60), "{stdout}");
    assert_is(&ticks[0], &catalogue::FORWARD_SCAN, &catalogue::FORWARD_SCAN.tick);
}

#[test]
fn the_readmes_table_is_the_catalogue() {
    let readme = include_str!("../../README.md");
    let (_, table) = readme.split_once("### Metrics").expect("a section of metrics");
    let table = table.split("\n## ").next().unwrap().split("\n### ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let listed: BTreeMap<&str, &str> = rows
        .flat_map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            cells[1].split('`').skip(1).step_by(2).map(|name| (name, cells[2])).collect::<Vec<_>>()
        })
        .collect();
    let all = FUNCTIONS.iter().flat_map(|function| std::iter::once(&function.tick).chain(function.further));
    let metrics = all.flat_map(|kind| kind.metrics).map(|metric| (metric.name, metric.unit.as_str())).collect();
    assert_eq!(listed, metrics);
    assert!(table.contains(NAMESPACE), "the namespace is named");
}
