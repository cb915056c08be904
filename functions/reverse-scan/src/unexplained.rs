//! Payments that were sent to Stripe, have no reference, and whose charge is not there.
//!
//! Such a payment is reported, once, as `no_external_reference` with `PaymentCompensationRequired` if and only if
//! - complete windows cover the time from a day before it was created to an hour after it last changed (`window.rs`);
//! - no PaymentIntent that they met names it by its `match_key`, but for canceled ones, and no other payment with the same
//!   `match_key` has a reference: a second attempt at an order whose first one is accounted for; and
//! - some PaymentIntent of these windows names the payment that names it: then the metadata key is right, and the account.
//!
//! Without `MATCH_METADATA_KEY` nothing can be explained, and so nothing is concluded: after `IN_FLIGHT_MAX_DAYS` the forward
//! scan reports such a payment as `stalled_in_flight`.

use reconciler::domain::payment::Payment;
use reconciler::domain::verdict::{Judgement, Kind};
use reconciler::gateway::Gateway;
use reconciler::scan::RunError;
use reconciler::scan::evidence::evidence_of;
use reconciler::scan::steps::Step;
use reconciler::store::commit::{JudgedOutcome, JudgedPayment};
use reconciler::store::reverse::load_unexplained;
use reconciler::telemetry::Outcome;

use crate::JOB;
use crate::tick::{Go, Tick, written_time};
use crate::window::proof;

/// Reports what the window that was just completed has not explained.
pub(crate) async fn report<G: Gateway>(tick: &mut Tick<'_, '_, G>) -> Result<Go, RunError> {
    if tick.deps.settings.reverse.match_key.is_none() {
        return Ok(Go::On);
    }
    if tick.window.proven_matched == 0 && tick.window.known > 0 {
        tracing::warn!(
            "no object names its payment under MATCH_METADATA_KEY: the key is a wrong one, and no absence is concluded from it"
        );
    }
    let Some(proof) = proof(&tick.window, &tick.deps.settings.policy, tick.now) else { return Ok(Go::On) };
    let limit = i64::from(tick.deps.settings.batch_size);
    let payments = load_unexplained(tick.deps.db, JOB, &proof, limit).await?;
    if payments.is_empty() {
        return Ok(Go::On);
    }
    tick.deps.steps.reach(Step::Loaded).await;
    let judged: Vec<JudgedPayment> = payments.into_iter().map(|payment| judged(tick, payment)).collect();
    if !tick.commit(tick.window.clone(), &judged, &[]).await? {
        return Ok(Go::End(Outcome::AbortedConcurrentRun));
    }
    tick.figures.unexplained += u64::try_from(judged.len()).unwrap_or_default();
    Ok(Go::On)
}

fn judged<G>(tick: &Tick<'_, '_, G>, payment: Payment) -> JudgedPayment {
    let mut evidence = evidence_of(&payment, None);
    if let Some(seen) = evidence.as_object_mut() {
        let edge = |at| written_time(at).into();
        seen.insert("listed_from".to_owned(), tick.window.proven_from.map_or(serde_json::Value::Null, edge));
        let to = tick.window.completed.map(|(completed_to, _)| completed_to);
        seen.insert("listed_to".to_owned(), to.map_or(serde_json::Value::Null, edge));
    }
    let judgement = Judgement::NeedsReview { kind: Kind::NoExternalReference, compensation: true };
    JudgedPayment {
        payment,
        outcome: JudgedOutcome::Confirmed { observed_at: tick.now, seen: None, judgement, evidence },
    }
}
