//! `migrate`: what it refuses, what it says, and that looking changes nothing.

use std::path::Path;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use local::postgres::{ClusterOptions, Settings, environment, own_cluster, shared_cluster};
use migrate::check::{Checked, check};
use migrate::{DEFAULT_ADAPTER, MigrateError, apply, apply_for, invocation};
use reconciler::clock::Clock;
use reconciler::store::Keyset;
use reconciler::store::ports::Defect;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::binaries::{binaries, start};
use crate::lambda::{Ended, Host};
use crate::world::{Adapter, World, connect};

async fn checked(world: &World) -> Checked {
    check(&mut connect(&world.database.url()).await, None).await.unwrap()
}

/// What the check says of a world after this was done to it.
async fn checked_after(adapter: Adapter, broken: &str) -> Checked {
    let world = World::with(adapter).await;
    world.owner.batch_execute(broken).await.unwrap_or_else(|error| panic!("{broken}: {error}"));
    checked(&world).await
}

fn lines(defects: &[Defect]) -> Vec<&str> {
    defects.iter().map(|defect| defect.what.as_str()).collect()
}

/// The view of the default adapter with one column as given.
fn view(column: &str, expression: &str) -> String {
    let columns = [
        ("id", "p.id"),
        ("external_ref", "p.stripe_payment_intent_id"),
        ("match_key", "p.order_id"),
        ("state", "p.status"),
        ("created_at", "p.created_at"),
        ("updated_at", "p.updated_at"),
        ("version", "p.xmin::text"),
    ];
    let columns = columns.map(|(name, as_it_is)| {
        let expression = if name == column { expression } else { as_it_is };
        format!("{expression} as {name}")
    });
    format!(
        "drop view reconciliation.payment; create view reconciliation.payment as select {} from public.payments p;
         grant select on reconciliation.payment to reconciler_scan, reconciler_writer, reconciler_metrics,
             reconciler_reviewer",
        columns.join(", ")
    )
}

/// The same with columns besides.
fn with_columns(columns: &str) -> String {
    view("", "").replace(" from public.payments", &format!(", {columns} from public.payments"))
}

#[tokio::test]
async fn both_adapters_are_fit_and_what_is_slow_is_said() {
    for (adapter, behind) in
        [(Adapter::Default, "payments.created_at"), (Adapter::UuidCheckout, "shop.checkout_payment.first_saved_at")]
    {
        let checked = checked_after(adapter, "").await;
        assert_eq!(lines(&checked.errors), [""; 0], "{adapter:?}");
        let warnings = lines(&checked.warnings);
        assert!(warnings.len() == 1 && warnings[0].starts_with("the sweep finds its suspects"), "{warnings:?}");
        let proved = format!("created_at is never null: {behind} is `not null`");
        assert!(checked.looked_at.contains(&proved), "{:?}", checked.looked_at);
        assert!(checked.looked_at.iter().any(|line| line == "state is not null in any row of the sample"));
    }
}

#[tokio::test]
async fn an_index_of_suspects_alone_is_what_the_sweep_wants() {
    let index = "create index on payments (created_at, id) where
        case status when 'pending' then 'pending' when 'paid' then 'paid' when 'failed' then 'failed' else status end
        in ('pending', 'finalizing', 'expired')";
    let checked = checked_after(Adapter::Default, index).await;
    assert_eq!((lines(&checked.errors), lines(&checked.warnings)), (vec![], vec![]));
}

/// Each is one thing that is wrong, and the beginning of the one error that says so.
#[tokio::test]
async fn each_thing_that_is_wrong_is_one_error_that_says_how_to_mend_it() {
    let write_port = "create function reconciliation.apply_transition(id integer, t text, e jsonb) returns text language sql as $$ select 'written' $$;
        revoke execute on function reconciliation.apply_transition(integer, text, jsonb) from public";
    for (broken, what) in [
        // ports
        ("drop view reconciliation.payment".to_owned(), "the view reconciliation.payment is not there"),
        (view("external_ref", "1"), "the column external_ref of the view reconciliation.payment is integer"),
        (
            view("created_at", "p.created_at::timestamp"),
            "the column created_at of the view reconciliation.payment is timestamp without",
        ),
        (view("version", "1::numeric"), "the column version of the view"),
        (
            with_columns("1::numeric as amount_minor"),
            "the column amount_minor of the view reconciliation.payment is numeric, and has to be bigint",
        ),
        (
            with_columns("1 as refunded_minor"),
            "the column refunded_minor of the view reconciliation.payment is integer",
        ),
        (with_columns("1 as currency"), "the column currency of the view reconciliation.payment is integer"),
        (with_columns("1 as account"), "the column account of the view reconciliation.payment is integer"),
        (
            view("id", "gen_random_uuid()"),
            "the column id of the view reconciliation.payment is of a uuid key, but the schema was made for bigint",
        ),
        (
            "drop function reconciliation.apply_transition(bigint, text, jsonb)".to_owned(),
            "the function reconciliation.apply_transition(bigint, text, jsonb) returning text is missing (there is none)",
        ),
        (
            format!("drop function reconciliation.apply_transition(bigint, text, jsonb); {write_port}"),
            "the function reconciliation.apply_transition(bigint, text, jsonb) returning text is missing (found: integer, text, jsonb -> text)",
        ),
        ("drop function reconciliation.transition".to_owned(), "the function reconciliation.transition is missing"),
        (
            view("", "").replace("create view", "create materialized view"),
            "reconciliation.payment is a materialized view, which shows the payments as they were when it was refreshed",
        ),
        // versions
        (
            "delete from reconciliation.applied_migration where version in (3, 7)".to_owned(),
            "versions of the schema are not applied: V3__tables, V7__outbox_in_order",
        ),
        (
            "insert into reconciliation.applied_migration values (9999, 'x', now()::text, '1')".to_owned(),
            "the schema has versions that this program does not know: 9999",
        ),
        // plans
        (
            view("id", "p.id + 0"),
            "the walk by id is answered by no index: every batch reads payments from end to end and sorts all that it reads",
        ),
        ("alter table payments drop constraint payments_pkey".to_owned(), "the walk by id is answered by no index"),
        (with_columns("row_number() over (order by p.order_id) as place"), "the walk by id is answered by no index"),
        // rows
        (
            format!(
                "alter table payments alter created_at drop not null; insert into payments (order_id, created_at) values ('o', null); {}",
                view("", "")
            ),
            "the column created_at of the view reconciliation.payment is null in some rows: such a payment has no place",
        ),
        (
            format!("insert into payments (order_id) values ('o'); {}", view("state", "null::text")),
            "the column state of the view reconciliation.payment is null in some rows",
        ),
        (
            format!("insert into payments (order_id) values ('o'); {}", view("version", "null::text")),
            "the column version of the view reconciliation.payment is null in some rows",
        ),
        (
            format!("insert into payments (order_id) values ('o'); {}", view("state", "(1 / (p.version - 1))::text")),
            "the view reconciliation.payment cannot be read: division by zero",
        ),
        // privileges
        (
            "grant update on payments to reconciler_scan".to_owned(),
            "the role reconciler_scan may change payments: it may write to payments",
        ),
        (
            "grant update (status) on payments to reconciler_metrics".to_owned(),
            "the role reconciler_metrics may change payments: it may write to payments",
        ),
        (
            "grant insert on reconciliation.payment to reconciler_writer".to_owned(),
            "the role reconciler_writer may change payments: it may write to reconciliation.payment",
        ),
        (
            "grant execute on function reconciliation.transition to reconciler_scan".to_owned(),
            "the role reconciler_scan may call reconciliation.transition(",
        ),
        (
            "grant execute on function reconciliation.apply_transition to reconciler_writer".to_owned(),
            "the role reconciler_writer may call reconciliation.apply_transition(",
        ),
        (
            "revoke execute on function reconciliation.transition from reconciler_writer".to_owned(),
            "the role reconciler_writer may not call reconciliation.transition(",
        ),
        (
            "revoke select on reconciliation.payment from reconciler_scan".to_owned(),
            "the role reconciler_scan may not read the view",
        ),
        (
            "revoke usage on schema reconciliation from reconciler_metrics".to_owned(),
            "the role reconciler_metrics may not use the schema",
        ),
        (
            "grant usage on schema reconciliation to public".to_owned(),
            "everybody (PUBLIC) has USAGE on the schema reconciliation",
        ),
        (
            "grant select on reconciliation.finding to public".to_owned(),
            "everybody (PUBLIC) has SELECT on reconciliation.finding",
        ),
        (
            "grant select (evidence) on reconciliation.finding to public".to_owned(),
            "everybody (PUBLIC) has SELECT on the column evidence of reconciliation.finding",
        ),
        (
            "create function reconciliation.new_one() returns int language sql as 'select 1'".to_owned(),
            "everybody (PUBLIC) has EXECUTE on reconciliation.new_one()",
        ),
        (
            "alter function reconciliation.apply_transition reset search_path".to_owned(),
            "the function reconciliation.apply_transition(",
        ),
    ] {
        let checked = checked_after(Adapter::Default, &broken).await;
        let found = checked.errors.iter().filter(|error| error.what.starts_with(what)).count();
        assert_eq!(found, 1, "{broken}\n{what}\n{checked}");
        assert_eq!(checked.errors.len(), 1, "{broken}\n{what}\n{checked}");
        assert!(!checked.errors[0].mend.is_empty(), "{checked}");
    }
}

#[tokio::test]
async fn everything_that_is_wrong_is_in_one_list() {
    let broken =
        format!("{}; grant update on payments to reconciler_scan", with_columns("1 as account, 1 as currency"));
    let checked = checked_after(Adapter::Default, &broken).await;
    assert_eq!(checked.errors.len(), 3, "{checked}");
    let list = checked.to_string();
    for part in ["3 errors", "error 3: ", "account", "currency", "reconciler_scan", "not at plans and rows"] {
        assert!(list.contains(part), "{part}: {list}");
    }
}

#[tokio::test]
async fn what_works_and_costs_something_is_a_warning() {
    let unmapped =
        "insert into payments (order_id, status) select 'o', 'odd_' || n % 30 from generate_series(1, 300) n";
    for (adapter, broken, what, part) in [
        (
            Adapter::Default,
            unmapped.to_owned(),
            "the view's state has values that map to none of ours",
            "\"odd_0\", \"odd_1\", \"odd_10\"",
        ),
        (Adapter::Default, unmapped.to_owned(), "the view's state has values that map to none of ours", " and 10 more"),
        (
            Adapter::Default,
            "alter table payments drop constraint one_payment_per_payment_intent".to_owned(),
            "the lookup by external_ref is answered by no index",
            "reads payments",
        ),
        (
            Adapter::UuidCheckout,
            "drop index shop.checkout_payment_keyset; create index on shop.checkout_payment (first_saved_at)"
                .to_owned(),
            "the walk by (created_at, id) sorts, in every batch",
            "",
        ),
        (
            Adapter::Default,
            format!(
                "create table buyer (order_id text, name text); {}",
                view("", "")
                    .replace("public.payments p;", "public.payments p left join buyer b on b.order_id = p.order_id;")
                    .replace("p.order_id as match_key", "b.name as match_key")
            ),
            "every batch reads buyer from end to end",
            "",
        ),
    ] {
        let checked = checked_after(adapter, &broken).await;
        assert_eq!(lines(&checked.errors), [""; 0], "{broken}");
        let found = checked.warnings.iter().find(|warning| warning.what.starts_with(what));
        assert!(found.is_some_and(|warning| warning.what.contains(part)), "{broken}\n{checked}");
    }
}

#[tokio::test]
async fn a_not_null_of_a_table_proves_nothing_behind_an_outer_join() {
    let joined = view("state", "s.state")
        .replace("public.payments p;", "public.payments p left join step s on s.payment_id = p.id;");
    let step = "create table step (payment_id bigint primary key, state text not null)";
    let checked = checked_after(Adapter::Default, &format!("{step}; {joined}")).await;
    assert!(
        checked.is_fit() && checked.looked_at.contains(&"state is not null in any row of the sample".to_owned()),
        "{checked}"
    );
    let checked =
        checked_after(Adapter::Default, &format!("{step}; insert into payments (order_id) values ('o'); {joined}"))
            .await;
    assert!(
        checked.errors.len() == 1
            && checked.errors[0].what.contains("state of the view reconciliation.payment is null"),
        "{checked}"
    );
}

#[tokio::test]
async fn a_null_that_only_the_newest_rows_have_is_found() {
    let many = "alter table payments alter created_at drop not null, alter updated_at drop not null;
        insert into payments (order_id) select 'o' from generate_series(1, 10001);
        insert into payments (order_id, updated_at) values ('last', null)";
    let checked = checked_after(Adapter::Default, many).await;
    assert_eq!(checked.errors.len(), 1, "{checked}");
    assert!(checked.errors[0].what.starts_with("the column updated_at of the view"), "{checked}");
}

#[tokio::test]
async fn the_order_that_is_set_is_the_one_whose_index_is_looked_for() {
    let world = World::with(Adapter::UuidCheckout).await;
    world.owner.batch_execute("drop index shop.checkout_payment_keyset").await.unwrap();
    let mut db = connect(&world.database.url()).await;
    let by_creation = check(&mut db, None).await.unwrap();
    assert!(
        by_creation.errors[0].what.starts_with("the walk by (created_at, id) is answered by no index"),
        "{by_creation}"
    );
    assert!(by_creation.errors[0].mend.contains("KEYSET=id"), "{by_creation}");
    let by_id = check(&mut db, Some(Keyset::Id)).await.unwrap();
    assert!(by_id.is_fit(), "{by_id}");
    assert_eq!(apply_for(&mut db, None, Some(Keyset::Id)).await.unwrap().keyset, Keyset::Id);
}

/// Everything that a check could have changed: the catalog with the transactions that wrote it, and our rows.
const EVERYTHING: &str = "select concat_ws(' ',
    (select md5(string_agg(c::text, ',' order by c::text)) from (select oid, xmin, relname, relfilenode, relacl from pg_class) c),
    (select md5(string_agg(c::text, ',' order by c::text)) from (select oid, xmin, proname, proacl from pg_proc) c),
    (select md5(string_agg(c::text, ',' order by c::text)) from (select attrelid, xmin, attname, attacl from pg_attribute) c),
    (select md5(string_agg(c::text, ',' order by c::text)) from (select oid, xmin, nspacl from pg_namespace) c),
    (select md5(string_agg(c::text, ',' order by c::text)) from reconciliation.applied_migration c),
    (select md5(string_agg(c::text, ',' order by c::text)) from (select xmin, * from reconciliation.cursor) c),
    (select md5(string_agg(c::text, ',' order by c::text)) from (select xmin, * from payments) c))";

#[tokio::test]
async fn a_check_changes_nothing_and_may_not() {
    for broken in ["", "drop view reconciliation.payment", "delete from reconciliation.applied_migration"] {
        let world = World::new().await;
        world.pair("pi_1", "pending", "succeeded").await;
        world.cycle().await;
        world.owner.batch_execute(broken).await.unwrap();
        let before = world.texts(EVERYTHING).await;
        let mut db = connect(&world.database.url()).await;
        db.batch_execute("set default_transaction_read_only = on").await.unwrap();
        let first = check(&mut db, None).await.unwrap();
        assert_eq!(check(&mut db, None).await.unwrap(), first, "twice is once");
        assert_eq!(first.is_fit(), broken.is_empty(), "{first}");
        let plain: String = db.query_one("show enable_seqscan", &[]).await.unwrap().get(0);
        assert_eq!(plain, "on", "the session is as it was");
        // without that setting it is read only all the same: a view that writes is refused
        if broken.is_empty() {
            let writes = format!(
                "create function public.touch() returns text language sql volatile as $$ insert into payments (order_id) values ('w') returning 'paid' $$; {}",
                view("state", "public.touch()")
            );
            world.owner.batch_execute(&writes).await.unwrap();
            let checked = check(&mut connect(&world.database.url()).await, None).await.unwrap();
            assert!(lines(&checked.errors).iter().any(|error| error.contains("read-only transaction")), "{checked}");
        } else {
            assert_eq!(world.texts(EVERYTHING).await, before);
        }
        assert_eq!(world.number("select count(*) from payments").await, 1);
    }
    let world = World::new().await;
    let before = world.texts(EVERYTHING).await;
    assert!(checked(&world).await.is_fit());
    assert_eq!(world.texts(EVERYTHING).await, before);
}

#[tokio::test]
async fn an_empty_database_is_told_what_is_missing() {
    let database = shared_cluster().await.unwrap().empty_database().await.unwrap();
    let mut db = connect(&database.url()).await;
    let checked = check(&mut db, None).await.unwrap();
    let errors = lines(&checked.errors);
    assert!(errors.contains(&"the view reconciliation.payment is not there"), "{errors:?}");
    assert!(errors.contains(&"the schema reconciliation is not there"), "{errors:?}");
    db.batch_execute("create schema reconciliation; create table reconciliation.ours ()").await.unwrap();
    let checked = check(&mut db, None).await.unwrap();
    assert!(checked.errors[0].what.contains("is not the reconciler's"), "{checked}");
}

#[tokio::test]
async fn roles_belong_to_the_server_and_are_looked_at_there() {
    let settings = Settings::from_lookup(&environment, None).unwrap();
    let cluster = own_cluster(settings, ClusterOptions::default()).await.unwrap();
    let database = cluster.empty_database().await.unwrap();
    let mut db = connect(&database.url()).await;
    let missing = check(&mut db, None).await.unwrap();
    for role in ["reconciler_scan", "reconciler_writer", "reconciler_metrics", "reconciler_reviewer"] {
        assert!(lines(&missing.errors).contains(&format!("there is no role {role}").as_str()), "{missing}");
    }
    apply(&mut db, Some(DEFAULT_ADAPTER)).await.unwrap();
    db.batch_execute("grant reconciler_writer to reconciler_scan").await.unwrap();
    let checked = check(&mut db, None).await.unwrap();
    assert!(
        lines(&checked.errors)
            .iter()
            .any(|error| error.starts_with("the role reconciler_scan may take on reconciler_writer")),
        "{checked}"
    );
    db.batch_execute("revoke reconciler_writer from reconciler_scan; create role shop; grant update on payments to shop; grant shop to reconciler_scan").await.unwrap();
    let checked = check(&mut db, None).await.unwrap();
    assert_eq!(lines(&checked.errors), ["the role reconciler_scan may change payments: it may write to payments"]);
    let owns = "revoke shop from reconciler_scan; revoke update on payments from shop; alter table payments owner to shop; create role door in role shop noinherit; grant door to reconciler_scan";
    db.batch_execute(owns).await.unwrap();
    let checked = check(&mut db, None).await.unwrap();
    assert!(
        lines(&checked.errors).contains(&"the role reconciler_scan may take on shop, and with it change payments"),
        "{checked}"
    );
    db.batch_execute("revoke door from reconciler_scan; alter role reconciler_metrics superuser").await.unwrap();
    let checked = check(&mut db, None).await.unwrap();
    assert!(
        lines(&checked.errors).contains(&"the role reconciler_metrics may change payments: it may write to payments"),
        "{checked}"
    );
}

#[tokio::test]
async fn a_wrong_adapter_is_refused_and_the_one_before_goes_on_working() {
    let world = World::new().await;
    world.pair("pi_1", "pending", "succeeded").await;
    let mut db = connect(&world.database.url()).await;
    let before = world.texts("select pg_get_viewdef('reconciliation.payment'::regclass)").await;
    for (wrong, error_type, words) in [
        (view("id", "p.id + 0"), "PortsNotReady", "the walk by id is answered by no index"),
        (view("version", "1"), "PortsNotReady", "cast it in the adapter's view"),
        (view("state", "p.status") + "; select 1 / 0", "AdapterFailed", "mend its SQL"),
    ] {
        let error = apply(&mut db, Some(&wrong)).await.unwrap_err();
        assert_eq!(error.error_type(), error_type, "{error:?}");
        let said = error.to_string();
        assert!(
            said.contains(words) && matches!(error, MigrateError::Adapter(_)) == (error_type == "AdapterFailed"),
            "{said}"
        );
        assert!(
            !matches!(error, MigrateError::AdapterRefused(_)) || said.contains("nothing of it is applied"),
            "{said}"
        );
        assert_eq!(world.texts("select pg_get_viewdef('reconciliation.payment'::regclass)").await, before);
    }
    assert_eq!(world.ticked().await.scanned, 1);
}

#[tokio::test]
async fn what_only_the_whole_schema_shows_is_told_with_the_state_of_the_database() {
    let database = shared_cluster().await.unwrap().empty_database().await.unwrap();
    let mut db = connect(&database.url()).await;
    let adapter = DEFAULT_ADAPTER
        .replace("bigint      generated by default as identity primary key", "bigint generated by default as identity");
    let error = apply(&mut db, Some(&adapter)).await.unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, MigrateError::Unfit(_)), "{said}");
    for part in [
        "the schema, the adapter and the grants are applied",
        "must not work with them yet",
        "the walk by id is answered by no index",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    db.batch_execute("create unique index on payments (id)").await.unwrap();
    assert!(apply(&mut db, None).await.unwrap().checked.is_fit());

    let database = shared_cluster().await.unwrap().empty_database().await.unwrap();
    let mut db = connect(&database.url()).await;
    let error = apply(&mut db, Some(&DEFAULT_ADAPTER.replace("p.created_at,", "p.created_at::date as created_at,")))
        .await
        .unwrap_err();
    assert!(matches!(error, MigrateError::AdapterRefused(_)), "{error}");
    let made = "select to_regclass('payments') is null and to_regclass('reconciliation.payment') is null";
    assert!(db.query_one(made, &[]).await.unwrap().get::<_, bool>(0), "nothing of it is applied");
    apply(&mut db, None).await.unwrap();
}

#[tokio::test]
async fn the_check_from_the_command_line() {
    let world = World::new().await;
    let url = world.database.url();
    let tick = |arguments: &[&str]| start(&binaries().join("tick"), arguments, [("DATABASE_URL", url.as_str())]);
    let (code, stdout, stderr) = tick(&["migrate", "--check"]).ended().await;
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.starts_with("0 errors, 1 warning\nwarning 1: the sweep"), "{stdout}");
    world.owner.batch_execute("grant update on payments to reconciler_scan").await.unwrap();
    let (code, stdout, stderr) = tick(&["migrate", "--check"]).ended().await;
    assert_eq!(code, 1, "{stderr}");
    assert!(stdout.contains("error 1: the role reconciler_scan") && stderr.contains("not fit"), "{stdout}{stderr}");
    let (code, stdout, _) = tick(&["migrate", "--check", "--json"]).ended().await;
    let list: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, list["errors"].as_array().unwrap().len()), (1, 1), "{list}");
    let (code, _, stderr) = tick(&["migrate", "--check", "--adapter", "default"]).ended().await;
    assert_eq!(code, 2, "{stderr}");
    let (code, _, stderr) = tick(&["migrate"]).ended().await;
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("are applied, but") && stderr.contains("the role reconciler_scan may change payments"),
        "{stderr}"
    );
}

const MIGRATIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations");

#[tokio::test]
async fn the_real_function_applies_and_checks() {
    let database = shared_cluster().await.unwrap().empty_database().await.unwrap();
    let url = database.url();
    let settings = [
        ("DATABASE_URL", url.as_str()),
        ("LAMBDA_TASK_ROOT", MIGRATIONS),
        ("ADAPTER_FILE", "adapters/uuid_checkout.sql"),
    ];
    let host = Host::new(&binaries().join("migrate"), &settings).await;
    let answer = host.answer(json!({"mode": "check"})).await;
    assert_eq!((&answer["mode"], &answer["fit"], &answer["adapter"]), (&json!("check"), &json!(false), &Value::Null));
    assert!(answer["errors"][0]["mend"].is_string(), "{answer}");
    let db = connect(&url).await;
    let untouched = "select to_regnamespace('reconciliation') is null";
    assert!(db.query_one(untouched, &[]).await.unwrap().get::<_, bool>(0), "a check changes nothing");

    let answer = host.answer(json!({"mode": "apply"})).await;
    assert_eq!((&answer["fit"], &answer["adapter"], &answer["errors"]), (&json!(true), &json!("file"), &json!([])));
    assert!(answer["versions"].as_array().unwrap().len() >= 8, "{answer}");
    assert_eq!(host.answer(json!({"mode": "check"})).await["fit"], true);
    let again = host.answer(json!({"mode": "apply", "adapter": "uuid_checkout"})).await;
    assert_eq!((&again["versions"], &again["adapter"]), (&json!([]), &json!("payload")));

    for (payload, error_type, words) in [
        (json!({}), "PayloadUnusable", "mode"),
        (json!({"mode": "drop"}), "PayloadUnusable", "drop"),
        (json!({"mode": "apply", "adaptor": "x"}), "PayloadUnusable", "adaptor"),
        (json!({"mode": "check", "adapter": "x"}), "PayloadUnusable", "takes no adapter"),
        (json!({"mode": "apply", "adapter": "nonsense"}), "AdapterFailed", "nonsense"),
        (
            json!({"mode": "apply", "adapter": "create or replace view reconciliation.payment as select null::uuid as id"}),
            "AdapterFailed",
            "cannot drop columns",
        ),
        (
            json!({"mode": "apply", "adapter": "drop view reconciliation.payment"}),
            "PortsNotReady",
            "the view reconciliation.payment is not there",
        ),
    ] {
        match host.invoke(payload.clone()).await {
            Ended::Failed { error_type: failed, message } => {
                assert_eq!(failed, error_type, "{message}");
                assert!(message.contains(words), "{payload}: {message}");
            }
            Ended::Answered(answer) => panic!("{payload}: {answer}"),
        }
    }
    assert_eq!(host.answer(json!({"mode": "check"})).await["fit"], true, "what was refused left nothing behind");
    let (stdout, stderr) = host.kill();
    assert!(stdout.contains("the tick failed") && !stdout.contains("panicked"), "{stdout}{stderr}");
}

/// Receives what is put, and answers with `status`. Its address, and each body with its content type.
async fn receiver(status: u16) -> (String, mpsc::UnboundedReceiver<(Option<String>, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/signed?X-Amz-Signature=hush", listener.local_addr().unwrap());
    let (bodies, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let bodies = bodies.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let bodies = bodies.clone();
                async move {
                    assert_eq!((request.method().as_str(), request.uri().path()), ("PUT", "/signed"));
                    let kind = request.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
                    let body = request.into_body().collect().await?.to_bytes();
                    assert!(body.len() <= 4096, "{}", body.len());
                    bodies.send((kind, serde_json::from_slice(&body).unwrap())).unwrap();
                    Ok::<_, hyper::Error>(Response::builder().status(status).body(Full::new(Bytes::new())).unwrap())
                }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (address, received)
}

fn resource(kind: &str, address: &str, properties: &Value) -> Value {
    json!({
        "RequestType": kind, "ResponseURL": address, "StackId": "arn:aws:cloudformation:stack/s", "RequestId": "request-1",
        "LogicalResourceId": "Schema", "ResourceType": "Custom::Schema", "ResourceProperties": properties,
    })
}

#[tokio::test]
async fn cloudformation_is_told_how_it_ended_whatever_happens() {
    let database = shared_cluster().await.unwrap().empty_database().await.unwrap();
    let url = database.url();
    let host = Host::new(&binaries().join("migrate"), &[("DATABASE_URL", url.as_str())]).await;
    let (address, mut received) = receiver(200).await;
    let service = json!({"ServiceToken": "arn:aws:lambda:function:migrate"});
    let with = |key: &str, value: &str| {
        let mut properties = service.clone();
        properties[key] = json!(value);
        properties
    };
    let wrong = DEFAULT_ADAPTER.replace("p.created_at,", "p.created_at::date as created_at,");
    for (kind, properties, status, words) in [
        ("Create", with("Adapter", &wrong), "FAILED", "created_at of the view reconciliation.payment is date"),
        ("Create", with("Mode", "check"), "FAILED", "the schema reconciliation is not there"),
        ("Create", with("Mode", "drop"), "FAILED", "Mode (apply or check)"),
        ("Create", with("Adapter", DEFAULT_ADAPTER), "SUCCESS", "0 errors, 1 warning"),
        ("Update", service.clone(), "SUCCESS", "0 errors, 1 warning"),
        ("Update", with("Mode", "check"), "SUCCESS", "0 errors, 1 warning"),
        ("Rename", service.clone(), "FAILED", "unknown RequestType"),
        ("Update", with("Adapter", &format!("select {}", "é".repeat(5_000))), "FAILED", "could not apply the adapter"),
        ("Delete", service.clone(), "SUCCESS", "stay"),
    ] {
        let told = host.answer(resource(kind, &address, &properties)).await;
        let (content_type, put) = received.recv().await.unwrap();
        assert_eq!(told, put, "the answer is what was put");
        assert_eq!(content_type, None, "the signature covers that there is none");
        assert_eq!(put["Status"], status, "{kind}: {put}");
        assert!(put["Reason"].as_str().unwrap().contains(words), "{kind}: {put}");
        for (key, value) in [
            ("PhysicalResourceId", "reconciliation-schema"),
            ("StackId", "arn:aws:cloudformation:stack/s"),
            ("RequestId", "request-1"),
            ("LogicalResourceId", "Schema"),
        ] {
            assert_eq!(put[key], value, "{put}");
        }
    }
    let db = connect(&url).await;
    let there = "select to_regclass('reconciliation.finding') is not null";
    assert!(db.query_one(there, &[]).await.unwrap().get::<_, bool>(0), "a deleted stack drops no schema");
    let (stdout, stderr) = host.kill();
    assert!(
        stdout.contains("the migration failed") && !stdout.contains("hush") && !stderr.contains("hush"),
        "{stdout}{stderr}"
    );
}

#[tokio::test]
async fn an_answer_that_cannot_be_put_is_an_error() {
    let (refusing, _received) = receiver(403).await;
    let host = Host::new(&binaries().join("migrate"), &[]).await;
    let nobody = "http://127.0.0.1:1/signed?X-Amz-Signature=hush";
    for (address, words) in
        [(refusing.as_str(), "HTTP 403"), (nobody, "refused"), ("http://example.com/hush", "not https")]
    {
        match host.invoke(resource("Delete", address, &json!({}))).await {
            Ended::Failed { error_type, message } => {
                assert_eq!(error_type, "AnswerUndelivered", "{message}");
                assert!(message.contains(words) && !message.contains("hush"), "{message}");
            }
            Ended::Answered(answer) => panic!("{answer}"),
        }
    }
    // settings that cannot be used are told like everything else
    let (address, mut received) = receiver(200).await;
    assert_eq!(host.answer(resource("Create", &address, &json!({}))).await["Status"], "FAILED");
    assert!(received.recv().await.unwrap().1["Reason"].as_str().unwrap().contains("DATABASE_URL is missing"));
    let (stdout, _) = host.kill();
    assert!(stdout.contains("AnswerUndelivered") && !stdout.contains("hush"), "{stdout}");
}

#[tokio::test]
async fn a_migration_ends_before_its_time_is_up_and_says_so() {
    let database = shared_cluster().await.unwrap().empty_database().await.unwrap();
    let url = database.url();
    let mut holder = connect(&url).await;
    // as another migration that is under way, which does not end
    holder.batch_execute("select pg_advisory_lock(7228637711)").await.unwrap();
    let lookup = |key: &str| (key == "DATABASE_URL").then(|| url.clone());
    let clock = Clock::System;
    let soon = clock.now() + time::Duration::milliseconds(300);
    let failed = invocation::answer(&lookup, &clock, json!({"mode": "apply"}), soon).await.unwrap_err();
    assert_eq!(failed.error_type, "OutOfTime", "{}", failed.message);
    let (address, mut received) = receiver(200).await;
    let told =
        invocation::answer(&lookup, &clock, resource("Create", &address, &json!({})), clock.now()).await.unwrap();
    assert!(told["Status"] == "FAILED" && told["Reason"].as_str().unwrap().contains("called off"), "{told}");
    assert_eq!(received.recv().await.unwrap().1, told);
    // what waited for the lock went with its time, and holds nobody up
    holder.batch_execute("select pg_advisory_unlock(7228637711)").await.unwrap();
    apply(&mut holder, None).await.unwrap();
}

#[tokio::test]
async fn a_file_that_the_package_does_not_ship_is_told() {
    let world = World::new().await;
    let url = world.database.url();
    assert!(!Path::new(MIGRATIONS).join("mine.sql").exists());
    for (file, words) in
        [("mine.sql", "names no file of the package"), ("../Cargo.toml", "within the function's package")]
    {
        let settings = [("DATABASE_URL", url.as_str()), ("LAMBDA_TASK_ROOT", MIGRATIONS), ("ADAPTER_FILE", file)];
        let host = Host::new(&binaries().join("migrate"), &settings).await;
        match host.invoke(json!({"mode": "apply"})).await {
            Ended::Failed { error_type, message } => {
                assert_eq!(error_type, "SettingsUnusable", "{message}");
                assert!(message.contains(words), "{message}");
            }
            Ended::Answered(answer) => panic!("{answer}"),
        }
    }
}
