//! A test's own world: a database with the schema and an adapter, Stripe behind the sandbox's core, and a clock that stands.
//!
//! Everything is real but Stripe and the time. Ages are given as minutes before now.

use std::collections::BTreeMap;

use local::fake::FakeStripe;
use local::postgres::{Cluster, Database, shared_cluster};
use reconciler::budget::Budget;
use reconciler::clock::Clock;
use reconciler::config::{ScanSettings, StripeSettings};
use reconciler::domain::Timestamp;
use reconciler::scan::steps::Steps;
use reconciler::scan::{Deps, RunError};
use reconciler::store::Keyset;
use reconciler::telemetry::Report;
use reverse_scan::Input;
use time::Duration;
use tokio_postgres::{Client, NoTls, Row};

/// When every test begins.
pub(crate) const START: Timestamp = Timestamp::UNIX_EPOCH.saturating_add(Duration::seconds(1_795_000_000));

/// Which application's payments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adapter {
    Default,
    UuidCheckout,
}

/// One test's world.
pub(crate) struct World {
    pub(crate) database: Database,
    /// A superuser's session, for arranging and looking.
    pub(crate) owner: Client,
    /// A session with the rights of `reconciler_scan`.
    pub(crate) scan: Client,
    pub(crate) stripe: FakeStripe,
    pub(crate) clock: Clock,
    pub(crate) settings: ScanSettings,
    pub(crate) keyset: Keyset,
    adapter: Adapter,
}

/// A connection of its own, driven until it ends.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connect");
    tokio::spawn(connection);
    client
}

/// Settings as a function reads them, with these instead of the world's: a cycle is always due, and Stripe is asked one by
/// one and one at a time, so that requests can be counted and told apart.
pub(crate) fn settings(overrides: &[(&str, &str)]) -> ScanSettings {
    let overrides: BTreeMap<String, String> =
        overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let lookup = move |key: &str| match key {
        "STRIPE_API_KEY" => Some("sk_test_1".to_owned()),
        "STRIPE_API_BASE" => Some("http://127.0.0.1:1".to_owned()),
        "MIN_CYCLE_SECONDS" => Some(overrides.get(key).cloned().unwrap_or_else(|| "0".to_owned())),
        "REQUESTS_PER_SECOND" => Some(overrides.get(key).cloned().unwrap_or_else(|| "1000".to_owned())),
        "CONCURRENCY" => Some(overrides.get(key).cloned().unwrap_or_else(|| "1".to_owned())),
        "OBSERVE" => Some(overrides.get(key).cloned().unwrap_or_else(|| "single".to_owned())),
        _ => overrides.get(key).cloned(),
    };
    let stripe = StripeSettings::from_lookup(&lookup).expect("stripe settings");
    ScanSettings::from_lookup(&lookup, &stripe).expect("scan settings")
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Adapter::Default).await
    }

    pub(crate) async fn with(adapter: Adapter) -> Self {
        Self::on(&shared_cluster().await.expect("a Postgres to test with"), adapter).await
    }

    /// A world on a server of the test's own.
    pub(crate) async fn on(cluster: &Cluster, adapter: Adapter) -> Self {
        let (key, sql) = match adapter {
            Adapter::Default => ("default adapter", migrate::DEFAULT_ADAPTER),
            Adapter::UuidCheckout => ("uuid_checkout adapter", migrate::UUID_CHECKOUT_ADAPTER),
        };
        let database = cluster
            .database(&format!("{key} {}", migrate::fingerprint(sql)), async |url| {
                migrate::apply(&mut connect(&url).await, Some(sql)).await?;
                Ok(())
            })
            .await
            .expect("a database with the schema");
        let owner = connect(&database.url()).await;
        let scan = Self::scan_session(&database).await;
        Self {
            owner,
            scan,
            stripe: FakeStripe::new(),
            clock: Clock::manual(START),
            settings: settings(&[]),
            keyset: match adapter {
                Adapter::Default => Keyset::Id,
                Adapter::UuidCheckout => Keyset::CreatedAt,
            },
            adapter,
            database,
        }
    }

    /// A new session with the rights of `reconciler_scan`.
    pub(crate) async fn scan_session(database: &Database) -> Client {
        let client = connect(&database.url()).await;
        let prepare = "set deadlock_timeout = '1min'; set timezone = 'Asia/Tokyo'; set role reconciler_scan";
        client.batch_execute(prepare).await.expect("role");
        client
    }

    /// Changes settings; the others stay as the world has them.
    pub(crate) fn set(&mut self, overrides: &[(&str, &str)]) {
        self.settings = settings(overrides);
    }

    /// The time that everything in this world goes by.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A tick of the dispatcher that begins now and has no deadline.
    pub(crate) fn dispatch_tick(&self) -> dispatch::Tick {
        dispatch::Tick::begin(&self.clock, self.now(), None)
    }

    /// Time goes by.
    pub(crate) fn pass(&self, minutes: u64) {
        self.clock.advance(std::time::Duration::from_secs(minutes * 60));
    }

    /// One tick of the forward scan.
    pub(crate) async fn tick(&self) -> Result<Report, RunError> {
        self.tick_in(&self.scan, &Steps::Unwatched, None).await
    }

    /// A tick that has to succeed.
    pub(crate) async fn ticked(&self) -> Report {
        self.tick().await.expect("a tick that succeeds")
    }

    /// One tick over a session of its own, with its steps watched.
    pub(crate) async fn tick_in(
        &self,
        db: &Client,
        steps: &Steps,
        deadline: Option<Timestamp>,
    ) -> Result<Report, RunError> {
        self.tick_with(db, &self.stripe, steps, deadline).await
    }

    /// The same with another Stripe.
    pub(crate) async fn tick_with(
        &self,
        db: &Client,
        stripe: &FakeStripe,
        steps: &Steps,
        deadline: Option<Timestamp>,
    ) -> Result<Report, RunError> {
        let budget = Budget::new("own", self.settings.requests_per_second, self.clock.clone());
        let deps = Deps {
            db,
            gateway: stripe,
            budget: &budget,
            clock: &self.clock,
            settings: &self.settings,
            keyset: self.keyset,
            deadline,
            steps,
        };
        // a moment passes between two ticks, as it does everywhere
        self.clock.advance(std::time::Duration::from_millis(1));
        forward_scan::run(&deps, self.now()).await
    }

    /// Ticks until a cycle has completed; the reports of all of them.
    pub(crate) async fn cycle(&self) -> Vec<Report> {
        let mut reports = Vec::new();
        for _ in 0..200 {
            let report = self.ticked().await;
            let done = report.outcome == reconciler::telemetry::Outcome::Wrapped;
            reports.push(report);
            if done {
                return reports;
            }
        }
        panic!("no cycle has completed within 200 ticks: {:?}", reports.last());
    }

    /// A payment, created and last changed `minutes` ago. Its key, as text.
    pub(crate) async fn payment(&self, reference: Option<&str>, state: &str, minutes: i64) -> String {
        let statement = match self.adapter {
            Adapter::Default => {
                "insert into payments (order_id, stripe_payment_intent_id, status, created_at, updated_at)
                 values ('order', $1, $2, $3, $3) returning id::text"
            }
            Adapter::UuidCheckout => {
                "insert into shop.checkout_payment (cart_number, intent, progress, first_saved_at, last_saved_at)
                 values ('cart', $1, $2, $3, $3) returning payment_uuid::text"
            }
        };
        let at = self.now() - Duration::minutes(minutes);
        self.owner.query_one(statement, &[&reference, &state, &at]).await.expect("payment").get(0)
    }

    /// Many payments, in this order: reference, state, and minutes since creation and last change.
    pub(crate) async fn payments(&self, rows: &[(Option<String>, &str, i64)]) {
        let statement = match self.adapter {
            Adapter::Default => {
                "insert into payments (order_id, stripe_payment_intent_id, status, created_at, updated_at)
                 select 'order', reference, state, at, at
                 from unnest($1::text[], $2::text[], $3::timestamptz[]) with ordinality as u (reference, state, at, n)
                 order by n"
            }
            Adapter::UuidCheckout => {
                "insert into shop.checkout_payment (cart_number, intent, progress, first_saved_at, last_saved_at)
                 select 'cart', reference, state, at, at
                 from unnest($1::text[], $2::text[], $3::timestamptz[]) as u (reference, state, at)"
            }
        };
        let references: Vec<&Option<String>> = rows.iter().map(|(reference, _, _)| reference).collect();
        let states: Vec<&str> = rows.iter().map(|(_, state, _)| *state).collect();
        let at: Vec<_> = rows.iter().map(|(_, _, minutes)| self.now() - Duration::minutes(*minutes)).collect();
        self.owner.execute(statement, &[&references, &states, &at]).await.expect("payments");
    }

    /// A payment and its PaymentIntent, an hour old. The payment's key.
    pub(crate) async fn pair(&self, reference: &str, state: &str, status: &str) -> String {
        self.stripe.put(reference, status, self.now() - Duration::hours(1));
        self.payment(Some(reference), state, 60).await
    }

    /// Many at once: payments in one state with PaymentIntents in one status, `pi_1` to `pi_n`, created a second apart, the
    /// last one an hour ago.
    pub(crate) async fn pairs(&self, count: i64, state: &str, status: &str) {
        for number in 1..=count {
            let created = self.now() - Duration::hours(1) - Duration::seconds(count - number);
            self.stripe.put(&format!("pi_{number}"), status, created);
        }
        self.rows(count, state).await;
    }

    /// The payments of [`World::pairs`] without the PaymentIntents.
    pub(crate) async fn rows(&self, count: i64, state: &str) {
        let statement = match self.adapter {
            Adapter::Default => {
                "insert into payments (order_id, stripe_payment_intent_id, status, created_at, updated_at)
                 select 'o' || n, 'pi_' || n, $2, $3::timestamptz - ($1 - n) * interval '1 second', $3::timestamptz
                 from generate_series(1, $1::bigint) n order by n"
            }
            Adapter::UuidCheckout => {
                "insert into shop.checkout_payment (cart_number, intent, progress, first_saved_at, last_saved_at)
                 select 'c' || n, 'pi_' || n, $2, $3::timestamptz - ($1 - n) * interval '1 second', $3::timestamptz
                 from generate_series(1, $1::bigint) n"
            }
        };
        let at = self.now() - Duration::hours(1);
        self.owner.execute(statement, &[&count, &state, &at]).await.expect("payments");
    }

    /// A payment as [`World::payment`] makes it, which an object's metadata can name by `match_key`.
    pub(crate) async fn payment_of(
        &self,
        match_key: &str,
        reference: Option<&str>,
        state: &str,
        minutes: i64,
    ) -> String {
        let id = self.payment(reference, state, minutes).await;
        let (column, key) = match self.adapter {
            Adapter::Default => ("order_id", "id"),
            Adapter::UuidCheckout => ("cart_number", "payment_uuid"),
        };
        self.update(&format!("{column} = '{match_key}'"), &format!("{key} = '{id}'")).await;
        id
    }

    /// One tick of the reverse scan.
    pub(crate) async fn reverse(&self) -> Report {
        self.reverse_in(&self.scan, &Steps::Unwatched, None, &Input::default()).await.expect("a tick that succeeds")
    }

    /// One over a session of its own, with its steps watched.
    pub(crate) async fn reverse_in(
        &self,
        db: &Client,
        steps: &Steps,
        deadline: Option<Timestamp>,
        input: &Input,
    ) -> Result<Report, RunError> {
        let budget = Budget::new("own", self.settings.requests_per_second, self.clock.clone());
        let deps = Deps {
            db,
            gateway: &self.stripe,
            budget: &budget,
            clock: &self.clock,
            settings: &self.settings,
            keyset: self.keyset,
            deadline,
            steps,
        };
        self.clock.advance(std::time::Duration::from_millis(1));
        reverse_scan::run(&deps, self.now(), input).await
    }

    /// Ticks of the reverse scan until a window is complete; the reports of all of them.
    pub(crate) async fn window(&self) -> Vec<Report> {
        let mut reports = Vec::new();
        for _ in 0..200 {
            let report = self.reverse().await;
            let done = report.outcome == reconciler::telemetry::Outcome::Wrapped;
            reports.push(report);
            if done {
                return reports;
            }
        }
        panic!("no window has been completed within 200 ticks: {:?}", reports.last());
    }

    /// Changes payments behind everybody's back: `set` and `where` as in SQL.
    pub(crate) async fn update(&self, set: &str, filter: &str) {
        let table = match self.adapter {
            Adapter::Default => "payments",
            Adapter::UuidCheckout => "shop.checkout_payment",
        };
        self.owner.batch_execute(&format!("update {table} set {set} where {filter}")).await.expect("update");
    }

    /// Looks at anything.
    pub(crate) async fn rows_of(&self, sql: &str) -> Vec<Row> {
        self.owner.query(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    /// One text for each row: its columns with a space between. Each has to be text.
    pub(crate) async fn texts(&self, sql: &str) -> Vec<String> {
        let text = |row: &Row| {
            let columns = (0..row.len()).map(|column| row.get::<_, Option<String>>(column));
            columns.map(|text| text.unwrap_or_else(|| "-".to_owned())).collect::<Vec<_>>().join(" ")
        };
        self.rows_of(sql).await.iter().map(text).collect()
    }

    /// A count, or any other whole number.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.rows_of(sql).await.first().expect("a row").get(0)
    }

    /// The findings in the order of their opening: `kind verdict resolution`.
    pub(crate) async fn findings(&self) -> Vec<String> {
        self.texts("select kind, verdict, coalesce(resolution, 'open') from reconciliation.finding order by id").await
    }

    /// A person accepts whatever is open.
    pub(crate) async fn accept(&self) {
        let accept = "with decided as (
                          insert into reconciliation.review
                              (finding_id, revision, decision, who, who_is, note, evidence, decided_at)
                          select id, revision, 'accept', 'me', 'database_login', 'agreed', '{}', last_seen_at
                          from reconciliation.finding where resolved_at is null
                          returning id, finding_id)
                      update reconciliation.finding f
                      set resolved_at = f.last_seen_at, resolution = 'accepted', review_id = d.id
                      from decided d where d.finding_id = f.id";
        self.owner.batch_execute(accept).await.expect("accept");
    }

    /// The outbox in order: `kind type`.
    pub(crate) async fn outbox(&self) -> Vec<String> {
        self.texts("select kind, type from reconciliation.outbox order by id").await
    }

    /// How many payments were never verified.
    pub(crate) async fn never_verified(&self) -> i64 {
        self.number(
            "select count(*) from reconciliation.payment p
             where not exists (select from reconciliation.observation o where o.payment_id = p.id and o.observed_at is not null)",
        )
        .await
    }

    /// The age of the payment that has gone unverified longest, among those that a scan has met. Minutes.
    pub(crate) async fn lag_minutes(&self) -> i64 {
        let sql = "select min(verified_through) from reconciliation.observation";
        let oldest: Timestamp = self.rows_of(sql).await.first().expect("a row").get(0);
        (self.now() - oldest).whole_minutes()
    }

    /// Everything that a scan writes, as one text: equal before and after means that nothing was written.
    pub(crate) async fn written(&self) -> String {
        let mut all = String::new();
        for table in ["observation", "finding", "outbox", "orphan_candidate", "reverse_window"] {
            all += &self.texts(&format!("select t::text from reconciliation.{table} t order by 1")).await.join("\n");
        }
        let cursor = "select job, position_id::text, revision::text, cycle::text, cycle_started_at::text,
                      last_cycle_completed_at::text from reconciliation.cursor where revision > 0";
        all + &self.texts(cursor).await.join("\n")
    }
}
