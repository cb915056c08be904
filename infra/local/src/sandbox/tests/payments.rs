use reconciler::domain::external::ExternalStatus;
use serde_json::{Value, json};

use super::super::{Account, CaptureMethod, ChangeError, Decline, PaymentIntentSeed, Request};
use super::{LIVE_KEY, TEST_KEY, answered, at, ok};

fn post(path: &str) -> Request {
    Request::post(path, TEST_KEY)
}

fn expanded(account: &mut Account, id: &str) -> Value {
    ok(account, &Request::get(&format!("/v1/payment_intents/{id}"), TEST_KEY).query("expand[]", "latest_charge"))
}

/// The members of that name, as one value to compare.
fn members(json: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| json[*name].clone()).collect()
}

const MONEY: [&str; 5] = ["status", "amount", "amount_received", "amount_capturable", "capture_method"];
const CHARGE: [&str; 7] = ["status", "captured", "paid", "amount_captured", "amount_refunded", "refunded", "disputed"];

#[test]
fn a_created_payment_intent_is_written_as_stripe_writes_it() {
    let mut account = Account::new();
    let create =
        post("/v1/payment_intents").form("amount", "2000").form("currency", "EUR").form("metadata[order]", "o-1");
    let created = ok(&mut account, &create);
    let id = created["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("pi_"));
    assert!(created["client_secret"].as_str().unwrap().starts_with(&format!("{id}_secret_")));
    let mut rest = created.clone();
    for name in ["id", "client_secret"] {
        rest.as_object_mut().unwrap().remove(name);
    }
    assert_eq!(
        rest,
        json!({
            "object": "payment_intent", "amount": 2000, "amount_capturable": 0, "amount_details": {"tip": {}},
            "amount_received": 0, "application": null, "application_fee_amount": null,
            "automatic_payment_methods": {"allow_redirects": "always", "enabled": true}, "canceled_at": null,
            "cancellation_reason": null, "capture_method": "automatic_async", "confirmation_method": "automatic",
            "created": 1000, "currency": "eur", "customer": null, "customer_account": null, "description": null,
            "excluded_payment_method_types": null, "last_payment_error": null, "latest_charge": null,
            "livemode": false, "metadata": {"order": "o-1"}, "next_action": null, "on_behalf_of": null,
            "payment_method": null, "payment_method_configuration_details": null, "payment_method_options": {},
            "payment_method_types": ["card"], "processing": null, "receipt_email": null, "review": null,
            "setup_future_usage": null, "shipping": null, "source": null, "statement_descriptor": null,
            "statement_descriptor_suffix": null, "status": "requires_payment_method", "transfer_data": null,
            "transfer_group": null
        })
    );
    assert_eq!(ok(&mut account, &Request::get(&format!("/v1/payment_intents/{id}"), TEST_KEY)), created);
    let live = Request::post("/v1/payment_intents", LIVE_KEY).form("amount", "1").form("currency", "usd");
    assert_eq!(ok(&mut account, &live)["livemode"], true);
}

#[test]
fn each_status_has_the_amounts_and_the_charge_that_belong_to_it() {
    for (word, money, charge) in [
        ("requires_payment_method", json!([0, 0, "automatic_async"]), Value::Null),
        ("requires_confirmation", json!([0, 0, "automatic_async"]), Value::Null),
        ("requires_action", json!([0, 0, "automatic_async"]), Value::Null),
        ("processing", json!([0, 0, "automatic_async"]), json!(["pending", true, false, 1000, 0, false, false])),
        ("requires_capture", json!([0, 1000, "manual"]), json!(["succeeded", false, true, 0, 0, false, false])),
        ("canceled", json!([0, 0, "automatic_async"]), Value::Null),
        ("succeeded", json!([1000, 0, "automatic_async"]), json!(["succeeded", true, true, 1000, 0, false, false])),
        ("on_the_moon", json!([0, 0, "automatic_async"]), Value::Null),
    ] {
        let status = ExternalStatus::from_stripe(word);
        // Seeded, and moved there later: the same.
        let mut account = Account::new();
        let seeded =
            account.insert(PaymentIntentSeed { status: status.clone(), ..PaymentIntentSeed::new(at(100)) }).unwrap();
        let moved = account.insert(PaymentIntentSeed::new(at(100))).unwrap();
        account.set_status(&moved, status, at(200)).unwrap();
        for (id, when) in [(seeded, 100), (moved, 200)] {
            let json = expanded(&mut account, &id);
            let mut expected = vec![json!(word), json!(1000)];
            expected.extend(money.as_array().unwrap().iter().cloned());
            assert_eq!(members(&json, &MONEY), Value::Array(expected), "{word}");
            let latest = &json["latest_charge"];
            assert_eq!(if latest.is_null() { Value::Null } else { members(latest, &CHARGE) }, charge, "{word}");
            if !latest.is_null() {
                assert_eq!(
                    members(latest, &["created", "payment_intent", "amount"]),
                    json!([when, id, 1000]),
                    "{word}"
                );
                let prefix = if word == "processing" { "py_" } else { "ch_" };
                assert!(latest["id"].as_str().unwrap().starts_with(prefix), "{word}");
            }
            assert_eq!(json["canceled_at"], if word == "canceled" { json!(when) } else { Value::Null }, "{word}");
            assert_eq!(json["next_action"].is_null(), word != "requires_action", "{word}");
        }
    }
}

#[test]
fn a_decline_leaves_an_error_and_a_failed_charge_until_a_later_attempt_goes_through() {
    let mut account = Account::new();
    let id = account.insert(PaymentIntentSeed::new(at(100))).unwrap();
    account.decline(&id, Decline::Card("insufficient_funds".to_owned()), at(150)).unwrap();
    let declined = expanded(&mut account, &id);
    assert_eq!(declined["status"], "requires_payment_method");
    assert_eq!(declined["payment_method"], Value::Null);
    let error = &declined["last_payment_error"];
    assert_eq!(
        members(error, &["type", "code", "decline_code", "message", "charge", "doc_url"]),
        json!([
            "card_error",
            "card_declined",
            "insufficient_funds",
            "Your card has insufficient funds.",
            declined["latest_charge"]["id"],
            "https://stripe.com/docs/error-codes/card-declined"
        ])
    );
    assert_eq!(error["payment_method"]["object"], "payment_method");
    assert_eq!(
        members(&declined["latest_charge"], &["status", "paid", "captured", "created", "failure_code"]),
        json!(["failed", false, false, 150, "card_declined"])
    );

    account.set_status(&id, ExternalStatus::Succeeded, at(200)).unwrap();
    let paid = expanded(&mut account, &id);
    assert_eq!(members(&paid, &["status", "last_payment_error"]), json!(["succeeded", null]));
    assert_ne!(paid["latest_charge"]["id"], declined["latest_charge"]["id"], "a new attempt is a new charge");
    assert_eq!(members(&paid["latest_charge"], &["status", "created"]), json!(["succeeded", 200]));
}

#[test]
fn failed_authentication_makes_no_charge() {
    let mut account = Account::new();
    let seed = PaymentIntentSeed { decline: Some(Decline::Authentication), ..PaymentIntentSeed::new(at(100)) };
    let id = account.insert(seed).unwrap();
    let json = expanded(&mut account, &id);
    let error = &json["last_payment_error"];
    assert_eq!(
        members(error, &["type", "code", "charge", "decline_code"]),
        json!(["invalid_request_error", "payment_intent_authentication_failure", null, null])
    );
    assert_eq!(json["latest_charge"], Value::Null);
}

#[test]
fn a_canceled_authorisation_is_given_back() {
    let mut account = Account::new();
    let seed = PaymentIntentSeed { status: ExternalStatus::RequiresCapture, ..PaymentIntentSeed::new(at(100)) };
    let id = account.insert(seed).unwrap();
    account.cancel(&id, Some("expired"), at(300)).unwrap();
    let json = expanded(&mut account, &id);
    assert_eq!(
        members(&json, &["status", "canceled_at", "cancellation_reason", "amount_capturable"]),
        json!(["canceled", 300, "expired", 0])
    );
    assert_eq!(members(&json["latest_charge"], &CHARGE), json!(["succeeded", false, true, 0, 1000, true, false]));
}

#[test]
fn a_refund_and_a_dispute_change_the_charge_and_nothing_else() {
    let mut account = Account::new();
    let seed = PaymentIntentSeed { status: ExternalStatus::Succeeded, ..PaymentIntentSeed::new(at(100)) };
    let id = account.insert(seed).unwrap();
    account.refund(&id, 400).unwrap();
    account.dispute(&id).unwrap();
    let json = expanded(&mut account, &id);
    assert_eq!(members(&json, &MONEY), json!(["succeeded", 1000, 1000, 0, "automatic_async"]));
    assert_eq!(members(&json["latest_charge"], &CHARGE), json!(["succeeded", true, true, 1000, 400, false, true]));
    account.refund(&id, 600).unwrap();
    assert_eq!(expanded(&mut account, &id)["latest_charge"]["refunded"], true);
    let open = account.insert(PaymentIntentSeed::new(at(100))).unwrap();
    assert_eq!(account.refund(&open, 1), Err(ChangeError::NotCharged { id: open }));
}

#[test]
fn a_change_of_what_is_not_there_is_an_error() {
    let mut account = Account::new();
    let none = || ChangeError::NoSuchIntent { id: "pi_none".to_owned() };
    assert_eq!(account.set_status("pi_none", ExternalStatus::Succeeded, at(1)), Err(none()));
    assert_eq!(account.set_livemode("pi_none", true), Err(none()));
    assert_eq!(account.delete("pi_none"), Err(none()));
    let seed = || PaymentIntentSeed { id: Some("pi_1".to_owned()), ..PaymentIntentSeed::new(at(1)) };
    account.insert(seed()).unwrap();
    assert_eq!(account.insert(seed()), Err(ChangeError::IdTaken { id: "pi_1".to_owned() }));
    assert_eq!(account.len(), 1);
}

/// Creates and confirms with a test payment method; the id, and the answer to the confirmation.
fn confirmed(account: &mut Account, capture: CaptureMethod, method: &str, status: u16) -> (String, Value) {
    let mut create = post("/v1/payment_intents").form("amount", "2000").form("currency", "usd");
    if capture == CaptureMethod::Manual {
        create = create.form("capture_method", "manual");
    }
    let id = ok(account, &create)["id"].as_str().unwrap().to_owned();
    let confirm = post(&format!("/v1/payment_intents/{id}/confirm")).form("payment_method", method);
    let answer = answered(account, &confirm, status).1;
    (id, answer)
}

#[test]
fn the_test_payment_method_decides_how_a_confirmation_goes() {
    let auto = CaptureMethod::AutomaticAsync;
    for (capture, method, status) in [
        (auto, "pm_card_visa", "succeeded"),
        (CaptureMethod::Manual, "pm_card_visa", "requires_capture"),
        (auto, "pm_usBankAccount", "processing"),
        (auto, "pm_card_authenticationRequired", "requires_action"),
    ] {
        assert_eq!(confirmed(&mut Account::new(), capture, method, 200).1["status"], status, "{method}");
    }
    let mut account = Account::new();
    let (id, answer) = confirmed(&mut account, auto, "pm_card_chargeDeclinedInsufficientFunds", 402);
    let error = &answer["error"];
    assert_eq!(
        members(error, &["type", "code", "decline_code", "message"]),
        json!(["card_error", "card_declined", "insufficient_funds", "Your card has insufficient funds."])
    );
    assert_eq!(error["payment_intent"]["status"], "requires_payment_method");
    let now = expanded(&mut account, &id);
    assert_eq!((&now["latest_charge"]["id"], &now["latest_charge"]["status"]), (&error["charge"], &json!("failed")));

    let (_, answer) = confirmed(&mut account, auto, "pm_card_unheard_of", 400);
    assert_eq!(
        members(&answer["error"], &["code", "param", "message"]),
        json!(["resource_missing", "payment_method", "No such PaymentMethod: 'pm_card_unheard_of'"])
    );
}

#[test]
fn what_the_status_forbids_is_refused_and_changes_nothing() {
    let mut account = Account::new();
    let (id, _) = confirmed(&mut account, CaptureMethod::AutomaticAsync, "pm_card_visa", 200);
    let before = expanded(&mut account, &id);
    for (action, message) in [
        (
            "confirm",
            "You cannot confirm this PaymentIntent because it has already succeeded after being previously confirmed.",
        ),
        ("capture", "This PaymentIntent could not be captured because it has already been captured."),
        (
            "cancel",
            "You cannot cancel this PaymentIntent because it has a status of succeeded. Only a PaymentIntent with one \
             of the following statuses may be canceled: requires_payment_method, requires_capture, \
             requires_confirmation, requires_action, processing.",
        ),
    ] {
        let error = answered(&mut account, &post(&format!("/v1/payment_intents/{id}/{action}")), 400).1["error"].take();
        assert_eq!((&error["code"], &error["message"]), (&json!("payment_intent_unexpected_state"), &json!(message)));
        assert_eq!(error["payment_intent"]["id"], id);
    }
    assert_eq!(expanded(&mut account, &id), before);

    let open = account.insert(PaymentIntentSeed::new(at(100))).unwrap();
    let capture = post(&format!("/v1/payment_intents/{open}/capture"));
    assert_eq!(
        answered(&mut account, &capture, 400).1["error"]["message"],
        "This PaymentIntent could not be captured because it has a status of requires_payment_method. Only a \
         PaymentIntent with one of the following statuses may be captured: requires_capture."
    );
    let confirm = post(&format!("/v1/payment_intents/{open}/confirm"));
    let message = answered(&mut account, &confirm, 400).1["error"]["message"].take();
    assert!(message.as_str().unwrap().contains("missing a payment method"), "{message}");
}

#[test]
fn part_of_an_authorisation_can_be_captured_once() {
    let mut account = Account::new();
    let (id, _) = confirmed(&mut account, CaptureMethod::Manual, "pm_card_visa", 200);
    let path = format!("/v1/payment_intents/{id}/capture");
    let too_much = post(&path).form("amount_to_capture", "2001");
    assert_eq!(
        members(&answered(&mut account, &too_much, 400).1["error"], &["code", "param"]),
        json!(["amount_too_large", "amount_to_capture"])
    );
    ok(&mut account, &post(&path).form("amount_to_capture", "1500"));
    let json = expanded(&mut account, &id);
    assert_eq!(members(&json, &MONEY), json!(["succeeded", 2000, 1500, 0, "manual"]));
    assert_eq!(json["latest_charge"]["amount_captured"], 1500);
    answered(&mut account, &post(&path), 400);
}

#[test]
fn cancel_takes_only_the_reasons_that_a_merchant_may_give() {
    let mut account = Account::new();
    let id = account.insert(PaymentIntentSeed::new(at(100))).unwrap();
    let path = format!("/v1/payment_intents/{id}/cancel");
    let stripes_own = post(&path).form("cancellation_reason", "automatic");
    assert_eq!(
        answered(&mut account, &stripes_own, 400).1["error"]["message"],
        "Invalid cancellation_reason: must be one of duplicate, fraudulent, requested_by_customer, or abandoned"
    );
    let json = ok(&mut account, &post(&path).form("cancellation_reason", "abandoned"));
    assert_eq!(
        members(&json, &["status", "canceled_at", "cancellation_reason"]),
        json!(["canceled", 1000, "abandoned"])
    );
}

#[test]
fn metadata_is_merged_and_unset_key_by_key() {
    let mut account = Account::new();
    let id = account.insert(PaymentIntentSeed::new(at(100))).unwrap();
    let path = format!("/v1/payment_intents/{id}");
    let json = ok(&mut account, &post(&path).form("metadata[a]", "1").form("metadata[b]", "2"));
    assert_eq!(json["metadata"], json!({"a": "1", "b": "2"}));
    let json = ok(&mut account, &post(&path).form("metadata[a]", "").form("metadata[c]", "3"));
    assert_eq!(json["metadata"], json!({"b": "2", "c": "3"}));
    let long = post(&path).form("metadata[d]", &"x".repeat(501));
    assert_eq!(answered(&mut account, &long, 400).1["error"]["param"], "metadata[d]");
    assert_eq!(ok(&mut account, &Request::get(&path, TEST_KEY))["metadata"], json!({"b": "2", "c": "3"}));
    assert_eq!(ok(&mut account, &post(&path).form("metadata", ""))["metadata"], json!({}));
}
