//! The repair and the webhook at once: two dispatchers, three deliveries of each webhook event, and a scan, in seeded orders.
//! Each stands between its statements, inside them with its rows locked, and before its commit, and may die wherever it
//! stands. Whatever the order, a payment changes once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};

use dispatch::outbox::claim;
use dispatch::sink::{Event, EventSink, SinkError};
use dispatch::{DispatchReport, run, work};
use reconciler::config::DispatchSettings;
use reconciler::domain::id::PaymentId;
use reconciler::scan::steps::{Step, Steps};
use reconciler::telemetry::Outcome as Ended;
use reconciler::writer::{Command, Transition, WriteOutcome, apply_command};
use serde_json::json;
use tokio_postgres::Client;
use webhook::event::{Reading, read};
use webhook::inbox::{Outcome, receive};

use crate::gates::{Gates, Run, Session, Stand};
use crate::world::{World, connect};

const RESET: &str = "truncate reconciliation.cursor, reconciliation.observation, reconciliation.review, reconciliation.finding,
    reconciliation.outbox, reconciliation.webhook_inbox, reconciliation.api_budget, payments, payment_ledger restart identity";
const OPEN: &str = "select count(*) from reconciliation.outbox where delivered_at is null and dead_at is null";
/// Events are made by the server's own clock; the world's stands elsewhere.
const DUE: &str = "update reconciliation.outbox set available_at = '2020-01-01' where id in (
    select id from reconciliation.outbox where kind = 'event' and available_at > '2020-01-01' for update skip locked)";

/// The actors: two dispatchers, three receivers of webhooks, a scan.
const DISPATCHERS: [i32; 2] = [1, 2];
const RECEIVERS: [i32; 3] = [3, 4, 5];
const SCAN: i32 = 6;
/// Moves of one seed before everybody runs to the end.
const MOVES: u32 = 60;

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
    queued_for_a_row: u32,
    died_between_statements: u32,
    died_inside_a_statement: u32,
    outdated: u32,
    repaired: u32,
    webhook_first: u32,
    redelivered: u32,
    scanned: u32,
}

/// What the actors of one seed share.
struct Stage<'a> {
    world: &'a World,
    sink: Accepts,
    /// The newest claim of each row.
    fences: RefCell<BTreeMap<i64, i64>>,
    /// Rows and the claims with which nobody could mark them.
    outdated: RefCell<Vec<(i64, i64)>>,
    met: RefCell<&'a mut Met>,
    /// Nobody begins anything new.
    closing: Cell<bool>,
}

/// What comes of an actor: its session, to be used again.
type Played = Result<Session, Box<dyn Error>>;

fn settings() -> DispatchSettings {
    DispatchSettings::from_lookup(&|key| (key == "DISPATCH_ATTEMPTS_MAX").then(|| "1000".to_owned())).unwrap()
}

async fn writer(world: &World) -> Client {
    let session = connect(&world.database.url()).await;
    let prepare = "set deadlock_timeout = '1min'; set role reconciler_writer"; // a deadlock is to be seen, not to be broken
    session.batch_execute(prepare).await.unwrap();
    session
}

async fn session(world: &World, gates: &Gates, actor: i32) -> Session {
    let client = if actor == SCAN { World::scan_session(&world.database).await } else { writer(world).await };
    gates.session(client, actor).await
}

/// A process of the dispatcher: it claims two rows and works them one by one, again and again.
async fn dispatcher(stage: &Stage<'_>, session: Session, steps: Steps) -> Played {
    let db = &session.client;
    while !stage.closing.get() {
        let rows = claim(db, stage.world.now(), 2, 60).await?;
        for row in &rows {
            let before = stage.fences.borrow_mut().insert(row.id, row.fence);
            assert!(before < Some(row.fence), "the fence of row {} did not grow: {before:?}", row.id);
        }
        steps.reach(Step::Loaded).await;
        for row in rows {
            if !row.is_command {
                // accepted outside, and here it may die before it marks
                let event = Event { id: row.id, name: row.name.clone(), detail: row.payload.clone() };
                stage.sink.publish(&[event]).await[0].clone()?;
                steps.reach(Step::Observed).await;
            }
            let (id, fence) = (row.id, row.fence);
            let late = stage.fences.borrow()[&id] > fence;
            let report = work(db, &stage.sink, &settings(), &stage.world.dispatch_tick(), &[row]).await?;
            assert!(report.outdated == 1 || !late, "a worker that woke late has marked row {id}");
            if report.outdated == 1 {
                stage.outdated.borrow_mut().push((id, fence));
            }
            stage.count(&report);
            steps.reach(Step::Committed).await;
        }
    }
    Ok(session)
}

/// Stripe delivers both events over one session.
async fn receiver(stage: &Stage<'_>, mut session: Session, steps: Steps) -> Played {
    for event in [("evt_1", "payment_intent.succeeded", "pi_1"), ("evt_2", "payment_intent.canceled", "pi_2")] {
        let outcome = deliver(&mut session.client, event).await?;
        stage.met.borrow_mut().redelivered += u32::from(outcome == Outcome::Duplicate);
        steps.reach(Step::Committed).await;
    }
    Ok(session)
}

/// Ticks of the forward scan, which stands at its own named steps too.
async fn scan(stage: &Stage<'_>, session: Session, steps: Steps) -> Played {
    while !stage.closing.get() {
        let report = stage.world.tick_in(&session.client, &steps, None).await?;
        assert_ne!(report.outcome, Ended::AbortedConcurrentRun, "it is the only one");
        stage.met.borrow_mut().scanned += 1;
    }
    Ok(session)
}

async fn deliver(
    db: &mut Client,
    (id, event_type, reference): (&str, &str, &str),
) -> Result<Outcome, webhook::inbox::InboxError> {
    let body = json!({"id": id, "type": event_type, "livemode": true, "data": {"object": {"id": reference}}});
    let Reading::Event(event) = read(body.to_string().as_bytes()).unwrap() else {
        panic!("{event_type} is one of ours")
    };
    receive(db, &event).await
}

impl Stage<'_> {
    fn count(&self, report: &DispatchReport) {
        assert_eq!((report.failed, report.dead, report.superseded), (0, 0, 0));
        let mut met = self.met.borrow_mut();
        met.outdated += u32::try_from(report.outdated).unwrap();
        met.repaired += u32::try_from(report.written).unwrap();
        met.webhook_first += u32::try_from(report.already_written).unwrap();
    }

    /// Puts an actor on the stage.
    fn start(&self, session: Session) -> Run<'_, Played> {
        let actor = session.actor;
        Run::new(session, async move |session, steps| {
            if DISPATCHERS.contains(&actor) {
                dispatcher(self, session, steps).await
            } else if RECEIVERS.contains(&actor) {
                receiver(self, session, steps).await
            } else {
                scan(self, session, steps).await
            }
        })
    }
}

/// Moves one of the runs: on, or dead where it stands, or, where it had died, up again. False where none can move.
async fn move_one<'a>(
    stage: &'a Stage<'_>,
    gates: &Gates,
    runs: &mut [Run<'a, Played>],
    chance: &mut fastrand::Rng,
) -> bool {
    let stands = gates.settle(runs).await;
    stage.met.borrow_mut().queued_for_a_row += u32::from(stands.contains(&Stand::Queue));
    let can_move = |index: &usize| match stands[*index] {
        Stand::Step | Stand::Gate { .. } => true,
        Stand::Queue => false,
        Stand::End => runs[*index].result().is_some_and(Result::is_err),
    };
    let movable: Vec<usize> = (0..runs.len()).filter(can_move).collect();
    let Some(&index) = movable.get(chance.usize(0..movable.len().max(1))) else {
        return false;
    };
    let (run, stand) = (&mut runs[index], stands[index]);
    let dies = chance.u32(0..25) == 0;
    match stand {
        Stand::End => *run = stage.start(session(stage.world, gates, run.actor).await),
        Stand::Step if dies => {
            gates.kill(run).await;
            gates.let_on(run, stand).await;
            stage.met.borrow_mut().died_between_statements += 1;
        }
        Stand::Gate { .. } if dies => {
            gates.kill(run).await;
            stage.met.borrow_mut().died_inside_a_statement += 1;
        }
        Stand::Step | Stand::Gate { .. } | Stand::Queue => gates.let_on(run, stand).await,
    }
    true
}

async fn race(seeds: std::ops::Range<u64>) {
    let world = World::new().await;
    let gates = Gates::close(connect(&world.database.url()).await, SCAN).await;
    let drainer = writer(&world).await;
    let mut met = Met::default();
    let mut sessions = Vec::new();
    for actor in 1..=SCAN {
        sessions.push(session(&world, &gates, actor).await);
    }
    for seed in seeds.clone() {
        let mut chance = fastrand::Rng::with_seed(seed);
        world.owner.batch_execute(RESET).await.unwrap();
        // the third payment's webhook was lost
        for (reference, status) in [("pi_1", "succeeded"), ("pi_2", "canceled"), ("pi_3", "succeeded")] {
            world.pair(reference, "pending", status).await;
        }
        world.cycle().await;
        assert_eq!(world.number(OPEN).await, 3, "seed {seed}");

        let stage = Stage {
            world: &world,
            sink: Accepts::default(),
            fences: RefCell::default(),
            outdated: RefCell::default(),
            met: RefCell::new(&mut met),
            closing: Cell::new(false),
        };
        let mut runs: Vec<Run<'_, Played>> = sessions.drain(..).map(|session| stage.start(session)).collect();
        for _ in 0..MOVES {
            assert!(move_one(&stage, &gates, &mut runs, &mut chance).await, "seed {seed}: nobody can move");
            if chance.u32(0..8) == 0 {
                world.pass(2); // the leases run out
            }
            world.owner.batch_execute(DUE).await.unwrap();
        }
        stage.closing.set(true);
        while move_one(&stage, &gates, &mut runs, &mut chance).await {}
        for run in runs {
            assert!(run.ended(), "seed {seed}: actor {} waits for ever, in a deadlock", run.actor);
            sessions.push(run.into_result().unwrap_or_else(|error| panic!("seed {seed}: {error}")));
        }
        for (row, fence) in stage.outdated.borrow().iter() {
            assert!(stage.fences.borrow()[row] > *fence, "seed {seed}: row {row} was its worker's own to mark");
        }
        // what is left is drained by one that does not die: first the commands, then the events that they made
        for _ in 0..3 {
            world.pass(2);
            world.owner.batch_execute(DUE).await.unwrap();
            stage.count(&run(&drainer, &stage.sink, &settings(), &world.dispatch_tick()).await.unwrap());
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
        let inbox = "select event_id from reconciliation.webhook_inbox order by event_id";
        assert_eq!(world.texts(inbox).await, ["evt_1", "evt_2"], "seed {seed}: each event was received, once");
        let mut accepted = stage.sink.0.lock().unwrap().clone();
        accepted.sort_unstable();
        accepted.dedup();
        assert_eq!(accepted.len(), 3, "seed {seed}: each event went out, with one id however often");
    }
    let Met {
        queued_for_a_row,
        died_between_statements,
        died_inside_a_statement,
        outdated,
        repaired,
        webhook_first,
        redelivered,
        scanned,
    } = met;
    for often in [
        queued_for_a_row,
        died_between_statements,
        died_inside_a_statement,
        outdated,
        repaired,
        webhook_first,
        redelivered,
        scanned,
    ] {
        assert!(often >= 25, "the orders have to come to everything that they are there for: {met:?}");
    }
}

// two halves of 500, side by side
#[tokio::test]
async fn repair_and_webhook_at_once_change_a_payment_once() {
    race(0..250).await;
}

#[tokio::test]
async fn repair_and_webhook_at_once_change_a_payment_once_in_other_orders() {
    race(250..500).await;
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
