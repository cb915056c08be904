//! Overlap is harmless, stale reads decide nothing, and a tick may die anywhere (promises 3, 4 and 5).

use local::fake::FakeStripe;
use reconciler::domain::external::External;
use reconciler::domain::verdict::Judgement;
use reconciler::scan::steps::Step;
use reconciler::store::batch::load_batch;
use reconciler::store::commit::{CommitOutcome, CursorMove, JudgedOutcome, JudgedPayment, commit_batch};
use reconciler::telemetry::{Outcome, Report};
use time::Duration;
use tokio_postgres::Client;

use crate::schedule::{Actor, Reached};
use crate::world::World;

const RESET: &str =
    "truncate reconciliation.cursor, reconciliation.observation, reconciliation.review, reconciliation.finding,
    reconciliation.outbox, reconciliation.api_budget restart identity";

/// Another process: its own session, and its own view of Stripe, so that what it wrote can be told apart.
struct Process {
    db: Client,
    stripe: FakeStripe,
}

impl Process {
    async fn new(world: &World, status: &str) -> Self {
        let stripe = FakeStripe::new();
        for number in 1..=6 {
            stripe.put(&format!("pi_{number}"), status, world.now() - Duration::hours(1));
        }
        Self { db: World::scan_session(&world.database).await, stripe }
    }

    fn ticks<'a>(&'a self, world: &'a World, count: usize) -> Actor<'a, Vec<Report>> {
        Actor::new(async move |steps| {
            let mut reports = Vec::new();
            for _ in 0..count {
                let report = world.tick_with(&self.db, &self.stripe, &steps, None).await;
                reports.push(report.expect("a tick that succeeds"));
            }
            reports
        })
    }
}

/// What must come of an order of steps: the cursor's revision is all that counts.
#[derive(Default)]
struct Model {
    revision: i64,
    read: [i64; 2],
    outcomes: [Vec<bool>; 2],
}

impl Model {
    fn reached(&mut self, who: usize, reached: Reached, before: Option<Step>) {
        match reached {
            // the cursor is read on the way to this step; a tick that ended before was turned away when it loaded
            Reached::Step(Step::CursorRead) => {
                self.turned_away(who, before);
                self.read[who] = self.revision;
            }
            Reached::Step(Step::Committed) => {
                let won = self.read[who] == self.revision;
                self.revision += i64::from(won);
                self.outcomes[who].push(won);
            }
            Reached::Step(Step::Loaded | Step::Observed | Step::Decided) => {}
            Reached::End => self.turned_away(who, before),
        }
    }

    fn turned_away(&mut self, who: usize, before: Option<Step>) {
        if before == Some(Step::Loaded) {
            self.outcomes[who].push(false);
        }
    }
}

async fn interleave(world: &World, seed: u64, actors: [Actor<'_, Vec<Report>>; 2]) -> ([Vec<Report>; 2], Model) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut actors = actors;
    let mut model = Model::default();
    let mut stands = [None, None];
    while actors.iter().any(|actor| !actor.ended()) {
        let who = random.usize(0..2);
        if actors[who].ended() {
            continue;
        }
        let reached = actors[who].go_on().await;
        model.reached(who, reached, stands[who]);
        if let Reached::Step(step) = reached {
            stands[who] = Some(step);
        }
    }
    assert_eq!(world.number("select max(revision) from reconciliation.cursor").await, model.revision, "seed {seed}");
    let [first, second] = actors;
    ([first.into_result(), second.into_result()], model)
}

fn not_aborted(reports: &[Report]) -> Vec<bool> {
    reports.iter().map(|report| report.outcome != Outcome::AbortedConcurrentRun).collect()
}

#[tokio::test]
async fn two_overlapping_ticks_one_commits_and_the_other_writes_nothing() {
    let mut world = World::new().await;
    world.set(&[("BATCH_SIZE", "3")]);
    world.rows(6, "pending").await;
    let (ours, theirs) = (Process::new(&world, "succeeded").await, Process::new(&world, "canceled").await);
    let mut losses = 0;
    for seed in 0..150 {
        world.owner.batch_execute(RESET).await.unwrap();
        let actors = [ours.ticks(&world, 1), theirs.ticks(&world, 1)];
        let (reports, model) = interleave(&world, seed, actors).await;
        assert_eq!(reports.each_ref().map(|reports| not_aborted(reports)), model.outcomes, "seed {seed}");
        // each saw another Stripe: the findings are those of the winners, batch by batch
        let winners = [(0, "missed_success"), (1, "missed_cancel")];
        let mut expected = Vec::new();
        for (who, kind) in winners {
            expected.extend(vec![kind; if model.outcomes[who] == [true] { 3 } else { 0 }]);
            losses += u32::from(model.outcomes[who] == [false]);
        }
        expected.sort_unstable();
        let sql = "select kind from reconciliation.finding order by kind";
        assert_eq!(world.texts(sql).await, expected, "seed {seed}");
        assert_eq!(
            world.number("select count(*) from reconciliation.outbox").await,
            expected.len() as i64,
            "seed {seed}"
        );
        for report in reports.iter().flatten().filter(|report| report.outcome == Outcome::AbortedConcurrentRun) {
            assert_eq!((report.scanned, report.findings_opened, report.commands_queued), (0, 0, 0), "seed {seed}");
        }
    }
    assert!((50..150).contains(&losses), "the seeds have to overlap often, and not always: {losses}");
}

#[tokio::test]
async fn a_position_that_has_come_round_again_is_not_taken_for_the_same() {
    // One tick stands somewhere while another process walks whole cycles: three ticks go from the first payment past all
    // six and back to the first.
    let mut world = World::new().await;
    world.set(&[("BATCH_SIZE", "3")]);
    world.rows(6, "pending").await;
    let (slow, fast) = (Process::new(&world, "canceled").await, Process::new(&world, "succeeded").await);
    let mut came_round = 0;
    for seed in 0..100 {
        world.owner.batch_execute(RESET).await.unwrap();
        let actors = [slow.ticks(&world, 1), fast.ticks(&world, 6)];
        let (reports, model) = interleave(&world, 1_000 + seed, actors).await;
        assert_eq!(reports.each_ref().map(|reports| not_aborted(reports)), model.outcomes, "seed {seed}");
        came_round += u32::from(model.revision >= 3 && model.outcomes[0] == [false]);
        let doubled = "select count(*) from (select from reconciliation.finding where resolved_at is null
                       group by payment_id having count(*) > 1) d";
        assert_eq!(world.number(doubled).await, 0, "seed {seed}");
    }
    assert!(came_round >= 20, "the seeds have to go round often: {came_round}");
}

#[tokio::test]
async fn a_webhook_between_load_and_commit_leaves_nothing_to_decide() {
    let world = World::new().await;
    world.pair("pi_1", "pending", "succeeded").await;
    world.pair("pi_2", "pending", "succeeded").await;
    world.pair("pi_3", "pending", "succeeded").await;
    let mut tick = Actor::new(async |steps| world.tick_in(&world.scan, &steps, None).await.unwrap());
    tick.go_on_to(Step::Decided).await;
    world.update("status = 'paid'", "stripe_payment_intent_id = 'pi_1'").await;
    world.update("stripe_payment_intent_id = 'pi_9'", "stripe_payment_intent_id = 'pi_2'").await;
    let report = tick.finish().await;
    assert_eq!((report.repairable, report.in_flight, report.findings_opened), (1, 2, 1));
    assert_eq!(world.texts("select external_ref from reconciliation.finding").await, ["pi_3"]);
    assert_eq!(world.outbox().await.len(), 1);
    assert_eq!(world.never_verified().await, 2, "what was judged by the old row is not verified");
}

#[tokio::test]
async fn a_payment_deleted_between_load_and_commit_leaves_no_trace() {
    let world = World::new().await;
    world.pair("pi_1", "pending", "succeeded").await;
    let mut tick = Actor::new(async |steps| world.tick_in(&world.scan, &steps, None).await.unwrap());
    tick.go_on_to(Step::Observed).await;
    world.owner.batch_execute("delete from payments").await.unwrap();
    let report = tick.finish().await;
    assert_eq!((report.in_flight, report.findings_opened), (1, 0));
    assert_eq!(world.number("select count(*) from reconciliation.observation").await, 0);
}

/// Commits what a scan of its own job saw of all payments at one moment.
async fn commit_as(
    world: &World,
    job: &str,
    external: &External,
    judgement: Judgement,
    at: time::OffsetDateTime,
) -> CommitOutcome {
    let batch = load_batch(&world.scan, job, world.keyset, None, 100).await.unwrap();
    let judged: Vec<JudgedPayment> = batch
        .payments
        .into_iter()
        .map(|payment| JudgedPayment {
            payment,
            outcome: JudgedOutcome::Confirmed {
                observed_at: at,
                seen: Some(external.into()),
                judgement: judgement.clone(),
                evidence: serde_json::json!({}),
            },
        })
        .collect();
    let stays = CursorMove { from: None, to: None, wraps: false, begins: false, cleans: false };
    commit_batch(&world.scan, job, world.keyset, batch.revision, world.now(), &stays, &judged).await.unwrap()
}

#[tokio::test]
async fn a_slow_scan_that_read_stripe_earlier_undoes_nothing() {
    let world = World::new().await;
    world.pair("pi_1", "paid", "succeeded").await;
    let long_ago = world.now() - Duration::minutes(5);
    world.ticked().await;
    let before = world.texts("select o::text from reconciliation.observation o").await;
    let missing = External::NotFound { other_mode: false };
    let review =
        Judgement::NeedsReview { kind: reconciler::domain::verdict::Kind::MissingExternally, compensation: true };
    let CommitOutcome::Written(written) = commit_as(&world, "slow", &missing, review.clone(), long_ago).await else {
        panic!("nobody else moved that cursor")
    };
    assert_eq!((written.opened.len(), written.events_queued, written.passed_by.len()), (0, 0, 1));
    assert_eq!(world.texts("select o::text from reconciliation.observation o").await, before);
    assert!(world.findings().await.is_empty() && world.outbox().await.is_empty());

    // and one that read later decides
    let CommitOutcome::Written(written) =
        commit_as(&world, "slow", &missing, review, world.now() + Duration::SECOND).await
    else {
        panic!("nobody else moved that cursor")
    };
    assert_eq!((written.opened.len(), written.events_queued, written.passed_by.len()), (1, 1, 0));
}

#[tokio::test]
async fn two_scans_over_the_same_rows_in_opposite_order_do_not_deadlock() {
    let world = World::new().await;
    world.rows(400, "pending").await;
    let sessions = [connect_impatient(&world).await, connect_impatient(&world).await];
    let mut batch = load_batch(&world.scan, "there", world.keyset, None, 400).await.unwrap().payments;
    let there = batch.clone();
    batch.reverse();
    load_batch(&world.scan, "back", world.keyset, None, 1).await.unwrap();
    for round in 0..20 {
        let outcome = |second: i64| JudgedOutcome::Confirmed {
            observed_at: world.now() + Duration::seconds(round * 2 + second),
            seen: Some((&External::NotFound { other_mode: false }).into()),
            judgement: Judgement::NeedsReview {
                kind: reconciler::domain::verdict::Kind::MissingExternally,
                compensation: false,
            },
            evidence: serde_json::json!({}),
        };
        let judged = |payments: &[reconciler::domain::payment::Payment], second| {
            payments
                .iter()
                .map(|payment| JudgedPayment { payment: payment.clone(), outcome: outcome(second) })
                .collect::<Vec<_>>()
        };
        let (first, second) = (judged(&there, 0), judged(&batch, 1));
        let stays = CursorMove { from: None, to: None, wraps: false, begins: false, cleans: false };
        let (one, other) = tokio::join!(
            commit_batch(&sessions[0], "there", world.keyset, 0, world.now(), &stays, &first),
            commit_batch(&sessions[1], "back", world.keyset, 0, world.now(), &stays, &second),
        );
        assert!(matches!((one.unwrap(), other.unwrap()), (CommitOutcome::Written(_), CommitOutcome::Written(_))));
    }
    assert_eq!(deadlocks(&world, &[&sessions[0], &sessions[1]]).await, 0);
    assert_eq!(world.number("select count(*) from reconciliation.finding where resolved_at is null").await, 400);
}

#[tokio::test]
async fn a_tick_that_dies_at_any_step_is_repeated_and_nothing_is_doubled() {
    for step in Step::ALL {
        let mut world = World::new().await;
        world.set(&[("BATCH_SIZE", "3")]);
        world.pairs(7, "pending", "succeeded").await;
        world.ticked().await;
        let dying = World::scan_session(&world.database).await;
        let mut tick = Actor::new(async |steps| world.tick_in(&dying, &steps, None).await.unwrap());
        tick.go_on_to(step).await;
        drop(tick);
        drop(dying);
        let committed = world.number("select count(*) from reconciliation.finding").await;
        assert_eq!(committed, if step == Step::Committed { 6 } else { 3 }, "{step:?}");
        world.cycle().await;
        assert_eq!(world.findings().await, vec!["missed_success repairable open"; 7], "{step:?}");
        assert_eq!(world.outbox().await, vec!["command ApplyPaymentSucceeded"; 7], "{step:?}");
        assert_eq!(world.never_verified().await, 0, "{step:?}");
    }
}

async fn process_id(session: &Client) -> i32 {
    session.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0)
}

/// Comes back when `waiter` waits for a lock that `holder` has.
async fn until_blocked(world: &World, waiter: i32, holder: i32) {
    for _ in 0..100_000 {
        let blocked =
            world.owner.query_one("select $2 = any (pg_blocking_pids($1))", &[&waiter, &holder]).await.unwrap();
        if blocked.get(0) {
            return;
        }
    }
    panic!("{waiter} does not wait for {holder}");
}

#[tokio::test]
async fn a_session_that_is_cut_off_in_its_commit_has_written_nothing() {
    let world = World::new().await;
    world.pairs(4, "pending", "succeeded").await;
    let ticking = process_id(&world.scan).await;
    let mut tick = Actor::new(async |steps| world.tick_in(&world.scan, &steps, None).await);
    tick.go_on_to(Step::Decided).await;
    let before = world.written().await;
    let blocker = World::scan_session(&world.database).await;
    let blocking = process_id(&blocker).await;
    blocker.batch_execute("begin; select from reconciliation.cursor for update").await.unwrap();
    let (ended, ()) = tokio::join!(tick.finish(), async {
        until_blocked(&world, ticking, blocking).await;
        world.owner.query_one("select pg_terminate_backend($1)", &[&ticking]).await.unwrap();
    });
    assert_eq!(ended.unwrap_err().error_type(), "DatabaseFailed");
    blocker.batch_execute("rollback").await.unwrap();
    assert_eq!(world.written().await, before);
}

#[tokio::test]
async fn a_commit_that_postgres_ends_to_break_a_deadlock_is_sent_again() {
    let world = World::new().await;
    world.pairs(5, "paid", "succeeded").await;
    world.cycle().await;
    let victim = connect_impatient(&world).await;
    let (gate, rival) = (World::scan_session(&world.database).await, World::scan_session(&world.database).await);
    let (ticking, gating, rivalling) = (process_id(&victim).await, process_id(&gate).await, process_id(&rival).await);
    let lock = |reference: &str| {
        format!(
            "select from reconciliation.observation where payment_id =
             (select id from reconciliation.payment where external_ref = '{reference}') for update"
        )
    };
    // The commit takes 1 and 2 and waits at 3; the rival holds 5 and waits for 1; then 3 is let go, and the commit, coming
    // to 5, closes the circle and is the one to be ended.
    gate.batch_execute(&format!("begin; {}", lock("pi_3"))).await.unwrap();
    rival.batch_execute(&format!("begin; {}", lock("pi_5"))).await.unwrap();
    let (report, (), ()) = tokio::join!(
        world.tick_in(&victim, &reconciler::scan::steps::Steps::Unwatched, None),
        async {
            until_blocked(&world, ticking, gating).await;
            rival.batch_execute(&format!("{}; commit", lock("pi_1"))).await.unwrap();
        },
        async {
            until_blocked(&world, rivalling, ticking).await;
            gate.batch_execute("commit").await.unwrap();
        },
    );
    let report = report.unwrap();
    assert_eq!((report.outcome, report.in_sync), (Outcome::Advanced, 5));
    // one, or more where the commit is back before the rival has seen that its turn has come
    assert!(deadlocks(&world, &[&victim]).await >= 1, "or the test has not made what it tests");
}

/// How many deadlocks these sessions were ended for. A session publishes its count when it is told to, at its next command.
async fn deadlocks(world: &World, sessions: &[&Client]) -> i64 {
    for session in sessions {
        session.batch_execute("select pg_stat_force_next_flush()").await.unwrap();
        session.batch_execute("select 1").await.unwrap();
    }
    world.number("select deadlocks from pg_stat_database where datname = current_database()").await
}

/// A scan's session that looks for deadlocks at once, where all others wait a minute.
async fn connect_impatient(world: &World) -> Client {
    let client = crate::world::connect(&world.database.url()).await;
    client.batch_execute("set deadlock_timeout = '20ms'; set role reconciler_scan").await.unwrap();
    client
}
