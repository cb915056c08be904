//! The endpoint as Stripe knows it: its signing secrets, given or kept by AWS Secrets Manager, and its mode.
//!
//! Kept secrets are fetched with the first delivery that could be Stripe's. When a signature was made with none of them, they
//! may have been rolled: they are fetched anew, but no sooner than [`FETCH_AGAIN_AFTER`] after the last time, for anybody can
//! send a signature that is not good. A delivery in between is refused, and Stripe sends it again.

use bootstrap::secrets::{self, SecretError, StoredSecret};
use reconciler::config::{Secret, WebhookSecrets, WebhookSettings};
use reconciler::domain::Timestamp;
use time::Duration;
use tokio::sync::Mutex;

use crate::signature::{self, SignatureError};

/// No sooner are kept secrets asked for again, whatever comes.
pub const FETCH_AGAIN_AFTER: Duration = Duration::MINUTE;

/// How to tell an event of ours.
#[derive(Debug)]
pub struct Endpoint {
    secrets: Secrets,
    /// Whether the payments here are of the live mode.
    pub livemode: bool,
}

#[derive(Debug)]
enum Secrets {
    Given(Vec<Secret>),
    Stored { secret: StoredSecret<Vec<Secret>>, asked_at: Mutex<Option<Timestamp>> },
}

impl Endpoint {
    /// Calls nothing.
    pub fn new(settings: WebhookSettings) -> Self {
        let WebhookSettings { secrets, livemode } = settings;
        match secrets {
            WebhookSecrets::Given(secrets) => Self { secrets: Secrets::Given(secrets), livemode },
            WebhookSecrets::Stored(arn) => Self::stored(StoredSecret::new(&arn, secrets::webhook_secrets), livemode),
        }
    }

    /// With a secret of one's own making.
    pub fn stored(secret: StoredSecret<Vec<Secret>>, livemode: bool) -> Self {
        Self { secrets: Secrets::Stored { secret, asked_at: Mutex::new(None) }, livemode }
    }

    /// Whether `header` signs `body`; or why nobody can say.
    pub async fn verify(
        &self,
        header: &str,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Result<(), SignatureError>, SecretError> {
        let (secret, asked_at) = match &self.secrets {
            Secrets::Given(secrets) => return Ok(signature::verify(header, body, secrets, now)),
            Secrets::Stored { secret, asked_at } => (secret, asked_at),
        };
        match signature::verify(header, body, &[], now) {
            Err(SignatureError::NoMatch) => {}
            // no secret makes it better
            ended => return Ok(ended),
        }
        let mut asked_at = asked_at.lock().await;
        let known = secret.get().await?;
        let asked = *asked_at.get_or_insert(now);
        let verified = signature::verify(header, body, &known, now);
        if verified != Err(SignatureError::NoMatch) || now - asked < FETCH_AGAIN_AFTER {
            return Ok(verified);
        }
        *asked_at = Some(now);
        Ok(signature::verify(header, body, &secret.get_anew().await?, now))
    }
}
