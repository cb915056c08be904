use reconciler::domain::external::ExternalStatus;
use serde_json::json;

use super::super::{
    Account, Chance, Endpoint, Fault, FaultRule, Given, Hold, LimitReason, PaymentIntentSeed, Reply, Request, Response,
};
use super::{TEST_KEY, at};

const LIST: &str = "/v1/payment_intents";

fn retrieve(id: &str) -> Request {
    Request::get(&format!("{LIST}/{id}"), TEST_KEY)
}

fn account() -> Account {
    let mut account = Account::new();
    for id in ["pi_1", "pi_2"] {
        account.insert(PaymentIntentSeed { id: Some(id.to_owned()), ..PaymentIntentSeed::new(at(100)) }).unwrap();
    }
    account
}

fn answer(reply: Reply) -> Response {
    match reply {
        Reply::Answer(response) => response,
        Reply::Dropped | Reply::Hold(_) => panic!("{reply:?}"),
    }
}

fn held(reply: &Reply) -> Hold {
    match reply {
        Reply::Hold(hold) => *hold,
        Reply::Answer(_) | Reply::Dropped => panic!("{reply:?}"),
    }
}

fn statuses(account: &mut Account, requests: &[Request]) -> Vec<u16> {
    requests.iter().map(|request| answer(account.handle(request, at(1000))).status).collect()
}

#[test]
fn each_error_fault_looks_like_the_real_thing() {
    for (fault, status, kind, code, reason, retry) in [
        (
            Fault::RateLimited(LimitReason::GlobalConcurrency),
            429,
            "invalid_request_error",
            json!("rate_limit"),
            Some("global-concurrency"),
            Some("false"),
        ),
        (
            Fault::RateLimited(LimitReason::ResourceSpecific),
            429,
            "invalid_request_error",
            json!("rate_limit"),
            Some("resource-specific"),
            Some("false"),
        ),
        (Fault::LockTimeout, 429, "invalid_request_error", json!("lock_timeout"), None, Some("true")),
        (Fault::Conflict, 409, "idempotency_error", json!("idempotency_key_in_use"), None, Some("true")),
        (Fault::InternalError, 500, "api_error", json!(null), None, None),
        (Fault::BadGateway, 502, "api_error", json!(null), None, None),
        (Fault::Unavailable, 503, "api_error", json!(null), None, None),
        (Fault::InvalidKey, 401, "invalid_request_error", json!(null), None, Some("false")),
        (Fault::ExpiredKey, 401, "invalid_request_error", json!("api_key_expired"), None, Some("false")),
        (Fault::Forbidden, 403, "invalid_request_error", json!(null), None, Some("false")),
        (Fault::NotFound, 404, "invalid_request_error", json!("resource_missing"), None, Some("false")),
        (Fault::WrongMode, 404, "invalid_request_error", json!("resource_missing"), None, Some("false")),
    ] {
        let mut account = account();
        account.add_fault(FaultRule::once(fault));
        let response = answer(account.handle(&retrieve("pi_1"), at(1000)));
        let json = response.json().unwrap();
        let error = &json["error"];
        assert_eq!((response.status, &error["type"], &error["code"]), (status, &json!(kind), &code), "{fault:?}");
        assert!(!error["message"].as_str().unwrap().is_empty());
        assert_eq!(response.header_value("Stripe-Rate-Limited-Reason"), reason, "{fault:?}");
        assert_eq!(response.header_value("Stripe-Should-Retry"), retry, "{fault:?}");
        assert!(response.header_value("Request-Id").is_some(), "{fault:?}");
        assert!(!String::from_utf8(response.body).unwrap().contains("4eC39H"), "{fault:?} quotes the key");
        // Once is once.
        assert_eq!(answer(account.handle(&retrieve("pi_1"), at(1000))).status, 200);
        assert_eq!(account.counters().by_status, [(status, 1), (200, 1)].into());
    }
}

#[test]
fn wrong_mode_and_not_found_differ_in_the_message_only() {
    let mut account = account();
    account.add_fault(FaultRule::once(Fault::WrongMode));
    account.add_fault(FaultRule::once(Fault::NotFound));
    let messages: Vec<_> = [retrieve("pi_1"), retrieve("pi_1")]
        .iter()
        .map(|request| answer(account.handle(request, at(1000))).json().unwrap()["error"]["message"].take())
        .collect();
    assert_eq!(
        messages,
        [
            "No such payment_intent: 'pi_1'; a similar object exists in live mode, but a test mode key was used to \
             make this request.",
            "No such payment_intent: 'pi_1'"
        ]
    );
}

#[test]
fn a_proxys_page_is_no_json_and_has_no_request_id() {
    for (fault, status) in [
        (Fault::InternalErrorHtml, 500),
        (Fault::BadGatewayHtml, 502),
        (Fault::UnavailableHtml, 503),
        (Fault::OkHtml, 200),
    ] {
        let mut account = account();
        account.add_fault(FaultRule::once(fault));
        let response = answer(account.handle(&retrieve("pi_1"), at(1000)));
        assert_eq!((response.status, response.header_value("content-type")), (status, Some("text/html")), "{fault:?}");
        assert!(response.json().is_err() && response.body.starts_with(b"<html>"));
        assert_eq!(response.header_value("Request-Id"), None);
    }
}

#[test]
fn bodies_that_lie_come_with_a_200() {
    let mut account = account();
    account.add_fault(FaultRule::once(Fault::Truncated));
    let cut = answer(account.handle(&retrieve("pi_1"), at(1000)));
    assert!(cut.status == 200 && cut.json().is_err());
    account.add_fault(FaultRule::once(Fault::EmptyPageWithMore).on(Endpoint::List));
    let page = answer(account.handle(&Request::get(LIST, TEST_KEY), at(1000))).json().unwrap();
    assert_eq!(page, json!({"object": "list", "data": [], "has_more": true, "url": LIST}));
}

#[test]
fn a_dropped_request_changes_nothing() {
    let mut account = account();
    account.add_fault(FaultRule::once(Fault::Dropped));
    let cancel = Request::post(&format!("{LIST}/pi_1/cancel"), TEST_KEY);
    assert_eq!(account.handle(&cancel, at(1000)), Reply::Dropped);
    assert_eq!(account.get("pi_1").unwrap().status, ExternalStatus::RequiresPaymentMethod);
    assert_eq!((account.counters().arrived, account.counters().dropped), (1, 1));
    assert_eq!(account.log().map(|entry| entry.given).collect::<Vec<_>>(), [Given::Dropped]);
}

#[test]
fn a_rule_strikes_only_what_it_matches_after_so_many_and_so_often() {
    let mut account = account();
    let rule = FaultRule { after: 1, times: Some(2), ..FaultRule::always(Fault::InternalError) };
    account.add_fault(rule.on(Endpoint::Retrieve).for_id("pi_1"));
    let list = Request::get(LIST, TEST_KEY);
    let script = ["pi_2", "pi_1", "", "pi_1", "pi_2", "pi_1", "pi_1"];
    let requests: Vec<_> = script.iter().map(|id| if id.is_empty() { list.clone() } else { retrieve(id) }).collect();
    assert_eq!(statuses(&mut account, &requests), [200, 200, 200, 500, 200, 500, 200]);
}

#[test]
fn the_first_rule_that_fires_decides_and_a_removed_one_is_gone() {
    let mut account = account();
    let first = account.add_fault(FaultRule::always(Fault::Unavailable).for_id("pi_1"));
    account.add_fault(FaultRule::always(Fault::InternalError));
    let both = [retrieve("pi_1"), retrieve("pi_2")];
    assert_eq!(statuses(&mut account, &both), [503, 500]);
    assert!(account.remove_fault(first) && !account.remove_fault(first));
    assert_eq!(statuses(&mut account, &both), [500, 500]);
    account.clear_faults();
    assert_eq!(statuses(&mut account, &both), [200, 200]);
}

#[test]
fn dice_fall_the_same_way_for_the_same_seed_and_about_as_often_as_asked() {
    let run = |seed| {
        let mut account = account();
        let chance = Some(Chance { per_million: 200_000, seed });
        account.add_fault(FaultRule { chance, ..FaultRule::always(Fault::InternalError) });
        statuses(&mut account, &vec![retrieve("pi_1"); 1000])
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let struck = run(1).into_iter().filter(|status| *status == 500).count();
    assert!((150..250).contains(&struck), "{struck} of 1000");
}

#[test]
fn a_held_request_sees_the_state_of_its_release() {
    let mut account = account();
    account.add_fault(FaultRule::once(Fault::Hold).for_id("pi_1"));
    let request = retrieve("pi_1");
    let hold = held(&account.handle(&request, at(1000)));
    assert_eq!(account.counters().held, 1);
    assert_eq!(account.resume(hold, &request, at(1001)), None, "not released yet");
    assert_eq!(statuses(&mut account, &[retrieve("pi_2")]), [200], "others go on");

    account.set_status("pi_1", ExternalStatus::Succeeded, at(1002)).unwrap();
    assert_eq!((account.release_all(), account.release_all()), (1, 0));
    let response = account.resume(hold, &request, at(1003)).unwrap();
    assert_eq!(response.json().unwrap()["status"], "succeeded");
    assert_eq!(account.resume(hold, &request, at(1004)), None, "answered once");
    assert_eq!(account.counters().held, 0);
    assert_eq!(account.log().map(|entry| entry.given).collect::<Vec<_>>(), [Given::Status(200), Given::Status(200)]);
}

#[test]
fn a_held_request_whose_client_left_has_no_effect() {
    let mut account = account();
    account.add_fault(FaultRule::once(Fault::Hold));
    let cancel = Request::post(&format!("{LIST}/pi_1/cancel"), TEST_KEY);
    let hold = held(&account.handle(&cancel, at(1000)));
    account.abandon(hold);
    assert_eq!(account.release_all(), 0);
    assert_eq!(account.resume(hold, &cancel, at(1001)), None);
    assert_eq!(account.counters().held, 0);
    assert_eq!(account.log().map(|entry| entry.given).collect::<Vec<_>>(), [Given::Abandoned]);
    assert_eq!(account.get("pi_1").unwrap().status, ExternalStatus::RequiresPaymentMethod);
}

#[test]
fn the_log_says_what_was_asked_and_clearing_starts_the_count_again() {
    let mut account = account();
    statuses(
        &mut account,
        &[retrieve("pi_1"), retrieve("pi_none"), Request::get(LIST, TEST_KEY), Request::new("GET", "/")],
    );
    let log: Vec<_> = account.log().map(|entry| (entry.endpoint, entry.id.as_deref(), entry.given)).collect();
    assert_eq!(
        log,
        [
            (Endpoint::Retrieve, Some("pi_1"), Given::Status(200)),
            (Endpoint::Retrieve, Some("pi_none"), Given::Status(404)),
            (Endpoint::List, None, Given::Status(200)),
            (Endpoint::Unrecognized, None, Given::Status(404)),
        ]
    );
    assert!(account.log().all(|entry| entry.at == at(1000)));
    assert_eq!(account.counters().arrived, 4);
    assert_eq!(
        account.counters().by_endpoint,
        [(Endpoint::Retrieve, 2), (Endpoint::List, 1), (Endpoint::Unrecognized, 1)].into()
    );
    account.clear_log();
    assert_eq!((account.counters().arrived, account.log().count()), (0, 0));
    statuses(&mut account, &[retrieve("pi_1")]);
    assert_eq!(account.log().map(|entry| entry.sequence).collect::<Vec<_>>(), [5]);
}

#[test]
fn the_same_calls_give_the_same_answers() {
    let run = || {
        let mut account = account();
        let create = Request::post(LIST, TEST_KEY).form("amount", "5").form("currency", "usd");
        [create, retrieve("pi_1"), retrieve("pi_none")].map(|request| account.handle(&request, at(1000)))
    };
    assert_eq!(run(), run());
}
