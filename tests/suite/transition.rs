//! The canonical writer: state guard, event and finding in one transaction.

use crate::world::{Adapter, World};

async fn transition(world: &World, id: &str, transition: &str, reference: &str) -> String {
    let sql = format!(
        "select reconciliation.transition('{id}', '{transition}', '{{\"external_ref\": \"{reference}\"}}',
         (select max(id) from reconciliation.finding))"
    );
    world.texts(&sql).await.remove(0)
}

/// Every transition from every state: `w`ritten, `a`lready written, `s`uperseded.
#[rustfmt::skip]
#[expect(clippy::type_complexity, reason = "it is a table")]
const GUARD: [(&str, &str, [(&str, &str); 5]); 3] = [
    ("succeeded", "paid", [("pending", "w"), ("finalizing", "w"), ("expired", "w"), ("paid", "a"), ("failed", "s")]),
    ("canceled", "failed", [("pending", "w"), ("finalizing", "w"), ("expired", "w"), ("paid", "s"), ("failed", "a")]),
    ("failed", "failed", [("pending", "s"), ("finalizing", "w"), ("expired", "w"), ("paid", "s"), ("failed", "a")]),
];

#[tokio::test]
async fn the_state_guard_lets_through_what_the_design_lists() {
    let world = World::new().await;
    for (name, target, states) in GUARD {
        for (state, expected) in states {
            let reference = format!("pi_{name}_{state}");
            let id = world.payment(Some(&reference), state, 60).await;
            let ledger = format!("select count(*) from payment_ledger where payment_id = {id}");
            let events = format!("select count(*) from reconciliation.outbox where aggregate = '{id}'");
            let status = format!("select status from payments where id = {id}");

            assert_eq!(transition(&world, &id, name, "pi_other").await, "superseded", "another PaymentIntent by now");
            assert_eq!(world.texts(&status).await, [state]);

            let answer = transition(&world, &id, name, &reference).await;
            assert!(answer.starts_with(expected), "{name} from {state}: {answer}");
            assert_eq!(
                world.texts(&status).await,
                [if expected == "s" { state } else { target }],
                "{name} from {state}"
            );
            let written = i64::from(expected == "w");
            assert_eq!(world.number(&ledger).await, written, "{name} from {state}");
            assert_eq!(world.number(&events).await, written, "{name} from {state}");

            // again: no second effect
            let again = transition(&world, &id, name, &reference).await;
            assert_eq!(again, if expected == "s" { "superseded" } else { "already_written" });
            assert_eq!(world.number(&ledger).await, written);
            assert_eq!(world.number(&events).await, written);
        }
    }
    let types = "select type, count(*)::text from reconciliation.outbox group by type order by type";
    assert_eq!(world.texts(types).await, ["PaymentCaptured 3", "PaymentFailed 5"]);
}

#[tokio::test]
async fn superseded_leaves_the_finding_open_and_already_written_closes_it() {
    let world = World::new().await;
    let id = world.pair("pi_1", "pending", "succeeded").await;
    world.cycle().await;
    world.update("status = 'failed'", "true").await;
    assert_eq!(transition(&world, &id, "succeeded", "pi_1").await, "superseded");
    assert_eq!(world.findings().await, ["missed_success repairable open"]);
    world.update("status = 'paid'", "true").await;
    assert_eq!(transition(&world, &id, "succeeded", "pi_1").await, "already_written");
    assert_eq!(world.findings().await, ["missed_success repairable already_written"]);
    assert_eq!(world.outbox().await, ["command ApplyPaymentSucceeded"], "no event without a change");
}

#[tokio::test]
async fn a_persons_transitions_and_nonsense_are_refused() {
    for adapter in [Adapter::Default, Adapter::UuidCheckout] {
        let world = World::with(adapter).await;
        let state = if adapter == Adapter::Default { "paid" } else { "Captured" };
        let id = world.payment(Some("pi_1"), state, 60).await;
        let good = "'{\"external_ref\": \"pi_1\", \"review_id\": 1}'";
        for call in [
            format!("'{id}', 'reverse_paid', {good}"),
            format!("'{id}', 'accept_late_success', {good}"),
            format!("'{id}', 'refund', {good}"),
            format!("'{id}', null, {good}"),
            format!("'{id}', 'succeeded', '{{}}'"),
            format!("'{id}', 'succeeded', null"),
        ] {
            let sql = format!("select reconciliation.transition({call})");
            assert!(world.owner.query(&sql, &[]).await.is_err(), "{call}");
        }
        let states = world.texts("select state from reconciliation.payment").await;
        assert_eq!(states, ["paid"]);
        assert!(world.outbox().await.is_empty());
    }
}

#[tokio::test]
async fn an_adapter_that_answers_nonsense_is_told_so_and_nothing_is_written() {
    let world = World::new().await;
    let id = world.payment(Some("pi_1"), "pending", 60).await;
    world
        .owner
        .batch_execute(
            "create or replace function reconciliation.apply_transition(payment_id bigint, transition text, evidence jsonb)
             returns text language sql as $$ update public.payments set status = 'paid'; select 'ok' $$",
        )
        .await
        .unwrap();
    let sql = format!("select reconciliation.transition('{id}', 'succeeded', '{{\"external_ref\": \"pi_1\"}}')");
    let error = world.owner.query(&sql, &[]).await.unwrap_err();
    assert!(format!("{error:?}").contains("apply_transition answered ok"), "{error:?}");
    assert_eq!(world.texts("select status from payments").await, ["pending"]);
}
