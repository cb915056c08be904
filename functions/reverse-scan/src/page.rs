//! One page: listed, its drifts retrieved, sorted (`sort.rs`), committed.
//!
//! The walk passes the page up to the first object that is not finished. So a deadline or a 429 in the middle of a page skips
//! nothing, and a page full of drifts is worked off over several ticks.

use std::collections::{HashMap, HashSet};

use reconciler::domain::external::{External, ExternalPayment};
use reconciler::domain::id::ExternalRef;
use reconciler::domain::verdict::Verdict;
use reconciler::gateway::{Gateway, ListPage, ListQuery, PAGE_MAX};
use reconciler::scan::RunError;
use reconciler::scan::list::{Listed, list};
use reconciler::scan::observe::{Answer, observe};
use reconciler::scan::steps::Step;
use reconciler::store::reverse::{KnownPayment, UnderWay, load_known};
use reconciler::telemetry::Outcome;

use crate::JOB;
use crate::sort::{Looked, judgement_of, sort};
use crate::tick::{Tick, outcome_of};
use crate::window::{Met, Way, from_the_first_page, turn};

/// How a page ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageEnd {
    /// There is another one.
    Next,
    /// It was the last one.
    Complete,
    /// The tick ends here.
    End(Outcome),
}

/// Reads the next page of the window that is under way.
pub(crate) async fn read<G: Gateway>(tick: &mut Tick<'_, '_, G>) -> Result<PageEnd, RunError> {
    let Some(under_way) = tick.window.under_way.clone() else { return Ok(PageEnd::Complete) };
    let observing = tick.deps.observing(true);
    let answer = list(&observing, &query_of(&under_way)).await?;
    tick.report.requests += answer.requests;
    tick.report.throttled += answer.throttled;
    let (observed_at, page) = match answer.listed {
        Listed::Page { observed_at, page } => (observed_at, page),
        Listed::CursorGone => return restart(tick, under_way).await,
        Listed::Stopped(stop) => return Ok(PageEnd::End(outcome_of(stop))),
    };
    check_mode(tick, &page.payments)?;

    let mut ids: Vec<&str> = page.payments.iter().map(|object| object.id.as_str()).collect();
    ids.extend(page.unreadable.iter().filter_map(|object| object.id.as_ref()).map(ExternalRef::as_str));
    let known = load_known(tick.deps.db, JOB, &ids).await?;
    tick.deps.steps.reach(Step::Loaded).await;
    let known = by_reference(&ids, known);

    let wanted = to_be_retrieved(tick, &page, &known);
    let observed = observe(&observing, &wanted.iter().map(|id| (*id).clone()).collect::<Vec<_>>()).await?;
    tick.report.requests += observed.requests;
    tick.report.throttled += observed.throttled;
    tick.deps.steps.reach(Step::Observed).await;

    let answers: HashMap<&ExternalRef, Answer> = wanted.into_iter().zip(observed.answers).collect();
    let retrieved = answers.values().filter_map(|answer| match answer {
        Answer::Confirmed { external: External::Present(object), .. } => Some(object),
        Answer::Confirmed { external: External::NotFound { .. }, .. }
        | Answer::PassedOver
        | Answer::HeldUp
        | Answer::Unfinished => None,
    });
    check_mode(tick, retrieved)?;
    let sorted = sort(tick, &page, Looked { observed_at, known, answers });

    let way = match (sorted.unfinished, &page.next) {
        (true, _) => Way::Cut(sorted.passed),
        (false, Some(next)) => Way::Next(next.clone()),
        (false, None) => Way::Complete,
    };
    let end = match &way {
        Way::Cut(_) => PageEnd::End(observed.stop.map_or(Outcome::Partial, outcome_of)),
        Way::Next(_) => PageEnd::Next,
        Way::Complete => PageEnd::Complete,
    };
    let next = turn(&tick.window, &sorted.met, way, tick.now);
    if !tick.commit(next, &sorted.judged, &sorted.strangers).await? {
        return Ok(PageEnd::End(Outcome::AbortedConcurrentRun));
    }
    count(tick, &sorted.met, sorted.foreign, sorted.unverifiable, !sorted.unfinished);
    // a page that was stopped in the middle ends the tick, also where all that was wanted of it had come by then
    Ok(match observed.stop {
        Some(stop) if end == PageEnd::Next => PageEnd::End(outcome_of(stop)),
        Some(_) | None => end,
    })
}

fn query_of(under_way: &UnderWay) -> ListQuery {
    ListQuery {
        created_from: Some(under_way.from),
        created_before: Some(under_way.to),
        limit: PAGE_MAX,
        starting_after: under_way.page_after.clone(),
    }
}

async fn restart<G: Gateway>(tick: &mut Tick<'_, '_, G>, mut under_way: UnderWay) -> Result<PageEnd, RunError> {
    from_the_first_page(&mut under_way);
    let mut next = tick.window.clone();
    next.under_way = Some(under_way);
    if !tick.commit(next, &[], &[]).await? {
        return Ok(PageEnd::End(Outcome::AbortedConcurrentRun));
    }
    tick.figures.restarts += 1;
    Ok(PageEnd::Next)
}

fn check_mode<'a, G>(
    tick: &Tick<'_, '_, G>,
    objects: impl IntoIterator<Item = &'a ExternalPayment>,
) -> Result<(), RunError> {
    let Some(expected) = tick.deps.settings.reverse.livemode else { return Ok(()) };
    match objects.into_iter().find(|object| object.livemode != expected) {
        Some(other) => Err(RunError::OtherMode { id: other.id.clone(), expected }),
        None => Ok(()),
    }
}

fn by_reference<'a>(ids: &[&'a str], payments: Vec<KnownPayment>) -> HashMap<&'a str, Vec<KnownPayment>> {
    let ids: HashSet<&'a str> = ids.iter().copied().collect();
    let mut known: HashMap<&'a str, Vec<KnownPayment>> = HashMap::new();
    for payment in payments {
        if let Some(id) = payment.payment.reference.as_str().and_then(|reference| ids.get(reference)) {
            known.entry(id).or_default().push(payment);
        }
    }
    known
}

/// What could not be read, and whatever would open a finding by what the page says.
fn to_be_retrieved<'a, G>(
    tick: &Tick<'_, '_, G>,
    page: &'a ListPage,
    known: &HashMap<&str, Vec<KnownPayment>>,
) -> Vec<&'a ExternalRef> {
    let mut wanted: Vec<&ExternalRef> = page.unreadable.iter().filter_map(|object| object.id.as_ref()).collect();
    let opens_one = |object: &ExternalPayment| {
        let external = External::Present(object.clone());
        known.get(object.id.as_str()).is_some_and(|payments| {
            payments.iter().any(|known| {
                judgement_of(tick, &known.payment, &external)
                    .and_then(|judgement| judgement.kind())
                    .is_some_and(|kind| !known.is_settled(&kind.to_string(), object.status.as_str()))
            })
        })
    };
    wanted.extend(page.payments.iter().filter(|object| opens_one(object)).map(|object| &object.id));
    let mut seen = HashSet::new();
    wanted.retain(|id| seen.insert(*id));
    wanted
}

fn count<G>(tick: &mut Tick<'_, '_, G>, met: &Met, foreign: u64, unverifiable: u64, whole: bool) {
    let number = |count: i64| u64::try_from(count).unwrap_or_default();
    tick.figures.pages += u64::from(whole);
    tick.figures.objects += number(met.objects);
    tick.figures.known += number(met.known);
    tick.figures.unread += number(met.unread);
    tick.figures.foreign += foreign;
    (0..unverifiable).for_each(|_| tick.report.count(Verdict::Unverifiable));
}
