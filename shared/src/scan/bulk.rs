//! Asking Stripe about a batch by list calls wherever these cost less than retrieves, with the same answers.
//!
//! plan ([`crate::domain::plan`]) → list the windows → retrieve what they left over, one by one, by [`observe`]. What the
//! pages and the retrieves show is learned ([`crate::domain::learned`]) and makes the next plan better. Where the lists leave
//! much over, a few of these payments are retrieved first: they show where the others are, and what is left is planned anew.
//!
//! **What a list may prove.** A page that shows a payment is an answer about it, as of the slot of its request. It is not
//! enough for a drift that nobody has reported yet: such a payment is retrieved as well, and the retrieve decides, also by
//! not answering. A list never proves absence. So a batch that is observed in bulk comes to what it comes to one by one.
//!
//! **What it may cost.** At most a tenth more than one by one, and a page: the lists of a batch are given up when they have
//! cost that much more than they answered.

use std::sync::atomic::Ordering;

use super::listing::{Found, Listed, list_windows};
use super::observe::{Answer, BREAKER, ObserveError, Observed, Observing, Sent, Stop, observe};
use crate::domain::Timestamp;
use crate::domain::external::External;
use crate::domain::id::ExternalRef;
use crate::domain::learned::{Learned, Lesson};
use crate::domain::plan::{Span, plan};
use crate::gateway::Gateway;

/// A batch that is smaller is not worth a page as long as nothing is known of the account.
const WORTH_A_TRY: usize = 10;

/// Plans of one part, at most.
const ROUNDS: usize = 3;

/// With so many left over by the lists it is worth to plan anew.
const WORTH_A_SAMPLE: usize = 30;

/// Payments that are retrieved to see where the others are. All of them without an answer are an outage.
const SAMPLE: usize = BREAKER;

/// Before this nobody had a PaymentIntent: 2010 in unix seconds. A date before it is wrong, and is not looked for.
const EARLIEST: i64 = 1_262_304_000;

/// And nobody has one from after tomorrow.
const AHEAD_MAX: i64 = 86_400;

/// A payment to ask for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The PaymentIntent.
    pub id: &'a ExternalRef,
    /// When the application made its row.
    pub row_created: Timestamp,
    /// When Stripe created the PaymentIntent, where an earlier answer said so.
    pub created: Option<Timestamp>,
}

/// Asks Stripe for every wanted payment, which are in key order, and goes on with what it has `learned` of the account.
/// `needs_proof` says of a payment, by its place, whether an answer that came by a list has to be confirmed by a retrieve.
/// An `Err` means that nothing may be written.
pub async fn observe_in_bulk<G: Gateway>(
    observing: &Observing<'_, G>,
    learned: &mut Learned,
    now: Timestamp,
    wanted: &[Wanted<'_>],
    needs_proof: impl Fn(usize, &External) -> bool,
) -> Result<Observed, ObserveError> {
    let sent = Sent::default();
    let mut asking = Asking { sent: &sent, found: Found::new(wanted.iter().map(|wanted| wanted.id)), wanted };
    let mut listed = Listed::default();
    if wanted.len() >= WORTH_A_TRY || learned.foreign.is_some() {
        listed = asking.list(observing, *learned, now).await?;
    }
    let unproved = |(index, answer): (usize, &Option<Answer>)| match answer {
        Some(Answer::Confirmed { external, .. }) => needs_proof(index, external).then_some(index),
        Some(Answer::PassedOver | Answer::HeldUp | Answer::Unfinished) => None,
        None => Some(index),
    };
    let left: Vec<usize> = asking.found.answers.iter().enumerate().filter_map(unproved).collect();
    for index in &left {
        asking.answer(*index, None);
    }
    let mut stop = listed.stop;
    if stop.is_none() {
        stop = asking.retrieve(observing, &left).await?;
    }

    let offsets = asking.offsets();
    let whole = asking.found.missing().is_empty();
    if !wanted.is_empty() {
        *learned = learned.after(&Lesson { offsets: &offsets, each_for: 1, whole, measured: listed.measured });
    }
    let answers = asking.found.answers.into_iter().map(|answer| answer.unwrap_or(Answer::Unfinished)).collect();
    let (requests, throttled) = (sent.requests.load(Ordering::Relaxed), sent.throttled.load(Ordering::Relaxed));
    Ok(Observed { answers, stop, requests, throttled })
}

/// A part that is being asked.
struct Asking<'a> {
    wanted: &'a [Wanted<'a>],
    found: Found<'a>,
    sent: &'a Sent,
}

impl Asking<'_> {
    /// Plans and lists, and again where samples show that the first plan looked in the wrong place.
    async fn list<G: Gateway>(
        &mut self,
        observing: &Observing<'_, G>,
        learned: Learned,
        now: Timestamp,
    ) -> Result<Listed, ObserveError> {
        let mut learned = learned;
        let mut all = Listed::default();
        for round in 1..=ROUNDS {
            let spans = self.spans(&learned, now, &all.covered);
            let planned = plan(&spans, learned.density(), observing.concurrency);
            if planned.windows.is_empty() {
                break;
            }
            let loss_max = 1 + u64::try_from(self.wanted.len() / 10).unwrap_or(u64::MAX);
            let listed =
                list_windows(observing, self.sent, &planned, learned.density(), loss_max, &mut self.found).await?;
            all.stop = listed.stop;
            all.measured.objects += listed.measured.objects;
            all.measured.foreign += listed.measured.foreign;
            all.measured.seconds += listed.measured.seconds;
            all.covered.extend(listed.covered);
            let left = self.found.missing();
            if all.stop.is_some() || listed.gave_up || left.len() < WORTH_A_SAMPLE || round == ROUNDS {
                break;
            }
            let sample: Vec<usize> =
                (0..SAMPLE).filter_map(|nth| left.get(left.len() * nth / SAMPLE).copied()).collect();
            all.stop = self.sample(observing, &sample).await?;
            if all.stop.is_some() {
                break;
            }
            let offsets: Vec<i64> = sample.iter().filter_map(|index| self.offset(*index)).collect();
            let each_for = u64::try_from(left.len() / SAMPLE).unwrap_or(u64::MAX);
            learned = learned.after(&Lesson { offsets: &offsets, each_for, whole: false, measured: all.measured });
        }
        Ok(all)
    }

    /// When each PaymentIntent without an answer may have been created, but for where was looked already.
    fn spans(&self, learned: &Learned, now: Timestamp, covered: &[Span]) -> Vec<Option<Span>> {
        let possible = Span { from: EARLIEST, before: now.unix_timestamp().saturating_add(AHEAD_MAX) };
        let of = |(wanted, answer): (&Wanted<'_>, &Option<Answer>)| {
            let span = match wanted.created.map(Timestamp::unix_timestamp) {
                Some(created) => Span { from: created, before: created.saturating_add(1) },
                None => learned.span(wanted.row_created.unix_timestamp()),
            };
            (answer.is_none() && possible.from <= span.from && span.before <= possible.before)
                .then(|| span.without(covered))
                .flatten()
        };
        self.wanted.iter().zip(&self.found.answers).map(of).collect()
    }

    /// Retrieves a few. What is not answered among them is asked again with the rest, but in an outage.
    async fn sample<G: Gateway>(
        &mut self,
        observing: &Observing<'_, G>,
        places: &[usize],
    ) -> Result<Option<Stop>, ObserveError> {
        let stop = self.retrieve(observing, places).await?;
        let held_up = |place: &&usize| matches!(self.found.answers.get(**place), Some(Some(Answer::HeldUp)));
        let held_up: Vec<usize> = places.iter().filter(held_up).copied().collect();
        if stop == Some(Stop::Outage) && held_up.len() < BREAKER {
            held_up.into_iter().for_each(|place| self.answer(place, None));
            return Ok(None);
        }
        Ok(stop)
    }

    /// Retrieves these, one by one.
    async fn retrieve<G: Gateway>(
        &mut self,
        observing: &Observing<'_, G>,
        places: &[usize],
    ) -> Result<Option<Stop>, ObserveError> {
        let ids: Vec<ExternalRef> =
            places.iter().filter_map(|place| self.wanted.get(*place)).map(|wanted| wanted.id.clone()).collect();
        let observed = observe(observing, &ids).await?;
        self.sent.requests.fetch_add(observed.requests, Ordering::Relaxed);
        self.sent.throttled.fetch_add(observed.throttled, Ordering::Relaxed);
        for (place, answer) in places.iter().zip(observed.answers) {
            self.answer(*place, Some(answer).filter(|answer| *answer != Answer::Unfinished));
        }
        Ok(observed.stop)
    }

    fn answer(&mut self, place: usize, answer: Option<Answer>) {
        if let Some(known) = self.found.answers.get_mut(place) {
            *known = answer;
        }
    }

    /// Seconds from the row's creation to the PaymentIntent's.
    fn offset(&self, place: usize) -> Option<i64> {
        let (wanted, Some(answer)) = (self.wanted.get(place)?, self.found.answers.get(place)?) else { return None };
        match answer {
            Answer::Confirmed { external: External::Present(present), .. } => {
                Some(present.created.unix_timestamp().saturating_sub(wanted.row_created.unix_timestamp()))
            }
            Answer::Confirmed { external: External::NotFound { .. }, .. }
            | Answer::PassedOver
            | Answer::HeldUp
            | Answer::Unfinished => None,
        }
    }

    fn offsets(&self) -> Vec<i64> {
        (0..self.wanted.len()).filter_map(|place| self.offset(place)).collect()
    }
}
