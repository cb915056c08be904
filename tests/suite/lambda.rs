//! The real function binary under the Lambda Runtime API.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use lambda_simulator::{InvocationBuilder, Simulator};
use local::sandbox::{self, Sandbox};
use serde_json::{Value, json};

use crate::binaries::{Running, binaries, start};
use crate::world::World;

const PASSWORD: &str = "hush-password";
const KEY: &str = "sk_test_hush_key";

/// A function's process and the Runtime API that it serves.
pub(crate) struct Host {
    simulator: Simulator,
    running: Running,
}

#[derive(Debug)]
pub(crate) enum Ended {
    Answered(Value),
    Failed { error_type: String, message: String },
}

impl Host {
    pub(crate) async fn new(binary: &Path, settings: &[(&str, &str)]) -> Self {
        let simulator = Simulator::builder()
            .function_name("forward-scan")
            .invocation_timeout(Duration::from_secs(60))
            .build()
            .await
            .unwrap();
        let variables: HashMap<String, String> = simulator.lambda_env_vars();
        let environment = variables.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let running = start(binary, &[], environment.chain(settings.iter().copied()));
        Self { simulator, running }
    }

    pub(crate) async fn invoke(&self, payload: Value) -> Ended {
        let id = self.simulator.enqueue_payload(payload).await;
        self.ended(&id).await
    }

    /// The answer to an invocation for whose caller Cognito vouches.
    pub(crate) async fn answer_to(&self, identity: &str, payload: Value) -> Value {
        let identity = json!({"cognitoIdentityId": identity, "cognitoIdentityPoolId": "eu-west-1:pool"}).to_string();
        let invocation = InvocationBuilder::new().payload(payload).cognito_identity(identity).build().unwrap();
        let id = self.simulator.enqueue(invocation).await;
        match self.ended(&id).await {
            Ended::Answered(answer) => answer,
            Ended::Failed { error_type, message } => panic!("{error_type}: {message}"),
        }
    }

    async fn ended(&self, id: &str) -> Ended {
        let state = self.simulator.wait_for_invocation_complete(id, Duration::from_secs(60)).await.unwrap();
        match (state.response, state.error) {
            (Some(response), None) => Ended::Answered(response.payload),
            (_, Some(error)) => Ended::Failed { error_type: error.error_type, message: error.error_message },
            (None, None) => panic!("neither an answer nor an error"),
        }
    }

    pub(crate) async fn answer(&self, payload: Value) -> Value {
        match self.invoke(payload).await {
            Ended::Answered(answer) => answer,
            Ended::Failed { error_type, message } => panic!("{error_type}: {message}"),
        }
    }

    /// Ends the process: what it printed on stdout and stderr.
    pub(crate) fn kill(self) -> (String, String) {
        self.running.kill()
    }

    pub(crate) async fn failure(&self, payload: Value) -> (String, String) {
        match self.invoke(payload).await {
            Ended::Failed { error_type, message } => (error_type, message),
            Ended::Answered(answer) => panic!("answered: {answer}"),
        }
    }
}

fn forward_scan() -> std::path::PathBuf {
    binaries().join("forward-scan")
}

#[tokio::test]
async fn the_real_function_answers_invocations_with_its_report() {
    let world = World::new().await;
    for _ in 0..3 {
        world.owner.execute("insert into payments (order_id, created_at, updated_at) values ('o', now() - interval '2 h', now() - interval '1 h')", &[]).await.unwrap();
    }
    let url = world.database.url();
    let settings = [("DATABASE_URL", url.as_str()), ("STRIPE_API_KEY", KEY), ("STRIPE_API_BASE", "http://127.0.0.1:1")];
    let host = Host::new(&forward_scan(), &settings).await;
    let report = host.answer(json!({})).await;
    assert_eq!(report["function"], "forward-scan");
    assert_eq!(
        (&report["outcome"], &report["scanned"], &report["in_sync"]),
        (&json!("advanced"), &json!(3), &json!(3))
    );
    let report = host.answer(json!({"time": "2026-12-01T00:00:00Z"})).await;
    assert_eq!(report["outcome"], "wrapped", "whatever a schedule sends is a valid payload");

    let (stdout, stderr) = host.kill();
    let ticks: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .filter(|line: &Value| line["message"] == "tick")
        .collect();
    assert_eq!(ticks.len(), 2, "{stdout}{stderr}");
    assert!(ticks[0]["timestamp"].as_str().unwrap().ends_with('Z') && ticks[0]["level"] == "INFO", "{}", ticks[0]);
    assert!(!stdout.contains(KEY) && !stderr.contains(KEY));
}

#[tokio::test]
async fn the_reverse_scan_takes_an_input_and_a_schedules_payload() {
    let world = World::new().await;
    let stripe = Sandbox::start(sandbox::Options::default()).await.unwrap();
    let url = world.database.url();
    let settings = [("DATABASE_URL", url.as_str()), ("STRIPE_API_KEY", KEY), ("STRIPE_API_BASE", &stripe.base_url)];
    let host = Host::new(&binaries().join("reverse-scan"), &settings).await;
    let report = host.answer(json!({"from": "2020-01-01"})).await;
    assert_eq!((&report["function"], &report["outcome"]), (&json!("reverse-scan"), &json!("wrapped")));
    assert_eq!(report["window_from"], "2020-01-01T00:00:00Z");
    let (failed, message) = host.failure(json!({"from": "yesterday"})).await;
    assert!(failed == "InputUnusable" && message.contains("yesterday"), "{failed}: {message}");
    let report = host.answer(json!({"source": "aws.scheduler"})).await;
    assert!(["waiting", "wrapped"].contains(&report["outcome"].as_str().unwrap()), "{report}");
    drop(host.kill());
}

#[tokio::test]
async fn a_panic_is_reported_and_survived() {
    let host = Host::new(&binaries().join("examples/panicking"), &[]).await;
    assert_eq!(host.answer(json!({"n": 1})).await, json!({"n": 1}));
    let (_, message) = host.failure(json!({"panic": true})).await;
    assert!(message.contains("told to panic"), "{message}");
    assert_eq!(host.answer(json!({"n": 2})).await, json!({"n": 2}), "the same process goes on");
}

#[tokio::test]
async fn a_refused_key_and_a_withheld_batch_have_types_of_their_own() {
    for (fault, error_type, words) in [
        (sandbox::Fault::InvalidKey, "StripeKeyRefused", "Stripe refused the key"),
        (sandbox::Fault::WrongMode, "BatchWithheld", "cargo review release --job payments-vs-stripe --revision 0"),
    ] {
        let world = World::new().await;
        let insert = "insert into payments (order_id, stripe_payment_intent_id, status, created_at, updated_at)
                      values ('o', 'pi_1', 'paid', now() - interval '2 h', now() - interval '1 h')";
        world.owner.batch_execute(insert).await.unwrap();
        let stripe = Sandbox::start(sandbox::Options::default()).await.unwrap();
        stripe.with(|account, _| account.add_fault(sandbox::FaultRule::always(fault)));
        let url = world.database.url();
        let settings = [("DATABASE_URL", url.as_str()), ("STRIPE_API_KEY", KEY), ("STRIPE_API_BASE", &stripe.base_url)];
        let host = Host::new(&forward_scan(), &settings).await;
        let (failed, message) = host.failure(json!({})).await;
        assert_eq!(failed, error_type, "{message}");
        assert!(message.contains(words) && !message.contains(KEY), "{message}");
        let (stdout, stderr) = host.running.kill();
        assert!(!stdout.contains("hush") && !stderr.contains("hush"), "{stdout}{stderr}");
    }
}

#[tokio::test]
async fn errors_have_a_type_that_does_not_change_and_show_no_secret() {
    let unreachable = format!("postgres://somebody:{PASSWORD}@127.0.0.1:1/shop");
    let stripe = ("STRIPE_API_BASE", "http://127.0.0.1:1");
    for (settings, error_type, words) in [
        (vec![("DATABASE_URL", unreachable.as_str())], "SettingsUnusable", "STRIPE_API_KEY is missing"),
        (
            vec![("DATABASE_URL", &unreachable), ("STRIPE_API_KEY", KEY), stripe, ("BATCH_SIZE", "many")],
            "SettingsUnusable",
            "BATCH_SIZE",
        ),
        (
            vec![("DATABASE_URL", &unreachable), ("STRIPE_API_KEY", KEY), stripe],
            "DatabaseUnreachable",
            "127.0.0.1:1/shop",
        ),
    ] {
        let host = Host::new(&forward_scan(), &settings).await;
        for _ in 0..2 {
            let (failed, message) = host.failure(json!({})).await;
            assert_eq!(failed, error_type, "{message}");
            assert!(message.contains(words), "{message}");
            assert!(!message.contains(PASSWORD) && !message.contains(KEY), "{message}");
        }
        let (stdout, stderr) = host.kill();
        assert!(stdout.contains("the tick failed"), "{stdout}{stderr}");
        assert!(!stdout.contains("hush") && !stderr.contains("hush"), "{stdout}{stderr}");
    }
}
