//! Secrets from AWS Secrets Manager: the real functions against moto and a real Postgres that asks for a password, and the
//! pieces against a server that refuses at will.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bootstrap::secrets::{SecretError, StoredSecret, webhook_secrets};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use local::moto::Moto;
use local::postgres::{Cluster, ClusterOptions, Settings, environment, own_cluster};
use local::sandbox::{Grant, PaymentIntentSeed, Sandbox};
use reconciler::clock::Clock;
use reconciler::config::{Secret, SecretArn};
use serde_json::{Value, json};
use time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_postgres::Config;
use webhook::endpoint::Endpoint;
use webhook::signature::SignatureError;

use crate::binaries::{binaries, start};
use crate::eventbridge::moto;
use crate::lambda::Host;
use crate::webhook::{delivery, event, signed};
use crate::world::{Adapter, START, World};

const LOGIN: &str = "shop_login";
/// Every sign that has a meaning in a URL, in SQL, in JSON or in a shell.
const PASSWORD: &str = r#"hush p@ss:w/o#r?d%41&'é"\$;{}"#;
const NEW_PASSWORD: &str = r#"hush %40new'"\pass=word"#;
const KEY: &str = "rk_test_hush_1";
const NEW_KEY: &str = "rk_test_hush_2";
const SIGNING: &str = "whsec_hush_1";
const NEW_SIGNING: &str = "whsec_hush_2";

/// moto, a world whose Postgres asks [`LOGIN`] for its password, and a Stripe.
struct Shop {
    moto: Moto,
    world: World,
    cluster: Cluster,
    stripe: Sandbox,
    endpoint: String,
}

impl Shop {
    /// `None` where moto is not to be had, and nobody insists.
    async fn open() -> Option<Self> {
        let moto = moto().await?;
        let options = ClusterOptions { password_of: Some(LOGIN), ..ClusterOptions::default() };
        let cluster = own_cluster(Settings::from_lookup(&environment, None).unwrap(), options).await.unwrap();
        let world = World::on(&cluster, Adapter::Default).await;
        let create = format!("create role {LOGIN} login in role reconciler_scan, reconciler_writer");
        world.owner.batch_execute(&create).await.unwrap();
        world.payment(Some("pi_1"), "paid", 300).await;
        let stripe = Sandbox::start(local::sandbox::Options::default()).await.unwrap();
        let seed = |now| PaymentIntentSeed { id: Some("pi_1".to_owned()), ..PaymentIntentSeed::new(now) };
        stripe.with(|account, now| account.insert(seed(now)).unwrap());
        let endpoint = moto.url();
        let shop = Self { moto, world, cluster, stripe, endpoint };
        shop.set_password(PASSWORD).await;
        Some(shop)
    }

    async fn set_password(&self, password: &str) {
        let quoted = password.replace('\'', "''");
        let alter = format!("alter role {LOGIN} password '{quoted}'");
        self.world.owner.batch_execute(&alter).await.unwrap();
    }

    /// Ends the sessions of the login, and comes back when they are gone.
    async fn end_sessions(&self) {
        let end = "select pg_terminate_backend(pid, 60000) from pg_stat_activity where usename = $1";
        let ended = self.world.owner.query(end, &[&LOGIN]).await.unwrap();
        assert!(!ended.is_empty() && ended.iter().all(|row| row.get::<_, bool>(0)));
    }

    /// A new secret; its ARN. Without a text it has no value yet.
    async fn secret(&self, name: &str, text: Option<&str>) -> String {
        let input = match text {
            Some(text) => json!({"Name": name, "SecretString": text}),
            None => json!({"Name": name}),
        };
        let created = self.moto.call("secretsmanager", "secretsmanager.CreateSecret", &input).await.unwrap();
        created["ARN"].as_str().unwrap().to_owned()
    }

    async fn put(&self, arn: &str, text: &str) {
        let input = json!({"SecretId": arn, "SecretString": text});
        self.moto.call("secretsmanager", "secretsmanager.PutSecretValue", &input).await.unwrap();
    }

    fn place(&self) -> (String, String) {
        let config: Config = self.world.database.url().parse().unwrap();
        (self.cluster.directory().unwrap().display().to_string(), config.get_dbname().unwrap().to_owned())
    }

    /// The standard shape.
    fn login(&self, password: &str, port: &Value) -> String {
        let (host, name) = self.place();
        json!({"engine": "postgres", "host": host, "username": LOGIN, "password": password, "dbname": name, "port": port})
            .to_string()
    }

    /// A function with these settings and those of AWS.
    async fn host(&self, function: &str, settings: &[(&str, &str)]) -> Host {
        let aws = [
            ("AWS_ENDPOINT_URL", self.endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", "none"),
            ("AWS_SECRET_ACCESS_KEY", "hush-aws"),
            ("STRIPE_API_BASE", &self.stripe.base_url),
            ("STRIPE_LIVEMODE", "true"),
            ("MIN_CYCLE_SECONDS", "0"),
        ];
        Host::new(&binaries().join(function), &[&aws, settings].concat()).await
    }
}

/// Ends a function that has said no secret; what it logged.
fn quiet(host: Host) -> String {
    let (stdout, stderr) = host.kill();
    assert!(!stdout.contains("hush") && !stderr.contains("hush"), "{stdout}{stderr}");
    stdout
}

fn managed(password: &str) -> String {
    json!({"username": LOGIN, "password": password}).to_string()
}

fn webhook_delivery(id: &str, secret: &str) -> Value {
    let body = event(id, "payment_intent.succeeded", "pi_1").to_string();
    delivery(&body, &signed(&body, secret, Clock::System.now()))
}

#[tokio::test]
async fn every_function_takes_its_secrets_in_every_shape() {
    let Some(shop) = Shop::open().await else { return };
    let (host, name) = shop.place();
    let number = shop.secret("number", Some(&shop.login(PASSWORD, &json!(5432)))).await;
    let text = shop.secret("text", Some(&shop.login(PASSWORD, &json!("5432")))).await;
    let elsewhere = shop.secret("elsewhere", Some(&shop.login(PASSWORD, &json!(1)))).await;
    let managed = shop.secret("managed", Some(&managed(PASSWORD))).await;
    let key = shop.secret("key", Some(KEY)).await;
    let member = shop.secret("member", Some(&json!({"STRIPE_API_KEY": KEY}).to_string())).await;
    let place = [("DATABASE_HOST", host.as_str()), ("DATABASE_NAME", &name)];
    let port = [("DATABASE_PORT", "5432")];
    for (function, login, key, further) in [
        ("forward-scan", &number, &key, &[][..]),
        ("sweep", &text, &member, &[]),
        ("reverse-scan", &managed, &key, &place),
        ("dispatch", &elsewhere, &key, &port),
    ] {
        let secrets = [("DATABASE_SECRET_ARN", login.as_str()), ("STRIPE_SECRET_ARN", key)];
        let host = shop.host(function, &[&secrets, further].concat()).await;
        assert_eq!(host.answer(json!({})).await["function"], function);
        assert_eq!(host.answer(json!({})).await["function"], function);
        let log = quiet(host);
        let fetched = if function == "dispatch" { 1 } else { 2 };
        assert_eq!(log.matches("the secret was fetched").count(), fetched, "once each: {log}");
    }
    let list = shop.secret("list", Some(&format!("whsec_hush_0,{SIGNING}"))).await;
    let settings = [("DATABASE_SECRET_ARN", managed.as_str()), ("WEBHOOK_SECRETS_ARN", &list)];
    let host = shop.host("webhook", &[&settings[..], &place].concat()).await;
    let answer = host.answer(webhook_delivery("evt_1", SIGNING)).await;
    assert_eq!((&answer["statusCode"], &answer["body"]), (&json!(200), &json!("already_written")), "{answer}");
    assert_eq!(host.answer(webhook_delivery("evt_2", "whsec_other")).await["statusCode"], 400);
    quiet(host);
}

#[tokio::test]
async fn a_rotated_password_is_picked_up_without_a_failed_tick() {
    let Some(shop) = Shop::open().await else { return };
    let login = shop.secret("login", Some(&shop.login(PASSWORD, &json!(5432)))).await;
    let settings = [("DATABASE_SECRET_ARN", login.as_str()), ("STRIPE_API_KEY", KEY)];
    let host = shop.host("forward-scan", &settings).await;
    host.answer(json!({})).await;

    shop.set_password(NEW_PASSWORD).await;
    host.answer(json!({})).await; // its session is open
    shop.put(&login, &shop.login(NEW_PASSWORD, &json!(5432))).await;
    shop.end_sessions().await;
    host.answer(json!({})).await;

    // a password that the secret does not have
    shop.set_password(PASSWORD).await;
    shop.end_sessions().await;
    for _ in 0..2 {
        let (failed, message) = host.failure(json!({})).await;
        assert_eq!(failed, "DatabaseUnreachable", "{message}");
        assert!(
            message.contains("DATABASE_SECRET_ARN") && message.contains("password authentication failed"),
            "{message}"
        );
    }
    shop.put(&login, &shop.login(PASSWORD, &json!(5432))).await;
    host.answer(json!({})).await;
    let log = quiet(host);
    assert_eq!(log.matches("Postgres refused the login; trying").count(), 2, "{log}");
}

#[tokio::test]
async fn a_login_that_gave_way_to_another_is_picked_up_without_a_failed_tick() {
    let Some(shop) = Shop::open().await else { return };
    let login = shop.secret("login", Some(&shop.login(PASSWORD, &json!(5432)))).await;
    let host = shop.host("forward-scan", &[("DATABASE_SECRET_ARN", &login), ("STRIPE_API_KEY", KEY)]).await;
    host.answer(json!({})).await;

    // as a rotation between two users does it: the next one's secret is there before the old one may not log in any more, which
    // Postgres says with 28000 and not with 28P01
    const NEXT: &str = "shop_login_next";
    let quoted = NEW_PASSWORD.replace('\'', "''");
    let create = format!("create role {NEXT} login password '{quoted}' in role reconciler_scan, reconciler_writer");
    shop.world.owner.batch_execute(&create).await.unwrap();
    shop.put(&login, &shop.login(NEW_PASSWORD, &json!(5432)).replace(LOGIN, NEXT)).await;
    shop.world.owner.batch_execute(&format!("alter role {LOGIN} nologin")).await.unwrap();
    shop.end_sessions().await;
    host.answer(json!({})).await;
    let log = quiet(host);
    assert_eq!(log.matches("Postgres refused the login; trying").count(), 1, "{log}");
}

#[tokio::test]
async fn a_rotated_key_is_picked_up_in_the_same_tick() {
    let Some(shop) = Shop::open().await else { return };
    let key = shop.secret("key", Some(KEY)).await;
    let url = shop.world.database.url();
    let settings = [("DATABASE_URL", url.as_str()), ("STRIPE_SECRET_ARN", &key)];
    let host = shop.host("forward-scan", &settings).await;
    assert_eq!(host.answer(json!({})).await["scanned"], 1);
    assert_eq!(host.answer(json!({})).await["outcome"], "wrapped"); // the next one asks Stripe again
    shop.stripe.with(|account, _| account.set_key(KEY, Grant::Expired));
    for _ in 0..2 {
        let (failed, message) = host.failure(json!({})).await;
        assert!(failed == "StripeKeyRefused" && message.contains("STRIPE_SECRET_ARN"), "{failed}: {message}");
    }
    shop.put(&key, &json!({"STRIPE_API_KEY": NEW_KEY}).to_string()).await;
    let report = host.answer(json!({})).await;
    assert_eq!((&report["scanned"], &report["unverifiable"]), (&json!(1), &json!(0)), "{report}");
    assert_eq!(host.answer(json!({})).await["outcome"], "wrapped");

    shop.put(&key, "nothing of a key: hush").await;
    shop.stripe.with(|account, _| account.set_key(NEW_KEY, Grant::Expired));
    assert_eq!(host.failure(json!({})).await.0, "StripeKeyRefused", "the first cause is the answer");
    let log = quiet(host);
    assert!(log.contains("another could not be had") && log.contains("has to start with rk_live_"), "{log}");
}

#[tokio::test]
async fn a_secret_that_cannot_be_had_is_the_answer_and_the_next_invocation_tries_again() {
    let Some(shop) = Shop::open().await else { return };
    let login = shop.secret("login", None).await;
    let host = shop.host("forward-scan", &[("DATABASE_SECRET_ARN", &login), ("STRIPE_API_KEY", KEY)]).await;
    for _ in 0..2 {
        let (failed, message) = host.failure(json!({})).await;
        assert_eq!(failed, "SecretUnavailable", "{message}");
        let told = ["DATABASE_SECRET_ARN", &login, "ResourceNotFoundException"].map(|word| message.contains(word));
        assert_eq!(told, [true; 3], "{message}");
    }
    for (text, words) in [
        ("hush".to_owned(), "it has to be a JSON object with username and password"),
        (managed(PASSWORD), "it has no host, and DATABASE_HOST is not set"),
    ] {
        shop.put(&login, &text).await;
        let (failed, message) = host.failure(json!({})).await;
        assert!(failed == "SecretUnusable" && message.contains(words), "{failed}: {message}");
    }
    shop.put(&login, &shop.login(PASSWORD, &json!(5432))).await;
    host.answer(json!({})).await;
    quiet(host);

    let missing = login.replace("login", "missing");
    for (function, secrets) in [
        ("sweep", [("DATABASE_URL", "postgres://u@127.0.0.1:1/x"), ("STRIPE_SECRET_ARN", missing.as_str())]),
        ("dispatch", [("DATABASE_SECRET_ARN", &missing), ("STRIPE_API_KEY", KEY)]),
        ("lag-metric", [("DATABASE_SECRET_ARN", &missing), ("STRIPE_API_KEY", KEY)]),
        ("migrate", [("DATABASE_SECRET_ARN", &missing), ("STRIPE_API_KEY", KEY)]),
    ] {
        let host = shop.host(function, &secrets).await;
        let (failed, message) = host.failure(json!({"mode": "check"})).await;
        let expected = if function == "sweep" { "DatabaseUnreachable" } else { "SecretUnavailable" };
        assert_eq!(failed, expected, "{message}");
        quiet(host);
    }
    let url = shop.world.database.url();
    let host = shop.host("webhook", &[("DATABASE_URL", &url), ("WEBHOOK_SECRETS_ARN", &missing)]).await;
    assert_eq!(host.answer(webhook_delivery("evt_1", SIGNING)).await["statusCode"], 503, "Stripe sends it again");
    let log = quiet(host);
    assert!(log.contains("SecretUnavailable"), "{log}");
}

#[tokio::test]
async fn a_run_from_cron_says_which_secret_it_lacks() {
    let arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db";
    let nobody = [
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
        ("AWS_ACCESS_KEY_ID", "none"),
        ("AWS_SECRET_ACCESS_KEY", "hush-aws"),
        ("STRIPE_API_KEY", KEY),
        ("DATABASE_SECRET_ARN", arn),
    ];
    for (further, code, words) in [
        (("HOME", "/nowhere"), 1, "could not read the secret arn:aws:secretsmanager:eu-west-1:123456789012:secret:db"),
        (
            ("DATABASE_URL", "postgres://u:hush@127.0.0.1:1/x"),
            2,
            "DATABASE_URL is not usable: either it or DATABASE_SECRET_ARN",
        ),
        (("STRIPE_SECRET_ARN", arn), 2, "STRIPE_API_KEY is not usable: either it or STRIPE_SECRET_ARN"),
    ] {
        let settings = nobody.iter().copied().chain([further]);
        let (ended, stdout, stderr) = start(&binaries().join("tick"), &["forward-scan"], settings).ended().await;
        assert_eq!(ended, code, "{stderr}");
        assert!(stderr.contains(words) && !format!("{stdout}{stderr}").contains("hush"), "{stderr}");
    }
}

/// A Secrets Manager of the test's own: one answer for all, and how often it was asked.
struct Manager {
    url: String,
    state: Arc<Mutex<(u16, Value, usize)>>,
    _serving: JoinSet<()>,
}

impl Manager {
    async fn start(status: u16, answer: Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new((status, answer, 0)));
        let mut serving = JoinSet::new();
        let shared = Arc::clone(&state);
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let state = Arc::clone(&shared);
                let service = service_fn(move |request| answer_with(Arc::clone(&state), request));
                let http = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                // a client that gives up breaks its connection off
                connections.spawn(async move { drop(http.await) });
            }
        });
        Self { url, state, _serving: serving }
    }

    async fn holding(secret: &str) -> Self {
        Self::start(200, json!({"SecretString": secret})).await
    }

    fn hold(&self, secret: &str) {
        let mut state = self.state.lock().unwrap();
        (state.0, state.1) = (200, json!({"SecretString": secret}));
    }

    fn refuse(&self) {
        let mut state = self.state.lock().unwrap();
        (state.0, state.1) = (400, json!({"__type": "AccessDeniedException", "Message": "is not authorized"}));
    }

    fn asked(&self) -> usize {
        self.state.lock().unwrap().2
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::stored(StoredSecret::new(&arn(), webhook_secrets).played_at(&self.url), true)
    }
}

async fn answer_with(
    state: Arc<Mutex<(u16, Value, usize)>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(request.headers()["x-amz-target"], "secretsmanager.GetSecretValue");
    let body: Value = serde_json::from_slice(&request.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(body["SecretId"], arn().as_str());
    let (status, answer) = {
        let mut state = state.lock().unwrap();
        state.2 += 1;
        (state.0, state.1.to_string())
    };
    let response = Response::builder().status(status).header("content-type", "application/x-amz-json-1.1");
    Ok(response.body(Full::new(Bytes::from(answer))).unwrap())
}

fn arn() -> SecretArn {
    let arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:signing";
    SecretArn::parse("WEBHOOK_SECRETS_ARN", arn).unwrap()
}

#[tokio::test]
async fn rolled_signing_secrets_are_picked_up_and_bad_signatures_ask_once_a_minute() {
    let manager = Manager::holding(SIGNING).await;
    let endpoint = manager.endpoint();
    let verified = async |secret: &str, seconds: i64| {
        let now = START + Duration::seconds(seconds);
        endpoint.verify(&signed("body", secret, now), b"body", now).await
    };
    for header in ["", "t=1,v1=00", "v1=00"] {
        assert!(endpoint.verify(header, b"body", START).await.unwrap().is_err());
    }
    assert_eq!(manager.asked(), 0, "no secret would make these good");
    assert_eq!(verified(SIGNING, 0).await, Ok(Ok(())));
    for second in 1..60 {
        assert_eq!(verified("whsec_other", second).await, Ok(Err(SignatureError::NoMatch)));
    }
    assert_eq!(manager.asked(), 1);
    manager.hold(&format!("{SIGNING},{NEW_SIGNING}"));
    assert_eq!(verified(NEW_SIGNING, 59).await, Ok(Err(SignatureError::NoMatch)), "Stripe sends it again");
    assert_eq!(verified(NEW_SIGNING, 60).await, Ok(Ok(())));
    assert_eq!(verified(SIGNING, 60).await, Ok(Ok(())));
    for second in 61..600 {
        assert_eq!(verified("whsec_other", second).await, Ok(Err(SignatureError::NoMatch)));
    }
    assert_eq!(manager.asked(), 2 + 8, "at 60, and at 120, 180, … 540");

    manager.refuse();
    assert!(matches!(verified("whsec_other", 600).await, Err(SecretError::Unavailable { .. })), "nobody can say");
    assert_eq!(verified(NEW_SIGNING, 600).await, Ok(Ok(())), "what was kept stays");
    assert_eq!(verified("whsec_other", 659).await, Ok(Err(SignatureError::NoMatch)));
    assert_eq!(manager.asked(), 11);
}

#[tokio::test]
async fn what_aws_refuses_or_holds_is_told_without_the_secret() {
    let manager = Manager::start(200, json!({"SecretBinary": "aHVzaA=="})).await;
    let secret = |url: &str| StoredSecret::new(&arn(), |text| Ok(Secret::new(text))).played_at(url);
    let kept = secret(&manager.url);
    let bytes = kept.get().await.unwrap_err();
    assert!(matches!(&bytes, SecretError::Malformed { expected, .. } if expected.contains("text")), "{bytes}");
    manager.refuse();
    let denied = kept.get().await.unwrap_err();
    assert!(denied.to_string().contains("AccessDeniedException: is not authorized"), "{denied}");
    assert_eq!(denied.error_type(), "SecretUnavailable");
    manager.state.lock().unwrap().1 = json!("hush, and not what an answer looks like");
    let nonsense = kept.get().await.unwrap_err();
    manager.hold("hush");
    assert_eq!(kept.get().await.unwrap(), Secret::new("hush"), "what failed is not kept");
    let asked = manager.asked();
    assert_eq!((kept.get().await.unwrap(), manager.asked()), (Secret::new("hush"), asked), "what was fetched is");
    let down = secret("http://127.0.0.1:1").get().await.unwrap_err();
    for error in [bytes, denied, nonsense, down] {
        let words = format!("{error} {error:?} {kept:?}");
        assert!(words.contains("WEBHOOK_SECRETS_ARN") && words.contains(arn().as_str()), "{words}");
        assert!(!words.contains("hush") && !words.contains("aHVz"), "{words}");
    }
}
