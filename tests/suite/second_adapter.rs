//! An adopter's own table and write port, with random keys and other words, works with all of the repair path.

use dispatch::sink::LogSink;
use reconciler::config::DispatchSettings;
use reconciler::domain::id::PaymentId;
use reconciler::writer::{Transition, transition};
use serde_json::json;
use webhook::event::{Reading, read};
use webhook::inbox::{Outcome, receive};

use crate::sweep::sweep_with;
use crate::world::{Adapter, World, connect};

#[tokio::test]
async fn sweep_webhook_dispatcher_and_scan_work_with_an_adopters_own_write_port() {
    let world = World::with(Adapter::UuidCheckout).await;
    world.pair("pi_1", "Processing", "succeeded").await;
    world.pair("pi_2", "Expired", "canceled").await;
    world.payment(Some("pi_gone"), "FinalizePending", 60).await;
    let raced = world.pair("pi_4", "Expired", "succeeded").await;
    let mut writer = connect(&world.database.url()).await;
    writer.batch_execute("set role reconciler_writer").await.unwrap();

    let report = sweep_with(&world, &world.stripe).await;
    assert_eq!((report.scanned, report.repairable, report.needs_review, report.commands_queued), (4, 3, 1, 3));
    // the webhook of one of them was only late
    let event = json!({"id": "evt_1", "type": "payment_intent.succeeded", "livemode": false, "data": {"object": {"id": "pi_4"}}});
    let Reading::Event(event) = read(event.to_string().as_bytes()).unwrap() else { panic!("one of ours") };
    assert_eq!(receive(&mut writer, &event).await.unwrap().as_str(), "written");
    assert_eq!(receive(&mut writer, &event).await.unwrap(), Outcome::Duplicate);

    let settings = DispatchSettings::from_lookup(&|_| None).unwrap();
    let report = dispatch::run(&writer, &LogSink, &settings, &world.dispatch_tick()).await.unwrap();
    assert_eq!((report.written, report.already_written, report.superseded), (2, 1, 0));
    assert_eq!((report.published, report.failed, report.dead), (1, 0, 0), "the compensation");

    let states = "select external_ref, state from reconciliation.payment order by 1";
    assert_eq!(world.texts(states).await, ["pi_1 paid", "pi_2 failed", "pi_4 paid", "pi_gone finalizing"]);
    let booked = "select intent, what from shop.booking join shop.checkout_payment using (payment_uuid) order by 1";
    assert_eq!(world.texts(booked).await, ["pi_1 succeeded", "pi_2 canceled", "pi_4 succeeded"]);
    let events =
        "select type, payload ->> 'external_ref' from reconciliation.outbox where kind = 'event' order by 2, 1";
    assert_eq!(
        world.texts(events).await,
        ["PaymentCaptured pi_1", "PaymentFailed pi_2", "PaymentCaptured pi_4", "PaymentCompensationRequired pi_gone"]
    );
    let findings =
        "select evidence ->> 'external_ref', kind, coalesce(resolution, 'open') from reconciliation.finding order by 1";
    let expected = [
        "pi_1 missed_success repaired",
        "pi_2 missed_cancel repaired",
        "pi_4 missed_success already_written",
        "pi_gone missing_externally open",
    ];
    assert_eq!(world.texts(findings).await, expected);

    // the complete net finds nothing that the fast one has not, and a person's transition is still a person's
    world.pass(24 * 60);
    for report in world.cycle().await {
        assert_eq!((report.findings_opened, report.commands_queued), (0, 0));
    }
    assert_eq!(world.texts(findings).await, expected);
    let evidence = json!({"external_ref": "pi_4"});
    let refused = transition(&writer, &PaymentId::new(&raced), Transition::ReversePaid, &evidence, None, None).await;
    assert!(bootstrap::chain(&refused.unwrap_err()).contains("belongs to a person"));
}
