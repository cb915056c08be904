//! One drift, one open finding, one command (promise 7).

use reconciler::telemetry::Outcome;

use crate::world::World;

#[tokio::test]
async fn the_same_drift_twice_is_one_finding_and_one_command() {
    let world = World::new().await;
    let id = world.pair("pi_1", "pending", "succeeded").await;
    let reports = world.cycle().await;
    assert_eq!((reports[0].findings_opened, reports[0].commands_queued), (1, 1));
    assert_eq!(reports[0].opened_by_kind["missed_success"], 1);
    let seen = "select (last_seen_at - detected_at >= interval '30 minutes')::text from reconciliation.finding";
    assert_eq!(world.texts(seen).await, ["false"]);
    world.pass(30);
    let reports = world.cycle().await;
    assert_eq!((reports[0].repairable, reports[0].findings_opened, reports[0].commands_queued), (1, 0, 0));
    assert_eq!(world.findings().await, ["missed_success repairable open"]);
    assert_eq!(world.outbox().await, ["command ApplyPaymentSucceeded"]);
    assert_eq!(world.texts(seen).await, ["true"], "last_seen_at moves");
    let payload = "select payload ->> 'payment_id', payload ->> 'external_ref', payload ->> 'expected_local_state',
                   payload ->> 'external_status', (payload ->> 'finding_id' = (select id::text from reconciliation.finding))::text
                   from reconciliation.outbox";
    assert_eq!(world.texts(payload).await, [format!("{id} pi_1 pending succeeded true")]);
}

#[tokio::test]
async fn a_drift_that_is_gone_closes_as_in_sync_again() {
    let world = World::new().await;
    world.pair("pi_1", "pending", "succeeded").await;
    world.cycle().await;
    world.update("status = 'paid'", "true").await;
    let reports = world.cycle().await;
    assert_eq!(reports[0].findings_closed, 1);
    assert_eq!(reports[0].closed_by_kind["missed_success"], 1);
    assert_eq!(world.findings().await, ["missed_success repairable in_sync_again"]);
}

#[tokio::test]
async fn in_flight_closes_nothing() {
    let world = World::new().await;
    world.pair("pi_1", "finalizing", "succeeded").await;
    world.cycle().await;
    world.stripe.set_status("pi_1", "processing");
    assert_eq!(world.cycle().await[0].in_flight, 1);
    assert_eq!(world.findings().await, ["missed_success repairable open"]);
}

#[tokio::test]
async fn a_drift_of_another_kind_replaces_the_old_one() {
    let world = World::new().await;
    world.pair("pi_1", "pending", "canceled").await;
    world.cycle().await;
    world.update("status = 'paid'", "true").await;
    let reports = world.cycle().await;
    assert_eq!((reports[0].findings_opened, reports[0].findings_closed), (1, 1));
    assert_eq!(
        world.findings().await,
        ["missed_cancel repairable replaced", "paid_locally_not_externally needs_review open"]
    );
}

#[tokio::test]
async fn the_same_drift_after_a_repair_is_a_new_finding_and_a_new_command() {
    let world = World::new().await;
    let id = world.pair("pi_1", "pending", "succeeded").await;
    world.cycle().await;
    let transition = format!(
        "select reconciliation.transition('{id}', 'succeeded', '{{\"external_ref\": \"pi_1\"}}',
         (select max(id) from reconciliation.finding))"
    );
    assert_eq!(world.texts(&transition).await, ["written"]);
    assert_eq!(world.findings().await, ["missed_success repairable repaired"]);
    let at = world.now().unix_timestamp();
    world.update(&format!("status = 'pending', updated_at = to_timestamp({at}) - interval '1 hour'"), "true").await;
    world.cycle().await;
    assert_eq!(world.findings().await, ["missed_success repairable repaired", "missed_success repairable open"]);
    let command = "command ApplyPaymentSucceeded";
    assert_eq!(world.outbox().await, [command, "event PaymentCaptured", command]);
}

#[tokio::test]
async fn a_finding_that_a_person_accepted_stays_closed_until_something_changes() {
    let world = World::new().await;
    world.pair("pi_1", "paid", "canceled").await;
    world.cycle().await;
    world.accept().await;
    for _ in 0..3 {
        assert_eq!(world.cycle().await[0].findings_opened, 0);
    }
    assert_eq!(world.findings().await, ["paid_locally_not_externally needs_review accepted"]);
    world.stripe.set_status("pi_1", "requires_capture");
    assert_eq!(world.cycle().await[0].findings_opened, 1, "Stripe's status changed");
}

#[tokio::test]
async fn no_scan_undoes_an_escalation() {
    let world = World::new().await;
    world.pair("pi_1", "pending", "succeeded").await;
    world.cycle().await;
    world
        .owner
        .batch_execute("update reconciliation.finding set escalated_at = last_seen_at, verdict = 'needs_review'")
        .await
        .unwrap();
    world.cycle().await;
    assert_eq!(world.findings().await, ["missed_success needs_review open"]);
    assert_eq!(world.number("select count(*) from reconciliation.finding where escalated_at is not null").await, 1);
    assert_eq!(world.outbox().await.len(), 1);
}

#[tokio::test]
async fn a_repair_that_does_not_help_is_asked_for_again_and_then_a_person() {
    let world = World::new().await;
    world.pair("pi_1", "pending", "succeeded").await;
    world.cycle().await;
    let open = "delivered_at is null and dead_at is null";
    for round in 1..=3 {
        // while it waits, and for an hour after it was delivered, it is not asked for again
        world.pass(120);
        assert_eq!(world.cycle().await[0].commands_queued, 0, "round {round}: waiting");
        let at = world.now().unix_timestamp();
        let how = if round == 2 { "dead_at" } else { "delivered_at" };
        let end = format!("update reconciliation.outbox set {how} = to_timestamp({at}) where {open}");
        world.owner.batch_execute(&end).await.unwrap();
        if round != 2 {
            world.pass(59);
            assert_eq!(world.cycle().await[0].commands_queued, 0, "round {round}: it may still take effect");
            world.pass(2);
        }
        let report = world.cycle().await.remove(0);
        assert_eq!(
            (report.commands_queued, report.findings_opened, report.findings_escalated),
            (1, 0, 0),
            "round {round}"
        );
    }
    assert_eq!(world.findings().await, ["missed_success repairable open"]);
    let at = world.now().unix_timestamp();
    world
        .owner
        .batch_execute(&format!("update reconciliation.outbox set dead_at = to_timestamp({at}) where {open}"))
        .await
        .unwrap();
    let report = world.cycle().await.remove(0);
    assert_eq!((report.commands_queued, report.findings_opened, report.findings_escalated), (0, 0, 1));
    for _ in 0..2 {
        world.pass(120);
        let report = world.cycle().await.remove(0);
        assert_eq!((report.commands_queued, report.findings_escalated), (0, 0), "once");
    }
    assert_eq!(world.findings().await, ["missed_success needs_review open"], "its kind stays");
    assert_eq!(world.outbox().await, ["command ApplyPaymentSucceeded"; 4]);
    world.update("status = 'paid'", "true").await;
    world.cycle().await;
    assert_eq!(world.findings().await, ["missed_success needs_review in_sync_again"]);
}

#[tokio::test]
async fn compensation_is_asked_for_once_for_a_payment_and_reference() {
    let world = World::new().await;
    world.pairs(3, "expired", "requires_action").await;
    world.stripe.remove("pi_2");
    world.cycle().await;
    assert_eq!(world.outbox().await, ["event PaymentCompensationRequired"]);
    // gone and there again: a new finding, and no second event
    world.stripe.put("pi_2", "requires_payment_method", world.now() - time::Duration::hours(1));
    world.cycle().await;
    world.stripe.remove("pi_2");
    world.cycle().await;
    let missing = "missing_externally needs_review";
    assert_eq!(world.findings().await, [format!("{missing} in_sync_again"), format!("{missing} open")]);
    assert_eq!(world.outbox().await, ["event PaymentCompensationRequired"]);
}

#[tokio::test]
async fn evidence_holds_both_sides_and_the_previous_observation_but_no_secret() {
    let world = World::new().await;
    world.pair("pi_1", "pending", "processing").await;
    world.cycle().await;
    world.stripe.set_status("pi_1", "succeeded");
    world.cycle().await;
    let evidence: serde_json::Value = world.rows_of("select evidence from reconciliation.finding").await[0].get(0);
    assert_eq!(evidence["local_state"], "pending");
    assert_eq!(evidence["external_status"], "succeeded");
    assert_eq!(evidence["previous"]["status"], "processing");
    assert!(evidence["amount_minor"].is_i64() && evidence["currency"].is_string(), "{evidence}");
    assert!(!evidence.to_string().contains("secret"), "{evidence}");
}

#[tokio::test]
async fn a_three_day_outage_of_the_webhook_goes_through_however_much_there_is() {
    let mut world = World::new().await;
    world.set(&[("BATCH_SIZE", "1000"), ("REQUESTS_PER_SECOND", "10000")]);
    world.pairs(5_000, "pending", "succeeded").await;
    let reports = world.cycle().await;
    assert_eq!(reports.iter().map(|report| report.findings_opened).sum::<u64>(), 5_000);
    assert_eq!(reports.iter().map(|report| report.commands_queued).sum::<u64>(), 5_000);
    assert_eq!(reports.last().unwrap().outcome, Outcome::Wrapped);
    assert_eq!(world.number("select count(distinct aggregate) from reconciliation.outbox").await, 5_000);
}

#[tokio::test]
async fn an_open_finding_that_comes_to_need_compensation_announces_it() {
    let world = World::new().await;
    world.payment(Some("pi_gone"), "pending", 60).await;
    world.cycle().await;
    assert!(world.outbox().await.is_empty(), "a pending one was never sent");
    world.update("status = 'finalizing'", "true").await;
    assert_eq!(world.cycle().await[0].findings_opened, 0);
    assert_eq!(world.outbox().await, ["event PaymentCompensationRequired"]);

    // and another reference is another compensation, and other evidence
    world.update("stripe_payment_intent_id = 'pi_gone_too'", "true").await;
    for _ in 0..2 {
        world.cycle().await;
    }
    let events = "select payload ->> 'external_ref' from reconciliation.outbox order by id";
    assert_eq!(world.texts(events).await, ["pi_gone", "pi_gone_too"]);
    let finding = "select external_ref, evidence ->> 'external_ref' from reconciliation.finding";
    assert_eq!(world.texts(finding).await, ["pi_gone_too pi_gone_too"]);
}
