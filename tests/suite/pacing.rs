//! The account's budget is shared (promise 9).

use std::time::Duration;

use local::fake::Fault;
use reconciler::budget::{Budget, Slot};
use reconciler::clock::Clock;
use tokio_postgres::Client;

use crate::world::{START, World};

const LONG: Duration = Duration::from_secs(3600);

async fn take(budget: &Budget, db: &Client) -> Slot {
    budget.take(db, LONG).await.unwrap().expect("a slot within an hour")
}

#[tokio::test]
async fn eleven_calls_at_fifty_a_second_take_at_least_a_fifth_of_a_second() {
    let world = World::new().await;
    let budget = Budget::new("own", 50, world.clock.clone());
    for _ in 0..11 {
        take(&budget, &world.scan).await;
    }
    let took = world.now() - START;
    assert!(took >= time::Duration::milliseconds(190), "{took}");
    assert!(took <= time::Duration::milliseconds(210), "and not much longer: {took}");
}

#[tokio::test]
async fn two_processes_and_three_functions_share_one_budget() {
    let world = World::new().await;
    let other = World::scan_session(&world.database).await;
    let budgets: Vec<Budget> = (0..3).map(|_| Budget::new("own", 10, world.clock.clone())).collect();
    let mut slots = Vec::new();
    for round in 0..30 {
        let db = if round % 2 == 0 { &world.scan } else { &other };
        slots.push(take(&budgets[round % 3], db).await.at);
    }
    for pair in slots.windows(2) {
        assert!(pair[1] - pair[0] >= time::Duration::milliseconds(100), "{pair:?}");
    }
    let theirs = Budget::new("acct_other", 10, world.clock.clone());
    assert_eq!(take(&theirs, &world.scan).await.at, world.now(), "another account has a budget of its own");
}

#[tokio::test]
async fn by_the_databases_clock_each_slot_is_used_no_earlier_than_it_is_free() {
    let world = World::new().await;
    let budget = Budget::new("own", 200, Clock::System);
    let mut last = None;
    for _ in 0..20 {
        let slot = take(&budget, &world.scan).await;
        let now = reconciler::store::database_time(&world.scan).await.unwrap();
        assert!(slot.at <= now, "the wait is over when the slot is free");
        if let Some(last) = last.replace(slot.at) {
            assert!(slot.at - last >= time::Duration::milliseconds(5));
        }
    }
}

#[tokio::test]
async fn a_slot_beyond_the_longest_wait_is_not_taken() {
    let world = World::new().await;
    let budget = Budget::new("own", 1, world.clock.clone());
    let standing = Clock::manual(world.now());
    let hasty = Budget::new("own", 1, standing.clone());
    take(&budget, &world.scan).await;
    assert_eq!(hasty.take(&world.scan, Duration::from_millis(999)).await.unwrap(), None);
    let slot = hasty.take(&world.scan, Duration::from_millis(1000)).await.unwrap().expect("free in a second");
    assert_eq!(slot.at - START, time::Duration::seconds(1), "the one refused before was left for this one");
}

#[tokio::test]
async fn a_429_slows_every_process_down_and_wears_off() {
    let world = World::new().await;
    let other = World::scan_session(&world.database).await;
    let (ours, theirs) = (Budget::new("own", 10, world.clock.clone()), Budget::new("own", 10, world.clock.clone()));
    let gap = async || {
        let (first, second) = (take(&ours, &world.scan).await, take(&theirs, &other).await);
        (second.at - first.at).whole_milliseconds()
    };
    assert_eq!(gap().await, 100);
    let refused = take(&ours, &world.scan).await;
    ours.throttle(&world.scan, refused, None).await.unwrap();
    theirs.throttle(&other, refused, None).await.unwrap(); // of the same moment: counts once
    assert_eq!(gap().await, 200);
    let refused = take(&theirs, &other).await;
    theirs.throttle(&other, refused, Some(Duration::from_secs(7))).await.unwrap();
    let paused = take(&ours, &world.scan).await;
    assert!(paused.at - refused.at >= time::Duration::seconds(7), "what Stripe asks for is kept");
    assert_eq!(gap().await, 400);
    world.pass(1);
    assert_eq!(gap().await, 200, "one level a minute");
    world.pass(1);
    assert_eq!(gap().await, 100);
    for _ in 0..20 {
        let refused = take(&ours, &world.scan).await;
        ours.throttle(&world.scan, refused, None).await.unwrap();
    }
    assert_eq!(gap().await, 6400, "six halvings at the most");
}

#[tokio::test]
async fn a_tick_that_meets_a_429_throttles_the_next_process() {
    let world = World::new().await;
    world.pairs(10, "paid", "succeeded").await;
    world.stripe.fail_nth(3, Fault::RateLimited);
    assert_eq!(world.ticked().await.throttled, 1);
    assert_eq!(world.texts("select throttle_level::text from reconciliation.api_budget").await, ["1"]);
    let other = World::scan_session(&world.database).await;
    let budget = Budget::new("own", 1000, world.clock.clone());
    let (first, second) = (take(&budget, &other).await, take(&budget, &other).await);
    assert_eq!((second.at - first.at).whole_milliseconds(), 2);
}
