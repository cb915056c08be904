//! The account: everything that Stripe would know, and the one door to it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use reconciler::domain::Timestamp;

use super::endpoint::{Endpoint, route};
use super::error::{ApiError, unrecognized_url};
use super::fault::{self, Answer, Fault, Faults};
use super::intent::PaymentIntent;
use super::key::{self, Caller, Grant, Permission};
use super::ledger::Ledger;
use super::limit::{Limiter, Limits, rate_limited};
use super::log::{Given, Log};
use super::webhooks::Webhooks;
use super::wire::{Hold, Reply, Request, Response};
use super::{read, write};

/// The API version that objects are written in, and that a request without `Stripe-Version` gets.
pub const API_VERSION: &str = "2026-10-28.endive";

/// The platform's own account.
pub const ACCOUNT_ID: &str = "acct_1SandboxPlatform";

/// One account in one mode. `account` is a connected one; `None` is the platform's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Space {
    pub(super) account: Option<String>,
    pub(super) livemode: bool,
}

impl Space {
    pub(super) fn other_mode(&self) -> Self {
        Self { account: self.account.clone(), livemode: !self.livemode }
    }
}

/// A Stripe account with its connected accounts, in both modes. No socket, no clock: `now` is always given, and the
/// same calls give the same answers, ids and request ids included.
#[derive(Clone, Debug, Default)]
pub struct Account {
    pub(super) ledgers: BTreeMap<Space, Ledger>,
    pub(super) spaces: HashMap<String, Space>,
    pub(super) connected: BTreeSet<String>,
    pub(super) grants: BTreeMap<String, Grant>,
    pub(super) limits: Limits,
    pub(super) limiter: Limiter,
    pub(super) faults: Faults,
    pub(super) log: Log,
    pub(super) webhooks: Webhooks,
    /// Those that wait, and whether they were released.
    held: BTreeMap<Hold, bool>,
    last_intent: u64,
    last_request: u64,
}

impl Account {
    /// An empty account without limits or faults, for which every well-formed key is good.
    pub fn new() -> Self {
        Self::default()
    }

    /// What Stripe answers, limits included, faults and log aside.
    pub fn answer(&mut self, request: &Request, now: Timestamp) -> Response {
        let result = self.dispatch(request, now);
        self.respond(request, now, result)
    }

    /// Takes the request down in the log, lets the faults strike, and otherwise [`answer`](Self::answer)s.
    pub fn handle(&mut self, request: &Request, now: Timestamp) -> Reply {
        let (endpoint, id) = route(&request.method, &request.path);
        let sequence = self.log.arrival(now, endpoint, id);
        let response = match self.faults.strike(endpoint, id) {
            None => self.answer(request, now),
            Some(Fault::Hold) => {
                let hold = Hold(sequence);
                self.held.insert(hold, false);
                self.log.counters.held += 1;
                return Reply::Hold(hold);
            }
            Some(fault) => match fault::answer(fault, request, id, ACCOUNT_ID) {
                None => {
                    self.log.settle(sequence, Given::Dropped);
                    return Reply::Dropped;
                }
                Some(Answer::Html(response)) => response,
                Some(Answer::Json(body)) => self.respond(request, now, Ok(body)),
                Some(Answer::Error(error)) => self.respond(request, now, Err(error)),
            },
        };
        self.log.settle(sequence, Given::Status(response.status));
        Reply::Answer(response)
    }

    /// Answers a request that was held, by the state that there is now; `None` while it is not released.
    pub fn resume(&mut self, hold: Hold, request: &Request, now: Timestamp) -> Option<Response> {
        if self.held.get(&hold) != Some(&true) {
            return None;
        }
        self.forget_hold(hold);
        let response = self.answer(request, now);
        self.log.settle(hold.0, Given::Status(response.status));
        Some(response)
    }

    /// Lets every held request go on; how many those are.
    pub fn release_all(&mut self) -> usize {
        let waiting = self.held.values_mut().filter(|released| !**released);
        waiting.map(|released| *released = true).count()
    }

    /// The client of a held request went away.
    pub fn abandon(&mut self, hold: Hold) {
        if self.forget_hold(hold) {
            self.log.settle(hold.0, Given::Abandoned);
        }
    }

    fn forget_hold(&mut self, hold: Hold) -> bool {
        let was_held = self.held.remove(&hold).is_some();
        if was_held {
            self.log.counters.held = self.log.counters.held.saturating_sub(1);
        }
        was_held
    }

    fn dispatch(&mut self, request: &Request, now: Timestamp) -> Result<Vec<u8>, ApiError> {
        let (endpoint, id) = route(&request.method, &request.path);
        if endpoint == Endpoint::Unrecognized {
            return Err(unrecognized_url(&request.method, &request.path));
        }
        let caller = key::authenticate(request, &self.grants)?;
        check_version(request)?;
        let space = self.space(request, &caller)?;
        self.limiter.admit(&self.limits, &space, endpoint, now).map_err(rate_limited)?;
        let account_id = space.account.as_deref().unwrap_or(ACCOUNT_ID);
        let permission = if endpoint.writes() { Permission::PaymentIntentWrite } else { Permission::PaymentIntentRead };
        caller.require(permission, account_id)?;
        let may_expand = caller.require(Permission::ChargeRead, account_id);
        let id = id.unwrap_or_default();
        match endpoint {
            Endpoint::List => read::list(self, request, &space, may_expand),
            Endpoint::Retrieve => read::retrieve(self, request, &space, id, may_expand),
            Endpoint::Create => write::create(self, request, &space, now),
            Endpoint::Update => write::update(self, request, &space, id, now),
            Endpoint::Confirm => write::confirm(self, request, &space, id, now),
            Endpoint::Capture => write::capture(self, request, &space, id, now),
            Endpoint::Cancel => write::cancel(self, request, &space, id, now),
            Endpoint::Unrecognized => Err(unrecognized_url(&request.method, &request.path)),
        }
    }

    /// Whose objects are meant.
    fn space(&self, request: &Request, caller: &Caller) -> Result<Space, ApiError> {
        let account = match request.header_value("Stripe-Account") {
            None => None,
            Some(id) if id == ACCOUNT_ID => None,
            Some(id) if self.connected.contains(id) => Some(id.to_owned()),
            Some(id) => {
                return Err(ApiError::invalid(
                    403,
                    format!(
                        "The provided key '{}' does not have access to account '{id}' (or that account does not \
                         exist). Application access may have been revoked.",
                        caller.masked_key()
                    ),
                )
                .code("account_invalid"));
            }
        };
        Ok(Space { account, livemode: caller.livemode })
    }

    /// Puts the headers on that every answer of Stripe's has.
    fn respond(&mut self, request: &Request, now: Timestamp, result: Result<Vec<u8>, ApiError>) -> Response {
        self.last_request += 1;
        let request_id = request_id(self.last_request);
        let version = request.header_value("Stripe-Version").unwrap_or(API_VERSION);
        let mut headers = vec![
            ("Content-Type".to_owned(), "application/json".to_owned()),
            ("Request-Id".to_owned(), request_id.clone()),
            ("Stripe-Version".to_owned(), version.to_owned()),
        ];
        let (status, body) = match result {
            Ok(body) => (200, body),
            Err(error) => {
                if let Some(retry) = error.should_retry {
                    headers.push(("Stripe-Should-Retry".to_owned(), retry.to_string()));
                }
                headers.extend(error.headers().map(|(name, value)| (name.to_owned(), value.to_owned())));
                let mode = key::presented(request).and_then(|key| key::livemode(&key));
                // Only a request that belongs to an account has a page in its dashboard.
                let url = mode.filter(|_| error.status != 401).map(|livemode| {
                    let mode = if livemode { "" } else { "test/" };
                    let at = now.unix_timestamp();
                    format!("https://dashboard.stripe.com/{mode}logs/{request_id}?t={at}")
                });
                (error.status, error.body(url.as_deref()))
            }
        };
        Response { status, headers, body }
    }

    /// The id that the answer to the request that is being handled is going to have.
    pub(super) fn this_requests_id(&self) -> String {
        request_id(self.last_request + 1)
    }

    pub(super) fn new_intent_id(&mut self) -> String {
        loop {
            self.last_intent += 1;
            let id = format!("pi_3{}", made_up(self.last_intent));
            if !self.spaces.contains_key(&id) {
                return id;
            }
        }
    }

    pub(super) fn put(&mut self, space: Space, intent: PaymentIntent) {
        self.last_intent += 1;
        self.spaces.insert(intent.id().to_owned(), space.clone());
        self.ledgers.entry(space).or_default().insert(self.last_intent, intent);
    }

    pub(super) fn ledger(&self, space: &Space) -> Option<&Ledger> {
        self.ledgers.get(space)
    }

    pub(super) fn intent_mut(&mut self, space: &Space, id: &str) -> Option<&mut PaymentIntent> {
        self.ledgers.get_mut(space)?.get_mut(id)
    }

    /// Whether the other mode has an object of that id.
    pub(super) fn other_mode_has(&self, space: &Space, id: &str) -> bool {
        self.ledgers.get(&space.other_mode()).is_some_and(|ledger| ledger.get(id).is_some())
    }
}

fn check_version(request: &Request) -> Result<(), ApiError> {
    let Some(version) = request.header_value("Stripe-Version") else { return Ok(()) };
    let date = version.split('.').next().unwrap_or_default();
    let well_formed = date.len() == 10
        && date.bytes().enumerate().all(|(i, b)| if i == 4 || i == 7 { b == b'-' } else { b.is_ascii_digit() });
    if well_formed { Ok(()) } else { Err(ApiError::invalid(400, format!("Invalid Stripe API version: {version}"))) }
}

fn request_id(number: u64) -> String {
    format!("req_{}", made_up(number ^ 0x5eed))
}

/// Letters and digits that look random, different for every number: 62^11 is more than 2^64.
pub(super) fn made_up(number: u64) -> String {
    const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    // An odd factor makes this a bijection on u64, so no two numbers meet.
    let mut rest = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut text = String::from("Sbx");
    for _ in 0..11 {
        let digit = usize::try_from(rest % 62).unwrap_or_default();
        text.push(ALPHABET.get(digit).copied().map_or('0', char::from));
        rest /= 62;
    }
    text
}
