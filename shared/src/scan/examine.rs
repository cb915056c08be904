//! From loaded payments to judged ones: the part that every scan shares.

use tokio_postgres::Client;

use super::RunError;
use super::bulk::{Wanted, observe_in_bulk};
use super::evidence::evidence_of;
use super::observe::{Answer, ObserveError, Observed, Observing, Stop, observe};
use super::withhold::Missing;
use crate::domain::Timestamp;
use crate::domain::classify::{BeforeAsking, Policy, before_asking, classify};
use crate::domain::external::{External, Seen};
use crate::domain::id::ExternalRef;
use crate::domain::learned::Learned;
use crate::domain::payment::Payment;
use crate::domain::verdict::Judgement;
use crate::gateway::Gateway;
use crate::store::commit::{JudgedOutcome, JudgedPayment};
use crate::store::known_present;

/// Payments that are planned together.
const PART: usize = 5_000;

/// Judged payments, and how far the walk may pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examined {
    /// What is to be written: all of the passed payments, and those behind that were answered all the same.
    pub judged: Vec<JudgedPayment>,
    /// How many payments from the first on the walk may pass.
    pub passed: usize,
    /// Why not all, if not all.
    pub stop: Option<Stop>,
    /// What is missing at Stripe.
    pub missing: Missing,
    /// Requests sent.
    pub requests: u64,
    /// Answers that asked to slow down.
    pub throttled: u64,
    /// What is known of the account by now, where it was asked in bulk.
    pub learned: Option<Learned>,
}

/// Decides what to ask, asks, and judges the answers. `payments` are in key order. With `learned`, list calls may answer;
/// without it each payment is retrieved.
///
/// In bulk a large batch is dealt with in parts, in key order: so a deadline finds a finished beginning, and Stripe's answers
/// take the memory of one part.
pub async fn examine<G: Gateway>(
    observing: &Observing<'_, G>,
    policy: &Policy,
    now: Timestamp,
    payments: Vec<Payment>,
    learned: Option<Learned>,
) -> Result<Examined, ObserveError> {
    let part = if learned.is_some() { PART } else { payments.len().max(1) };
    let mut examined = Examined {
        judged: Vec::with_capacity(payments.len()),
        passed: 0,
        stop: None,
        missing: Missing::default(),
        requests: 0,
        throttled: 0,
        learned,
    };
    let mut passing = true;
    let mut rest = payments.into_iter();
    loop {
        let payments: Vec<Payment> = rest.by_ref().take(part).collect();
        if payments.is_empty() {
            return Ok(examined);
        }
        examine_part(observing, policy, now, payments, &mut passing, &mut examined).await?;
    }
}

/// `passing`: the walk may pass everything so far.
async fn examine_part<G: Gateway>(
    observing: &Observing<'_, G>,
    policy: &Policy,
    now: Timestamp,
    payments: Vec<Payment>,
    passing: &mut bool,
    examined: &mut Examined,
) -> Result<(), ObserveError> {
    let plans: Vec<BeforeAsking> = payments.iter().map(|payment| before_asking(payment, policy, now)).collect();
    let mut answers = Vec::new();
    if examined.stop.is_none() {
        let observed = ask(observing, policy, now, &payments, &plans, &mut examined.learned).await?;
        examined.stop = observed.stop;
        examined.requests += observed.requests;
        examined.throttled += observed.throttled;
        examined.missing.count(&observed.answers);
        answers = observed.answers;
    }
    let mut answers = answers.into_iter();
    for (payment, plan) in payments.into_iter().zip(plans) {
        // Past the place where the walk stands, only what has cost a call is worth writing.
        let (outcome, may_pass) = match plan {
            BeforeAsking::TooFresh => (passing.then_some(JudgedOutcome::NotAsked), true),
            BeforeAsking::Settled(judgement) => (passing.then(|| confirmed(&payment, now, None, judgement)), true),
            BeforeAsking::Ask(_) => match answers.next().unwrap_or(Answer::Unfinished) {
                Answer::Confirmed { observed_at, external } => {
                    let judgement = classify(&payment, &external, policy, now);
                    (Some(confirmed(&payment, observed_at, Some(&external), judgement)), true)
                }
                Answer::PassedOver => (Some(JudgedOutcome::Unanswered), true),
                Answer::HeldUp => (Some(JudgedOutcome::Unanswered), false),
                Answer::Unfinished => (None, false),
            },
        };
        *passing &= may_pass;
        examined.passed += usize::from(*passing);
        examined.judged.extend(outcome.map(|outcome| JudgedPayment { payment, outcome }));
    }
    Ok(())
}

/// Asks for those of the payments that have to be asked for: an answer for each of these.
async fn ask<G: Gateway>(
    observing: &Observing<'_, G>,
    policy: &Policy,
    now: Timestamp,
    payments: &[Payment],
    plans: &[BeforeAsking],
    learned: &mut Option<Learned>,
) -> Result<Observed, ObserveError> {
    let Some(learned) = learned else {
        let wanted: Vec<ExternalRef> = plans.iter().filter_map(wanted_of).cloned().collect();
        return observe(observing, &wanted).await;
    };
    let asked = payments.iter().zip(plans).filter_map(|(payment, plan)| Some((payment, wanted_of(plan)?)));
    let (asked, wanted): (Vec<&Payment>, Vec<Wanted<'_>>) =
        asked.map(|(payment, id)| (payment, wanted_in_bulk(payment, id))).unzip();
    let needs_proof = |index: usize, external: &External| {
        asked.get(index).is_none_or(|payment| is_new_drift(payment, external, policy, now))
    };
    observe_in_bulk(observing, learned, now, &wanted, needs_proof).await
}

fn wanted_in_bulk<'a>(payment: &Payment, id: &'a ExternalRef) -> Wanted<'a> {
    let created = payment.previous.as_ref().and_then(|previous| previous.external_created_at);
    Wanted { id, row_created: payment.created_at, created }
}

/// Whether it is a drift that is not reported yet as it is: no open finding of its kind about the row as it is now, or
/// Stripe said something else when it was last read.
fn is_new_drift(payment: &Payment, external: &External, policy: &Policy, now: Timestamp) -> bool {
    let Some(kind) = classify(payment, external, policy, now).kind().map(|kind| kind.to_string()) else { return false };
    payment.previous.as_ref().is_none_or(|previous| {
        !previous.open_kinds.contains(&kind) || previous.external_status.as_deref() != Some(external.status_text())
    })
}

fn wanted_of(plan: &BeforeAsking) -> Option<&ExternalRef> {
    match plan {
        BeforeAsking::Ask(id) => Some(id),
        BeforeAsking::TooFresh | BeforeAsking::Settled(_) => None,
    }
}

fn confirmed(
    payment: &Payment,
    observed_at: Timestamp,
    external: Option<&External>,
    judgement: Judgement,
) -> JudgedOutcome {
    let evidence = match judgement.kind() {
        Some(_) => evidence_of(payment, external),
        None => serde_json::Value::Null,
    };
    JudgedOutcome::Confirmed { observed_at, seen: external.map(Seen::from), judgement, evidence }
}

/// Whether the key opens anything that Stripe is known to have: then a batch of nothing but the other mode's objects is the
/// rows' fault. The second value counts the requests.
pub async fn key_opens_known_payments<G: Gateway>(
    observing: &Observing<'_, G>,
    db: &Client,
) -> Result<(bool, u64), RunError> {
    let mut requests = 0;
    for id in known_present(db).await? {
        let observed = observe(observing, std::slice::from_ref(&id)).await?;
        requests += observed.requests;
        if observed
            .answers
            .iter()
            .any(|answer| matches!(answer, Answer::Confirmed { external: External::Present(_), .. }))
        {
            return Ok((true, requests));
        }
    }
    Ok((false, requests))
}
