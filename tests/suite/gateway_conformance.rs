//! What every [`Gateway`] has to do, whatever is behind it: the same cases for the client over HTTP and for the fake.
//!
//! A world is given as a [`Stage`]. To add one: implement `Stage` for it and call [`conforms`] in a test. It has to be
//! without rate limits of its own, the gateway's key has to be one of test mode, and nobody else may change it meanwhile.
//! The cases share one world; each has its own ids and its own hour of `created`.

use std::collections::BTreeMap;

use local::fake::{FakeStripe, Fault};
use local::sandbox::{self, FaultRule, PaymentIntentSeed, Sandbox};
use reconciler::config::{Secret, StripeSettings};
use reconciler::domain::Timestamp;
use reconciler::domain::external::{Decline, External, ExternalPayment, ExternalStatus};
use reconciler::domain::id::ExternalRef;
use reconciler::gateway::{
    Flaw, Gateway, GatewayError, ListPage, ListQuery, PAGE_MAX, RateLimitReason, Remedy, StripeClient, TransientCause,
};
use time::Duration;

/// A PaymentIntent to be put into the world, in test mode.
#[derive(Clone, Debug)]
pub(crate) struct Seed {
    pub(crate) id: ExternalRef,
    pub(crate) status: ExternalStatus,
    /// Whole seconds.
    pub(crate) created: Timestamp,
    pub(crate) metadata: BTreeMap<String, String>,
    /// The `decline_code` of a last attempt that failed, with a charge made at `created`. The status is then
    /// `requires_payment_method`.
    pub(crate) declined: Option<&'static str>,
}

/// What the next request gets in place of its answer. The one after that is answered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextAnswer {
    /// 429 with `Stripe-Rate-Limited-Reason: endpoint-rate`.
    RateLimited,
    /// 429 with `code: lock_timeout` and without that header.
    LockTimeout,
    /// 500.
    ServerError,
    /// 200 with a page of HTML.
    Html,
    /// The connection ends without an answer.
    Dropped,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
}

impl NextAnswer {
    const ALL: [Self; 7] = [
        Self::RateLimited,
        Self::LockTimeout,
        Self::ServerError,
        Self::Html,
        Self::Dropped,
        Self::Unauthorized,
        Self::Forbidden,
    ];
}

/// A world and the gateway that looks at it.
pub(crate) trait Stage {
    /// The gateway under test.
    fn gateway(&self) -> &impl Gateway;
    /// Puts a PaymentIntent of a new id into the world; of two in the same second, the later one is the newer.
    async fn put(&self, seed: &Seed);
    /// Puts one into live mode, created an hour after [`EPOCH`].
    async fn put_in_other_mode(&self, id: &ExternalRef);
    /// Changes the status of one that is there.
    async fn set_status(&self, id: &ExternalRef, status: ExternalStatus);
    /// From now on there is none of this id.
    async fn remove(&self, id: &ExternalRef);
    /// What the next request gets.
    async fn next_answer(&self, answer: NextAnswer);
}

/// Every case counts its hours from here.
pub(crate) const EPOCH: Timestamp = Timestamp::UNIX_EPOCH.saturating_add(Duration::seconds(1_780_000_000));

/// Runs every case; panics at the first that fails.
pub(crate) async fn conforms(stage: &impl Stage) {
    every_status_is_read_by_retrieve_and_by_list(stage).await;
    the_other_mode_is_absence_of_a_kind_and_on_no_page(stage).await;
    a_decline_comes_with_its_code_and_its_time(stage).await;
    metadata_is_read(stage).await;
    what_is_not_there_is_not_found(stage).await;
    a_change_is_seen_at_once(stage).await;
    a_window_is_half_open(stage).await;
    pages_give_every_object_once_and_newest_first(stage).await;
    what_is_put_in_while_paging_disturbs_no_page(stage).await;
    a_cursor_that_is_gone_or_outside_of_the_window_is_refused(stage).await;
    an_empty_window_is_complete(stage).await;
    no_answer_is_never_a_fact(stage).await;
}

async fn every_status_is_read_by_retrieve_and_by_list(stage: &impl Stage) {
    let unknown = ExternalStatus::Unknown("partially_funded".to_owned());
    for (number, status) in (0..).zip(ExternalStatus::KNOWN.into_iter().chain([unknown])) {
        let created = hour(0) + Duration::seconds(number);
        let seed = Seed { status: status.clone(), ..seed(&format!("pi_status_{number}"), created) };
        stage.put(&seed).await;
        let payment = retrieved(stage, &seed.id).await;
        assert_eq!((&payment.id, &payment.status, payment.created), (&seed.id, &status, created));
        assert_eq!((payment.livemode, payment.decline.is_some()), (false, false), "{payment:?}");
        assert!(payment.amount_minor > 0 && payment.currency.len() == 3, "{payment:?}");
        assert_eq!(listed(stage, &within(created, 1)).await.payments, [payment]);
    }
}

async fn the_other_mode_is_absence_of_a_kind_and_on_no_page(stage: &impl Stage) {
    let other = id("pi_other_mode");
    stage.put_in_other_mode(&other).await;
    assert_eq!(retrieve(stage, &other).await.unwrap(), External::NotFound { other_mode: true });
    assert_eq!(listed(stage, &within(hour(1), 3600)).await.payments, []);
}

async fn a_decline_comes_with_its_code_and_its_time(stage: &impl Stage) {
    let seed = Seed { declined: Some("insufficient_funds"), ..seed("pi_declined", hour(2)) };
    stage.put(&seed).await;
    let payment = retrieved(stage, &seed.id).await;
    assert_eq!(payment.status, ExternalStatus::RequiresPaymentMethod);
    let decline = Decline { code: Some("insufficient_funds".to_owned()), charged_at: Some(hour(2)) };
    assert_eq!(payment.decline, Some(decline));
    assert_eq!(listed(stage, &within(hour(2), 1)).await.payments, [payment]);
}

async fn metadata_is_read(stage: &impl Stage) {
    let metadata = BTreeMap::from([("order_id".into(), "6735".into()), ("Grüße \"&\"".into(), "…\n".into())]);
    let seed = Seed { metadata: metadata.clone(), ..seed("pi_metadata", hour(3)) };
    stage.put(&seed).await;
    assert_eq!(retrieved(stage, &seed.id).await.metadata, metadata);
    assert_eq!(listed(stage, &within(hour(3), 1)).await.payments[0].metadata, metadata);
}

async fn what_is_not_there_is_not_found(stage: &impl Stage) {
    let absent = External::NotFound { other_mode: false };
    assert_eq!(retrieve(stage, &id("pi_never")).await.unwrap(), absent);
    let seed = seed("pi_removed", hour(4));
    stage.put(&seed).await;
    retrieved(stage, &seed.id).await;
    stage.remove(&seed.id).await;
    assert_eq!(retrieve(stage, &seed.id).await.unwrap(), absent);
    assert_eq!(listed(stage, &within(hour(4), 3600)).await.payments, []);
}

async fn a_change_is_seen_at_once(stage: &impl Stage) {
    let seed = Seed { status: ExternalStatus::Processing, ..seed("pi_changed", hour(5)) };
    stage.put(&seed).await;
    assert_eq!(retrieved(stage, &seed.id).await.status, ExternalStatus::Processing);
    stage.set_status(&seed.id, ExternalStatus::Succeeded).await;
    let payment = retrieved(stage, &seed.id).await;
    assert_eq!(payment.status, ExternalStatus::Succeeded);
    assert_eq!(listed(stage, &within(hour(5), 1)).await.payments, [payment]);
}

async fn a_window_is_half_open(stage: &impl Stage) {
    for second in [9, 10, 11, 19, 20, 21] {
        stage.put(&seed(&format!("pi_window_{second}"), hour(6) + Duration::seconds(second))).await;
    }
    let ten = hour(6) + Duration::seconds(10);
    assert_eq!(names(&listed(stage, &within(ten, 10)).await), ["pi_window_19", "pi_window_11", "pi_window_10"]);
    assert_eq!(names(&listed(stage, &within(ten, 0)).await), [""; 0]);
    // each bound by itself: everything before this case's hour is older, and nothing here is newer than its last
    let from = ListQuery { created_before: None, ..within(ten + Duration::seconds(11), 0) };
    assert_eq!(names(&listed(stage, &from).await), ["pi_window_21"]);
    let before = ListQuery { created_from: None, limit: 2, ..within(ten, 0) };
    assert_eq!(names(&listed(stage, &before).await)[0], "pi_window_9");
}

async fn pages_give_every_object_once_and_newest_first(stage: &impl Stage) {
    // five in each second, so that every page of ten and of seven begins or ends among equals
    for number in 0..30 {
        stage.put(&seed(&format!("pi_page_{number}"), hour(7) + Duration::seconds(number / 5))).await;
    }
    let window = within(hour(7), 3600);
    let all = names(&listed(stage, &window).await);
    let newest_first: Vec<String> = (0..30).rev().map(|number| format!("pi_page_{number}")).collect();
    assert_eq!(all, newest_first);
    for (limit, pages) in [(10, 3), (7, 5), (29, 2), (30, 1), (1, 30)] {
        let mut walked = Vec::new();
        let mut query = ListQuery { limit, ..window.clone() };
        for number in 1..=pages {
            let page = listed(stage, &query).await;
            walked.extend(names(&page));
            // the last page is known by this alone, also where it is full
            assert_eq!(page.has_more(), number < pages, "page {number} of {pages}");
            query.starting_after = page.next;
        }
        assert_eq!(walked, all, "in pages of {limit}");
    }
}

async fn what_is_put_in_while_paging_disturbs_no_page(stage: &impl Stage) {
    for number in 0..4 {
        stage.put(&seed(&format!("pi_stable_{number}"), hour(8) + Duration::seconds(number))).await;
    }
    let first = ListQuery { limit: 2, ..within(hour(8), 3600) };
    let page = listed(stage, &first).await;
    assert_eq!(names(&page), ["pi_stable_3", "pi_stable_2"]);
    stage.put(&seed("pi_stable_new", hour(8) + Duration::seconds(9))).await;
    let second = ListQuery { starting_after: page.next, ..first };
    assert_eq!(names(&listed(stage, &second).await), ["pi_stable_1", "pi_stable_0"]);
}

async fn a_cursor_that_is_gone_or_outside_of_the_window_is_refused(stage: &impl Stage) {
    for name in ["pi_cursor_old", "pi_cursor_gone"] {
        stage.put(&seed(name, hour(9))).await;
    }
    stage.remove(&id("pi_cursor_gone")).await;
    for (from, cursor) in [(0, "pi_cursor_gone"), (0, "pi_cursor_never"), (1, "pi_cursor_old")] {
        let window = within(hour(9) + Duration::seconds(from), 60);
        let error = list(stage, &ListQuery { starting_after: Some(id(cursor)), ..window }).await.unwrap_err();
        assert!(matches!(error, GatewayError::PageCursorInvalid { .. }), "{cursor}: {error:?}");
    }
}

async fn an_empty_window_is_complete(stage: &impl Stage) {
    let page = listed(stage, &within(hour(10), 3600)).await;
    assert_eq!((page.payments.len(), page.has_more()), (0, false));
}

async fn no_answer_is_never_a_fact(stage: &impl Stage) {
    let seed = seed("pi_fault", hour(11));
    stage.put(&seed).await;
    let window = within(hour(11), 1);
    for answer in NextAnswer::ALL {
        stage.next_answer(answer).await;
        is_error_of(answer, &retrieve(stage, &seed.id).await.unwrap_err());
        retrieved(stage, &seed.id).await;
        stage.next_answer(answer).await;
        is_error_of(answer, &list(stage, &window).await.unwrap_err());
        assert_eq!(names(&listed(stage, &window).await), ["pi_fault"]);
        // absence needs an answer too
        stage.next_answer(answer).await;
        is_error_of(answer, &retrieve(stage, &id("pi_never")).await.unwrap_err());
    }
}

fn is_error_of(answer: NextAnswer, error: &GatewayError) {
    let remedy = match answer {
        NextAnswer::RateLimited => {
            let by_rate = matches!(error, GatewayError::RateLimited { reason: RateLimitReason::EndpointRate, .. });
            assert!(by_rate, "{error:?}");
            Remedy::StopBatch { retry_after: None }
        }
        NextAnswer::LockTimeout => {
            assert_eq!(error.exchange().code.as_deref(), Some("lock_timeout"), "{error:?}");
            Remedy::Retry
        }
        NextAnswer::ServerError => {
            assert_eq!(error.exchange().http_status, Some(500), "{error:?}");
            Remedy::Retry
        }
        NextAnswer::Html => {
            assert!(matches!(error, GatewayError::Unreadable { flaw: Flaw::NotJson, .. }), "{error:?}");
            Remedy::GiveUp
        }
        NextAnswer::Dropped => {
            let dropped = matches!(error, GatewayError::Transient { cause: TransientCause::BrokenOff, .. });
            assert!(dropped, "{error:?}");
            Remedy::Retry
        }
        NextAnswer::Unauthorized => {
            assert_eq!(error.exchange().http_status, Some(401), "{error:?}");
            Remedy::EndTick
        }
        NextAnswer::Forbidden => {
            assert_eq!(error.exchange().http_status, Some(403), "{error:?}");
            Remedy::EndTick
        }
    };
    // a server may say how long to wait, and need not
    match (error.remedy(), remedy) {
        (Remedy::StopBatch { .. }, Remedy::StopBatch { .. }) => {}
        (said, expected) => assert_eq!(said, expected, "{answer:?}: {error:?}"),
    }
}

fn id(text: &str) -> ExternalRef {
    ExternalRef::parse(text).expect("the id of a PaymentIntent")
}

fn hour(number: i64) -> Timestamp {
    EPOCH + Duration::hours(number)
}

/// One that succeeded.
fn seed(name: &str, created: Timestamp) -> Seed {
    let status = ExternalStatus::Succeeded;
    Seed { id: id(name), status, created, metadata: BTreeMap::new(), declined: None }
}

fn within(from: Timestamp, seconds: i64) -> ListQuery {
    ListQuery {
        created_from: Some(from),
        created_before: Some(from + Duration::seconds(seconds)),
        limit: PAGE_MAX,
        starting_after: None,
    }
}

async fn retrieve(stage: &impl Stage, id: &ExternalRef) -> Result<External, GatewayError> {
    stage.gateway().retrieve(id).await
}

async fn list(stage: &impl Stage, query: &ListQuery) -> Result<ListPage, GatewayError> {
    stage.gateway().list(query).await
}

async fn retrieved(stage: &impl Stage, id: &ExternalRef) -> ExternalPayment {
    match retrieve(stage, id).await {
        Ok(External::Present(payment)) => payment,
        other => panic!("{id}: {other:?}"),
    }
}

async fn listed(stage: &impl Stage, query: &ListQuery) -> ListPage {
    let page = list(stage, query).await.expect("a page");
    assert_eq!(page.unreadable, []);
    page
}

fn names(page: &ListPage) -> Vec<String> {
    page.payments.iter().map(|payment| payment.id.to_string()).collect()
}

impl Stage for FakeStripe {
    fn gateway(&self) -> &impl Gateway {
        self
    }

    async fn put(&self, seed: &Seed) {
        FakeStripe::put(self, seed.id.as_str(), seed.status.as_str(), seed.created);
        for (key, value) in &seed.metadata {
            self.set_metadata(seed.id.as_str(), key, value);
        }
        if let Some(code) = seed.declined {
            self.decline(seed.id.as_str(), code, Some(seed.created));
        }
    }

    async fn put_in_other_mode(&self, id: &ExternalRef) {
        FakeStripe::put_in_other_mode(self, id.as_str());
    }

    async fn set_status(&self, id: &ExternalRef, status: ExternalStatus) {
        FakeStripe::set_status(self, id.as_str(), status.as_str());
    }

    async fn remove(&self, id: &ExternalRef) {
        FakeStripe::remove(self, id.as_str());
    }

    async fn next_answer(&self, answer: NextAnswer) {
        self.fail_next(match answer {
            NextAnswer::RateLimited => Fault::RateLimited,
            NextAnswer::LockTimeout => Fault::LockTimeout,
            NextAnswer::ServerError => Fault::ServerError,
            NextAnswer::Html => Fault::Html,
            NextAnswer::Dropped => Fault::Dropped,
            NextAnswer::Unauthorized => Fault::Unauthorized,
            NextAnswer::Forbidden => Fault::Forbidden,
        });
    }
}

#[tokio::test]
async fn the_fake_conforms() {
    conforms(&FakeStripe::new()).await;
}

/// The client over HTTP, and the sandbox behind it.
struct OverHttp {
    client: StripeClient,
    sandbox: Sandbox,
}

impl Stage for OverHttp {
    fn gateway(&self) -> &impl Gateway {
        &self.client
    }

    async fn put(&self, seed: &Seed) {
        let seed = PaymentIntentSeed {
            id: Some(seed.id.to_string()),
            status: seed.status.clone(),
            metadata: seed.metadata.clone(),
            decline: seed.declined.map(|code| sandbox::Decline::Card(code.to_owned())),
            ..PaymentIntentSeed::new(seed.created)
        };
        self.sandbox.with(|account, _| account.insert(seed)).unwrap();
    }

    async fn put_in_other_mode(&self, id: &ExternalRef) {
        let seed = PaymentIntentSeed { id: Some(id.to_string()), livemode: true, ..PaymentIntentSeed::new(hour(1)) };
        self.sandbox.with(|account, _| account.insert(seed)).unwrap();
    }

    async fn set_status(&self, id: &ExternalRef, status: ExternalStatus) {
        self.sandbox.with(|account, now| account.set_status(id.as_str(), status, now)).unwrap();
    }

    async fn remove(&self, id: &ExternalRef) {
        self.sandbox.with(|account, _| account.delete(id.as_str())).unwrap();
    }

    async fn next_answer(&self, answer: NextAnswer) {
        let fault = match answer {
            NextAnswer::RateLimited => sandbox::Fault::RateLimited(sandbox::LimitReason::EndpointRate),
            NextAnswer::LockTimeout => sandbox::Fault::LockTimeout,
            NextAnswer::ServerError => sandbox::Fault::InternalError,
            NextAnswer::Html => sandbox::Fault::OkHtml,
            NextAnswer::Dropped => sandbox::Fault::Dropped,
            NextAnswer::Unauthorized => sandbox::Fault::InvalidKey,
            NextAnswer::Forbidden => sandbox::Fault::Forbidden,
        };
        self.sandbox.with(|account, _| account.add_fault(FaultRule::once(fault)));
    }
}

#[tokio::test]
async fn the_client_over_http_conforms() {
    let sandbox = Sandbox::start(sandbox::Options::default()).await.unwrap();
    let client = StripeClient::new(
        &StripeSettings {
            api_base: sandbox.base_url.clone(),
            account: None,
            connect_timeout: std::time::Duration::from_secs(5),
            request_timeout: std::time::Duration::from_secs(30),
        },
        &Secret::new("rk_test_conformance"),
    );
    conforms(&OverHttp { client: client.unwrap(), sandbox }).await;
}
