//! Scripted faults: which requests go wrong, and how.
//!
//! The rules are asked in the order in which they were added, and the first one that fires decides. A rule's
//! counts and its dice are its own, so a run can be repeated exactly.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::endpoint::Endpoint;
use super::error::{ApiError, Kind, no_such_intent};
use super::key;
use super::limit::{LimitReason, rate_limited};
use super::wire::{Request, Response};

/// What a request is given in place of its answer. It has no other effect: nothing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// 429 of the rate limiter, with `Stripe-Rate-Limited-Reason`.
    RateLimited(LimitReason),
    /// 429 `lock_timeout`, which is no rate limit and has no such header.
    LockTimeout,
    /// 409 `idempotency_key_in_use`.
    Conflict,
    /// 500 `api_error`.
    InternalError,
    /// 502 `api_error`.
    BadGateway,
    /// 503 `api_error`.
    Unavailable,
    /// 500 with a proxy's HTML page: no JSON, no `Request-Id`.
    InternalErrorHtml,
    /// 502 with a proxy's HTML page.
    BadGatewayHtml,
    /// 503 with a proxy's HTML page.
    UnavailableHtml,
    /// 200 with HTML, as a captive portal sends it.
    OkHtml,
    /// 200 with JSON that breaks off in the middle.
    Truncated,
    /// 200 with an empty list that claims `has_more: true`.
    EmptyPageWithMore,
    /// 401: no such key.
    InvalidKey,
    /// 401 `api_key_expired`.
    ExpiredKey,
    /// 403: a restricted key lacks the permission.
    Forbidden,
    /// 404: no such object.
    NotFound,
    /// 404: the other mode has such an object.
    WrongMode,
    /// The connection is closed without a byte.
    Dropped,
    /// Nothing until it is released; then the request is handled as though it had just arrived.
    Hold,
}

/// One time in so many, by a generator of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chance {
    /// Out of a million.
    pub per_million: u32,
    /// The same seed gives the same requests.
    pub seed: u64,
}

/// When a fault strikes. What is left out matches everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// What happens.
    pub fault: Fault,
    /// Only this operation.
    #[serde(default)]
    pub endpoint: Option<Endpoint>,
    /// Only this PaymentIntent.
    #[serde(default)]
    pub id: Option<String>,
    /// Lets so many matching requests through first: the nth one is `after: n - 1, times: 1`.
    #[serde(default)]
    pub after: u64,
    /// Strikes so often; `None` is for ever.
    #[serde(default)]
    pub times: Option<u64>,
    /// Strikes only now and then.
    #[serde(default)]
    pub chance: Option<Chance>,
}

impl FaultRule {
    /// Strikes every request, for ever.
    pub fn always(fault: Fault) -> Self {
        Self { fault, endpoint: None, id: None, after: 0, times: None, chance: None }
    }

    /// Strikes the next request.
    pub fn once(fault: Fault) -> Self {
        Self { times: Some(1), ..Self::always(fault) }
    }

    /// Only this operation.
    #[must_use]
    pub fn on(self, endpoint: Endpoint) -> Self {
        Self { endpoint: Some(endpoint), ..self }
    }

    /// Only this PaymentIntent.
    #[must_use]
    pub fn for_id(self, id: &str) -> Self {
        Self { id: Some(id.to_owned()), ..self }
    }
}

/// A rule's name, to take it out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FaultId(pub u64);

/// Which of the matching ones are struck: the first are let through, then so many are, now and then.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    after: u64,
    times: Option<u64>,
    matched: u64,
    struck: u64,
    dice: Option<(u32, fastrand::Rng)>,
}

impl Turns {
    pub(super) fn new(after: u64, times: Option<u64>, chance: Option<Chance>) -> Self {
        let dice = chance.map(|chance| (chance.per_million, fastrand::Rng::with_seed(chance.seed)));
        Self { after, times, matched: 0, struck: 0, dice }
    }

    /// Whether the one that has just matched is struck. Asked once for each.
    pub(super) fn is_up(&mut self) -> bool {
        if self.times.is_some_and(|times| self.struck >= times) {
            return false;
        }
        self.matched += 1;
        if self.matched <= self.after {
            return false;
        }
        if let Some((per_million, dice)) = &mut self.dice
            && dice.u32(0..1_000_000) >= *per_million
        {
            return false;
        }
        self.struck += 1;
        true
    }
}

#[derive(Clone, Debug)]
struct Armed {
    id: FaultId,
    rule: FaultRule,
    turns: Turns,
}

/// The rules that are in force.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    armed: Vec<Armed>,
    last_id: u64,
}

impl Faults {
    pub(super) fn add(&mut self, rule: FaultRule) -> FaultId {
        self.last_id += 1;
        let id = FaultId(self.last_id);
        let turns = Turns::new(rule.after, rule.times, rule.chance);
        self.armed.push(Armed { id, rule, turns });
        id
    }

    pub(super) fn remove(&mut self, id: FaultId) -> bool {
        let before = self.armed.len();
        self.armed.retain(|armed| armed.id != id);
        self.armed.len() < before
    }

    pub(super) fn clear(&mut self) {
        self.armed.clear();
    }

    pub(super) fn rules(&self) -> impl Iterator<Item = (FaultId, &FaultRule)> {
        self.armed.iter().map(|armed| (armed.id, &armed.rule))
    }

    /// The fault that strikes this request.
    pub(super) fn strike(&mut self, endpoint: Endpoint, id: Option<&str>) -> Option<Fault> {
        self.armed.iter_mut().find_map(|armed| armed.strike(endpoint, id))
    }
}

impl Armed {
    fn strike(&mut self, endpoint: Endpoint, id: Option<&str>) -> Option<Fault> {
        let rule = &self.rule;
        let matches = rule.endpoint.is_none_or(|wanted| wanted == endpoint)
            && rule.id.as_deref().is_none_or(|wanted| id == Some(wanted));
        (matches && self.turns.is_up()).then_some(rule.fault)
    }
}

/// How a fault answers, where it answers.
pub(super) enum Answer {
    Error(ApiError),
    Json(Vec<u8>),
    Html(Response),
}

/// The answer of a fault; `None` for those that give none.
pub(super) fn answer(fault: Fault, request: &Request, id: Option<&str>, account_id: &str) -> Option<Answer> {
    let key = key::presented(request).unwrap_or_default();
    let livemode = key::livemode(&key).unwrap_or(false);
    let id = id.unwrap_or_default();
    let error = match fault {
        Fault::RateLimited(reason) => rate_limited(reason),
        Fault::LockTimeout => ApiError::invalid(
            429,
            "This object cannot be accessed right now because another API request or Stripe process is currently \
                 accessing it. If you see this error intermittently, retry the request. If you see this error \
                 frequently and are making multiple concurrent requests to a single object, make your requests \
                 serially or at a lower rate.",
        )
        .code("lock_timeout")
        .should_retry(Some(true)),
        Fault::Conflict => ApiError::invalid(
            409,
            "There is currently another in-progress request using this Idempotency Key (that probably means you \
                 submitted twice, and the other request is still going through). Please try again later.",
        )
        .code("idempotency_key_in_use")
        .kind(Kind::Idempotency)
        .should_retry(Some(true)),
        Fault::InternalError => api_error(500),
        Fault::BadGateway => api_error(502),
        Fault::Unavailable => api_error(503),
        Fault::InternalErrorHtml => return Some(html(500, "500 Internal Server Error")),
        Fault::BadGatewayHtml => return Some(html(502, "502 Bad Gateway")),
        Fault::UnavailableHtml => return Some(html(503, "503 Service Temporarily Unavailable")),
        Fault::OkHtml => return Some(html(200, "Welcome")),
        Fault::Truncated => return Some(Answer::Json(br#"{"id": "pi_"#.to_vec())),
        Fault::EmptyPageWithMore => {
            let page = json!({"object": "list", "data": [], "has_more": true, "url": "/v1/payment_intents"});
            return Some(Answer::Json(page.to_string().into_bytes()));
        }
        Fault::InvalidKey => key::invalid(&key),
        Fault::ExpiredKey => key::expired(&key),
        Fault::Forbidden => key::forbidden(&key, key::Permission::PaymentIntentRead, account_id),
        Fault::NotFound => no_such_intent(404, id, "intent", livemode, false),
        Fault::WrongMode => no_such_intent(404, id, "intent", livemode, true),
        Fault::Dropped | Fault::Hold => return None,
    };
    Some(Answer::Error(error))
}

fn api_error(status: u16) -> ApiError {
    let message = "Sorry! There was an error while talking to one of our backends. Support has been notified.";
    ApiError::invalid(status, message).kind(Kind::Api).should_retry(None)
}

fn html(status: u16, title: &str) -> Answer {
    let body = format!(
        "<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n<hr><center>\
         nginx</center>\r\n</body>\r\n</html>\r\n"
    );
    let headers = vec![("Content-Type".to_owned(), "text/html".to_owned())];
    Answer::Html(Response { status, headers, body: body.into_bytes() })
}
