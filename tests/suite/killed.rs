//! The real binaries of the dispatcher and of the webhook, killed (SIGKILL) at every place: between their statements, inside
//! them, and in their commit. Nothing is lost, and nothing takes effect twice.

use std::task::Poll;

use reconciler::clock::Clock;
use serde_json::{Value, json};

use crate::binaries::binaries;
use crate::gates::Gates;
use crate::lambda::{Ended, Host};
use crate::webhook::{SECRET, delivery, event, signed};
use crate::world::{World, connect};

pub(crate) const ACTOR: i32 = 1;
/// More places than any of them has.
pub(crate) const PLACES_MAX: u32 = 100;
const LEASES_RUN_OUT: &str =
    "update reconciliation.outbox set lease_expires_at = '2020-01-01' where lease_expires_at > now()";

/// Invokes a function once, lets it pass so many gates, and kills it at the next: what it has printed by then. `None` where it
/// has ended before.
pub(crate) async fn killed_behind(gates: &Gates, host: Host, payload: Value, passed: u32) -> Option<String> {
    let mut invocation = Box::pin(host.invoke(payload));
    for gate in 0..=passed {
        let turn = loop {
            if let Poll::Ready(ended) = futures_util::poll!(invocation.as_mut()) {
                assert!(matches!(ended, Ended::Answered(_)), "{ended:?}");
                return None;
            }
            if let Some(turn) = gates.stands_at(ACTOR).await {
                break turn;
            }
        };
        if gate < passed {
            gates.open(ACTOR, turn).await;
        }
    }
    drop(invocation);
    let (stdout, _) = host.kill();
    gates.abandon(ACTOR).await;
    Some(stdout)
}

/// What the drift of one payment has come to when everything is done: once.
async fn once(world: &World, case: &str) {
    assert_eq!(world.texts("select status from payments").await, ["paid"], "{case}");
    assert_eq!(world.texts("select entry from payment_ledger").await, ["succeeded"], "{case}");
    let events = "select type from reconciliation.outbox where kind = 'event'";
    assert_eq!(world.texts(events).await, ["PaymentCaptured"], "{case}");
}

#[tokio::test]
async fn a_dispatcher_that_is_killed_anywhere_loses_nothing_and_applies_nothing_twice() {
    let dispatch = binaries().join("dispatch");
    let mut repaired_by = [0, 0];
    for passed in 0..PLACES_MAX {
        let case = format!("killed behind gate {passed}");
        let world = World::new().await;
        world.pair("pi_1", "pending", "succeeded").await;
        world.cycle().await;
        let gates = Gates::close(connect(&world.database.url()).await, ACTOR).await;
        let url = Gates::url(&world.database.url(), ACTOR);
        let host = Host::new(&dispatch, &[("DATABASE_URL", &url)]).await;
        if killed_behind(&gates, host, json!({}), passed).await.is_none() {
            // the claim, the mark, the payment, the ledger, the event, the finding; and the commits of both statements
            assert!(passed >= 8, "it has passed {passed} gates only");
            assert!(repaired_by.iter().all(|times| *times > 0), "before and after the commit: {repaired_by:?}");
            return;
        }
        let left = world.number("select count(*) from payments where status = 'pending'").await;
        repaired_by[usize::try_from(left).unwrap()] += 1;
        assert_eq!(world.number("select count(*) from payment_ledger").await, 1 - left, "{case}");

        let next = Host::new(&dispatch, &[("DATABASE_URL", &world.database.url())]).await;
        let mut published = 0;
        for _ in 0..3 {
            world.owner.batch_execute(LEASES_RUN_OUT).await.unwrap();
            let report = next.answer(json!({})).await;
            assert_eq!((&report["failed"], &report["dead"]), (&json!(0), &json!(0)), "{case}");
            published += report["published"].as_u64().unwrap();
        }
        once(&world, &case).await;
        assert_eq!(published, 1, "{case}");
        let open = "select count(*) from reconciliation.outbox where delivered_at is null";
        assert_eq!(world.number(open).await, 0, "{case}");
        assert_eq!(world.findings().await, ["missed_success repairable repaired"], "{case}");
    }
    panic!("it does not come to an end");
}

#[tokio::test]
async fn an_event_goes_out_at_least_once_wherever_the_dispatcher_is_killed() {
    let dispatch = binaries().join("dispatch");
    let mut sent = Vec::new();
    for passed in 0..PLACES_MAX {
        let world = World::new().await;
        world.payment(Some("pi_gone"), "finalizing", 60).await;
        world.cycle().await;
        let gates = Gates::close(connect(&world.database.url()).await, ACTOR).await;
        let host = Host::new(&dispatch, &[("DATABASE_URL", &Gates::url(&world.database.url(), ACTOR))]).await;
        let Some(stdout) = killed_behind(&gates, host, json!({}), passed).await else {
            // at the claim and its commit nothing was sent yet; at the mark it was, and Postgres finishes what it has received
            assert_eq!(sent, [(false, 1), (false, 1), (true, 0), (true, 0)]);
            return;
        };
        world.owner.batch_execute(LEASES_RUN_OUT).await.unwrap();
        let next = Host::new(&dispatch, &[("DATABASE_URL", &world.database.url())]).await;
        let published = next.answer(json!({})).await["published"].as_i64().unwrap();
        sent.push((stdout.contains("PaymentCompensationRequired"), published));
    }
    panic!("it does not come to an end");
}

#[tokio::test]
async fn a_webhook_that_is_killed_anywhere_has_done_nothing_or_all_and_the_redelivery_finds_out() {
    let webhook = binaries().join("webhook");
    let mut outcomes = Vec::new();
    for passed in 0..PLACES_MAX {
        let case = format!("killed behind gate {passed}");
        let world = World::new().await;
        world.payment(Some("pi_1"), "pending", 60).await;
        let gates = Gates::close(connect(&world.database.url()).await, ACTOR).await;
        let body = event("evt_1", "payment_intent.succeeded", "pi_1").to_string();
        let request = delivery(&body, &signed(&body, SECRET, Clock::System.now()));
        let start = async |url: &str| {
            let settings = [("DATABASE_URL", url), ("STRIPE_WEBHOOK_SECRETS", SECRET), ("STRIPE_LIVEMODE", "true")];
            Host::new(&webhook, &settings).await
        };
        let host = start(&Gates::url(&world.database.url(), ACTOR)).await;
        if killed_behind(&gates, host, request.clone(), passed).await.is_none() {
            // the payment, the ledger, the event, the inbox, and two in the commit
            assert_eq!(outcomes, ["written", "written", "written", "written", "duplicate", "duplicate"]);
            return;
        }
        let inbox = world.number("select count(*) from reconciliation.webhook_inbox").await;
        assert_eq!(world.number("select count(*) from payment_ledger").await, inbox, "{case}: all or nothing");
        let redelivered = start(&world.database.url()).await.answer(request).await;
        assert_eq!(redelivered["statusCode"], 200, "{case}");
        outcomes.push(redelivered["body"].as_str().unwrap().to_owned());
        once(&world, &case).await;
        let inbox = "select event_id, outcome from reconciliation.webhook_inbox";
        assert_eq!(world.texts(inbox).await, ["evt_1 written"], "{case}");
    }
    panic!("it does not come to an end");
}
