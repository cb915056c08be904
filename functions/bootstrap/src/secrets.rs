//! Secrets that AWS Secrets Manager keeps, by their ARN.
//!
//! - A secret is **fetched** when it is first needed, by a tick and not by the start of the process: where it cannot be had,
//!   that is the answer to an invocation, with its own error type, and the next invocation tries again.
//! - It is **kept** for the life of the process, read and checked. What cannot be read is not kept.
//! - It is **fetched anew** when whoever it was shown to refuses it: that is how a rotation is noticed. Postgres
//!   ([`crate::database`]), Stripe ([`crate::stripe`]), and the signatures of webhooks each know when that is.
//!
//! No error and no log line shows a value: an error of the SDK is taken by its words, never by its `Debug`, which may hold the
//! answer's body.

mod shapes;

use std::fmt;
use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_secretsmanager::Client;
use aws_sdk_secretsmanager::config::{Builder, Credentials, Region};
use aws_sdk_secretsmanager::error::ProvideErrorMetadata as _;
use reconciler::config::SecretArn;
use tokio::sync::{Mutex, OnceCell};

use crate::{aws, chain};

pub use shapes::{login, stripe_key, webhook_secrets};

/// For the connection.
const CONNECT: Duration = Duration::from_secs(1);
/// For one attempt, connection included. Usual are 20 ms.
const ATTEMPT: Duration = Duration::from_secs(3);
/// For all attempts and pauses, and for fetching credentials: an invocation is to have time left to say what happened.
const OPERATION: Duration = Duration::from_secs(7);
/// The first one included.
const ATTEMPTS: u32 = 3;
/// The pause before the second attempt, at most.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// A secret cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// AWS refused, has no such secret, or did not answer.
    #[error("could not read the secret {arn}, which {setting} names: {reason}")]
    Unavailable {
        /// Such as `DATABASE_SECRET_ARN`.
        setting: &'static str,
        /// Its ARN.
        arn: String,
        /// AWS's code and words, or the network's.
        reason: String,
    },
    /// It is there, and is not what it should be.
    #[error("the secret {arn}, which {setting} names, is not usable: {expected}")]
    Malformed {
        /// Such as `DATABASE_SECRET_ARN`.
        setting: &'static str,
        /// Its ARN.
        arn: String,
        /// What it should hold.
        expected: &'static str,
    },
}

impl SecretError {
    /// A name that does not change, for alarms and for Lambda's `errorType`.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "SecretUnavailable",
            Self::Malformed { .. } => "SecretUnusable",
        }
    }
}

/// How the text of a secret is read; or what it should hold, without a word of what it holds.
type Read<T> = Box<dyn Fn(&str) -> Result<T, &'static str> + Send + Sync>;

/// A secret by its ARN, and what it said when it was fetched last.
pub struct StoredSecret<T> {
    at: SecretArn,
    read: Read<T>,
    endpoint: Option<String>,
    client: OnceCell<Client>,
    kept: Mutex<Option<T>>,
}

impl<T> fmt::Debug for StoredSecret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredSecret").field("at", &self.at).finish_non_exhaustive()
    }
}

impl<T: Clone> StoredSecret<T> {
    /// The secret at `at`, read by `read`. Calls nothing.
    pub fn new(at: &SecretArn, read: impl Fn(&str) -> Result<T, &'static str> + Send + Sync + 'static) -> Self {
        let (client, kept) = (OnceCell::new(), Mutex::new(None));
        Self { at: at.clone(), read: Box::new(read), endpoint: None, client, kept }
    }

    /// The same, kept by a Secrets Manager that another program plays at `endpoint`; credentials are made up.
    #[must_use]
    pub fn played_at(self, endpoint: &str) -> Self {
        Self { endpoint: Some(endpoint.to_owned()), ..self }
    }

    /// As it was fetched last; it is fetched where it was not yet. Whoever comes meanwhile waits, and fetches nothing.
    pub async fn get(&self) -> Result<T, SecretError> {
        let mut kept = self.kept.lock().await;
        if let Some(known) = kept.as_ref() {
            return Ok(known.clone());
        }
        let fetched = self.fetch().await?;
        Ok(kept.insert(fetched).clone())
    }

    /// Fetches it anew. Where that fails, what was kept stays.
    pub async fn get_anew(&self) -> Result<T, SecretError> {
        let mut kept = self.kept.lock().await;
        let fetched = self.fetch().await?;
        Ok(kept.insert(fetched).clone())
    }

    async fn fetch(&self) -> Result<T, SecretError> {
        let (setting, arn) = (self.at.setting(), self.at.as_str());
        let client = self.client.get_or_init(|| self.connect()).await;
        let output = client.get_secret_value().secret_id(arn).send().await.map_err(|error| {
            let reason = match (error.code(), error.message()) {
                (Some(code), Some(message)) => format!("{code}: {message}"),
                (Some(code), None) => code.to_owned(),
                (None, _) => chain(&error),
            };
            SecretError::Unavailable { setting, arn: arn.to_owned(), reason }
        })?;
        let malformed = |expected| SecretError::Malformed { setting, arn: arn.to_owned(), expected };
        let text = output.secret_string().ok_or_else(|| malformed("it holds bytes, and has to hold a text"))?;
        let value = (self.read)(text).map_err(malformed)?;
        tracing::info!(setting, arn, version = output.version_id(), "the secret was fetched");
        Ok(value)
    }

    /// The region is the ARN's: a secret is nowhere else.
    async fn connect(&self) -> Client {
        let region = Region::new(self.at.region().to_owned());
        let config = match &self.endpoint {
            None => Builder::from(&aws::config(region).await),
            Some(endpoint) => Builder::new()
                .behavior_version(BehaviorVersion::latest())
                .region(region)
                .credentials_provider(Credentials::new("none", "none", None, None, "made up"))
                .endpoint_url(endpoint)
                .http_client(aws::http_client()),
        };
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT)
            .operation_attempt_timeout(ATTEMPT)
            .operation_timeout(OPERATION)
            .build();
        let retries = RetryConfig::standard().with_max_attempts(ATTEMPTS).with_initial_backoff(RETRY_AFTER);
        Client::from_conf(config.timeout_config(timeouts).retry_config(retries).build())
    }
}
