//! `cargo tick` and `cargo demo` as a user runs them: real processes, real HTTP to the sandbox.

use std::num::NonZeroU32;

use local::postgres::shared_cluster;
use local::sandbox::{Endpoint, Fault, FaultRule, Limits, Options, PaymentIntentSeed, Sandbox};
use reconciler::domain::external::ExternalStatus;
use serde_json::Value;
use time::{Duration, OffsetDateTime};

use crate::binaries::{Running, binaries, start};
use crate::world::{World, connect};

const KEY: &str = "rk_test_hushkey";

/// A database with payments of two hours ago and a sandbox with their PaymentIntents.
struct Shop {
    world: World,
    sandbox: Sandbox,
    now: OffsetDateTime,
}

impl Shop {
    async fn new() -> Self {
        let world = World::new().await;
        let now: OffsetDateTime = world.rows_of("select now()").await[0].get(0);
        let sandbox = Sandbox::start(Options::default()).await.unwrap();
        Self { world, sandbox, now }
    }

    /// `pi_1` to `pi_n`, all in one state and status.
    async fn with(count: i64, state: &str, status: &str) -> Self {
        let shop = Self::new().await;
        let created = shop.now - Duration::hours(2);
        shop.sandbox.with(|account, _| {
            for number in 1..=count {
                let seed = PaymentIntentSeed {
                    id: Some(format!("pi_{number}")),
                    status: ExternalStatus::from_stripe(status),
                    ..PaymentIntentSeed::new(created)
                };
                account.insert(seed).unwrap();
            }
        });
        let sql = "insert into payments (order_id, stripe_payment_intent_id, status, created_at, updated_at)
                   select 'o' || n, 'pi_' || n, $2, $3, $3 from generate_series(1, $1::bigint) n order by n";
        shop.world.owner.execute(sql, &[&count, &state, &created]).await.unwrap();
        shop
    }

    fn tick(&self, arguments: &[&str], settings: &[(&str, &str)]) -> Running {
        let url = self.world.database.url();
        let defaults = [
            ("DATABASE_URL", url.as_str()),
            ("STRIPE_API_KEY", KEY),
            ("STRIPE_API_BASE", self.sandbox.base_url.as_str()),
            ("REQUESTS_PER_SECOND", "2000"),
            ("MIN_CYCLE_SECONDS", "0"),
            ("OBSERVE", "single"), // these tests count requests
        ];
        start(&binaries().join("tick"), arguments, defaults.into_iter().chain(settings.iter().copied()))
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[tokio::test]
async fn a_cycle_over_http_prints_one_report_a_tick() {
    let shop = Shop::with(450, "paid", "succeeded").await;
    let (code, stdout, stderr) = shop.tick(&["forward-scan", "--until-cycle"], &[("BATCH_SIZE", "200")]).ended().await;
    assert_eq!(code, 0, "{stderr}");
    let reports = lines(&stdout);
    let column = |name: &str| reports.iter().map(|report| report[name].clone()).collect::<Vec<_>>();
    assert_eq!(column("scanned"), [200, 200, 50, 0]);
    assert_eq!(column("outcome"), ["advanced", "advanced", "advanced", "wrapped"]);
    assert_eq!(column("requests"), [200, 200, 50, 0]);
    for field in [
        "function",
        "job",
        "outcome",
        "scanned",
        "in_sync",
        "in_flight",
        "repairable",
        "needs_review",
        "unverifiable",
        "findings_opened",
        "findings_closed",
        "commands_queued",
        "requests",
        "throttled",
        "duration_ms",
    ] {
        assert!(reports.iter().all(|report| !report[field].is_null()), "{field}");
    }
    assert_eq!(shop.world.never_verified().await, 0);
    let asked = shop.sandbox.with(|account, _| account.counters().by_endpoint.get(&Endpoint::Retrieve).copied());
    assert_eq!(asked, Some(450));
}

#[tokio::test]
async fn the_lag_is_printed_without_a_key_of_stripes() {
    let shop = Shop::with(3, "pending", "succeeded").await;
    assert_eq!(shop.tick(&["forward-scan"], &[]).ended().await.0, 0);
    let url = shop.world.database.url();
    let tick = |settings: &[(&'static str, &str)]| {
        let settings = std::iter::once(("DATABASE_URL", url.as_str())).chain(settings.iter().copied());
        start(&binaries().join("tick"), &["lag-metric"], settings)
    };
    let (code, stdout, stderr) = tick(&[]).ended().await;
    assert_eq!((code, lines(&stdout).len()), (0, 1), "{stderr}");
    let report = &lines(&stdout)[0];
    assert_eq!(
        (&report["function"], &report["not_met"], &report["open_findings"]),
        (&"lag-metric".into(), &0.into(), &3.into())
    );
    assert_eq!((&report["commands"]["waiting"], &report["stripe_reads_30_days"]), (&3.into(), &3.into()));
    assert_eq!(report["findings"][0]["kind"], "missed_success");
    assert!(report["lag_seconds"].as_u64().unwrap() < 600, "{report}");
    assert!(stderr.is_empty(), "{stderr}");
    let (code, _, stderr) = tick(&[("REQUESTS_PER_SECOND", "many")]).ended().await;
    assert_eq!((code, stderr.contains("REQUESTS_PER_SECOND")), (2, true), "{stderr}");
}

#[tokio::test]
async fn every_opened_finding_is_one_warn_line() {
    let shop = Shop::with(3, "pending", "succeeded").await;
    let (code, stdout, stderr) = shop.tick(&["forward-scan"], &[]).ended().await;
    assert_eq!((code, lines(&stdout).len()), (0, 1), "{stderr}");
    let opened: Vec<Value> = lines(&stderr).into_iter().filter(|line| line["message"] == "finding opened").collect();
    assert_eq!(opened.len(), 3, "{stderr}");
    for line in &opened {
        assert_eq!(
            (&line["level"], &line["kind"], &line["verdict"]),
            (&"WARN".into(), &"missed_success".into(), &"repairable".into())
        );
        assert!(line["payment"].is_string() && line["finding"].is_i64() && line["timestamp"].is_string(), "{line}");
    }
    let (_, _, stderr) = shop.tick(&["forward-scan"], &[]).ended().await;
    let (_, _, again) = shop.tick(&["forward-scan"], &[]).ended().await;
    assert!(!stderr.contains("finding opened") && !again.contains("finding opened"), "seen again says nothing");
}

#[tokio::test]
async fn the_dispatcher_carries_commands_out_and_logs_events_without_a_bus() {
    let shop = Shop::with(2, "pending", "succeeded").await;
    let (code, _, stderr) = shop.tick(&["forward-scan"], &[]).ended().await;
    assert_eq!(code, 0, "{stderr}");
    let mut reports = Vec::new();
    let mut logged = Vec::new();
    for _ in 0..3 {
        let (code, stdout, stderr) = shop.tick(&["dispatch"], &[("STRIPE_API_KEY", "")]).ended().await;
        assert_eq!(code, 0, "{stderr}");
        reports.extend(lines(&stdout));
        logged.extend(lines(&stderr).into_iter().filter(|line| line["message"] == "event"));
    }
    let column = |name: &str| reports.iter().map(|report| report[name].clone()).collect::<Vec<_>>();
    assert_eq!(
        (column("written"), column("published")),
        (vec![2.into(), 0.into(), 0.into()], vec![0.into(), 2.into(), 0.into()])
    );
    assert!(
        reports.iter().all(|report| report["function"] == "dispatch" && report["duration_ms"].is_u64()),
        "{reports:?}"
    );
    let mut payments = Vec::new();
    for line in &logged {
        assert_eq!((&line["level"], &line["event"]), (&"INFO".into(), &"PaymentCaptured".into()), "{line}");
        let detail: Value = serde_json::from_str(line["detail"].as_str().unwrap()).unwrap();
        assert_eq!(detail["event_id"], line["id"].to_string(), "{line}");
        payments.push(detail["payment_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(payments, ["1", "2"]);
    assert_eq!(shop.world.texts("select distinct status from payments").await, ["paid"]);

    for (settings, code, words) in [
        (("EVENT_BUS", "no bus"), 2, "EVENT_BUS"),
        (("DISPATCH_LEASE_SECONDS", "5"), 2, "DISPATCH_LEASE_SECONDS"),
        (("DATABASE_URL", "postgres://u:hush@127.0.0.1:1/x"), 1, "127.0.0.1:1/x"),
    ] {
        let (ended, stdout, stderr) = shop.tick(&["dispatch"], &[settings]).ended().await;
        assert_eq!((ended, stdout.as_str()), (code, ""), "{stderr}");
        assert!(stderr.contains(words) && !stderr.contains("hush"), "{stderr}");
    }
}

#[tokio::test]
async fn exit_codes_and_one_clear_error_each() {
    let shop = Shop::with(1, "paid", "succeeded").await;
    let empty = shared_cluster().await.unwrap().empty_database().await.unwrap();
    let empty = empty.url();
    for (arguments, settings, code, words) in [
        (vec!["forward-scan"], vec![("DATABASE_URL", "")], 2, "the setting DATABASE_URL is missing"),
        (vec!["forward-scan"], vec![("STRIPE_API_KEY", " ")], 2, "the setting STRIPE_API_KEY is missing"),
        (vec!["forward-scan"], vec![("STRIPE_API_KEY", "hush")], 2, "STRIPE_API_KEY is not usable"),
        (vec!["forward-scan"], vec![("STRIPE_API_BASE", "http://10.0.0.1")], 2, "STRIPE_API_BASE"),
        (vec!["forward-scan"], vec![("STRIPE_ACCOUNT", "12")], 2, "STRIPE_ACCOUNT"),
        (vec!["forward-scan"], vec![("BATCH_SIZE", "0")], 2, "BATCH_SIZE"),
        (vec!["forward-scan"], vec![("DATABASE_URL", "shop")], 2, "DATABASE_URL"),
        (
            vec!["forward-scan"],
            vec![("STRIPE_API_BASE", "https://api.stripe.com"), ("REQUESTS_PER_SECOND", "26")],
            2,
            "REQUESTS_PER_SECOND",
        ),
        (vec!["no-such-function"], vec![], 2, "unrecognized subcommand"),
        (vec!["forward-scan", "--no-such-option"], vec![], 2, "unexpected argument"),
        (vec!["migrate", "--adapter", "no-such-file.sql"], vec![], 2, "no-such-file.sql"),
        (vec!["forward-scan"], vec![("DATABASE_URL", "postgres://u:hush@127.0.0.1:1/x")], 1, "127.0.0.1:1/x"),
        (vec!["forward-scan"], vec![("DATABASE_URL", empty.as_str())], 1, "apply an adapter"),
        (vec!["review", "list"], vec![], 2, "the request is not JSON"),
        (
            vec!["review", "{\"action\": \"list\"}"],
            vec![("DATABASE_URL", "")],
            2,
            "the setting DATABASE_URL is missing",
        ),
    ] {
        let (ended, stdout, stderr) = shop.tick(&arguments, &settings).ended().await;
        assert_eq!(ended, code, "{arguments:?} {settings:?}: {stderr}");
        assert!(stderr.contains(words), "{arguments:?} {settings:?}: {stderr}");
        assert!(!stderr.contains("hush") && !stderr.contains("panicked"), "{stderr}");
        assert!(stdout.is_empty(), "{stdout}");
    }
    assert_eq!(shop.sandbox.with(|account, _| account.counters().arrived), 0, "all of them before any call");
}

#[tokio::test]
async fn a_migration_that_stopped_half_way_is_told_as_such() {
    let shop = Shop::with(1, "paid", "succeeded").await;
    shop.world.owner.batch_execute("revoke usage on schema reconciliation from reconciler_scan").await.unwrap();
    let (code, _, stderr) = shop.tick(&["forward-scan"], &[]).ended().await;
    assert_eq!(code, 1);
    assert!(stderr.contains("apply the schema again, to its end"), "{stderr}");
}

#[tokio::test]
async fn a_view_without_its_columns_is_told_all_at_once() {
    let shop = Shop::with(1, "paid", "succeeded").await;
    let broken = "drop view reconciliation.payment;
        create view reconciliation.payment as select id, status as state, created_at::timestamp as created_at from payments";
    shop.world.owner.batch_execute(broken).await.unwrap();
    let (code, _, stderr) = shop.tick(&["forward-scan"], &[]).ended().await;
    assert_eq!(code, 1, "{stderr}");
    for words in
        ["no column external_ref", "no column version", "created_at of the view", "timestamp without time zone"]
    {
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
}

#[tokio::test]
async fn a_refused_key_fails_the_run_and_is_not_shown() {
    for fault in [Fault::InvalidKey, Fault::ExpiredKey, Fault::Forbidden] {
        let shop = Shop::with(5, "pending", "succeeded").await;
        shop.sandbox.with(|account, _| account.add_fault(FaultRule { after: 2, ..FaultRule::always(fault) }));
        let (code, stdout, stderr) = shop.tick(&["forward-scan"], &[]).ended().await;
        assert_eq!(code, 1, "{stderr}");
        assert!(stderr.contains("Stripe refused the key") && stdout.is_empty(), "{fault:?}: {stdout}{stderr}");
        assert!(!stderr.contains("hush"), "{stderr}");
        assert_eq!(shop.world.number("select count(*) from reconciliation.observation").await, 0);
    }
}

#[tokio::test]
async fn a_withheld_batch_reports_fails_and_is_released_by_command() {
    let shop = Shop::with(60, "paid", "succeeded").await;
    shop.sandbox.with(|account, _| (1..=55).for_each(|number| drop(account.delete(&format!("pi_{number}")))));
    let (code, stdout, stderr) = shop.tick(&["forward-scan"], &[]).ended().await;
    assert_eq!((code, &lines(&stdout)[0]["outcome"]), (1, &"withheld".into()), "{stderr}");
    let command = "release --job payments-vs-stripe --revision 0";
    assert!(stderr.contains(command), "{stderr}");
    assert_eq!(shop.world.number("select count(*) from reconciliation.observation").await, 0);
    let release = "{\"action\": \"decide\", \"decision\": \"release\", \"job\": \"payments-vs-stripe\", \"revision\": 0, \"note\": \"a test shop\"}";
    let (code, stdout, stderr) = shop.tick(&["review", release], &[]).ended().await;
    assert_eq!((code, &lines(&stdout)[0]["result"]), (0, &"released".into()), "{stderr}");
    let (code, stdout, stderr) = shop.tick(&["review", release], &[]).ended().await;
    assert_eq!((code, &lines(&stdout)[0]["reason"]), (1, &"not_withheld".into()), "{stderr}");
    let (code, stdout, stderr) = shop.tick(&["forward-scan"], &[]).ended().await;
    assert_eq!((code, &lines(&stdout)[0]["needs_review"]), (0, &55.into()), "{stderr}");
}

#[tokio::test]
async fn a_killed_process_is_repeated_and_nothing_is_doubled() {
    let shop = Shop::with(20, "pending", "succeeded").await;
    shop.sandbox.with(|account, _| account.add_fault(FaultRule { after: 7, ..FaultRule::always(Fault::Hold) }));
    let running = shop.tick(&["forward-scan"], &[("CONCURRENCY", "4")]);
    shop.sandbox.held(4).await;
    running.kill();
    assert!(shop.world.findings().await.is_empty(), "all or nothing");
    shop.sandbox.with(|account, _| {
        account.clear_faults();
        account.release_all()
    });
    for _ in 0..2 {
        let (code, _, stderr) = shop.tick(&["forward-scan", "--until-cycle"], &[]).ended().await;
        assert_eq!(code, 0, "{stderr}");
    }
    assert_eq!(shop.world.findings().await, vec!["missed_success repairable open"; 20]);
    assert_eq!(shop.world.outbox().await, vec!["command ApplyPaymentSucceeded"; 20]);
}

#[tokio::test]
async fn two_processes_together_never_exceed_the_rate() {
    const RATE: usize = 40;
    let shop = Shop::with(80, "paid", "succeeded").await;
    let rate = RATE.to_string();
    let settings = [("REQUESTS_PER_SECOND", rate.as_str()), ("BATCH_SIZE", "80")];
    // one connection more than either needs, so that both have read the cursor before either commits
    let hold = shop
        .sandbox
        .with(|account, _| account.add_fault(FaultRule { times: Some(2), ..FaultRule::always(Fault::Hold) }));
    let processes = [shop.tick(&["forward-scan"], &settings), shop.tick(&["forward-scan"], &settings)];
    shop.sandbox.held(2).await;
    shop.sandbox.with(|account, _| {
        account.remove_fault(hold);
        account.release_all()
    });
    let mut outcomes = Vec::new();
    for process in processes {
        let (code, stdout, stderr) = process.ended().await;
        assert_eq!(code, 0, "{stderr}");
        outcomes.push(lines(&stdout)[0]["outcome"].as_str().unwrap().to_owned());
    }
    outcomes.sort();
    assert_eq!(outcomes, ["aborted_concurrent_run", "advanced"]);

    let arrivals: Vec<OffsetDateTime> = shop.sandbox.with(|account, _| account.log().map(|entry| entry.at).collect());
    assert_eq!(arrivals.len(), 160);
    // Each process holds one slot at the most, so in any second there are no more than the rate and one late request each.
    for (first, at) in arrivals.iter().enumerate() {
        let within = arrivals[first..].iter().take_while(|later| **later - *at < Duration::SECOND).count();
        assert!(within <= RATE + 2, "{within} requests in the second from {at}");
    }
}

#[tokio::test]
async fn a_limit_at_stripe_slows_all_down_and_the_cycle_completes() {
    let shop = Shop::with(60, "paid", "succeeded").await;
    let limits = Limits { endpoint: NonZeroU32::new(25), ..Limits::default() };
    shop.sandbox.with(|account, _| account.set_limits(limits));
    let (code, stdout, stderr) =
        shop.tick(&["forward-scan", "--until-cycle"], &[("REQUESTS_PER_SECOND", "200")]).ended().await;
    assert_eq!(code, 0, "{stderr}");
    let reports = lines(&stdout);
    assert!(reports.iter().any(|report| report["outcome"] == "stopped" && report["throttled"] != 0), "{stdout}");
    assert!(reports.iter().all(|report| report["unverifiable"] == 0), "nobody is blamed: {stdout}");
    assert_eq!(shop.world.never_verified().await, 0);
}

#[tokio::test]
async fn migrating_twice_and_two_at_once_is_the_same_as_once() {
    let database = shared_cluster().await.unwrap().empty_database().await.unwrap();
    let url = database.url();
    let adapter = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/adapters/uuid_checkout.sql");
    let migrate =
        || start(&binaries().join("tick"), &["migrate", "--adapter", adapter], [("DATABASE_URL", url.as_str())]);
    let (one, other) = (migrate(), migrate());
    for process in [one, other, migrate()] {
        let (code, _, stderr) = process.ended().await;
        assert_eq!(code, 0, "{stderr}");
        assert!(stderr.contains("the walk goes by created_at"), "{stderr}");
    }
    let db = connect(&url).await;
    let versions = "select count(*) from reconciliation.applied_migration";
    assert_eq!(db.query_one(versions, &[]).await.unwrap().get::<_, i64>(0), 12);
}

#[tokio::test]
async fn migrating_without_naming_an_adapter_keeps_the_one_that_is_there() {
    let database = shared_cluster().await.unwrap().empty_database().await.unwrap();
    let url = database.url();
    let migrate = |arguments: &[&str]| start(&binaries().join("tick"), arguments, [("DATABASE_URL", url.as_str())]);
    let (code, _, stderr) = migrate(&["migrate", "--adapter", "uuid_checkout"]).ended().await;
    assert_eq!(code, 0, "{stderr}");
    let (code, _, stderr) = migrate(&["migrate"]).ended().await;
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("the adapter that was there stays") && stderr.contains("by created_at"), "{stderr}");
    let db = connect(&url).await;
    let payments: bool = db.query_one("select to_regclass('public.payments') is null", &[]).await.unwrap().get(0);
    assert!(payments, "no table of the default adapter's");
}

#[tokio::test]
async fn a_schema_of_the_same_name_that_is_somebody_elses_is_left_alone() {
    let database = shared_cluster().await.unwrap().empty_database().await.unwrap();
    let url = database.url();
    let db = connect(&url).await;
    db.batch_execute("create schema reconciliation; grant usage on schema reconciliation to public; create table reconciliation.ours ()")
        .await
        .unwrap();
    let before = "select nspacl::text from pg_namespace where nspname = 'reconciliation'";
    let rights: String = db.query_one(before, &[]).await.unwrap().get(0);
    let (code, _, stderr) =
        start(&binaries().join("tick"), &["migrate"], [("DATABASE_URL", url.as_str())]).ended().await;
    assert_eq!(code, 1);
    assert!(stderr.contains("it is not the reconciler's"), "{stderr}");
    assert_eq!(db.query_one(before, &[]).await.unwrap().get::<_, String>(0), rights);
    let made: bool = db.query_one("select to_regclass('public.payments') is not null", &[]).await.unwrap().get(0);
    assert!(!made, "nothing was changed");
}

#[tokio::test]
async fn a_write_port_that_takes_another_type_is_told_before_the_first_payment() {
    let shop = Shop::with(1, "paid", "succeeded").await;
    let integer = "drop function reconciliation.apply_transition(bigint, text, jsonb);
        create function reconciliation.apply_transition(id integer, t text, e jsonb) returns text language sql as $$ select 'written' $$";
    shop.world.owner.batch_execute(integer).await.unwrap();
    let (code, _, stderr) = shop.tick(&["forward-scan"], &[]).ended().await;
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("apply_transition(bigint, text, jsonb)") && stderr.contains("integer, text, jsonb"),
        "{stderr}"
    );
}

#[tokio::test]
async fn an_owner_who_may_not_create_roles_migrates_where_they_are_there() {
    let shop = Shop::with(1, "paid", "succeeded").await; // the roles of this server are there
    let database = shop.world.database.cluster().empty_database().await.unwrap();
    let owner = connect(&database.url()).await;
    let name = format!("owner_of_{}", database.name());
    let made = format!(
        "create role {name} login; grant create on database {} to {name}; grant create on schema public to {name}; grant reconciler_scan to {name}",
        database.name()
    );
    owner.batch_execute(&made).await.unwrap();
    let url = database.url_as(&name);
    let (code, _, stderr) =
        start(&binaries().join("tick"), &["migrate"], [("DATABASE_URL", url.as_str())]).ended().await;
    assert_eq!(code, 0, "{stderr}");
    let (code, stdout, stderr) = shop.tick(&["forward-scan"], &[("DATABASE_URL", &url)]).ended().await;
    assert_eq!((code, &lines(&stdout)[0]["outcome"]), (0, &"wrapped".into()), "{stderr}");
}

#[tokio::test]
async fn a_tick_ends_by_itself_however_long_stripe_asks_to_wait() {
    let shop = Shop::with(3, "paid", "succeeded").await;
    let budget = "insert into reconciliation.api_budget (account, share, slot_at, next_free_at)
                  values ('own', 'total', now(), now() + interval '1 hour')";
    shop.world.owner.batch_execute(budget).await.unwrap();
    let (code, stdout, stderr) = shop.tick(&["forward-scan"], &[]).ended().await;
    assert_eq!(
        (code, &lines(&stdout)[0]["outcome"], &lines(&stdout)[0]["requests"]),
        (0, &"partial".into(), &0.into()),
        "{stderr}"
    );
}

#[tokio::test]
async fn what_makes_a_guard_useless_is_said() {
    let shop = Shop::with(1, "paid", "succeeded").await;
    let (_, _, stderr) = shop.tick(&["forward-scan"], &[("BATCH_SIZE", "50")]).ended().await;
    assert!(stderr.contains("MISSING_CAP is not below BATCH_SIZE"), "{stderr}");
    let shop = Shop::with(1, "paid", "succeeded").await;
    let away = [("BATCH_SIZE", "51"), ("STRIPE_API_BASE", "http://127.0.0.1:1")];
    let (_, _, stderr) = shop.tick(&["forward-scan"], &away).ended().await;
    assert!(!stderr.contains("MISSING_CAP"), "{stderr}");
    assert!(stderr.contains("Stripe does not answer") && stderr.contains("refused"), "the cause is said too: {stderr}");
}

#[tokio::test]
async fn the_demo_runs_against_a_test_key_too() {
    let shop = Shop::with(40, "paid", "succeeded").await;
    let path = local::postgres::environment("PATH").unwrap_or_default();
    let demo = |arguments: &[&str]| start(&binaries().join("demo"), arguments, [("PATH", path.as_str())]);
    let base = shop.sandbox.base_url.clone();
    let arguments = ["--payments", "40", "--rps", "1000", "--stripe-key", KEY, "--stripe-base", &base];
    let (code, stdout, stderr) = demo(&arguments).ended().await;
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("missing_externally                        1"), "{stdout}");
    assert!(stdout.contains("Webhooks  left out") && !stdout.contains("a webhook, first"), "{stdout}");
    assert!(!stdout.contains("hush") && !stderr.contains("hush"), "{stdout}{stderr}");

    let (code, _, stderr) = demo(&["--stripe-key", "rk_live_hush"]).ended().await;
    assert_eq!(code, 2);
    assert!(stderr.contains("takes a test key only") && !stderr.contains("hush"), "{stderr}");
}
