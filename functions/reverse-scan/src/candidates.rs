//! The second look, and every later one: candidates for an orphan are retrieved when they are due.
//!
//! Most of what no payment names at first is one whose transaction is still open; it has a payment by the second look. What
//! has none and is money becomes a finding, in `reconciliation.finding` without a `payment_id`, also where its metadata names
//! a payment: the evidence does. Such a payment may have been charged twice, which is two findings, and the forward scan
//! closes what stands under a payment when that payment by itself is in sync. A finding is over when a payment names the
//! object, or when held money was let go.
//!
//! Candidates come first in a tick, but take no more than half of its time, so that pages go on however many there are.

use reconciler::domain::external::{External, ExternalPayment, ExternalStatus};
use reconciler::domain::id::PaymentId;
use reconciler::domain::orphan::{OrphanVerdict, classify_orphan, next_look, second_look};
use reconciler::gateway::Gateway;
use reconciler::scan::RunError;
use reconciler::scan::observe::{Answer, Observing, Stop, observe};
use reconciler::scan::steps::Step;
use reconciler::store::reverse::{Candidate, How, Stranger, count_candidates, load_candidates, load_unlinked};
use reconciler::telemetry::Outcome;

use crate::filter::{evidence, is_ours, match_key_of};
use crate::tick::{Go, Tick, outcome_of};

/// Candidates in one tick.
const LOOKS: i64 = 50;

/// Looks at the candidates that are due.
pub(crate) async fn look_again<G: Gateway>(tick: &mut Tick<'_, '_, G>) -> Result<Go, RunError> {
    let db = tick.deps.db;
    if looks_like_a_wrong_account(tick).await? {
        return Ok(Go::On);
    }
    let candidates = load_candidates(db, tick.now, LOOKS).await?;
    if candidates.is_empty() {
        return Ok(Go::On);
    }
    tick.deps.steps.reach(Step::Loaded).await;

    let wanted: Vec<_> = candidates.iter().filter(|candidate| !candidate.named).map(|c| c.id.clone()).collect();
    let observed = observe(&half_the_time(tick), &wanted).await?;
    tick.report.requests += observed.requests;
    tick.report.throttled += observed.throttled;
    tick.deps.steps.reach(Step::Observed).await;

    let settings = &tick.deps.settings.reverse;
    let named: Vec<&str> =
        observed.answers.iter().filter_map(present).filter_map(|o| match_key_of(settings, o)).collect();
    let unlinked = if named.is_empty() { std::collections::HashMap::new() } else { load_unlinked(db, &named).await? };
    let mut answers = observed.answers.iter();
    let mut strangers = Vec::with_capacity(candidates.len());
    let mut orphans = 0;
    for candidate in &candidates {
        let stranger = if candidate.named {
            Some(named_by_now(tick, candidate))
        } else {
            let answer = answers.next().unwrap_or(&Answer::Unfinished);
            let payment = present(answer).and_then(|o| match_key_of(settings, o)).and_then(|key| unlinked.get(key));
            look(tick, candidate, answer, payment)?
        };
        orphans += u64::from(stranger.as_ref().is_some_and(|stranger| stranger.finding.is_some()));
        strangers.extend(stranger);
    }
    if !tick.commit(tick.window.clone(), &[], &strangers).await? {
        return Ok(Go::End(Outcome::AbortedConcurrentRun));
    }
    tick.figures.looks += u64::try_from(strangers.len()).unwrap_or_default();
    tick.figures.orphans += orphans;
    Ok(match observed.stop {
        // the other half is the pages'
        None | Some(Stop::Deadline) => Go::On,
        Some(stop @ (Stop::RateLimited | Stop::Outage)) => Go::End(outcome_of(stop)),
    })
}

/// Many strangers and not one object that a payment here names: a wrong account, or a wrong reference column (promise 11).
/// They are not looked at again before one is, or before a person has set the cap higher.
async fn looks_like_a_wrong_account<G>(tick: &Tick<'_, '_, G>) -> Result<bool, RunError> {
    let cap = tick.deps.settings.missing_cap;
    if tick.window.known > 0 {
        return Ok(false);
    }
    let candidates = count_candidates(tick.deps.db).await?;
    let wrong = candidates > i64::from(cap);
    if wrong {
        tracing::error!(
            candidates,
            missing_cap = cap,
            "no object that Stripe has listed so far is named by a payment here: is it the right account, and the right \
             reference column? No orphan is reported before one is, unless MISSING_CAP is raised above the candidates"
        );
    }
    Ok(wrong)
}

fn half_the_time<'d, G: Gateway>(tick: &Tick<'_, 'd, G>) -> Observing<'d, G> {
    let observing = tick.deps.observing(true);
    let now = tick.deps.clock.now();
    Observing { deadline: observing.deadline.map(|deadline| now + (deadline - now) / 2), ..observing }
}

fn present(answer: &Answer) -> Option<&ExternalPayment> {
    match answer {
        Answer::Confirmed { external: External::Present(object), .. } => Some(object),
        Answer::Confirmed { external: External::NotFound { .. }, .. }
        | Answer::PassedOver
        | Answer::HeldUp
        | Answer::Unfinished => None,
    }
}

/// A payment names it: the commit asks once more, and lets go of it. Where that is over by then, it is looked at later.
fn named_by_now<G>(tick: &Tick<'_, '_, G>, candidate: &Candidate) -> Stranger {
    Stranger {
        next_look_at: Some(second_look(tick.now, &tick.deps.settings.policy)),
        ..seen(candidate, How::Listed, candidate.status.clone())
    }
}

fn seen(candidate: &Candidate, how: How, status: String) -> Stranger {
    Stranger {
        id: candidate.id.clone(),
        how,
        status,
        match_key: None,
        created: None,
        next_look_at: None,
        finding: None,
    }
}

/// `None`: it was not asked, or not to the end.
fn look<G>(
    tick: &Tick<'_, '_, G>,
    candidate: &Candidate,
    answer: &Answer,
    unlinked: Option<&PaymentId>,
) -> Result<Option<Stranger>, RunError> {
    let policy = &tick.deps.settings.policy;
    let first_seen = candidate.first_seen_at.unwrap_or(tick.now);
    let again = |status: Option<&ExternalStatus>| next_look(status, first_seen, policy, tick.now);
    let object = match answer {
        Answer::Confirmed { external: External::Present(object), .. } => object,
        // It was on a page, and PaymentIntents do not go away: a wrong account's answer, or test data that was deleted.
        Answer::Confirmed { external: External::NotFound { .. }, .. } => {
            return Ok(Some(put_off(candidate, "not_found", again(None))));
        }
        Answer::PassedOver => return Ok(Some(put_off(candidate, "unreadable", again(None)))),
        Answer::HeldUp | Answer::Unfinished => return Ok(None),
    };
    let settings = &tick.deps.settings.reverse;
    if let Some(expected) = settings.livemode.filter(|expected| *expected != object.livemode) {
        return Err(RunError::OtherMode { id: object.id.clone(), expected });
    }
    let mut stranger = seen(candidate, How::Retrieved, object.status.as_str().to_owned());
    stranger.match_key = match_key_of(settings, object).map(str::to_owned);
    stranger.created = Some(object.created);
    if !is_ours(settings, object) {
        return Ok(Some(stranger));
    }
    match classify_orphan(object, unlinked) {
        OrphanVerdict::Harmless => {}
        OrphanVerdict::Pending => {
            stranger.next_look_at = again(Some(&object.status));
            if stranger.next_look_at.is_none() {
                tracing::info!(external_ref = %object.id, status = object.status.as_str(), "an abandoned cart is given up");
            }
        }
        OrphanVerdict::NeedsReview { kind, payment_id } => {
            stranger.next_look_at = again(Some(&object.status));
            stranger.finding = Some((kind, evidence(settings, object, payment_id.as_ref())));
        }
    }
    Ok(Some(stranger))
}

fn put_off(candidate: &Candidate, status: &str, next_look_at: Option<reconciler::domain::Timestamp>) -> Stranger {
    if next_look_at.is_none() {
        tracing::warn!(external_ref = %candidate.id, status, "a candidate for an orphan is given up unread");
    }
    Stranger { next_look_at, ..seen(candidate, How::Unanswered, status.to_owned()) }
}
