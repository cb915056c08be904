//! The webhook receiver: an event is applied and recorded, once, or neither.

use std::path::PathBuf;

use base64::Engine;
use bootstrap::database::{Database, DatabaseError};
use hmac::{Hmac, KeyInit, Mac};
use reconciler::clock::Clock;
use reconciler::config::{DatabaseSettings, Secret, WebhookSecrets, WebhookSettings};
use reconciler::domain::Timestamp;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio_postgres::Client;
use webhook::endpoint::Endpoint;
use webhook::http::Response;
use webhook::inbox::InboxError;
use webhook::{ROLE, WebhookError};

use crate::lambda::Host;
use crate::world::{Adapter, START, World, connect};

/// What Stripe is told of one delivery.
async fn handle(db: &Database, endpoint: &Endpoint, request: Value, now: Timestamp) -> Result<Response, WebhookError> {
    Ok(webhook::take(db, endpoint, request, now).await?.response)
}

pub(crate) const SECRET: &str = "whsec_hush_new";
const OLD_SECRET: &str = "whsec_hush_old";

/// A receiver as one Lambda process has it.
fn receiver(url: &str) -> Database {
    Database::new(&DatabaseSettings::by_url(url, None), ROLE).unwrap()
}

fn endpoint(livemode: bool) -> Endpoint {
    let secrets = WebhookSecrets::Given(vec![Secret::new(OLD_SECRET), Secret::new(SECRET)]);
    Endpoint::new(WebhookSettings { secrets, livemode })
}

pub(crate) fn event(id: &str, event_type: &str, reference: &str) -> Value {
    let status = event_type.strip_prefix("payment_intent.").unwrap_or_default();
    json!({
        "id": id, "object": "event", "type": event_type, "livemode": true, "api_version": "2020-08-27",
        "data": {"object": {"id": reference, "object": "payment_intent", "status": status, "client_secret": "hush_client"}},
    })
}

pub(crate) fn signed(body: &str, secret: &str, at: Timestamp) -> String {
    let time = at.unix_timestamp();
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{time}.{body}").as_bytes());
    let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={time},v1={hex}")
}

/// What a Function URL hands over.
pub(crate) fn delivery(body: &str, signature: &str) -> Value {
    json!({
        "version": "2.0", "rawPath": "/", "requestContext": {"http": {"method": "POST"}}, "isBase64Encoded": false,
        "headers": {"content-type": "application/json", "stripe-signature": signature}, "body": body,
    })
}

fn delivered(event: &Value) -> Value {
    delivery(&event.to_string(), &signed(&event.to_string(), SECRET, START))
}

async fn deliver(db: &Database, event: &Value) -> Result<(u16, &'static str), WebhookError> {
    let Response { status_code, body, .. } = handle(db, &endpoint(true), delivered(event), START).await?;
    Ok((status_code, body))
}

async fn inbox(world: &World) -> Vec<String> {
    world
        .texts("select event_id, type, external_ref, outcome from reconciliation.webhook_inbox order by event_id")
        .await
}

/// What the transitions of a world with the default adapter have come to: states, ledger, events.
async fn effects(world: &World) -> (Vec<String>, Vec<String>, Vec<String>) {
    let states = world.texts("select status from payments order by id").await;
    let ledger = world.texts("select entry from payment_ledger order by id").await;
    (states, ledger, world.outbox().await)
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test]
async fn each_type_does_what_it_says_and_no_more() {
    for (event_type, before, outcome, after, written) in [
        ("payment_intent.succeeded", "pending", "written", "paid", Some(("succeeded", "event PaymentCaptured"))),
        ("payment_intent.succeeded", "finalizing", "written", "paid", Some(("succeeded", "event PaymentCaptured"))),
        ("payment_intent.succeeded", "paid", "already_written", "paid", None),
        ("payment_intent.succeeded", "failed", "superseded", "failed", None),
        ("payment_intent.canceled", "pending", "written", "failed", Some(("canceled", "event PaymentFailed"))),
        ("payment_intent.canceled", "failed", "already_written", "failed", None),
        ("payment_intent.canceled", "paid", "superseded", "paid", None),
        ("payment_intent.payment_failed", "finalizing", "no_transition", "finalizing", None),
        ("payment_intent.processing", "expired", "no_transition", "expired", None),
    ] {
        let world = World::new().await;
        world.payment(Some("pi_1"), before, 60).await;
        world.payment(Some("pi_2"), "pending", 60).await;
        let db = receiver(&world.database.url());
        let case = format!("{event_type} of {before}");
        assert_eq!(deliver(&db, &event("evt_1", event_type, "pi_1")).await.unwrap(), (200, outcome), "{case}");
        assert_eq!(inbox(&world).await, [format!("evt_1 {event_type} pi_1 {outcome}")], "{case}");
        let (ledger, events) = written.map_or((vec![], vec![]), |(entry, sent)| (texts(&[entry]), texts(&[sent])));
        assert_eq!(effects(&world).await, (texts(&[after, "pending"]), ledger, events), "{case}");
    }
}

#[tokio::test]
async fn the_event_to_the_company_carries_the_evidence_and_no_secret() {
    let world = World::new().await;
    let id = world.payment(Some("pi_1"), "pending", 60).await;
    let db = receiver(&world.database.url());
    deliver(&db, &event("evt_1", "payment_intent.succeeded", "pi_1")).await.unwrap();
    let payload: Value = world.rows_of("select payload from reconciliation.outbox").await[0].get(0);
    let expected = json!({
        "external_ref": "pi_1", "event_id": "evt_1", "external_status": "succeeded", "source": "webhook",
        "payment_id": id, "transition": "succeeded", "finding_id": null,
    });
    assert_eq!(payload, expected);
}

#[tokio::test]
async fn types_that_are_not_used_are_acknowledged_and_not_recorded() {
    let world = World::new().await;
    world.payment(Some("pi_1"), "pending", 60).await;
    let db = receiver(&world.database.url());
    for event_type in ["payment_intent.created", "payment_intent.requires_action", "charge.refunded", "v2.core.x"] {
        assert_eq!(deliver(&db, &event("evt_1", event_type, "pi_1")).await.unwrap(), (200, "type not used"));
    }
    assert!(inbox(&world).await.is_empty());
    assert_eq!(effects(&world).await, (texts(&["pending"]), vec![], vec![]));
}

#[tokio::test]
async fn a_redelivery_is_a_no_op_whatever_has_happened_since() {
    let world = World::new().await;
    world.payment(Some("pi_1"), "pending", 60).await;
    let db = receiver(&world.database.url());
    let succeeded = event("evt_1", "payment_intent.succeeded", "pi_1");
    let failed = event("evt_2", "payment_intent.payment_failed", "pi_1");
    assert_eq!(deliver(&db, &succeeded).await.unwrap(), (200, "written"));
    assert_eq!(deliver(&db, &failed).await.unwrap(), (200, "no_transition"));
    world.update("status = 'pending'", "true").await;
    let all = "select i::text from reconciliation.webhook_inbox i order by 1";
    let before = (effects(&world).await, world.texts(all).await);
    for event in [&succeeded, &failed, &succeeded] {
        assert_eq!(deliver(&db, event).await.unwrap(), (200, "duplicate"));
        assert_eq!(deliver(&receiver(&world.database.url()), event).await.unwrap(), (200, "duplicate"));
    }
    assert_eq!((effects(&world).await, world.texts(all).await), before);
}

#[tokio::test]
async fn two_events_for_one_change_have_one_effect_in_any_order() {
    let world = World::new().await;
    world.payment(Some("pi_1"), "finalizing", 60).await;
    let db = receiver(&world.database.url());
    for (id, event_type, outcome) in [
        ("evt_3", "payment_intent.succeeded", "written"),
        ("evt_2", "payment_intent.succeeded", "already_written"),
        ("evt_1", "payment_intent.processing", "no_transition"),
        ("evt_0", "payment_intent.payment_failed", "no_transition"),
    ] {
        assert_eq!(deliver(&db, &event(id, event_type, "pi_1")).await.unwrap(), (200, outcome));
    }
    assert_eq!(effects(&world).await, (texts(&["paid"]), texts(&["succeeded"]), texts(&["event PaymentCaptured"])));
    assert_eq!(inbox(&world).await.len(), 4);
}

#[tokio::test]
async fn a_payment_that_is_not_here_yet_is_recorded_and_the_scans_meet_it() {
    let world = World::new().await;
    let db = receiver(&world.database.url());
    let succeeded = event("evt_1", "payment_intent.succeeded", "pi_1");
    assert_eq!(deliver(&db, &succeeded).await.unwrap(), (200, "no_such_payment"));
    assert_eq!(inbox(&world).await, ["evt_1 payment_intent.succeeded pi_1 no_such_payment"]);
    world.pair("pi_1", "pending", "succeeded").await;
    world.cycle().await;
    assert_eq!(world.findings().await, ["missed_success repairable open"]);
}

#[tokio::test]
async fn a_reference_that_several_payments_have_is_left_to_the_scans() {
    let world = World::new().await;
    world.owner.batch_execute("alter table payments drop constraint one_payment_per_payment_intent").await.unwrap();
    world.rows(3, "pending").await;
    world.update("stripe_payment_intent_id = 'pi_1'", "true").await;
    let db = receiver(&world.database.url());
    let succeeded = event("evt_1", "payment_intent.succeeded", "pi_1");
    assert_eq!(deliver(&db, &succeeded).await.unwrap(), (200, "several_payments"));
    assert_eq!(inbox(&world).await, ["evt_1 payment_intent.succeeded pi_1 several_payments"]);
    assert_eq!(effects(&world).await, (texts(&["pending"; 3]), vec![], vec![]));
}

#[tokio::test]
async fn the_next_scan_closes_the_finding_of_what_the_webhook_has_repaired() {
    let world = World::new().await;
    world.pair("pi_1", "pending", "succeeded").await;
    world.cycle().await;
    let db = receiver(&world.database.url());
    let succeeded = event("evt_1", "payment_intent.succeeded", "pi_1");
    assert_eq!(deliver(&db, &succeeded).await.unwrap(), (200, "written"));
    world.pass(24 * 60);
    world.cycle().await;
    assert_eq!(world.findings().await, ["missed_success repairable in_sync_again"]);
}

#[tokio::test]
async fn it_works_with_another_adapter() {
    let world = World::with(Adapter::UuidCheckout).await;
    world.payment(Some("pi_1"), "Processing", 60).await;
    world.payment(Some("pi_2"), "Expired", 60).await;
    let db = receiver(&world.database.url());
    for (id, event_type, reference, outcome) in [
        ("evt_1", "payment_intent.succeeded", "pi_1", "written"),
        ("evt_1", "payment_intent.succeeded", "pi_1", "duplicate"),
        ("evt_2", "payment_intent.canceled", "pi_2", "written"),
    ] {
        assert_eq!(deliver(&db, &event(id, event_type, reference)).await.unwrap(), (200, outcome));
    }
    let states = "select external_ref, state from reconciliation.payment order by 1";
    assert_eq!(world.texts(states).await, ["pi_1 paid", "pi_2 failed"]);
    assert_eq!(world.texts("select what from shop.booking order by 1").await, ["canceled", "succeeded"]);
}

#[tokio::test]
async fn the_other_mode_is_never_applied() {
    let world = World::new().await;
    world.payment(Some("pi_1"), "pending", 60).await;
    let db = receiver(&world.database.url());
    let live = event("evt_1", "payment_intent.succeeded", "pi_1");
    let mut of_an_account = live.clone();
    of_an_account["account"] = "acct_1".into();
    let answer =
        async |event: &Value| handle(&db, &endpoint(false), delivered(event), START).await.unwrap().status_code;
    assert_eq!(answer(&live).await, 400, "a wrong setting: not to be lost without a sign");
    assert_eq!(answer(&of_an_account).await, 200, "what Stripe sends to every platform's endpoint");
    assert!(inbox(&world).await.is_empty());
    assert_eq!(effects(&world).await, (texts(&["pending"]), vec![], vec![]));
    assert_eq!(deliver(&db, &of_an_account).await.unwrap(), (200, "written"));
}

#[tokio::test]
async fn what_is_not_stripes_is_refused_before_the_database_is_asked() {
    let nowhere = receiver("postgres://nobody:hush@127.0.0.1:1/nowhere");
    let body = event("evt_1", "payment_intent.succeeded", "pi_1").to_string();
    let good = signed(&body, SECRET, START);
    let seconds = time::Duration::seconds;
    let bytes = |bytes: &[u8], signature: &str| {
        let mut delivery = delivery("", signature);
        delivery["body"] = base64::engine::general_purpose::STANDARD.encode(bytes).into();
        delivery["isBase64Encoded"] = true.into();
        delivery
    };
    let not_utf8 = {
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
        mac.update(format!("{}.", START.unix_timestamp()).as_bytes());
        mac.update(b"{\"id\": \"\xff\"}");
        let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("t={},v1={hex}", START.unix_timestamp())
    };
    let long = format!("{body}{}", " ".repeat(512 * 1024));
    let pretty = serde_json::to_string_pretty(&serde_json::from_str::<Value>(&body).unwrap()).unwrap();
    let mut not_base64 = delivery("{", &good);
    not_base64["isBase64Encoded"] = true.into();
    for (case, request, status) in [
        ("no headers", json!({}), 400),
        ("not a request", json!([1]), 400),
        ("no signature", json!({"headers": {}, "body": body}), 400),
        ("another secret", delivery(&body, &signed(&body, "whsec_foreign", START)), 400),
        ("another body", delivery(&pretty, &good), 400),
        ("too old", delivery(&body, &signed(&body, SECRET, START - seconds(301))), 400),
        ("too far ahead", delivery(&body, &signed(&body, SECRET, START + seconds(301))), 400),
        ("two times", delivery(&body, &format!("t=1,{good}")), 400),
        ("upper case", delivery(&body, &good.to_uppercase().replace("T=", "t=").replace("V1=", "v1=")), 400),
        ("not base64", not_base64, 400),
        ("bad UTF-8", bytes(b"{\"id\": \"\xff\"}", &not_utf8), 400),
        ("not an event", delivery("[]", &signed("[]", SECRET, START)), 400),
        ("too long", delivery(&long, &signed(&long, SECRET, START)), 413),
    ] {
        let answer = handle(&nowhere, &endpoint(true), request, START).await;
        assert_eq!(answer.unwrap_or_else(|error| panic!("{case}: {error}")).status_code, status, "{case}");
    }
    // the same with nothing wrong does ask it
    for request in [
        delivery(&body, &good),
        bytes(body.as_bytes(), &good),
        delivery(&body, &signed(&body, OLD_SECRET, START)),
        delivery(&body, &signed(&body, SECRET, START - seconds(300))),
    ] {
        let error = handle(&nowhere, &endpoint(true), request, START).await.unwrap_err();
        assert!(matches!(&error, WebhookError::Database(DatabaseError::Connect { .. })), "{error}");
        assert_eq!((error.response().status_code, error.error_type()), (503, "DatabaseUnreachable"));
    }
}

#[tokio::test]
async fn base64_and_odd_header_case_are_taken() {
    let world = World::new().await;
    world.payment(Some("pi_1"), "pending", 60).await;
    let body = event("evt_1", "payment_intent.succeeded", "pi_1").to_string();
    let encoded = base64::engine::general_purpose::STANDARD.encode(&body);
    let signature = format!("{},v1={},v0=x", signed(&body, OLD_SECRET, START), "0".repeat(64));
    let request = json!({"headers": {"STRIPE-Signature": signature}, "body": encoded, "isBase64Encoded": true});
    let answer = handle(&receiver(&world.database.url()), &endpoint(true), request, START).await.unwrap();
    assert_eq!((answer.status_code, answer.body), (200, "written"));
}

/// The places in the transaction where a delivery can be held by a lock of `gate`'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    BeforeTransition,
    BeforeRecord,
    InCommit,
}

/// A world with one payment and a delivery of its success that will stop at `place` until `gate` rolls back.
async fn gated(place: Place) -> (World, Client, i32) {
    let world = World::new().await;
    world.payment(Some("pi_1"), "pending", 60).await;
    let gate = connect(&world.database.url()).await;
    let hold = match place {
        Place::BeforeTransition => "begin; select from payments for update",
        Place::BeforeRecord => "begin; lock table reconciliation.webhook_inbox in share mode",
        Place::InCommit => {
            let trigger = "create function hold_commit() returns trigger language plpgsql as
                    'begin perform pg_advisory_xact_lock(7); return null; end';
                create constraint trigger hold_commit after insert on reconciliation.webhook_inbox
                    deferrable initially deferred for each row execute function hold_commit()";
            world.owner.batch_execute(trigger).await.unwrap();
            "begin; select pg_advisory_xact_lock(7)"
        }
    };
    gate.batch_execute(hold).await.unwrap();
    let gating = gate.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    (world, gate, gating)
}

/// Comes back with a session that waits for `gating`, another one than `not`.
async fn until_held(world: &World, gating: i32, not: Option<i32>) -> i32 {
    let held = "select pid from pg_stat_activity
                where datname = current_database() and $1 = any (pg_blocking_pids(pid)) and pid is distinct from $2
                limit 1";
    for _ in 0..100_000 {
        if let Some(row) = world.owner.query_opt(held, &[&gating, &not]).await.unwrap() {
            return row.get(0);
        }
    }
    panic!("nobody waits for {gating}");
}

async fn terminate(world: &World, session: i32) {
    world.owner.query_one("select pg_terminate_backend($1, 10000)", &[&session]).await.unwrap();
}

#[tokio::test]
async fn a_delivery_that_dies_before_the_commit_has_done_nothing_and_the_redelivery_does_it() {
    for place in [Place::BeforeTransition, Place::BeforeRecord, Place::InCommit] {
        let (world, gate, gating) = gated(place).await;
        let succeeded = event("evt_1", "payment_intent.succeeded", "pi_1");
        let dying = receiver(&world.database.url());
        let session = tokio::select! {
            answer = deliver(&dying, &succeeded) => panic!("{place:?}: {answer:?}"),
            session = until_held(&world, gating, None) => session,
        };
        terminate(&world, session).await;
        drop(dying);
        gate.batch_execute("rollback").await.unwrap();
        assert!(inbox(&world).await.is_empty(), "{place:?}");
        assert_eq!(effects(&world).await, (texts(&["pending"]), vec![], vec![]), "{place:?}");

        let db = receiver(&world.database.url());
        assert_eq!(deliver(&db, &succeeded).await.unwrap(), (200, "written"), "{place:?}");
        assert_eq!(deliver(&db, &succeeded).await.unwrap(), (200, "duplicate"), "{place:?}");
        assert_eq!(effects(&world).await, once(), "{place:?}");
    }
}

/// The effects of one success.
fn once() -> (Vec<String>, Vec<String>, Vec<String>) {
    (texts(&["paid"]), texts(&["succeeded"]), texts(&["event PaymentCaptured"]))
}

#[tokio::test]
async fn a_delivery_that_is_given_up_leaves_no_transaction_behind() {
    for place in [Place::BeforeTransition, Place::BeforeRecord] {
        let (world, gate, gating) = gated(place).await;
        let db = receiver(&world.database.url());
        let given_up = event("evt_1", "payment_intent.succeeded", "pi_1");
        tokio::select! {
            answer = deliver(&db, &given_up) => panic!("{place:?}: {answer:?}"),
            _ = until_held(&world, gating, None) => {}
        }
        gate.batch_execute("rollback").await.unwrap();
        // over the very same session, which has rolled back first
        let other = event("evt_2", "payment_intent.processing", "pi_1");
        assert_eq!(deliver(&db, &other).await.unwrap(), (200, "no_transition"));
        assert_eq!(inbox(&world).await, ["evt_2 payment_intent.processing pi_1 no_transition"], "{place:?}");
        assert_eq!(effects(&world).await, (texts(&["pending"]), vec![], vec![]), "{place:?}");
    }
}

#[tokio::test]
async fn a_delivery_that_dies_between_the_commit_and_the_answer_is_a_duplicate_next_time() {
    let (world, gate, gating) = gated(Place::InCommit).await;
    let succeeded = event("evt_1", "payment_intent.succeeded", "pi_1");
    let db = receiver(&world.database.url());
    tokio::select! {
        answer = deliver(&db, &succeeded) => panic!("{answer:?}"),
        _ = until_held(&world, gating, None) => {}
    }
    gate.batch_execute("rollback").await.unwrap();
    // the commit is on its way whoever listens; the redelivery comes behind it
    assert_eq!(deliver(&receiver(&world.database.url()), &succeeded).await.unwrap(), (200, "duplicate"));
    assert_eq!(effects(&world).await, once());
}

#[tokio::test]
async fn a_connection_that_is_gone_is_replaced_once_and_then_it_is_an_error() {
    for place in [Place::BeforeTransition, Place::BeforeRecord, Place::InCommit] {
        let (world, gate, gating) = gated(place).await;
        let succeeded = event("evt_1", "payment_intent.succeeded", "pi_1");
        let db = receiver(&world.database.url());
        let (answer, ()) = tokio::join!(deliver(&db, &succeeded), async {
            let first = until_held(&world, gating, None).await;
            terminate(&world, first).await;
            let second = until_held(&world, gating, Some(first)).await;
            terminate(&world, second).await;
        });
        let error = answer.unwrap_err();
        assert_eq!((error.response().status_code, error.error_type()), (503, "EventNotCommitted"), "{error}");
        let WebhookError::Inbox(error) = error else { panic!("{error}") };
        let expected = match place {
            Place::BeforeTransition => matches!(error, InboxError::Transition { .. }),
            Place::BeforeRecord => matches!(error, InboxError::Record { .. }),
            Place::InCommit => matches!(error, InboxError::End { .. }),
        };
        assert!(expected, "{place:?}: {error:?}");
        assert!(inbox(&world).await.is_empty());

        let (answer, ()) = tokio::join!(deliver(&db, &succeeded), async {
            let first = until_held(&world, gating, None).await;
            terminate(&world, first).await;
            until_held(&world, gating, Some(first)).await;
            gate.batch_execute("rollback").await.unwrap();
        });
        assert_eq!(answer.unwrap(), (200, "written"), "{place:?}");
        assert_eq!(effects(&world).await, once(), "{place:?}");
    }
}

#[tokio::test]
async fn deliveries_of_one_event_at_once_and_a_repair_have_one_effect() {
    for place in [Place::BeforeTransition, Place::BeforeRecord, Place::InCommit] {
        let (world, gate, gating) = gated(place).await;
        let succeeded = event("evt_1", "payment_intent.succeeded", "pi_1");
        let [first, second, third] = [(); 3].map(|()| receiver(&world.database.url()));
        let repair = connect(&world.database.url()).await;
        let call = "select reconciliation.transition((select id from reconciliation.payment), 'succeeded',
                    '{\"external_ref\": \"pi_1\"}')";
        let (one, two, three, repaired, ()) = tokio::join!(
            deliver(&first, &succeeded),
            deliver(&second, &succeeded),
            deliver(&third, &succeeded),
            repair.query_one(call, &[]),
            async {
                until_held(&world, gating, None).await;
                gate.batch_execute("rollback").await.unwrap();
            }
        );
        let mut answers = [one, two, three].map(|answer| answer.unwrap());
        answers.sort_by_key(|(_, outcome)| *outcome == "duplicate");
        let repaired: String = repaired.unwrap().get(0);
        let words = [answers[0].1, &repaired];
        assert!(words == ["written", "already_written"] || words == ["already_written", "written"], "{words:?}");
        assert_eq!(answers[1..], [(200, "duplicate"), (200, "duplicate")], "{place:?}");
        assert_eq!(effects(&world).await, once(), "{place:?}");
        assert_eq!(inbox(&world).await.len(), 1);
    }
}

fn binary() -> PathBuf {
    crate::binaries::binaries().join("webhook")
}

#[tokio::test]
async fn the_real_function_answers_a_function_url() {
    let world = World::new().await;
    world.payment(Some("pi_1"), "pending", 60).await;
    let url = world.database.url();
    let secrets = format!("{OLD_SECRET}, {SECRET}");
    let environment =
        [("DATABASE_URL", url.as_str()), ("STRIPE_WEBHOOK_SECRETS", &secrets), ("STRIPE_LIVEMODE", "true")];
    let host = Host::new(&binary(), &environment).await;
    let body = event("evt_1", "payment_intent.succeeded", "pi_1").to_string();
    let now = Clock::System.now();
    let answer = host.answer(delivery(&body, &signed(&body, SECRET, now))).await;
    let headers = json!({"content-type": "text/plain; charset=utf-8"});
    assert_eq!(answer, json!({"statusCode": 200, "headers": headers, "body": "written"}));
    assert_eq!(effects(&world).await, once());
    let answer = host.answer(delivery(&body, &signed(&body, OLD_SECRET, now))).await;
    assert_eq!((&answer["statusCode"], &answer["body"]), (&json!(200), &json!("duplicate")));
    let answer = host.answer(delivery(&body, &signed(&body, SECRET, START))).await;
    assert_eq!(answer["statusCode"], 400, "signed long ago");
    assert_eq!(host.answer(json!({})).await["statusCode"], 400);

    let (stdout, stderr) = host.kill();
    let lines: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let received: Vec<&Value> = lines.iter().filter(|line| line["message"] == "event received").collect();
    assert_eq!(received.len(), 2, "{stdout}{stderr}");
    assert_eq!((&received[0]["event"], &received[0]["outcome"]), (&json!("evt_1"), &json!("written")));
    assert!(!stdout.contains("hush") && !stderr.contains("hush"), "{stdout}{stderr}");
}

#[tokio::test]
async fn the_real_function_answers_5xx_when_it_cannot_commit() {
    let nowhere = "postgres://nobody:hush@127.0.0.1:1/nowhere";
    let body = event("evt_1", "payment_intent.succeeded", "pi_1").to_string();
    for (environment, status, error_type) in [
        (vec![("DATABASE_URL", nowhere), ("STRIPE_WEBHOOK_SECRETS", SECRET)], 500, "SettingsUnusable"),
        (
            vec![("DATABASE_URL", nowhere), ("STRIPE_WEBHOOK_SECRETS", SECRET), ("STRIPE_LIVEMODE", "true")],
            503,
            "DatabaseUnreachable",
        ),
    ] {
        let host = Host::new(&binary(), &environment).await;
        let answer = host.answer(delivery(&body, &signed(&body, SECRET, Clock::System.now()))).await;
        assert_eq!(answer["statusCode"], status);
        let (stdout, stderr) = host.kill();
        assert!(stdout.contains(error_type), "{stdout}{stderr}");
        assert!(!stdout.contains("hush") && !stderr.contains("hush") && !answer.to_string().contains("hush"));
    }
}
