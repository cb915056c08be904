//! Stripe as a value: the one fake there is. It answers at once and in process, keeps what it was given, fails when it is
//! told to, and passes the same conformance suite as the client does over HTTP against the sandbox.
//!
//! Faults are real answers that go through the gateway's own decoder, so that a fault here is what it would be there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reconciler::domain::Timestamp;
use reconciler::domain::external::{Decline, External, ExternalPayment, ExternalStatus};
use reconciler::domain::id::ExternalRef;
use reconciler::gateway::{
    Answer, Call, Exchange, Flaw, Gateway, GatewayError, ListPage, ListQuery, TransientCause, UnreadableObject,
    decode_list, decode_retrieve,
};
use reqwest::header::{HeaderMap, HeaderValue};

/// A way in which Stripe does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 500.
    ServerError,
    /// The connection ends without an answer.
    Dropped,
    /// 200 with a page for people.
    Html,
    /// 429 of the limiter.
    RateLimited,
    /// 429 of another kind: an object is locked.
    LockTimeout,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 200 with a page that is empty and says `has_more`.
    EndlessPage,
}

/// An account at Stripe. Clones are the same account.
#[derive(Clone, Debug, Default)]
pub struct FakeStripe(Arc<Mutex<Account>>);

type Place = (i64, u64);

#[derive(Debug, Default)]
struct Account {
    /// By `created` in unix seconds, and by number: of two of the same second, the one that was put later is the newer.
    payments: BTreeMap<Place, ExternalPayment>,
    places: HashMap<ExternalRef, Place>,
    /// How many were put.
    number: u64,
    other_mode: HashSet<ExternalRef>,
    faults: HashMap<ExternalRef, Fault>,
    /// Unreadable on every page, whatever a retrieve gives.
    spoiled: HashSet<ExternalRef>,
    /// Faults of single requests, counted from 1.
    nth: HashMap<usize, Fault>,
    from_nth: Option<(usize, Fault)>,
    requests: Vec<String>,
}

impl FakeStripe {
    /// An empty account.
    pub fn new() -> Self {
        Self::default()
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a PaymentIntent, or changes the one of this id. Panics where the id is none, as a test's mistake.
    #[expect(clippy::expect_used, reason = "a test's own mistake")]
    pub fn put(&self, id: &str, status: &str, created: Timestamp) {
        let id = ExternalRef::parse(id).expect("the id of a PaymentIntent");
        let payment = ExternalPayment {
            id: id.clone(),
            status: ExternalStatus::from_stripe(status),
            amount_minor: 1_000,
            amount_received_minor: if status == "succeeded" { 1_000 } else { 0 },
            currency: "eur".to_owned(),
            created: created.replace_nanosecond(0).unwrap_or(created),
            livemode: false,
            metadata: BTreeMap::new(),
            decline: None,
            cancellation_reason: None,
        };
        let mut account = self.account();
        account.other_mode.remove(&id);
        account.number += 1;
        let number = match account.places.remove(&id) {
            Some(known) => {
                account.payments.remove(&known);
                known.1
            }
            None => account.number,
        };
        let place = (payment.created.unix_timestamp(), number);
        account.places.insert(id, place);
        account.payments.insert(place, payment);
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut ExternalPayment)) {
        let mut account = self.account();
        if let Some(payment) = account.payments.values_mut().find(|payment| payment.id.as_str() == id) {
            change(payment);
        }
    }

    /// Changes a status.
    pub fn set_status(&self, id: &str, status: &str) {
        self.change(id, |payment| payment.status = ExternalStatus::from_stripe(status));
    }

    /// The last attempt was declined.
    pub fn decline(&self, id: &str, code: &str, charged_at: Option<Timestamp>) {
        self.change(id, |payment| {
            payment.status = ExternalStatus::RequiresPaymentMethod;
            payment.decline = Some(Decline { code: Some(code.to_owned()), charged_at });
        });
    }

    /// Sets a key of the metadata.
    pub fn set_metadata(&self, id: &str, key: &str, value: &str) {
        self.change(id, |payment| drop(payment.metadata.insert(key.to_owned(), value.to_owned())));
    }

    /// It is of live mode, or not.
    pub fn set_livemode(&self, id: &str, livemode: bool) {
        self.change(id, |payment| payment.livemode = livemode);
    }

    /// No page gives it in a form that can be read; a retrieve does.
    pub fn spoil(&self, id: &str) {
        self.account().spoiled.extend(ExternalRef::parse(id));
    }

    /// Stripe has never heard of it.
    pub fn remove(&self, id: &str) {
        let mut account = self.account();
        if let Some(place) = ExternalRef::parse(id).and_then(|id| account.places.remove(&id)) {
            account.payments.remove(&place);
        }
    }

    /// It exists in the other mode only.
    pub fn put_in_other_mode(&self, id: &str) {
        self.remove(id);
        self.account().other_mode.extend(ExternalRef::parse(id));
    }

    /// This one never answers.
    pub fn fail(&self, id: &str, fault: Fault) {
        if let Some(id) = ExternalRef::parse(id) {
            self.account().faults.insert(id, fault);
        }
    }

    /// The nth request from the beginning, counted from 1, does not answer.
    pub fn fail_nth(&self, nth: usize, fault: Fault) {
        self.account().nth.insert(nth, fault);
    }

    /// No request answers, from the nth on.
    pub fn fail_from_nth(&self, nth: usize, fault: Fault) {
        self.account().from_nth = Some((nth, fault));
    }

    /// The next request does not answer.
    pub fn fail_next(&self, fault: Fault) {
        let nth = self.requests().len() + 1;
        self.fail_nth(nth, fault);
    }

    /// No request answers any more; `None` ends it.
    pub fn fail_all(&self, fault: Option<Fault>) {
        self.account().from_nth = fault.map(|fault| (0, fault));
    }

    /// What was asked for so far: an id, or `list`.
    pub fn requests(&self) -> Vec<String> {
        self.account().requests.clone()
    }
}

impl Account {
    /// Notes a request, and the fault that it meets.
    fn request(&mut self, id: Option<&ExternalRef>) -> Option<Fault> {
        self.requests.push(id.map_or_else(|| "list".to_owned(), ToString::to_string));
        let number = self.requests.len();
        let from_nth = self.from_nth.filter(|(nth, _)| number >= *nth).map(|(_, fault)| fault);
        let single = self.nth.get(&number).copied().or(from_nth);
        single.or_else(|| id.and_then(|id| self.faults.get(id).copied()))
    }
}

impl Gateway for FakeStripe {
    async fn retrieve(&self, id: &ExternalRef) -> Result<External, GatewayError> {
        let mut account = self.account();
        if let Some(fault) = account.request(Some(id)) {
            return match answer_of(fault) {
                Some((status, headers, body)) => {
                    decode_retrieve(id, Answer { status, headers: &headers, body: body.as_bytes() })
                }
                None => Err(dropped(Call::Retrieve(id.clone()))),
            };
        }
        let known = account.places.get(id).and_then(|place| account.payments.get(place));
        Ok(known
            .cloned()
            .map_or_else(|| External::NotFound { other_mode: account.other_mode.contains(id) }, External::Present))
    }

    async fn list(&self, query: &ListQuery) -> Result<ListPage, GatewayError> {
        let mut account = self.account();
        if let Some(fault) = account.request(None) {
            return refused(query, answer_of(fault));
        }
        let from = query.created_from.map_or(i64::MIN, Timestamp::unix_timestamp);
        let before = query.created_before.map_or(i64::MAX, |at| at.unix_timestamp() + i64::from(at.nanosecond() > 0));
        let window = (from, 0)..(before, 0).max((from, 0));
        let end = match &query.starting_after {
            None => window.end,
            Some(after) => match account.places.get(after).filter(|place| window.contains(place)) {
                Some(place) => *place,
                None => return refused(query, Some(no_such_cursor(after))),
            },
        };
        let limit = usize::from(query.limit.clamp(1, reconciler::gateway::PAGE_MAX));
        let mut newest_first = account.payments.range(window.start..end).rev().map(|(_, payment)| payment);
        let on_page: Vec<&ExternalPayment> = newest_first.by_ref().take(limit).collect();
        let has_more = newest_first.next().is_some();
        let next = on_page.last().filter(|_| has_more).map(|payment| payment.id.clone());
        let (spoiled, readable): (Vec<&ExternalPayment>, Vec<&ExternalPayment>) =
            on_page.into_iter().partition(|payment| account.spoiled.contains(&payment.id));
        let unreadable = spoiled
            .into_iter()
            .map(|payment| UnreadableObject { id: Some(payment.id.clone()), flaw: Flaw::Missing("amount") })
            .collect();
        Ok(ListPage { payments: readable.into_iter().cloned().collect(), unreadable, next })
    }
}

type HttpAnswer = (u16, HeaderMap, String);

fn refused(query: &ListQuery, answer: Option<HttpAnswer>) -> Result<ListPage, GatewayError> {
    match answer {
        Some((status, headers, body)) => {
            decode_list(query, Answer { status, headers: &headers, body: body.as_bytes() })
        }
        None => Err(dropped(Call::List { starting_after: query.starting_after.clone() })),
    }
}

fn dropped(call: Call) -> GatewayError {
    GatewayError::Transient {
        cause: TransientCause::BrokenOff,
        retry_after: None,
        exchange: Box::new(Exchange::unanswered(call)),
        source: None,
    }
}

fn no_such_cursor(after: &ExternalRef) -> HttpAnswer {
    let body = serde_json::json!({"error": {
        "code": "resource_missing", "param": "starting_after", "type": "invalid_request_error",
        "message": format!("No such PaymentIntent: '{after}'"),
    }});
    (400, HeaderMap::new(), body.to_string())
}

/// The answer that a fault is, or none where the connection ends without one.
fn answer_of(fault: Fault) -> Option<HttpAnswer> {
    let error = |kind: &str, code: Option<&str>, message: &str| {
        serde_json::json!({"error": {"type": kind, "code": code, "message": message}}).to_string()
    };
    let mut headers = HeaderMap::new();
    headers.insert("request-id", HeaderValue::from_static("req_fake"));
    let (status, body) = match fault {
        Fault::Dropped => return None,
        Fault::ServerError => (500, error("api_error", None, "An unknown error occurred")),
        Fault::Html => (200, "<!doctype html><title>Be right back</title>".to_owned()),
        Fault::RateLimited => {
            headers.insert("stripe-rate-limited-reason", HeaderValue::from_static("endpoint-rate"));
            (429, error("invalid_request_error", Some("rate_limit"), "Request rate limit exceeded."))
        }
        Fault::LockTimeout => {
            (429, error("invalid_request_error", Some("lock_timeout"), "This object cannot be accessed right now."))
        }
        Fault::Unauthorized => (401, error("invalid_request_error", None, "Invalid API Key provided")),
        Fault::EndlessPage => (200, serde_json::json!({"object": "list", "data": [], "has_more": true}).to_string()),
        Fault::Forbidden => (403, error("invalid_request_error", Some("more_permissions_required"), "No permission")),
    };
    Some((status, headers, body))
}
