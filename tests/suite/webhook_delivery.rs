//! Webhooks end to end: the sandbox posts, the front turns that into a Function URL's payload, the real receiver commits.

use std::path::PathBuf;
use std::sync::Arc;

use local::function_url::{self, FunctionUrl, HandlerFailed};
use local::sandbox::{
    Delivered, DeliveryRule, Mishap, Options, PaymentIntentSeed, Sandbox, Sending, WebhookEndpoint, WebhookEndpointId,
};
use reconciler::domain::external::ExternalStatus;
use serde_json::Value;

use crate::lambda;
use crate::world::World;

const SECRET: &str = "whsec_hush_new";
const OLD_SECRET: &str = "whsec_hush_old";

fn receiver(world: &World) -> Arc<webhook::Host> {
    let url = world.database.url();
    let lookup = |key: &str| match key {
        "DATABASE_URL" => Some(url.clone()),
        "STRIPE_WEBHOOK_SECRETS" => Some(format!("{OLD_SECRET},{SECRET}")),
        "STRIPE_LIVEMODE" => Some("false".to_owned()),
        _ => None,
    };
    Arc::new(webhook::Host::from_lookup(&lookup).unwrap())
}

/// A world's Stripe that sends webhooks to `front`. Its PaymentIntents are not attempted yet.
async fn stripe(world: &World, front: &FunctionUrl, references: &[&str], rules: &[DeliveryRule]) -> Sandbox {
    let clock = world.clock.clone();
    let options = Options { clock: Arc::new(move || clock.now()), sending: Sending::WhenAsked, ..Options::default() };
    let sandbox = Sandbox::start(options).await.unwrap();
    sandbox.with(|account, now| {
        for reference in references {
            let id = Some((*reference).to_owned());
            account.insert(PaymentIntentSeed { id, ..PaymentIntentSeed::new(now) }).unwrap();
        }
        account.add_webhook_endpoint(WebhookEndpoint::new(&front.base_url, SECRET)).unwrap();
        for rule in rules {
            account.add_delivery_rule(rule.clone());
        }
    });
    sandbox
}

fn move_to(sandbox: &Sandbox, reference: &str, status: &str) {
    sandbox.with(|account, now| account.set_status(reference, ExternalStatus::from_stripe(status), now)).unwrap();
}

/// What the receiver answered, delivery by delivery: `pi_1 200 written`.
fn answers(sandbox: &Sandbox) -> Vec<String> {
    sandbox.with(|account, _| {
        let answers = account.deliveries().map(|entry| match &entry.delivered {
            Delivered::Lost => format!("{} lost", entry.payment_intent),
            Delivered::Answered { status, body } => format!("{} {status} {body}", entry.payment_intent),
            Delivered::Unanswered(error) => format!("{} unanswered: {error}", entry.payment_intent),
        });
        answers.collect()
    })
}

/// State and number of ledger rows of each payment, and the events in the outbox.
async fn effects(world: &World) -> (Vec<String>, Vec<String>) {
    let payments = "select p.stripe_payment_intent_id, p.status, (p.version - 1)::text,
                    (select count(*) from payment_ledger l where l.payment_id = p.id)::text from payments p order by p.id";
    (world.texts(payments).await, world.outbox().await)
}

#[tokio::test]
async fn a_succeeded_event_makes_the_payment_paid() {
    let world = World::new().await;
    world.payment(Some("pi_1"), "pending", 60).await;
    let handler = function_url::webhook(receiver(&world), world.clock.clone());
    let front = FunctionUrl::start(world.clock.clone(), handler).await.unwrap();
    let sandbox = stripe(&world, &front, &["pi_1"], &[]).await;
    move_to(&sandbox, "pi_1", "processing");
    move_to(&sandbox, "pi_1", "succeeded");
    assert_eq!(sandbox.deliver().await, 2);
    assert_eq!(answers(&sandbox), ["pi_1 200 no_transition", "pi_1 200 written"]);
    assert_eq!(effects(&world).await, (vec!["pi_1 paid 1 1".to_owned()], vec!["event PaymentCaptured".to_owned()]));
}

#[tokio::test]
async fn a_lost_event_leaves_the_payment_to_the_scan() {
    let world = World::new().await;
    world.pair("pi_1", "pending", "succeeded").await;
    let handler = function_url::webhook(receiver(&world), world.clock.clone());
    let front = FunctionUrl::start(world.clock.clone(), handler).await.unwrap();
    let sandbox = stripe(&world, &front, &["pi_1"], &[DeliveryRule::always(Mishap::Lose)]).await;
    move_to(&sandbox, "pi_1", "succeeded");
    assert_eq!(sandbox.deliver().await, 0);
    assert_eq!(effects(&world).await, (vec!["pi_1 pending 0 0".to_owned()], vec![]));
    world.cycle().await;
    assert_eq!(world.findings().await, ["missed_success repairable open"]);
    assert_eq!(world.outbox().await, ["command ApplyPaymentSucceeded"]);
}

#[tokio::test]
async fn duplicated_and_reordered_events_change_nothing_twice() {
    let world = World::new().await;
    for reference in ["pi_1", "pi_2", "pi_3"] {
        world.payment(Some(reference), "finalizing", 60).await;
    }
    let handler = function_url::webhook(receiver(&world), world.clock.clone());
    let front = FunctionUrl::start(world.clock.clone(), handler).await.unwrap();
    let rules = [
        DeliveryRule::always(Mishap::Duplicate(2)).for_id("pi_1"),
        DeliveryRule::once(Mishap::HoldBack(3)).for_id("pi_2"),
    ];
    let sandbox = stripe(&world, &front, &["pi_1", "pi_2", "pi_3"], &rules).await;
    for (reference, status) in [
        ("pi_1", "succeeded"),
        ("pi_2", "processing"),
        ("pi_2", "succeeded"),
        ("pi_3", "canceled"),
        ("pi_1", "processing"), // impossible, and so a test of what a late event of an earlier state does
    ] {
        move_to(&sandbox, reference, status);
    }
    sandbox.deliver().await;
    let expected = [
        "pi_1 200 written",
        "pi_1 200 duplicate",
        "pi_1 200 duplicate",
        "pi_2 200 written",
        "pi_3 200 written",
        "pi_1 200 no_transition",
        "pi_2 200 no_transition",
        "pi_1 200 duplicate",
        "pi_1 200 duplicate",
    ];
    assert_eq!(answers(&sandbox), expected);
    let payments = ["pi_1 paid 1 1", "pi_2 paid 1 1", "pi_3 failed 1 1"].map(str::to_owned).to_vec();
    let events = ["event PaymentCaptured", "event PaymentCaptured", "event PaymentFailed"].map(str::to_owned).to_vec();
    assert_eq!(effects(&world).await, (payments, events));
}

#[tokio::test]
async fn an_event_that_could_not_be_committed_comes_again() {
    let world = World::new().await;
    world.payment(Some("pi_1"), "pending", 60).await;
    let handler = function_url::webhook(receiver(&world), world.clock.clone());
    let front = FunctionUrl::start(world.clock.clone(), handler).await.unwrap();
    let sandbox = stripe(&world, &front, &["pi_1"], &[]).await;
    world.owner.batch_execute("alter table payment_ledger rename to elsewhere").await.unwrap();
    move_to(&sandbox, "pi_1", "succeeded");
    assert_eq!(sandbox.deliver().await, 1);
    world.owner.batch_execute("alter table elsewhere rename to payment_ledger").await.unwrap();
    assert_eq!(effects(&world).await, (vec!["pi_1 pending 0 0".to_owned()], vec![]));
    assert_eq!(sandbox.deliver().await, 0, "not at once");
    world.pass(1);
    assert_eq!(sandbox.deliver().await, 1);
    assert_eq!(answers(&sandbox), ["pi_1 503 not committed: send it again", "pi_1 200 written"]);
    assert_eq!(effects(&world).await.0, ["pi_1 paid 1 1"]);
}

#[tokio::test]
async fn a_forged_event_changes_nothing_and_a_rolled_secret_is_taken() {
    let world = World::new().await;
    for reference in ["pi_1", "pi_2"] {
        world.payment(Some(reference), "pending", 60).await;
    }
    let handler = function_url::webhook(receiver(&world), world.clock.clone());
    let front = FunctionUrl::start(world.clock.clone(), handler).await.unwrap();
    let forged = DeliveryRule::always(Mishap::WrongSignature).for_id("pi_1");
    let sandbox = stripe(&world, &front, &["pi_1", "pi_2"], &[forged]).await;
    sandbox
        .with(|account, _| account.set_webhook_secrets(WebhookEndpointId(1), &["whsec_newest", OLD_SECRET]))
        .unwrap();
    move_to(&sandbox, "pi_1", "succeeded");
    move_to(&sandbox, "pi_2", "succeeded");
    sandbox.deliver().await;
    assert_eq!(answers(&sandbox), ["pi_1 400 signature refused", "pi_2 200 written"]);
    assert_eq!(effects(&world).await.0, ["pi_1 pending 0 0", "pi_2 paid 1 1"]);
}

#[tokio::test]
async fn the_real_binary_stands_behind_the_same_front() {
    let world = World::new().await;
    world.payment(Some("pi_1"), "pending", 60).await;
    let url = world.database.url();
    let settings = [("DATABASE_URL", url.as_str()), ("STRIPE_WEBHOOK_SECRETS", SECRET), ("STRIPE_LIVEMODE", "false")];
    let binary: PathBuf = crate::binaries::binaries().join("webhook");
    let function = Arc::new(lambda::Host::new(&binary, &settings).await);
    let handler = move |payload: Value| {
        let function = Arc::clone(&function);
        async move { Ok::<_, HandlerFailed>(function.answer(payload).await) }
    };
    // the binary goes by the machine's clock, and so does its Stripe
    let front = FunctionUrl::start(reconciler::clock::Clock::System, handler).await.unwrap();
    let sandbox = Sandbox::start(Options { sending: Sending::WhenAsked, ..Options::default() }).await.unwrap();
    sandbox.with(|account, now| {
        account.insert(PaymentIntentSeed { id: Some("pi_1".to_owned()), ..PaymentIntentSeed::new(now) }).unwrap();
        account.add_webhook_endpoint(WebhookEndpoint::new(&front.base_url, SECRET)).unwrap();
        account.add_delivery_rule(DeliveryRule::once(Mishap::Duplicate(1)));
    });
    move_to(&sandbox, "pi_1", "succeeded");
    assert_eq!(sandbox.deliver().await, 2);
    assert_eq!(answers(&sandbox), ["pi_1 200 written", "pi_1 200 duplicate"]);
    assert_eq!(effects(&world).await.0, ["pi_1 paid 1 1"]);
}
