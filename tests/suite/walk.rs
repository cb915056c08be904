//! The walk: every payment is seen, in both orders, and a cycle has an end.

use reconciler::telemetry::Outcome;
use time::Duration;

use crate::world::{Adapter, World};

async fn four_hundred_and_fifty(mut world: World) {
    world.set(&[("BATCH_SIZE", "200")]);
    let state = if world.keyset == reconciler::store::Keyset::Id { "paid" } else { "Captured" };
    world.pairs(450, state, "succeeded").await;
    // equal created_at across both batch edges
    let table = if state == "paid" { "payments" } else { "shop.checkout_payment" };
    let created = if state == "paid" { "created_at" } else { "first_saved_at" };
    let reference = if state == "paid" { "stripe_payment_intent_id" } else { "intent" };
    world
        .owner
        .batch_execute(&format!(
            "update {table} p set {created} = (select {created} from {table} where {reference} = 'pi_300')
             where substr({reference}, 4)::int between 150 and 430"
        ))
        .await
        .unwrap();

    let reports = world.cycle().await;
    let scanned: Vec<u64> = reports.iter().map(|report| report.scanned).collect();
    let outcomes: Vec<Outcome> = reports.iter().map(|report| report.outcome).collect();
    assert_eq!(scanned, [200, 200, 50, 0]);
    assert_eq!(outcomes, [Outcome::Advanced, Outcome::Advanced, Outcome::Advanced, Outcome::Wrapped]);
    assert_eq!(reports.iter().map(|report| report.in_sync).sum::<u64>(), 450);
    assert_eq!(world.never_verified().await, 0);
    assert_eq!(world.stripe.requests().len(), 450, "each was asked for once");
    let cycle = "select cycle::text, position_id::text, (last_cycle_completed_at >= cycle_started_at)::text
                 from reconciliation.cursor";
    assert_eq!(world.texts(cycle).await, ["1 - true"]);
}

#[tokio::test]
async fn a_cycle_by_id() {
    four_hundred_and_fifty(World::new().await).await;
}

#[tokio::test]
async fn a_cycle_by_created_at_and_id() {
    four_hundred_and_fifty(World::with(Adapter::UuidCheckout).await).await;
}

#[tokio::test]
async fn the_classic_mistake_never_sees_three_hundred_of_five_hundred() {
    // Why the walk goes by key: "the 200 that changed last" is the same 200 every time, as long as nothing changes.
    let world = World::new().await;
    world.pairs(500, "paid", "succeeded").await;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..10 {
        seen.extend(
            world.texts("select id::text from reconciliation.payment order by updated_at desc, id limit 200").await,
        );
    }
    assert_eq!(seen.len(), 200);

    world.cycle().await;
    assert_eq!(world.never_verified().await, 0, "and the walk sees all five hundred");
}

#[tokio::test]
async fn what_is_fresh_is_counted_in_flight_and_met_in_the_next_cycle() {
    for adapter in [Adapter::Default, Adapter::UuidCheckout] {
        let world = World::with(adapter).await;
        let paid = if adapter == Adapter::Default { "paid" } else { "Captured" };
        for (reference, age) in [("pi_1", 60), ("pi_2", 11), ("pi_3", 9), ("pi_4", 1)] {
            world.stripe.put(reference, "succeeded", world.now() - Duration::minutes(age));
            world.payment(Some(reference), paid, age).await;
        }
        let report = world.ticked().await;
        assert_eq!(report.outcome, Outcome::Wrapped, "the cycle ends at the horizon");
        assert_eq!((report.scanned, report.in_sync, report.in_flight), (4, 2, 2));
        assert_eq!(world.stripe.requests(), ["pi_1", "pi_2"]);

        world.pass(10);
        let report = world.ticked().await;
        assert_eq!((report.outcome, report.in_sync), (Outcome::Advanced, 4), "none was skipped");
        assert_eq!(world.never_verified().await, 0);
    }
}

#[tokio::test]
async fn a_payment_that_changed_within_the_grace_period_is_in_flight_and_stripe_is_not_asked() {
    let world = World::new().await;
    world.pair("pi_1", "pending", "succeeded").await;
    world.update("updated_at = $t - interval '9 minutes'".replace("$t", &timestamp(&world)).as_str(), "true").await;
    let report = world.ticked().await;
    assert_eq!((report.scanned, report.in_flight, report.requests), (1, 1, 0));
    assert!(world.stripe.requests().is_empty());
    assert!(world.findings().await.is_empty());
    assert_eq!(world.never_verified().await, 1, "not asked is not verified");
    assert_eq!(world.lag_minutes().await, 60, "and the lag shows it");
}

fn timestamp(world: &World) -> String {
    format!("to_timestamp({})", world.now().unix_timestamp())
}

#[tokio::test]
async fn a_wrong_date_stops_no_walk() {
    let world = World::new().await;
    world.pair("pi_1", "paid", "succeeded").await;
    world.pair("pi_2", "paid", "succeeded").await;
    world.update("created_at = '2099-01-01', updated_at = '2099-01-01'", "stripe_payment_intent_id = 'pi_1'").await;
    world.cycle().await;
    assert_eq!(world.never_verified().await, 0);
}

#[tokio::test]
async fn a_new_cycle_waits_until_it_is_due() {
    let mut world = World::new().await;
    world.set(&[("MIN_CYCLE_SECONDS", "3600")]);
    world.pair("pi_1", "paid", "succeeded").await;
    assert_eq!(world.cycle().await.len(), 2);
    let before = world.written().await;
    world.pass(59);
    let report = world.ticked().await;
    assert_eq!((report.outcome, report.scanned, report.requests), (Outcome::Waiting, 0, 0));
    assert_eq!(world.written().await, before, "waiting writes nothing");
    world.pass(1);
    assert_eq!(world.ticked().await.outcome, Outcome::Advanced);
    assert_eq!(world.number("select cycle from reconciliation.cursor").await, 2);
}

#[tokio::test]
async fn a_cursor_of_the_other_order_starts_over_rather_than_skip() {
    let mut world = World::new().await;
    world.set(&[("BATCH_SIZE", "2")]);
    world.pairs(5, "paid", "succeeded").await;
    world.ticked().await;
    world.keyset = reconciler::store::Keyset::CreatedAt;
    world.update("created_at = created_at - interval '1 day'", "stripe_payment_intent_id = 'pi_5'").await;
    world.cycle().await;
    assert_eq!(world.never_verified().await, 0);
}

#[tokio::test]
async fn deleted_payments_are_forgotten_and_pin_no_lag() {
    for adapter in [Adapter::Default, Adapter::UuidCheckout] {
        let mut world = World::with(adapter).await;
        let pending = if adapter == Adapter::Default { "pending" } else { "Processing" };
        world.set(&[("BATCH_SIZE", "2")]);
        world.pairs(7, pending, "succeeded").await;
        world.cycle().await;
        let table = if adapter == Adapter::Default { "payments" } else { "shop.checkout_payment" };
        let reference = if adapter == Adapter::Default { "stripe_payment_intent_id" } else { "intent" };
        world
            .owner
            .batch_execute(&format!("delete from {table} where {reference} in ('pi_1', 'pi_4', 'pi_7')"))
            .await
            .unwrap();
        world.pass(120);
        world.cycle().await;
        assert_eq!(world.number("select count(*) from reconciliation.observation").await, 4);
        assert!(world.lag_minutes().await < 1);
        let resolutions =
            "select coalesce(resolution, 'open'), count(*)::text from reconciliation.finding group by 1 order by 1";
        assert_eq!(world.texts(resolutions).await, ["open 4", "payment_deleted 3"]);
    }
}

#[tokio::test]
async fn ids_are_compared_as_their_type_not_as_text() {
    let mut world = World::new().await;
    world.set(&[("BATCH_SIZE", "3")]);
    world.pairs(25, "paid", "succeeded").await; // as text, 10 comes before 9
    world.cycle().await;
    assert_eq!(world.never_verified().await, 0);
    assert_eq!(world.stripe.requests().len(), 25);
}

#[tokio::test]
async fn an_old_payment_behind_a_fresh_one_is_seen() {
    // keys that do not grow with time, walked by id all the same
    let world = World::new().await;
    world.stripe.put("pi_fresh", "succeeded", world.now());
    world.payment(Some("pi_fresh"), "paid", 1).await;
    for number in 1..=5 {
        world.pair(&format!("pi_{number}"), "paid", "canceled").await;
    }
    let report = world.ticked().await;
    assert_eq!((report.needs_review, report.in_flight), (5, 1));
    assert_eq!(world.never_verified().await, 1);
}

#[tokio::test]
async fn a_view_that_is_empty_as_a_whole_is_not_believed() {
    let world = World::new().await;
    world.pairs(3, "pending", "succeeded").await;
    world.cycle().await;
    world
        .owner
        .batch_execute("alter table payments rename to hidden; create table payments (like hidden)")
        .await
        .unwrap();
    world.owner.batch_execute(migrate::DEFAULT_ADAPTER).await.unwrap();
    assert_eq!(world.number("select count(*) from reconciliation.payment").await, 0);
    for _ in 0..2 {
        assert_eq!(world.ticked().await.outcome, Outcome::Wrapped);
    }
    assert_eq!(world.number("select count(*) from reconciliation.observation").await, 3);
    assert_eq!(world.findings().await, ["missed_success repairable open"; 3]);
}

#[tokio::test]
async fn no_date_and_no_null_stops_the_walk() {
    let world = World::new().await;
    world.pairs(8, "paid", "succeeded").await;
    world
        .owner
        .batch_execute(
            "alter table payments alter column created_at drop not null, alter column updated_at drop not null",
        )
        .await
        .unwrap();
    for (number, set) in [
        (1, "created_at = 'infinity'"),
        (2, "created_at = '-infinity'"),
        (3, "created_at = '12000-01-01'"),
        (4, "updated_at = null"),
        (5, "updated_at = 'infinity'"),
        (6, "updated_at = '-infinity'"),
        (7, "created_at = null, updated_at = null"),
    ] {
        world.update(set, &format!("stripe_payment_intent_id = 'pi_{number}'")).await;
    }
    world.cycle().await;
    assert_eq!(world.never_verified().await, 0);

    let mut by_time = World::new().await;
    by_time.keyset = reconciler::store::Keyset::CreatedAt;
    by_time.pairs(4, "paid", "succeeded").await;
    by_time.update("created_at = 'infinity'", "stripe_payment_intent_id = 'pi_1'").await;
    by_time.update("created_at = '-infinity'", "stripe_payment_intent_id = 'pi_2'").await;
    by_time.cycle().await;
    assert_eq!(by_time.never_verified().await, 1, "in this order the end of time is met when it has come");
}

#[tokio::test]
async fn a_view_that_names_a_payment_twice_stops_no_walk() {
    let mut world = World::new().await;
    world.set(&[("BATCH_SIZE", "3")]);
    world.pairs(5, "pending", "succeeded").await;
    let view: String = world.rows_of("select pg_get_viewdef('reconciliation.payment'::regclass)").await[0].get(0);
    let twice = format!("{} , generate_series(1, 2)", view.trim_end().trim_end_matches(';'));
    world.owner.batch_execute(&format!("create or replace view reconciliation.payment as {twice}")).await.unwrap();
    world.cycle().await;
    assert_eq!(world.findings().await.len(), 5);
    assert_eq!(world.outbox().await.len(), 5);
}

#[tokio::test]
async fn by_creation_time_a_payment_of_the_future_is_asked_for_like_any_other() {
    let world = World::with(Adapter::UuidCheckout).await;
    world.pair("pi_old", "Captured", "succeeded").await;
    for (reference, minutes) in [("pi_fresh", 1), ("pi_future", -60 * 24 * 365)] {
        world.stripe.put(reference, "succeeded", world.now());
        world.payment(Some(reference), "Captured", minutes).await;
    }
    let report = world.ticked().await;
    assert_eq!((report.in_sync, report.in_flight), (2, 1), "the fresh one waits for the next cycle");
    assert_eq!(world.stripe.requests(), ["pi_old", "pi_future"]);
    assert_eq!(world.ticked().await.outcome, Outcome::Wrapped);
}
