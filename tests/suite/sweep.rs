//! The sweep: the suspects, within minutes, and nobody else.

use std::time::Duration;

use local::fake::Fault;
use reconciler::budget::Budget;
use reconciler::gateway::Gateway;
use reconciler::scan::Deps;
use reconciler::scan::steps::Steps;
use reconciler::store::corrections::count_corrections;
use reconciler::telemetry::{Outcome, Report, SweepFacts};

use crate::world::World;

async fn sweep(world: &World) -> Report {
    sweep_with(world, &world.stripe).await
}

/// One tick of the sweep with this Stripe.
pub(crate) async fn sweep_with<G: Gateway>(world: &World, stripe: &G) -> Report {
    let budget = Budget::new("own", world.settings.requests_per_second, world.clock.clone());
    let deps = Deps {
        db: &world.scan,
        gateway: stripe,
        budget: &budget,
        clock: &world.clock,
        settings: &world.settings,
        keyset: world.keyset,
        deadline: None,
        steps: &Steps::Unwatched,
    };
    world.clock.advance(Duration::from_millis(1));
    sweep::run(&deps, world.now()).await.expect("a sweep that succeeds")
}

#[tokio::test]
async fn only_suspects_are_asked_for() {
    let world = World::new().await;
    for (reference, state, minutes) in [
        ("pi_finalizing", "finalizing", 11),
        ("pi_expired", "expired", 60 * 24 * 90),
        ("pi_pending", "pending", 60 * 47),
        ("pi_young", "finalizing", 9),
        ("pi_old_cart", "pending", 60 * 49),
        ("pi_paid", "paid", 60),
        ("pi_failed", "failed", 60),
    ] {
        world.stripe.put(reference, "processing", world.now() - time::Duration::minutes(minutes));
        world.payment(Some(reference), state, minutes).await;
    }
    world.payment(None, "pending", 60).await;
    let report = sweep(&world).await;
    assert_eq!((report.function, report.job.as_str()), ("sweep", "suspects-vs-stripe"));
    assert_eq!(world.stripe.requests(), ["pi_expired", "pi_pending", "pi_finalizing"], "oldest first");
    assert_eq!((report.outcome, report.scanned), (Outcome::Advanced, 3));
    assert_eq!(sweep(&world).await.outcome, Outcome::Wrapped);
    let cursors = "select job from reconciliation.cursor";
    assert_eq!(world.texts(cursors).await, ["suspects-vs-stripe"], "a cursor of its own");
}

#[tokio::test]
async fn the_threshold_is_its_own_and_not_the_grace_period() {
    let mut world = World::new().await;
    world.set(&[("SWEEP_AFTER_SECONDS", "60"), ("GRACE_SECONDS", "3600")]);
    world.stripe.put("pi_1", "succeeded", world.now());
    world.payment(Some("pi_1"), "finalizing", 2).await;
    assert_eq!(sweep(&world).await.repairable, 1);
    assert_eq!(world.ticked().await.in_flight, 1, "which the forward scan leaves alone");
}

#[tokio::test]
async fn each_outcome_and_a_second_sweep_changes_nothing() {
    let world = World::new().await;
    world.pair("pi_1", "finalizing", "succeeded").await;
    world.pair("pi_2", "expired", "canceled").await;
    world.pair("pi_3", "expired", "processing").await;
    world.payment(Some("pi_gone"), "finalizing", 60).await;
    let report = sweep(&world).await;
    assert_eq!((report.scanned, report.repairable, report.needs_review, report.in_flight), (4, 2, 1, 1));
    let mut outbox = world.outbox().await;
    outbox.sort();
    let expected =
        ["command ApplyPaymentCanceled", "command ApplyPaymentSucceeded", "event PaymentCompensationRequired"];
    assert_eq!(outbox, expected);
    for _ in 0..4 {
        world.pass(60);
        let report = sweep(&world).await;
        assert_eq!((report.findings_opened, report.commands_queued), (0, 0));
    }
    world.cycle().await; // the forward scan finds nothing new either
    assert_eq!((world.findings().await.len(), world.outbox().await.len()), (3, 3));
}

#[tokio::test]
async fn it_reports_its_candidates_what_is_unresolved_and_what_the_writer_corrected() {
    let world = World::new().await;
    world.pair("pi_1", "finalizing", "succeeded").await;
    world.pair("pi_2", "expired", "canceled").await;
    world.pair("pi_3", "finalizing", "succeeded").await;
    world.pair("pi_4", "expired", "processing").await;
    world.pair("pi_5", "finalizing", "succeeded").await;
    world.stripe.fail("pi_5", Fault::ServerError);
    world.payment(Some("pi_gone"), "finalizing", 60).await;
    world.pair("pi_7", "expired", "requires_payment_method").await;
    world.pair("pi_no_suspect", "paid", "succeeded").await;
    let report = sweep(&world).await;
    let verdicts = (report.in_sync, report.repairable, report.in_flight, report.needs_review, report.unverifiable);
    assert_eq!(verdicts, (1, 3, 1, 1, 1));
    let facts =
        |candidates, unresolved, drifts_corrected| Some(SweepFacts { candidates, unresolved, drifts_corrected });
    assert_eq!(report.sweep, facts(7, 3, 0), "asking for a repair corrects nothing");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(
        (&json["candidates"], &json["unresolved"], &json["drifts_corrected"]),
        (&7.into(), &3.into(), &0.into())
    );
    assert!(serde_json::to_value(world.ticked().await).unwrap().get("candidates").is_none(), "the sweep's alone");

    // the writer repairs two; the third was there already
    world.update("status = 'paid'", "stripe_payment_intent_id = 'pi_3'").await;
    let repair = "select reconciliation.transition(payment_id, case external_status when 'canceled' then 'canceled' else 'succeeded' end,
                  jsonb_build_object('external_ref', external_ref), id) from reconciliation.finding where verdict = 'repairable'";
    world.rows_of(repair).await;
    let at = "update reconciliation.finding set resolved_at = $1 where resolved_at is not null";
    world.owner.execute(at, &[&world.now()]).await.unwrap();
    let corrected = async || sweep(&world).await.sweep.unwrap().drifts_corrected;
    assert_eq!(corrected().await, 0, "another writer that began as early may still be under way");
    world.pass(2);
    assert_eq!(corrected().await, 2);
    world.pass(2);
    assert_eq!(corrected().await, 0, "each is counted once");

    // however many ask at once
    world
        .owner
        .execute("update reconciliation.finding set resolved_at = $1 where resolution = 'repaired'", &[&world.now()])
        .await
        .unwrap();
    world.pass(2);
    let other = World::scan_session(&world.database).await;
    let (one, two) = tokio::join!(
        count_corrections(&world.scan, sweep::JOB, world.now()),
        count_corrections(&other, sweep::JOB, world.now())
    );
    assert_eq!(one.unwrap() + two.unwrap(), 2);
}

#[tokio::test]
async fn a_suspect_is_asked_again_after_a_growing_interval() {
    let world = World::new().await;
    world.pair("pi_1", "finalizing", "processing").await;
    let mut asked_at = Vec::new();
    for minute in 0..600 {
        let before = world.stripe.requests().len();
        sweep(&world).await;
        if world.stripe.requests().len() > before {
            asked_at.push(minute);
        }
        world.pass(1);
    }
    let gaps: Vec<i32> = asked_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.len() >= 3 && gaps.is_sorted() && gaps.first() < gaps.last(), "{gaps:?}");
    assert!(asked_at.len() < 12, "{asked_at:?}");
}

#[tokio::test]
async fn ten_thousand_that_never_resolve_do_not_starve_a_new_one() {
    let mut world = World::new().await;
    world.set(&[("BATCH_SIZE", "2000"), ("REQUESTS_PER_SECOND", "10000")]);
    world.pairs(10_000, "expired", "processing").await;
    sweep(&world).await;
    world.stripe.put("pi_new", "succeeded", world.now());
    world.payment(Some("pi_new"), "finalizing", 11).await;
    let mut ticks = 0;
    while world.findings().await.is_empty() {
        assert_ne!(sweep(&world).await.scanned, 0, "within this cycle");
        ticks += 1;
    }
    assert!(ticks <= 6, "{ticks}");
}

#[tokio::test]
async fn an_outage_and_a_429_are_met_like_everywhere() {
    let world = World::new().await;
    world.pairs(20, "finalizing", "succeeded").await;
    world.stripe.fail_nth(5, Fault::RateLimited);
    let report = sweep(&world).await;
    assert_eq!((report.outcome, report.repairable, report.unverifiable), (Outcome::Stopped, 4, 0));
    world.stripe.fail_all(Some(Fault::Dropped));
    assert_eq!(sweep(&world).await.unverifiable, 10);
    world.stripe.fail_all(None);
    assert_eq!(sweep(&world).await.repairable, 16);
}

#[tokio::test]
async fn it_uses_at_most_its_share_of_the_budget() {
    let world = World::new().await;
    let ours = Budget::new("own", 100, world.clock.clone()).with_share(Some(sweep::SHARE));
    let everybodys = Budget::new("own", 100, world.clock.clone());
    let long = Duration::from_secs(60);
    let mut slots = Vec::new();
    for _ in 0..10 {
        slots.push(ours.take(&world.scan, long).await.unwrap().expect("a slot").at);
    }
    for pair in slots.windows(2) {
        assert!((pair[1] - pair[0]).whole_microseconds() >= 33_333, "{pair:?}");
    }
    let last = everybodys.take(&world.scan, long).await.unwrap().expect("a slot").at;
    assert!((last - slots[9]).whole_microseconds() >= 10_000, "and it counts against everybody's");
}
