//! The forward scan's second job: the payments that have not ended, of the last 90 days, and nobody else.

use std::time::Duration;

use forward_scan::unfinished;
use reconciler::budget::Budget;
use reconciler::scan::steps::Steps;
use reconciler::scan::{Deps, RunError};
use reconciler::telemetry::{Outcome, Report};

use crate::world::World;

async fn tick(world: &World) -> Result<Report, RunError> {
    let budget = Budget::new("own", world.settings.requests_per_second, world.clock.clone());
    let deps = Deps {
        db: &world.scan,
        gateway: &world.stripe,
        budget: &budget,
        clock: &world.clock,
        settings: &world.settings,
        keyset: world.keyset,
        deadline: None,
        steps: &Steps::Unwatched,
    };
    world.clock.advance(Duration::from_millis(1));
    unfinished::run(&deps, world.now()).await
}

/// Ticks until a cycle has completed: how many payments were judged.
async fn cycle(world: &World) -> u64 {
    let mut scanned = 0;
    for _ in 0..50 {
        let report = tick(world).await.expect("a tick that succeeds");
        scanned += report.scanned;
        if report.outcome == Outcome::Wrapped {
            return scanned;
        }
    }
    panic!("no cycle has completed within 50 ticks");
}

const DAY: i64 = 24 * 60;

#[tokio::test]
async fn only_what_has_not_ended_and_is_young_enough_is_asked_for_and_every_cycle_anew() {
    let mut world = World::new().await;
    world.set(&[("UNFINISHED_CYCLE_SECONDS", "0"), ("BATCH_SIZE", "2")]);
    for (reference, state, minutes) in [
        ("pi_too_old", "expired", 91 * DAY),
        ("pi_expired", "expired", 89 * DAY),
        ("pi_cart", "pending", 20 * DAY),
        ("pi_paid", "paid", 60),
        ("pi_failed", "failed", 59),
        ("pi_finalizing", "finalizing", 11),
        ("pi_fresh", "finalizing", 9),
    ] {
        world.stripe.put(reference, "requires_payment_method", world.now() - time::Duration::minutes(minutes));
        world.payment(Some(reference), state, minutes).await;
    }
    world.payment(None, "pending", 60).await;
    for _ in 0..2 {
        let asked_before = world.stripe.requests().len();
        assert_eq!(cycle(&world).await, 4, "the fresh one is counted, too");
        assert_eq!(world.stripe.requests()[asked_before..], ["pi_expired", "pi_cart", "pi_finalizing"]);
    }
    let cursors = "select job || ' ' || cycle from reconciliation.cursor";
    assert_eq!(world.texts(cursors).await, ["unfinished-vs-stripe 2"], "a cursor of its own");
}

#[tokio::test]
async fn it_finds_repairs_and_closes_like_the_complete_walk_and_waits_for_its_own_interval() {
    let mut world = World::new().await;
    world.set(&[("UNFINISHED_CYCLE_SECONDS", "1800"), ("MIN_CYCLE_SECONDS", "0")]);
    world.pair("pi_1", "pending", "succeeded").await;
    world.pair("pi_2", "expired", "canceled").await;
    world.pair("pi_3", "paid", "canceled").await; // the complete walk's
    let report = tick(&world).await.unwrap();
    assert_eq!((report.function, report.job.as_str()), ("unfinished-scan", "unfinished-vs-stripe"));
    assert_eq!((report.scanned, report.repairable, report.commands_queued), (2, 2, 2));
    assert_eq!(tick(&world).await.unwrap().outcome, Outcome::Wrapped);
    assert_eq!(tick(&world).await.unwrap().outcome, Outcome::Waiting);

    world.update("status = 'paid'", "stripe_payment_intent_id = 'pi_1'").await; // and so it leaves the walk
    world.stripe.put("pi_2", "requires_payment_method", world.now() - time::Duration::hours(1));
    world.pass(31);
    let report = tick(&world).await.unwrap();
    assert_eq!((report.scanned, report.in_sync, report.findings_closed), (1, 1, 1));
    let reports = world.cycle().await;
    assert_eq!(reports.iter().map(|report| report.findings_closed).sum::<u64>(), 1, "closed by the complete walk");
    assert_eq!(world.number("select count(*) from reconciliation.finding where resolved_at is null").await, 1);
}

#[tokio::test]
async fn it_forgets_no_observation_of_the_payments_that_it_leaves_out() {
    let mut world = World::new().await;
    world.set(&[("UNFINISHED_CYCLE_SECONDS", "0")]);
    for number in 0..20 {
        let state = if number % 5 == 0 { ("pending", "requires_payment_method") } else { ("paid", "succeeded") };
        world.pair(&format!("pi_{number}"), state.0, state.1).await;
    }
    world.cycle().await;
    assert_eq!(cycle(&world).await, 4);
    assert_eq!(world.number("select count(*) from reconciliation.observation").await, 20);
}
