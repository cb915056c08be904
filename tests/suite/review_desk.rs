//! The desk as it is asked: the list, one finding, and what is refused.

use review::list::{Listing, list};
use review::request::{List, Place, Request, Sort, State};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::binaries::{binaries, start};
use crate::lambda::Host;
use crate::world::{World, connect};

async fn reader(world: &World) -> Client {
    let client = connect(&world.database.url()).await;
    client.batch_execute("set timezone = 'UTC'; set role reconciler_metrics").await.unwrap();
    client
}

async fn page(world: &World, db: &Client, request: Value) -> Listing {
    let Request::List(request) = Request::parse(&request).unwrap() else { panic!("not a list: {request}") };
    list(db, &request, world.now()).await.unwrap()
}

async fn host(world: &World, desk: &str) -> Host {
    Host::new(&binaries().join("review"), &[("DATABASE_URL", &world.database.url()), ("REVIEW_DESK", desk)]).await
}

#[tokio::test]
async fn the_list_shows_the_most_severe_first_and_takes_filters() {
    let world = World::new().await;
    world.pair("pi_1", "pending", "requires_payment_method").await;
    world.stripe.remove("pi_1");
    world.pair("pi_2", "paid", "canceled").await;
    world.pair("pi_3", "pending", "succeeded").await;
    world.payment(Some("nonsense"), "pending", 60).await;
    world.cycle().await;
    let db = reader(&world).await;
    let all = page(&world, &db, json!({"action": "list"})).await;
    let kinds = |listing: &Listing| {
        listing.findings.iter().map(|found| format!("{} {}", found.severity, found.kind)).collect::<Vec<_>>()
    };
    let waiting = ["critical paid_locally_not_externally", "high missing_externally", "medium malformed_reference"];
    assert_eq!(kinds(&all), waiting);
    assert_eq!((all.matching, all.next.clone(), all.totals.waiting, all.totals.repairing), (3, None, 3, 1));
    assert_eq!((all.totals.money_at_risk.len(), all.totals.without_amount), (1, 2), "{:?}", all.totals);
    let money = &all.totals.money_at_risk[0];
    assert_eq!(Some(money.amount_minor), all.findings[0].amount_minor);
    for (filter, expected) in [
        (json!({"kind": "missing_externally"}), vec![waiting[1]]),
        (json!({"state": "repairable"}), vec!["low missed_success"]),
        (json!({"local_state": "paid"}), vec![waiting[0]]),
        (json!({"external_status": "not_found"}), vec![waiting[1]]),
        (json!({"payment": "pi_2"}), vec![waiting[0]]),
        (json!({"payment": "2"}), vec![waiting[0]]),
        (json!({"payment": "2' or 'a' = 'a"}), vec![]),
        (json!({"kind": "x'; drop table reconciliation.finding; --"}), vec![]),
        (json!({"min_age_hours": 1}), vec![]),
        (json!({"state": "snoozed"}), vec![]),
    ] {
        let mut request = json!({"action": "list"});
        request.as_object_mut().unwrap().extend(filter.as_object().unwrap().clone());
        assert_eq!(kinds(&page(&world, &db, request).await), expected, "{filter}");
    }
    let everything = page(&world, &db, json!({"action": "list", "state": "all", "sort": "newest"})).await;
    assert_eq!(everything.findings.len(), 4);
}

#[tokio::test]
async fn ten_thousand_findings_are_paged_without_a_gap_or_a_repetition_under_a_second_each() {
    let world = World::new().await;
    let insert = "insert into reconciliation.finding
                      (external_ref, kind, verdict, external_status, evidence, detected_at, last_seen_at)
                  select 'pi_' || n, (array['orphan_charge', 'missing_externally', 'unmapped_state'])[n % 3 + 1], 'needs_review',
                      'succeeded', '{\"amount_minor\": 700, \"currency\": \"eur\"}',
                      $1::timestamptz - (n / 7) * interval '1 second', $1::timestamptz
                  from generate_series(1, 10000) n";
    world.owner.execute(insert, &[&world.now()]).await.unwrap();
    let db = reader(&world).await;
    // no statement may take a second, whatever else this machine does: Postgres ends it then
    db.batch_execute("set statement_timeout = '1s'").await.unwrap();
    for sort in [Sort::Severity, Sort::Oldest, Sort::Newest] {
        let mut request = List { sort, limit: 200, state: State::NeedsReview, ..List::default() };
        let mut seen = Vec::new();
        for _ in 0..=50 {
            let listing = list(&db, &request, world.now()).await.unwrap();
            assert_eq!((listing.matching, listing.totals.money_at_risk[0].amount_minor), (10_000, 7_000_000));
            seen.extend(listing.findings.into_iter().map(|found| (found.severity, found.detected_at, found.finding)));
            request.after = listing.next.as_deref().map(|next| Place::parse(next).unwrap());
            if request.after.is_none() {
                break;
            }
        }
        let mut sorted = seen.clone();
        let rank = |severity: &str| ["critical", "high", "medium"].iter().position(|word| *word == severity);
        match sort {
            Sort::Severity => sorted.sort_by_key(|(severity, at, id)| (rank(severity), *at, *id)),
            Sort::Oldest => sorted.sort_by_key(|(_, at, id)| (*at, *id)),
            Sort::Newest => sorted.sort_by_key(|(_, at, id)| std::cmp::Reverse((*at, *id))),
        }
        assert_eq!(seen, sorted, "{sort:?}");
        sorted.sort_by_key(|(_, _, id)| *id);
        sorted.dedup_by_key(|(_, _, id)| *id);
        assert_eq!(sorted.len(), 10_000, "{sort:?}");
    }
}

#[tokio::test]
async fn an_amount_that_is_none_is_not_known_and_hides_no_other() {
    let world = World::new().await;
    let insert = "insert into reconciliation.finding
                      (external_ref, kind, verdict, external_status, evidence, detected_at, last_seen_at)
                  select 'pi_' || n, 'orphan_charge', 'needs_review', 'succeeded', e, $1, $1
                  from unnest($2::jsonb[]) with ordinality as given (e, n)";
    let evidence = [
        json!({"amount_minor": 700, "currency": "eur", "amount_received_minor": 0}),
        json!({"amount_minor": 700, "currency": "eur", "amount_received_minor": 300}),
        json!({"amount_minor": 1.5, "currency": "eur"}),
        json!({"amount_minor": 1e30, "currency": "eur"}),
        json!({"amount_minor": "1 or 1=1", "currency": "eur"}),
        json!({"amount_minor": null, "currency": "eur"}),
        json!({"amount_minor": {}, "currency": ["eur"]}),
        json!({}),
        json!({"amount_minor": -5, "currency": "usd"}),
    ];
    world.owner.execute(insert, &[&world.now(), &evidence.as_slice()]).await.unwrap();
    let db = reader(&world).await;
    let behind = page(&world, &db, json!({"action": "list", "after": "3.253402300799999999.1"})).await;
    assert_eq!((behind.findings.len(), behind.matching, behind.next), (0, 9, None));
    let all = page(&world, &db, json!({"action": "list", "sort": "oldest"})).await;
    let amounts: Vec<Option<i64>> = all.findings.iter().map(|found| found.amount_minor).collect();
    assert_eq!(amounts, [Some(700), Some(300), None, None, None, None, None, None, Some(-5)]);
    let money: Vec<(&str, i64, i64)> =
        all.totals.money_at_risk.iter().map(|of| (of.currency.as_str(), of.amount_minor, of.findings)).collect();
    assert_eq!((money, all.totals.without_amount, all.totals.waiting), (vec![("eur", 1_000, 2), ("usd", -5, 1)], 6, 9));
}

#[tokio::test]
async fn one_finding_is_shown_with_all_that_a_decision_needs() {
    let world = World::new().await;
    let id = world.pair("pi_1", "paid", "canceled").await;
    world.cycle().await;
    world.accept().await;
    world.stripe.set_status("pi_1", "requires_payment_method");
    world.cycle().await;
    let reading = host(&world, "read").await;
    let list = reading.answer(json!({"action": "list"})).await;
    let finding = list["findings"][0]["finding"].clone();
    assert_eq!(list["findings"][0]["stripe_changed"], true);
    let shown = reading.answer(json!({"action": "show", "finding": finding})).await;
    assert_eq!((&shown["outcome"], &shown["payment"], &shown["revision"]), (&json!("shown"), &json!(id), &json!(0)));
    assert_eq!(shown["choices"], json!(["apply", "accept", "snooze"]));
    assert_eq!(shown["transition"], "reverse_paid");
    assert_eq!(shown["payment_now"]["state"], "paid");
    assert_eq!(shown["observation"]["external_status"], "requires_payment_method");
    assert_eq!(shown["evidence"]["previous"]["status"], "canceled");
    assert_eq!(shown["earlier"][0]["resolution"], "accepted");
    assert!(shown["stripe_url"].as_str().unwrap().ends_with("/payments/pi_1"), "{shown}");
    let missing = reading.answer(json!({"action": "show", "finding": 99})).await;
    assert_eq!((&missing["outcome"], &missing["message"]), (&json!("refused"), &json!("there is no finding 99")));
    drop(reading.kill());
}

#[tokio::test]
async fn a_payment_with_a_date_that_is_none_and_evidence_of_any_depth_and_size_can_be_looked_at() {
    let world = World::new().await;
    world.pair("pi_1", "paid", "canceled").await;
    world.cycle().await;
    let finding = world.number("select id from reconciliation.finding").await;
    let reading = host(&world, "read").await;
    let show = json!({"action": "show", "finding": finding});
    for date in ["infinity", "-infinity", "20000-01-01", "0044-01-01 BC"] {
        let spoil = format!("update payments set updated_at = '{date}', created_at = '{date}'");
        world.owner.batch_execute(&spoil).await.unwrap();
        let shown = reading.answer(show.clone()).await;
        let dates = (&shown["payment_now"]["created_at"], &shown["payment_now"]["updated_at"]);
        assert_eq!(dates, (&Value::Null, &Value::Null), "{date}: {shown}");
    }
    for (evidence, words) in [
        ("('{\"a\":' || repeat('[', 300) || repeat(']', 300) || '}')::jsonb", "[[[[["),
        ("'{\"x\": 1e400}'", "1000000"),
        ("jsonb_build_object('x', repeat('ü', 4000000))", "(8000009 bytes in all)"),
    ] {
        world.owner.batch_execute(&format!("update reconciliation.finding set evidence = {evidence}")).await.unwrap();
        let shown = reading.answer(show.clone()).await;
        let written = shown["evidence"].as_str().unwrap();
        assert!(written.contains(words) && written.len() < 300_000, "{}", written.len());
    }
    drop(reading.kill());
}

#[tokio::test]
async fn what_cannot_be_used_is_told_and_nothing_is_written() {
    let world = World::new().await;
    world.pair("pi_1", "paid", "canceled").await;
    world.cycle().await;
    let finding = world.number("select id from reconciliation.finding").await;
    let before = world.written().await;
    let good = json!({"action": "decide", "decision": "accept", "finding": finding, "revision": 0, "note": "n"});
    let with = |member: &str, value: Value| {
        let mut request = good.clone();
        request[member] = value;
        request
    };
    let deciding = host(&world, "decide").await;
    for (payload, reason, words) in [
        (json!({}), "request_unusable", "action has to be"),
        (json!({"action": "accept"}), "request_unusable", "action has to be"),
        (with("note", json!("")), "request_unusable", "a decision without one is not taken"),
        (with("note", json!("x".repeat(70_000))), "request_unusable", "it may have 65536"),
        (with("note", json!("x".repeat(2_001))), "request_unusable", "at most 2000"),
        (with("finding", json!("1; drop table reconciliation.review")), "request_unusable", "invalid type"),
        (
            with("requestContext", json!({"identity": {"user": "root"}})),
            "request_unusable",
            "unknown field `requestContext`",
        ),
        (with("who", json!("root")), "request_unusable", "unknown field `who`"),
        (json!({"action": "list"}), "other_desk", "lists are given by the reading function"),
        (with("revision", json!(5)), "changed", "revision 0 and not at 5"),
    ] {
        let answer = deciding.answer(payload).await;
        assert_eq!((&answer["outcome"], &answer["reason"]), (&json!("refused"), &json!(reason)), "{answer}");
        assert!(answer["message"].as_str().unwrap().contains(words), "{answer}");
    }
    assert_eq!(world.written().await, before);
    assert_eq!(world.number("select count(*) from reconciliation.review").await, 0);
    drop(deciding.kill());
    let reading = host(&world, "read").await;
    let answer = reading.answer(good).await;
    assert_eq!(answer["reason"], "other_desk", "{answer}");
    assert_eq!(world.written().await, before);
    let (stdout, _) = reading.kill();
    assert!(stdout.contains("\"RequestsRefused\":1"), "{stdout}");
}

#[tokio::test]
async fn who_decided_is_lambdas_word_and_else_on_record_as_not_known() {
    let world = World::new().await;
    world.pairs(2, "paid", "canceled").await;
    world.cycle().await;
    let deciding = host(&world, "decide").await;
    let ids = world.rows_of("select id from reconciliation.finding order by id").await;
    let decide = |row: usize| {
        json!({"action": "decide", "decision": "accept", "finding": ids[row].get::<_, i64>(0), "revision": 0,
        "note": "n", "by": "<b>root</b>"})
    };
    let by_cognito = deciding.answer_to("eu-west-1:ann", decide(0)).await;
    assert_eq!(
        (&by_cognito["who"], &by_cognito["who_is"]),
        (&json!("eu-west-1:ann"), &json!("cognito")),
        "{by_cognito}"
    );
    let plain = deciding.answer(decide(1)).await;
    assert_eq!(plain["who_is"], "not_known", "{plain}");
    let kept = "select who_is, (who = 'the caller of request ' || request_id or who_is = 'cognito')::text, claimed_by
                from reconciliation.review order by id";
    assert_eq!(world.texts(kept).await, ["cognito true <b>root</b>", "not_known true <b>root</b>"]);
    let (stdout, _) = deciding.kill();
    for written in ["\"Decision\":\"accept\"", "\"TimeToDecision\":", "\"Function\":\"review-decide\""] {
        assert!(stdout.contains(written), "{written}: {stdout}");
    }
}

async fn terminal(world: &World, arguments: &[&str]) -> (i32, String, String) {
    start(&binaries().join("desk"), arguments, [("DATABASE_URL", world.database.url().as_str())]).ended().await
}

#[tokio::test]
async fn at_a_terminal_a_person_lists_shows_decides_and_is_told_what_was_wrong() {
    let world = World::new().await;
    world.pair("pi_1", "paid", "canceled").await;
    world.cycle().await;
    let esc = "update reconciliation.finding set evidence = evidence || '{\"match_key\": \"a\\u001b[31m\\u202eb\"}'";
    world.owner.batch_execute(esc).await.unwrap();
    let (code, screen, errors) = terminal(&world, &["list"]).await;
    assert_eq!((code, errors.as_str()), (0, ""), "{screen}");
    assert!(screen.starts_with("1 wait for a person (1 critical), the oldest for "), "{screen}");
    assert_eq!(screen.lines().filter(|line| line.contains("paid_locally_not_externally")).count(), 1, "{screen}");
    let (code, none, _) = terminal(&world, &["list", "--kind", "orphan_charge"]).await;
    assert!(code == 0 && none.contains("None of the open findings is in this list"), "{none}");

    let (code, shown, _) = terminal(&world, &["show", "1"]).await;
    let offered = "cargo review apply reverse_paid 1 --revision 0 --note …";
    assert!(code == 0 && shown.contains(offered) && !shown.contains(['\u{1b}', '\u{202e}']), "{shown}");

    for (arguments, code, words) in [
        (vec!["accept", "1", "--revision", "0", "--note", "  "], 2, "note has to say why"),
        (vec!["accept", "1", "--revision", "0"], 2, "--note"),
        (vec!["snooze", "1", "--revision", "0", "--note", "n", "--days", "31"], 2, "1..=30"),
        (vec!["list", "--limit", "0"], 2, "limit has to be"),
        (vec!["list", "--after", "0.-377705116800000000.1"], 2, "after has to be"),
        (vec!["accept", "1", "--revision", "4", "--note", "n"], 1, "it is at revision 0 and not at 4"),
        (vec!["show", "9"], 1, "there is no finding 9"),
        (vec!["release", "--job", "nobody", "--revision", "0", "--note", "n"], 1, "there is no job nobody"),
    ] {
        let (ended, screen, errors) = terminal(&world, &arguments).await;
        assert!((ended, screen.as_str()) == (code, "") && errors.contains(words), "{arguments:?}: {ended}: {errors}");
    }
    let (code, recorded, _) =
        terminal(&world, &["snooze", "1", "--revision", "0", "--days", "3", "--note", "later"]).await;
    assert!(code == 0 && recorded.starts_with("finding 1: snoozed (review 1,"), "{recorded}");
    let (_, shown, _) = terminal(&world, &["show", "1"]).await;
    assert!(shown.contains("  put off until "), "{shown}");
    let (code, recorded, errors) =
        terminal(&world, &["apply", "reverse_paid", "1", "--revision", "1", "--note", "refunded by hand"]).await;
    assert_eq!(code, 0, "{errors}");
    assert!(recorded.starts_with("finding 1: applied (review 2, on record as decided by "), "{recorded}");
    let (_, shown, _) = terminal(&world, &["show", "1"]).await;
    assert!(shown.contains("note refunded by hand") && shown.contains("closed            applied"), "{shown}");
    assert!(!shown.contains("  put off until "), "what is closed is not put off: {shown}");

    let steering = "{\"action\": \"decide\", \"decision\": \"release\", \"job\": \"\\u001b[31mj\\u202e\", \"revision\": 0, \"note\": \"n\"}";
    let url = world.database.url();
    let tick = start(&binaries().join("tick"), &["review", steering], [("DATABASE_URL", url.as_str())]);
    let (code, _, errors) = tick.ended().await;
    assert!(code == 1 && errors.contains("there is no job \u{fffd}[31mj\u{fffd}"), "{errors}");
}

#[test]
fn every_answer_can_be_written_as_json() {
    let described = review::Answer::Described { markdown: "# desk" };
    assert_eq!(serde_json::to_value(described).unwrap(), json!({"outcome": "described", "markdown": "# desk"}));
}
