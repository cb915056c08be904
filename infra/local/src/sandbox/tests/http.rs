//! The sandbox through a socket, with HTTP written by hand, so that a dropped connection cannot be mistaken for
//! some client's retry.

use std::sync::Arc;
use std::time::Duration;

use reconciler::domain::external::ExternalStatus;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::{Endpoint, Fault, FaultRule, Given, Options, PaymentIntentSeed, Sandbox, SandboxError};
use super::{TEST_KEY, at};

async fn connect(sandbox: &Sandbox) -> TcpStream {
    TcpStream::connect(sandbox.base_url.strip_prefix("http://").unwrap()).await.unwrap()
}

async fn write(stream: &mut TcpStream, method: &str, target: &str, body: &str) {
    let length = body.len();
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: sandbox\r\nAuthorization: Bearer {TEST_KEY}\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
}

/// Everything until the server closes; also how that ended.
async fn read(stream: &mut TcpStream) -> (String, bool) {
    let mut bytes = Vec::new();
    let clean = stream.read_to_end(&mut bytes).await.is_ok();
    (String::from_utf8(bytes).unwrap(), clean)
}

/// Status, head and body.
pub(super) async fn send(sandbox: &Sandbox, method: &str, target: &str, body: &str) -> (u16, String, Value) {
    let mut stream = connect(sandbox).await;
    write(&mut stream, method, target, body).await;
    parse(&read(&mut stream).await.0)
}

fn parse(text: &str) -> (u16, String, Value) {
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_owned(), serde_json::from_str(body).unwrap_or(Value::Null))
}

async fn sandbox() -> Sandbox {
    let sandbox = Sandbox::start(Options::default()).await.unwrap();
    sandbox.with(|account, _| {
        account.insert(PaymentIntentSeed { id: Some("pi_1".to_owned()), ..PaymentIntentSeed::new(at(100)) }).unwrap()
    });
    sandbox
}

#[tokio::test]
async fn requests_go_in_decoded_and_answers_come_out_whole() {
    let sandbox = sandbox().await;
    let (status, head, json) = send(&sandbox, "GET", "/v1/payment_intents?created%5Bgte%5D=100&limit=1", "").await;
    assert_eq!((status, &json["data"][0]["id"]), (200, &json!("pi_1")));
    let head = head.to_ascii_lowercase();
    for header in ["request-id: req_", "content-type: application/json", "stripe-version: 2026-10-28.endive"] {
        assert!(head.contains(header), "{head}");
    }
    let form = "amount=500&currency=usd&metadata%5Border%20no%5D=a%2Bb+c";
    let (status, _, created) = send(&sandbox, "POST", "/v1/payment_intents", form).await;
    assert_eq!((status, &created["metadata"]), (200, &json!({"order no": "a+b c"})));
    let (status, _, json) = send(&sandbox, "GET", "/v1/payment_intents/pi_none", "").await;
    assert_eq!((status, &json["error"]["code"]), (404, &json!("resource_missing")));
    let entries: Vec<_> = sandbox.with(|account, _| account.log().map(|entry| (entry.endpoint, entry.given)).collect());
    let (ok, missing) = (Given::Status(200), Given::Status(404));
    assert_eq!(entries, [(Endpoint::List, ok), (Endpoint::Create, ok), (Endpoint::Retrieve, missing)]);
}

#[tokio::test]
async fn one_connection_carries_many_requests() {
    let sandbox = sandbox().await;
    let mut stream = connect(&sandbox).await;
    for n in 1..=3 {
        let request =
            format!("GET /v1/payment_intents/pi_1 HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer {TEST_KEY}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"\"transfer_group\":null}") {
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
            seen.extend(byte);
        }
        assert!(seen.starts_with(b"HTTP/1.1 200"), "request {n}");
    }
    assert_eq!(sandbox.arrived(3).await.arrived, 3);
}

#[tokio::test]
async fn a_dropped_connection_gives_not_one_byte() {
    let sandbox = sandbox().await;
    sandbox.with(|account, _| account.add_fault(FaultRule::once(Fault::Dropped)));
    let mut stream = connect(&sandbox).await;
    write(&mut stream, "GET", "/v1/payment_intents/pi_1", "").await;
    assert_eq!(read(&mut stream).await.0, "");
    assert_eq!(send(&sandbox, "GET", "/v1/payment_intents/pi_1", "").await.0, 200, "the next one is answered");
    assert_eq!(sandbox.with(|account, _| account.counters().dropped), 1);
}

#[tokio::test]
async fn a_held_request_waits_for_its_release_while_others_go_on() {
    let sandbox = sandbox().await;
    sandbox.with(|account, _| account.add_fault(FaultRule::once(Fault::Hold)));
    let mut waiting = connect(&sandbox).await;
    write(&mut waiting, "GET", "/v1/payment_intents/pi_1", "").await;
    sandbox.held(1).await;
    assert_eq!(send(&sandbox, "GET", "/v1/payment_intents/pi_1", "").await.2["status"], "requires_payment_method");
    sandbox.with(|account, now| account.set_status("pi_1", ExternalStatus::Succeeded, now)).unwrap();
    assert_eq!(sandbox.with(|account, _| account.release_all()), 1);
    let (status, _, json) = parse(&read(&mut waiting).await.0);
    assert_eq!((status, &json["status"]), (200, &json!("succeeded")));
    assert_eq!(sandbox.until(|counters| counters.held == 0).await.arrived, 2);
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_hold() {
    let sandbox = sandbox().await;
    sandbox.with(|account, _| account.add_fault(FaultRule::once(Fault::Hold)));
    let mut leaving = connect(&sandbox).await;
    write(&mut leaving, "POST", "/v1/payment_intents/pi_1/cancel", "").await;
    sandbox.held(1).await;
    drop(leaving);
    sandbox.until(|counters| counters.held == 0).await;
    let (given, status) = sandbox.with(|account, _| {
        (account.log().map(|entry| entry.given).collect::<Vec<_>>(), account.get("pi_1").unwrap().status.clone())
    });
    assert_eq!((given, status), (vec![Given::Abandoned], ExternalStatus::RequiresPaymentMethod));
}

#[tokio::test(start_paused = true)]
async fn an_answer_takes_as_long_as_the_latency_and_tells_of_the_state_at_arrival() {
    let sandbox = sandbox().await;
    sandbox.set_latency(Duration::from_secs(3600));
    let mut stream = connect(&sandbox).await;
    write(&mut stream, "GET", "/v1/payment_intents/pi_1", "").await;
    sandbox.arrived(1).await;
    let begun = tokio::time::Instant::now();
    sandbox.with(|account, _| account.delete("pi_1")).unwrap();
    assert_eq!(parse(&read(&mut stream).await.0).0, 200);
    assert_eq!(begun.elapsed().as_secs(), 3600);
}

#[tokio::test]
async fn stopping_closes_the_port_and_every_connection() {
    let sandbox = sandbox().await;
    sandbox.with(|account, _| account.add_fault(FaultRule::once(Fault::Hold)));
    let address = sandbox.base_url.strip_prefix("http://").unwrap().to_owned();
    let mut waiting = connect(&sandbox).await;
    write(&mut waiting, "GET", "/v1/payment_intents/pi_1", "").await;
    sandbox.held(1).await;
    sandbox.stop().await;
    assert_eq!(read(&mut waiting).await.0, "");
    assert!(TcpStream::connect(&address).await.is_err());
}

#[tokio::test]
async fn dropping_closes_the_connections_too() {
    let sandbox = sandbox().await;
    sandbox.with(|account, _| account.add_fault(FaultRule::once(Fault::Hold)));
    let mut waiting = connect(&sandbox).await;
    write(&mut waiting, "GET", "/v1/payment_intents/pi_1", "").await;
    sandbox.held(1).await;
    drop(sandbox);
    assert_eq!(read(&mut waiting).await.0, "");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let first = sandbox().await;
    let port = first.base_url.rsplit(':').next().unwrap().parse().unwrap();
    match Sandbox::start(Options { port, ..Options::default() }).await {
        Err(error @ SandboxError::Listen { .. }) => {
            assert_eq!(error.to_string(), format!("cannot listen on 127.0.0.1:{port}"));
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("two sandboxes on one port"),
    }
}

#[tokio::test]
async fn another_process_can_do_all_of_it() {
    // The clock stands still, so that the limit below does not depend on this machine's speed.
    let sandbox = Sandbox::start(Options { clock: Arc::new(|| at(1000)), ..Options::default() }).await.unwrap();
    let control = async |method: &str, route: &str, body: Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, _, json) = send(&sandbox, method, &format!("/_control/{route}"), &body).await;
        (status, json)
    };
    let seeds = json!([
        {"id": "pi_a", "created": 100, "status": "processing", "amount": 70, "currency": "eur", "metadata": {"o": "1"}},
        {"created": 100, "decline": {"card": "expired_card"}},
        {"id": "pi_b", "livemode": true},
    ]);
    let (status, seeded) = control("POST", "payment_intents", seeds).await;
    assert_eq!((status, &seeded["ids"][0], seeded["ids"].as_array().unwrap().len()), (200, &json!("pi_a"), 3));
    for change in [json!({"status": "succeeded"}), json!({"refund": 20}), json!("dispute")] {
        assert_eq!(control("POST", "payment_intents/pi_a", change).await, (200, json!({})));
    }
    let target = "/v1/payment_intents/pi_a?expand[]=latest_charge";
    let json = send(&sandbox, "GET", target, "").await.2;
    assert_eq!(
        (&json["status"], &json["amount"], &json["metadata"]),
        (&json!("succeeded"), &json!(70), &json!({"o": "1"}))
    );
    assert_eq!(
        (&json["latest_charge"]["amount_refunded"], &json["latest_charge"]["disputed"]),
        (&json!(20), &json!(true))
    );
    assert_eq!(control("POST", "payment_intents/pi_b", json!({"livemode": false})).await.0, 200);
    assert_eq!(send(&sandbox, "GET", "/v1/payment_intents/pi_b", "").await.0, 200);
    assert_eq!(control("DELETE", "payment_intents/pi_b", Value::Null).await.0, 200);
    assert_eq!(send(&sandbox, "GET", "/v1/payment_intents/pi_b", "").await.0, 404);

    let rule = json!({"fault": {"rate_limited": "endpoint-rate"}, "endpoint": "list", "times": 1});
    let (_, added) = control("POST", "faults", rule).await;
    assert_eq!(control("GET", "faults", Value::Null).await.1[0]["fault"], added["fault"]);
    let (status, head, _) = send(&sandbox, "GET", "/v1/payment_intents", "").await;
    assert!(status == 429 && head.to_ascii_lowercase().contains("stripe-rate-limited-reason: endpoint-rate"), "{head}");
    assert_eq!(control("DELETE", &format!("faults/{}", added["fault"]), Value::Null).await.0, 200);
    assert_eq!(control("DELETE", "faults/99", Value::Null).await.0, 404);

    assert_eq!(control("PUT", "limits", json!({"global": 1})).await.0, 200);
    assert_eq!(send(&sandbox, "GET", "/v1/payment_intents", "").await.0, 200);
    assert_eq!(send(&sandbox, "GET", "/v1/payment_intents", "").await.0, 429);
    assert_eq!(control("PUT", "limits", json!({})).await.0, 200);
    assert_eq!(control("PUT", "latency", json!({"milliseconds": 0})).await.0, 200);
    assert_eq!(control("POST", "connected", json!({"account": "acct_9"})).await.0, 200);
    assert_eq!(control("PUT", "key", json!({"key": TEST_KEY, "grant": "expired"})).await.0, 200);
    assert_eq!(send(&sandbox, "GET", "/v1/payment_intents", "").await.0, 401);
    let restricted = json!({"key": TEST_KEY, "grant": {"restricted": ["charge_read"]}});
    assert_eq!(control("PUT", "key", restricted).await.0, 200);
    assert_eq!(send(&sandbox, "GET", "/v1/payment_intents", "").await.0, 403);

    assert_eq!(control("GET", "counters", Value::Null).await.1["arrived"], 8);
    assert_eq!(control("GET", "log", Value::Null).await.1[3]["given"], json!({"status": 429}));
    assert_eq!(control("DELETE", "log", Value::Null).await.0, 200);
    assert_eq!(control("POST", "faults", json!({"fault": "hold"})).await.0, 200);
    let mut waiting = connect(&sandbox).await;
    write(&mut waiting, "GET", "/v1/payment_intents", "").await;
    assert_eq!(control("POST", "wait", json!({"arrived": 1, "held": 1})).await.1["held"], 1);
    assert_eq!(control("POST", "release", Value::Null).await.1, json!({"released": 1}));
    assert_eq!(parse(&read(&mut waiting).await.0).0, 403);

    for (method, route, body, status, message) in [
        ("GET", "nothing", Value::Null, 404, "no such control: GET /_control/nothing"),
        ("PUT", "latency", json!({"seconds": 1}), 400, "the body is not what this control takes: "),
        (
            "POST",
            "payment_intents/pi_none",
            json!({"status": "succeeded"}),
            404,
            "the sandbox has no PaymentIntent pi_none",
        ),
        ("POST", "payment_intents", json!([{"id": "pi_a"}]), 400, "the sandbox already has a PaymentIntent pi_a"),
    ] {
        let (given, json) = control(method, route, body).await;
        assert!(given == status && json["error"].as_str().unwrap().starts_with(message), "{given} {json}");
    }
}
