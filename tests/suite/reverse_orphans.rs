//! Orphans: confirmed twice before they become a finding, followed until they end, and over when a payment names them. And
//! payments whose charge a complete window has not met.

use local::fake::Fault;
use reconciler::scan::steps::Steps;
use reconciler::telemetry::{Outcome, Report};
use reverse_scan::Input;
use time::Duration;

use crate::world::{World, connect};

const INSERT: &str = "insert into payments (order_id, stripe_payment_intent_id, status, created_at, updated_at)
                      values ('late', 'pi_1', 'paid', to_timestamp($1), to_timestamp($1))";

fn looks(report: &Report) -> u64 {
    report.reverse.as_ref().expect("the reverse scan's figures").looks
}

async fn candidates(world: &World) -> Vec<String> {
    world.texts("select external_ref, status from reconciliation.orphan_candidate order by 1").await
}

async fn matching() -> World {
    let mut world = World::new().await;
    world.set(&[("MATCH_METADATA_KEY", "order"), ("MISSING_CAP", "1000")]);
    world
}

/// A payment that its PaymentIntent names in turn: the metadata key is the right one.
async fn matched(world: &World) {
    world.stripe.put("pi_matched", "succeeded", world.now() - Duration::hours(3));
    world.stripe.set_metadata("pi_matched", "order", "matched");
    world.payment_of("matched", Some("pi_matched"), "paid", 180).await;
}

fn charge(world: &World, id: &str, status: &str, order: Option<&str>, minutes: i64) {
    world.stripe.put(id, status, world.now() - Duration::minutes(minutes));
    if let Some(order) = order {
        world.stripe.set_metadata(id, "order", order);
    }
}

#[tokio::test]
async fn an_object_whose_transaction_is_still_open_is_no_orphan() {
    let world = World::new().await;
    let at = world.now().unix_timestamp() as f64;
    let checkout = connect(&world.database.url()).await;
    checkout.batch_execute("begin").await.unwrap();
    checkout.execute(INSERT, &[&at]).await.unwrap();
    world.stripe.put("pi_1", "succeeded", world.now());
    world.pass(11);
    world.reverse().await;
    assert_eq!(candidates(&world).await, ["pi_1 succeeded"]);
    checkout.batch_execute("commit").await.unwrap();
    world.pass(11);
    let report = world.reverse().await;
    assert_eq!(report.findings_opened, 0);
    assert!(candidates(&world).await.is_empty() && world.findings().await.is_empty());
    assert!(!world.stripe.requests().contains(&"pi_1".to_owned()), "a payment names it: nothing to ask");
}

#[tokio::test]
async fn rolled_back_it_is_one_after_the_second_look_a_grace_period_later() {
    let world = World::new().await;
    let at = world.now().unix_timestamp() as f64;
    let checkout = connect(&world.database.url()).await;
    checkout.batch_execute("begin").await.unwrap();
    checkout.execute(INSERT, &[&at]).await.unwrap();
    world.stripe.put("pi_1", "succeeded", world.now());
    world.stripe.set_metadata("pi_1", "email", "somebody@shop.example");
    world.pass(11);
    world.reverse().await;
    checkout.batch_execute("rollback").await.unwrap();
    world.pass(9);
    assert_eq!((looks(&world.reverse().await), world.findings().await.len()), (0, 0), "not before a grace period");
    world.pass(1);
    let report = world.reverse().await;
    assert_eq!((looks(&report), report.findings_opened), (1, 1));
    assert_eq!(report.opened_by_kind["orphan_charge"], 1);
    assert_eq!(world.stripe.requests().iter().filter(|asked| *asked == "pi_1").count(), 1, "by a direct retrieve");
    assert_eq!(world.findings().await, ["orphan_charge needs_review open"]);
    let row =
        "select payment_id::text, external_ref, external_status, evidence ->> 'currency', evidence ->> 'amount_minor'
               from reconciliation.finding";
    assert_eq!(world.texts(row).await, ["- pi_1 succeeded eur 1000"]);
    let evidence = world.texts("select evidence::text from reconciliation.finding").await.remove(0);
    assert!(!evidence.contains("example") && !evidence.contains("secret"), "{evidence}");
    assert!(candidates(&world).await.is_empty() && world.outbox().await.is_empty());

    // seen again it stays one
    let input = Input { from: Some(world.now() - Duration::days(1)) };
    for _ in 0..3 {
        world.pass(15);
        world.reverse_in(&world.scan, &Steps::Unwatched, None, &input).await.unwrap();
        assert!(candidates(&world).await.is_empty());
    }
    assert_eq!(world.findings().await, ["orphan_charge needs_review open"]);
    let seen = "select (last_seen_at - detected_at)::text from reconciliation.finding";
    assert!(world.texts(seen).await[0].starts_with("00:45"), "{:?}", world.texts(seen).await);

    // and with its payment it is over
    checkout.execute(INSERT, &[&at]).await.unwrap();
    let report = world.reverse().await;
    assert_eq!((report.findings_closed, report.closed_by_kind["orphan_charge"]), (1, 1));
    assert_eq!(world.findings().await, ["orphan_charge needs_review in_sync_again"]);
    assert!(candidates(&world).await.is_empty());
}

#[tokio::test]
async fn a_payment_that_commits_during_the_second_look_is_no_orphan() {
    let world = World::new().await;
    let at = world.now().unix_timestamp() as f64;
    world.stripe.put("pi_1", "succeeded", world.now() - Duration::hours(1));
    world.reverse().await;
    world.pass(11);
    let mut tick = crate::schedule::Actor::new(async |steps| {
        world.reverse_in(&world.scan, &steps, None, &Input::default()).await.unwrap()
    });
    tick.go_on_to(reconciler::scan::steps::Step::Decided).await;
    world.owner.execute(INSERT, &[&at]).await.unwrap();
    tick.finish().await;
    assert!(world.findings().await.is_empty() && candidates(&world).await.is_empty());
}

#[tokio::test]
async fn what_took_no_money_opens_no_finding_and_is_given_up_in_the_end() {
    let world = World::new().await;
    charge(&world, "pi_cart", "requires_payment_method", None, 60);
    charge(&world, "pi_canceled", "canceled", None, 60);
    charge(&world, "pi_debit", "processing", None, 60);
    world.reverse().await;
    assert_eq!(candidates(&world).await, ["pi_cart requires_payment_method", "pi_debit processing"]);
    for _ in 0..24 * 36 {
        world.pass(60);
        world.reverse().await;
    }
    assert!(world.findings().await.is_empty());
    assert_eq!(candidates(&world).await, ["pi_debit processing"], "what is under way is never given up");
    let asked = |id: &str| world.stripe.requests().iter().filter(|asked| *asked == id).count();
    assert!((8..16).contains(&asked("pi_cart")), "{}", asked("pi_cart"));
    assert!((35..50).contains(&asked("pi_debit")), "once a day: {}", asked("pi_debit"));
    assert_eq!(asked("pi_canceled"), 0);

    // and long after its window it succeeds
    world.stripe.set_status("pi_debit", "succeeded");
    world.pass(24 * 60 + 1);
    assert_eq!(world.reverse().await.findings_opened, 1);
    assert_eq!(world.findings().await, ["orphan_charge needs_review open"]);
}

#[tokio::test]
async fn held_money_is_an_orphan_until_it_is_let_go() {
    let world = World::new().await;
    charge(&world, "pi_held", "requires_capture", None, 60);
    world.reverse().await;
    world.pass(11);
    world.reverse().await;
    assert_eq!(world.findings().await, ["orphan_charge needs_review open"]);
    world.stripe.set_status("pi_held", "canceled");
    world.pass(25);
    let report = world.reverse().await;
    assert_eq!(report.closed_by_kind["orphan_charge"], 1);
    assert_eq!(world.findings().await, ["orphan_charge needs_review in_sync_again"]);
    assert!(candidates(&world).await.is_empty());
}

#[tokio::test]
async fn a_charge_that_names_a_payment_without_reference_is_unlinked_and_no_forward_scan_closes_it() {
    let world = matching().await;
    let id = world.payment_of("order-7", None, "finalizing", 90).await;
    charge(&world, "pi_first", "succeeded", Some("order-7"), 80);
    charge(&world, "pi_second", "succeeded", Some("order-7"), 70);
    charge(&world, "pi_other", "succeeded", Some("order-8"), 60);
    world.payment_of("order-8", Some("pi_linked"), "paid", 90).await; // which has its own
    charge(&world, "pi_linked", "succeeded", Some("order-8"), 90);
    world.reverse().await;
    world.pass(11);
    world.reverse().await;
    let rows =
        "select external_ref, kind, evidence ->> 'payment_id', payment_id::text, evidence -> 'metadata' ->> 'order'
                from reconciliation.finding order by id";
    assert_eq!(
        world.texts(rows).await,
        [
            format!("pi_first unlinked_charge {id} - order-7"),
            "pi_other orphan_charge - - order-8".to_owned(),
            format!("pi_second unlinked_charge {id} - order-7"), // charged twice is two findings
        ]
    );
    world.cycle().await;
    world.pass(20);
    world.window().await;
    let open = "select external_ref from reconciliation.finding where resolved_at is null order by 1";
    assert_eq!(world.texts(open).await, ["pi_first", "pi_other", "pi_second"]);
    assert!(world.outbox().await.is_empty(), "it is explained: nobody is to be compensated");

    world.update("stripe_payment_intent_id = 'pi_first'", "order_id = 'order-7'").await;
    world.reverse().await;
    assert_eq!(world.texts(open).await, ["pi_other", "pi_second"]);
}

#[tokio::test]
async fn an_orphan_that_a_person_accepted_stays_closed_until_it_changes() {
    let world = World::new().await;
    charge(&world, "pi_1", "requires_capture", None, 60);
    world.reverse().await;
    world.pass(11);
    world.reverse().await;
    world.accept().await;
    for _ in 0..5 {
        world.pass(60);
        assert_eq!(world.reverse().await.findings_opened, 0);
    }
    world.stripe.set_status("pi_1", "succeeded");
    world.pass(24 * 60);
    assert_eq!(world.reverse().await.findings_opened, 1);
}

#[tokio::test]
async fn others_objects_are_none_of_ours() {
    let mut world = World::new().await;
    world.set(&[("REVERSE_METADATA_KEY", "app=shop"), ("REVERSE_CURRENCY", "eur")]);
    charge(&world, "pi_theirs", "succeeded", None, 60);
    charge(&world, "pi_ours", "succeeded", None, 60);
    world.stripe.set_metadata("pi_ours", "app", "shop");
    world.stripe.set_metadata("pi_theirs", "app", "blog");
    world.pair("pi_unmarked", "paid", "succeeded").await;
    let report = world.reverse().await;
    assert_eq!(report.in_sync, 1, "what a payment names is ours, whatever the filter says");
    assert_eq!(report.reverse.as_ref().unwrap().foreign, 1);
    assert_eq!(candidates(&world).await, ["pi_ours succeeded"]);
    world.pass(11);
    world.reverse().await;
    let marker = "select evidence -> 'metadata' ->> 'app' from reconciliation.finding";
    assert_eq!(world.texts(marker).await, ["shop"]);

    // another filter is another walk: the window under way begins anew
    world.set(&[("REVERSE_PAGES", "1")]);
    for number in 0..150 {
        charge(&world, &format!("pi_{number}"), "canceled", None, 5);
    }
    world.pass(20);
    assert_eq!(world.reverse().await.outcome, Outcome::Advanced);
    world.set(&[("REVERSE_PAGES", "2"), ("REVERSE_CURRENCY", "eur,usd")]);
    let report = world.reverse().await;
    assert_eq!((report.outcome, report.reverse.unwrap().objects), (Outcome::Wrapped, 150));
}

#[tokio::test]
async fn an_object_of_the_other_mode_is_a_wrong_key_and_no_drift() {
    let mut world = World::new().await;
    world.set(&[("STRIPE_LIVEMODE", "true")]);
    charge(&world, "pi_1", "succeeded", None, 60);
    let before = world.written().await;
    let ended = world.reverse_in(&world.scan, &Steps::Unwatched, None, &Input::default()).await;
    assert_eq!(ended.unwrap_err().error_type(), "StripeKeyRefused");
    assert!(candidates(&world).await.is_empty() && before.is_empty());
    world.stripe.set_livemode("pi_1", true);
    assert_eq!(world.window().await.len(), 1);
    assert_eq!(candidates(&world).await.len(), 1);
}

#[tokio::test]
async fn an_account_of_nothing_but_strangers_looks_like_a_wrong_one() {
    let mut world = World::new().await;
    world.set(&[("MISSING_CAP", "5")]);
    for number in 0..6 {
        charge(&world, &format!("pi_{number}"), "succeeded", None, 60);
    }
    world.reverse().await;
    world.pass(30);
    assert_eq!(looks(&world.window().await[0]), 0);
    assert!(world.findings().await.is_empty());
    // one that is known is enough: then they are what they look like
    world.stripe.put("pi_known", "succeeded", world.now() - Duration::minutes(20));
    world.payment(Some("pi_known"), "paid", 20).await;
    world.pass(1);
    world.window().await;
    world.reverse().await;
    assert_eq!(world.findings().await, ["orphan_charge needs_review open"; 6]);
}

#[tokio::test]
async fn carts_wait_behind_what_may_be_money() {
    let world = matching().await;
    for number in 0..120 {
        charge(&world, &format!("pi_cart_{number}"), "requires_payment_method", None, 90);
    }
    charge(&world, "pi_money", "succeeded", None, 30);
    world.reverse().await;
    world.pass(11);
    let report = world.reverse().await;
    assert_eq!((looks(&report), report.findings_opened), (50, 1));
    assert_eq!((looks(&world.reverse().await), looks(&world.reverse().await)), (50, 21), "and have their turn");
}

#[tokio::test]
async fn candidates_that_do_not_answer_hold_up_nobody_and_pages_get_half_of_the_time() {
    let mut world = World::new().await;
    world.set(&[("MISSING_CAP", "1000"), ("REQUESTS_PER_SECOND", "10")]);
    for number in 0..60 {
        charge(&world, &format!("pi_{number}"), "succeeded", None, 60);
        world.stripe.fail(&format!("pi_{number}"), Fault::Html);
    }
    world.reverse().await;
    world.pass(11);
    world.pair("pi_known", "paid", "succeeded").await;
    world.stripe.put("pi_known", "succeeded", world.now() - Duration::minutes(15));
    let deadline = world.now() + Duration::seconds(4);
    let report = world.reverse_in(&world.scan, &Steps::Unwatched, Some(deadline), &Input::default()).await.unwrap();
    assert_eq!((report.outcome, report.in_sync), (Outcome::Wrapped, 1), "{report:?}");
    assert!(world.findings().await.is_empty());
    assert_eq!(candidates(&world).await.len(), 60, "none is given up for it");

    // an outage is nobody's fault: none is put off
    let due = "select count(*) from reconciliation.orphan_candidate where next_look_at <= last_checked_at";
    assert_eq!(world.number(due).await, 0);
    world.pass(60);
    world.stripe.fail_all(Some(Fault::Dropped));
    let next = "select min(next_look_at)::text from reconciliation.orphan_candidate";
    let before = world.texts(next).await;
    assert_eq!(world.reverse().await.outcome, Outcome::Stopped);
    assert_eq!(world.texts(next).await, before);
}

#[tokio::test]
async fn a_sent_payment_whose_charge_is_not_there_is_reported_once() {
    let world = matching().await;
    matched(&world).await;
    let lost = world.payment_of("lost", None, "finalizing", 60 * 24 * 2).await;
    world.payment_of("lost too", None, "expired", 60 * 24 * 2).await;
    world.payment_of("cart", None, "pending", 60 * 24 * 2).await;
    world.payment_of("explained", None, "finalizing", 60 * 24 * 2).await;
    charge(&world, "pi_explains", "requires_action", Some("explained"), 60 * 24);
    world.payment_of("canceled", None, "finalizing", 60 * 24 * 2).await;
    charge(&world, "pi_canceled", "canceled", Some("canceled"), 60 * 24);
    world.payment_of("tried twice", None, "finalizing", 60 * 24 * 2).await;
    world.payment_of("tried twice", Some("pi_twice"), "paid", 60 * 24).await;
    charge(&world, "pi_twice", "succeeded", Some("tried twice"), 60 * 24);
    world.payment_of("young", None, "finalizing", 60).await;
    world.payment_of("older than the proof", None, "finalizing", 60 * 24 * 7).await;
    let report = world.window().await.pop().unwrap();
    assert_eq!(report.reverse.as_ref().unwrap().unexplained, 3);
    assert_eq!(report.opened_by_kind["no_external_reference"], 3);
    let reported = "select p.order_id from reconciliation.finding f join payments p on p.id = f.payment_id
                    where f.kind = 'no_external_reference' and f.resolved_at is null order by 1";
    assert_eq!(world.texts(reported).await, ["canceled", "lost", "lost too"]);
    assert_eq!(world.outbox().await, ["event PaymentCompensationRequired"; 3]);

    // the next windows and the forward scan change nothing, but for the young one, which has its hour by then
    for _ in 0..3 {
        world.pass(30);
        world.window().await;
        world.cycle().await;
    }
    assert_eq!(world.texts(reported).await, ["canceled", "lost", "lost too", "young"]);
    assert_eq!(world.outbox().await, ["event PaymentCompensationRequired"; 4]);
    let seen =
        format!("select (last_seen_at > detected_at)::text from reconciliation.finding where payment_id = {lost}");
    assert_eq!(world.texts(&seen).await, ["true"]);

    // after a month it is stalled, and that it stays
    world.pass(60 * 24 * 31);
    for _ in 0..2 {
        world.window().await;
        world.cycle().await;
        world.pass(30);
    }
    let kinds = format!(
        "select kind, coalesce(resolution, 'open') from reconciliation.finding where payment_id = {lost} order by id"
    );
    assert_eq!(world.texts(&kinds).await, ["no_external_reference replaced", "stalled_in_flight open"]);
}

#[tokio::test]
async fn an_incomplete_window_explains_nothing_away() {
    let mut world = World::new().await;
    world.set(&[("MATCH_METADATA_KEY", "order"), ("REVERSE_PAGES", "1")]);
    matched(&world).await;
    world.payment_of("lost", None, "finalizing", 60 * 24 * 2).await;
    for number in 0..250 {
        charge(&world, &format!("pi_{number}"), "canceled", None, 60);
    }
    for pages in 1..=2 {
        assert_eq!(world.reverse().await.outcome, Outcome::Advanced, "{pages}");
        assert!(world.findings().await.is_empty() && world.outbox().await.is_empty());
    }
    assert_eq!(world.reverse().await.outcome, Outcome::Wrapped);
    assert_eq!(world.findings().await, ["no_external_reference needs_review open"]);
}

#[tokio::test]
async fn nothing_is_concluded_without_the_metadata_key_or_with_a_wrong_one() {
    for key in ["", "order_number"] {
        let mut world = World::new().await;
        world.set(&[("MATCH_METADATA_KEY", key)]);
        matched(&world).await;
        world.payment_of("lost", None, "finalizing", 60 * 24 * 2).await;
        let report = world.window().await.pop().unwrap();
        assert_eq!((report.findings_opened, world.outbox().await.len()), (0, 0), "{key:?}");

        // with the right one from now on the past is not proven: it was walked for something else
        world.set(&[("MATCH_METADATA_KEY", "order")]);
        world.pass(120);
        world.window().await;
        assert!(world.outbox().await.is_empty(), "{key:?}");
        let input = Input { from: Some(world.now() - Duration::days(7)) };
        world.reverse_in(&world.scan, &Steps::Unwatched, None, &input).await.unwrap();
        assert_eq!(world.outbox().await.len(), 1, "{key:?}: and walked again it is");
    }
}
