use proptest::prelude::*;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::*;
use crate::domain::Timestamp;
use crate::domain::external::{Decline, ExternalPayment, ExternalStatus};
use crate::gateway::Remedy;

const ID: &str = "pi_3MtwBwLkdIwHu7ix28a3tqPa";

fn id(text: &str) -> ExternalRef {
    ExternalRef::parse(text).unwrap()
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())).collect()
}

fn retrieve_with(
    status: u16,
    pairs: &[(&'static str, &str)],
    body: impl AsRef<[u8]>,
) -> Result<External, GatewayError> {
    decode_retrieve(&id(ID), Answer { status, headers: &headers(pairs), body: body.as_ref() })
}

fn retrieve(status: u16, body: impl AsRef<[u8]>) -> Result<External, GatewayError> {
    retrieve_with(status, &[("request-id", "req_1")], body)
}

fn present(body: &Value) -> ExternalPayment {
    match retrieve(200, body.to_string()).unwrap() {
        External::Present(payment) => payment,
        External::NotFound { other_mode } => panic!("not found, {other_mode}"),
    }
}

fn flaw(result: Result<impl std::fmt::Debug, GatewayError>) -> Flaw {
    let error = result.unwrap_err();
    let GatewayError::Unreadable { flaw, .. } = error else { panic!("{error:?}") };
    flaw
}

fn after(cursor: Option<&str>) -> ListQuery {
    ListQuery { created_from: None, created_before: None, limit: 100, starting_after: cursor.map(id) }
}

fn list(cursor: Option<&str>, status: u16, body: impl AsRef<[u8]>) -> Result<ListPage, GatewayError> {
    decode_list(&after(cursor), Answer { status, headers: &HeaderMap::new(), body: body.as_ref() })
}

/// A PaymentIntent as the API prints it, with what we do not read.
fn intent() -> Value {
    json!({
        "id": ID,
        "object": "payment_intent",
        "amount": 2000,
        "amount_capturable": 0,
        "amount_details": { "tip": {} },
        "amount_received": 2000,
        "automatic_payment_methods": { "enabled": true },
        "canceled_at": null,
        "cancellation_reason": null,
        "capture_method": "automatic",
        "client_secret": "pi_3MtwBwLkdIwHu7ix28a3tqPa_secret_YrKJUKribcBjcG8HVhfZluoGH",
        "created": 1680800504,
        "currency": "usd",
        "customer": null,
        "last_payment_error": null,
        "latest_charge": { "id": "ch_1", "object": "charge", "status": "succeeded", "created": 1680800600 },
        "livemode": false,
        "metadata": { "order_id": "6735" },
        "next_action": null,
        "payment_method_types": ["card", "link"],
        "status": "succeeded"
    })
}

/// The same with one member replaced.
fn intent_with(member: &str, value: Value) -> Value {
    let mut intent = intent();
    intent[member] = value;
    intent
}

fn intent_without(member: &str) -> Value {
    let mut intent = intent();
    intent.as_object_mut().unwrap().remove(member).unwrap();
    intent
}

fn error(code: Option<&str>, param: Option<&str>, message: &str) -> String {
    let mut error =
        json!({ "type": "invalid_request_error", "message": message, "doc_url": "https://stripe.com/docs" });
    if let Some(code) = code {
        error["code"] = code.into();
    }
    if let Some(param) = param {
        error["param"] = param.into();
    }
    json!({ "error": error }).to_string()
}

fn missing(message: &str) -> String {
    error(Some("resource_missing"), Some("intent"), message)
}

fn page_of(objects: &[Value], has_more: bool) -> String {
    json!({ "object": "list", "url": "/v1/payment_intents", "has_more": has_more, "data": objects }).to_string()
}

#[test]
fn a_payment_intent_is_read_member_by_member() {
    assert_eq!(
        present(&intent()),
        ExternalPayment {
            id: id(ID),
            status: ExternalStatus::Succeeded,
            amount_minor: 2000,
            amount_received_minor: 2000,
            currency: "usd".into(),
            created: Timestamp::from_unix_timestamp(1_680_800_504).unwrap(),
            livemode: false,
            metadata: [("order_id".to_owned(), "6735".to_owned())].into(),
            decline: None,
            cancellation_reason: None,
        }
    );
    let canceled = intent_with("cancellation_reason", "expired".into());
    assert_eq!(present(&canceled).cancellation_reason.as_deref(), Some("expired"));
    assert!(present(&intent_with("livemode", true.into())).livemode);
}

#[test]
fn every_status_is_read_and_an_unknown_one_is_kept() {
    for status in ExternalStatus::KNOWN {
        assert_eq!(present(&intent_with("status", status.as_str().into())).status, status);
    }
    let unknown = present(&intent_with("status", "partially_funded".into())).status;
    assert_eq!(unknown, ExternalStatus::Unknown("partially_funded".into()));
}

#[test]
fn what_stripe_may_leave_out_may_be_missing_or_null() {
    for member in
        ["object", "amount_received", "metadata", "last_payment_error", "latest_charge", "cancellation_reason"]
    {
        let without = present(&intent_without(member));
        assert_eq!(without, present(&intent_with(member, Value::Null)), "{member}");
        assert_eq!((without.status, without.amount_minor), (ExternalStatus::Succeeded, 2000), "{member}");
    }
    assert_eq!(present(&intent_without("amount_received")).amount_received_minor, 0);
    assert!(present(&intent_without("metadata")).metadata.is_empty());
}

#[test]
fn what_decides_about_money_may_not_be_missing() {
    for member in ["id", "status", "amount", "currency", "created", "livemode"] {
        for body in [intent_without(member), intent_with(member, Value::Null)] {
            let error = retrieve(200, body.to_string()).unwrap_err();
            assert!(error.to_string().contains(member), "{error}");
            assert_eq!(error.remedy(), Remedy::GiveUp);
            assert!(matches!(error, GatewayError::Unreadable { flaw: Flaw::Missing(named), .. } if named == member));
        }
    }
}

#[test]
fn a_member_of_another_kind_is_named_and_its_value_is_not_shown() {
    for (member, value) in [
        ("id", json!("ch_hush")),
        ("id", json!(1)),
        ("status", json!(["hush"])),
        ("amount", json!("hush")),
        ("amount", json!(20.0)),
        ("amount", json!(20.5)),
        ("amount", json!(true)),
        ("amount", json!(9_223_372_036_854_775_808_u64)),
        ("amount_received", json!("hush")),
        ("currency", json!({ "hush": 1 })),
        ("created", json!("2026-01-01")),
        ("created", json!(1.5)),
        ("created", json!(i64::MAX)),
        ("livemode", json!("true")),
        ("metadata", json!(["hush"])),
        ("metadata", json!({ "order_id": 6735 })),
        ("last_payment_error", json!("hush")),
        ("last_payment_error", json!(["hush", "hush"])),
        ("last_payment_error", json!({ "code": 5 })),
        ("cancellation_reason", json!(7)),
        ("object", json!(7)),
    ] {
        let error = retrieve(200, intent_with(member, value).to_string()).unwrap_err();
        assert!(
            matches!(error, GatewayError::Unreadable { flaw: Flaw::WrongKind(named), .. } if named == member),
            "{member}: {error}"
        );
        assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
    }
}

#[test]
fn amounts_are_whole_numbers_of_64_bits_however_they_are_written() {
    for (written, read) in [("0", 0), ("9223372036854775807", i64::MAX), ("-5", -5)] {
        let body = intent().to_string().replace("\"amount\":2000", &format!("\"amount\":{written}"));
        assert!(matches!(retrieve(200, body).unwrap(), External::Present(payment) if payment.amount_minor == read));
    }
    for written in ["2e3", "2000.0", "1e999", "9223372036854775808", "99999999999999999999999999", "-9e99"] {
        let body = intent().to_string().replace("\"amount\":2000", &format!("\"amount\":{written}"));
        assert_eq!(flaw(retrieve(200, body)), Flaw::WrongKind("amount"), "{written}");
    }
}

#[test]
fn a_decline_says_its_code_and_when_the_charge_failed() {
    let charge = |status: &str| json!({ "id": "ch_1", "status": status, "created": 1_680_800_600 });
    let at = Timestamp::from_unix_timestamp(1_680_800_600).ok();
    let both = json!({ "code": "card_declined", "decline_code": "insufficient_funds", "type": "card_error" });
    let code_only = json!({ "code": "payment_intent_authentication_failure", "message": "…" });
    for (error, latest_charge, code, charged_at) in [
        (both.clone(), charge("failed"), Some("insufficient_funds"), at),
        (code_only.clone(), charge("failed"), Some("payment_intent_authentication_failure"), at),
        (json!({}), charge("failed"), None, at),
        (json!({ "code": null, "decline_code": null }), charge("failed"), None, at),
        // an older charge that did not fail says nothing about this attempt
        (both.clone(), charge("succeeded"), Some("insufficient_funds"), None),
        (both.clone(), json!({ "id": "ch_1", "status": "failed" }), Some("insufficient_funds"), None),
        // not expanded
        (both.clone(), json!("ch_1"), Some("insufficient_funds"), None),
        // failed before any charge
        (code_only, Value::Null, Some("payment_intent_authentication_failure"), None),
    ] {
        let mut body = intent_with("status", "requires_payment_method".into());
        body["last_payment_error"] = error;
        body["latest_charge"] = latest_charge;
        let expected = Decline { code: code.map(str::to_owned), charged_at };
        assert_eq!(present(&body).decline, Some(expected), "{body}");
    }
    for latest_charge in [json!(5), json!(["failed", 1]), json!({ "status": "failed", "created": i64::MIN })] {
        let mut body = intent_with("last_payment_error", both.clone());
        body["latest_charge"] = latest_charge;
        assert_eq!(flaw(retrieve(200, body.to_string())), Flaw::WrongKind("latest_charge"), "{body}");
    }
    // without an error it decides nothing
    assert_eq!(present(&intent_with("latest_charge", json!(5))).decline, None);
}

#[test]
fn a_nul_which_postgres_cannot_store_is_replaced() {
    let mut body = intent_with("metadata", json!({ "order_id": "67\u{0}35" }));
    body["status"] = "odd\u{0}".into();
    let payment = present(&body);
    assert_eq!(payment.metadata.get("order_id").unwrap(), "67\u{FFFD}35");
    assert_eq!(payment.status, ExternalStatus::Unknown("odd\u{FFFD}".into()));
}

#[test]
fn a_200_that_is_not_the_payment_intent_asked_for_is_no_fact() {
    let whole = intent().to_string();
    let half = whole.get(..whole.len() / 2).unwrap();
    let twice = |member: &str| whole.replacen('{', &format!("{{{member},"), 1);
    for (body, expected) in [
        ("", Flaw::NotJson),
        (" ", Flaw::NotJson),
        ("<html><body>Welcome</body></html>", Flaw::NotJson),
        (half, Flaw::NotJson),
        (&format!("{whole}{whole}"), Flaw::NotJson),
        (&"[".repeat(10_000), Flaw::NotJson),
        ("null", Flaw::NotAnObject),
        ("[]", Flaw::NotAnObject),
        ("\"pi_1\"", Flaw::NotAnObject),
        ("{}", Flaw::Missing("id")),
        ("{\"error\":{\"code\":\"resource_missing\",\"param\":\"intent\"}}", Flaw::Missing("id")),
        (&intent_with("id", "pi_other".into()).to_string(), Flaw::OtherId),
        (&intent_with("object", "charge".into()).to_string(), Flaw::OtherObject),
        (&page_of(&[intent()], false), Flaw::OtherObject),
        // which of the two would be true?
        (&twice("\"status\":\"processing\""), Flaw::NotAnObject),
        (&twice("\"amount\":1"), Flaw::NotAnObject),
    ] {
        assert_eq!(flaw(retrieve(200, body)), expected, "{body:.200}");
    }
    assert_eq!(flaw(retrieve(200, b"{\"id\":\"\xff\"}")), Flaw::NotJson);
    // a member that is not read may stand twice
    assert!(retrieve(200, twice("\"customer\":\"cus_1\"")).is_ok());
    // serde would read an array as a struct, element by element
    let array = json!([ID, "payment_intent", "succeeded", 1, 1, "usd", 1, true, {}, null, null, null]);
    assert_eq!(flaw(retrieve(200, array.to_string())), Flaw::NotAnObject);
    // an object within a 2xx of another kind
    for status in [201, 202, 203, 204, 206] {
        assert_eq!(flaw(retrieve(status, &whole)), Flaw::Status, "{status}");
    }
}

#[test]
fn a_404_about_this_very_payment_intent_is_the_only_absence() {
    for (message, other_mode) in [
        ("No such payment_intent: 'pi_3MtwBwLkdIwHu7ix28a3tqPa'", false),
        (
            "No such payment_intent: 'pi_3MtwBwLkdIwHu7ix28a3tqPa'; a similar object exists in live mode, but a test \
             mode key was used to make this request.",
            true,
        ),
        (
            "No such payment_intent: 'pi_3MtwBwLkdIwHu7ix28a3tqPa'; a similar object exists in test mode, but a live \
             mode key was used to make this request.",
            true,
        ),
        // should Stripe word it differently one day
        ("No such thing.", false),
        ("", false),
    ] {
        assert_eq!(retrieve(404, missing(message)).unwrap(), External::NotFound { other_mode }, "{message}");
    }
    for body in [
        error(None, None, "Unrecognized request URL (GET: /v2/payment_intents/pi_3MtwBwLkdIwHu7ix28a3tqPa)."),
        error(Some("resource_missing"), None, "No such payment_intent: 'pi_3MtwBwLkdIwHu7ix28a3tqPa'"),
        error(Some("resource_missing"), Some("customer"), "No such customer: 'cus_1'"),
        error(Some("url_invalid"), Some("intent"), "No such payment_intent: 'pi_3MtwBwLkdIwHu7ix28a3tqPa'"),
        missing("No such payment_intent: 'pi_other'"),
        "<html><h1>404 Not Found</h1></html>".to_owned(),
        "{\"error\":\"resource_missing\"}".to_owned(),
        "{\"error\":[\"resource_missing\",\"\",\"intent\"]}".to_owned(),
        "{\"error\":{\"code\":\"resource_missing\",\"code\":\"resource_missing\",\"param\":\"intent\"}}".to_owned(),
        "{}".to_owned(),
        String::new(),
        intent().to_string(),
        missing("").get(..40).unwrap().to_owned(),
    ] {
        assert_eq!(flaw(retrieve(404, &body)), Flaw::OtherNotFound, "{body}");
    }
    assert_eq!(flaw(list(None, 404, missing("No such payment_intent"))), Flaw::OtherNotFound);
}

#[test]
fn a_refusal_says_what_to_do() {
    let transient = |code: u16| (Remedy::Retry, format!("HTTP {code}"));
    let locked = error(Some("lock_timeout"), None, "This object cannot be accessed right now.");
    let html = "<html><h1>Bad Gateway</h1></html>".to_owned();
    let api_error = json!({ "error": { "type": "api_error", "message": "Something went wrong" } }).to_string();
    for (status, body, (remedy, said)) in [
        (401, error(None, None, "Invalid API Key provided: sk_test_****1234"), (Remedy::EndTick, "[secret]".into())),
        (401, html.clone(), (Remedy::EndTick, "STRIPE_API_KEY".into())),
        (403, error(None, None, "The provided key does not have access."), (Remedy::EndTick, "HTTP 403".into())),
        (403, String::new(), (Remedy::EndTick, "STRIPE_ACCOUNT".into())),
        (429, locked.clone(), (Remedy::Retry, "code lock_timeout".into())),
        (429, String::new(), transient(429)),
        (409, locked, transient(409)),
        (500, api_error, transient(500)),
        (500, intent().to_string(), transient(500)),
        (502, html.clone(), transient(502)),
        (503, missing("No such payment_intent"), transient(503)),
        (504, String::new(), transient(504)),
        (599, String::new(), transient(599)),
        (
            400,
            error(Some("parameter_unknown"), Some("x"), "Received unknown parameter"),
            (Remedy::GiveUp, "parameter_unknown".into()),
        ),
        (402, error(Some("card_declined"), None, "Declined"), (Remedy::GiveUp, "card_declined".into())),
        (301, html.clone(), (Remedy::GiveUp, "HTTP 301".into())),
        (302, intent().to_string(), (Remedy::GiveUp, "HTTP 302".into())),
        (407, html, (Remedy::GiveUp, "HTTP 407".into())),
        (410, missing("No such payment_intent"), (Remedy::GiveUp, "HTTP 410".into())),
        (999, String::new(), (Remedy::GiveUp, "HTTP 999".into())),
    ] {
        for error in [retrieve(status, &body).unwrap_err(), list(None, status, &body).unwrap_err()] {
            assert_eq!(error.remedy(), remedy, "{status} {body}");
            assert!(error.to_string().contains(&said), "{error}");
            assert_eq!(error.exchange().http_status, Some(status));
        }
    }
}

#[test]
fn stripes_limiter_is_told_from_a_lock_by_its_header() {
    let rate_limit = error(Some("rate_limit"), None, "Too many requests");
    for (reason, expected) in [
        ("global-rate", RateLimitReason::GlobalRate),
        ("global-concurrency", RateLimitReason::GlobalConcurrency),
        ("endpoint-rate", RateLimitReason::EndpointRate),
        ("endpoint-concurrency", RateLimitReason::EndpointConcurrency),
        ("resource-specific", RateLimitReason::ResourceSpecific),
        ("lunar-phase", RateLimitReason::Other("lunar-phase".into())),
        ("", RateLimitReason::Other(String::new())),
    ] {
        // the header decides, whatever the body is
        for body in [rate_limit.as_str(), "", "<html>", &error(Some("lock_timeout"), None, "")] {
            let error = retrieve_with(429, &[("stripe-rate-limited-reason", reason)], body).unwrap_err();
            assert!(matches!(&error, GatewayError::RateLimited { reason, .. } if *reason == expected), "{error:?}");
            assert_eq!(error.remedy(), Remedy::StopBatch { retry_after: None });
        }
    }
    let unstated = retrieve(429, &rate_limit).unwrap_err();
    assert!(matches!(unstated, GatewayError::RateLimited { reason: RateLimitReason::Unstated, .. }));
    // only a 429 is a rate limit
    let error = retrieve_with(503, &[("stripe-rate-limited-reason", "global-rate")], "").unwrap_err();
    assert_eq!(error.remedy(), Remedy::Retry);
}

#[test]
fn retry_after_is_honoured_in_seconds_and_bounded() {
    for (written, read) in [
        ("0", Some(0)),
        ("7", Some(7)),
        (" 7 ", Some(7)),
        ("999999999", Some(3600)),
        ("-1", None),
        ("1.5", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("99999999999999999999999", None),
    ] {
        let pairs = [("stripe-rate-limited-reason", "endpoint-rate"), ("retry-after", written)];
        let retry_after = read.map(Duration::from_secs);
        assert_eq!(
            retrieve_with(429, &pairs, "").unwrap_err().remedy(),
            Remedy::StopBatch { retry_after },
            "{written}"
        );
        let error = retrieve_with(503, &pairs, "").unwrap_err();
        assert!(matches!(error, GatewayError::Transient { retry_after: read, .. } if read == retry_after), "{written}");
    }
}

#[test]
fn a_cursor_that_stripe_does_not_know_restarts_the_window() {
    let body = error(Some("resource_missing"), Some("starting_after"), "No such payment_intent: 'pi_gone'");
    let error = list(Some("pi_gone"), 400, &body).unwrap_err();
    assert!(matches!(error, GatewayError::PageCursorInvalid { .. }), "{error:?}");
    assert!(error.to_string().contains("pi_gone"));
    // about a cursor that nobody sent, it is nonsense: a restart would not help
    assert_eq!(flaw(list(None, 400, &body)), Flaw::Status);
    assert_eq!(flaw(retrieve(400, &body)), Flaw::Status);
    assert_eq!(flaw(list(Some("pi_gone"), 404, &body)), Flaw::OtherNotFound);
}

#[test]
fn a_page_gives_its_objects_in_order_and_the_next_cursor_exactly_where_there_is_more() {
    let objects = [intent_with("id", "pi_b".into()), intent_with("id", "pi_a".into())];
    for (has_more, next) in [(true, Some(id("pi_a"))), (false, None)] {
        let page = list(Some("pi_c"), 200, page_of(&objects, has_more)).unwrap();
        assert_eq!(page.payments.iter().map(|payment| payment.id.as_str()).collect::<Vec<_>>(), ["pi_b", "pi_a"]);
        assert_eq!((page.unreadable.len(), page.has_more(), page.next), (0, has_more, next));
    }
    let empty = list(None, 200, page_of(&[], false)).unwrap();
    assert_eq!(empty, ListPage { payments: vec![], unreadable: vec![], next: None });
}

#[test]
fn what_cannot_be_read_on_a_page_is_reported_and_spoils_neither_the_rest_nor_the_cursor() {
    let mut nameless = intent();
    nameless.as_object_mut().unwrap().remove("id").unwrap();
    let mut last = intent_with("amount", json!(1.5));
    last["id"] = "pi_last".into();
    let objects = [intent_with("id", "pi_b".into()), nameless, json!("pi_text"), json!(null), last];
    let page = list(None, 200, page_of(&objects, true)).unwrap();
    assert_eq!(page.payments.len(), 1);
    assert_eq!(
        page.unreadable,
        [
            UnreadableObject { id: None, flaw: Flaw::Missing("id") },
            UnreadableObject { id: None, flaw: Flaw::NotAnObject },
            UnreadableObject { id: None, flaw: Flaw::NotAnObject },
            UnreadableObject { id: Some(id("pi_last")), flaw: Flaw::WrongKind("amount") },
        ]
    );
    assert_eq!(page.next, Some(id("pi_last")));
    // a last object without an id leaves no way on
    let objects = [intent(), json!({})];
    assert_eq!(flaw(list(None, 200, page_of(&objects, true))), Flaw::WrongKind("id"));
    assert_eq!(list(None, 200, page_of(&objects, false)).unwrap().unreadable.len(), 1);
}

#[test]
fn a_member_that_stands_twice_in_an_object_of_a_page_is_seen() {
    let twice = page_of(&[intent()], false).replace("\"status\":", "\"status\":\"processing\",\"status\":");
    let page = list(None, 200, twice).unwrap();
    assert_eq!(page.payments, []);
    assert_eq!(page.unreadable, [UnreadableObject { id: Some(id(ID)), flaw: Flaw::NotAnObject }]);
}

#[test]
fn a_page_that_leads_nowhere_is_an_error() {
    for (cursor, objects) in [(None, vec![]), (Some("pi_c"), vec![]), (Some(ID), vec![intent()])] {
        let error = list(cursor, 200, page_of(&objects, true)).unwrap_err();
        assert!(matches!(error, GatewayError::EndlessPage { .. }), "{error:?}");
        assert_eq!(error.remedy(), Remedy::GiveUp);
    }
}

#[test]
fn a_200_that_is_not_a_page_is_no_fact() {
    let whole = page_of(&[intent()], false);
    for (body, expected) in [
        ("", Flaw::NotJson),
        ("<html>", Flaw::NotJson),
        (whole.get(..whole.len() - 2).unwrap(), Flaw::NotJson),
        ("[\"list\",[],false]", Flaw::NotAnObject),
        ("{}", Flaw::Missing("data")),
        ("{\"data\":[]}", Flaw::Missing("has_more")),
        ("{\"data\":[],\"has_more\":null}", Flaw::Missing("has_more")),
        ("{\"data\":[],\"has_more\":\"false\"}", Flaw::WrongKind("has_more")),
        ("{\"data\":{},\"has_more\":false}", Flaw::WrongKind("data")),
        ("{\"data\":[],\"has_more\":false,\"has_more\":true}", Flaw::NotAnObject),
        (&intent().to_string(), Flaw::OtherObject),
    ] {
        assert_eq!(flaw(list(None, 200, body)), expected, "{body:.200}");
    }
}

#[test]
fn an_error_carries_what_support_asks_for_and_no_secret() {
    let message = "Invalid API Key provided: sk_live_hush; pi_1_secret_hush; whsec_hush\nforged line";
    let body = error(Some("rk_test_hush"), None, message);
    for (status, pairs) in [
        (400, &[("request-id", "req_abc")][..]),
        (401, &[("request-id", "req_abc")]),
        (429, &[("request-id", "req_abc"), ("stripe-rate-limited-reason", "sk_live_hush")]),
        (500, &[("request-id", "req_abc")]),
    ] {
        let error = retrieve_with(status, pairs, &body).unwrap_err();
        let shown = error.to_string();
        for part in [ID, "req_abc", &format!("HTTP {status}"), "Invalid API Key provided: [secret]"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(!format!("{error} {error:?} {:?}", error.exchange()).contains("hush"), "{error:?}");
        assert!(!shown.contains('\n'), "{shown}");
    }
    let error = retrieve(400, error(None, None, &"long ".repeat(1_000))).unwrap_err().to_string();
    assert!(error.len() < 500, "{}", error.len());
}

#[test]
fn a_client_secret_is_not_in_what_was_read() {
    let whole = format!("{:?}", retrieve(200, intent().to_string()));
    let page = format!("{:?}", list(None, 200, page_of(&[intent(), intent_with("amount", json!("x"))], false)));
    assert!(whole.contains(ID) && page.contains(ID));
    assert!(!whole.contains("secret") && !page.contains("secret"));
}

/// Bodies near to the real ones: whole, with one member made odd, cut, or with one byte changed.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let members =
        prop::sample::select(vec!["id", "status", "amount", "created", "livemode", "metadata", "latest_charge"]);
    let oddities = prop::sample::select(vec![
        json!(null),
        json!(-1),
        json!(1.5),
        json!(u64::MAX),
        json!("pi_x"),
        json!([]),
        json!({}),
        json!([[{}]]),
    ]);
    let near = (members, oddities, prop::sample::select(vec![0, 1, 2])).prop_map(|(member, odd, wrap)| {
        let intent = intent_with(member, odd);
        match wrap {
            0 => intent.to_string(),
            1 => page_of(&[intent], true),
            _ => json!({ "error": intent }).to_string(),
        }
    });
    let real = prop::sample::select(vec![
        intent().to_string(),
        page_of(&[intent()], true),
        page_of(&[], true),
        missing("No such payment_intent"),
        error(Some("lock_timeout"), None, "locked"),
    ]);
    let cut = (prop_oneof![near, real], any::<prop::sample::Index>(), any::<Option<u8>>(), any::<bool>()).prop_map(
        |(body, index, byte, cut)| {
            let mut body = body.into_bytes();
            let at = index.index(body.len());
            if let Some(byte) = byte {
                body[at] = byte;
            }
            if cut {
                body.truncate(at);
            }
            body
        },
    );
    prop_oneof![3 => cut, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

fn any_headers() -> impl Strategy<Value = HeaderMap> {
    let names = prop::sample::select(vec!["request-id", "stripe-rate-limited-reason", "retry-after", "content-type"]);
    let values = prop::collection::vec(any::<u8>(), 0..20)
        .prop_filter_map("not a header", |bytes| HeaderValue::from_bytes(&bytes).ok());
    prop::collection::vec((names, values), 0..4)
        .prop_map(|pairs| pairs.into_iter().map(|(name, value)| (HeaderName::from_static(name), value)).collect())
}

fn statuses() -> impl Strategy<Value = u16> {
    prop_oneof![Just(200), Just(404), Just(400), Just(429), 100..600_u16, any::<u16>()]
}

proptest! {
    #[test]
    fn only_200_and_404_are_facts_and_nothing_panics(
        status in statuses(),
        headers in any_headers(),
        body in bodies(),
    ) {
        let answer = Answer { status, headers: &headers, body: &body };
        let retrieved = decode_retrieve(&id(ID), answer);
        match &retrieved {
            Ok(External::Present(payment)) => prop_assert!(status == 200 && payment.id.as_str() == ID),
            Ok(External::NotFound { .. }) => prop_assert_eq!(status, 404),
            Err(error) => prop_assert_eq!(error.exchange().http_status, Some(status)),
        }
        let listed = decode_list(&after(Some(ID)), answer);
        match &listed {
            Ok(page) => prop_assert!(status == 200 && page.next != Some(id(ID))),
            Err(error) => prop_assert_eq!(error.exchange().http_status, Some(status)),
        }
        // printing must not panic either
        let printed = format!("{retrieved:?} {listed:?}");
        prop_assert!(!printed.contains("_secret_"));
    }
}
