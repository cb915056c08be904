//! The causes that the sweep exists for, replayed with an application's worker that takes the money over real HTTP at the
//! sandbox: it dies after sending, its answer is lost, or its lease runs out while it still waits. However it was, the
//! payment ends captured, once.

use std::io::{Read, Write};
use std::net::TcpStream;

use dispatch::sink::LogSink;
use local::sandbox::{Options, PaymentIntentSeed, Sandbox};
use reconciler::config::{DispatchSettings, Secret, StripeSettings};
use reconciler::domain::id::PaymentId;
use reconciler::gateway::StripeClient;
use reconciler::telemetry::Report;
use reconciler::writer::{Transition, WriteOutcome, transition};
use serde_json::json;
use time::Duration;
use tokio_postgres::Client;

use crate::sweep::sweep_with;
use crate::world::{World, connect};

const KEY: &str = "sk_test_causes";

/// A world, the account at Stripe that belongs to it, and one payment that was just sent there.
struct Shop {
    world: World,
    sandbox: Sandbox,
    gateway: StripeClient,
    writer: Client,
    payment: PaymentId,
}

/// The worker's request under way: its connection, on which nobody has read yet.
struct Sent(TcpStream);

impl Shop {
    async fn new() -> Self {
        let world = World::new().await;
        let clock = world.clock.clone();
        let options = Options { clock: std::sync::Arc::new(move || clock.now()), ..Options::default() };
        let sandbox = Sandbox::start(options).await.unwrap();
        let seed = PaymentIntentSeed { id: Some("pi_1".to_owned()), ..PaymentIntentSeed::new(world.now()) };
        sandbox.with(|account, _| account.insert(seed)).unwrap();
        let gateway = StripeClient::new(
            &StripeSettings {
                api_base: sandbox.base_url.clone(),
                account: None,
                connect_timeout: std::time::Duration::from_secs(5),
                request_timeout: std::time::Duration::from_secs(30),
            },
            &Secret::new(KEY),
        );
        let writer = connect(&world.database.url()).await;
        writer.batch_execute("set role reconciler_writer").await.unwrap();
        let payment = PaymentId::new(&world.payment(Some("pi_1"), "finalizing", 0).await);
        Self { gateway: gateway.unwrap(), world, sandbox, writer, payment }
    }

    /// The worker asks Stripe to take the money. When this returns, Stripe has taken it and its answer is on its way.
    async fn send(&self) -> Sent {
        let before = self.sandbox.with(|account, _| account.counters().arrived);
        let address = self.sandbox.base_url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let body = "payment_method=pm_card_visa";
        let length = body.len();
        let request = format!(
            "POST /v1/payment_intents/pi_1/confirm HTTP/1.1\r\nHost: sandbox\r\nAuthorization: Bearer {KEY}\r\n\
             Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        self.sandbox.arrived(before + 1).await;
        Sent(stream)
    }

    /// The worker's own write of what Stripe has told it, by the one write path.
    async fn write(&self) -> WriteOutcome {
        let evidence = json!({"external_ref": "pi_1", "source": "checkout"});
        transition(&self.writer, &self.payment, Transition::Succeeded, &evidence, None, None).await.unwrap()
    }

    async fn sweep(&self) -> Report {
        sweep_with(&self.world, &self.gateway).await
    }

    async fn dispatch(&self) -> dispatch::DispatchReport {
        let settings = DispatchSettings::from_lookup(&|_| None).unwrap();
        dispatch::run(&self.writer, &LogSink, &settings, &self.world.dispatch_tick()).await.unwrap()
    }

    /// Captured, once, however often everybody looks again.
    async fn is_captured_once(&self, resolution: &str, case: &str) {
        for _ in 0..3 {
            self.world.pass(60);
            let report = self.sweep().await;
            assert_eq!((report.scanned, report.findings_opened, report.commands_queued), (0, 0, 0), "{case}");
            assert_eq!(self.dispatch().await.written, 0, "{case}");
        }
        assert_eq!(self.world.texts("select status from payments").await, ["paid"], "{case}");
        assert_eq!(self.world.texts("select entry from payment_ledger").await, ["succeeded"], "{case}");
        let events = "select type from reconciliation.outbox where kind = 'event'";
        assert_eq!(self.world.texts(events).await, ["PaymentCaptured"], "{case}");
        assert_eq!(self.world.findings().await, [format!("missed_success repairable {resolution}")], "{case}");
        let open = "select count(*) from reconciliation.outbox where kind = 'command' and delivered_at is null";
        assert_eq!(self.world.number(open).await, 0, "{case}");
    }
}

impl Sent {
    /// The answer, read to its end.
    fn answer(mut self) -> String {
        let mut answer = String::new();
        self.0.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[tokio::test]
async fn the_worker_died_after_sending() {
    let shop = Shop::new().await;
    drop(shop.send().await);
    assert_eq!(shop.sweep().await.scanned, 0, "not yet a suspect");
    shop.world.pass(11);
    let report = shop.sweep().await;
    assert_eq!((report.scanned, report.repairable, report.commands_queued), (1, 1, 1));
    assert_eq!(shop.dispatch().await.written, 1);
    shop.is_captured_once("repaired", "died").await;
}

#[tokio::test]
async fn the_answer_was_lost_and_the_worker_asks_later() {
    // what the worker reads in the end, and the repair, meet in any order
    for worker_first in [true, false] {
        let shop = Shop::new().await;
        drop(shop.send().await);
        shop.world.pass(11);
        assert_eq!(shop.sweep().await.repairable, 1);
        let (worker, repair) = if worker_first {
            let worker = shop.write().await;
            (worker, shop.dispatch().await)
        } else {
            let repair = shop.dispatch().await;
            (shop.write().await, repair)
        };
        let expected = if worker_first { WriteOutcome::Written } else { WriteOutcome::AlreadyWritten };
        assert_eq!(worker, expected);
        assert_eq!((repair.written, repair.already_written), if worker_first { (0, 1) } else { (1, 0) });
        let resolution = if worker_first { "already_written" } else { "repaired" };
        shop.is_captured_once(resolution, &format!("worker first: {worker_first}")).await;
    }
}

#[tokio::test]
async fn the_lease_ran_out_too_early() {
    for worker_first in [true, false] {
        let shop = Shop::new().await;
        let sent = shop.send().await;
        // the application gives the worker up while the answer is on its way
        shop.world.update("status = 'expired'", "true").await;
        shop.world.pass(11);
        assert_eq!(shop.sweep().await.repairable, 1);
        if !worker_first {
            assert_eq!(shop.dispatch().await.written, 1);
        }
        assert!(sent.answer().contains("\"succeeded\""), "and now the worker reads that it was paid");
        let expected = if worker_first { WriteOutcome::Written } else { WriteOutcome::AlreadyWritten };
        assert_eq!(shop.write().await, expected);
        assert_eq!(shop.dispatch().await.already_written, u64::from(worker_first));
        let resolution = if worker_first { "already_written" } else { "repaired" };
        shop.is_captured_once(resolution, &format!("worker first: {worker_first}")).await;
    }
}

#[tokio::test]
async fn a_declined_card_that_is_tried_again_and_paid_an_hour_later_is_paid_and_no_review() {
    let shop = Shop::new().await;
    let decline = |code: &str| local::sandbox::Decline::Card(code.to_owned());
    shop.sandbox.with(|account, now| account.decline("pi_1", decline("insufficient_funds"), now)).unwrap();
    for _ in 0..6 {
        shop.world.pass(10);
        let report = shop.sweep().await;
        assert_eq!((report.repairable, report.needs_review, report.unverifiable), (0, 0, 0));
        assert_eq!(shop.dispatch().await.claimed, 0);
    }
    assert!(shop.sandbox.with(|account, _| account.counters().arrived) > 0, "it was asked for meanwhile");
    drop(shop.send().await);
    // asked again after half of the time that it had been waiting
    let mut repaired = 0;
    for _ in 0..6 {
        shop.world.pass(10);
        repaired += shop.sweep().await.repairable;
        shop.dispatch().await;
    }
    assert_eq!(repaired, 1);
    shop.is_captured_once("repaired", "declined, then paid").await;
    let age = shop.world.number("select extract(epoch from max(detected_at) - min(created_at))::bigint from reconciliation.finding, payments").await;
    assert!(Duration::seconds(age) > Duration::hours(1), "{age}");
}
