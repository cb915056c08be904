//! Webhooks: judged by the receiver's own verifier and reader, so that both sides cannot be wrong in the same way unseen.

use std::sync::{Arc, Mutex};

use reconciler::clock::Clock;
use reconciler::config::Secret;
use reconciler::domain::Timestamp;
use reconciler::domain::external::ExternalStatus;
use serde_json::{Value, json};
use time::Duration;
use tokio::sync::mpsc;
use webhook::event::Reading;
use webhook::signature::{SignatureError, verify};

use super::super::{
    Account, Decline, Delivered, Delivery, DeliveryRule, EventType, Mishap, Options, PaymentIntentSeed, Request,
    Sandbox, Sending, WebhookEndpoint, WebhookEndpointId, WebhookError,
};
use super::{LIVE_KEY, TEST_KEY, answered, at, ok};
use crate::function_url::{FunctionUrl, HandlerFailed};

const URL: &str = "http://127.0.0.1:9/stripe";
const SECRET: &str = "whsec_one";
const OTHER_SECRET: &str = "whsec_two";

/// PaymentIntents `pi_1` to `pi_9` in test mode, and one endpoint for everything.
fn account(rules: &[DeliveryRule]) -> Account {
    let mut account = Account::new();
    for number in 1..=9 {
        let id = Some(format!("pi_{number}"));
        account.insert(PaymentIntentSeed { id, ..PaymentIntentSeed::new(at(100)) }).unwrap();
    }
    account.add_webhook_endpoint(WebhookEndpoint::new(URL, SECRET)).unwrap();
    for rule in rules {
        account.add_delivery_rule(rule.clone());
    }
    account
}

fn succeed(account: &mut Account, numbers: impl IntoIterator<Item = u32>, now: Timestamp) {
    for number in numbers {
        account.set_status(&format!("pi_{number}"), ExternalStatus::Succeeded, now).unwrap();
    }
}

fn status(status: u16) -> Delivered {
    Delivered::Answered { status, body: String::new() }
}

fn event(delivery: &Delivery) -> Value {
    serde_json::from_slice(&delivery.body).unwrap()
}

/// Sends what is due at that second, each answered with `answer`: of which PaymentIntents those deliveries were.
fn sent(account: &mut Account, second: i64, answer: u16) -> Vec<String> {
    let mut sent = Vec::new();
    while let Some(delivery) = account.next_delivery(at(second)) {
        sent.push(event(&delivery)["data"]["object"]["id"].as_str().unwrap().to_owned());
        account.settle_delivery(&delivery, status(answer), at(second));
    }
    sent
}

#[test]
fn each_change_makes_the_events_that_stripe_documents() {
    let mut account = account(&[]);
    let mut told = |change: &mut dyn FnMut(&mut Account)| {
        let before = account.events().count();
        change(&mut account);
        let types = account.events().skip(before).map(|event| serde_json::to_value(event.event_type).unwrap());
        types.map(|name| name.as_str().unwrap().strip_prefix("payment_intent.").unwrap().to_owned()).collect::<Vec<_>>()
    };
    let set = |id: &'static str, status: &'static str| {
        move |account: &mut Account| account.set_status(id, ExternalStatus::from_stripe(status), at(1)).unwrap()
    };
    let nothing: [&str; 0] = [];
    assert_eq!(told(&mut set("pi_1", "requires_action")), ["requires_action"]);
    assert_eq!(told(&mut set("pi_1", "processing")), ["processing"]);
    assert_eq!(told(&mut set("pi_1", "processing")), nothing, "nothing has changed");
    assert_eq!(told(&mut set("pi_1", "succeeded")), ["succeeded"]);
    assert_eq!(told(&mut set("pi_2", "requires_capture")), ["amount_capturable_updated"]);
    assert_eq!(told(&mut set("pi_2", "requires_confirmation")), nothing);
    assert_eq!(told(&mut set("pi_2", "a_status_of_next_year")), nothing);
    assert_eq!(told(&mut |account| account.cancel("pi_3", Some("expired"), at(1)).unwrap()), ["canceled"]);
    let decline =
        |account: &mut Account| account.decline("pi_4", Decline::Card("expired_card".to_owned()), at(1)).unwrap();
    assert_eq!(told(&mut { decline }), ["payment_failed"]);
    assert_eq!(told(&mut { decline }), ["payment_failed"], "a second attempt is another failure");
    assert_eq!(told(&mut set("pi_5", "requires_action")), ["requires_action"]);
    assert_eq!(
        told(&mut |account| account.decline("pi_5", Decline::Authentication, at(1)).unwrap()),
        ["payment_failed"]
    );
    assert_eq!(told(&mut |account| account.refund("pi_1", 1).unwrap()), nothing, "that is the charge's");
    assert_eq!(told(&mut |account| account.change("pi_6", |intent| intent.amount = 7).unwrap()), nothing);

    let create = |method: &'static str, code: u16| {
        move |account: &mut Account| {
            let request = Request::post("/v1/payment_intents", TEST_KEY).form("amount", "500").form("currency", "usd");
            let request = request.form("payment_method", method).form("confirm", "true");
            drop(answered(account, &request, code));
        }
    };
    assert_eq!(told(&mut create("pm_card_visa", 200)), ["created", "succeeded"]);
    assert_eq!(told(&mut create("pm_card_chargeDeclined", 402)), ["created", "payment_failed"]);
    let post = |path: &'static str| move |account: &mut Account| drop(ok(account, &Request::post(path, TEST_KEY)));
    assert_eq!(told(&mut set("pi_7", "requires_capture")), ["amount_capturable_updated"]);
    assert_eq!(told(&mut post("/v1/payment_intents/pi_7/capture")), ["succeeded"]);
    assert_eq!(told(&mut post("/v1/payment_intents/pi_8/cancel")), ["canceled"]);
}

#[test]
fn an_event_holds_the_object_as_retrieve_gives_it_and_the_receiver_reads_it() {
    let mut account = account(&[]);
    let cancel = Request::post("/v1/payment_intents/pi_1/cancel", TEST_KEY).header("Idempotency-Key", "once");
    let (response, _) = answered(&mut account, &cancel, 200);
    let delivery = account.next_delivery(at(1000)).unwrap();
    let (told, retrieved) = (event(&delivery), ok(&mut account, &Request::get("/v1/payment_intents/pi_1", TEST_KEY)));
    assert_eq!(told["data"]["object"], retrieved);
    for (pointer, expected) in [
        ("/object", json!("event")),
        ("/type", json!("payment_intent.canceled")),
        ("/created", json!(1000)),
        ("/livemode", json!(false)),
        ("/api_version", json!("2026-10-28.endive")),
        ("/pending_webhooks", json!(1)),
        ("/request", json!({"id": response.header_value("Request-Id"), "idempotency_key": "once"})),
    ] {
        assert_eq!(told.pointer(pointer), Some(&expected), "{pointer}");
    }
    let Reading::Event(read) = webhook::event::read(&delivery.body).unwrap() else { panic!("an event of ours") };
    assert_eq!((read.external_ref.as_str(), read.external_status.as_deref()), ("pi_1", Some("canceled")));
    assert!(read.id.starts_with("evt_") && !read.livemode && read.account.is_none(), "{read:?}");

    succeed(&mut account, [2], at(1001));
    account.settle_delivery(&delivery, status(200), at(1000));
    let by_itself = event(&account.next_delivery(at(1001)).unwrap());
    assert_eq!(by_itself["request"], json!({"id": null, "idempotency_key": null}));
    assert_ne!(by_itself["id"], told["id"]);
}

#[test]
fn every_secret_signs_what_is_sent_when_it_is_sent() {
    let mut account = account(&[DeliveryRule::always(Mishap::WrongSignature).for_id("pi_2")]);
    let judge = |delivery: &Delivery, secret: &str, second: i64| {
        verify(&delivery.signature, &delivery.body, &[Secret::new(secret)], at(second))
    };
    succeed(&mut account, [1], at(1000));
    let one = account.next_delivery(at(1000)).unwrap();
    assert_eq!((judge(&one, SECRET, 1000), judge(&one, OTHER_SECRET, 1000)), (Ok(()), Err(SignatureError::NoMatch)));
    assert!(one.signature.starts_with("t=1000,v1=") && one.signature.contains(",v0="), "{}", one.signature);

    account.set_webhook_secrets(WebhookEndpointId(1), &[OTHER_SECRET, SECRET]).unwrap();
    let both = account.next_delivery(at(9000)).unwrap();
    assert_eq!((judge(&both, SECRET, 9000), judge(&both, OTHER_SECRET, 9000)), (Ok(()), Ok(())));
    assert_eq!(both.signature.matches("v1=").count(), 2);
    assert_eq!(one.body, both.body);
    assert_eq!(judge(&both, SECRET, 9301), Err(SignatureError::OutOfTolerance { signed_at: 9000 }));
    account.settle_delivery(&both, status(200), at(9000));

    succeed(&mut account, [2], at(9000));
    let forged = account.next_delivery(at(9000)).unwrap();
    assert_eq!(judge(&forged, SECRET, 9000), Err(SignatureError::NoMatch));
    account.settle_delivery(&forged, status(400), at(9000));
    let again = account.next_delivery(at(9060)).unwrap();
    assert_eq!(judge(&again, SECRET, 9060), Err(SignatureError::NoMatch), "a forger does not learn the secret");
}

#[test]
fn live_mode_has_no_v0() {
    let mut account = Account::new();
    let endpoint = WebhookEndpoint { livemode: true, ..WebhookEndpoint::new(URL, SECRET) };
    account.add_webhook_endpoint(endpoint).unwrap();
    let request = Request::post("/v1/payment_intents", LIVE_KEY).form("amount", "500").form("currency", "usd");
    ok(&mut account, &request);
    let delivery = account.next_delivery(at(1000)).unwrap();
    assert!(!delivery.signature.contains("v0"), "{}", delivery.signature);
    assert_eq!(event(&delivery)["livemode"], json!(true));
}

#[test]
fn without_rules_events_go_out_in_their_order_and_once() {
    let mut account = account(&[]);
    succeed(&mut account, [3, 1, 2], at(10));
    assert_eq!(sent(&mut account, 10, 200), ["pi_3", "pi_1", "pi_2"]);
    assert_eq!((account.deliveries_waiting(), account.webhook_counters().accepted), (0, 3));
}

#[test]
fn a_lost_delivery_is_never_sent_but_is_in_the_log_and_can_be_resent() {
    let mut account = account(&[DeliveryRule::once(Mishap::Lose).on(EventType::Succeeded)]);
    succeed(&mut account, [1, 2], at(10));
    assert_eq!(sent(&mut account, 1_000_000, 200), ["pi_2"]);
    let log: Vec<_> = account.deliveries().map(|entry| (entry.attempt, entry.delivered.clone())).collect();
    assert_eq!(log, [(0, Delivered::Lost), (1, status(200))]);
    assert_eq!(account.webhook_counters().lost, 1);
    let lost = account.events().next().unwrap().id.clone();
    assert_eq!(account.resend(&lost, at(1_000_000)), Ok(1));
    assert_eq!(sent(&mut account, 1_000_000, 200), ["pi_1"]);
    assert_eq!(account.resend("evt_none", at(0)), Err(WebhookError::NoSuchEvent { id: "evt_none".to_owned() }));
}

#[test]
fn a_duplicate_is_the_same_event_again() {
    let mut account = account(&[DeliveryRule::once(Mishap::Duplicate(2))]);
    succeed(&mut account, [1, 2], at(10));
    assert_eq!(sent(&mut account, 10, 200), ["pi_1", "pi_1", "pi_1", "pi_2"]);
    let log: Vec<_> = account.deliveries().map(|entry| (entry.event.clone(), entry.copy)).collect();
    assert_eq!(log.iter().map(|(_, copy)| *copy).collect::<Vec<_>>(), [false, true, true, false]);
    assert!(log[0].0 == log[2].0 && log[0].0 != log[3].0, "{log:?}");
    assert_eq!(account.webhook_counters().duplicated, 2);
}

#[test]
fn one_that_is_held_back_comes_after_later_ones_or_at_its_release() {
    let hold =
        |later| [DeliveryRule::once(Mishap::HoldBack(later)), DeliveryRule::once(Mishap::Duplicate(1)).for_id("pi_2")];
    let mut few = account(&hold(2));
    succeed(&mut few, [1, 2, 3, 4], at(10));
    assert_eq!(sent(&mut few, 10, 200), ["pi_2", "pi_2", "pi_3", "pi_1", "pi_4"], "a copy is no later event");
    let mut account = account(&hold(9));
    succeed(&mut account, [1, 2], at(10));
    assert_eq!(sent(&mut account, 10, 200), ["pi_2", "pi_2"]);
    assert_eq!(sent(&mut account, 1_000_000, 200), [""; 0], "no time lets it go");
    assert_eq!(account.release_deliveries(at(20)), 1);
    assert_eq!(sent(&mut account, 20, 200), ["pi_1"]);
}

#[test]
fn a_delayed_one_goes_when_its_time_has_come() {
    let mut account = account(&[DeliveryRule::once(Mishap::Delay { milliseconds: 5_000 }).for_id("pi_1")]);
    succeed(&mut account, [1, 2], at(10));
    assert_eq!(sent(&mut account, 14, 200), ["pi_2"]);
    assert_eq!(account.next_delivery_at(), Some(at(15)));
    succeed(&mut account, [3], at(16));
    assert_eq!(sent(&mut account, 16, 200), ["pi_1", "pi_3"], "it was due before");
}

#[test]
fn all_rules_that_strike_apply() {
    let mut account = account(&[
        DeliveryRule::always(Mishap::Duplicate(1)).for_id("pi_1"),
        DeliveryRule::always(Mishap::HoldBack(1)).for_id("pi_1"),
        DeliveryRule { after: 1, times: Some(1), ..DeliveryRule::always(Mishap::Lose) },
    ]);
    succeed(&mut account, [1, 2, 3], at(10));
    assert_eq!(sent(&mut account, 10, 200), ["pi_3", "pi_1", "pi_1"], "the second one was lost");
}

#[test]
fn what_is_not_answered_2xx_comes_again_for_three_days_with_growing_pauses() {
    let mut account = account(&[]);
    succeed(&mut account, [1], at(0));
    let mut at_seconds = Vec::new();
    let mut bodies = Vec::new();
    while let Some(due) = account.next_delivery_at() {
        let delivery = account.next_delivery(due).unwrap();
        assert_eq!(account.next_delivery(due - Duration::seconds(1)), None, "not before");
        at_seconds.push(due.unix_timestamp());
        verify(&delivery.signature, &delivery.body, &[Secret::new(SECRET)], due).unwrap();
        bodies.push(delivery.body.clone());
        let answer = match at_seconds.len() % 3 {
            0 => Delivered::Unanswered("refused".to_owned()),
            1 => status(500),
            _ => status(302),
        };
        account.settle_delivery(&delivery, answer, due);
    }
    let pauses: Vec<i64> = at_seconds.windows(2).map(|pair| (pair[1] - pair[0]) / 60).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 720, 720, 720, 720], "minutes");
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    let counters = account.webhook_counters();
    assert_eq!((counters.given_up, counters.refused, counters.unanswered, counters.accepted), (1, 10, 5, 0));
    assert_eq!(account.deliveries().map(|entry| entry.attempt).max(), Some(15));
}

#[test]
fn a_retry_ends_with_its_first_success() {
    let mut account = account(&[]);
    succeed(&mut account, [1, 2], at(0));
    assert_eq!(sent(&mut account, 0, 503), ["pi_1", "pi_2"]);
    assert_eq!(sent(&mut account, 59, 200), [""; 0]);
    assert_eq!(sent(&mut account, 60, 200), ["pi_1", "pi_2"]);
    assert_eq!((account.deliveries_waiting(), account.webhook_counters().given_up), (0, 0));
}

#[test]
fn a_delivery_is_settled_once() {
    let mut account = account(&[]);
    succeed(&mut account, [1], at(0));
    let delivery = account.next_delivery(at(0)).unwrap();
    assert_eq!(account.next_delivery(at(0)).as_ref(), Some(&delivery), "it stays the next one until it is settled");
    account.settle_delivery(&delivery, status(200), at(0));
    account.settle_delivery(&delivery, status(500), at(0));
    assert_eq!((account.deliveries_waiting(), account.deliveries().count()), (0, 1));
}

#[test]
fn the_same_seed_gives_the_same_mishaps() {
    let run = |seed: u64| {
        let mut account = account(&[
            DeliveryRule::always(Mishap::Lose).now_and_then(300_000, seed),
            DeliveryRule::always(Mishap::Duplicate(1)).now_and_then(300_000, seed + 1),
            DeliveryRule::always(Mishap::HoldBack(2)).now_and_then(300_000, seed + 2),
        ]);
        succeed(&mut account, 1..=9, at(10));
        sent(&mut account, 10, 200)
    };
    assert_eq!(run(1), run(1));
    assert!((2..20).any(|seed| run(seed) != run(1)));
}

#[test]
fn an_endpoint_hears_what_it_asked_for_of_its_mode_and_its_accounts() {
    let mut account = Account::new();
    account.connect("acct_1");
    for (livemode, connected) in [(false, false), (true, false), (true, true)] {
        let endpoint = WebhookEndpoint { livemode, connected, ..WebhookEndpoint::new(URL, SECRET) };
        account.add_webhook_endpoint(endpoint).unwrap();
    }
    let events = Some(vec![EventType::Succeeded]);
    account.add_webhook_endpoint(WebhookEndpoint { events, ..WebhookEndpoint::new(URL, SECRET) }).unwrap();
    let mut heard = |key: &str, account_id: Option<&str>| {
        let mut request = Request::post("/v1/payment_intents", key).form("amount", "500").form("currency", "usd");
        if let Some(id) = account_id {
            request = request.header("Stripe-Account", id);
        }
        ok(&mut account, &request);
        let mut bodies = Vec::new();
        while let Some(delivery) = account.next_delivery(at(1000)) {
            bodies.push(event(&delivery));
            account.settle_delivery(&delivery, status(200), at(1000));
        }
        let heard: Vec<u64> = account.deliveries().map(|entry| entry.endpoint.0).collect();
        account.clear_deliveries();
        (heard, bodies[0]["account"].clone())
    };
    assert_eq!(heard(TEST_KEY, None), (vec![1], Value::Null));
    assert_eq!(heard(LIVE_KEY, None), (vec![2], Value::Null));
    assert_eq!(heard(LIVE_KEY, Some("acct_1")), (vec![3], json!("acct_1")));
    assert_eq!(heard(TEST_KEY, Some("acct_1")), (vec![3], json!("acct_1")), "test events of connected accounts, too");
}

#[test]
fn only_this_machine_is_an_endpoint() {
    let mut account = Account::new();
    for url in [
        "https://127.0.0.1/",
        "http://localhost:80/",
        "http://example.com/",
        "http://10.0.0.1/",
        "http://0.0.0.0/",
        "http://127.0.0.1.example.com/",
        "http://127.0.0.1@example.com/",
        "ftp://127.0.0.1/",
        "127.0.0.1",
        "",
    ] {
        let refused = account.add_webhook_endpoint(WebhookEndpoint::new(url, SECRET));
        assert_eq!(refused, Err(WebhookError::Url { url: url.to_owned() }));
    }
    for secrets in [vec![], vec!["whsec_".to_owned()], vec![SECRET.to_owned(), "other".to_owned()]] {
        let refused = account.add_webhook_endpoint(WebhookEndpoint { secrets, ..WebhookEndpoint::new(URL, SECRET) });
        assert_eq!(refused, Err(WebhookError::Secrets));
    }
    assert!(account.add_webhook_endpoint(WebhookEndpoint::new("http://[::1]:8080/a?b=c", SECRET)).is_ok());
}

#[test]
fn nothing_is_kept_for_an_endpoint_that_is_gone_or_was_never_there() {
    let mut account = account(&[DeliveryRule::once(Mishap::HoldBack(9))]);
    succeed(&mut account, [1, 2], at(0));
    assert!(
        account.remove_webhook_endpoint(WebhookEndpointId(1)) && !account.remove_webhook_endpoint(WebhookEndpointId(1))
    );
    succeed(&mut account, [3], at(0));
    assert_eq!(
        (account.next_delivery(at(1_000_000)), account.deliveries_waiting(), account.events().count()),
        (None, 0, 2)
    );
}

/// A receiver on the loopback: what it was sent, and a script of its answers (200 at the script's end).
async fn receiver(mut script: Vec<Value>) -> (FunctionUrl, mpsc::UnboundedReceiver<Value>) {
    script.reverse();
    let (sent, received) = mpsc::unbounded_channel();
    let script = Mutex::new(script);
    let handler = move |payload: Value| {
        sent.send(payload).unwrap();
        let answer = script.lock().unwrap().pop().unwrap_or_else(|| json!({"statusCode": 200, "body": "taken"}));
        async move { Ok::<_, HandlerFailed>(answer) }
    };
    (FunctionUrl::start(Clock::manual(at(0)), handler).await.unwrap(), received)
}

async fn sandbox(sending: Sending, now: &Arc<Mutex<Timestamp>>, rules: &[DeliveryRule], url: &str) -> Sandbox {
    let mut account = account(rules);
    account.remove_webhook_endpoint(WebhookEndpointId(1));
    account.add_webhook_endpoint(WebhookEndpoint::new(url, SECRET)).unwrap();
    let now = Arc::clone(now);
    let clock = Arc::new(move || *now.lock().unwrap());
    Sandbox::start(Options { account, clock, sending, ..Options::default() }).await.unwrap()
}

#[tokio::test]
async fn a_post_arrives_whole_and_its_signature_holds() {
    let now = Arc::new(Mutex::new(at(1000)));
    let (front, mut received) = receiver(vec![]).await;
    let sandbox = sandbox(Sending::WhenAsked, &now, &[], &format!("{}/stripe?x=1", front.base_url)).await;
    sandbox.with(|account, now| succeed(account, [1], now));
    assert_eq!((sandbox.deliver().await, sandbox.deliver().await), (1, 0));
    let payload = received.try_recv().unwrap();
    assert_eq!((&payload["rawPath"], &payload["rawQueryString"]), (&json!("/stripe"), &json!("x=1")));
    assert_eq!(payload["requestContext"]["http"]["method"], "POST");
    let request: webhook::http::Request = serde_json::from_value(payload).unwrap();
    let body = request.raw_body().unwrap();
    assert_eq!(verify(&request.signature(), &body, &[Secret::new(SECRET)], at(1000)), Ok(()));
    let logged = sandbox.with(|account, _| account.deliveries().next().unwrap().delivered.clone());
    assert_eq!(logged, Delivered::Answered { status: 200, body: "taken".to_owned() });
}

#[tokio::test]
async fn a_5xx_is_sent_again_later_and_a_redirect_is_not_followed() {
    let now = Arc::new(Mutex::new(at(1000)));
    let elsewhere = receiver(vec![]).await;
    let location = json!({"location": elsewhere.0.base_url});
    let script = vec![json!({"statusCode": 503}), json!({"statusCode": 307, "headers": location})];
    let (front, mut received) = receiver(script).await;
    let sandbox = sandbox(Sending::WhenAsked, &now, &[], &front.base_url).await;
    sandbox.with(|account, now| succeed(account, [1], now));
    let mut sent = Vec::new();
    for second in [1000, 1059, 1060, 1180, 99_999] {
        *now.lock().unwrap() = at(second);
        sent.push(sandbox.deliver().await);
    }
    assert_eq!(sent, [1, 0, 1, 1, 0]);
    let signatures: Vec<Value> =
        (0..3).map(|_| received.try_recv().unwrap()["headers"]["stripe-signature"].clone()).collect();
    assert!(signatures[1].as_str().unwrap().starts_with("t=1060,"), "signed anew: {signatures:?}");
    let mut elsewhere = elsewhere.1;
    assert!(elsewhere.try_recv().is_err(), "a redirect was followed");
}

#[tokio::test]
async fn nobody_there_is_no_answer() {
    let now = Arc::new(Mutex::new(at(1000)));
    let (front, _) = receiver(vec![]).await;
    let url = front.base_url.clone();
    front.stop().await;
    let sandbox = sandbox(Sending::WhenAsked, &now, &[], &url).await;
    sandbox.with(|account, now| succeed(account, [1], now));
    assert_eq!(sandbox.deliver().await, 1);
    let counters = sandbox.with(|account, _| account.webhook_counters().clone());
    assert_eq!((counters.unanswered, counters.accepted), (1, 0));
}

#[tokio::test]
async fn webhooks_go_out_by_themselves() {
    let now = Arc::new(Mutex::new(at(1000)));
    let (front, mut received) = receiver(vec![]).await;
    let delay = DeliveryRule::once(Mishap::Delay { milliseconds: 1 }).for_id("pi_2");
    let sandbox = sandbox(Sending::ByItself, &now, &[delay], &front.base_url).await;
    for number in [1, 2, 3] {
        sandbox.with(|account, now| succeed(account, [number], now));
        if number == 2 {
            *now.lock().unwrap() += Duration::seconds(1);
        }
        let body = received.recv().await.unwrap()["body"].as_str().unwrap().to_owned();
        assert!(body.contains(&format!("\"pi_{number}\"")), "{number}: {body}");
    }
    sandbox.stop().await;
}

#[tokio::test]
async fn another_process_can_do_all_of_it() {
    let now = Arc::new(Mutex::new(at(1000)));
    let (front, mut received) = receiver(vec![json!({"statusCode": 500})]).await;
    let sandbox = sandbox(Sending::WhenAsked, &now, &[], "http://127.0.0.1:9/").await;
    let control = async |method: &str, route: &str, body: Value| {
        let (status, _, json) =
            super::http::send(&sandbox, method, &format!("/_control/webhooks/{route}"), &body.to_string()).await;
        (status, json)
    };
    assert_eq!(control("DELETE", "endpoints/2", Value::Null).await, (200, json!({})));
    assert_eq!(control("DELETE", "endpoints/2", Value::Null).await.0, 404);
    assert_eq!(control("POST", "endpoints", json!({"url": "http://example.com/", "secrets": [SECRET]})).await.0, 400);
    let endpoint = json!({"url": front.base_url, "secrets": [SECRET], "events": ["payment_intent.succeeded"]});
    assert_eq!(control("POST", "endpoints", endpoint).await, (200, json!({"endpoint": 3})));
    assert_eq!(control("GET", "endpoints", Value::Null).await.1[0]["is"]["url"], json!(front.base_url));
    let rule = json!({"mishap": {"duplicate": 1}, "event_type": "payment_intent.succeeded", "times": 1});
    assert_eq!(control("POST", "rules", rule).await, (200, json!({"rule": 1})));
    assert_eq!(control("POST", "rules", json!({"mishap": "explode"})).await.0, 400);
    assert_eq!(control("GET", "rules", Value::Null).await.1[0]["is"]["mishap"], json!({"duplicate": 1}));
    for status in ["processing", "succeeded"] {
        let target = "/_control/payment_intents/pi_1";
        super::http::send(&sandbox, "POST", target, &json!({"status": status}).to_string()).await;
    }
    assert_eq!(control("POST", "deliver", Value::Null).await, (200, json!({"sent": 2})));
    assert_eq!(control("POST", "release", Value::Null).await, (200, json!({"released": 1})));
    assert_eq!(control("POST", "deliver", Value::Null).await, (200, json!({"sent": 1})));
    let events = control("GET", "events", Value::Null).await.1;
    let event = events[0]["id"].clone();
    assert_eq!((events.as_array().unwrap().len(), &events[0]["event_type"]), (1, &json!("payment_intent.succeeded")));
    assert_eq!(control("POST", "resend", json!({"event": event})).await, (200, json!({"endpoints": 1})));
    assert_eq!(control("POST", "resend", json!({"event": "evt_none"})).await.0, 404);
    assert_eq!(control("POST", "deliver", Value::Null).await, (200, json!({"sent": 1})));
    let deliveries = control("GET", "deliveries", Value::Null).await.1;
    assert_eq!((&deliveries["counters"]["accepted"], &deliveries["waiting"]), (&json!(3), &json!(0)), "{deliveries}");
    assert_eq!(deliveries["log"][0]["delivered"]["answered"]["status"], 500);
    control("DELETE", "deliveries", Value::Null).await;
    control("DELETE", "rules", Value::Null).await;
    assert_eq!(control("GET", "deliveries", Value::Null).await.1["log"], json!([]));
    assert_eq!(control("GET", "nothing", Value::Null).await.0, 404);
    for _ in 0..4 {
        assert!(received.try_recv().unwrap()["body"].as_str().unwrap().contains(event.as_str().unwrap()));
    }
}
