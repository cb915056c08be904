//! What a claim costs, by its plan and by what it touches, not by the clock: it has to stay cheap whatever waits and whatever
//! was delivered.

use dispatch::outbox::claim;

use crate::world::{World, connect};

const WAITING: i64 = 20_000;
const DELIVERED: i64 = 20_000;

#[tokio::test]
async fn a_claim_reads_no_more_than_it_takes_and_touches_no_index() {
    let world = World::new().await;
    let fill = format!(
        "insert into reconciliation.outbox (aggregate, kind, type, payload, created_at, available_at, delivered_at)
         select n::text, 'event', 'PaymentCaptured', '{{}}', '2020-01-01', '2020-01-01', '2020-01-01'
         from generate_series(1, {DELIVERED}) n;
         insert into reconciliation.outbox (aggregate, kind, type, payload, created_at, available_at)
         select n::text, 'command', 'ApplyPaymentSucceeded',
                jsonb_build_object('payment_id', n::text, 'external_ref', 'pi_' || n, 'finding_id', n), '2020-01-01', '2020-01-01'
         from generate_series(1, {WAITING}) n;
         analyze reconciliation.outbox"
    );
    world.owner.batch_execute(&fill).await.unwrap();

    let parameters = [("$1", "timestamptz '2026-01-01'"), ("$2", "500"), ("$3", "60")];
    let sql = include_str!("../../functions/dispatch/src/sql/claim.sql");
    let sql = parameters.iter().fold(sql.to_owned(), |sql, (name, value)| sql.replace(name, value));
    let plan = world.texts(&format!("explain (costs off) {sql}")).await.join("\n");
    assert!(plan.contains("outbox_waiting_in_order") && plan.contains("outbox_waiting_of_an_aggregate"), "{plan}");
    for reads_all in ["Seq Scan", "Hash", "Merge"] {
        assert!(!plan.contains(reads_all), "{reads_all}: {plan}");
    }

    let db = connect(&world.database.url()).await;
    let mut claimed = 0;
    for _ in 0..10 {
        claimed += claim(&db, world.now(), 500, 60).await.unwrap().len();
    }
    db.batch_execute("select pg_stat_force_next_flush()").await.unwrap();
    let updates = "select n_tup_hot_upd * 100 / n_tup_upd from pg_stat_user_tables
                   where schemaname = 'reconciliation' and relname = 'outbox'";
    assert_eq!(claimed, 5_000);
    let in_place = world.number(updates).await;
    assert!(in_place >= 90, "{in_place} % of the rows were claimed on their own page");
}
