//! Asking in bulk comes to what asking one by one comes to, on the same data and under faults, and costs fewer requests.

use std::collections::{BTreeMap, HashMap};

use local::fake::{FakeStripe, Fault};
use reconciler::budget::Budget;
use reconciler::domain::Timestamp;
use reconciler::domain::external::{External, ExternalPayment, ExternalStatus};
use reconciler::domain::id::ExternalRef;
use reconciler::gateway::{Gateway, GatewayError, ListPage, ListQuery};
use reconciler::scan::Deps;
use reconciler::scan::steps::{Step, Steps};
use reconciler::telemetry::{Outcome, Report};
use time::Duration;

use crate::schedule::Actor;
use crate::world::{Adapter, World};

const STATES: [&str; 5] = ["pending", "finalizing", "expired", "paid", "failed"];
const UUID_STATES: [&str; 5] = ["Processing", "FinalizePending", "Expired", "Captured", "Failed"];
const STATUSES: [&str; 8] = [
    "succeeded",
    "succeeded",
    "succeeded",
    "canceled",
    "requires_payment_method",
    "processing",
    "requires_capture",
    "partially_funded",
];

async fn world(adapter: Adapter, observe: &str) -> World {
    let mut world = World::with(adapter).await;
    let further =
        [("OBSERVE", observe), ("CONCURRENCY", "4"), ("REQUESTS_PER_SECOND", "10000"), ("MISSING_CAP", "5000")];
    world.set(&further);
    world
}

/// One tick with any Stripe.
async fn tick<G: Gateway>(world: &World, stripe: &G) -> Report {
    tick_until(world, stripe, None).await
}

async fn tick_until<G: Gateway>(world: &World, stripe: &G, deadline: Option<Timestamp>) -> Report {
    let budget = Budget::new("own", world.settings.requests_per_second, world.clock.clone());
    let deps = Deps {
        db: &world.scan,
        gateway: stripe,
        budget: &budget,
        clock: &world.clock,
        settings: &world.settings,
        keyset: world.keyset,
        deadline,
        steps: &Steps::Unwatched,
    };
    world.clock.advance(std::time::Duration::from_millis(1));
    forward_scan::run(&deps, world.now()).await.expect("a tick that succeeds")
}

/// Ticks until everything has been seen.
async fn cycle<G: Gateway>(world: &World, stripe: &G) -> Vec<Report> {
    let mut reports = Vec::new();
    for _ in 0..3_000 {
        let report = tick(world, stripe).await;
        if report.outcome == Outcome::Stopped {
            world.pass(1); // a throttled account calms down
        }
        let wrapped = report.outcome == Outcome::Wrapped;
        reports.push(report);
        if wrapped {
            return reports;
        }
    }
    panic!("no cycle has completed: {:?}", reports.last());
}

fn total(reports: &[Report], field: impl Fn(&Report) -> u64) -> u64 {
    reports.iter().map(field).sum()
}

/// The same shop for the same seed: payments in every state, PaymentIntents in every status and some that are not there,
/// made before or after their rows, and objects of others in between. `agreeing` of a hundred are paid here and there. What
/// is at Stripe, by reference.
async fn shop(
    world: &World,
    adapter: Adapter,
    seed: u64,
    payments: i64,
    agreeing: u32,
) -> BTreeMap<String, &'static str> {
    let mut chance = fastrand::Rng::with_seed(seed);
    let spacing = [1, 20, 600][usize::try_from(seed % 3).unwrap()];
    let slack = [5, 5, 5, 3_600][usize::try_from(seed % 4).unwrap()];
    let mut truth = BTreeMap::new();
    let mut rows = Vec::new();
    for number in 1..=payments {
        let minutes = 60 + (payments - number) * spacing / 60;
        let reference = format!("pi_{number}");
        let states = if adapter == Adapter::Default { STATES } else { UUID_STATES };
        let agrees = chance.u32(0..100) < agreeing;
        let state = if agrees { states[3] } else { states[chance.usize(0..states.len())] };
        let status = if agrees { STATUSES[0] } else { STATUSES[chance.usize(0..STATUSES.len())] };
        let named = agrees || chance.u32(0..20) > 0;
        rows.push((named.then(|| reference.clone()), state, minutes));
        let created = world.now() - Duration::minutes(minutes) + Duration::seconds(chance.i64(-slack..=slack));
        let created = if chance.u32(0..50) == 0 { created - Duration::days(3) } else { created };
        if agrees || chance.u32(0..20) > 0 {
            world.stripe.put(&reference, status, created);
            if named {
                truth.insert(reference, status);
            }
        } else if named {
            truth.insert(reference, "not_found");
        }
        for foreign in 0..chance.u32(0..3) {
            world.stripe.put(&format!("pi_foreign{number}x{foreign}"), "succeeded", created);
        }
    }
    world.payments(&rows).await;
    truth
}

/// Everything that a scan has concluded, with references for keys.
async fn concluded(world: &World) -> Vec<String> {
    let mut all = Vec::new();
    for sql in [
        "select coalesce(p.external_ref, '-'), o.external_status, extract(epoch from o.external_created_at)::bigint::text
         from reconciliation.observation o join reconciliation.payment p on p.id = o.payment_id order by 1, 2, 3",
        "select p.external_ref, f.kind, f.verdict, f.local_state, f.external_status, f.resolution
         from reconciliation.finding f join reconciliation.payment p on p.id = f.payment_id order by 1, 2, 3, 4",
        "select o.kind, o.type, o.payload ->> 'external_ref' from reconciliation.outbox o order by 1, 2, 3",
    ] {
        all.extend(world.texts(sql).await);
    }
    all
}

#[tokio::test]
async fn in_bulk_and_one_by_one_conclude_the_same_in_both_cycles() {
    for adapter in [Adapter::Default, Adapter::UuidCheckout] {
        let mut saved = 0;
        for seed in 0..4 {
            let (single, bulk) = (world(adapter, "single").await, world(adapter, "bulk").await);
            for world in [&single, &bulk] {
                shop(world, adapter, seed, 400, 20).await;
            }
            for cycle_number in 1..=2 {
                let one_by_one = cycle(&single, &single.stripe).await;
                let in_bulk = cycle(&bulk, &bulk.stripe).await;
                let verdicts = |reports: &[Report]| {
                    [
                        total(reports, |report| report.in_sync),
                        total(reports, |report| report.in_flight),
                        total(reports, |report| report.repairable),
                        total(reports, |report| report.needs_review),
                        total(reports, |report| report.unverifiable),
                        total(reports, |report| report.findings_opened),
                        total(reports, |report| report.commands_queued),
                    ]
                };
                let case = format!("{adapter:?}, seed {seed}, cycle {cycle_number}");
                assert_eq!(verdicts(&in_bulk), verdicts(&one_by_one), "{case}");
                assert_eq!(concluded(&bulk).await, concluded(&single).await, "{case}");
                let requests =
                    (total(&in_bulk, |report| report.requests), total(&one_by_one, |report| report.requests));
                assert!(requests.0 <= requests.1 * 11 / 10 + 1, "{case}: {requests:?}");
                saved += i64::try_from(requests.1).unwrap() - i64::try_from(requests.0).unwrap();
            }
        }
        assert!(saved > 800, "it is there to save requests: {saved}");
    }
}

#[tokio::test]
async fn faults_on_every_endpoint_make_nothing_healthy_and_nothing_missing() {
    let (mut requests, mut asked) = (0, 0);
    for seed in 0..10 {
        let world = world(Adapter::Default, "bulk").await;
        let truth = shop(&world, Adapter::Default, seed, 10_000, 95).await;
        let mut chance = fastrand::Rng::with_seed(100 + seed);
        for nth in 1..60_000 {
            match chance.u32(0..100) {
                0..3 => world.stripe.fail_nth(nth, Fault::RateLimited),
                3..6 => world.stripe.fail_nth(nth, Fault::ServerError),
                6..8 => world.stripe.fail_nth(nth, Fault::Dropped),
                _ => {}
            }
        }
        let reports = cycle(&world, &world.stripe).await;
        let seen: HashMap<String, Option<String>> = world
            .rows_of(
                "select p.external_ref, o.external_status from reconciliation.payment p
                 join reconciliation.observation o on o.payment_id = p.id where p.external_ref is not null",
            )
            .await
            .iter()
            .map(|row| (row.get(0), row.get(1)))
            .collect();
        assert_eq!(seen.len(), truth.len(), "seed {seed}: every payment was met");
        let mut unverified = 0;
        for (reference, status) in &truth {
            match seen[reference].as_deref() {
                None => unverified += 1,
                Some(said) => assert_eq!(said, *status, "seed {seed}: {reference}"),
            }
        }
        let counted = total(&reports, |report| report.unverifiable);
        assert!(unverified <= counted, "seed {seed}: {unverified} without an answer, {counted} counted");
        let missing = "select p.external_ref from reconciliation.finding f
                       join reconciliation.payment p on p.id = f.payment_id where f.external_status = 'not_found'";
        for reference in world.texts(missing).await {
            assert_eq!(truth[&reference], "not_found", "seed {seed}: {reference} is called missing");
        }
        requests += world.stripe.requests().len();
        asked += truth.len();
    }
    assert!(requests < asked, "with all the faults fewer than one a payment: {requests} for {asked}");
}

/// Stripe, whose lists are not what its retrieves are.
#[derive(Default)]
struct Odd {
    stripe: FakeStripe,
    /// On no page.
    hidden: Vec<&'static str>,
    /// Pages give these another status.
    listed_as: Vec<(&'static str, &'static str)>,
    /// Each page begins with what ended the one before.
    repeats: bool,
    /// Objects of the other mode among ours.
    of_live_mode: Vec<&'static str>,
}

impl Gateway for Odd {
    async fn retrieve(&self, id: &ExternalRef) -> Result<External, GatewayError> {
        self.stripe.retrieve(id).await
    }

    async fn list(&self, query: &ListQuery) -> Result<ListPage, GatewayError> {
        let mut page = self.stripe.list(query).await?;
        let named = |names: &[&str], payment: &ExternalPayment| names.contains(&payment.id.as_str());
        page.payments.retain(|payment| !named(&self.hidden, payment));
        for payment in &mut page.payments {
            if let Some((_, status)) = self.listed_as.iter().find(|(id, _)| *id == payment.id.as_str()) {
                payment.status = ExternalStatus::from_stripe(status);
            }
            payment.livemode |= self.of_live_mode.contains(&payment.id.as_str());
        }
        if self.repeats
            && let Some(after) = &query.starting_after
            && let External::Present(before) = self.stripe.retrieve(after).await?
        {
            page.payments.insert(0, before);
        }
        Ok(page)
    }
}

#[tokio::test]
async fn absence_and_a_new_drift_are_proved_by_a_retrieve_which_decides() {
    let world = world(Adapter::Default, "bulk").await;
    world.pairs(300, "pending", "processing").await;
    let odd = Odd {
        stripe: world.stripe.clone(),
        hidden: vec!["pi_7", "pi_8"],
        // it had succeeded when it was listed, or a page was wrong: now it is under way
        listed_as: vec![("pi_9", "succeeded"), ("pi_10", "canceled"), ("pi_11", "a_new_word")],
        ..Odd::default()
    };
    world.stripe.remove("pi_8");
    world.stripe.set_status("pi_12", "succeeded");
    world.stripe.fail("pi_11", Fault::Dropped);
    let reports = cycle(&world, &odd).await;
    assert_eq!(
        world.findings().await,
        ["missing_externally needs_review open", "missed_success repairable open"],
        "of pi_8 and pi_12"
    );
    assert!(total(&reports, |report| report.unverifiable) >= 1, "pi_11, whose retrieve did not answer");
    let unverified = "select p.external_ref from reconciliation.observation o
                      join reconciliation.payment p on p.id = o.payment_id where o.observed_at is null";
    assert_eq!(world.texts(unverified).await, ["pi_11"]);
    let asked = world.stripe.requests();
    for id in ["pi_7", "pi_8", "pi_9", "pi_10", "pi_11", "pi_12"] {
        assert!(asked.iter().any(|request| request == id), "{id} was not retrieved");
    }
    assert!(asked.len() < 60, "and hardly any other: {}", asked.len());
    // an open finding needs no second proof
    let before = asked.len();
    world.stripe.fail_all(None);
    cycle(&world, &odd).await;
    assert!(!world.stripe.requests()[before..].contains(&"pi_12".to_owned()));
}

#[tokio::test]
async fn odd_pages_bring_no_wrong_verdict_and_no_endless_loop() {
    let mut world = world(Adapter::Default, "bulk").await;
    world.set(&[("OBSERVE", "bulk"), ("BATCH_SIZE", "200"), ("CONCURRENCY", "4"), ("REQUESTS_PER_SECOND", "10000")]);
    world.pairs(450, "paid", "succeeded").await;
    for number in 0..300 {
        world.stripe.put(&format!("pi_foreign{number}"), "canceled", world.now() - Duration::minutes(60));
    }
    world.stripe.set_status("pi_5", "a_status_of_next_year");
    world.stripe.fail_nth(1, Fault::EndlessPage);
    world.stripe.fail_nth(4, Fault::EndlessPage);
    let odd =
        Odd { stripe: world.stripe.clone(), repeats: true, of_live_mode: vec!["pi_20", "pi_21"], ..Odd::default() };
    let reports = cycle(&world, &odd).await;
    assert_eq!(world.findings().await, ["paid_locally_not_externally needs_review open"], "pi_5");
    assert_eq!((total(&reports, |report| report.in_sync), total(&reports, |report| report.unverifiable)), (449, 0));
    assert!(world.stripe.requests().len() < 450);
}

#[tokio::test]
async fn a_commit_that_is_lost_teaches_nothing() {
    let world = world(Adapter::Default, "bulk").await;
    world.pairs(300, "paid", "succeeded").await;
    let second = World::scan_session(&world.database).await;
    let mut late = Actor::new(async |steps| world.tick_in(&second, &steps, None).await);
    late.go_on_to(Step::Decided).await;
    assert_eq!(world.ticked().await.outcome, Outcome::Advanced);
    let learned = "select l::text from reconciliation.bulk_learned l";
    let before = world.texts(learned).await;
    assert_eq!(before.len(), 1);
    assert_eq!(late.finish().await.unwrap().outcome, Outcome::AbortedConcurrentRun);
    assert_eq!(world.texts(learned).await, before);
}

#[tokio::test]
async fn a_flood_of_404s_and_a_wrong_key_withhold_in_bulk_too() {
    let mut world = World::new().await;
    world.set(&[("OBSERVE", "bulk"), ("MISSING_CAP", "50"), ("REQUESTS_PER_SECOND", "10000")]);
    world.rows(200, "paid").await;
    let before = world.written().await;
    let error = world.tick().await.expect_err("nothing of it is there");
    assert_eq!(error.error_type(), "BatchWithheld");
    assert_eq!(world.written().await, before);
    for number in 1..=200 {
        world.stripe.put_in_other_mode(&format!("pi_{number}"));
    }
    assert_eq!(world.tick().await.expect_err("nothing but the other mode").error_type(), "BatchWithheld");
    world.stripe.fail_all(Some(Fault::Unauthorized));
    assert_eq!(world.tick().await.expect_err("a wrong key").error_type(), "StripeKeyRefused");
    assert_eq!(world.written().await, before);
}

#[tokio::test]
async fn a_429_and_an_outage_in_the_middle_stop_the_batch_and_blame_nobody() {
    for fault in [Fault::RateLimited, Fault::Dropped] {
        let world = world(Adapter::Default, "bulk").await;
        world.pairs(400, "paid", "succeeded").await;
        world.stripe.fail_from_nth(2, fault);
        let report = tick(&world, &world.stripe).await;
        assert_eq!(report.outcome, Outcome::Stopped, "{fault:?}");
        assert_eq!((report.needs_review, report.repairable), (0, 0), "{fault:?}");
        let verified =
            world.number("select count(*) from reconciliation.observation where observed_at is not null").await;
        assert_eq!(u64::try_from(verified).unwrap(), report.in_sync, "{fault:?}: what was answered is committed");
        world.stripe.fail_from_nth(usize::MAX, fault);
        world.pass(10);
        cycle(&world, &world.stripe).await;
        assert_eq!((world.never_verified().await, world.findings().await.len()), (0, 0), "{fault:?}");
    }
}

#[tokio::test]
async fn a_deadline_in_a_batch_of_20_000_commits_the_finished_beginning_and_the_next_tick_goes_on() {
    for offset in [0, -900] {
        let mut world = World::new().await;
        let rate = [("REQUESTS_PER_SECOND", "5"), ("CONCURRENCY", "8"), ("GRACE_SECONDS", "0")];
        world.set(&[&[("OBSERVE", "bulk"), ("BATCH_SIZE", "20000")][..], &rate[..]].concat());
        for number in 1..=20_000 {
            let row = world.now() - Duration::hours(1) - Duration::seconds(20_000 - number);
            world.stripe.put(&format!("pi_{number}"), "succeeded", row + Duration::seconds(offset));
        }
        world.rows(20_000, "paid").await;
        let passed = "select coalesce(max(position_id::bigint), 0) from reconciliation.cursor";
        let verified = "select count(*) from reconciliation.observation where observed_at is not null";
        let (mut ticks, mut requests, mut before) = (0, 0, 0);
        loop {
            let deadline = world.now() + Duration::seconds(10);
            let report = tick_until(&world, &world.stripe, Some(deadline)).await;
            assert!(world.now() <= deadline, "{offset}: {} beyond the deadline: {report:?}", world.now() - deadline);
            assert_eq!((report.unverifiable, report.needs_review), (0, 0), "{offset}");
            requests += report.requests;
            if report.outcome == Outcome::Wrapped {
                break;
            }
            let now = world.number(passed).await;
            assert!(now > before || report.scanned == 0 && ticks == 0, "{offset}: {now} after {before}: {report:?}");
            // what was answered behind the first that was not is judged, and met again
            assert!(now - before <= i64::try_from(report.scanned).unwrap(), "{offset}: what was passed was judged");
            assert!(world.number(verified).await >= now, "{offset}: and verified");
            (before, ticks) = (now, ticks + 1);
            assert!(ticks < 20, "{offset}: {requests} requests so far");
        }
        assert_eq!(world.never_verified().await, 0, "{offset}");
        assert!((4..=8).contains(&ticks), "{offset}: {ticks} ticks with ten seconds each");
        assert!((200..=400).contains(&requests), "{offset}: {requests} requests");
    }
}
