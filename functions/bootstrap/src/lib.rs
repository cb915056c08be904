//! The cold start that the functions share: settings → connections → one tick → its report or its error.
//!
//! Everything that is built once is built by [`ScanHost::from_lookup`] and touches no network: settings, the Stripe client,
//! the budget, the TLS connector. Secrets that AWS keeps are fetched by the first tick. Postgres is connected to by the first
//! tick, and again by a later one when the connection is gone. The same host serves Lambda
//! ([`lambda::serve_scan`]) and `cargo tick` on a laptop or from cron.

pub mod aws;
pub mod database;
pub mod lambda;
pub mod logging;
pub mod metrics;
pub mod secrets;
pub mod stripe;
pub mod tls;

use reconciler::budget::{Budget, Share};
use reconciler::clock::Clock;
use reconciler::config::{
    ConfigError, DatabaseSettings, Lookup, REQUESTS_PER_SECOND_CALM, ScanSettings, StripeSettings, stripe_key,
};
use reconciler::domain::Timestamp;
use reconciler::gateway::StripeClient;
use reconciler::scan::observe::ObserveError;
use reconciler::scan::steps::Steps;
use reconciler::scan::{Deps, RunError};
use reconciler::store::{StoreError, database_time};
use reconciler::telemetry::Report;

use database::{Database, DatabaseError, Session};
use secrets::SecretError;
use stripe::Stripe;

/// The Postgres role whose rights a scan runs with, whoever logs in.
pub const SCAN_ROLE: &str = "reconciler_scan";

/// What a scanning function keeps between two ticks.
#[derive(Debug)]
pub struct ScanHost {
    database: Database,
    stripe: Stripe,
    budget: Budget,
    clock: Clock,
    settings: ScanSettings,
}

/// A tick could not be run, or failed.
#[derive(Debug, thiserror::Error)]
pub enum TickError {
    /// A setting is missing or malformed. Nothing was called.
    #[error(transparent)]
    Settings(#[from] ConfigError),
    /// A setting of the Stripe client cannot be used. Nothing was called.
    #[error(transparent)]
    Stripe(#[from] reconciler::gateway::SettingsError),
    /// The key for Stripe cannot be had.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Postgres is out of reach, or not ready.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The tick failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl From<StoreError> for TickError {
    fn from(error: StoreError) -> Self {
        Self::Run(RunError::Store(error))
    }
}

impl TickError {
    /// A name that does not change, for alarms and for Lambda's `errorType`.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::Settings(_) | Self::Stripe(_) => "SettingsUnusable",
            Self::Secret(error) => error.error_type(),
            Self::Database(error) => error.error_type(),
            Self::Run(error) => error.error_type(),
        }
    }

    /// The whole chain of causes in one line.
    pub fn chain(&self) -> String {
        chain(self)
    }

    /// The report of a tick that failed after its work was done: a withheld batch.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Run(RunError::Withheld { report, .. }) => Some(report),
            Self::Run(RunError::Store(_) | RunError::Observe(_) | RunError::Input(_) | RunError::OtherMode { .. })
            | Self::Settings(_)
            | Self::Stripe(_)
            | Self::Secret(_)
            | Self::Database(_) => None,
        }
    }
}

pub use reconciler::error_chain::chain;

impl ScanHost {
    /// Reads all settings and builds what is built once. Calls nothing. `share`: the function's part of the budget, where it
    /// may not use all of it.
    pub fn from_lookup(lookup: Lookup<'_>, share: Option<Share>) -> Result<Self, TickError> {
        let database = DatabaseSettings::from_lookup(lookup)?;
        let key = stripe_key(lookup)?;
        let stripe = StripeSettings::from_lookup(lookup)?;
        let settings = ScanSettings::from_lookup(lookup, &stripe)?;
        if stripe.is_stripe_itself() && settings.requests_per_second > REQUESTS_PER_SECOND_CALM {
            tracing::warn!(
                requests_per_second = settings.requests_per_second,
                "REQUESTS_PER_SECOND is above {REQUESTS_PER_SECOND_CALM}: the checkout shares the account's limits"
            );
        }
        if settings.missing_cap >= settings.batch_size {
            tracing::warn!(
                missing_cap = settings.missing_cap,
                batch_size = settings.batch_size,
                "MISSING_CAP is not below BATCH_SIZE: no number of missing payments will ever withhold a batch"
            );
        }
        let clock = Clock::System;
        Ok(Self {
            database: Database::new(&database, SCAN_ROLE)?,
            stripe: Stripe::new(&stripe, &key)?,
            budget: Budget::new(stripe.budget_account(), settings.requests_per_second, clock.clone()).with_share(share),
            clock,
            settings,
        })
    }

    /// When a tick that begins now has to stop issuing calls, where nobody else says so: after `TICK_SECONDS`.
    pub fn own_deadline(&self) -> Timestamp {
        self.clock.now() + self.settings.tick
    }

    /// Runs one tick. No call to Stripe is issued after `deadline`.
    pub async fn tick<F>(&self, deadline: Option<Timestamp>, run: F) -> Result<Report, TickError>
    where
        F: AsyncFn(&Deps<'_, StripeClient>, Timestamp) -> Result<Report, RunError>,
    {
        let (session, client) = tokio::join!(self.database.session(), self.stripe.client());
        let (session, client) = (session?, client?);
        let refused = match self.run(&session, &client, deadline, &run).await {
            Err(TickError::Run(RunError::Observe(refused @ ObserveError::Refused { .. }))) => refused,
            ended => return ended,
        };
        match self.stripe.client_instead_of(&client).await {
            Ok(Some(client)) => {
                tracing::warn!(error = %chain(&refused), "Stripe refused the key; trying the one that its secret holds by now");
                self.run(&session, &client, deadline, &run).await
            }
            Ok(None) => Err(TickError::Run(refused.into())),
            Err(error) => {
                tracing::error!(error = %error.chain(), "Stripe refused the key, and another could not be had");
                Err(TickError::Run(refused.into()))
            }
        }
    }

    async fn run<F>(
        &self,
        session: &Session,
        gateway: &StripeClient,
        deadline: Option<Timestamp>,
        run: &F,
    ) -> Result<Report, TickError>
    where
        F: AsyncFn(&Deps<'_, StripeClient>, Timestamp) -> Result<Report, RunError>,
    {
        let now = database_time(&session.client).await?;
        let deps = Deps {
            db: &session.client,
            gateway,
            budget: &self.budget,
            clock: &self.clock,
            settings: &self.settings,
            keyset: self.settings.keyset.unwrap_or(session.ports.keyset),
            deadline,
            steps: &Steps::Unwatched,
        };
        Ok(run(&deps, now).await?)
    }
}
