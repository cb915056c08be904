//! Reverse scans that overlap, and that die: no page is skipped, and nothing is written twice.

use reconciler::scan::steps::Step;
use reconciler::telemetry::{Outcome, Report};
use reverse_scan::Input;
use time::Duration;
use tokio_postgres::Client;

use crate::schedule::{Actor, Reached};
use crate::world::World;

const RESET: &str =
    "truncate reconciliation.reverse_window, reconciliation.observation, reconciliation.review, reconciliation.finding,
    reconciliation.outbox, reconciliation.orphan_candidate, reconciliation.api_budget restart identity";

/// 230 objects an hour old, newest `pi_229`: a third without a payment, a third drifting, a third good.
async fn shop() -> World {
    let mut world = World::new().await;
    world.set(&[("REVERSE_PAGES", "1"), ("MISSING_CAP", "1000"), ("REQUESTS_PER_SECOND", "10000")]);
    for number in 0..230 {
        let id = format!("pi_{number}");
        world.stripe.put(&id, "succeeded", world.now() - Duration::hours(1) - Duration::seconds((229 - number) / 7));
        match number % 3 {
            0 => {}
            1 => drop(world.payment(Some(&id), "pending", 60).await),
            _ => drop(world.payment(Some(&id), "paid", 60).await),
        }
    }
    world
}

fn ticks<'a>(world: &'a World, db: &'a Client, count: usize) -> Actor<'a, Vec<Report>> {
    Actor::new(async move |steps| {
        let mut reports = Vec::new();
        for _ in 0..count {
            let report = world.reverse_in(db, &steps, None, &Input::default()).await;
            reports.push(report.expect("a tick that succeeds"));
        }
        reports
    })
}

/// Everything once, whoever did it.
async fn is_whole(world: &World, what: &str) {
    for _ in 0..8 {
        let outcome = world.reverse().await.outcome;
        assert!(matches!(outcome, Outcome::Advanced | Outcome::Wrapped | Outcome::Waiting), "{what}: {outcome:?}");
    }
    let facts = [
        (
            "select count(*) from reconciliation.reverse_window where completed_to is not null and window_from is null",
            1,
        ),
        ("select count(*) from reconciliation.orphan_candidate", 77),
        ("select count(*) from reconciliation.finding where resolved_at is null", 77),
        ("select count(*) from reconciliation.outbox", 77),
        ("select count(*) from reconciliation.observation where external_status = 'succeeded'", 153),
    ];
    for (sql, expected) in facts {
        assert_eq!(world.number(sql).await, expected, "{what}: {sql}");
    }
    assert_eq!(world.never_verified().await, 0, "{what}");
}

#[tokio::test]
async fn a_tick_that_dies_at_any_step_of_any_page_skips_none() {
    let world = shop().await;
    for page in 0..3 {
        for step in Step::ALL {
            world.owner.batch_execute(RESET).await.unwrap();
            for _ in 0..page {
                assert_eq!(world.reverse().await.outcome, Outcome::Advanced);
            }
            let dying = World::scan_session(&world.database).await;
            let mut tick = ticks(&world, &dying, 1);
            tick.go_on_to(step).await;
            drop(tick);
            drop(dying);
            is_whole(&world, &format!("page {page}, {step:?}")).await;
        }
    }
}

/// What must come of an order of steps: the window's revision is all that counts.
#[derive(Default)]
struct Model {
    revision: i64,
    held: [i64; 2],
    lost: [u32; 2],
}

impl Model {
    fn reached(&mut self, who: usize, reached: Reached) {
        match reached {
            Reached::Step(Step::CursorRead) => self.held[who] = self.revision,
            Reached::Step(Step::Committed) => {
                let won = self.held[who] == self.revision;
                self.revision += i64::from(won);
                self.held[who] += i64::from(won);
                self.lost[who] += u32::from(!won);
            }
            Reached::Step(Step::Loaded | Step::Observed | Step::Decided) | Reached::End => {}
        }
    }
}

#[tokio::test]
async fn two_at_once_in_a_hundred_orders_one_commits_and_the_other_writes_nothing() {
    let world = shop().await;
    let sessions = [World::scan_session(&world.database).await, World::scan_session(&world.database).await];
    let mut losses = 0;
    for seed in 0..100 {
        world.owner.batch_execute(RESET).await.unwrap();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut actors = [ticks(&world, &sessions[0], 2), ticks(&world, &sessions[1], 3)];
        let mut model = Model::default();
        while actors.iter().any(|actor| !actor.ended()) {
            let who = random.usize(0..2);
            if actors[who].ended() {
                continue;
            }
            let reached = actors[who].go_on().await;
            model.reached(who, reached);
        }
        let revision = "select revision from reconciliation.reverse_window";
        assert_eq!(world.number(revision).await, model.revision, "seed {seed}");
        let [first, second] = actors.map(Actor::into_result);
        for (who, reports) in [&first, &second].into_iter().enumerate() {
            let aborted = reports.iter().filter(|report| report.outcome == Outcome::AbortedConcurrentRun).count();
            assert_eq!(u32::try_from(aborted).unwrap(), model.lost[who], "seed {seed}");
            losses += aborted;
        }
        // what was written is what the winners report
        let both = || first.iter().chain(&second);
        let opened: u64 = both().map(|report| report.findings_opened).sum();
        let queued: u64 = both().map(|report| report.commands_queued).sum();
        assert_eq!(world.number("select count(*) from reconciliation.finding").await, opened as i64, "seed {seed}");
        assert_eq!(world.number("select count(*) from reconciliation.outbox").await, queued as i64, "seed {seed}");
        if seed % 10 == 0 {
            is_whole(&world, &format!("seed {seed}")).await;
        }
    }
    assert!((30..300).contains(&losses), "the seeds have to overlap often, and not always: {losses}");
}
