//! Listing the windows of a plan: several at once, each page on a slot of the shared budget.
//!
//! A slot goes to the oldest window that waits for one, so that where the budget is what limits, the windows are listed one
//! after the other and the batch is finished from its first payment on.
//!
//! A window **ends** when
//! - all payments that may be in it are answered; or
//! - Stripe said `has_more: false`; or
//! - the pages still expected are more than the payments still wanted in it: the payments wanted and the foreign objects
//!   expected, by the density of its own pages once it has three, and by what was learned before. Never because a page had
//!   no hits: the newest pages of a range that is wide have none; or
//! - a page leads nowhere (empty with `has_more`, or back to itself), or gets no answer. A page cursor that is no good any
//!   more begins the window anew, once, from where it had come to.
//!
//! Nothing is concluded from what a window did not show.

mod pages;

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{Fuse, FusedFuture};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use pages::{Pages, State};

use super::observe::{
    ATTEMPTS, Answer, ObserveError, Observing, Sent, Stop, backoff, deadline_reached, slow_down, take_slot,
};
use crate::budget::Slot;
use crate::domain::Timestamp;
use crate::domain::external::{External, ExternalPayment};
use crate::domain::id::ExternalRef;
use crate::domain::learned::Measured;
use crate::domain::plan::{Density, Plan, Span};
use crate::error_chain::chain;
use crate::gateway::{Gateway, GatewayError, ListPage, ListQuery, PAGE_MAX, Remedy};

/// Pages in a row without an answer after which no other is asked for: the retrieves decide whether it is an outage.
const UNANSWERED_MAX: u32 = 3;

/// Payments that are wanted, and what pages have said about them.
#[derive(Debug)]
pub(super) struct Found<'a> {
    places: HashMap<&'a ExternalRef, Vec<usize>>,
    /// One element for each wanted payment.
    pub(super) answers: Vec<Option<Answer>>,
}

impl<'a> Found<'a> {
    /// Nothing found yet.
    pub(super) fn new(wanted: impl Iterator<Item = &'a ExternalRef>) -> Self {
        let mut found = Self { places: HashMap::new(), answers: Vec::new() };
        for (index, id) in wanted.enumerate() {
            // two rows may name the same PaymentIntent
            found.places.entry(id).or_default().push(index);
            found.answers.push(None);
        }
        found
    }

    /// Those without an answer, in order.
    pub(super) fn missing(&self) -> Vec<usize> {
        self.answers.iter().enumerate().filter(|(_, answer)| answer.is_none()).map(|(index, _)| index).collect()
    }
}

/// What listing came to.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Why nothing more may be asked in this batch, if that is so.
    pub(super) stop: Option<Stop>,
    /// Pages do not answer, or do not pay: no more of them in this batch.
    pub(super) gave_up: bool,
    /// What the pages held.
    pub(super) measured: Measured,
    /// The stretches of time that they covered.
    pub(super) covered: Vec<Span>,
}

/// Lists the windows of `plan`, and puts what it finds into `found`. `foreign` is the density that the plan was made with;
/// `loss_max` is how many more pages may be listed than payments were answered by them.
pub(super) async fn list_windows<G: Gateway>(
    observing: &Observing<'_, G>,
    sent: &Sent,
    plan: &Plan,
    foreign: Density,
    loss_max: u64,
    found: &mut Found<'_>,
) -> Result<Listed, ObserveError> {
    let mut listing = Listing::new(plan, foreign, loss_max, observing.gateway.livemode());
    let mut calls = FuturesUnordered::new();
    let mut slot = pin!(Fuse::terminated());
    let mut stop = None;
    while stop.is_none() {
        let waiting = calls.len() < observing.concurrency.max(1) && listing.oldest_waiting().is_some();
        if waiting && slot.is_terminated() {
            slot.set(take_slot(observing).fuse());
        }
        if calls.is_empty() && slot.is_terminated() {
            break;
        }
        tokio::select! {
            biased;
            Some(done) = calls.next(), if !calls.is_empty() => {
                stop = listing.take_in(observing, sent, found, done).await?;
            }
            taken = &mut slot, if !slot.is_terminated() => match taken? {
                None => stop = Some(Stop::Deadline),
                // it may be that nobody waits any more
                Some(slot) => if let Some((index, query)) = listing.begin_page() {
                    sent.requests.fetch_add(1, Ordering::Relaxed);
                    calls.push(call(observing, index, Errand::Page(query, slot)));
                },
            },
            () = deadline_reached(observing) => stop = Some(Stop::Deadline),
        }
        for (index, pause) in listing.pauses.drain(..) {
            calls.push(call(observing, index, Errand::Rest(pause)));
        }
    }
    Ok(listing.end(stop))
}

enum Errand {
    Page(ListQuery, Slot),
    Rest(Duration),
}

enum Done {
    Page(usize, Slot, Result<ListPage, GatewayError>),
    Rested(usize),
}

async fn call<G: Gateway>(observing: &Observing<'_, G>, index: usize, errand: Errand) -> Done {
    match errand {
        Errand::Page(query, slot) => Done::Page(index, slot, observing.gateway.list(&query).await),
        Errand::Rest(pause) => {
            observing.clock.sleep(pause).await;
            Done::Rested(index)
        }
    }
}

struct Listing<'p> {
    plan: &'p Plan,
    foreign: Density,
    loss_max: u64,
    livemode: Option<bool>,
    windows: Vec<Pages>,
    /// By payment: no page can answer it.
    set_aside: HashSet<usize>,
    pauses: Vec<(usize, Duration)>,
    unanswered_in_a_row: u32,
    pages: u64,
    answered: u64,
    gave_up: bool,
}

impl<'p> Listing<'p> {
    fn new(plan: &'p Plan, foreign: Density, loss_max: u64, livemode: Option<bool>) -> Self {
        Self {
            plan,
            foreign,
            loss_max,
            livemode,
            windows: plan.windows.iter().map(|window| Pages::new(window.span, window.wanted)).collect(),
            set_aside: HashSet::new(),
            pauses: Vec::new(),
            unanswered_in_a_row: 0,
            pages: 0,
            answered: 0,
            gave_up: false,
        }
    }

    /// The oldest window that waits for a page and has something to look for.
    fn oldest_waiting(&self) -> Option<usize> {
        let waits = |pages: &Pages| pages.state == State::Waiting && pages.wanted > 0;
        if self.gave_up { None } else { self.windows.iter().position(waits) }
    }

    fn begin_page(&mut self) -> Option<(usize, ListQuery)> {
        let index = self.oldest_waiting()?;
        let pages = self.windows.get_mut(index)?;
        pages.state = State::Busy;
        Some((
            index,
            ListQuery {
                created_from: moment(pages.span.from),
                created_before: moment(pages.list_before),
                limit: PAGE_MAX,
                starting_after: pages.after.clone(),
            },
        ))
    }

    async fn take_in<G: Gateway>(
        &mut self,
        observing: &Observing<'_, G>,
        sent: &Sent,
        found: &mut Found<'_>,
        done: Done,
    ) -> Result<Option<Stop>, ObserveError> {
        match done {
            Done::Rested(index) => self.set(index, State::Waiting),
            Done::Page(index, slot, Ok(page)) => {
                self.unanswered_in_a_row = 0;
                self.take_page(index, slot, page, found);
            }
            Done::Page(index, slot, Err(error)) => match error.remedy() {
                Remedy::EndTick => return Err(ObserveError::Refused { asked: "a list".to_owned(), source: error }),
                Remedy::StopBatch { retry_after } => {
                    slow_down(observing, sent, slot, retry_after, &error).await?;
                    return Ok(Some(Stop::RateLimited));
                }
                Remedy::Retry | Remedy::GiveUp => self.take_error(index, &error),
            },
        }
        Ok(None)
    }

    fn set(&mut self, index: usize, state: State) {
        if let Some(pages) = self.windows.get_mut(index) {
            pages.state = state;
        }
    }

    fn take_error(&mut self, index: usize, error: &GatewayError) {
        let Some(pages) = self.windows.get_mut(index) else { return };
        let invalid = matches!(error, GatewayError::PageCursorInvalid { .. });
        if invalid && !pages.begun_anew {
            // the objects of the second that it had come to are listed again
            pages.begun_anew = true;
            pages.after = None;
            pages.list_before = pages.reached.saturating_add(1).min(pages.span.before);
            pages.state = State::Waiting;
        } else if error.remedy() == Remedy::Retry && pages.attempt < ATTEMPTS {
            self.pauses.push((index, backoff(pages.attempt)));
            pages.attempt += 1;
        } else {
            tracing::info!(error = %chain(error), "a page was not answered: its payments are retrieved one by one");
            pages.state = State::Ended;
            self.unanswered_in_a_row += 1;
            self.gave_up |= self.unanswered_in_a_row >= UNANSWERED_MAX;
        }
    }

    fn take_page(&mut self, index: usize, slot: Slot, page: ListPage, found: &mut Found<'_>) {
        let has_more = page.has_more();
        let nothing = page.payments.is_empty() && page.unreadable.is_empty();
        let (mut objects, mut foreign) = (0_u64, 0_u64);
        let mut oldest = i64::MAX;
        for payment in page.payments {
            objects += 1;
            oldest = oldest.min(payment.created.unix_timestamp());
            if !self.take_object(slot, payment, found) {
                foreign += 1;
            }
        }
        for id in page.unreadable.iter().filter_map(|object| object.id.as_ref()) {
            objects += 1;
            found.places.get(id).into_iter().flatten().for_each(|place| self.set_aside(*place, found));
        }
        self.pages += 1;
        self.gave_up |= self.pages > self.answered.saturating_add(self.loss_max);
        let Some(pages) = self.windows.get_mut(index) else { return };
        pages.pages += 1;
        pages.objects += objects;
        pages.foreign += foreign;
        pages.reached = pages.reached.min(oldest).max(pages.span.from);
        pages.attempt = 1;
        let leads_on = page.next.filter(|next| !nothing && pages.cursors.insert(next.clone()));
        pages.complete = !has_more;
        pages.state = match leads_on {
            Some(next) if pages.wanted > 0 && pages.expected(self.foreign) <= pages.wanted => {
                pages.after = Some(next);
                State::Waiting
            }
            Some(_) | None => State::Ended,
        };
    }

    /// Whether it was one of ours.
    fn take_object(&mut self, slot: Slot, mut payment: ExternalPayment, found: &mut Found<'_>) -> bool {
        let Some(places) = found.places.get(&payment.id) else { return false };
        payment.metadata.clear(); // no verdict of a walk looks at it, and a large batch would hold half a kilobyte of it each
        let other_mode = self.livemode.is_some_and(|livemode| livemode != payment.livemode);
        let answer = Answer::Confirmed { observed_at: slot.at, external: External::Present(payment) };
        for place in places.clone() {
            if other_mode {
                self.set_aside(place, found);
                continue;
            }
            let Some(known) = found.answers.get_mut(place) else { continue };
            match known {
                // on two pages: what was asked for later
                Some(Answer::Confirmed { observed_at, .. }) if *observed_at > slot.at => {}
                Some(_) => *known = Some(answer.clone()),
                None => {
                    *known = Some(answer.clone());
                    self.answered += 1;
                    if !self.set_aside.contains(&place) {
                        self.wanted_no_more(place);
                    }
                }
            }
        }
        true
    }

    /// A page shows that no page can answer it: it is retrieved.
    fn set_aside(&mut self, place: usize, found: &Found<'_>) {
        if found.answers.get(place).is_some_and(Option::is_none) && self.set_aside.insert(place) {
            self.wanted_no_more(place);
        }
    }

    fn wanted_no_more(&mut self, place: usize) {
        if let Some(Some((first, last))) = self.plan.places.get(place) {
            for pages in self.windows.iter_mut().take(last + 1).skip(*first) {
                pages.wanted = pages.wanted.saturating_sub(1);
            }
        }
    }

    fn end(self, stop: Option<Stop>) -> Listed {
        let mut listed = Listed { stop, gave_up: self.gave_up, ..Listed::default() };
        for pages in self.windows.iter().filter(|pages| pages.pages > 0) {
            let covered = pages.covered();
            listed.measured.objects += pages.objects;
            listed.measured.foreign += pages.foreign;
            listed.measured.seconds += covered.seconds().max(1);
            listed.covered.push(covered);
        }
        listed
    }
}

fn moment(unix_seconds: i64) -> Option<Timestamp> {
    Timestamp::from_unix_timestamp(unix_seconds).ok()
}
