//! The webhooks' part of the control surface, under `/_control/webhooks/`.
//!
//! | request | does | gives |
//! | --- | --- | --- |
//! | `POST endpoints`, `GET endpoints`, `DELETE endpoints/{n}` | registers a [`WebhookEndpoint`] | `{"endpoint": n}`, or all |
//! | `POST rules`, `GET rules`, `DELETE rules` | takes a [`DeliveryRule`] | `{"rule": n}`, or all |
//! | `GET events` | | the events, without their bodies |
//! | `GET deliveries`, `DELETE deliveries` | reads or clears the log and the counters | `{"counters": …, "waiting": n, "log": […]}` |
//! | `POST deliver` | sends what is due, and comes back when that is done | `{"sent": n}` |
//! | `POST release` | makes everything due that waits | `{"released": n}` |
//! | `POST resend` `{"event": "evt_…"}` | sends an event again | `{"endpoints": n}` |

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::control::{ControlError, read};
use super::super::server::Shared;
use super::endpoint::{WebhookEndpoint, WebhookEndpointId};
use super::rule::DeliveryRule;
use super::sender::deliver;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resend {
    event: String,
}

/// The answer to a request, or `None` where there is no such control.
pub(in super::super) async fn act(
    shared: &Shared,
    method: &str,
    route: &str,
    body: &[u8],
) -> Result<Option<Value>, ControlError> {
    let (name, rest) = route.split_once('/').map_or((route, None), |(name, rest)| (name, Some(rest)));
    let answer = match (method, name, rest) {
        ("POST", "endpoints", None) => {
            let endpoint: WebhookEndpoint = read(body)?;
            json!({"endpoint": shared.with(|account, _| account.add_webhook_endpoint(endpoint))?})
        }
        ("GET", "endpoints", None) => shared.with(|account, _| {
            account.webhook_endpoints().map(|(id, endpoint)| json!({"endpoint": id, "is": endpoint})).collect()
        }),
        ("DELETE", "endpoints", Some(number)) => {
            let id = number.parse().ok().map(WebhookEndpointId);
            match id.is_some_and(|id| shared.with(|account, _| account.remove_webhook_endpoint(id))) {
                true => json!({}),
                false => return Ok(None),
            }
        }
        ("POST", "rules", None) => {
            let rule: DeliveryRule = read(body)?;
            json!({"rule": shared.with(|account, _| account.add_delivery_rule(rule))})
        }
        ("GET", "rules", None) => shared
            .with(|account, _| account.delivery_rules().map(|(id, rule)| json!({"rule": id, "is": rule})).collect()),
        ("DELETE", "rules", None) => {
            shared.with(|account, _| account.clear_delivery_rules());
            json!({})
        }
        ("GET", "events", None) => shared.with(|account, _| json!(account.events().collect::<Vec<_>>())),
        ("GET", "deliveries", None) => shared.with(|account, _| {
            json!({
                "counters": account.webhook_counters(),
                "waiting": account.deliveries_waiting(),
                "log": account.deliveries().collect::<Vec<_>>(),
            })
        }),
        ("DELETE", "deliveries", None) => {
            shared.with(|account, _| account.clear_deliveries());
            json!({})
        }
        ("POST", "deliver", None) => json!({"sent": deliver(shared).await}),
        ("POST", "release", None) => json!({"released": shared.with(|account, now| account.release_deliveries(now))}),
        ("POST", "resend", None) => {
            let Resend { event } = read(body)?;
            json!({"endpoints": shared.with(|account, now| account.resend(&event, now))?})
        }
        _ => return Ok(None),
    };
    Ok(Some(answer))
}
