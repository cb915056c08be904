//! One page: what a payment names is judged like everywhere, what none names becomes a candidate for an orphan.
//!
//! An object is **finished** if and only if
//! - a payment names it, and the page agrees with what is known, or a retrieve has confirmed the drift, or the object itself
//!   gives no answer while Stripe does (then the payment is unverifiable, and stays in the lag); or
//! - no payment names it, and it is a candidate, or not ours, or canceled: nothing was taken and nothing will be.
//!
//! The walk passes the page up to the first object that is not. So a deadline or a 429 in the middle of a page skips nothing,
//! and a page full of drifts is worked off over several ticks. An object that cannot be read has no place in that order: the
//! page is not cut while one of them is unfinished.

use std::collections::{HashMap, HashSet};

use reconciler::domain::Timestamp;
use reconciler::domain::classify::{BeforeAsking, before_asking, classify};
use reconciler::domain::external::{External, ExternalPayment, ExternalStatus};
use reconciler::domain::id::ExternalRef;
use reconciler::domain::orphan::second_look;
use reconciler::domain::payment::Payment;
use reconciler::domain::verdict::{Judgement, Verdict};
use reconciler::gateway::{Gateway, ListPage, ListQuery, PAGE_MAX};
use reconciler::scan::RunError;
use reconciler::scan::evidence::evidence_of;
use reconciler::scan::list::{Listed, list};
use reconciler::scan::observe::{Answer, observe};
use reconciler::scan::steps::Step;
use reconciler::store::commit::{JudgedOutcome, JudgedPayment};
use reconciler::store::reverse::{How, KnownPayment, Stranger, UnderWay, load_known};
use reconciler::telemetry::Outcome;

use crate::JOB;
use crate::filter::{is_ours, match_key_of};
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

/// What a page comes to.
#[derive(Default)]
struct Sorted {
    judged: Vec<JudgedPayment>,
    strangers: Vec<Stranger>,
    met: Met,
    foreign: u64,
    /// Unreadable objects that are nobody's payment, as far as is known.
    unverifiable: u64,
    /// The last object up to which all are finished.
    passed: Option<ExternalRef>,
    unfinished: bool,
}

/// The page's objects, the payments that name them, and what was retrieved.
struct Looked<'a> {
    observed_at: Timestamp,
    known: HashMap<&'a str, Vec<KnownPayment>>,
    answers: HashMap<&'a ExternalRef, Answer>,
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

/// `None`: the payment is too fresh to be judged.
fn judgement_of<G>(tick: &Tick<'_, '_, G>, payment: &Payment, external: &External) -> Option<Judgement> {
    let policy = &tick.deps.settings.policy;
    match before_asking(payment, policy, tick.now) {
        BeforeAsking::TooFresh => None,
        BeforeAsking::Settled(judgement) => Some(judgement),
        BeforeAsking::Ask(_) => Some(classify(payment, external, policy, tick.now)),
    }
}

fn judge<G>(tick: &Tick<'_, '_, G>, payment: Payment, observed_at: Timestamp, external: &External) -> JudgedPayment {
    let outcome = match judgement_of(tick, &payment, external) {
        None => JudgedOutcome::NotAsked,
        Some(judgement) => {
            let evidence = match judgement.kind() {
                Some(_) => evidence_of(&payment, Some(external)),
                None => serde_json::Value::Null,
            };
            JudgedOutcome::Confirmed { observed_at, external: Some(external.clone()), judgement, evidence }
        }
    };
    JudgedPayment { payment, outcome }
}

fn unanswered(known: Vec<KnownPayment>) -> impl Iterator<Item = JudgedPayment> {
    known.into_iter().map(|known| JudgedPayment { payment: known.payment, outcome: JudgedOutcome::Unanswered })
}

/// Sorts a page's objects in their order.
fn sort<G>(tick: &Tick<'_, '_, G>, page: &ListPage, mut looked: Looked<'_>) -> Sorted {
    let mut sorted = Sorted::default();
    for object in &page.unreadable {
        unreadable(tick, &mut sorted, object.id.as_ref(), &mut looked);
    }
    let mut passing = !sorted.unfinished;
    let mut seen = HashSet::new();
    for object in page.payments.iter().filter(|object| seen.insert(&object.id)) {
        let known = looked.known.remove(object.id.as_str());
        let finished = match (known, looked.answers.remove(&object.id)) {
            (Some(known), Some(answer)) => {
                if passing {
                    count_known(tick, &mut sorted.met, object, &known);
                }
                judge_retrieved(tick, &mut sorted, known, answer)
            }
            // what costs nothing is left for the tick that comes past it
            (Some(_) | None, None) if !passing => false,
            (Some(known), None) => {
                count_known(tick, &mut sorted.met, object, &known);
                let external = External::Present(object.clone());
                let judged = known.into_iter().map(|known| judge(tick, known.payment, looked.observed_at, &external));
                sorted.judged.extend(judged);
                true
            }
            (None, _) => {
                stranger(tick, &mut sorted, object);
                true
            }
        };
        passing &= finished;
        if passing {
            sorted.met.objects += 1;
            sorted.passed = Some(object.id.clone());
        }
    }
    sorted.unfinished = !passing;
    sorted
}

fn count_known<G>(tick: &Tick<'_, '_, G>, met: &mut Met, object: &ExternalPayment, known: &[KnownPayment]) {
    met.known += 1;
    let named = match_key_of(&tick.deps.settings.reverse, object);
    let matched =
        named.is_some_and(|named| known.iter().any(|known| known.payment.match_key.as_deref() == Some(named)));
    met.matched += i64::from(matched);
}

/// Whether it is finished.
fn judge_retrieved<G>(tick: &Tick<'_, '_, G>, sorted: &mut Sorted, known: Vec<KnownPayment>, answer: Answer) -> bool {
    match answer {
        Answer::Confirmed { observed_at, external: external @ External::Present(_) } => {
            sorted.judged.extend(known.into_iter().map(|known| judge(tick, known.payment, observed_at, &external)));
            true
        }
        // on a page a moment ago, and not there: no answer to believe
        Answer::Confirmed { external: External::NotFound { .. }, .. } | Answer::PassedOver => {
            sorted.judged.extend(unanswered(known));
            true
        }
        Answer::HeldUp => {
            sorted.judged.extend(unanswered(known));
            false
        }
        Answer::Unfinished => false,
    }
}

/// No payment names it. The first look; the second one is a retrieve, a grace period later.
fn stranger<G>(tick: &Tick<'_, '_, G>, sorted: &mut Sorted, object: &ExternalPayment) {
    let settings = &tick.deps.settings.reverse;
    if !is_ours(settings, object) {
        sorted.foreign += 1;
    } else if object.status != ExternalStatus::Canceled {
        sorted.strangers.push(Stranger {
            id: object.id.clone(),
            how: How::Listed,
            status: object.status.as_str().to_owned(),
            match_key: match_key_of(settings, object).map(str::to_owned),
            created: Some(object.created),
            next_look_at: Some(second_look(tick.now, &tick.deps.settings.policy)),
            finding: None,
        });
    }
}

/// An object that the page did not let us read. The retrieve may.
fn unreadable<G>(tick: &Tick<'_, '_, G>, sorted: &mut Sorted, id: Option<&ExternalRef>, looked: &mut Looked<'_>) {
    sorted.met.objects += 1;
    let Some((id, answer)) = id.and_then(|id| Some((id, looked.answers.remove(id)?))) else {
        tracing::warn!("an object on the page has no readable id: this window proves no absence");
        sorted.met.unread += 1;
        sorted.unverifiable += 1;
        return;
    };
    if let Some(known) = looked.known.remove(id.as_str()) {
        if let Answer::Confirmed { external: External::Present(object), .. } = &answer {
            count_known(tick, &mut sorted.met, object, &known);
        }
        sorted.unfinished |= !judge_retrieved(tick, sorted, known, answer);
        return;
    }
    match answer {
        Answer::Confirmed { external: External::Present(object), .. } => stranger(tick, sorted, &object),
        Answer::Confirmed { external: External::NotFound { .. }, .. } | Answer::PassedOver => {
            tracing::warn!(%id, "an object on the page cannot be read: it is looked at again");
            sorted.met.unread += 1;
            sorted.unverifiable += 1;
            sorted.strangers.push(Stranger {
                id: id.clone(),
                how: How::Listed,
                status: "unreadable".to_owned(),
                match_key: None,
                created: None,
                next_look_at: Some(second_look(tick.now, &tick.deps.settings.policy)),
                finding: None,
            });
        }
        Answer::HeldUp | Answer::Unfinished => sorted.unfinished = true,
    }
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
