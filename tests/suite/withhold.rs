//! Many confirmed 404s at once are a wrong key or a wrong account before they are drift (promise 11).

use reconciler::scan::RunError;
use reconciler::store::cursor::{Release, release};
use reconciler::telemetry::{Outcome, Report};

use crate::world::World;

async fn withheld(world: &World) -> (i64, String, Box<Report>) {
    let before = world.written().await;
    let error = world.tick().await.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.error_type(), "BatchWithheld");
    let RunError::Withheld { revision, report, job, .. } = error else { panic!("{error:?}") };
    assert_eq!(report.outcome, Outcome::Withheld);
    assert_eq!(world.written().await, before, "nothing is written");
    assert!(text.contains(&format!("cargo review release --job {job} --revision {revision}")), "{text}");
    (revision, text, report)
}

#[tokio::test]
async fn a_flood_of_404s_is_withheld_until_a_person_releases_this_batch() {
    let mut world = World::new().await;
    world.set(&[("BATCH_SIZE", "100"), ("MISSING_CAP", "50")]);
    world.pairs(200, "paid", "succeeded").await;
    for number in (1..=51).chain(101..=200) {
        world.stripe.remove(&format!("pi_{number}"));
    }
    let (revision, text, report) = withheld(&world).await;
    assert!(text.contains("does not know 51 of the 100 payments"), "{text}");
    assert_eq!(report.requests, 100);
    withheld(&world).await;

    assert_eq!(release(&world.scan, "payments-vs-stripe", revision + 1).await.unwrap(), Release::Outdated);
    assert_eq!(release(&world.scan, "no-such-job", revision).await.unwrap(), Release::Outdated);
    withheld(&world).await;
    assert_eq!(release(&world.scan, "payments-vs-stripe", revision).await.unwrap(), Release::Released);
    let report = world.ticked().await;
    assert_eq!((report.outcome, report.needs_review, report.in_sync), (Outcome::Advanced, 51, 49));

    withheld(&world).await; // the next batch is another decision
}

#[tokio::test]
async fn up_to_the_cap_or_up_to_half_goes_through() {
    for missing in [1..=50, 1..=60] {
        let mut world = World::new().await;
        world.set(&[("BATCH_SIZE", "120")]);
        world.pairs(if missing.end() == &50 { 50 } else { 120 }, "paid", "succeeded").await;
        let count = u64::try_from(missing.end() - missing.start() + 1).unwrap();
        for number in missing {
            world.stripe.remove(&format!("pi_{number}"));
        }
        assert_eq!(world.ticked().await.needs_review, count);
    }
}

#[tokio::test]
async fn nothing_but_the_other_mode_is_a_wrong_key() {
    let world = World::new().await;
    world.pairs(3, "paid", "succeeded").await;
    for number in 1..=3 {
        world.stripe.put_in_other_mode(&format!("pi_{number}"));
    }
    let (_, text, _) = withheld(&world).await;
    assert!(text.contains("what a wrong key looks like"), "{text}");
}

#[tokio::test]
async fn a_wrong_key_is_seen_though_it_was_right_before() {
    let world = World::new().await;
    world.pairs(3, "paid", "succeeded").await;
    world.cycle().await;
    for number in 1..=3 {
        world.stripe.put_in_other_mode(&format!("pi_{number}"));
    }
    withheld(&world).await;
}

#[tokio::test]
async fn a_batch_of_nothing_but_test_rows_does_not_hold_up_the_walk_for_ever() {
    let mut world = World::new().await;
    world.set(&[("BATCH_SIZE", "2")]);
    world.pairs(4, "paid", "succeeded").await;
    world.stripe.put_in_other_mode("pi_3");
    world.stripe.put_in_other_mode("pi_4");
    world.cycle().await; // the key opens pi_1, so it is pi_3 and pi_4 that are wrong
    assert_eq!(world.findings().await, ["missing_externally needs_review open"; 2]);
}
