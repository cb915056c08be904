//! Who is told.

use serde::{Deserialize, Serialize};
use url::{Host, Url};

use super::event::{Event, EventType};

/// An address that is told of events, as it is registered in the dashboard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookEndpoint {
    /// `http://127.0.0.1:PORT/…`; nothing but a loopback address is taken.
    pub url: String,
    /// `whsec_…`: one, or two while it is being rolled. Each signs every delivery.
    pub secrets: Vec<String>,
    /// The types that it wants; `None` is every type.
    #[serde(default)]
    pub events: Option<Vec<EventType>>,
    /// Of the live mode or of test mode.
    #[serde(default)]
    pub livemode: bool,
    /// Whether it hears of the connected accounts instead of the platform's own. In live mode it then hears of their test
    /// events, too.
    #[serde(default)]
    pub connected: bool,
}

/// A registered endpoint's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WebhookEndpointId(pub u64);

/// Why nothing could be done about webhooks.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WebhookError {
    /// The sandbox talks to nobody but this machine.
    #[error("{url} is not http to a loopback address written in numbers, http://127.0.0.1:8080/ say")]
    Url {
        /// As given.
        url: String,
    },
    /// There is nothing to sign with.
    #[error("an endpoint needs a signing secret, and each begins with whsec_")]
    Secrets,
    /// It was never registered, or is removed.
    #[error("there is no webhook endpoint {}", id.0)]
    NoSuchEndpoint {
        /// What was asked for.
        id: WebhookEndpointId,
    },
    /// No such event was made.
    #[error("there is no event {id}")]
    NoSuchEvent {
        /// What was asked for.
        id: String,
    },
}

impl WebhookEndpoint {
    /// An endpoint of test mode for every type, with one secret.
    pub fn new(url: &str, secret: &str) -> Self {
        Self { url: url.to_owned(), secrets: vec![secret.to_owned()], events: None, livemode: false, connected: false }
    }

    /// A name is refused even where it means this machine, since a name can come to mean another one.
    pub(super) fn check(&self) -> Result<(), WebhookError> {
        let loopback = Url::parse(&self.url).is_ok_and(|url| {
            let here = match url.host() {
                Some(Host::Ipv4(address)) => address.is_loopback(),
                Some(Host::Ipv6(address)) => address.is_loopback(),
                Some(Host::Domain(_)) | None => false,
            };
            here && url.scheme() == "http"
        });
        if !loopback {
            return Err(WebhookError::Url { url: self.url.clone() });
        }
        let signs = |secret: &String| secret.strip_prefix("whsec_").is_some_and(|rest| !rest.is_empty());
        if self.secrets.is_empty() || !self.secrets.iter().all(signs) {
            return Err(WebhookError::Secrets);
        }
        Ok(())
    }

    /// Whether it is told of this event.
    pub(super) fn hears(&self, event: &Event) -> bool {
        let wanted = self.events.as_ref().is_none_or(|events| events.contains(&event.event_type));
        let whose = self.connected == event.account.is_some();
        let mode = self.livemode == event.livemode || (self.livemode && self.connected);
        wanted && whose && mode
    }
}
