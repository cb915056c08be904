//! Asking Stripe about a batch: several requests in flight, each on a slot of the shared budget, outside of any transaction.
//!
//! A call is **unanswered** when its request was sent, retried where that helps, and gave no confirmed answer. Whose fault
//! that was shows in what comes after it: if a later call is answered, it was the row's own, and the walk goes on without
//! it; if none is, it may be the beginning of an outage, and the walk does not pass the row (promise 10: an outage costs no
//! row its turn). Ten unanswered calls in a row, in order of completion, are the breaker: the batch stops there.
//!
//! A walk that has been held up at one place before may **pass over** such rows, if and only if a plain list call works at
//! that moment: then Stripe is there, and it is these rows that do not answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tokio_postgres::Client;

use crate::budget::{Budget, BudgetError, Slot};
use crate::clock::Clock;
use crate::domain::Timestamp;
use crate::domain::external::External;
use crate::domain::id::ExternalRef;
use crate::error_chain::chain;
use crate::gateway::{Gateway, GatewayError, ListQuery, Remedy};

/// Unanswered calls in a row that stop a batch.
pub const BREAKER: usize = 10;

/// Requests for one payment: the first, and at most two retries.
pub(super) const ATTEMPTS: u32 = 3;

/// The first pause before a retry; doubled for each further one, and jittered.
const BACKOFF: Duration = Duration::from_millis(200);

/// What a batch is observed with.
#[derive(Debug)]
pub struct Observing<'a, G> {
    /// Stripe.
    pub gateway: &'a G,
    /// The shared budget, and where it is kept.
    pub budget: &'a Budget,
    /// Where the budget is kept.
    pub db: &'a Client,
    /// The process's clock.
    pub clock: &'a Clock,
    /// Requests under way at once.
    pub concurrency: usize,
    /// No call is issued after this.
    pub deadline: Option<Timestamp>,
    /// The walk has been held up at this place before: pass over what does not answer, as long as Stripe is there.
    pub pass_over: bool,
}

/// What became of one wanted id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A confirmed fact.
    Confirmed {
        /// The database's time before the request.
        observed_at: Timestamp,
        /// The fact.
        external: External,
    },
    /// Unanswered, by the row's own fault: the walk goes on without it.
    PassedOver,
    /// Unanswered, perhaps by an outage: the walk does not pass it.
    HeldUp,
    /// Not asked, or not to the end.
    Unfinished,
}

/// Why a batch was not asked to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The deadline is near.
    Deadline,
    /// Stripe said 429.
    RateLimited,
    /// Nothing answers any more.
    Outage,
}

/// What asking came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// One element for each wanted id, in the same order.
    pub answers: Vec<Answer>,
    /// Why it is not complete, if it is not.
    pub stop: Option<Stop>,
    /// Requests sent.
    pub requests: u64,
    /// Answers that asked to slow down.
    pub throttled: u64,
}

/// Asking came to an end that ends the tick.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The key is wrong, has expired, or lacks a permission.
    #[error("Stripe refused the key when it was asked for {asked}")]
    Refused {
        /// What it was asked for.
        asked: String,
        /// What Stripe said.
        #[source]
        source: GatewayError,
    },
    /// A page said that there is more, and led nowhere.
    #[error("Stripe's list says has_more and leads nowhere: to go on would never end")]
    NoWayOn {
        /// What Stripe said.
        #[source]
        source: GatewayError,
    },
    /// The request budget is out of reach.
    #[error(transparent)]
    Budget(#[from] BudgetError),
}

/// How one call ended.
enum Call {
    Answered(Slot, External),
    Unanswered,
    RateLimited,
    Late,
}

/// What was sent so far.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) requests: AtomicU64,
    pub(super) throttled: AtomicU64,
}

/// Asks Stripe for every wanted id, in order, several at once. An `Err` means that nothing may be written.
pub async fn observe<G: Gateway>(
    observing: &Observing<'_, G>,
    wanted: &[ExternalRef],
) -> Result<Observed, ObserveError> {
    let sent = Sent::default();
    let mut answers = vec![Answer::Unfinished; wanted.len()];
    let mut unanswered: Vec<usize> = Vec::new(); // in a row, in order of completion
    let mut stop = None;

    let calls = wanted.iter().enumerate().map(|(index, id)| {
        let sent = &sent;
        async move { (index, call(observing, id, sent).await) }
    });
    let mut calls = std::pin::pin!(stream::iter(calls).buffer_unordered(observing.concurrency.max(1)));
    while stop.is_none() {
        let next = tokio::select! {
            biased;
            next = calls.next() => next,
            () = deadline_reached(observing) => {
                stop = Some(Stop::Deadline);
                break;
            }
        };
        let Some((index, ended)) = next else { break };
        let answer = match ended? {
            Call::Answered(slot, external) => {
                pass_over(&mut unanswered, &mut answers);
                Answer::Confirmed { observed_at: slot.at, external }
            }
            Call::Unanswered => {
                unanswered.push(index);
                Answer::HeldUp
            }
            Call::RateLimited => {
                stop = Some(Stop::RateLimited);
                Answer::Unfinished
            }
            Call::Late => {
                stop = Some(Stop::Deadline);
                Answer::Unfinished
            }
        };
        set(&mut answers, index, answer);
        if unanswered.len() >= BREAKER && stop.is_none() {
            stop = hold_up_or_pass_over(observing, &sent, &mut unanswered, &mut answers).await?;
        }
    }
    if !unanswered.is_empty() && stop.is_none() {
        stop = hold_up_or_pass_over(observing, &sent, &mut unanswered, &mut answers).await?;
    }
    Ok(Observed {
        answers,
        stop,
        requests: sent.requests.load(Ordering::Relaxed),
        throttled: sent.throttled.load(Ordering::Relaxed),
    })
}

/// Calls in a row were unanswered, and nothing says whose fault that is.
async fn hold_up_or_pass_over<G: Gateway>(
    observing: &Observing<'_, G>,
    sent: &Sent,
    unanswered: &mut Vec<usize>,
    answers: &mut [Answer],
) -> Result<Option<Stop>, ObserveError> {
    if observing.pass_over && stripe_is_there(observing, sent).await? {
        pass_over(unanswered, answers);
        return Ok(None);
    }
    tracing::warn!(
        unanswered = unanswered.len(),
        "Stripe does not answer: the walk stops here and the next tick goes on"
    );
    Ok(Some(Stop::Outage))
}

fn pass_over(unanswered: &mut Vec<usize>, answers: &mut [Answer]) {
    for index in unanswered.drain(..) {
        set(answers, index, Answer::PassedOver);
    }
}

fn set(answers: &mut [Answer], index: usize, answer: Answer) {
    if let Some(place) = answers.get_mut(index) {
        *place = answer;
    }
}

pub(super) async fn deadline_reached<G>(observing: &Observing<'_, G>) {
    match observing.deadline {
        Some(deadline) => observing.clock.reach(deadline).await,
        None => std::future::pending().await,
    }
}

/// One payment's call, with its retries.
async fn call<G: Gateway>(observing: &Observing<'_, G>, id: &ExternalRef, sent: &Sent) -> Result<Call, ObserveError> {
    let mut attempt = 1;
    loop {
        let Some(slot) = take_slot(observing).await? else { return Ok(Call::Late) };
        sent.requests.fetch_add(1, Ordering::Relaxed);
        let error = match observing.gateway.retrieve(id).await {
            Ok(external) => return Ok(Call::Answered(slot, external)),
            Err(error) => error,
        };
        match error.remedy() {
            Remedy::EndTick => return Err(ObserveError::Refused { asked: id.to_string(), source: error }),
            Remedy::StopBatch { retry_after } => {
                slow_down(observing, sent, slot, retry_after, &error).await?;
                return Ok(Call::RateLimited);
            }
            Remedy::Retry if attempt < ATTEMPTS => {
                tracing::debug!(%id, error = %chain(&error), attempt, "asking again");
                observing.clock.sleep(backoff(attempt)).await;
                attempt += 1;
            }
            Remedy::Retry | Remedy::GiveUp => {
                tracing::info!(%id, error = %chain(&error), attempt, "no confirmed answer");
                return Ok(Call::Unanswered);
            }
        }
    }
}

/// Stripe asked to slow down: everybody does.
pub(super) async fn slow_down<G>(
    observing: &Observing<'_, G>,
    sent: &Sent,
    slot: Slot,
    retry_after: Option<Duration>,
    error: &GatewayError,
) -> Result<(), BudgetError> {
    sent.throttled.fetch_add(1, Ordering::Relaxed);
    tracing::warn!(%error, "Stripe asked to slow down");
    observing.budget.throttle(observing.db, slot, retry_after).await
}

pub(super) async fn take_slot<G>(observing: &Observing<'_, G>) -> Result<Option<Slot>, BudgetError> {
    let longest_wait = match observing.deadline {
        None => Duration::from_secs(3600),
        Some(deadline) => match Duration::try_from(deadline - observing.clock.now()) {
            Ok(left) if !left.is_zero() => left,
            Ok(_) | Err(_) => return Ok(None),
        },
    };
    observing.budget.take(observing.db, longest_wait).await
}

/// Doubled with each attempt, and between half and one and a half of that, so that processes do not retry in step.
pub(super) fn backoff(attempt: u32) -> Duration {
    BACKOFF * 2_u32.saturating_pow(attempt - 1) * fastrand::u32(500..1500) / 1000
}

/// Whether Stripe answers a plain list at all.
async fn stripe_is_there<G: Gateway>(observing: &Observing<'_, G>, sent: &Sent) -> Result<bool, ObserveError> {
    let Some(slot) = take_slot(observing).await? else { return Ok(false) };
    sent.requests.fetch_add(1, Ordering::Relaxed);
    let query = ListQuery { created_from: None, created_before: None, limit: 1, starting_after: None };
    match observing.gateway.list(&query).await {
        Ok(_) => Ok(true),
        Err(error) => match error.remedy() {
            Remedy::EndTick => Err(ObserveError::Refused { asked: "a list".to_owned(), source: error }),
            Remedy::StopBatch { retry_after } => {
                slow_down(observing, sent, slot, retry_after, &error).await?;
                Ok(false)
            }
            Remedy::Retry | Remedy::GiveUp => Ok(false),
        },
    }
}
