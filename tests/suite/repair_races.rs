//! The repair and the webhook at once: two dispatchers that die, sleep and wake, three deliveries of each webhook event, and a
//! scan, in seeded orders. Whatever the order, a payment changes once.
//!
//! A dispatcher moves by one claim or one row; a command's transition and mark are one statement, so there is no place between
//! them to stand at. A delivery is one transaction and moves as one. The scan stands at its own named steps.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use dispatch::outbox::{Claimed, claim};
use dispatch::sink::{Event, EventSink, SinkError};
use dispatch::{DispatchReport, run, work};
use reconciler::config::DispatchSettings;
use reconciler::domain::id::PaymentId;
use reconciler::writer::{Command, Transition, WriteOutcome, apply_command};
use serde_json::json;
use tokio_postgres::Client;
use webhook::event::{Reading, read};
use webhook::inbox::{Outcome, receive};

use crate::schedule::Actor;
use crate::world::{World, connect};

const RESET: &str = "truncate reconciliation.cursor, reconciliation.observation, reconciliation.finding,
    reconciliation.outbox, reconciliation.webhook_inbox, reconciliation.api_budget, payments, payment_ledger restart identity";
const OPEN: &str = "select count(*) from reconciliation.outbox where delivered_at is null and dead_at is null";
/// Events are made by the server's own clock; the world's stands elsewhere.
const DUE: &str = "update reconciliation.outbox set available_at = '2020-01-01' where kind = 'event' and available_at > now() - interval '1 day'";

/// Accepts everything, and remembers which rows.
#[derive(Clone, Default)]
struct Accepts(Arc<Mutex<Vec<(i64, String)>>>);

impl EventSink for Accepts {
    async fn publish(&self, events: &[Event]) -> Vec<Result<(), SinkError>> {
        self.0.lock().unwrap().extend(events.iter().map(|event| (event.id, event.name.clone())));
        vec![Ok(()); events.len()]
    }
}

/// How often the orders came to what they are there for.
#[derive(Debug, Default)]
struct Met {
    died_after_claim: u32,
    died_before_mark: u32,
    outdated: u32,
    repaired: u32,
    webhook_first: u32,
    redelivered: u32,
}

/// One dispatcher process: what it has claimed and not yet worked.
struct Dispatcher {
    db: Client,
    holds: Vec<Claimed>,
}

fn settings() -> DispatchSettings {
    DispatchSettings::from_lookup(&|key| (key == "DISPATCH_ATTEMPTS_MAX").then(|| "1000".to_owned())).unwrap()
}

async fn writer(world: &World) -> Client {
    let session = connect(&world.database.url()).await;
    session.batch_execute("set role reconciler_writer").await.unwrap();
    session
}

/// A delivery of Stripe's: the event's id, its type, its PaymentIntent.
async fn deliver(db: &mut Client, (id, event_type, reference): (&str, &str, &str)) -> Outcome {
    let body = json!({"id": id, "type": event_type, "livemode": true, "data": {"object": {"id": reference}}});
    let Reading::Event(event) = read(body.to_string().as_bytes()).unwrap() else {
        panic!("{event_type} is one of ours")
    };
    receive(db, &event).await.unwrap()
}

impl Dispatcher {
    /// The next move of this process. `fences` holds the newest claim of each row.
    async fn go_on(
        &mut self,
        world: &World,
        sink: &Accepts,
        fences: &mut BTreeMap<i64, i64>,
        chance: &mut fastrand::Rng,
        met: &mut Met,
    ) {
        if self.holds.is_empty() {
            self.holds = claim(&self.db, world.now(), 2, 60).await.unwrap();
            for row in &self.holds {
                let before = fences.insert(row.id, row.fence);
                assert!(before < Some(row.fence), "the fence of row {} did not grow: {before:?}", row.id);
            }
            return;
        }
        match chance.u32(0..8) {
            0 => {
                met.died_after_claim += 1;
                self.holds.clear();
            }
            1 if !self.holds[0].is_command => {
                met.died_before_mark += 1;
                let row = &self.holds[0];
                let event = Event { id: row.id, name: row.name.clone(), detail: row.payload.clone() };
                sink.publish(&[event]).await[0].clone().unwrap();
                self.holds.clear();
            }
            _ => {
                let row = self.holds.remove(0);
                let late = fences[&row.id] > row.fence;
                let before = world.written().await;
                let report = work(&self.db, sink, &settings(), &world.dispatch_tick(), &[row]).await.unwrap();
                assert_eq!(report.outdated, u64::from(late), "a mark counts exactly when the claim is the newest");
                if late {
                    assert_eq!(world.written().await, before, "a worker that woke late wrote something");
                }
                count(&report, met);
            }
        }
    }
}

fn count(report: &DispatchReport, met: &mut Met) {
    assert_eq!((report.failed, report.dead, report.superseded), (0, 0, 0));
    met.outdated += u32::try_from(report.outdated).unwrap();
    met.repaired += u32::try_from(report.written).unwrap();
    met.webhook_first += u32::try_from(report.already_written).unwrap();
}

#[tokio::test]
async fn repair_and_webhook_at_once_change_a_payment_once() {
    let world = World::new().await;
    let mut met = Met::default();
    let mut dispatchers = Vec::new();
    let mut receivers = Vec::new();
    for _ in 0..2 {
        dispatchers.push(Dispatcher { db: writer(&world).await, holds: Vec::new() });
    }
    for _ in 0..3 {
        receivers.push(writer(&world).await);
    }
    let second_scan = World::scan_session(&world.database).await;
    for seed in 0..500 {
        let mut chance = fastrand::Rng::with_seed(seed);
        world.owner.batch_execute(RESET).await.unwrap();
        for (reference, status) in [("pi_1", "succeeded"), ("pi_2", "canceled"), ("pi_3", "succeeded")] {
            world.pair(reference, "pending", status).await;
        }
        world.cycle().await;
        assert_eq!(world.number(OPEN).await, 3, "seed {seed}");

        // the third payment's webhook was lost
        let mut deliveries = Vec::new();
        for _ in &receivers {
            deliveries.push(("evt_1", "payment_intent.succeeded", "pi_1"));
            deliveries.push(("evt_2", "payment_intent.canceled", "pi_2"));
        }
        let (sink, mut fences) = (Accepts::default(), BTreeMap::new());
        let mut scan = Actor::new(async |steps| world.tick_in(&second_scan, &steps, None).await);
        for _ in 0..24 {
            match chance.usize(0..8) {
                who @ (0 | 1) => dispatchers[who].go_on(&world, &sink, &mut fences, &mut chance, &mut met).await,
                2 | 3 => dispatchers[0].go_on(&world, &sink, &mut fences, &mut chance, &mut met).await,
                4 => world.pass(2), // the leases run out
                5 | 6 if !deliveries.is_empty() => {
                    let next = deliveries.swap_remove(chance.usize(0..deliveries.len()));
                    let receiver = chance.usize(0..receivers.len());
                    met.redelivered += u32::from(deliver(&mut receivers[receiver], next).await == Outcome::Duplicate);
                }
                _ if !scan.ended() => {
                    scan.go_on().await;
                }
                _ => {}
            }
            world.owner.batch_execute(DUE).await.unwrap();
        }
        scan.finish().await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for delivery in deliveries {
            deliver(&mut receivers[0], delivery).await;
        }
        for dispatcher in &mut dispatchers {
            dispatcher.holds.clear();
        }
        // what is left is drained by one that does not die: first the commands, then the events that they made
        for _ in 0..3 {
            world.pass(2);
            world.owner.batch_execute(DUE).await.unwrap();
            count(&run(&dispatchers[0].db, &sink, &settings(), &world.dispatch_tick()).await.unwrap(), &mut met);
        }

        let states = world.texts("select status from payments order by id").await;
        assert_eq!(states, ["paid", "failed", "paid"], "seed {seed}");
        let ledger = world.texts("select payment_id::text, entry from payment_ledger order by payment_id").await;
        assert_eq!(ledger, ["1 succeeded", "2 canceled", "3 succeeded"], "seed {seed}");
        let events = "select aggregate, type from reconciliation.outbox where kind = 'event' order by aggregate";
        assert_eq!(
            world.texts(events).await,
            ["1 PaymentCaptured", "2 PaymentFailed", "3 PaymentCaptured"],
            "seed {seed}"
        );
        assert_eq!(world.number(OPEN).await, 0, "seed {seed}: something is left in the outbox");
        let open = "select count(*) from reconciliation.finding where resolved_at is null";
        assert_eq!(world.number(open).await, 0, "seed {seed}: a finding is open");
        let mut accepted = sink.0.lock().unwrap().clone();
        accepted.sort_unstable();
        accepted.dedup();
        assert_eq!(accepted.len(), 3, "seed {seed}: each event went out, with one id however often");
    }
    let Met { died_after_claim, died_before_mark, outdated, repaired, webhook_first, redelivered } = met;
    for often in [died_after_claim, died_before_mark, outdated, repaired, webhook_first, redelivered] {
        assert!(often >= 50, "the orders have to come to everything that they are there for: {met:?}");
    }
}

#[tokio::test]
async fn a_worker_that_dies_within_the_transition_leaves_neither_the_transition_nor_the_mark() {
    let world = World::new().await;
    world.pair("pi_1", "pending", "succeeded").await;
    world.cycle().await;
    let (mut dying, next, sink) = (writer(&world).await, writer(&world).await, Accepts::default());
    let row = claim(&dying, world.now(), 1, 60).await.unwrap().remove(0);
    let before = world.written().await;
    let within = dying.transaction().await.unwrap();
    let command = Command {
        outbox_id: row.id,
        fence: row.fence,
        payment_id: PaymentId::new(&row.aggregate),
        transition: Transition::Succeeded,
        evidence: json!({"external_ref": "pi_1"}),
        finding_id: row.payload["finding_id"].as_i64(),
    };
    assert_eq!(apply_command(&within, &command, world.now()).await.unwrap(), Some(WriteOutcome::Written));
    within.rollback().await.unwrap(); // what Postgres does with a session that is gone
    assert_eq!(world.written().await, before);
    assert_eq!(world.texts("select status from payments").await, ["pending"]);
    assert_eq!(world.number("select count(*) from payment_ledger").await, 0);

    world.pass(2);
    assert_eq!(run(&next, &sink, &settings(), &world.dispatch_tick()).await.unwrap().written, 1);
    assert_eq!(apply_command(&dying, &command, world.now()).await.unwrap(), None, "its claim is outdated");
    assert_eq!(world.number("select count(*) from payment_ledger").await, 1);
    assert_eq!(world.findings().await, ["missed_success repairable repaired"]);
}
