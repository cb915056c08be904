//! Decisions of persons: on record, one at a time, and all or nothing (promises 7 and 8).

use reconciler::clock::Clock;
use reconciler::domain::review::PersonOnly;
use review::caller::{Caller, Identity};
use review::decide::{Decided, Recorded, decide, release_batch};
use review::request::{Asked, Decide, Release};
use serde_json::json;
use time::Duration;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::binaries::binaries;
use crate::gates::{Gates, Run, Stand};
use crate::killed::{ACTOR, PLACES_MAX, killed_behind};
use crate::lambda::Host;
use crate::world::{Adapter, World, connect};

pub(crate) async fn reviewer(world: &World) -> Client {
    let client = connect(&world.database.url()).await;
    client.batch_execute("set timezone = 'UTC'; set role reconciler_reviewer").await.unwrap();
    client
}

fn caller(name: &str) -> Caller {
    Caller { identity: Identity::DatabaseLogin(name.to_owned()), request_id: None }
}

fn asked(finding: i64, revision: i64, decision: Asked) -> Decide {
    Decide { finding, revision, decision, note: "agreed with the shop".to_owned(), by: None }
}

/// Decides on the newest finding as it is.
async fn decided(world: &World, db: &mut Client, decision: Asked) -> Decided {
    let newest = "select id, revision from reconciliation.finding order by id desc limit 1";
    let row = world.rows_of(newest).await.remove(0);
    decide(db, &asked(row.get(0), row.get(1), decision), &caller("ann"), world.now()).await.unwrap()
}

fn recorded(decided: Decided) -> Recorded {
    match decided {
        Decided::Recorded(recorded) => recorded,
        Decided::Refused(refused) => panic!("{refused:?}"),
    }
}

fn reason(decided: &Decided) -> &'static str {
    match decided {
        Decided::Recorded(_) => "recorded",
        Decided::Refused(refused) => refused.reason,
    }
}

const REVIEWS: &str = "select decision, who, who_is, note from reconciliation.review order by id";

#[tokio::test]
async fn a_person_applies_what_stripe_says_and_all_of_it_is_written() {
    for (adapter, local, status, transition, now, event) in [
        (Adapter::Default, "paid", "canceled", PersonOnly::ReversePaid, "failed", "PaymentFailed"),
        (Adapter::Default, "failed", "succeeded", PersonOnly::AcceptLateSuccess, "paid", "PaymentCaptured"),
        (Adapter::UuidCheckout, "Captured", "canceled", PersonOnly::ReversePaid, "failed", "PaymentFailed"),
    ] {
        let world = World::with(adapter).await;
        world.pair("pi_1", local, status).await;
        world.cycle().await;
        world.pass(90);
        let mut db = reviewer(&world).await;
        let recorded = recorded(decided(&world, &mut db, Asked::Apply(transition)).await);
        assert_eq!((recorded.result, recorded.waited_seconds / 60), ("applied", 90));
        assert_eq!(world.texts("select state from reconciliation.payment").await, [now]);
        assert_eq!(world.outbox().await, [format!("event {event}")]);
        assert_eq!(world.texts(REVIEWS).await, ["apply ann database_login agreed with the shop"]);
        let end =
            "select resolution, (review_id = (select id from reconciliation.review))::text from reconciliation.finding";
        assert_eq!(world.texts(end).await, ["applied true"]);
        let frozen = "select evidence #>> '{finding,external_status}', evidence #>> '{payment,state}',
                      evidence #>> '{observation,external_status}' from reconciliation.review";
        let before = if local == "failed" { "failed" } else { "paid" };
        assert_eq!(world.texts(frozen).await, [format!("{status} {before} {status}")]);
        assert_eq!(reason(&decided(&world, &mut db, Asked::Apply(transition)).await), "closed");
    }
}

#[tokio::test]
async fn postgres_refuses_a_persons_transition_without_its_review() {
    let world = World::new().await;
    let id = world.pair("pi_1", "paid", "canceled").await;
    let other = world.pair("pi_2", "paid", "canceled").await;
    world.cycle().await;
    let mine = "(select id from reconciliation.finding where external_ref = 'pi_1')";
    let review = |decision: &str, transition: &str, revision: i64| {
        let until = if decision == "snooze" { "now() + interval '1 day'" } else { "null" };
        format!(
            "insert into reconciliation.review (finding_id, revision, decision, transition, snoozed_until, who, who_is, note, evidence, decided_at)
             values ({mine}, {revision}, '{decision}', {transition}, {until}, 'me', 'not_known', 'n', '{{}}', now())"
        )
    };
    let newest = "(select max(id) from reconciliation.review)";
    let reverse = |payment: &str, reference: &str, finding: &str, review: &str| {
        format!(
            "select reconciliation.transition('{payment}', 'reverse_paid', '{{\"external_ref\": \"{reference}\"}}', {finding}, {review})"
        )
    };
    let refused = async |sql: &str| {
        for role in ["reconciler_reviewer", "reconciler_writer"] {
            let db = connect(&world.database.url()).await;
            db.batch_execute(&format!("set role {role}")).await.unwrap();
            let error = db.query(sql, &[]).await.expect_err(sql);
            assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{sql}: {error:?}");
        }
    };
    refused(&reverse(&id, "pi_1", mine, "null").replace(mine, "1")).await;
    world.owner.batch_execute(&review("snooze", "null", 0)).await.unwrap();
    let number = |sql: &'static str| world.number(sql);
    let finding = number("select id from reconciliation.finding where external_ref = 'pi_1'").await.to_string();
    let snooze = number("select max(id) from reconciliation.review").await.to_string();
    refused(&reverse(&id, "pi_1", &finding, &snooze)).await;
    world.owner.batch_execute(&review("apply", "'accept_late_success'", 1)).await.unwrap();
    world.owner.batch_execute(&review("apply", "'reverse_paid'", 7)).await.unwrap();
    let outdated = number("select max(id) from reconciliation.review").await.to_string();
    refused(&reverse(&id, "pi_1", &finding, &outdated)).await;
    refused(&reverse(&id, "pi_1", &finding, &(outdated.parse::<i64>().unwrap() - 1).to_string())).await;
    world
        .owner
        .batch_execute(&format!("delete from reconciliation.review; {}", review("apply", "'reverse_paid'", 0)))
        .await
        .unwrap();
    let good = number("select max(id) from reconciliation.review").await.to_string();
    refused(&reverse(&other, "pi_2", &finding, &good)).await;
    refused(&reverse(&id, "pi_other", &finding, &good)).await;
    refused(&reverse(&id, "pi_1", "null", &good)).await;
    assert_eq!(world.texts("select distinct status from payments").await, ["paid"]);
    let answer = reverse(&id, "pi_1", &finding, newest);
    assert_eq!(world.texts(&answer).await, ["written"]);
    assert!(world.owner.query(&answer, &[]).await.is_err(), "a review is good for once");
}

#[tokio::test]
async fn reviews_are_added_by_the_desk_alone_with_a_note_and_changed_by_nobody() {
    let world = World::new().await;
    world.pair("pi_1", "paid", "canceled").await;
    world.cycle().await;
    let insert = |note: &str| {
        format!(
            "insert into reconciliation.review (finding_id, revision, decision, who, who_is, note, evidence, decided_at)
             select id, 0, 'accept', 'me', 'not_known', '{note}', '{{}}', now() from reconciliation.finding"
        )
    };
    let desk = reviewer(&world).await;
    for blank in ["", " ", "\n\t"] {
        let error = desk.batch_execute(&insert(blank)).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::CHECK_VIOLATION), "{blank:?}");
    }
    desk.batch_execute(&insert("because")).await.unwrap();
    for role in ["reconciler_reviewer", "reconciler_scan", "reconciler_writer", "reconciler_metrics"] {
        let db = connect(&world.database.url()).await;
        db.batch_execute(&format!("set role {role}")).await.unwrap();
        let mut attempts = vec![
            "update reconciliation.review set note = 'x'".to_owned(),
            "delete from reconciliation.review".to_owned(),
        ];
        if role == "reconciler_reviewer" {
            attempts.extend(
                [
                    "update payments set status = 'failed'",
                    "update reconciliation.payment set match_key = 'x'",
                    "select reconciliation.apply_transition(1, 'reverse_paid', '{\"external_ref\": \"pi_1\"}')",
                    "update reconciliation.finding set evidence = '{}'",
                    "update reconciliation.finding set revision = 9",
                    "update reconciliation.cursor set revision = 9",
                    "update reconciliation.outbox set delivered_at = now()",
                    "delete from reconciliation.finding",
                ]
                .map(str::to_owned),
            );
        } else {
            attempts.push(insert("because"));
        }
        for attempt in attempts {
            let error = db.batch_execute(&attempt).await.expect_err(&attempt);
            assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{role}: {attempt}");
        }
    }
    for end in ["accepted", "applied"] {
        let by_hand = format!("update reconciliation.finding set resolved_at = last_seen_at, resolution = '{end}'");
        let error = world.owner.batch_execute(&by_hand).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::CHECK_VIOLATION), "{end} without a review");
    }
}

#[tokio::test]
async fn of_two_who_decide_at_once_one_wins_and_the_other_is_told() {
    let apply = Asked::Apply(PersonOnly::ReversePaid);
    for (first, second) in
        [(Asked::Accept, apply), (apply, Asked::Accept), (apply, apply), (Asked::SnoozeDays(1), apply)]
    {
        let world = World::new().await;
        world.pair("pi_1", "paid", "canceled").await;
        world.cycle().await;
        let finding = world.number("select id from reconciliation.finding").await;
        let gates = Gates::close(connect(&world.database.url()).await, 2).await;
        let mut runs = Vec::new();
        for (actor, name, decision) in [(1, "ann", first), (2, "bob", second)] {
            let session = gates.session(reviewer(&world).await, actor).await;
            let now = world.now();
            runs.push(Run::new(session, async move |mut session, _steps| {
                decide(&mut session.client, &asked(finding, 0, decision), &caller(name), now).await.unwrap()
            }));
        }
        // both have judged, and stand before they record
        assert!(gates.settle(&mut runs).await.iter().all(|stand| matches!(stand, Stand::Gate { .. })));
        // the first records, the second meets it there, and then the first goes on to its end
        for turn in 0..100 {
            let stands = gates.settle(&mut runs).await;
            let at_a_gate = |run: &usize| matches!(stands[*run], Stand::Gate { .. });
            let next = if turn == 1 { Some(1) } else { [0, 1].into_iter().find(at_a_gate) };
            assert!(turn != 2 || stands[1] == Stand::Queue, "the second waits for the first: {stands:?}");
            let Some(next) = next else { break };
            gates.let_on(&mut runs[next], stands[next]).await;
        }
        let outcomes: Vec<Decided> = runs.into_iter().map(Run::into_result).collect();
        let reasons: Vec<&str> = outcomes.iter().map(reason).collect();
        let told = if first == Asked::SnoozeDays(1) { "changed" } else { "closed" };
        assert_eq!(reasons, ["recorded", told], "{outcomes:?}");
        assert_eq!(world.number("select count(*) from reconciliation.review").await, 1);
        let ledger = world.number("select count(*) from payment_ledger").await;
        assert_eq!(ledger, i64::from(first == apply), "{first:?}");
    }
}

#[tokio::test]
async fn a_decision_on_what_has_changed_since_is_refused_and_nothing_is_written() {
    let world = World::new().await;
    world.pair("pi_1", "paid", "canceled").await;
    world.cycle().await;
    let mut db = reviewer(&world).await;
    let finding = world.number("select id from reconciliation.finding").await;
    let apply = asked(finding, 0, Asked::Apply(PersonOnly::ReversePaid));
    // Stripe's side moves, and a scan has seen it
    world.stripe.set_status("pi_1", "requires_capture");
    world.cycle().await;
    let before = world.written().await;
    let refused = decide(&mut db, &apply, &caller("ann"), world.now()).await.unwrap();
    assert_eq!(reason(&refused), "changed");
    assert!(format!("{refused:?}").contains("at Stripe requires_capture"), "{refused:?}");
    assert_eq!(reason(&decided(&world, &mut db, apply.decision).await), "does_not_lead");
    // our side moves, and no scan has seen it
    world.stripe.set_status("pi_1", "canceled");
    world.cycle().await;
    world.update("status = 'failed'", "true").await;
    for decision in [Asked::Accept, apply.decision, Asked::SnoozeDays(1)] {
        assert_eq!(reason(&decided(&world, &mut db, decision).await), "payment_changed");
    }
    assert_eq!(
        reason(&decide(&mut db, &asked(99, 0, Asked::Accept), &caller("ann"), world.now()).await.unwrap()),
        "no_such_finding"
    );
    assert_eq!(world.number("select count(*) from reconciliation.review").await, 0);
    assert!(!before.is_empty());
}

#[tokio::test]
async fn what_was_accepted_stays_closed_for_cycles_and_opens_when_stripe_changes() {
    let world = World::new().await;
    world.pair("pi_1", "paid", "canceled").await;
    world.cycle().await;
    let mut db = reviewer(&world).await;
    assert_eq!(recorded(decided(&world, &mut db, Asked::Accept).await).result, "accepted");
    for _ in 0..3 {
        world.pass(60);
        assert_eq!(world.cycle().await[0].findings_opened, 0);
    }
    assert_eq!(reason(&decided(&world, &mut db, Asked::Accept).await), "closed");
    world.stripe.set_status("pi_1", "requires_capture");
    assert_eq!(world.cycle().await[0].findings_opened, 1);
    assert_eq!(
        world.findings().await,
        ["paid_locally_not_externally needs_review accepted", "paid_locally_not_externally needs_review open"]
    );
}

#[tokio::test]
async fn a_snooze_ends_by_itself_and_with_the_first_change() {
    let world = World::new().await;
    world.pair("pi_1", "paid", "canceled").await;
    world.cycle().await;
    let mut db = reviewer(&world).await;
    let waiting = async || {
        let totals = review::list::totals(&db_of(&world).await, world.now()).await.unwrap();
        (totals.waiting, totals.snoozed)
    };
    assert_eq!(waiting().await, (1, 0));
    assert_eq!(recorded(decided(&world, &mut db, Asked::SnoozeDays(2)).await).result, "snoozed");
    assert_eq!(waiting().await, (0, 1));
    world.pass(2 * 24 * 60 - 1);
    world.cycle().await;
    assert_eq!(waiting().await, (0, 1), "a scan that sees it again wakes nobody");
    world.pass(1);
    assert_eq!(waiting().await, (1, 0));
    let until = world.now() + Duration::hours(1);
    assert_eq!(recorded(decided(&world, &mut db, Asked::SnoozeUntil(until)).await).result, "snoozed");
    assert_eq!(reason(&decided(&world, &mut db, Asked::SnoozeUntil(until)).await), "snoozed_already");
    world.stripe.set_status("pi_1", "requires_capture");
    world.cycle().await;
    assert_eq!(waiting().await, (1, 0), "Stripe's side changed");
    assert_eq!(reason(&decided(&world, &mut db, Asked::SnoozeUntil(world.now())).await), "snooze_end");
}

async fn db_of(world: &World) -> Client {
    let client = connect(&world.database.url()).await;
    client.batch_execute("set role reconciler_metrics").await.unwrap();
    client
}

#[tokio::test]
async fn a_retry_begins_from_zero_attempts() {
    let world = World::new().await;
    world.pair("pi_1", "pending", "succeeded").await;
    world.cycle().await;
    let mut db = reviewer(&world).await;
    assert_eq!(reason(&decided(&world, &mut db, Asked::Retry).await), "command_waits");
    let dies = async || {
        let at = world.now().unix_timestamp();
        let die = format!(
            "update reconciliation.outbox set dead_at = to_timestamp({at}) where dead_at is null and delivered_at is null"
        );
        world.owner.batch_execute(&die).await.unwrap();
        world.pass(1);
        world.cycle().await.remove(0)
    };
    for round in 1..=4 {
        assert_eq!(dies().await.findings_escalated, u64::from(round == 4), "round {round}");
    }
    assert_eq!(world.findings().await, ["missed_success needs_review open"]);
    let retried = recorded(decided(&world, &mut db, Asked::Retry).await);
    assert_eq!(retried.result, "queued");
    assert_eq!(world.findings().await, ["missed_success repairable open"]);
    let payload = "select (payload ->> 'review_id' = (select id::text from reconciliation.review))::text,
                   payload ->> 'expected_local_state', payload ->> 'external_ref', attempts::text
                   from reconciliation.outbox order by id desc limit 1";
    assert_eq!(world.texts(payload).await, ["true pending pi_1 0"]);
    assert_eq!(reason(&decided(&world, &mut db, Asked::Retry).await), "command_waits");
    for round in 1..=4 {
        assert_eq!(dies().await.findings_escalated, u64::from(round == 4), "round {round} after the retry");
    }
    assert_eq!(world.findings().await, ["missed_success needs_review open"]);
    assert_eq!(world.outbox().await.len(), 8);
    // accepted while Stripe says paid: a person's word, too
    assert_eq!(recorded(decided(&world, &mut db, Asked::Accept).await).result, "accepted");
}

#[tokio::test]
async fn a_withheld_batch_is_released_once_for_its_revision() {
    let mut world = World::new().await;
    world.set(&[("MISSING_CAP", "2")]);
    world.rows(5, "paid").await;
    assert!(world.tick().await.is_err());
    let db = db_of(&world).await;
    let list =
        review::list::list(&db, &review::request::List { limit: 5, ..Default::default() }, world.now()).await.unwrap();
    assert_eq!((list.withheld[0].job.as_str(), list.withheld[0].revision), ("payments-vs-stripe", 0));
    assert!(list.withheld[0].because.contains("MISSING_CAP = 2"), "{list:?}");
    world.pass(30);
    assert!(world.tick().await.is_err());
    let mut desk = reviewer(&world).await;
    let release =
        |revision, job: &str| Release { job: job.to_owned(), revision, note: "a test shop".to_owned(), by: None };
    for (outdated, now) in [
        (release(1, "payments-vs-stripe"), "it is at revision 0, where its batch is withheld"),
        (release(0, "suspects-vs-stripe"), "there is no job suspects-vs-stripe"),
    ] {
        let refused = release_batch(&mut desk, &outdated, &caller("ann"), world.now()).await.unwrap();
        assert_eq!(reason(&refused), "not_withheld");
        assert!(format!("{refused:?}").contains(now), "{refused:?}");
    }
    let good = release(0, "payments-vs-stripe");
    let released = recorded(release_batch(&mut desk, &good, &caller("ann"), world.now()).await.unwrap());
    assert_eq!((released.result, released.waited_seconds / 60), ("released", 30), "since it was withheld first");
    let again = release_batch(&mut desk, &good, &caller("bob"), world.now()).await.unwrap();
    assert_eq!(reason(&again), "not_withheld");
    assert_eq!(world.texts(REVIEWS).await, ["release ann database_login a test shop"]);
    assert_eq!(world.ticked().await.needs_review, 5);
    let list =
        review::list::list(&db, &review::request::List { limit: 5, ..Default::default() }, world.now()).await.unwrap();
    assert!(list.withheld.is_empty());
}

#[tokio::test]
async fn an_application_that_is_killed_anywhere_is_whole_or_not_there() {
    let binary = binaries().join("review");
    let mut written_by = [0, 0];
    for passed in 0..PLACES_MAX {
        let case = format!("killed behind gate {passed}");
        let world = World::new().await;
        world.pair("pi_1", "paid", "canceled").await;
        world.cycle().await;
        let gates = Gates::close(connect(&world.database.url()).await, ACTOR).await;
        let payload = json!({"action": "decide", "decision": "apply", "transition": "reverse_paid", "note": "agreed",
            "finding": world.number("select id from reconciliation.finding").await, "revision": 0});
        let start = async |url: &str| Host::new(&binary, &[("DATABASE_URL", url), ("REVIEW_DESK", "decide")]).await;
        let host = start(&Gates::url(&world.database.url(), ACTOR)).await;
        if killed_behind(&gates, host, payload.clone(), passed).await.is_none() {
            // the review, the payment, the ledger, the event, the finding, and the commit
            assert!(passed >= 6, "it has passed {passed} gates only");
            assert!(written_by.iter().all(|times| *times > 0), "before and after the commit: {written_by:?}");
            return;
        }
        let facts = "select (select count(*) from reconciliation.review)::text, (select status from payments),
                     (select count(*) from payment_ledger)::text,
                     (select count(*) from reconciliation.outbox where type = 'PaymentFailed')::text,
                     (select coalesce(resolution, 'open') from reconciliation.finding)";
        let found = world.texts(facts).await.remove(0);
        let whole = found == "1 failed 1 1 applied";
        assert!(whole || found == "0 paid 0 0 open", "{case}: {found}");
        written_by[usize::from(whole)] += 1;
        let next = start(&world.database.url()).await.answer(payload).await;
        assert_eq!(next["outcome"], if whole { "refused" } else { "recorded" }, "{case}: {next}");
        assert_eq!(world.texts(facts).await, ["1 failed 1 1 applied"], "{case}");
    }
    panic!("it does not come to an end");
}

#[tokio::test]
async fn the_digest_is_announced_once_a_day() {
    let world = World::new().await;
    world.pairs(3, "paid", "canceled").await;
    world.cycle().await;
    let db = reviewer(&world).await;
    let first = review::digest::digest(&db, world.now()).await.unwrap();
    assert!(first.announced && first.totals.waiting == 3, "{first:?}");
    assert!(!review::digest::digest(&db, world.now()).await.unwrap().announced);
    world.pass(24 * 60);
    assert!(review::digest::digest(&db, world.now()).await.unwrap().announced);
    assert_eq!(world.outbox().await, ["event ReviewDigest", "event ReviewDigest"]);
    let payload =
        "select payload ->> 'day', payload #>> '{totals,waiting}', payload #>> '{totals,money_at_risk,0,findings}'
                   from reconciliation.outbox order by id limit 1";
    assert_eq!(world.texts(payload).await, [format!("{} 3 3", first.day)]);
    let clock = Clock::System;
    let sink = dispatch::sink::LogSink;
    let settings = reconciler::config::DispatchSettings::from_lookup(&|_| None).unwrap();
    let writer = connect(&world.database.url()).await;
    writer.batch_execute("set role reconciler_writer").await.unwrap();
    let tick = dispatch::Tick::begin(&clock, world.now(), None);
    // in order, one at a time, like all that is about one thing
    for _ in 0..2 {
        assert_eq!(dispatch::run(&writer, &sink, &settings, &tick).await.unwrap().published, 1);
    }
}
