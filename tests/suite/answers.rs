//! What the answers of Stripe, and their absence, come to.

use local::fake::Fault;
use reconciler::scan::RunError;
use reconciler::scan::steps::{Step, Steps};
use reconciler::telemetry::Outcome;
use time::Duration;

use crate::schedule::Actor;
use crate::world::World;

#[tokio::test]
async fn when_all_calls_fail_nothing_is_healthy_and_no_verification_time_moves() {
    for fault in [Fault::ServerError, Fault::Dropped, Fault::Html, Fault::LockTimeout] {
        let world = World::new().await;
        world.pairs(30, "paid", "succeeded").await;
        world.stripe.fail_all(Some(fault));
        let report = world.ticked().await;
        assert_eq!((report.outcome, report.scanned), (Outcome::Stopped, 10), "{fault:?}");
        assert_eq!((report.unverifiable, report.in_sync), (10, 0), "{fault:?}");
        assert_eq!(world.never_verified().await, 30, "{fault:?}");
        assert_eq!(world.texts("select position_id::text from reconciliation.cursor").await, ["-"], "{fault:?}");
        assert!(world.findings().await.is_empty(), "{fault:?}");
        assert_eq!(world.number("select count(*) from reconciliation.observation").await, 10, "the lag knows them");
    }
}

#[tokio::test]
async fn verified_before_and_unanswered_now_keeps_its_old_time() {
    let world = World::new().await;
    world.pairs(3, "paid", "succeeded").await;
    world.cycle().await;
    let before = world.texts("select verified_through::text from reconciliation.observation order by 1").await;
    world.pass(60);
    world.stripe.fail_all(Some(Fault::ServerError));
    let report = world.ticked().await;
    assert_eq!(report.unverifiable, 3);
    assert_eq!(world.texts("select verified_through::text from reconciliation.observation order by 1").await, before);
    assert_eq!(world.lag_minutes().await, 60);
}

#[tokio::test]
async fn missing_at_stripe_is_confirmed_and_a_finding_and_pins_no_lag() {
    let world = World::new().await;
    world.pairs(3, "paid", "succeeded").await;
    world.stripe.remove("pi_2");
    world.cycle().await;
    assert_eq!(world.never_verified().await, 0);
    assert_eq!(world.findings().await, ["missing_externally needs_review open"]);
    assert!(world.outbox().await.is_empty());
    world.pass(600);
    world.cycle().await;
    assert!(world.lag_minutes().await < 1);
}

#[tokio::test]
async fn a_row_of_the_other_mode_among_good_ones_is_a_finding() {
    let world = World::new().await;
    world.pairs(4, "finalizing", "processing").await;
    world.stripe.put_in_other_mode("pi_3");
    world.cycle().await;
    assert_eq!(world.findings().await, ["missing_externally needs_review open"]);
    assert_eq!(world.texts("select evidence ->> 'other_mode' from reconciliation.finding").await, ["true"]);
    assert!(world.outbox().await.is_empty(), "nobody is compensated for a test");
    assert_eq!(world.never_verified().await, 0);
}

#[tokio::test]
async fn references_that_are_none_are_never_sent() {
    let world = World::new().await;
    let long = format!("pi_{}", "x".repeat(297));
    for (reference, state) in [
        (None, "pending"),
        (None, "finalizing"),
        (None, "paid"),
        (Some(""), "pending"),
        (Some("pi_1/refunds"), "paid"),
        (Some(long.as_str()), "failed"),
    ] {
        world.payment(reference, state, 60).await;
    }
    let report = world.ticked().await;
    assert_eq!((report.scanned, report.requests), (6, 0));
    assert_eq!((report.in_sync, report.in_flight, report.needs_review), (1, 1, 4));
    assert!(world.stripe.requests().is_empty());
    assert_eq!(world.never_verified().await, 0, "no row pins the lag");
    let malformed = "malformed_reference needs_review open";
    let mut findings = world.findings().await;
    findings.sort();
    assert_eq!(findings, [malformed, malformed, malformed, "no_external_reference needs_review open"]);
}

#[tokio::test]
async fn paid_and_not_taken_is_a_persons_and_gets_no_command() {
    let world = World::new().await;
    world.pair("pi_1", "paid", "canceled").await;
    world.pair("pi_2", "paid", "requires_action").await;
    let report = world.ticked().await;
    assert_eq!((report.needs_review, report.in_flight, report.commands_queued), (2, 0, 0));
    assert_eq!(world.findings().await, ["paid_locally_not_externally needs_review open"; 2]);
    assert!(world.outbox().await.is_empty());
}

#[tokio::test]
async fn a_429_in_mid_batch_commits_what_is_finished_and_blames_nobody() {
    let world = World::new().await;
    world.pairs(20, "pending", "succeeded").await;
    world.stripe.fail_nth(8, Fault::RateLimited);
    let report = world.ticked().await;
    assert_eq!((report.outcome, report.throttled), (Outcome::Stopped, 1));
    assert_eq!((report.scanned, report.repairable, report.unverifiable), (7, 7, 0));
    assert_eq!(world.texts("select position_id::text from reconciliation.cursor").await, ["7"]);
    assert_eq!(world.number("select count(*) from reconciliation.observation").await, 7);
    assert_eq!(world.outbox().await.len(), 7);

    let reports = world.cycle().await;
    assert_eq!(reports.iter().map(|report| report.repairable).sum::<u64>(), 13, "and the rest has its turn");
}

#[tokio::test]
async fn a_deadline_in_mid_batch_commits_what_is_finished() {
    let mut world = World::new().await;
    world.set(&[("REQUESTS_PER_SECOND", "10")]);
    world.pairs(20, "paid", "succeeded").await;
    // ten requests a second: the first at once, the next ones 100 ms apart
    let deadline = world.now() + Duration::milliseconds(550);
    let report = world.tick_in(&world.scan, &Steps::Unwatched, Some(deadline)).await.unwrap();
    assert_eq!((report.outcome, report.scanned, report.in_sync), (Outcome::Partial, 6, 6));
    assert_eq!(report.requests, 6, "no call after the deadline");
    assert_eq!(world.texts("select position_id::text from reconciliation.cursor").await, ["6"]);
    assert_eq!(world.cycle().await.iter().map(|report| report.scanned).sum::<u64>(), 14);

    let past = world.now() - Duration::seconds(1);
    let report = world.tick_in(&world.scan, &Steps::Unwatched, Some(past)).await.unwrap();
    assert_eq!((report.outcome, report.scanned, report.requests), (Outcome::Partial, 0, 0));
}

#[tokio::test]
async fn an_outage_in_mid_cycle_costs_no_row_its_turn() {
    // also one that begins at the end of a batch, too late for the breaker
    for (last_answered, count) in [(7, 40), (38, 40), (39, 40)] {
        let world = World::new().await;
        world.pairs(count, "paid", "succeeded").await;
        world.stripe.fail_from_nth(last_answered + 1, Fault::Dropped);
        let report = world.ticked().await;
        assert_eq!(report.outcome, Outcome::Stopped);
        assert_eq!(report.in_sync, u64::try_from(last_answered).unwrap());
        assert_eq!(world.ticked().await.in_sync, 0, "the outage goes on");
        world.stripe.fail_all(None);
        world.cycle().await;
        assert_eq!(world.never_verified().await, 0, "{last_answered} of {count}");
    }
}

#[tokio::test]
async fn rows_that_never_answer_do_not_stop_the_walk_and_stay_visible() {
    let mut world = World::new().await;
    world.set(&[("BATCH_SIZE", "20")]);
    world.pairs(120, "paid", "succeeded").await;
    for number in 31..=80 {
        world.stripe.fail(&format!("pi_{number}"), Fault::ServerError);
    }
    let reports = world.cycle().await;
    assert!(reports.iter().any(|report| report.outcome == Outcome::Stopped), "the breaker did its work");
    assert_eq!(world.never_verified().await, 50);
    assert_eq!(world.number("select count(*) from reconciliation.observation where observed_at is null").await, 50);
    world.pass(600);
    world.cycle().await;
    assert!(world.lag_minutes().await >= 600, "they stay visible in the lag: {}", world.lag_minutes().await);
}

#[tokio::test]
async fn an_outage_is_no_reason_to_pass_over_however_often_it_stops_the_walk() {
    let world = World::new().await;
    world.pairs(30, "paid", "succeeded").await;
    world.stripe.fail_from_nth(8, Fault::ServerError);
    for _ in 0..6 {
        assert_eq!(world.ticked().await.outcome, Outcome::Stopped);
    }
    assert_eq!(world.texts("select position_id::text, starts::text from reconciliation.cursor").await, ["7 5"]);
    // it ends, but for some rows; and begins again while these are being passed over
    world.stripe.fail_all(None);
    for number in 8..=19 {
        world.stripe.fail(&format!("pi_{number}"), Fault::ServerError);
    }
    let last_call_of_pi_17 = world.stripe.requests().len() + 10 * 3;
    world.stripe.fail_from_nth(last_call_of_pi_17 + 2, Fault::Dropped);
    let report = world.ticked().await;
    assert_eq!((report.outcome, report.unverifiable), (Outcome::Stopped, 20), "ten passed over, ten held up");
    assert_eq!(world.texts("select position_id::text from reconciliation.cursor").await, ["17"]);
    world.stripe.fail_all(None);
    world.cycle().await;
    assert_eq!(world.never_verified().await, 12);
}

#[tokio::test]
async fn a_single_row_that_never_answers_is_passed_at_once() {
    let world = World::new().await;
    world.pairs(20, "paid", "succeeded").await;
    world.stripe.fail("pi_5", Fault::Html);
    let report = world.ticked().await;
    assert_eq!((report.outcome, report.in_sync, report.unverifiable), (Outcome::Advanced, 19, 1));
}

#[tokio::test]
async fn a_retry_that_helps_leaves_no_trace() {
    let world = World::new().await;
    world.pairs(3, "paid", "succeeded").await;
    world.stripe.fail_nth(2, Fault::ServerError);
    world.stripe.fail_nth(3, Fault::LockTimeout);
    let report = world.ticked().await;
    assert_eq!((report.outcome, report.in_sync, report.requests), (Outcome::Advanced, 3, 5));
}

#[tokio::test]
async fn a_wrong_key_is_not_drift() {
    for fault in [Fault::Unauthorized, Fault::Forbidden] {
        let world = World::new().await;
        world.pairs(5, "pending", "succeeded").await;
        world.stripe.fail_nth(3, fault);
        let error = world.tick().await.unwrap_err();
        assert!(matches!(error, RunError::Observe(_)), "{fault:?}: {error:?}");
        assert_eq!(error.error_type(), "StripeKeyRefused");
        assert_eq!(world.number("select count(*) from reconciliation.observation").await, 0, "{fault:?}");
        assert!(world.outbox().await.is_empty(), "{fault:?}");
        assert_eq!(world.number("select revision from reconciliation.cursor").await, 0, "{fault:?}");
    }
}

#[tokio::test]
async fn a_tick_that_comes_nowhere_leaves_a_good_one_and_a_release_alone() {
    let mut world = World::new().await;
    world.set(&[("MISSING_CAP", "5")]);
    world.pairs(20, "paid", "succeeded").await;
    let elsewhere = World::scan_session(&world.database).await;
    let away = local::fake::FakeStripe::new();
    away.fail_all(Some(Fault::Dropped));

    let mut good = Actor::new(async |steps| world.tick_in(&world.scan, &steps, None).await.unwrap());
    good.go_on_to(Step::Observed).await;
    let bad = world.tick_with(&elsewhere, &away, &Steps::Unwatched, None).await.unwrap();
    assert_eq!((bad.outcome, bad.unverifiable), (Outcome::Stopped, 10));
    let report = good.finish().await;
    assert_eq!((report.outcome, report.in_sync), (Outcome::Advanced, 20));

    world.cycle().await;
    (1..=20).for_each(|number| world.stripe.remove(&format!("pi_{number}")));
    let withheld = world.tick().await.unwrap_err();
    let RunError::Withheld { revision, .. } = withheld else { panic!("{withheld:?}") };
    let released = reconciler::store::cursor::release(&world.scan, "payments-vs-stripe", revision).await.unwrap();
    assert_eq!(released, reconciler::store::cursor::Release::Released);
    world.stripe.fail_next(Fault::RateLimited);
    assert_eq!(world.ticked().await.outcome, Outcome::Stopped);
    assert_eq!(world.ticked().await.needs_review, 20, "it is still released");
}

#[tokio::test]
async fn a_limit_met_by_the_list_slows_all_down_too() {
    let world = World::new().await;
    world.pairs(12, "paid", "succeeded").await;
    world.stripe.fail_all(Some(Fault::ServerError));
    world.ticked().await;
    world.ticked().await;
    let list = world.stripe.requests().len() + 10 * 3 + 1;
    world.stripe.fail_nth(list, Fault::RateLimited);
    let report = world.ticked().await;
    assert_eq!((report.outcome, report.throttled, report.requests), (Outcome::Stopped, 1, 31));
    assert_eq!(world.number("select throttle_level::bigint from reconciliation.api_budget").await, 1);
}

#[tokio::test]
async fn a_client_secret_in_the_place_of_a_reference_goes_nowhere() {
    let world = World::new().await;
    world.payment(Some("pi_1_secret_hush"), "paid", 60).await;
    let report = world.ticked().await;
    assert_eq!((report.needs_review, report.requests), (1, 0));
    let finding = world.texts("select kind, external_ref, evidence::text from reconciliation.finding").await.remove(0);
    assert!(finding.starts_with("malformed_reference pi_1_secret_…") && !finding.contains("hush"), "{finding}");
}
