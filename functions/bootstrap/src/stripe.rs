//! The client for Stripe: one for the life of the process, built at once from a key that is given, and by the first tick from
//! a key that AWS Secrets Manager keeps.
//!
//! When Stripe refuses the key (401 or 403), a kept one is fetched anew. If it is another one by now, the tick is tried once
//! more with it: a refusal writes nothing, so a rotation costs no tick.

use std::sync::Arc;

use reconciler::config::{Secret, SecretSource, StripeSettings};
use reconciler::gateway::{ApiKey, SettingsError, StripeClient};
use tokio::sync::Mutex;

use crate::TickError;
use crate::secrets::{self, StoredSecret};

/// Stripe, as one function sees it.
#[derive(Debug)]
pub struct Stripe(Source);

#[derive(Debug)]
enum Source {
    Given(Arc<StripeClient>),
    Stored { secret: StoredSecret<Secret>, settings: StripeSettings, built: Mutex<Option<Keyed>> },
}

#[derive(Debug)]
struct Keyed {
    key: Secret,
    client: Arc<StripeClient>,
}

impl Stripe {
    /// Checks the settings, and the key if it is given. Calls nothing.
    pub fn new(settings: &StripeSettings, key: &SecretSource) -> Result<Self, SettingsError> {
        Ok(Self(match key {
            SecretSource::Given(key) => Source::Given(Arc::new(StripeClient::new(settings, key)?)),
            SecretSource::Stored(arn) => {
                StripeClient::check(settings)?;
                let secret = StoredSecret::new(arn, key_in);
                Source::Stored { secret, settings: settings.clone(), built: Mutex::new(None) }
            }
        }))
    }

    /// The client; a stored key is fetched where it was not yet.
    pub async fn client(&self) -> Result<Arc<StripeClient>, TickError> {
        match &self.0 {
            Source::Given(client) => Ok(Arc::clone(client)),
            Source::Stored { secret, settings, built } => {
                let key = secret.get().await?;
                let mut built = built.lock().await;
                match built.as_ref().filter(|built| built.key == key) {
                    Some(built) => Ok(Arc::clone(&built.client)),
                    None => {
                        let client = Arc::new(StripeClient::new(settings, &key)?);
                        *built = Some(Keyed { key, client: Arc::clone(&client) });
                        Ok(client)
                    }
                }
            }
        }
    }

    /// After Stripe has refused the key of `refused`: a client with another key, if there is another one by now.
    pub async fn client_instead_of(&self, refused: &Arc<StripeClient>) -> Result<Option<Arc<StripeClient>>, TickError> {
        match &self.0 {
            Source::Given(_) => return Ok(None),
            Source::Stored { secret, .. } => drop(secret.get_anew().await?),
        }
        Ok(Some(self.client().await?).filter(|client| !Arc::ptr_eq(client, refused)))
    }
}

fn key_in(text: &str) -> Result<Secret, &'static str> {
    let key = secrets::stripe_key(text)?;
    match ApiKey::parse(key.reveal()) {
        Ok(_) => Ok(key),
        // its words are about the setting that is not set
        Err(_) => {
            Err("its key has to start with rk_live_, rk_test_, sk_live_ or sk_test_, and go on in letters and digits")
        }
    }
}
