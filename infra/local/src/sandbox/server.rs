//! The account behind HTTP/1.1 on the loopback interface.
//!
//! When the [`Sandbox`] is dropped, all connections go with it, held requests among them. A fault that drops a connection
//! makes the exchange fail, upon which the socket is closed without a byte written.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use reconciler::domain::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::account::Account;
use super::control;
use super::log::Counters;
use super::webhooks::sender::{deliver, keep_delivering};
use super::wire::{Hold, Reply, Request, Response};
use crate::loopback::Listening;

/// Where the sandbox gets its time. Stripe's clock is not ours, so it is not the reconciler's clock either.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How a sandbox is started.
#[derive(Clone)]
pub struct Options {
    /// 0 takes any free port.
    pub port: u16,
    /// How long each answer is on its way.
    pub latency: Duration,
    /// What is there at the start.
    pub account: Account,
    /// For `created`, for the limits, for the log and for the webhooks.
    pub clock: Clock,
    /// Whether webhooks go out by themselves.
    pub sending: Sending,
}

/// When webhooks go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// As soon as they are due. Pauses are waited for with the machine's timer, so this wants a clock that goes by itself.
    ByItself,
    /// When [`Sandbox::deliver`] is called.
    WhenAsked,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            port: 0,
            latency: Duration::ZERO,
            account: Account::new(),
            clock: Arc::new(system_time),
            sending: Sending::ByItself,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the sandbox stands for a machine elsewhere, with a clock of its own")]
fn system_time() -> Timestamp {
    Timestamp::now_utc()
}

/// The sandbox could not be started, or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The port is taken, say.
    #[error("cannot listen on 127.0.0.1:{port}")]
    Listen {
        /// As asked for.
        port: u16,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It takes no more connections.
    #[error("cannot accept a connection on {base_url}")]
    Accept {
        /// Where it listened.
        base_url: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A running sandbox. Dropping it closes the port and every connection.
pub struct Sandbox {
    /// `http://127.0.0.1:PORT`, without a slash at the end.
    pub base_url: String,
    shared: Arc<Shared>,
    listening: Listening,
    sending: Option<JoinHandle<()>>,
}

/// What the connections and the handle have in common.
pub(super) struct Shared {
    account: Mutex<Account>,
    latency: Mutex<Duration>,
    pub(super) counters: watch::Sender<Counters>,
    clock: Clock,
    /// Taken while a webhook is being sent: they go out one after the other.
    pub(super) turn: tokio::sync::Mutex<()>,
}

impl Sandbox {
    /// Listens on 127.0.0.1. Must be called within a tokio runtime.
    pub async fn start(options: Options) -> Result<Self, SandboxError> {
        let Options { port, latency, account, clock, sending } = options;
        let counters = watch::Sender::new(account.counters().clone());
        let shared = Arc::new(Shared {
            account: Mutex::new(account),
            latency: Mutex::new(latency),
            counters,
            clock,
            turn: tokio::sync::Mutex::new(()),
        });
        let serving = Arc::clone(&shared);
        let answered = move |request| {
            let shared = Arc::clone(&serving);
            async move { exchange(request, &shared).await }
        };
        let listening =
            Listening::start(port, answered).await.map_err(|source| SandboxError::Listen { port, source })?;
        let sending = match sending {
            Sending::ByItself => {
                let shared = Arc::clone(&shared);
                Some(tokio::spawn(async move { keep_delivering(&shared).await }))
            }
            Sending::WhenAsked => None,
        };
        Ok(Self { base_url: listening.base_url.clone(), shared, listening, sending })
    }

    /// Reads or changes the account, with the sandbox's time. Requests wait meanwhile.
    pub fn with<T>(&self, act: impl FnOnce(&mut Account, Timestamp) -> T) -> T {
        self.shared.with(act)
    }

    /// How long each answer is on its way from now on.
    pub fn set_latency(&self, latency: Duration) {
        *unpoisoned(&self.shared.latency) = latency;
    }

    /// Comes back as soon as the counters are so; gives them.
    pub async fn until(&self, condition: impl FnMut(&Counters) -> bool) -> Counters {
        self.shared.until(condition).await
    }

    /// Comes back as soon as so many requests have arrived since the log was cleared.
    pub async fn arrived(&self, requests: u64) -> Counters {
        self.until(|counters| counters.arrived >= requests).await
    }

    /// Comes back as soon as so many requests are being held.
    pub async fn held(&self, requests: u64) -> Counters {
        self.until(|counters| counters.held >= requests).await
    }

    /// Sends the webhooks that are due, one after the other, and those that become due by it; comes back when none is. How
    /// many attempts that were.
    pub async fn deliver(&self) -> u64 {
        deliver(&self.shared).await
    }

    /// Runs until it fails, and says why; for a sandbox in a process of its own.
    pub async fn run(mut self) -> SandboxError {
        let source = self.listening.ended().await;
        SandboxError::Accept { base_url: self.base_url.clone(), source }
    }

    /// Closes the port and every connection, and comes back when that is done.
    pub async fn stop(mut self) {
        self.listening.stop().await;
        if let Some(sending) = self.sending.as_mut() {
            sending.abort();
            match sending.await {
                // Either way nothing is sent any more.
                Ok(()) | Err(_) => {}
            }
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Some(sending) = &self.sending {
            sending.abort();
        }
    }
}

impl Shared {
    /// Changes the account and tells those who wait for the counters.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Account, Timestamp) -> T) -> T {
        let mut account = unpoisoned(&self.account);
        let result = act(&mut account, (self.clock)());
        // Under the lock, so that nobody sees older counters after newer ones.
        self.counters.send_replace(account.counters().clone());
        result
    }

    pub(super) async fn until(&self, condition: impl FnMut(&Counters) -> bool) -> Counters {
        let mut counters = self.counters.subscribe();
        let reached = counters.wait_for(condition).await.map(|counters| counters.clone());
        // The sender lives as long as `self`.
        reached.unwrap_or_default()
    }

    pub(super) fn set_latency(&self, latency: Duration) {
        *unpoisoned(&self.latency) = latency;
    }

    /// The answer as it is at arrival, sent when the latency is over; `None` where the connection is to be dropped.
    async fn reply(&self, request: &Request) -> Option<Response> {
        let response = match self.with(|account, now| account.handle(request, now)) {
            Reply::Answer(response) => response,
            Reply::Dropped => return None,
            Reply::Hold(hold) => self.released(hold, request).await,
        };
        let latency = *unpoisoned(&self.latency);
        if !latency.is_zero() {
            delay(latency).await;
        }
        Some(response)
    }

    async fn released(&self, hold: Hold, request: &Request) -> Response {
        let _held = Held { shared: self, hold };
        let mut changes = self.counters.subscribe();
        loop {
            // Marked as seen before looking, so that a release in between wakes us.
            changes.borrow_and_update();
            if let Some(response) = self.with_silently(|account, now| account.resume(hold, request, now)) {
                self.with(|_, _| ());
                return response;
            }
            if changes.changed().await.is_err() {
                // The sender lives as long as `self`.
                std::future::pending::<()>().await;
            }
        }
    }

    /// As [`with`](Self::with), for a look that may change nothing: it must not wake those that look again.
    pub(super) fn with_silently<T>(&self, act: impl FnOnce(&mut Account, Timestamp) -> T) -> T {
        act(&mut unpoisoned(&self.account), (self.clock)())
    }
}

/// Ends a hold when the client goes away; after an answer there is nothing left to end.
struct Held<'a> {
    shared: &'a Shared,
    hold: Hold,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.shared.with(|account, _| account.abandon(self.hold));
    }
}

/// A panic in one connection must not take the others down; the state is whole between calls.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::disallowed_methods, reason = "the sandbox imitates a network, which takes real time")]
pub(super) async fn delay(latency: Duration) {
    tokio::time::sleep(latency).await;
}

/// The service failed on purpose, to have the connection closed.
#[derive(Debug, thiserror::Error)]
enum HangUp {
    #[error("a fault drops this connection")]
    Fault,
    #[error("the request's body does not come in")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the answer cannot be written as HTTP")]
    Answer(#[source] hyper::http::Error),
}

const BODY_MAX: usize = 64 * 1024 * 1024;

async fn exchange(request: hyper::Request<Incoming>, shared: &Shared) -> Result<hyper::Response<Full<Bytes>>, HangUp> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_MAX).collect().await.map_err(HangUp::Body)?.to_bytes();
    let (method, path) = (head.method.as_str(), head.uri.path());
    if let Some(route) = path.strip_prefix("/_control/") {
        return encode(control::answer(shared, method, route, &body).await);
    }
    let pairs = |bytes: &[u8]| url::form_urlencoded::parse(bytes).into_owned().collect();
    let headers = head
        .headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
    let request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: pairs(head.uri.query().unwrap_or_default().as_bytes()),
        headers: headers.collect(),
        form: pairs(&body),
    };
    encode(shared.reply(&request).await.ok_or(HangUp::Fault)?)
}

fn encode(response: Response) -> Result<hyper::Response<Full<Bytes>>, HangUp> {
    let mut http = hyper::Response::builder().status(response.status);
    for (name, value) in response.headers {
        http = http.header(name, value);
    }
    http.body(Full::new(Bytes::from(response.body))).map_err(HangUp::Answer)
}
