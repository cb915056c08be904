//! The real EventBridge sink: against a server that refuses, fails and keeps silent at will, and, by the real binary, against
//! moto.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dispatch::sink::eventbridge::{EventBridgeSink, Limits};
use dispatch::{DispatchReport, run};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use local::moto::{Moto, MotoError};
use local::postgres::environment;
use reconciler::config::DispatchSettings;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use crate::binaries::binaries;
use crate::lambda::Host;
use crate::world::{World, connect};

/// What the server does with a request.
#[derive(Clone, Debug, Default)]
enum Behaviour {
    #[default]
    Accepts,
    /// Refuses the entries of this payment, and accepts the others.
    Refuses(&'static str),
    /// The same, but not where the entry comes alone.
    RefusesInCompany(&'static str),
    /// Takes the request and never answers.
    KeepsSilent,
    /// Answers with HTTP 500.
    Fails,
    /// Answers for one entry less than it was sent.
    ForgetsOne,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    behaviour: Behaviour,
    /// The entries of each request, as `payment name event_id`.
    requests: Vec<Vec<String>>,
    /// Those of them that were answered with an event id.
    accepted: Vec<String>,
}

/// An EventBridge of the test's own, which speaks `PutEvents` alone.
struct Bus {
    url: String,
    seen: Arc<Mutex<Seen>>,
    _serving: JoinSet<()>,
}

impl Bus {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut serving = JoinSet::new();
        let shared = Arc::clone(&seen);
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let seen = Arc::clone(&shared);
                let service = service_fn(move |request| answer(Arc::clone(&seen), request));
                // a client that gives up breaks its connection off
                connections.spawn(async move {
                    drop(
                        hyper::server::conn::http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service)
                            .await,
                    );
                });
            }
        });
        Self { url, seen, _serving: serving }
    }

    fn sink(&self, limits: Limits) -> EventBridgeSink {
        EventBridgeSink::at(&self.url, "payments", limits)
    }

    fn behave(&self, behaviour: Behaviour) {
        self.seen.lock().unwrap().behaviour = behaviour;
    }

    /// What has been seen since the last time.
    fn take(&self) -> Seen {
        let mut seen = self.seen.lock().unwrap();
        let behaviour = seen.behaviour.clone();
        std::mem::replace(&mut *seen, Seen { behaviour, ..Seen::default() })
    }
}

async fn answer(seen: Arc<Mutex<Seen>>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(request.headers()["x-amz-target"], "AWSEvents.PutEvents");
    let body: Value = serde_json::from_slice(&request.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let entries: Vec<(String, String)> = body["Entries"].as_array().unwrap().iter().map(named).collect();
    let behaviour = {
        let mut seen = seen.lock().unwrap();
        seen.requests.push(entries.iter().map(|(_, name)| name.clone()).collect());
        seen.behaviour.clone()
    };
    let refuses = |payment: &str| match &behaviour {
        Behaviour::Accepts | Behaviour::KeepsSilent | Behaviour::Fails | Behaviour::ForgetsOne => false,
        Behaviour::Refuses(refused) => payment == *refused,
        Behaviour::RefusesInCompany(refused) => payment == *refused && entries.len() > 1,
    };
    let mut answers: Vec<Value> = Vec::new();
    let mut accepted = Vec::new();
    for (payment, name) in &entries {
        if refuses(payment) {
            answers.push(json!({"ErrorCode": "ThrottlingException", "ErrorMessage": "Rate exceeded"}));
        } else {
            answers.push(json!({"EventId": format!("id-of-{name}")}));
            accepted.push(name.clone());
        }
    }
    let status = match &behaviour {
        Behaviour::KeepsSilent => std::future::pending().await,
        Behaviour::Fails => 500,
        Behaviour::ForgetsOne => {
            answers.pop();
            200
        }
        Behaviour::Accepts | Behaviour::Refuses(_) | Behaviour::RefusesInCompany(_) => {
            seen.lock().unwrap().accepted.extend(accepted);
            200
        }
    };
    let failed = answers.iter().filter(|answer| answer["ErrorCode"].is_string()).count();
    let body = match status {
        200 => json!({"FailedEntryCount": failed, "Entries": answers}),
        _ => json!({"__type": "InternalException"}),
    };
    let response = Response::builder().status(status).header("content-type", "application/x-amz-json-1.1");
    Ok(response.body(Full::new(Bytes::from(body.to_string()))).unwrap())
}

/// The payment of an entry, and `payment name event_id`. Checks what all entries have in common.
fn named(entry: &Value) -> (String, String) {
    assert_eq!(
        (&entry["Source"], &entry["EventBusName"]),
        (&json!("payment-reconciler"), &json!("payments")),
        "{entry}"
    );
    let detail: Value = serde_json::from_str(entry["Detail"].as_str().unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let payment = text(&detail["payment_id"]);
    let name = format!("{payment} {} {}", text(&entry["DetailType"]), text(&detail["event_id"]));
    (payment, name)
}

/// A world whose outbox holds two events of each of `payments` payments, and a session of the dispatcher's.
async fn with_events(payments: i64) -> (World, Client) {
    let world = World::new().await;
    let insert = "insert into reconciliation.outbox (aggregate, kind, type, payload, created_at, available_at)
                  select p::text, 'event', t, jsonb_build_object('payment_id', p::text), '2020-01-01', '2020-01-01'
                  from (values (1, 'PaymentFailed'), (2, 'PaymentCaptured')) v (n, t), generate_series(1, $1::bigint) p
                  order by v.n, p.p";
    world.owner.execute(insert, &[&payments]).await.unwrap();
    let db = connect(&world.database.url()).await;
    db.batch_execute("set role reconciler_writer").await.unwrap();
    (world, db)
}

async fn ticked(world: &World, db: &Client, sink: &EventBridgeSink) -> DispatchReport {
    let settings = DispatchSettings::from_lookup(&|_| None).unwrap();
    let report = run(db, sink, &settings, &world.dispatch_tick()).await.expect("a tick that succeeds");
    world.pass(5);
    report
}

const OPEN: &str = "select count(*) from reconciliation.outbox where delivered_at is null";
const WHY: &str = "select distinct last_error from reconciliation.outbox where last_error is not null";

/// One attempt, no waiting for what never comes.
fn once() -> Limits {
    let little = Duration::from_millis(100);
    Limits { connect: little, attempt: little, operation: little * 2, attempts: 1 }
}

/// Ticks against a bus that accepts, until nothing is left; then every event of `payments` payments has been accepted, in
/// order per payment, each under one event id.
async fn everything_goes_out_in_order(world: &World, db: &Client, bus: &Bus, payments: usize, before: &[String]) {
    bus.behave(Behaviour::Accepts);
    while world.number(OPEN).await > 0 {
        let report = ticked(world, db, &bus.sink(Limits::default())).await;
        assert!(report.published > 0 && report.failed == 0, "{report:?}");
    }
    let accepted = [before, &bus.take().accepted].concat();
    for payment in 1..=payments {
        let first = format!("{payment} PaymentFailed {payment}");
        let second = format!("{payment} PaymentCaptured {}", payment + payments);
        let of_it: Vec<&String> = accepted.iter().filter(|event| **event == first || **event == second).collect();
        assert_eq!(of_it, [&first, &second]);
    }
    assert_eq!(accepted.len(), payments * 2);
}

#[tokio::test]
async fn down_events_are_kept_and_go_out_later_in_order_per_payment() {
    let (world, db) = with_events(12).await;
    let nobody = EventBridgeSink::at("http://127.0.0.1:1", "payments", Limits::default());
    let report = ticked(&world, &db, &nobody).await;
    assert_eq!((report.claimed, report.failed, report.published), (12, 12, 0), "the later ones wait for the earlier");
    let why = world.texts(WHY).await;
    assert!(why[0].contains("PutEvents failed") && why[0].contains("refused"), "the cause is said: {why:?}");
    assert_eq!(world.number(OPEN).await, 24);
    everything_goes_out_in_order(&world, &db, &Bus::start().await, 12, &[]).await;
}

#[tokio::test]
async fn partly_failing_the_others_go_out_and_the_refused_one_keeps_its_order() {
    let (world, db) = with_events(12).await;
    let bus = Bus::start().await;
    bus.behave(Behaviour::Refuses("3"));
    let report = ticked(&world, &db, &bus.sink(Limits::default())).await;
    assert_eq!((report.claimed, report.failed, report.published), (12, 1, 11));
    assert_eq!(world.texts(WHY).await, ["the event was not accepted: ThrottlingException: Rate exceeded"]);
    let seen = bus.take();
    let sizes: Vec<usize> = seen.requests.iter().map(Vec::len).collect();
    assert_eq!(sizes, [10, 1, 2], "the refused one once more, alone");
    assert_eq!(seen.requests[1], ["3 PaymentFailed 3"]);
    everything_goes_out_in_order(&world, &db, &bus, 12, &seen.accepted).await;
}

#[tokio::test]
async fn what_is_refused_in_company_goes_out_alone_in_the_same_tick() {
    let (world, db) = with_events(5).await;
    let bus = Bus::start().await;
    bus.behave(Behaviour::RefusesInCompany("3"));
    let report = ticked(&world, &db, &bus.sink(Limits::default())).await;
    assert_eq!((report.claimed, report.failed, report.published), (5, 0, 5));
    let accepted = bus.take().accepted;
    everything_goes_out_in_order(&world, &db, &bus, 5, &accepted).await;
}

#[tokio::test]
async fn silent_the_call_ends_by_itself_and_events_keep_their_ids() {
    let (world, db) = with_events(12).await;
    let bus = Bus::start().await;
    bus.behave(Behaviour::KeepsSilent);
    let report = ticked(&world, &db, &bus.sink(once())).await;
    assert_eq!((report.claimed, report.failed, report.published), (12, 12, 0));
    let why = world.texts(WHY).await;
    assert!(why[0].contains("timed out") || why[0].contains("timeout"), "{why:?}");
    assert_eq!(world.number(OPEN).await, 24);
    bus.take();
    everything_goes_out_in_order(&world, &db, &bus, 12, &[]).await;
}

#[tokio::test]
async fn a_call_that_fails_as_a_whole_is_tried_twice_and_is_an_error_of_each_event() {
    let (world, db) = with_events(3).await;
    let bus = Bus::start().await;
    bus.behave(Behaviour::Fails);
    let report = ticked(&world, &db, &bus.sink(Limits::default())).await;
    assert_eq!((report.failed, report.published), (3, 0));
    let sizes: Vec<usize> = bus.take().requests.iter().map(Vec::len).collect();
    assert_eq!(sizes, [3, 3], "by the SDK, and not one by one as well");
    everything_goes_out_in_order(&world, &db, &bus, 3, &[]).await;
}

#[tokio::test]
async fn an_answer_for_fewer_entries_than_were_sent_accepts_none() {
    let (world, db) = with_events(3).await;
    let bus = Bus::start().await;
    bus.behave(Behaviour::ForgetsOne);
    let report = ticked(&world, &db, &bus.sink(once())).await;
    assert_eq!((report.failed, report.published), (3, 0));
    assert_eq!(world.texts(WHY).await, ["the event was not accepted: PutEvents answered for 2 of 3 entries"]);
    bus.take();
    everything_goes_out_in_order(&world, &db, &bus, 3, &[]).await;
}

/// moto, or nothing where it cannot be installed and nobody insists.
#[expect(clippy::explicit_write, reason = "the test runner keeps what the macro prints to itself")]
pub(crate) async fn moto() -> Option<Moto> {
    use std::io::Write as _;
    match Moto::start(environment).await {
        Ok(moto) => Some(moto),
        Err(MotoError::Install(why)) if environment("CI").as_deref() != Some("true") => {
            writeln!(std::io::stderr(), "SKIPPED: a check against moto. {why}").unwrap();
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn the_real_function_publishes_to_the_bus_by_its_name() {
    let Some(moto) = moto().await else { return };
    let queue = moto.call("sqs", "AmazonSQS.CreateQueue", &json!({"QueueName": "arrived"})).await.unwrap();
    let queue = queue["QueueUrl"].as_str().unwrap();
    let target = "arn:aws:sqs:us-east-1:123456789012:arrived";
    let pattern = r#"{"source": ["payment-reconciler"]}"#;
    for (operation, input) in [
        ("AWSEvents.CreateEventBus", json!({"Name": "payments"})),
        ("AWSEvents.PutRule", json!({"Name": "all", "EventBusName": "payments", "EventPattern": pattern})),
        (
            "AWSEvents.PutTargets",
            json!({"Rule": "all", "EventBusName": "payments", "Targets": [{"Id": "q", "Arn": target}]}),
        ),
    ] {
        moto.call("events", operation, &input).await.unwrap();
    }

    let (world, _) = with_events(12).await;
    let (url, endpoint) = (world.database.url(), moto.url());
    let settings = [
        ("DATABASE_URL", url.as_str()),
        ("EVENT_BUS", "payments"),
        ("AWS_ENDPOINT_URL", &endpoint),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "none"),
        ("AWS_SECRET_ACCESS_KEY", "hush-secret"),
    ];
    let host = Host::new(&binaries().join("dispatch"), &settings).await;
    for _ in 0..2 {
        let report = host.answer(json!({})).await;
        assert_eq!((&report["claimed"], &report["published"]), (&json!(12), &json!(12)), "{report}");
    }
    let (stdout, stderr) = host.kill();
    assert!(!stdout.contains("hush") && !stderr.contains("hush"), "{stdout}{stderr}");

    let mut arrived = BTreeSet::new();
    loop {
        let receive = json!({"QueueUrl": queue, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 0});
        let answer = moto.call("sqs", "AmazonSQS.ReceiveMessage", &receive).await.unwrap();
        let Some(messages) = answer["Messages"].as_array().filter(|messages| !messages.is_empty()) else { break };
        for message in messages {
            let event: Value = serde_json::from_str(message["Body"].as_str().unwrap()).unwrap();
            assert_eq!(event["source"], "payment-reconciler");
            let (detail, text) = (&event["detail"], |value: &Value| value.as_str().unwrap().to_owned());
            arrived.insert(format!(
                "{} {} {}",
                text(&event["detail-type"]),
                text(&detail["payment_id"]),
                text(&detail["event_id"])
            ));
        }
    }
    let expected = (1..=12).flat_map(|payment| {
        [format!("PaymentFailed {payment} {payment}"), format!("PaymentCaptured {payment} {}", payment + 12)]
    });
    assert_eq!(arrived, expected.collect());
}

#[tokio::test]
async fn a_bus_without_a_region_is_told_before_anything_is_called() {
    let settings = [("DATABASE_URL", "postgres://u@127.0.0.1:1/x"), ("EVENT_BUS", "payments"), ("HOME", "/nowhere")];
    let tick = crate::binaries::start(&binaries().join("tick"), &["dispatch"], settings);
    let (code, _, stderr) = tick.ended().await;
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("the setting AWS_REGION is missing"), "{stderr}");
}
