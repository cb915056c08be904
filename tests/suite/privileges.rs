//! The reconciler cannot change a payment (promise 6), and each role can do all of its own work.

use tokio_postgres::error::SqlState;

use crate::world::{Adapter, World, connect};

async fn refused(world: &World, role: &str, statements: &[&str]) {
    let client = connect(&world.database.url()).await;
    client.batch_execute(&format!("set role {role}")).await.unwrap();
    for statement in statements {
        let error = client.batch_execute(statement).await.expect_err(statement);
        assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{role}: {statement}: {error:?}");
    }
}

#[tokio::test]
async fn the_scan_role_cannot_change_a_payment() {
    let world = World::new().await;
    world.pair("pi_1", "pending", "succeeded").await;
    let attempts = [
        "update payments set status = 'paid'",
        "insert into payments (order_id) values ('x')",
        "delete from payments",
        "truncate payments",
        "update reconciliation.payment set match_key = 'x'",
        "insert into reconciliation.payment (match_key) values ('x')",
        "delete from reconciliation.payment",
        "insert into payment_ledger (payment_id, entry) values (1, 'x')",
        "select reconciliation.transition('1', 'succeeded', '{\"external_ref\": \"pi_1\"}')",
        "select reconciliation.apply_transition(1, 'succeeded', '{\"external_ref\": \"pi_1\"}')",
        "update reconciliation.outbox set delivered_at = now()",
        "delete from reconciliation.finding",
        "delete from reconciliation.cursor",
        "delete from reconciliation.reverse_window",
        "insert into reconciliation.webhook_inbox values ('evt_1', 't', 'pi_1', now(), 'written')",
    ];
    refused(&world, "reconciler_scan", &attempts).await;
    refused(&world, "reconciler_metrics", &attempts).await;
    assert_eq!(world.texts("select status from payments").await, ["pending"]);
}

#[tokio::test]
async fn the_same_through_another_adapter() {
    let world = World::with(Adapter::UuidCheckout).await;
    let id = world.pair("pi_1", "Processing", "succeeded").await;
    let evidence = "'{\"external_ref\": \"pi_1\"}'";
    refused(
        &world,
        "reconciler_scan",
        &[
            "update shop.checkout_payment set progress = 'Captured'",
            "update reconciliation.payment set match_key = 'x'",
            &format!("select reconciliation.transition('{id}', 'succeeded', {evidence})"),
            &format!("select reconciliation.apply_transition('{id}'::uuid, 'succeeded', {evidence})"),
        ],
    )
    .await;
    let writer = connect(&world.database.url()).await;
    writer.batch_execute("set role reconciler_writer").await.unwrap();
    let transition = format!("select reconciliation.transition('{id}', 'succeeded', {evidence})");
    assert_eq!(writer.query_one(&transition, &[]).await.unwrap().get::<_, &str>(0), "written");
    assert_eq!(world.texts("select state from reconciliation.payment").await, ["paid"]);
    assert_eq!(world.texts("select what from shop.booking").await, ["succeeded"]);
}

#[tokio::test]
async fn the_writer_reaches_a_payment_through_transition_alone_and_no_cursor() {
    let world = World::new().await;
    world.pair("pi_1", "pending", "succeeded").await;
    refused(
        &world,
        "reconciler_writer",
        &[
            "update payments set status = 'paid'",
            "update reconciliation.payment set match_key = 'x'",
            "select reconciliation.apply_transition(1, 'succeeded', '{\"external_ref\": \"pi_1\"}')",
            "update reconciliation.cursor set revision = 9",
            "insert into reconciliation.cursor (job) values ('x')",
            "update reconciliation.observation set verified_through = now()",
            "update reconciliation.webhook_inbox set outcome = 'written'",
            "delete from reconciliation.webhook_inbox",
        ],
    )
    .await;
    let writer = connect(&world.database.url()).await;
    writer.batch_execute("set role reconciler_writer").await.unwrap();
    let transition = "select reconciliation.transition('1', 'succeeded', '{\"external_ref\": \"pi_1\"}')";
    assert_eq!(writer.query_one(transition, &[]).await.unwrap().get::<_, &str>(0), "written");
    writer
        .batch_execute(
            "select from reconciliation.outbox for update skip locked;
             update reconciliation.outbox set delivered_at = now(), fence = fence + 1",
        )
        .await
        .unwrap();
}

#[tokio::test]
async fn the_metrics_role_reads_everything_it_counts() {
    let world = World::new().await;
    world.pairs(3, "pending", "succeeded").await;
    world.cycle().await;
    let metrics = connect(&world.database.url()).await;
    metrics.batch_execute("set role reconciler_metrics").await.unwrap();
    for table in [
        "payment",
        "cursor",
        "observation",
        "finding",
        "orphan_candidate",
        "outbox",
        "api_budget",
        "webhook_inbox",
        "reverse_window",
        "stripe_reads",
    ] {
        let sql = format!("select count(*) from reconciliation.{table}");
        assert!(metrics.query_one(&sql, &[]).await.is_ok(), "{table}");
    }
}

#[tokio::test]
async fn nothing_is_left_to_everybody() {
    let world = World::new().await;
    world.owner.batch_execute("create role bystander nologin").await.ok();
    refused(
        &world,
        "bystander",
        &[
            "select from reconciliation.payment",
            "select from reconciliation.finding",
            "select reconciliation.transition('1', 'succeeded', '{}')",
        ],
    )
    .await;
    let pinned = "select count(*) from pg_proc where pronamespace = 'reconciliation'::regnamespace and prosecdef
                  and proconfig is distinct from array['search_path=pg_catalog, pg_temp']";
    assert_eq!(world.number(pinned).await, 0, "every definer function pins its search_path");
}
