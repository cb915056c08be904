use std::num::NonZeroU32;

use serde_json::{Value, json};

use super::super::{ACCOUNT_ID, API_VERSION, Account, Endpoint, Grant, Limits, PaymentIntentSeed, Permission, Request};
use super::{LIVE_KEY, TEST_KEY, answered, at, ok};

const LIST: &str = "/v1/payment_intents";

fn account() -> Account {
    let mut account = Account::new();
    for (id, livemode, owner) in
        [("pi_test", false, None), ("pi_live", true, None), ("pi_theirs", false, Some("acct_1"))]
    {
        let plain = PaymentIntentSeed::new(at(100));
        let seed = PaymentIntentSeed { id: Some(id.to_owned()), livemode, account: owner.map(str::to_owned), ..plain };
        account.insert(seed).unwrap();
    }
    account.connect("acct_1");
    account
}

/// The error, without the members that hold a request id.
fn error(account: &mut Account, request: &Request, status: u16) -> Value {
    let (response, mut json) = answered(account, request, status);
    assert!(response.header_value("Request-Id").unwrap().starts_with("req_"), "{request:?}");
    assert_eq!(response.header_value("Content-Type"), Some("application/json"));
    assert_eq!(response.header_value("Stripe-Should-Retry"), Some("false"), "{request:?}");
    let error = json["error"].as_object_mut().unwrap();
    if let Some(url) = error.remove("request_log_url") {
        assert!(url.as_str().unwrap().contains(response.header_value("Request-Id").unwrap()));
    }
    json["error"].take()
}

fn get(path: &str) -> Request {
    Request::get(path, TEST_KEY)
}

#[test]
fn a_missing_object_says_whether_the_other_mode_has_it() {
    let mut account = account();
    let missing = |message: &str| {
        json!({"type": "invalid_request_error", "code": "resource_missing", "message": message, "param": "intent",
            "doc_url": "https://stripe.com/docs/error-codes/resource-missing"})
    };
    for (path, key, message) in [
        ("/v1/payment_intents/pi_none", TEST_KEY, "No such payment_intent: 'pi_none'"),
        (
            "/v1/payment_intents/pi_live",
            TEST_KEY,
            "No such payment_intent: 'pi_live'; a similar object exists in live mode, but a test mode key was used to \
             make this request.",
        ),
        (
            "/v1/payment_intents/pi_test",
            LIVE_KEY,
            "No such payment_intent: 'pi_test'; a similar object exists in test mode, but a live mode key was used to \
             make this request.",
        ),
        // Without `Stripe-Account` an object of a connected account looks missing.
        ("/v1/payment_intents/pi_theirs", TEST_KEY, "No such payment_intent: 'pi_theirs'"),
    ] {
        assert_eq!(error(&mut account, &Request::get(path, key), 404), missing(message), "{path}");
        let write = Request::post(&format!("{path}/cancel"), key);
        assert_eq!(error(&mut account, &write, 404), missing(message), "{path}");
    }
    let theirs = get("/v1/payment_intents/pi_theirs").header("Stripe-Account", "acct_1");
    assert_eq!(ok(&mut account, &theirs)["id"], "pi_theirs");
    let own = get("/v1/payment_intents/pi_test").header("Stripe-Account", ACCOUNT_ID);
    assert_eq!(ok(&mut account, &own)["id"], "pi_test");
    account.delete("pi_test").unwrap();
    assert_eq!(
        error(&mut account, &get("/v1/payment_intents/pi_test"), 404),
        missing("No such payment_intent: 'pi_test'")
    );
}

#[test]
fn each_key_sees_only_its_own_mode_in_a_list() {
    let mut account = account();
    for (key, id) in [(TEST_KEY, "pi_test"), (LIVE_KEY, "pi_live")] {
        let page = ok(&mut account, &Request::get(LIST, key));
        assert_eq!((page["data"].as_array().unwrap().len(), &page["data"][0]["id"]), (1, &json!(id)));
    }
    account.set_livemode("pi_test", true).unwrap();
    assert_eq!(ok(&mut account, &Request::get("/v1/payment_intents/pi_test", LIVE_KEY))["livemode"], true);
    assert_eq!(ok(&mut account, &get(LIST))["data"], json!([]));
}

#[test]
fn a_cursor_that_names_nothing_is_a_400_and_not_a_404() {
    let mut account = account();
    for param in ["starting_after", "ending_before"] {
        assert_eq!(
            error(&mut account, &get(LIST).query(param, "pi_none"), 400),
            json!({"type": "invalid_request_error", "code": "resource_missing", "param": param,
                "message": "No such payment_intent: 'pi_none'",
                "doc_url": "https://stripe.com/docs/error-codes/resource-missing"})
        );
        // There, but not in the window.
        let outside = get(LIST).query(param, "pi_test").query("created[gt]", "100");
        assert_eq!(error(&mut account, &outside, 400)["code"], "resource_missing");
        let live = error(&mut account, &get(LIST).query(param, "pi_live"), 400);
        assert!(live["message"].as_str().unwrap().contains("a similar object exists in live mode"));
    }
    let both = get(LIST).query("starting_after", "pi_test").query("ending_before", "pi_test");
    assert_eq!(
        error(&mut account, &both, 400),
        json!({"type": "invalid_request_error",
            "message": "Received both starting_after and ending_before parameters. Please pass in only one."})
    );
}

#[test]
fn parameters_are_checked_as_stripe_checks_them() {
    let mut account = account();
    let retrieve = "/v1/payment_intents/pi_test";
    for (request, code, param, message) in [
        (get(LIST).query("status", "succeeded"), "parameter_unknown", "status", "Received unknown parameter: status"),
        (
            get(LIST).query("created[ge]", "1"),
            "parameter_unknown",
            "created[ge]",
            "Received unknown parameter: created[ge]",
        ),
        (
            get(LIST).query("expand[x]", "data"),
            "parameter_unknown",
            "expand[x]",
            "Received unknown parameter: expand[x]",
        ),
        (get(LIST).query("b", "1").query("a", "2"), "parameter_unknown", "b", "Received unknown parameters: b, a"),
        (get(retrieve).query("limit", "1"), "parameter_unknown", "limit", "Received unknown parameter: limit"),
        (
            get(LIST).query("limit", "0"),
            "parameter_invalid_integer",
            "limit",
            "This value must be greater than or equal to 1.",
        ),
        (
            get(LIST).query("limit", "101"),
            "parameter_invalid_integer",
            "limit",
            "This value must be less than or equal to 100 (it currently is '101').",
        ),
        (get(LIST).query("limit", "ten"), "parameter_invalid_integer", "limit", "Invalid integer: ten"),
        (get(LIST).query("created[gte]", "1.5"), "parameter_invalid_integer", "created[gte]", "Invalid integer: 1.5"),
        (
            get(LIST).query("starting_after", ""),
            "parameter_invalid_empty",
            "starting_after",
            "You passed an empty string for 'starting_after'. We assume empty values are an attempt to unset a \
             parameter; however 'starting_after' cannot be unset. You should remove 'starting_after' from your request \
             or supply a non-empty value.",
        ),
        (Request::post(LIST, TEST_KEY), "parameter_missing", "amount", "Missing required param: amount."),
    ] {
        let error = error(&mut account, &request, 400);
        assert_eq!(error["type"], "invalid_request_error");
        assert_eq!(
            (&error["code"], &error["param"], &error["message"]),
            (&json!(code), &json!(param), &json!(message))
        );
        let doc_url = format!("https://stripe.com/docs/error-codes/{}", code.replace('_', "-"));
        assert_eq!(error["doc_url"], doc_url);
    }
    let types = Request::post(LIST, TEST_KEY).form("payment_method_types[]", "card");
    assert_eq!(error(&mut account, &types, 400)["code"], "payment_method_types_no_longer_supported");
}

#[test]
fn only_the_latest_charge_can_be_expanded() {
    let mut account = account();
    let retrieve = "/v1/payment_intents/pi_test";
    for (request, message) in [
        (
            get(LIST).query("expand[]", "latest_charge"),
            "This property cannot be expanded (latest_charge). You may want to try expanding 'data.latest_charge' instead.",
        ),
        (get(LIST).query("expand[]", "data"), "This property cannot be expanded (data)."),
        (get(LIST).query("expand[]", "data.metadata"), "This property cannot be expanded (data.metadata)."),
        (get(retrieve).query("expand[]", "data.latest_charge"), "This property cannot be expanded (data)."),
        (
            get(retrieve).query("expand[]", "a.b.c.d.e"),
            "You cannot expand more than 4 levels of a property. Property: a.b.c.d.e.",
        ),
    ] {
        let error = error(&mut account, &request, 400);
        assert_eq!(error, json!({"type": "invalid_request_error", "message": message}));
    }
    let no_list = get(retrieve).query("expand", "latest_charge");
    assert_eq!(
        error(&mut account, &no_list, 400),
        json!({"type": "invalid_request_error", "message": "Invalid array", "param": "expand"})
    );
    assert_eq!(ok(&mut account, &get(retrieve).query("expand[]", "latest_charge"))["latest_charge"], Value::Null);
}

#[test]
fn an_unknown_url_is_a_404_of_its_own_even_without_a_key() {
    let mut account = account();
    for (method, path, hint) in [
        ("GET", "/v1/charges", ""),
        ("DELETE", "/v1/payment_intents/pi_test", ""),
        (
            "GET",
            "/v1/payment_intents/",
            " If you are trying to list objects, remove the trailing slash. If you are trying to retrieve an object, \
             make sure you passed a valid (non-empty) identifier in your code.",
        ),
    ] {
        let message = format!(
            "Unrecognized request URL ({method}: {path}).{hint} Please see https://stripe.com/docs or we can help at \
             https://support.stripe.com/."
        );
        let expected = json!({"type": "invalid_request_error", "message": message});
        assert_eq!(error(&mut account, &Request::new(method, path), 404), expected);
    }
}

#[test]
fn keys_are_refused_with_401_and_never_quoted_whole() {
    let mut account = account();
    let see =
        "See https://stripe.com/docs/api#authentication for details, or we can help at https://support.stripe.com/.";
    let none = Request::new("GET", LIST);
    assert_eq!(
        error(&mut account, &none, 401),
        json!({"type": "invalid_request_error", "message": format!("You did not provide an API key. You need to \
            provide your API key in the Authorization header, using Bearer auth (e.g. 'Authorization: Bearer \
            YOUR_SECRET_KEY'). {see}")})
    );
    let odd = Request::new("GET", LIST).header("Authorization", "null");
    let message = error(&mut account, &odd, 401)["message"].clone();
    assert!(message.as_str().unwrap().starts_with(
        "You did not provide an API key, though you did set your Authorization header to \"null\". Using Bearer auth"
    ));

    account.set_key("sk_test_thewrongone", Grant::Unknown);
    account.set_key("sk_test_theoldone", Grant::Expired);
    let wrong = Request::get(LIST, "sk_test_thewrongone");
    assert_eq!(
        error(&mut account, &wrong, 401),
        json!({"type": "invalid_request_error", "message": "Invalid API Key provided: sk_test_*******gone"})
    );
    assert_eq!(answered(&mut account, &wrong, 401).0.header_value("WWW-Authenticate"), Some("Bearer realm=\"Stripe\""));
    assert_eq!(
        error(&mut account, &Request::get(LIST, "sk_test_theoldone"), 401),
        json!({"type": "invalid_request_error", "code": "api_key_expired",
            "doc_url": "https://stripe.com/docs/error-codes/api-key-expired",
            "message": "Expired API Key provided: sk_test_*****done"})
    );
    assert_eq!(error(&mut account, &Request::get(LIST, "pk_test_1"), 403)["code"], "secret_key_required");
}

#[test]
fn a_restricted_key_needs_a_permission_for_each_thing() {
    let mut account = account();
    let key = "rk_test_abcdefgh";
    let expanded = Request::get(LIST, key).query("expand[]", "data.latest_charge");
    ok(&mut account, &expanded);
    let cancel = Request::post("/v1/payment_intents/pi_test/cancel", key);
    for (granted, request, needed) in [
        (vec![Permission::PaymentIntentRead, Permission::ChargeRead], &cancel, Some("rak_payment_intent_write")),
        (vec![Permission::PaymentIntentRead], &expanded, Some("rak_charge_read")),
        (vec![Permission::ChargeRead], &expanded, Some("rak_payment_intent_read")),
        (vec![Permission::PaymentIntentWrite, Permission::ChargeRead], &expanded, None),
        (vec![Permission::PaymentIntentWrite], &cancel, None),
    ] {
        account.set_key(key, Grant::Restricted(granted.into_iter().collect()));
        let Some(needed) = needed else {
            ok(&mut account, request);
            continue;
        };
        assert_eq!(
            error(&mut account, request, 403),
            json!({"type": "invalid_request_error", "message": format!("The provided key 'rk_test_****efgh' does not \
                have the required permissions for this endpoint on account '{ACCOUNT_ID}'. Having the '{needed}' \
                permission would allow this request to continue.")})
        );
    }
}

#[test]
fn an_account_that_is_not_ours_is_a_403() {
    let mut account = account();
    let request = Request::get(LIST, "sk_test_abcdefgh").header("Stripe-Account", "acct_2");
    assert_eq!(
        error(&mut account, &request, 403),
        json!({"type": "invalid_request_error", "code": "account_invalid",
            "doc_url": "https://stripe.com/docs/error-codes/account-invalid",
            "message": "The provided key 'sk_test_****efgh' does not have access to account 'acct_2' (or that account \
                does not exist). Application access may have been revoked."})
    );
}

#[test]
fn every_answer_names_its_request_and_its_version() {
    let mut account = account();
    let (first, _) = answered(&mut account, &get(LIST), 200);
    let (second, _) = answered(&mut account, &get(LIST).header("stripe-version", "2024-06-20"), 200);
    assert_eq!(first.header_value("Stripe-Version"), Some(API_VERSION));
    assert_eq!(second.header_value("Stripe-Version"), Some("2024-06-20"));
    assert_ne!(first.header_value("Request-Id"), second.header_value("Request-Id"));
    let bad = get(LIST).header("Stripe-Version", "latest");
    assert_eq!(error(&mut account, &bad, 400)["message"], "Invalid Stripe API version: latest");
}

fn rate(per_second: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(per_second)
}

/// How many of a hundred requests at one instant get through, and why the next one does not.
fn burst(account: &mut Account, request: &Request, now: i64) -> (usize, Option<String>) {
    for n in 0..100 {
        let response = account.answer(request, at(now));
        if response.status == 429 {
            let json = response.json().unwrap();
            assert_eq!(
                (&json["error"]["code"], &json["error"]["type"]),
                (&json!("rate_limit"), &json!("invalid_request_error"))
            );
            assert_eq!(response.header_value("Stripe-Should-Retry"), Some("false"));
            return (n, response.header_value("Stripe-Rate-Limited-Reason").map(str::to_owned));
        }
    }
    (100, None)
}

#[test]
fn the_account_and_each_operation_have_a_rate_of_their_own() {
    let mut account = account();
    assert_eq!(burst(&mut account, &get(LIST), 1), (100, None), "no limit until there is one");
    account.set_limits(Limits {
        global: rate(40),
        endpoint: rate(25),
        per_endpoint: [(Endpoint::List, rate(5).unwrap())].into(),
    });
    let endpoint = Some("endpoint-rate".to_owned());
    let global = Some("global-rate".to_owned());
    // Ids share one endpoint; the list is another one.
    assert_eq!(burst(&mut account, &get("/v1/payment_intents/pi_test"), 1), (25, endpoint.clone()));
    assert_eq!(burst(&mut account, &get("/v1/payment_intents/pi_test/"), 1), (100, None), "no such URL, no account");
    assert_eq!(burst(&mut account, &get(LIST), 1), (5, endpoint.clone()));
    // 30 are gone; what was refused took nothing from the account's 40.
    assert_eq!(burst(&mut account, &Request::post("/v1/payment_intents/pi_test", TEST_KEY), 1), (10, global));
    // The other mode is counted on its own.
    assert_eq!(burst(&mut account, &Request::get(LIST, LIVE_KEY), 1), (5, endpoint.clone()));
    // A second later the buckets are full again.
    assert_eq!(burst(&mut account, &get(LIST), 2), (5, endpoint));
    // A fifth of a second gives one of five.
    let soon = at(2) + time::Duration::milliseconds(200);
    assert_eq!(account.answer(&get(LIST), soon).status, 200);
    assert_eq!(account.answer(&get(LIST), soon).status, 429);

    account.set_limits(Limits::published(false));
    assert_eq!(burst(&mut account, &get(LIST), 3).0, 25);
}
