//! The objects of one page: what a payment names is judged like everywhere, what none names becomes a candidate for an orphan.
//!
//! An object is **finished** if and only if
//! - a payment names it, and the page agrees with what is known, or a retrieve has confirmed the drift, or the object itself
//!   gives no answer while Stripe does (then the payment is unverifiable, and stays in the lag); or
//! - no payment names it, and it is a candidate, or not ours, or canceled: nothing was taken and nothing will be.
//!
//! An object that cannot be read has no place in the page's order: nothing is passed while one of them is unfinished.

use std::collections::{HashMap, HashSet};

use reconciler::domain::Timestamp;
use reconciler::domain::classify::{BeforeAsking, before_asking, classify};
use reconciler::domain::external::{External, ExternalPayment, ExternalStatus};
use reconciler::domain::id::ExternalRef;
use reconciler::domain::orphan::second_look;
use reconciler::domain::payment::Payment;
use reconciler::domain::verdict::Judgement;
use reconciler::gateway::ListPage;
use reconciler::scan::evidence::evidence_of;
use reconciler::scan::observe::Answer;
use reconciler::store::commit::{JudgedOutcome, JudgedPayment};
use reconciler::store::reverse::{How, KnownPayment, Stranger};

use crate::filter::{is_ours, match_key_of};
use crate::tick::Tick;
use crate::window::Met;

/// What a page comes to.
#[derive(Default)]
pub(crate) struct Sorted {
    pub(crate) judged: Vec<JudgedPayment>,
    pub(crate) strangers: Vec<Stranger>,
    pub(crate) met: Met,
    pub(crate) foreign: u64,
    /// Unreadable objects that are nobody's payment, as far as is known.
    pub(crate) unverifiable: u64,
    /// The last object up to which all are finished.
    pub(crate) passed: Option<ExternalRef>,
    pub(crate) unfinished: bool,
}

/// The page's objects, the payments that name them, and what was retrieved.
pub(crate) struct Looked<'a> {
    pub(crate) observed_at: Timestamp,
    pub(crate) known: HashMap<&'a str, Vec<KnownPayment>>,
    pub(crate) answers: HashMap<&'a ExternalRef, Answer>,
}

/// `None`: the payment is too fresh to be judged.
pub(crate) fn judgement_of<G>(tick: &Tick<'_, '_, G>, payment: &Payment, external: &External) -> Option<Judgement> {
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
            JudgedOutcome::Confirmed { observed_at, seen: Some(external.into()), judgement, evidence }
        }
    };
    JudgedPayment { payment, outcome }
}

fn unanswered(known: Vec<KnownPayment>) -> impl Iterator<Item = JudgedPayment> {
    known.into_iter().map(|known| JudgedPayment { payment: known.payment, outcome: JudgedOutcome::Unanswered })
}

/// Sorts a page's objects in their order.
pub(crate) fn sort<G>(tick: &Tick<'_, '_, G>, page: &ListPage, mut looked: Looked<'_>) -> Sorted {
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
