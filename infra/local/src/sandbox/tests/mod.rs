//! The sandbox against what Stripe documents, and its pages against a brute-force model.

mod errors;
mod faults;
mod http;
mod pagination;
mod payments;
mod webhooks;

use reconciler::domain::Timestamp;
use serde_json::Value;

use super::{Account, Request, Response};

const TEST_KEY: &str = "sk_test_4eC39HqLyjWDarjtT1zdp7dc";
const LIVE_KEY: &str = "sk_live_4eC39HqLyjWDarjtT1zdp7dc";

fn at(unix_seconds: i64) -> Timestamp {
    Timestamp::from_unix_timestamp(unix_seconds).unwrap()
}

/// The answer at second 1000, which must have this status; its JSON.
fn answered(account: &mut Account, request: &Request, status: u16) -> (Response, Value) {
    let response = account.answer(request, at(1000));
    let json = response.json().unwrap();
    assert_eq!(response.status, status, "{request:?} gave {json}");
    (response, json)
}

/// The JSON of a 200.
fn ok(account: &mut Account, request: &Request) -> Value {
    answered(account, request, 200).1
}
