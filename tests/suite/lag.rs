//! `lag-metric`: the lag is exact against brute force, nothing that should not pins it, and no figure reads a whole table.

use fastrand::Rng;
use lag_metric::queries::{COUNTED_MAX, NOT_MET_MAX, STATEMENTS};
use lag_metric::{LagReport, run};
use local::fake::Fault;
use reconciler::budget::Budget;
use reconciler::config::LagSettings;
use reconciler::domain::Timestamp;
use reconciler::scan::Deps;
use reconciler::scan::steps::Steps;
use reconciler::store::Keyset;
use time::Duration;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use crate::world::{Adapter, World, connect};

/// A session with the rights of `reconciler_metrics`, in a time zone of its own.
async fn session(world: &World, zone: &str) -> Client {
    let client = connect(&world.database.url()).await;
    client.batch_execute(&format!("set role reconciler_metrics; set timezone = '{zone}'")).await.unwrap();
    client
}

async fn read(world: &World, db: &mut Client, probe_from: Option<Timestamp>) -> LagReport {
    let settings = LagSettings { requests_per_second: 5, account: "own".to_owned(), keyset: None };
    run(db, &settings, world.keyset, probe_from, world.now()).await.expect("figures")
}

async fn lag(world: &World) -> LagReport {
    read(world, &mut session(world, "UTC").await, None).await
}

/// The lag as it is defined, by looking at every payment.
async fn by_brute_force(world: &World) -> (u64, u64, u64) {
    let sql = "select min(coalesce(o.verified_through, p.created_at)),
                      count(*) filter (where o.payment_id is not null and o.observed_at is null),
                      count(*) filter (where o.payment_id is null)
               from reconciliation.payment p left join reconciliation.observation o on o.payment_id = p.id";
    let row = &world.rows_of(sql).await[0];
    let oldest: Option<Timestamp> = row.get(0);
    let lag = oldest.map_or(0, |oldest| u64::try_from((world.now() - oldest).whole_seconds()).unwrap_or(0));
    (lag, row.get::<_, i64>(1).cast_unsigned(), row.get::<_, i64>(2).cast_unsigned())
}

async fn sweep(world: &World) {
    let budget = Budget::new("own", world.settings.requests_per_second, world.clock.clone());
    let deps = Deps {
        db: &world.scan,
        gateway: &world.stripe,
        budget: &budget,
        clock: &world.clock,
        settings: &world.settings,
        keyset: world.keyset,
        deadline: None,
        steps: &Steps::Unwatched,
    };
    sweep::run(&deps, world.now()).await.expect("a sweep");
}

struct Words {
    table: &'static str,
    key: &'static str,
    states: [&'static str; 4],
    insert: &'static str,
}

fn words(world: &World) -> Words {
    match world.keyset {
        Keyset::Id => Words {
            table: "payments",
            key: "id",
            states: ["pending", "finalizing", "paid", "failed"],
            insert: "insert into payments (order_id, stripe_payment_intent_id, status, created_at, updated_at)
                     values ('o', $1, $2, $3, $3)",
        },
        Keyset::CreatedAt => Words {
            table: "shop.checkout_payment",
            key: "payment_uuid",
            states: ["Processing", "Expired", "Captured", "Failed"],
            insert: "insert into shop.checkout_payment (cart_number, intent, progress, first_saved_at, last_saved_at)
                     values ('c', $1, $2, $3, $3)",
        },
    }
}

/// A payment in a random state, whose PaymentIntent is there, is missing, or never answers.
async fn put(world: &World, db: &Client, rng: &mut Rng, number: &mut u32, created: Timestamp) {
    *number += 1;
    let words = words(world);
    let reference = format!("pi_{number}");
    let reference = (rng.u8(..10) > 0).then_some(reference.as_str());
    if let Some(reference) = reference {
        match rng.u8(..10) {
            0 => {}
            1 => {
                world.stripe.put(reference, "succeeded", created);
                world.stripe.fail(reference, Fault::ServerError);
            }
            2 => world.stripe.put(reference, "processing", created),
            _ => world.stripe.put(reference, "succeeded", created),
        }
    }
    db.execute(words.insert, &[&reference, &words.states[rng.usize(..4)], &created]).await.expect("payment");
}

async fn exact_whatever_happens(adapter: Adapter, seed: u64, zone: &str) {
    let mut world = World::with(adapter).await;
    world.set(&[("BATCH_SIZE", "7"), ("REQUESTS_PER_SECOND", "10000"), ("MISSING_CAP", "1000")]);
    let mut rng = Rng::with_seed(seed);
    let mut number = 0;
    for _ in 0..40 {
        let created = world.now() - Duration::seconds(rng.i64(0..10_000_000));
        put(&world, &world.owner, &mut rng, &mut number, created).await;
    }
    let mut db = session(&world, zone).await;
    // a transaction that has begun and not committed, and how many minutes it may stay open
    let mut late: Option<(Client, i32)> = None;
    let mut probe_from = None;
    let (mut longest, mut met_and_not_verified, mut unmet, mut came_late) = (0, 0, 0, 0);
    for step in 0..120 {
        match rng.u8(..12) {
            0..=4 => drop(world.tick().await),
            5 => sweep(&world).await,
            6 => {
                let created = world.now() - Duration::seconds(rng.i64(0..300));
                put(&world, &world.owner, &mut rng, &mut number, created).await;
            }
            7 => {
                let Words { table, key, .. } = words(&world);
                let some = format!(
                    "delete from {table} where {key} in (select {key} from {table} order by md5({key}::text || '{step}') limit 2)"
                );
                world.owner.batch_execute(&some).await.unwrap();
            }
            8 => world.stripe.fail_all(rng.bool().then_some(Fault::Dropped)),
            9 if late.is_none() => {
                let client = connect(&world.database.url()).await;
                client.batch_execute("begin").await.unwrap();
                put(&world, &client, &mut rng, &mut number, world.now()).await;
                late = Some((client, 9));
            }
            _ => {
                let minutes = rng.i32(1..30);
                let open = late.as_ref().map_or(i32::MAX, |(_, minutes)| *minutes);
                if let Some((client, left)) = late.take() {
                    // within the grace period of ten minutes it commits
                    if minutes >= open {
                        client.batch_execute("commit").await.unwrap();
                        came_late += 1;
                    } else {
                        late = Some((client, left - minutes));
                    }
                }
                world.pass(u64::from(minutes.unsigned_abs()));
            }
        }
        let report = read(&world, &mut db, probe_from).await;
        let expected = by_brute_force(&world).await;
        let (never_verified, not_met) = (report.never_verified, report.not_met);
        assert_eq!((report.lag_seconds, not_met), (expected.0, expected.2), "seed {seed}, step {step}");
        assert!(
            never_verified >= expected.1,
            "seed {seed}, step {step}: deleted ones are counted until the walk comes by"
        );
        if rng.bool() {
            probe_from = report.oldest_met.map(|oldest| oldest - Duration::hours(1));
        }
        longest = longest.max(report.lag_seconds);
        met_and_not_verified += expected.1;
        unmet += expected.2;
    }
    let seen = longest > 0 && met_and_not_verified > 0 && unmet > 0 && came_late > 0;
    assert!(seen, "seed {seed}: {longest} {met_and_not_verified} {unmet} {came_late}");
}

#[tokio::test]
async fn the_lag_is_exact_by_id() {
    for (seed, zone) in [(1, "UTC"), (2, "Asia/Tokyo"), (3, "America/St_Johns"), (4, "UTC")] {
        exact_whatever_happens(Adapter::Default, seed, zone).await;
    }
}

#[tokio::test]
async fn the_lag_is_exact_by_created_at_and_id() {
    for (seed, zone) in [(11, "UTC"), (12, "Asia/Tokyo"), (13, "America/St_Johns"), (14, "UTC")] {
        exact_whatever_happens(Adapter::UuidCheckout, seed, zone).await;
    }
}

#[tokio::test]
async fn deleted_payments_pin_no_lag() {
    let world = World::new().await;
    world.pairs(20, "paid", "succeeded").await;
    world.cycle().await;
    world.pass(120);
    world.pair("pi_new", "paid", "succeeded").await;
    assert!(lag(&world).await.lag_seconds >= 7_200);
    world.owner.batch_execute("delete from payments where id <= 20").await.unwrap();
    assert_eq!(lag(&world).await.lag_seconds, 3_600, "that of the new one, before any walk has come by");
    world.cycle().await;
    assert_eq!(lag(&world).await.lag_seconds, 0);
}

#[tokio::test]
async fn an_outage_makes_it_grow_and_a_404_does_not_pin_it() {
    let world = World::new().await;
    world.pair("pi_1", "paid", "succeeded").await;
    world.payment(Some("pi_gone"), "paid", 60).await;
    world.cycle().await;
    assert_eq!(lag(&world).await.lag_seconds, 0, "a confirmed 404 is a confirmed answer");
    world.stripe.fail_all(Some(Fault::Dropped));
    for hours in 1..=3 {
        world.pass(60);
        world.ticked().await;
        let lag = lag(&world).await.lag_seconds;
        assert_eq!(lag, by_brute_force(&world).await.0);
        assert!(lag >= hours * 3_600, "{hours}: {lag}");
    }
    world.stripe.fail_all(None);
    for _ in 0..3 {
        world.ticked().await;
    }
    assert_eq!(lag(&world).await.lag_seconds, 0);
}

#[tokio::test]
async fn what_the_sweep_meets_ahead_of_the_walk_hides_nothing() {
    let mut world = World::new().await;
    world.set(&[("BATCH_SIZE", "5")]);
    world.pairs(20, "paid", "succeeded").await;
    world.ticked().await;
    world.pair("pi_suspect", "finalizing", "processing").await;
    sweep(&world).await;
    let report = lag(&world).await;
    assert_eq!((report.not_met, report.never_verified), (15, 0), "the suspect is met, those before it are not");
    assert_eq!(report.lag_seconds, 3_600 + 14);
}

#[tokio::test]
async fn beyond_the_bound_the_lag_may_be_too_long_and_never_too_short() {
    let world = World::new().await;
    let many = NOT_MET_MAX + 500;
    world.rows(many, "paid").await;
    let report = lag(&world).await;
    assert_eq!((report.not_met, report.lag_seconds), (NOT_MET_MAX.cast_unsigned(), (3_600 + many - 1).cast_unsigned()));
    // all are met but for the last one, and the walk's mark is lost
    let observe =
        "insert into reconciliation.observation (payment_id, payment_created_at, observed_at, verified_through)
                   select id, created_at, $1, $1 from payments where id < $2";
    world.owner.execute(observe, &[&world.now(), &many]).await.unwrap();
    let report = lag(&world).await;
    let (exact, _, _) = by_brute_force(&world).await;
    assert_eq!(exact, 3_600);
    assert!(report.lag_seconds >= exact && report.not_met == 0, "{report:?}");
}

#[tokio::test]
async fn the_figures_of_a_small_shop() {
    let mut world = World::new().await;
    world.set(&[("BATCH_SIZE", "2"), ("REQUESTS_PER_SECOND", "1000")]);
    assert_eq!(lag(&world).await.lag_seconds, 0, "no payments, no lag");
    world.pair("pi_1", "pending", "succeeded").await;
    world.pair("pi_2", "paid", "canceled").await;
    world.pair("pi_3", "paid", "succeeded").await;
    let report = lag(&world).await;
    assert_eq!((report.lag_seconds, report.not_met), (3_600, 3));
    assert_eq!(report.jobs.iter().map(|job| job.since_completed_seconds).collect::<Vec<_>>(), [3_600; 3]);
    assert_eq!(report.throughput_per_hour, 0);

    world.ticked().await;
    world.pass(20);
    let report = lag(&world).await;
    assert_eq!((report.not_met, report.open_findings, report.oldest_finding_seconds), (1, 2, 1_200));
    let kinds: Vec<(&str, &str, u64, u64)> = report
        .findings
        .iter()
        .map(|findings| (findings.kind.as_str(), findings.verdict.as_str(), findings.open, findings.oldest_seconds))
        .collect();
    let expected =
        [("missed_success", "repairable", 1, 1_200), ("paid_locally_not_externally", "needs_review", 1, 1_200)];
    assert_eq!(kinds, expected);
    assert_eq!((report.commands.waiting, report.commands.oldest_seconds, report.commands.dead), (1, 1_200, 0));
    assert_eq!(report.events.waiting, 0);
    assert_eq!((report.jobs[0].cycle_age_seconds, report.jobs[0].since_completed_seconds), (1_200, 1_200));
    assert_eq!(report.throughput_per_hour, 6, "two in twenty minutes");
    assert_eq!(report.stripe_reads_30_days, 2);
    assert_eq!(report.budget_used_permille, 0, "nothing in the last whole ten minutes");

    world.cycle().await;
    let report = lag(&world).await;
    assert_eq!((report.not_met, report.jobs[0].cycle_age_seconds, report.jobs[0].since_completed_seconds), (0, 0, 0));

    // what is over is named with zero for an hour
    world.stripe.set_status("pi_2", "succeeded");
    world.pass(1);
    world.cycle().await;
    let report = lag(&world).await;
    assert_eq!((report.open_findings, report.findings.len(), report.findings[1].open), (1, 2, 0));
    world.pass(61);
    assert_eq!(lag(&world).await.findings.len(), 1);

    let dead = "update reconciliation.outbox set dead_at = $1 where kind = 'command'";
    world.owner.execute(dead, &[&world.now()]).await.unwrap();
    let commands = lag(&world).await.commands;
    assert_eq!((commands.waiting, commands.oldest_seconds, commands.dead), (0, 0, 1));
}

#[tokio::test]
async fn reads_are_counted_with_their_slot_for_thirty_one_days() {
    let world = World::new().await;
    let budget = Budget::new("own", 5, world.clock.clone());
    let shared = Budget::new("own", 5, world.clock.clone()).with_share(Some(sweep::SHARE));
    let long = std::time::Duration::from_secs(60);
    for _ in 0..10 {
        budget.take(&world.scan, long).await.unwrap().expect("a slot");
    }
    shared.take(&world.scan, long).await.unwrap().expect("a slot");
    assert!(budget.take(&world.scan, std::time::Duration::ZERO).await.unwrap().is_none(), "not taken, not counted");
    assert_eq!(lag(&world).await.stripe_reads_30_days, 11);
    // of the steps of ten minutes one may have ended while they were taken
    world.pass(10);
    assert!(lag(&world).await.budget_used_permille <= 11 * 1_000 / 3_000);
    assert_eq!(lag(&world).await.throttle_level, 0);
    world.pass(60 * 24 * 29);
    assert_eq!(lag(&world).await.stripe_reads_30_days, 11);
    let slot = budget.take(&world.scan, long).await.unwrap().expect("a slot");
    budget.throttle(&world.scan, slot, None).await.unwrap();
    let report = lag(&world).await;
    assert_eq!((report.stripe_reads_30_days, report.throttle_level), (12, 1));
    world.pass(60 * 24);
    assert_eq!(lag(&world).await.stripe_reads_30_days, 1, "the others are older than 30 days");
    world.pass(60 * 24 * 2);
    budget.take(&world.scan, long).await.unwrap().expect("a slot");
    let kept = "select sum(requests)::bigint from reconciliation.stripe_reads";
    assert_eq!(world.number(kept).await, 2, "and those older than 31 are forgotten");
}

/// Parameters as the statements are given them, in the middle of everything.
async fn plan_of(db: &Client, name: &str, sql: &str, now: Timestamp, furthest: (Timestamp, String)) -> String {
    let (created_at, id) = furthest;
    let (from, limit, account) = (now - Duration::days(2), COUNTED_MAX, "own");
    let parameters: Vec<(&(dyn ToSql + Sync), Type)> = match name {
        "oldest_met" => vec![(&from, Type::TIMESTAMPTZ), (&limit, Type::INT8), (&limit, Type::INT8)],
        "not_met_by_id" | "not_met_by_created_at" => {
            vec![(&created_at, Type::TIMESTAMPTZ), (&id, Type::TEXT), (&limit, Type::INT8)]
        }
        "inflow" => vec![(&created_at, Type::TIMESTAMPTZ), (&limit, Type::INT8)],
        "findings" | "review_queue" => vec![(&now, Type::TIMESTAMPTZ)],
        "budget" => vec![(&account, Type::TEXT), (&now, Type::TIMESTAMPTZ)],
        "cursors" | "window" | "outbox" => vec![],
        other => panic!("the test does not know the statement {other}"),
    };
    let explained = db.query_typed(&format!("explain (costs off) {sql}"), &parameters).await;
    let rows = explained.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n")
}

async fn no_statement_reads_a_whole_table(adapter: Adapter) {
    const ROWS: i64 = 200_000;
    let world = World::with(adapter).await;
    world.rows(ROWS, words(&world).states[2]).await;
    let now = world.now();
    for fill in [
        "insert into reconciliation.observation (payment_id, payment_created_at, external_status, observed_at, verified_through)
         select p.id, p.created_at, 'succeeded', t, t from (select id, created_at,
             $1::timestamptz - (row_number() over () % 86400) * interval '1 second' as t from reconciliation.payment) p",
        "insert into reconciliation.finding (payment_id, kind, verdict, detected_at, last_seen_at, resolved_at, resolution)
         select o.payment_id, 'missed_success', 'repairable', $1, $1,
                case when n > 100 then $1::timestamptz - n * interval '1 minute' end, case when n > 100 then 'repaired' end
         from (select payment_id, row_number() over () as n from reconciliation.observation) o",
        "insert into reconciliation.outbox (aggregate, kind, type, payload, created_at, available_at, delivered_at)
         select n::text, 'event', 'PaymentCaptured', '{}', $1, $1, case when n > 100 then $1::timestamptz end
         from generate_series(1, 200000) n",
        "insert into reconciliation.stripe_reads
         select 'own', date_bin('10 minutes', $1::timestamptz, 'epoch') - n * interval '10 minutes', 3000
         from generate_series(1, 4464) n",
    ] {
        world.owner.execute(fill, &[&now]).await.unwrap_or_else(|error| panic!("{fill}: {error:?}"));
    }
    let Words { table, .. } = words(&world);
    for table in [
        table,
        "reconciliation.observation",
        "reconciliation.finding",
        "reconciliation.outbox",
        "reconciliation.stripe_reads",
    ] {
        world.owner.batch_execute(&format!("vacuum analyze {table}")).await.unwrap();
    }
    let last = "select payment_created_at, payment_id::text from reconciliation.observation order by 1 desc, payment_id desc limit 1 offset 100";
    let last = &world.rows_of(last).await[0];
    let db = session(&world, "UTC").await;
    let other_order = match world.keyset {
        Keyset::Id => "not_met_by_created_at",
        Keyset::CreatedAt => "not_met_by_id",
    };
    let mut looked_at = 0;
    // `payments_estimate` only asks the planner
    for (name, sql) in STATEMENTS.into_iter().filter(|(name, _)| *name != other_order && *name != "payments_estimate") {
        let plan = plan_of(&db, name, sql, now, (last.get(0), last.get(1))).await;
        // `stripe_reads` holds 31 days and no more, and of those it sums 30
        for table in ["payments", "checkout_payment", "observation", "finding", "outbox"] {
            assert!(!plan.contains(&format!("Seq Scan on {table}")), "{name}:\n{plan}");
        }
        let one_row_a_job = ["cursors", "window"].contains(&name);
        assert!(one_row_a_job || plan.contains("Index"), "{name}:\n{plan}");
        looked_at += 1;
    }
    assert_eq!(looked_at, 9);
    let mut db = session(&world, "UTC").await;
    let report = read(&world, &mut db, None).await;
    assert_eq!((report.open_findings, report.events.waiting, report.not_met), (100, 100, 0));
    assert_eq!(report.payments_estimate, ROWS.cast_unsigned());
    assert_eq!((report.budget_used_permille, report.stripe_reads_30_days), (1_000, 3_000 * 4_319), "{report:?}");
}

#[tokio::test]
async fn no_statement_reads_a_whole_table_by_id() {
    no_statement_reads_a_whole_table(Adapter::Default).await;
}

#[tokio::test]
async fn no_statement_reads_a_whole_table_by_created_at_and_id() {
    no_statement_reads_a_whole_table(Adapter::UuidCheckout).await;
}

#[tokio::test]
async fn the_age_of_the_reverse_scans_window_is_that_of_what_was_listed_to_the_end() {
    let mut world = World::new().await;
    world.set(&[("REVERSE_PAGES", "1")]);
    for number in 0..150 {
        world.stripe.put(&format!("pi_{number}"), "canceled", world.now() - Duration::hours(2));
    }
    world.pair("pi_1", "failed", "canceled").await;
    let of = |report: &LagReport| {
        let job = report.jobs.iter().find(|job| job.job == reverse_scan::JOB).unwrap();
        (report.reverse_window_age_seconds, job.cycle_age_seconds, job.since_completed_seconds)
    };
    assert_eq!(of(&lag(&world).await), (3_600, 0, 3_600), "it has not begun: as long as the lag");
    world.reverse().await;
    world.pass(5);
    assert_eq!(of(&lag(&world).await), (300, 300, 300), "since the first window began");
    world.window().await;
    world.pass(20);
    let grace = 600; // the upper edge of a window that began five minutes before it was complete
    assert_eq!(of(&lag(&world).await), (grace + 300 + 1_200, 0, 1_200));
}
