//! The reverse scan's windows and pages: every object is met, nothing is skipped, and what is not complete is not clean.

use local::fake::Fault;
use local::sandbox::{Endpoint, Options, PaymentIntentSeed, Sandbox};
use reconciler::domain::Timestamp;
use reconciler::domain::external::ExternalStatus;
use reconciler::scan::steps::{Step, Steps};
use reconciler::telemetry::{Outcome, Report, ReverseFigures};
use reverse_scan::Input;
use time::Duration;

use crate::binaries::{binaries, start};
use crate::schedule::Actor;
use crate::world::{Adapter, World};

fn figures(report: &Report) -> &ReverseFigures {
    report.reverse.as_ref().expect("the reverse scan's figures")
}

fn sum(reports: &[Report], figure: fn(&ReverseFigures) -> u64) -> u64 {
    reports.iter().map(|report| figure(figures(report))).sum()
}

async fn candidates(world: &World) -> i64 {
    world.number("select count(*) from reconciliation.orphan_candidate").await
}

async fn completed(world: &World) -> i64 {
    world.number("select count(*) from reconciliation.reverse_window where completed_to is not null").await
}

fn lists(world: &World) -> usize {
    world.stripe.requests().iter().filter(|asked| *asked == "list").count()
}

/// Objects `pi_1` to `pi_n`, seven in each second, the last ones two hours ago; nothing here.
fn objects(world: &World, count: i64, status: &str) {
    for number in 1..=count {
        let created = world.now() - Duration::hours(2) - Duration::seconds((count - number) / 7);
        world.stripe.put(&format!("pi_{number}"), status, created);
    }
}

#[tokio::test]
async fn every_one_of_12_345_objects_is_met_and_none_twice_in_effect() {
    let mut world = World::new().await;
    world.set(&[("REQUESTS_PER_SECOND", "10000")]);
    objects(&world, 12_345, "succeeded");
    world.rows(12_345, "paid").await;
    // here and there no payment, or one that does not know yet
    let number = "substr(stripe_payment_intent_id, 4)::int";
    world.owner.execute(&format!("delete from payments where {number} % 100 = 1"), &[]).await.unwrap();
    world.update("status = 'pending'", &format!("{number} % 100 = 50")).await;

    let mut reports = Vec::new();
    for tick in 0.. {
        // new ones arrive all the time, at the newest end, one of them in the second of the window's upper edge
        let arrives = |name: &str, ago| world.stripe.put(name, "succeeded", world.now() - ago);
        arrives(&format!("pi_new_{tick}"), Duration::ZERO);
        arrives(&format!("pi_edge_{tick}"), Duration::minutes(10));
        world.payment(Some(&format!("pi_new_{tick}")), "paid", 0).await;
        world.payment(Some(&format!("pi_edge_{tick}")), "paid", 10).await;
        let report = world.reverse().await;
        let done = report.outcome == Outcome::Wrapped;
        assert!(done || report.outcome == Outcome::Advanced, "{report:?}");
        assert_eq!(figures(&report).window_complete, done, "complete is what was read to the end, and nothing else");
        assert_eq!(completed(&world).await, i64::from(done));
        reports.push(report);
        if done {
            break;
        }
    }
    assert_eq!(reports.len(), 25, "five pages each");
    assert_eq!(sum(&reports, |figures| figures.pages), 124);
    assert_eq!(sum(&reports, |figures| figures.objects), 12_345);
    assert_eq!(sum(&reports, |figures| figures.known), 12_345 - 124);
    assert_eq!(candidates(&world).await, 124);
    assert_eq!(reports.iter().map(|report| report.in_sync).sum::<u64>(), 12_345 - 124 - 123);
    assert_eq!(world.findings().await, ["missed_success repairable open"; 123]);
    assert_eq!(world.outbox().await, ["command ApplyPaymentSucceeded"; 123]);
    let observed = "select count(*) from reconciliation.observation where external_status = 'succeeded'";
    assert_eq!(world.number(observed).await, 12_345 - 124);
    assert_eq!(lists(&world), 124);

    // the ones that arrived are the next window's, and the second look at the others takes three ticks of fifty
    world.pass(15);
    let next = world.window().await;
    assert_eq!(sum(&next, |figures| figures.known), 50);
    for _ in 0..3 {
        world.reverse().await;
    }
    assert_eq!(world.never_verified().await, 0);
    assert_eq!(candidates(&world).await, 0);
    let kinds = "select kind, count(*)::text from reconciliation.finding group by 1 order by 1";
    assert_eq!(world.texts(kinds).await, ["missed_success 123", "orphan_charge 124"]);
}

#[tokio::test]
async fn windows_leave_no_gap_however_long_nobody_came() {
    let world = World::new().await;
    world.stripe.put("pi_week", "succeeded", world.now() - Duration::days(7) - Duration::minutes(5));
    world.stripe.put("pi_old", "succeeded", world.now() - Duration::days(8));
    world.stripe.put("pi_fresh", "succeeded", world.now() - Duration::minutes(9));
    let report = world.reverse().await;
    assert_eq!(
        (report.outcome, figures(&report).objects),
        (Outcome::Wrapped, 1),
        "seven days back from the upper edge"
    );
    let edge = world.now().replace_nanosecond(0).unwrap() - Duration::minutes(10);
    let completed_to = "select completed_to from reconciliation.reverse_window";
    assert_eq!(world.rows_of(completed_to).await[0].get::<_, Timestamp>(0), edge);
    assert_eq!(world.reverse().await.outcome, Outcome::Waiting, "nothing newer to walk");

    // a month later the next window begins where that one ended, less one grace period
    let days = 30;
    world.pass(days * 24 * 60);
    world.stripe.put("pi_overlap", "canceled", edge - Duration::minutes(10));
    world.stripe.put("pi_before", "canceled", edge - Duration::minutes(10) - Duration::SECOND);
    let report = world.window().await.pop().unwrap();
    assert_eq!(figures(&report).objects, 2, "pi_fresh and pi_overlap");
    let from: Timestamp = Timestamp::parse(
        figures(&report).window_from.as_deref().unwrap(),
        &time::format_description::well_known::Rfc3339,
    )
    .unwrap();
    assert_eq!(from, edge - Duration::minutes(10));
}

#[tokio::test]
async fn an_input_walks_further_back_once_and_in_mid_window_too() {
    let mut world = World::new().await;
    world.set(&[("REVERSE_PAGES", "1")]);
    objects(&world, 150, "canceled");
    world.stripe.put("pi_ancient", "succeeded", world.now() - Duration::days(300));
    assert_eq!(world.reverse().await.outcome, Outcome::Advanced);
    let input = Input { from: Some(world.now() - Duration::days(365)) };
    let report = world.reverse_in(&world.scan, &Steps::Unwatched, None, &input).await.unwrap();
    assert_eq!((report.outcome, figures(&report).objects), (Outcome::Wrapped, 51), "it goes on where it stood");
    assert_eq!(world.texts("select external_ref from reconciliation.orphan_candidate").await, ["pi_ancient"]);

    // between two windows: asked for, it begins one
    let report = world.reverse_in(&world.scan, &Steps::Unwatched, None, &input).await.unwrap();
    assert_eq!((report.outcome, figures(&report).objects), (Outcome::Advanced, 100));
    assert_eq!(world.reverse().await.outcome, Outcome::Wrapped);
    assert_eq!(world.reverse().await.outcome, Outcome::Waiting, "once");
}

#[tokio::test]
async fn an_unknown_page_cursor_begins_the_window_anew() {
    let mut world = World::new().await;
    world.set(&[("REVERSE_PAGES", "1")]);
    world.pairs(250, "paid", "succeeded").await;
    world.reverse().await;
    let after = world.texts("select page_after from reconciliation.reverse_window").await;
    assert_eq!(after, ["pi_151"]);
    world.stripe.remove("pi_151");
    world.update("stripe_payment_intent_id = null, status = 'pending'", "stripe_payment_intent_id = 'pi_151'").await;
    let report = world.reverse().await;
    assert_eq!((report.outcome, figures(&report).restarts, figures(&report).pages), (Outcome::Advanced, 1, 0));
    assert_eq!(completed(&world).await, 0);
    let reports = world.window().await;
    assert_eq!(sum(&reports, |figures| figures.objects), 249, "from the newest on");
    let verified = "select count(*) from reconciliation.observation where external_status = 'succeeded'";
    assert_eq!(world.number(verified).await, 250, "the one that is gone was met before");
}

#[tokio::test]
async fn an_empty_page_that_says_has_more_is_an_error_and_no_loop() {
    let world = World::new().await;
    world.pairs(150, "paid", "succeeded").await;
    world.stripe.fail_nth(2, Fault::EndlessPage);
    let error = world.reverse_in(&world.scan, &Steps::Unwatched, None, &Input::default()).await.unwrap_err();
    assert_eq!(error.error_type(), "StripeListEndless");
    assert_eq!(lists(&world), 2);
    assert_eq!(completed(&world).await, 0);
    let report = world.reverse().await;
    assert_eq!((report.outcome, figures(&report).objects), (Outcome::Wrapped, 50), "the first page is committed");
    assert_eq!(world.never_verified().await, 0);
}

#[tokio::test]
async fn a_429_an_outage_and_a_wrong_key_skip_no_page_and_are_never_clean() {
    for (fault, outcome, calls) in [
        (Fault::RateLimited, Outcome::Stopped, 1),
        (Fault::ServerError, Outcome::Stopped, 3),
        (Fault::Dropped, Outcome::Stopped, 3),
        (Fault::Html, Outcome::Stopped, 1),
    ] {
        let world = World::new().await;
        world.pairs(350, "paid", "succeeded").await;
        world.stripe.fail_from_nth(3, fault);
        let report = world.reverse().await;
        assert_eq!((report.outcome, figures(&report).pages), (outcome, 2), "{fault:?}");
        assert_eq!((report.in_sync, figures(&report).window_complete), (200, false), "{fault:?}");
        assert_eq!(report.throttled, u64::from(fault == Fault::RateLimited), "{fault:?}");
        assert_eq!(lists(&world), 2 + calls, "{fault:?}");
        assert_eq!((completed(&world).await, figures(&report).completed_to.as_deref()), (0, None), "{fault:?}");
        world.stripe.fail_all(None);
        let report = world.reverse().await;
        assert_eq!((report.outcome, report.in_sync), (Outcome::Wrapped, 150), "{fault:?}");
        assert_eq!(world.never_verified().await, 0, "{fault:?}");
    }
    let world = World::new().await;
    world.pairs(150, "paid", "succeeded").await;
    world.stripe.fail_from_nth(2, Fault::Unauthorized);
    let error = world.reverse_in(&world.scan, &Steps::Unwatched, None, &Input::default()).await.unwrap_err();
    assert_eq!((error.error_type(), completed(&world).await), ("StripeKeyRefused", 0));
}

#[tokio::test]
async fn a_429_in_the_middle_of_a_page_cuts_it_there() {
    let world = World::new().await;
    world.pairs(100, "paid", "succeeded").await;
    let odd = "substr(stripe_payment_intent_id, 4)::int % 2 = 1";
    world.update("status = 'pending'", odd).await;
    world.stripe.fail_nth(21, Fault::RateLimited); // the list, 19 retrieves, and the one of pi_61
    let report = world.reverse().await;
    assert_eq!((report.outcome, report.repairable, report.in_sync), (Outcome::Stopped, 19, 20));
    assert_eq!((figures(&report).objects, figures(&report).pages), (39, 0));
    let after = world.texts("select page_after from reconciliation.reverse_window").await;
    assert_eq!(after, ["pi_62"], "behind the last one that is finished");
    assert_eq!(completed(&world).await, 0);
    let report = world.reverse().await;
    assert_eq!((report.outcome, report.repairable, report.in_sync), (Outcome::Wrapped, 31, 30));
    assert_eq!(world.outbox().await.len(), 50);
    assert_eq!(world.never_verified().await, 0);
}

#[tokio::test]
async fn a_deadline_in_the_middle_of_a_page_cuts_it_there() {
    let mut world = World::new().await;
    world.set(&[("REQUESTS_PER_SECOND", "10")]);
    world.pairs(250, "pending", "succeeded").await;
    let mut opened = 0;
    let mut ticks = 0;
    loop {
        let deadline = world.now() + Duration::seconds(5);
        let report = world.reverse_in(&world.scan, &Steps::Unwatched, Some(deadline), &Input::default()).await.unwrap();
        assert!(world.now() <= deadline, "no call after the deadline");
        opened += report.findings_opened;
        ticks += 1;
        if report.outcome == Outcome::Wrapped {
            break;
        }
        assert_eq!((report.outcome, figures(&report).window_complete), (Outcome::Partial, false), "tick {ticks}");
        assert!(report.findings_opened > 40, "each comes forward: {report:?}");
    }
    assert_eq!((opened, ticks), (250, 6));
    assert_eq!(world.never_verified().await, 0);
    assert_eq!(world.outbox().await.len(), 250);
}

#[tokio::test]
async fn a_payment_that_does_not_answer_is_unverifiable_and_stops_no_page() {
    let world = World::new().await;
    world.pairs(120, "pending", "succeeded").await;
    world.stripe.fail("pi_100", Fault::ServerError);
    let report = world.reverse().await;
    assert_eq!((report.outcome, report.unverifiable, report.findings_opened), (Outcome::Wrapped, 1, 119));
    assert_eq!(world.never_verified().await, 1, "it stays in the lag");

    // nothing answers any more but the list: the objects' own fault, as far as can be told; and then not even that
    world.pass(30);
    world.stripe.fail("pi_100", Fault::Dropped);
    world.stripe.put("pi_late", "succeeded", world.now() - Duration::minutes(20));
    world.payment(Some("pi_late"), "pending", 20).await;
    world.stripe.fail_from_nth(world.stripe.requests().len() + 2, Fault::Dropped);
    let report = world.reverse().await;
    assert_eq!((report.outcome, figures(&report).window_complete), (Outcome::Stopped, false));
    world.stripe.fail_all(None);
    assert_eq!(world.window().await.pop().unwrap().findings_opened, 1);
}

#[tokio::test]
async fn the_retrieve_decides_what_becomes_a_finding_and_an_open_one_needs_none() {
    let world = World::new().await;
    world.pair("pi_stays", "pending", "succeeded").await;
    world.pair("pi_moves", "paid", "processing").await;
    world.pair("pi_good", "paid", "succeeded").await;
    let mut tick =
        Actor::new(async |steps| world.reverse_in(&world.scan, &steps, None, &Input::default()).await.unwrap());
    tick.go_on_to(Step::Loaded).await;
    world.stripe.set_status("pi_moves", "succeeded");
    let report = tick.finish().await;
    assert_eq!((report.outcome, report.in_sync, report.repairable), (Outcome::Wrapped, 2, 1));
    assert_eq!(world.findings().await, ["missed_success repairable open"]);
    let mut asked = world.stripe.requests();
    asked.sort();
    assert_eq!(asked, ["list", "pi_moves", "pi_stays"]);

    world.pass(30);
    let input = Input { from: Some(world.now() - Duration::days(1)) };
    let report = world.reverse_in(&world.scan, &Steps::Unwatched, None, &input).await.unwrap();
    assert_eq!((report.repairable, report.findings_opened), (1, 0));
    assert_eq!(world.stripe.requests().len(), 4, "one more list and nothing else");
    let seen = "select (last_seen_at - detected_at >= interval '30 minutes')::text from reconciliation.finding";
    assert_eq!(world.texts(seen).await, ["true"]);

    // what a person accepted neither opens nor costs a request, as long as it is the same
    world.accept().await;
    let report = world.reverse_in(&world.scan, &Steps::Unwatched, None, &input).await.unwrap();
    assert_eq!((report.findings_opened, world.stripe.requests().len()), (0, 5));
}

#[tokio::test]
async fn what_is_fresh_is_in_flight_and_a_fast_scan_is_not_undone() {
    let world = World::new().await;
    world.pair("pi_fresh", "pending", "succeeded").await;
    world.pair("pi_raced", "pending", "succeeded").await;
    let just_now = format!("updated_at = to_timestamp({})", world.now().unix_timestamp() - 60);
    world.update(&just_now, "stripe_payment_intent_id = 'pi_fresh'").await;
    let mut tick =
        Actor::new(async |steps| world.reverse_in(&world.scan, &steps, None, &Input::default()).await.unwrap());
    tick.go_on_to(Step::Observed).await;
    world.update("status = 'paid'", "stripe_payment_intent_id = 'pi_raced'").await; // a webhook
    let report = tick.finish().await;
    assert_eq!((report.in_flight, report.findings_opened, report.commands_queued), (2, 0, 0));
    assert_eq!(world.never_verified().await, 2);
}

#[tokio::test]
async fn what_a_page_does_not_let_us_read_is_retrieved_and_never_skipped() {
    let mut world = World::new().await;
    world.set(&[("MATCH_METADATA_KEY", "order")]);
    world.pair("pi_known", "paid", "succeeded").await;
    for (stranger, ago) in [("pi_stranger", 50), ("pi_mute", 40)] {
        world.stripe.put(stranger, "succeeded", world.now() - Duration::minutes(ago));
        world.stripe.spoil(stranger);
    }
    world.stripe.spoil("pi_known");
    world.stripe.fail("pi_mute", Fault::Html);
    let report = world.reverse().await;
    assert_eq!((report.outcome, report.in_sync, report.unverifiable), (Outcome::Wrapped, 1, 1));
    assert_eq!((figures(&report).objects, figures(&report).unread), (3, 1));
    let seen = "select external_ref, status from reconciliation.orphan_candidate order by 1";
    assert_eq!(world.texts(seen).await, ["pi_mute unreadable", "pi_stranger succeeded"]);
    let proven = "select proven_from::text from reconciliation.reverse_window";
    assert_eq!(world.texts(proven).await, ["-"], "such a window proves no absence");

    // it can be read again: the second look finds the charge
    world.stripe.fail_all(None);
    world.stripe.fail("pi_mute", Fault::ServerError);
    world.pass(20);
    world.reverse().await;
    assert_eq!(world.findings().await, ["orphan_charge needs_review open"]);
    assert_eq!(world.texts(seen).await, ["pi_mute unreadable"], "kept, and put off");
}

#[tokio::test]
async fn session_time_zones_and_adapters_change_nothing() {
    let mut all = Vec::new();
    for adapter in [Adapter::Default, Adapter::UuidCheckout] {
        for zone in ["UTC", "Asia/Tokyo", "America/St_Johns"] {
            let mut world = World::with(adapter).await;
            world.set(&[("MATCH_METADATA_KEY", "order")]);
            world.scan.batch_execute(&format!("set timezone = '{zone}'")).await.unwrap();
            let (paid, waits) = match adapter {
                Adapter::Default => ("paid", "finalizing"),
                Adapter::UuidCheckout => ("Captured", "FinalizePending"),
            };
            for number in 0..230 {
                let id = format!("pi_{number}");
                world.stripe.put(&id, "succeeded", world.now() - Duration::minutes(20 + number * 7));
                world.stripe.set_metadata(&id, "order", &format!("o{number}"));
                if number % 10 != 0 {
                    world.payment_of(&format!("o{number}"), Some(&id), paid, 20 + number * 7).await;
                }
            }
            world.payment_of("o220", None, waits, 20 + 220 * 7).await;
            world.payment_of("nothing", None, waits, 60 * 24 * 3).await;
            let mut reports = world.window().await;
            for _ in 0..2 {
                world.pass(11);
                reports.extend(world.window().await);
            }
            let facts: Vec<_> = reports
                .iter()
                .map(|report| (report.outcome, report.in_sync, figures(report).clone(), report.opened_by_kind.clone()))
                .collect();
            let edges = "select extract(epoch from completed_to)::text, extract(epoch from proven_from)::text
                         from reconciliation.reverse_window";
            all.push((facts, world.texts(edges).await, world.outbox().await));
            let kinds = "select kind, count(*)::text from reconciliation.finding group by 1 order by 1";
            assert_eq!(
                world.texts(kinds).await,
                ["no_external_reference 1", "orphan_charge 22", "unlinked_charge 1"],
                "{adapter:?} {zone}"
            );
            assert_eq!(world.outbox().await, ["event PaymentCompensationRequired"]);
        }
    }
    assert!(all.iter().all(|world| *world == all[0]), "{all:#?}");
}

#[tokio::test]
async fn a_process_walks_a_window_by_list_and_retrieve_alone() {
    let world = World::new().await;
    let now: Timestamp = world.rows_of("select now()").await[0].get(0);
    let sandbox = Sandbox::start(Options::default()).await.unwrap();
    sandbox.with(|account, _| {
        for number in 0..250 {
            let id = Some(format!("pi_{number}"));
            let status = ExternalStatus::Succeeded;
            account
                .insert(PaymentIntentSeed { id, status, ..PaymentIntentSeed::new(now - Duration::days(40)) })
                .unwrap();
        }
    });
    let url = world.database.url();
    let settings = [
        ("DATABASE_URL", url.as_str()),
        ("STRIPE_API_KEY", "rk_test_hushkey"),
        ("STRIPE_API_BASE", sandbox.base_url.as_str()),
        ("REQUESTS_PER_SECOND", "2000"),
        ("REVERSE_PAGES", "2"),
        ("MISSING_CAP", "1000"),
    ];
    let tick = |arguments: &[&str]| start(&binaries().join("tick"), arguments, settings);
    let from = format!("{{\"from\": \"{}\"}}", (now - Duration::days(60)).date());
    let (code, stdout, stderr) = tick(&["reverse-scan", "--until-cycle", "--input", &from]).ended().await;
    assert_eq!(code, 0, "{stderr}");
    let reports: Vec<serde_json::Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let column = |name: &str| reports.iter().map(|report| report[name].clone()).collect::<Vec<_>>();
    assert_eq!(column("outcome"), ["advanced", "wrapped"]);
    assert_eq!((column("pages"), column("objects")), (vec![2.into(), 1.into()], vec![200.into(), 50.into()]));
    assert_eq!(column("window_complete"), [false, true]);
    for field in ["function", "job", "known", "foreign", "unread", "candidates", "looks", "orphans", "unexplained"] {
        assert!(reports.iter().all(|report| !report[field].is_null()), "{field}");
    }
    let asked = || sandbox.with(|account, _| account.counters().by_endpoint.clone());
    assert_eq!(asked().into_keys().collect::<Vec<_>>(), [Endpoint::List], "nothing to retrieve yet");

    // a second look, and its line in the log
    let due = "update reconciliation.orphan_candidate set next_look_at = first_seen_at where external_ref = 'pi_7'";
    world.owner.batch_execute(due).await.unwrap();
    let (code, _, stderr) = tick(&["reverse-scan"]).ended().await;
    assert_eq!(code, 0, "{stderr}");
    let lines = stderr.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let opened: Vec<_> = lines.filter(|line| line["message"] == "finding opened").collect();
    assert_eq!(opened.len(), 1, "{stderr}");
    let line = |field: &str| opened[0][field].as_str();
    assert_eq!(
        (line("level"), line("external_ref"), line("kind")),
        (Some("WARN"), Some("pi_7"), Some("orphan_charge"))
    );
    assert!(opened[0]["payment"].is_null() && !stderr.contains("hush"), "{stderr}");
    assert_eq!(asked().into_keys().collect::<Vec<_>>(), [Endpoint::List, Endpoint::Retrieve], "no search");

    let (code, _, stderr) = tick(&["reverse-scan", "--input", "{\"from\": \"yesterday\"}"]).ended().await;
    assert!(code == 2 && stderr.contains("from"), "{code} {stderr}");
    let (code, _, stderr) = tick(&["reverse-scan", "--input", "yesterday"]).ended().await;
    assert!(code == 2 && stderr.contains("--input"), "{code} {stderr}");
}
