//! The settings of what goes to Stripe and comes from it.

use std::time::Duration;

use super::{ConfigError, Lookup, Secret, SecretArn, SecretSource, malformed, number, required, secret, text};

/// Stripe itself.
pub const STRIPE_API_BASE_DEFAULT: &str = "https://api.stripe.com";

/// The name of the request budget where the payments are the platform's own.
pub(super) const OWN_ACCOUNT: &str = "own";

/// Where the key for Stripe comes from, a restricted key that may read PaymentIntents and Charges: `STRIPE_API_KEY`, or
/// `STRIPE_SECRET_ARN`.
pub fn stripe_key(lookup: Lookup<'_>) -> Result<SecretSource, ConfigError> {
    const EXPECTED: &str =
        "a key that starts with rk_live_, rk_test_, sk_live_ or sk_test_, or STRIPE_SECRET_ARN instead of it";
    secret::source(lookup, "STRIPE_API_KEY", "STRIPE_SECRET_ARN", EXPECTED)
}

/// How to reach Stripe, but for the key.
#[derive(Clone, Debug)]
pub struct StripeSettings {
    /// `STRIPE_API_BASE`.
    pub api_base: String,
    /// `STRIPE_ACCOUNT`: a connected account, `acct_…`.
    pub account: Option<String>,
    /// `CONNECT_TIMEOUT_MS`.
    pub connect_timeout: Duration,
    /// `REQUEST_TIMEOUT_MS`: from the first byte sent to the last one read.
    pub request_timeout: Duration,
}

impl StripeSettings {
    /// Reads the settings named at the fields.
    pub fn from_lookup(lookup: Lookup<'_>) -> Result<Self, ConfigError> {
        let account = text(lookup, "STRIPE_ACCOUNT");
        if let Some(account) = account.as_ref().filter(|account| !account.starts_with("acct_")) {
            return Err(malformed("STRIPE_ACCOUNT", account, "the id of a connected account, acct_…"));
        }
        Ok(Self {
            api_base: text(lookup, "STRIPE_API_BASE").unwrap_or_else(|| STRIPE_API_BASE_DEFAULT.to_owned()),
            account,
            connect_timeout: Duration::from_millis(number(lookup, "CONNECT_TIMEOUT_MS", 3_000, 10, 60_000)?),
            request_timeout: Duration::from_millis(number(lookup, "REQUEST_TIMEOUT_MS", 10_000, 10, 120_000)?),
        })
    }

    /// Whether requests go to Stripe itself, where its limits are everybody's.
    pub fn is_stripe_itself(&self) -> bool {
        url::Url::parse(&self.api_base)
            .ok()
            .and_then(|base| base.host_str().map(|host| host == "stripe.com" || host.ends_with(".stripe.com")))
            .unwrap_or(false)
    }

    /// The name under which the request budget is kept: the account, or the platform's own.
    pub fn budget_account(&self) -> &str {
        self.account.as_deref().unwrap_or(OWN_ACCOUNT)
    }
}

/// How to tell an event of ours.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// Where the endpoint's secrets come from.
    pub secrets: WebhookSecrets,
    /// `STRIPE_LIVEMODE`: whether the payments here are of the live mode.
    pub livemode: bool,
}

/// The endpoint's signing secrets, at least one. While one is being rolled, Stripe signs with both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookSecrets {
    /// `STRIPE_WEBHOOK_SECRETS`.
    Given(Vec<Secret>),
    /// `WEBHOOK_SECRETS_ARN`.
    Stored(SecretArn),
}

/// What a list of signing secrets looks like, for an error.
pub const WEBHOOK_SECRETS_EXPECTED: &str = "the endpoint's signing secrets, whsec_…, with commas between them";

impl WebhookSettings {
    /// Reads the settings named at the fields.
    pub fn from_lookup(lookup: Lookup<'_>) -> Result<Self, ConfigError> {
        const EXPECTED: &str =
            "the endpoint's signing secrets, whsec_…, with commas between them, or WEBHOOK_SECRETS_ARN instead of it";
        let key = "STRIPE_WEBHOOK_SECRETS";
        let secrets = match secret::source(lookup, key, "WEBHOOK_SECRETS_ARN", EXPECTED)? {
            SecretSource::Stored(arn) => WebhookSecrets::Stored(arn),
            SecretSource::Given(list) => WebhookSecrets::Given(signing_secrets(list.reveal()).ok_or_else(|| {
                let expected = WEBHOOK_SECRETS_EXPECTED.to_owned();
                ConfigError::Malformed { key, value: String::new(), expected }
            })?),
        };
        let livemode = required(lookup, "STRIPE_LIVEMODE", "true or false")?;
        let livemode = livemode.parse().map_err(|_no_bool| malformed("STRIPE_LIVEMODE", &livemode, "true or false"))?;
        Ok(Self { secrets, livemode })
    }
}

/// Reads a list of signing secrets; `None` where one of them is none.
pub fn signing_secrets(list: &str) -> Option<Vec<Secret>> {
    let secrets = list.split(',').map(str::trim);
    let read =
        |secret: &str| secret.strip_prefix("whsec_").filter(|rest| !rest.is_empty()).map(|_| Secret::new(secret));
    secrets.map(read).collect()
}
