//! The control surface for other processes: JSON under `/_control/`, on the same port.
//!
//! | request | does | gives |
//! | --- | --- | --- |
//! | `GET counters` | | the counters |
//! | `POST wait` `{"arrived": n, "held": n}` | answers as soon as both are reached | the counters |
//! | `GET log`, `DELETE log` | reads or clears the log and the counters | the entries |
//! | `PUT latency` `{"milliseconds": n}` | | |
//! | `PUT limits` | sets [`Limits`] | |
//! | `POST faults`, `GET faults`, `DELETE faults`, `DELETE faults/{n}` | takes a [`FaultRule`] | its number, or all |
//! | `POST release` | lets every held request go on | `{"released": n}` |
//! | `PUT key` `{"key": "rk_…", "grant": …}` | sets a [`Grant`] | |
//! | `POST connected` `{"account": "acct_…"}` | connects an account | |
//! | `POST payment_intents` `[{…}, …]` | seeds | `{"ids": […]}` |
//! | `POST payment_intents/{id}` | a [`Change`] | |
//! | `DELETE payment_intents/{id}` | makes it a 404 | |
//! | `… webhooks/…` | see `webhooks::control` | |
//!
//! 200 with JSON, or 400, 404 with `{"error": "…"}`. Seeding stops at the first seed that cannot be taken.

use std::collections::BTreeMap;
use std::time::Duration;

use reconciler::domain::Timestamp;
use reconciler::domain::external::ExternalStatus;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::account::Account;
use super::attempt::Decline;
use super::change::ChangeError;
use super::fault::{FaultId, FaultRule};
use super::intent::CaptureMethod;
use super::key::Grant;
use super::limit::Limits;
use super::seed::PaymentIntentSeed;
use super::server::Shared;
use super::webhooks::{self, WebhookError};
use super::wire::Response;

/// Why a control request was refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum ControlError {
    #[error("no such control: {method} /_control/{route}")]
    NoSuchControl { method: String, route: String },
    #[error("the body is not what this control takes: {0}")]
    Body(#[from] serde_json::Error),
    #[error("{created} is no time in unix seconds")]
    Created { created: i64, source: time::error::ComponentRange },
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    #[error("there is no fault {0}")]
    NoSuchFault(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wait {
    #[serde(default)]
    arrived: u64,
    #[serde(default)]
    held: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Latency {
    milliseconds: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    key: String,
    grant: Grant,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Connected {
    account: String,
}

/// A [`PaymentIntentSeed`] whose every member may be left out.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Seed {
    id: Option<String>,
    /// Unix seconds; now, where absent.
    created: Option<i64>,
    status: Option<String>,
    amount: Option<i64>,
    currency: Option<String>,
    #[serde(default)]
    livemode: bool,
    account: Option<String>,
    customer: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(default)]
    capture_method: CaptureMethod,
    decline: Option<Decline>,
}

/// What happens to a PaymentIntent at Stripe: `{"status": "succeeded"}`, `{"decline": {"card": "expired_card"}}`.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Change {
    Status(String),
    Decline(Decline),
    /// With a reason or null.
    Cancel(Option<String>),
    Livemode(bool),
    /// Minor unit.
    Refund(i64),
    Dispute,
}

pub(super) async fn answer(shared: &Shared, method: &str, route: &str, body: &[u8]) -> Response {
    match act(shared, method, route, body).await {
        Ok(json) => response(200, &json),
        Err(error) => {
            let status = match &error {
                ControlError::NoSuchControl { .. }
                | ControlError::NoSuchFault(_)
                | ControlError::Webhook(WebhookError::NoSuchEndpoint { .. } | WebhookError::NoSuchEvent { .. })
                | ControlError::Change(ChangeError::NoSuchIntent { .. }) => 404,
                ControlError::Body(_)
                | ControlError::Created { .. }
                | ControlError::Webhook(WebhookError::Url { .. } | WebhookError::Secrets)
                | ControlError::Change(ChangeError::IdTaken { .. } | ChangeError::NotCharged { .. }) => 400,
            };
            response(status, &json!({"error": error.to_string()}))
        }
    }
}

fn response(status: u16, json: &Value) -> Response {
    let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
    Response { status, headers, body: json.to_string().into_bytes() }
}

pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ControlError> {
    Ok(serde_json::from_slice(body)?)
}

async fn act(shared: &Shared, method: &str, route: &str, body: &[u8]) -> Result<Value, ControlError> {
    let (name, rest) = route.split_once('/').map_or((route, None), |(name, rest)| (name, Some(rest)));
    match (method, name, rest) {
        ("GET", "counters", None) => Ok(json!(shared.with(|account, _| account.counters().clone()))),
        ("POST", "wait", None) => {
            let wait: Wait = read(body)?;
            let reached = shared.until(|now| now.arrived >= wait.arrived && now.held >= wait.held).await;
            Ok(json!(reached))
        }
        ("GET", "log", None) => Ok(shared.with(|account, _| json!(account.log().collect::<Vec<_>>()))),
        ("DELETE", "log", None) => {
            shared.with(|account, _| account.clear_log());
            Ok(json!({}))
        }
        ("PUT", "latency", None) => {
            let latency: Latency = read(body)?;
            shared.set_latency(Duration::from_millis(latency.milliseconds));
            Ok(json!({}))
        }
        ("PUT", "limits", None) => {
            let limits: Limits = read(body)?;
            shared.with(|account, _| account.set_limits(limits));
            Ok(json!({}))
        }
        ("POST", "faults", None) => {
            let rule: FaultRule = read(body)?;
            Ok(json!({"fault": shared.with(|account, _| account.add_fault(rule))}))
        }
        ("GET", "faults", None) => Ok(shared.with(|account, _| {
            let rules = account.faults().map(|(id, rule)| json!({"fault": id, "rule": rule}));
            rules.collect()
        })),
        ("DELETE", "faults", None) => {
            shared.with(|account, _| account.clear_faults());
            Ok(json!({}))
        }
        ("DELETE", "faults", Some(number)) => {
            let id = number.parse().ok().map(FaultId);
            let removed = id.is_some_and(|id| shared.with(|account, _| account.remove_fault(id)));
            if removed { Ok(json!({})) } else { Err(ControlError::NoSuchFault(number.to_owned())) }
        }
        ("POST", "release", None) => Ok(json!({"released": shared.with(|account, _| account.release_all())})),
        ("PUT", "key", None) => {
            let Key { key, grant } = read(body)?;
            shared.with(|account, _| account.set_key(&key, grant));
            Ok(json!({}))
        }
        ("POST", "connected", None) => {
            let connected: Connected = read(body)?;
            shared.with(|account, _| account.connect(&connected.account));
            Ok(json!({}))
        }
        ("POST", "payment_intents", None) => {
            let seeds: Vec<Seed> = read(body)?;
            let ids = shared.with(|account, now| {
                seeds.into_iter().map(|seed| insert(account, seed, now)).collect::<Result<Vec<_>, _>>()
            })?;
            Ok(json!({"ids": ids}))
        }
        ("POST", "payment_intents", Some(id)) => {
            let change: Change = read(body)?;
            shared.with(|account, now| apply(account, id, change, now))?;
            Ok(json!({}))
        }
        ("DELETE", "payment_intents", Some(id)) => {
            shared.with(|account, _| account.delete(id))?;
            Ok(json!({}))
        }
        (_, "webhooks", Some(rest)) => {
            let answer = webhooks::control::act(shared, method, rest, body).await?;
            answer.ok_or_else(|| ControlError::NoSuchControl { method: method.to_owned(), route: route.to_owned() })
        }
        _ => Err(ControlError::NoSuchControl { method: method.to_owned(), route: route.to_owned() }),
    }
}

fn insert(account: &mut Account, seed: Seed, now: Timestamp) -> Result<String, ControlError> {
    let created = match seed.created {
        None => now,
        Some(created) => {
            Timestamp::from_unix_timestamp(created).map_err(|source| ControlError::Created { created, source })?
        }
    };
    let plain = PaymentIntentSeed::new(created);
    let seed = PaymentIntentSeed {
        id: seed.id,
        created,
        status: seed.status.map_or(plain.status, |text| ExternalStatus::from_stripe(&text)),
        amount: seed.amount.unwrap_or(plain.amount),
        currency: seed.currency.unwrap_or(plain.currency),
        livemode: seed.livemode,
        account: seed.account,
        customer: seed.customer,
        metadata: seed.metadata,
        capture_method: seed.capture_method,
        decline: seed.decline,
    };
    Ok(account.insert(seed)?)
}

fn apply(account: &mut Account, id: &str, change: Change, now: Timestamp) -> Result<(), ChangeError> {
    match change {
        Change::Status(text) => account.set_status(id, ExternalStatus::from_stripe(&text), now),
        Change::Decline(decline) => account.decline(id, decline, now),
        Change::Cancel(reason) => account.cancel(id, reason.as_deref(), now),
        Change::Livemode(livemode) => account.set_livemode(id, livemode),
        Change::Refund(amount) => account.refund(id, amount),
        Change::Dispute => account.dispute(id),
    }
}
