//! The dispatcher: a command takes effect once, an event goes out at least once and in order.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dispatch::outbox::{Claimed, claim};
use dispatch::sink::{Event, EventSink, SinkError};
use dispatch::{DispatchReport, Tick, run, work};
use local::fake::FakeStripe;
use reconciler::clock::Clock;
use reconciler::config::DispatchSettings;
use time::Duration;
use tokio_postgres::Client;

use crate::world::{Adapter, World, connect};

/// Keeps what it accepted, and refuses what it is told to.
#[derive(Clone, Default)]
struct Sink {
    accepted: Arc<Mutex<Vec<(String, String)>>>,
    refuses: Arc<Mutex<Vec<String>>>,
    away: Arc<Mutex<bool>>,
}

impl Sink {
    fn accepted(&self) -> Vec<String> {
        self.accepted.lock().unwrap().iter().map(|(payment, name)| format!("{payment} {name}")).collect()
    }

    fn refuse(&self, payments: &[&str]) {
        *self.refuses.lock().unwrap() = payments.iter().map(|payment| (*payment).to_owned()).collect();
    }
}

impl EventSink for Sink {
    async fn publish(&self, events: &[Event]) -> Vec<Result<(), SinkError>> {
        if *self.away.lock().unwrap() {
            return Vec::new();
        }
        let refused = self.refuses.lock().unwrap().clone();
        let mut results = Vec::new();
        for event in events {
            let payment = event.detail["payment_id"].as_str().unwrap().to_owned();
            if refused.contains(&payment) {
                results.push(Err(SinkError("throttled".to_owned())));
            } else {
                self.accepted.lock().unwrap().push((payment, event.name.clone()));
                results.push(Ok(()));
            }
        }
        results
    }
}

fn settings() -> DispatchSettings {
    DispatchSettings::from_lookup(&|key| (key == "DISPATCH_ATTEMPTS_MAX").then(|| "4".to_owned())).unwrap()
}

async fn writer(world: &World) -> Client {
    let session = connect(&world.database.url()).await;
    session.batch_execute("set role reconciler_writer").await.unwrap();
    session
}

async fn dispatched(world: &World, db: &Client, sink: &Sink) -> DispatchReport {
    run(db, sink, &settings(), &world.dispatch_tick()).await.expect("a tick that succeeds")
}

const OPEN: &str = "select count(*) from reconciliation.outbox where delivered_at is null and dead_at is null";

#[tokio::test]
async fn a_command_takes_effect_once_and_its_event_goes_out() {
    for adapter in [Adapter::Default, Adapter::UuidCheckout] {
        let world = World::with(adapter).await;
        let (pending, effects) = match adapter {
            Adapter::Default => ("pending", "select count(*) from payment_ledger"),
            Adapter::UuidCheckout => ("Processing", "select count(*) from shop.booking"),
        };
        let id = world.pair("pi_1", pending, "succeeded").await;
        world.cycle().await;
        let (db, sink) = (writer(&world).await, Sink::default());
        let report = dispatched(&world, &db, &sink).await;
        assert_eq!((report.claimed, report.written), (1, 1));
        assert_eq!(world.findings().await, ["missed_success repairable repaired"]);
        assert_eq!(world.texts("select state from reconciliation.payment").await, ["paid"]);
        world.pass(1440); // the event was made by the server's own clock
        world.owner.batch_execute("update reconciliation.outbox set available_at = '2020-01-01'").await.unwrap();
        let report = dispatched(&world, &db, &sink).await;
        assert_eq!((report.claimed, report.published), (1, 1));
        assert_eq!(sink.accepted(), [format!("{id} PaymentCaptured")]);
        assert_eq!(dispatched(&world, &db, &sink).await.claimed, 0);
        assert_eq!((world.number(effects).await, world.number(OPEN).await), (1, 0));
    }
}

#[tokio::test]
async fn a_command_for_what_has_changed_meanwhile_forces_nothing() {
    let world = World::new().await;
    world.pairs(3, "pending", "succeeded").await;
    world.cycle().await;
    world.update("status = 'failed'", "stripe_payment_intent_id = 'pi_1'").await;
    world.update("stripe_payment_intent_id = 'pi_other'", "stripe_payment_intent_id = 'pi_2'").await;
    world.update("status = 'paid'", "stripe_payment_intent_id = 'pi_3'").await;
    let (db, sink) = (writer(&world).await, Sink::default());
    let report = dispatched(&world, &db, &sink).await;
    assert_eq!((report.superseded, report.already_written, report.written), (2, 1, 0));
    let findings = "select resolution from reconciliation.finding order by id";
    assert_eq!(world.texts(findings).await, ["-", "-", "already_written"]);
    assert_eq!(world.number("select count(*) from payment_ledger").await, 0);
    // the next scan judges them by what is true now
    world.stripe.put("pi_other", "canceled", world.now() - Duration::hours(1));
    world.cycle().await;
    let open = "select kind from reconciliation.finding where resolved_at is null order by kind";
    assert_eq!(world.texts(open).await, ["missed_cancel", "unexpected:failed->succeeded"]);
}

async fn claimed(world: &World, db: &Client) -> Vec<Claimed> {
    claim(db, world.now(), 100, 60).await.unwrap()
}

#[tokio::test]
async fn a_worker_that_dies_after_its_claim_loses_nothing_and_one_that_wakes_late_marks_nothing() {
    let world = World::new().await;
    world.pairs(5, "pending", "succeeded").await;
    world.cycle().await;
    let (late, other, sink) = (writer(&world).await, writer(&world).await, Sink::default());
    let slept_over = claimed(&world, &late).await;
    assert_eq!(slept_over.len(), 5);
    assert_eq!(dispatched(&world, &other, &sink).await.claimed, 0, "they are somebody's");
    world.pass(2);
    let report = dispatched(&world, &other, &sink).await;
    assert_eq!((report.claimed, report.written), (5, 5), "the lease ran out");
    let report = work(&late, &sink, &settings(), &world.dispatch_tick(), &slept_over).await.unwrap();
    assert_eq!((report.outdated, report.written, report.already_written), (5, 0, 0), "the fence");
    assert_eq!(world.number("select count(*) from payment_ledger").await, 5);
    assert_eq!(world.number("select count(*) from reconciliation.outbox where kind = 'event'").await, 5);
}

#[tokio::test]
async fn a_worker_that_dies_before_it_marks_an_event_sends_it_again() {
    let world = World::new().await;
    world.payment(Some("pi_gone"), "finalizing", 60).await;
    world.cycle().await;
    let (db, sink) = (writer(&world).await, Sink::default());
    let dying = claimed(&world, &db).await;
    let event = Event { id: dying[0].id, name: dying[0].name.clone(), detail: dying[0].payload.clone() };
    sink.publish(&[event]).await[0].clone().unwrap();
    world.pass(2);
    assert_eq!(dispatched(&world, &db, &sink).await.published, 1);
    assert_eq!(sink.accepted(), ["1 PaymentCompensationRequired"; 2], "at least once");
    assert_eq!(world.number(OPEN).await, 0);
}

#[tokio::test]
async fn events_outlive_an_outage_and_go_out_in_order_per_payment() {
    let world = World::new().await;
    world
        .owner
        .batch_execute(
            "insert into reconciliation.outbox (aggregate, kind, type, payload, created_at, available_at)
             select p, 'event', t, jsonb_build_object('payment_id', p), '2020-01-01', '2020-01-01'
             from (values ('1', 'PaymentFailed'), ('2', 'PaymentFailed'), ('1', 'PaymentCaptured'), ('2', 'PaymentCaptured')) v (p, t)",
        )
        .await
        .unwrap();
    let (db, sink) = (writer(&world).await, Sink::default());
    *sink.away.lock().unwrap() = true;
    let report = dispatched(&world, &db, &sink).await;
    assert_eq!((report.claimed, report.failed), (2, 2), "the later ones wait for the earlier ones");
    assert_eq!(dispatched(&world, &db, &sink).await.claimed, 0, "not at once");
    *sink.away.lock().unwrap() = false;
    sink.refuse(&["1"]);
    world.pass(1);
    let report = dispatched(&world, &db, &sink).await;
    assert_eq!((report.published, report.failed), (1, 1));
    sink.refuse(&[]);
    for _ in 0..3 {
        world.pass(1);
        dispatched(&world, &db, &sink).await;
    }
    let accepted = sink.accepted();
    for payment in ["1", "2"] {
        let of_it: Vec<&String> = accepted.iter().filter(|event| event.starts_with(payment)).collect();
        assert_eq!(of_it, [&format!("{payment} PaymentFailed"), &format!("{payment} PaymentCaptured")]);
    }
    assert_eq!(world.number(OPEN).await, 0);
}

#[tokio::test]
async fn what_never_succeeds_dies_is_kept_and_is_issued_again_by_the_scan() {
    let world = World::new().await;
    world.pair("pi_1", "pending", "succeeded").await;
    world.cycle().await;
    let broken =
        "create or replace function reconciliation.apply_transition(payment_id bigint, transition text, evidence jsonb)
                  returns text language plpgsql as $$ begin raise exception 'no ledger today'; end $$";
    world.owner.batch_execute(broken).await.unwrap();
    let (db, sink) = (writer(&world).await, Sink::default());
    for attempt in 1..=4 {
        let report = dispatched(&world, &db, &sink).await;
        assert_eq!((report.failed, report.dead), if attempt < 4 { (1, 0) } else { (0, 1) }, "attempt {attempt}");
        world.pass(5);
    }
    assert_eq!(dispatched(&world, &db, &sink).await.claimed, 0);
    let dead = "select last_error from reconciliation.outbox where dead_at is not null";
    assert!(world.texts(dead).await[0].contains("no ledger today"));
    assert_eq!(world.texts("select status from payments").await, ["pending"]);

    world.owner.batch_execute(migrate::DEFAULT_ADAPTER).await.unwrap();
    assert_eq!(world.cycle().await[0].commands_queued, 1, "issued again");
    assert_eq!(dispatched(&world, &db, &sink).await.written, 1);
    assert_eq!(world.findings().await, ["missed_success repairable repaired"]);
}

#[tokio::test]
async fn a_command_that_cannot_be_read_is_dead_at_once() {
    let world = World::new().await;
    let insert = "insert into reconciliation.outbox (aggregate, kind, type, payload, created_at, available_at)
                  values ('1', 'command', 'ApplyPaymentSucceeded', '{}', '2020-01-01', '2020-01-01')";
    world.owner.batch_execute(insert).await.unwrap();
    assert_eq!(dispatched(&world, &writer(&world).await, &Sink::default()).await.dead, 1);
}

#[tokio::test]
async fn many_dispatchers_at_once_apply_each_command_once() {
    let world = World::new().await;
    world.pairs(300, "pending", "succeeded").await;
    world.cycle().await;
    let mut workers = Vec::new();
    for _ in 0..4 {
        workers.push(writer(&world).await);
    }
    let sink = Sink::default();
    let few = DispatchSettings { batch: 7, ..settings() };
    let tick = world.dispatch_tick();
    let drain = async |db: &Client| {
        let mut written = 0;
        loop {
            let report = run(db, &sink, &few, &tick).await.unwrap();
            if report.claimed == 0 {
                return written;
            }
            assert_eq!((report.failed, report.outdated), (0, 0));
            written += report.written;
        }
    };
    let (a, b, c, d) = tokio::join!(drain(&workers[0]), drain(&workers[1]), drain(&workers[2]), drain(&workers[3]));
    assert_eq!(a + b + c + d, 300);
    assert_eq!(world.number("select count(*) from payment_ledger").await, 300);
    assert_eq!(
        world
            .number("select count(distinct aggregate) from reconciliation.outbox where type = 'PaymentCaptured'")
            .await,
        300
    );
    let stripe: &FakeStripe = &world.stripe;
    assert_eq!(stripe.requests().len(), 300, "and Stripe is not asked by it");
}

/// Refuses the first event with words that Postgres cannot keep, and accepts the others.
struct Garbles;

impl EventSink for Garbles {
    async fn publish(&self, events: &[Event]) -> Vec<Result<(), SinkError>> {
        let refuses = |event: &Event| event.detail["payment_id"] == "1";
        let answer = |event| if refuses(event) { Err(SinkError("bad\0gateway".to_owned())) } else { Ok(()) };
        events.iter().map(answer).collect()
    }
}

#[tokio::test]
async fn an_error_that_postgres_cannot_keep_holds_up_no_other_event() {
    let world = World::new().await;
    let insert = "insert into reconciliation.outbox (aggregate, kind, type, payload, created_at, available_at)
                  select p, 'event', 'PaymentCaptured', jsonb_build_object('payment_id', p), '2020-01-01', '2020-01-01'
                  from (values ('1'), ('2')) v (p)";
    world.owner.batch_execute(insert).await.unwrap();
    let report =
        run(&writer(&world).await, &Garbles, &settings(), &world.dispatch_tick()).await.expect("a tick that succeeds");
    assert_eq!((report.published, report.failed), (1, 1));
    let kept = "select last_error from reconciliation.outbox where delivered_at is null";
    assert_eq!(world.texts(kept).await, ["the event was not accepted: bad gateway"]);
}

/// Accepts everything; each call takes a while of a clock that stands otherwise, and may take `longest`.
struct Takes {
    clock: Clock,
    each: std::time::Duration,
    longest: std::time::Duration,
}

impl EventSink for Takes {
    fn takes_at_most(&self) -> std::time::Duration {
        self.longest
    }

    async fn publish(&self, events: &[Event]) -> Vec<Result<(), SinkError>> {
        self.clock.advance(self.each);
        vec![Ok(()); events.len()]
    }
}

async fn many_events(world: &World, payments: i64) {
    let insert = "insert into reconciliation.outbox (aggregate, kind, type, payload, created_at, available_at)
                  select p::text, 'event', 'PaymentCaptured', jsonb_build_object('payment_id', p::text), '2020-01-01', '2020-01-01'
                  from generate_series(1, $1::bigint) p";
    world.owner.execute(insert, &[&payments]).await.unwrap();
}

/// Rows that wait, by how often they were tried; none of them is anybody's.
async fn waiting(world: &World) -> Vec<String> {
    let leased = "select count(*) from reconciliation.outbox where lease_expires_at is not null";
    assert_eq!(world.number(leased).await, 0, "nobody has to wait for a lease");
    world
        .texts("select attempts::text, count(*)::text from reconciliation.outbox where delivered_at is null group by attempts")
        .await
}

#[tokio::test]
async fn a_deadline_in_mid_batch_keeps_what_is_published_and_gives_the_rest_back() {
    let (world, seconds) = (World::new().await, std::time::Duration::from_secs);
    many_events(&world, 25).await;
    let db = writer(&world).await;
    let slow = Takes { clock: world.clock.clone(), each: seconds(6), longest: seconds(0) };
    for (published, given_back) in [(20, 5), (5, 0)] {
        let tick = Tick::begin(&world.clock, world.now(), Some(world.now() + Duration::seconds(10)));
        let report = run(&db, &slow, &settings(), &tick).await.unwrap();
        assert_eq!((report.published, report.given_back, report.failed), (published, given_back, 0));
        let rest = if given_back == 0 { vec![] } else { vec![format!("0 {given_back}")] };
        assert_eq!(waiting(&world).await, rest, "no attempt is counted");
    }
}

#[tokio::test]
async fn no_event_goes_out_that_could_outlast_its_lease() {
    let (world, seconds) = (World::new().await, std::time::Duration::from_secs);
    many_events(&world, 45).await;
    let db = writer(&world).await;
    // of a lease of 120 seconds, calls begin until 30 are left
    let slow = Takes { clock: world.clock.clone(), each: seconds(30), longest: seconds(30) };
    let report = run(&db, &slow, &settings(), &world.dispatch_tick()).await.unwrap();
    assert_eq!((report.published, report.given_back, report.outdated), (40, 5, 0));
    assert_eq!(waiting(&world).await, ["0 5"]);
}

#[tokio::test]
async fn an_event_that_is_under_way_at_the_deadline_is_cut_off_and_comes_back() {
    #[derive(Default)]
    struct Silent(AtomicU64);
    impl EventSink for Silent {
        async fn publish(&self, events: &[Event]) -> Vec<Result<(), SinkError>> {
            self.0.fetch_add(events.len().try_into().unwrap(), Ordering::Relaxed);
            std::future::pending().await
        }
    }
    let world = World::new().await;
    many_events(&world, 12).await;
    let (db, clock, sink) = (writer(&world).await, Clock::System, Silent::default());
    let tick = Tick::begin(&clock, world.now(), Some(clock.now() + Duration::milliseconds(500)));
    let report = run(&db, &sink, &settings(), &tick).await.unwrap();
    // on a machine that stands still for half a second, none has begun
    let begun = sink.0.load(Ordering::Relaxed);
    assert!(begun == 10 || begun == 0, "{begun}");
    assert_eq!((report.published, report.failed, report.given_back), (0, begun, 12 - begun));
    let attempts = "select sum(attempts) from reconciliation.outbox";
    assert_eq!(world.number(attempts).await, i64::try_from(begun).unwrap(), "what began is an attempt");
}

#[tokio::test]
async fn no_command_begins_after_the_deadline_and_those_under_way_are_finished() {
    let world = World::new().await;
    world.pairs(20, "pending", "succeeded").await;
    world.cycle().await;
    let (db, sink) = (writer(&world).await, Sink::default());
    let tick = Tick::begin(&world.clock, world.now(), Some(world.now() + Duration::seconds(10)));
    // the first command waits for its payment, and with it those that were sent behind it
    let holder = connect(&world.database.url()).await;
    let hold = "begin; select from payments where stripe_payment_intent_id = 'pi_1' for update";
    holder.batch_execute(hold).await.unwrap();
    let settings = settings();
    let until_one_waits = async {
        let waits =
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        while world.number(waits).await == 0 {}
        world.clock.advance(std::time::Duration::from_secs(10));
        holder.batch_execute("commit").await.unwrap();
    };
    let (report, ()) = tokio::join!(run(&db, &sink, &settings, &tick), until_one_waits);
    let report = report.unwrap();
    assert_eq!((report.claimed, report.written, report.given_back), (20, 16, 4));
    let commands = "select attempts::text from reconciliation.outbox where kind = 'command' and delivered_at is null";
    assert_eq!(world.texts(commands).await, ["0"; 4]);
    assert_eq!(world.number("select count(*) from payment_ledger").await, 16);
    assert_eq!(dispatched(&world, &db, &sink).await.written, 4, "at once");
}

#[tokio::test]
async fn what_another_worker_has_meanwhile_is_not_given_back() {
    let world = World::new().await;
    many_events(&world, 3).await;
    let (late, other) = (writer(&world).await, writer(&world).await);
    let slept_over = claimed(&world, &late).await;
    world.pass(2);
    assert_eq!(claimed(&world, &other).await.len(), 3, "the lease ran out");
    let over = Tick::begin(&world.clock, world.now(), Some(world.now()));
    let report = work(&late, &Sink::default(), &settings(), &over, &slept_over).await.unwrap();
    assert_eq!((report.given_back, report.outdated, report.published), (0, 3, 0), "the fence");
    let theirs = "select count(*) from reconciliation.outbox where lease_expires_at is not null and attempts = 2";
    assert_eq!(world.number(theirs).await, 3);
}

#[tokio::test]
async fn a_row_that_its_workers_die_of_dies_itself() {
    let world = World::new().await;
    many_events(&world, 1).await;
    let (db, sink) = (writer(&world).await, Sink::default());
    for _ in 0..4 {
        assert_eq!(claimed(&world, &db).await.len(), 1, "and the worker dies");
        world.pass(2);
    }
    let report = dispatched(&world, &db, &sink).await;
    assert_eq!((report.claimed, report.dead, report.published), (1, 1, 0), "after four of four attempts");
    assert!(sink.accepted().is_empty());
    let dead = "select last_error from reconciliation.outbox where dead_at is not null";
    assert_eq!(world.texts(dead).await, ["it was claimed too often, and no worker came to an end with it"]);
}
