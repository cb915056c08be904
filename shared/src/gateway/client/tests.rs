//! The sender against a few lines of TCP on the loopback.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use super::*;
use crate::config::Secret;
use crate::gateway::Remedy;

const KEY: &str = "rk_test_hush";

const INTENT: &str = r#"{"id":"pi_1","object":"payment_intent","amount":5,"currency":"eur","created":1790000000,
    "livemode":false,"status":"succeeded","client_secret":"pi_1_secret_hush"}"#;

/// What the server does with one request.
enum Then {
    /// Writes this and goes on with the same connection.
    Answer(Vec<u8>),
    /// Writes this and closes the connection.
    Close(Vec<u8>),
    /// Writes nothing, until the client goes away.
    Wait,
}

/// A server that does these things, one request each, and then ends. Its requests, as they came in.
fn serve(script: Vec<Then>) -> (SocketAddr, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let mut requests = Vec::new();
        let mut open: Option<TcpStream> = None;
        for then in script {
            let mut stream = open.take().unwrap_or_else(|| listener.accept().unwrap().0);
            requests.push(read_head(&mut stream));
            match then {
                Then::Answer(bytes) => {
                    stream.write_all(&bytes).unwrap();
                    open = Some(stream);
                }
                // the client may be gone before all is written: that is what some tests are about
                Then::Close(bytes) => drop(stream.write_all(&bytes)),
                Then::Wait => drop(stream.read(&mut [0])),
            }
        }
        requests
    });
    (address, server)
}

/// What the server has seen. It may still wait for a connection to close, for which the client's runtime has to run.
async fn ended<T: Send + 'static>(server: JoinHandle<T>) -> T {
    tokio::task::spawn_blocking(|| server.join().unwrap()).await.unwrap()
}

fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn settings(base: String) -> StripeSettings {
    StripeSettings {
        api_base: base,
        account: None,
        // far above what the loopback takes; only a test of the timeout itself waits that long
        connect_timeout: Duration::from_secs(30),
        request_timeout: Duration::from_secs(30),
    }
}

fn client(address: SocketAddr) -> StripeClient {
    StripeClient::new(&settings(format!("http://{address}")), &Secret::new(KEY)).unwrap()
}

fn id(text: &str) -> ExternalRef {
    ExternalRef::parse(text).unwrap()
}

fn whole() -> ListQuery {
    ListQuery { created_from: None, created_before: None, limit: 100, starting_after: None }
}

/// The error of one retrieve, after which the server is done.
async fn fails_with(then: Then) -> GatewayError {
    let (address, server) = serve(vec![then]);
    let error = client(address).retrieve(&id("pi_1")).await.unwrap_err();
    assert_eq!(ended(server).await.len(), 1, "one attempt");
    assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
    error
}

fn cause(error: &GatewayError) -> TransientCause {
    assert_eq!(error.remedy(), Remedy::Retry, "{error:?}");
    let GatewayError::Transient { cause, .. } = error else { panic!("{error:?}") };
    *cause
}

#[tokio::test]
async fn one_connection_serves_a_retrieve_and_a_list() {
    let page = format!(r#"{{"object":"list","data":[{INTENT}],"has_more":true}}"#);
    // the second request has to come over the first one's connection: no other is accepted
    let (address, server) = serve(vec![
        Then::Answer(answer("200 OK", "Request-Id: req_1\r\n", INTENT)),
        Then::Answer(answer("200 OK", "", &page)),
    ]);
    let client = client(address);
    let External::Present(payment) = client.retrieve(&id("pi_1")).await.unwrap() else { panic!("absent") };
    assert_eq!(payment.amount_minor, 5);
    let page = client.list(&whole()).await.unwrap();
    assert_eq!((page.payments, page.next), (vec![payment], Some(id("pi_1"))));

    let requests = ended(server).await;
    assert!(
        requests[0].starts_with("GET /v1/payment_intents/pi_1?expand%5B%5D=latest_charge HTTP/1.1\r\n"),
        "{}",
        requests[0]
    );
    assert!(requests[1].starts_with("GET /v1/payment_intents?limit=100&expand"), "{}", requests[1]);
    for request in requests {
        let request = request.to_ascii_lowercase();
        for header in
            ["authorization: bearer rk_test_hush", "stripe-version: 2026-10-28.endive", "user-agent: payment-"]
        {
            assert!(request.contains(header), "{header} in {request}");
        }
        assert!(!request.contains("stripe-account"), "{request}");
    }
}

#[tokio::test]
async fn status_headers_and_body_reach_the_decoder() {
    let missing =
        r#"{"error":{"code":"resource_missing","param":"intent","message":"No such payment_intent: 'pi_1'"}}"#;
    let (address, server) = serve(vec![Then::Answer(answer("404 Not Found", "", missing))]);
    assert_eq!(client(address).retrieve(&id("pi_1")).await.unwrap(), External::NotFound { other_mode: false });
    ended(server).await;

    let limited = "Stripe-Rate-Limited-Reason: endpoint-rate\r\nRetry-After: 3\r\nRequest-Id: req_9\r\n";
    let error = fails_with(Then::Answer(answer("429 Too Many Requests", limited, "{}"))).await;
    assert_eq!(error.remedy(), Remedy::StopBatch { retry_after: Some(Duration::from_secs(3)) });
    assert_eq!(error.exchange().request_id.as_deref(), Some("req_9"));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    // to follow it would take a second request, which the server would not answer
    let error = fails_with(Then::Answer(answer("302 Found", "Location: /v1/payment_intents/pi_1\r\n", ""))).await;
    assert!(matches!(error, GatewayError::Unreadable { flaw: Flaw::Status, .. }), "{error:?}");
}

#[tokio::test]
async fn a_connection_that_gives_no_whole_answer_is_transient_and_tried_once() {
    let half_a_body =
        format!("HTTP/1.1 200 OK\r\nRequest-Id: req_7\r\nContent-Length: {}\r\n\r\n{INTENT}", INTENT.len() + 1);
    let half_a_chunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{\"id\":";
    for bytes in [
        &b""[..],
        b"\0\xff\x16\x03 no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        half_a_body.as_bytes(),
        half_a_chunk.as_bytes(),
    ] {
        let error = fails_with(Then::Close(bytes.to_vec())).await;
        assert_eq!(cause(&error), TransientCause::BrokenOff, "{bytes:?}");
        assert!(std::error::Error::source(&error).is_some(), "{error:?}");
    }
    let error = fails_with(Then::Close(half_a_body.into_bytes())).await;
    assert_eq!(error.exchange().request_id.as_deref(), Some("req_7"));
}

#[tokio::test]
async fn where_the_head_is_enough_a_broken_body_changes_nothing() {
    for (head, remedy) in [
        ("429 Too Many Requests\r\nStripe-Rate-Limited-Reason: global-rate", Remedy::StopBatch { retry_after: None }),
        ("401 Unauthorized", Remedy::EndTick),
        ("403 Forbidden", Remedy::EndTick),
        ("503 Service Unavailable", Remedy::Retry),
        ("404 Not Found", Remedy::Retry),
        ("400 Bad Request", Remedy::Retry),
    ] {
        let bytes = format!("HTTP/1.1 {head}\r\nContent-Length: 500\r\n\r\n{{\"error\":");
        assert_eq!(fails_with(Then::Close(bytes.into_bytes())).await.remedy(), remedy, "{head}");
    }
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_transient() {
    let (address, server) = serve(vec![Then::Wait]);
    let settings =
        StripeSettings { request_timeout: Duration::from_millis(100), ..settings(format!("http://{address}")) };
    let client = StripeClient::new(&settings, &Secret::new(KEY)).unwrap();
    let error = client.retrieve(&id("pi_1")).await.unwrap_err();
    assert_eq!(cause(&error), TransientCause::TimedOut);
    assert_eq!(error.to_string(), "no answer from Stripe (timed out): retrieve of pi_1");
    drop(client);
    ended(server).await;
}

#[tokio::test]
async fn nobody_listening_is_transient() {
    // port 1 is nobody's
    let client = StripeClient::new(&settings("http://127.0.0.1:1".into()), &Secret::new(KEY)).unwrap();
    for error in [client.retrieve(&id("pi_1")).await.unwrap_err(), client.list(&whole()).await.unwrap_err()] {
        assert_eq!(cause(&error), TransientCause::NotConnected);
    }
}

#[tokio::test]
async fn a_body_of_more_than_8_mib_is_not_read_to_its_end() {
    let filler = |length: usize| " ".repeat(length);
    let just = format!("{INTENT}{}", filler(BODY_MAX_BYTES - INTENT.len()));
    let (address, server) = serve(vec![Then::Answer(answer("200 OK", "", &just))]);
    assert!(client(address).retrieve(&id("pi_1")).await.is_ok());
    ended(server).await;

    let over = format!("{INTENT}{}", filler(BODY_MAX_BYTES - INTENT.len() + 1));
    let error = fails_with(Then::Close(answer("200 OK", "", &over))).await;
    assert!(matches!(error, GatewayError::Unreadable { flaw: Flaw::TooLong, .. }), "{error:?}");
    let error = fails_with(Then::Close(answer("503 Service Unavailable", "", &over))).await;
    assert_eq!(cause(&error), TransientCause::Refused);
}

#[tokio::test]
async fn an_https_address_is_spoken_to_in_tls_only() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("https://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut first = [0];
        stream.read_exact(&mut first).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        first[0]
    });
    let error = StripeClient::new(&settings(base), &Secret::new(KEY)).unwrap().retrieve(&id("pi_1")).await.unwrap_err();
    assert_eq!(cause(&error), TransientCause::NotConnected);
    assert_eq!(ended(server).await, 0x16, "a TLS handshake, not a request");
}

#[test]
fn settings_that_cannot_be_used_are_refused_by_name() {
    let good = settings("http://127.0.0.1:1".into());
    let refused = StripeClient::new(&good, &Secret::new("hush")).unwrap_err();
    let printed = format!("{refused} {refused:?}");
    assert!(printed.contains("STRIPE_API_KEY") && !printed.contains("hush"), "{printed}");
    for (settings, name) in [
        (StripeSettings { api_base: "http://hush.example".into(), ..good.clone() }, "STRIPE_API_BASE"),
        (StripeSettings { account: Some("acct_hush\n".into()), ..good.clone() }, "STRIPE_ACCOUNT"),
    ] {
        let error = StripeClient::new(&settings, &Secret::new(KEY)).unwrap_err();
        let checked = StripeClient::check(&settings).unwrap_err();
        let printed = format!("{error} {error:?}");
        assert_eq!(printed, format!("{checked} {checked:?}"));
        assert!(printed.contains(name) && !printed.contains("hush"), "{printed}");
    }
    let client = StripeClient::new(&good, &Secret::new(KEY)).unwrap();
    assert!(StripeClient::check(&good).is_ok());
    assert_eq!(client.mode(), Mode::Test);
    assert!(!format!("{client:?}").contains("hush"), "{client:?}");
}
