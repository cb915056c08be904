//! Asking Stripe for one page of a list: on a slot of the shared budget, retried where that helps, and never believed when it
//! is no answer.

use std::sync::atomic::Ordering;

use super::observe::{ATTEMPTS, ObserveError, Observing, Sent, Stop, backoff, deadline_reached, slow_down, take_slot};
use crate::domain::Timestamp;
use crate::error_chain::chain;
use crate::gateway::{Gateway, GatewayError, ListPage, ListQuery, Remedy};

/// What asking for a page came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// The page.
    Page {
        /// The database's time before the request.
        observed_at: Timestamp,
        /// What is on it.
        page: ListPage,
    },
    /// Stripe does not know the page's cursor any more: the window has to be listed from its beginning.
    CursorGone,
    /// No page.
    Stopped(Stop),
}

/// A page, and what it cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListAnswer {
    /// What asking came to.
    pub listed: Listed,
    /// Requests sent.
    pub requests: u64,
    /// Answers that asked to slow down.
    pub throttled: u64,
}

/// Asks for one page. An `Err` means that the tick has to end: the key is refused, or the list leads nowhere.
pub async fn list<G: Gateway>(observing: &Observing<'_, G>, query: &ListQuery) -> Result<ListAnswer, ObserveError> {
    let sent = Sent::default();
    let listed = tokio::select! {
        biased;
        listed = ask(observing, query, &sent) => listed?,
        () = deadline_reached(observing) => Listed::Stopped(Stop::Deadline),
    };
    let (requests, throttled) = (sent.requests.load(Ordering::Relaxed), sent.throttled.load(Ordering::Relaxed));
    Ok(ListAnswer { listed, requests, throttled })
}

async fn ask<G: Gateway>(observing: &Observing<'_, G>, query: &ListQuery, sent: &Sent) -> Result<Listed, ObserveError> {
    let mut attempt = 1;
    loop {
        let Some(slot) = take_slot(observing).await? else { return Ok(Listed::Stopped(Stop::Deadline)) };
        sent.requests.fetch_add(1, Ordering::Relaxed);
        let error = match observing.gateway.list(query).await {
            Ok(page) => return Ok(Listed::Page { observed_at: slot.at, page }),
            Err(GatewayError::PageCursorInvalid { exchange }) => {
                tracing::warn!(%exchange, "the page cursor is no good any more");
                return Ok(Listed::CursorGone);
            }
            Err(source @ GatewayError::EndlessPage { .. }) => return Err(ObserveError::NoWayOn { source }),
            Err(error) => error,
        };
        match error.remedy() {
            Remedy::EndTick => return Err(ObserveError::Refused { asked: "a list".to_owned(), source: error }),
            Remedy::StopBatch { retry_after } => {
                slow_down(observing, sent, slot, retry_after, &error).await?;
                return Ok(Listed::Stopped(Stop::RateLimited));
            }
            Remedy::Retry if attempt < ATTEMPTS => {
                tracing::debug!(error = %chain(&error), attempt, "asking for the page again");
                observing.clock.sleep(backoff(attempt)).await;
                attempt += 1;
            }
            Remedy::Retry | Remedy::GiveUp => {
                tracing::warn!(error = %chain(&error), attempt, "the page was not answered");
                return Ok(Listed::Stopped(Stop::Outage));
            }
        }
    }
}
