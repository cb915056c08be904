//! Settings: typed, read once from a lookup function, and every error names its key.
//!
//! The lookup is the environment in Lambda and on a laptop, and a map in tests. A text that is empty or blank counts as
//! not set. Secrets never appear in an error or in `Debug`.

mod database;
mod reverse;
mod review;
mod secret;
mod stripe;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::domain::classify::Policy;
use crate::store::Keyset;

pub use database::{CaBundle, DatabaseLogin, DatabaseSettings, StoredLogin};
pub use reverse::{Marker, ReverseSettings};
pub use review::ReviewDesk;
pub use secret::{Secret, SecretArn, SecretSource};
pub use stripe::{
    STRIPE_API_BASE_DEFAULT, StripeSettings, WEBHOOK_SECRETS_EXPECTED, WebhookSecrets, WebhookSettings,
    signing_secrets, stripe_key,
};

/// Where settings come from: the value of a key, if it is set.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The most requests a second that may be configured against Stripe itself: its limit on one endpoint.
pub const REQUESTS_PER_SECOND_MAX: u32 = 25;

/// Above this a warning is due: the checkout shares the account's limits.
pub const REQUESTS_PER_SECOND_CALM: u32 = 10;

/// No lease is shorter: no batch of events is published that could outlast it, and one may take 20 seconds.
pub const LEASE_SECONDS_MIN: i64 = 60;

/// A setting is missing or malformed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The key has no default and is not set.
    #[error("the setting {key} is missing: {expected}")]
    Missing {
        /// Which setting.
        key: &'static str,
        /// What it should hold.
        expected: &'static str,
    },
    /// The value cannot be used. Its text is shown unless it is a secret.
    #[error("the setting {key}{value} is not usable: {expected}")]
    Malformed {
        /// Which setting.
        key: &'static str,
        /// ` = "…"`, or nothing where it is a secret.
        value: String,
        /// What it should hold.
        expected: String,
    },
}

/// How the outbox is worked.
#[derive(Clone, Debug)]
pub struct DispatchSettings {
    /// `DISPATCH_BATCH`: rows in one tick.
    pub batch: i64,
    /// `DISPATCH_LEASE_SECONDS`: how long a claim holds.
    pub lease_seconds: i64,
    /// `DISPATCH_ATTEMPTS_MAX`: after so many claims a row that fails is dead.
    pub attempts_max: i32,
    /// `EVENT_BUS`: the name or ARN of the EventBridge bus that events go to; `None`: into the log.
    pub event_bus: Option<String>,
    /// `TICK_SECONDS`: how long a tick of `cargo tick` may begin anything. In Lambda it is the function's timeout, less a reserve.
    pub tick: Duration,
}

impl DispatchSettings {
    /// Reads the settings named at the fields.
    pub fn from_lookup(lookup: Lookup<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            batch: number(lookup, "DISPATCH_BATCH", 500, 1, 10_000)?,
            lease_seconds: number(lookup, "DISPATCH_LEASE_SECONDS", 120, LEASE_SECONDS_MIN, 3_600)?,
            attempts_max: number(lookup, "DISPATCH_ATTEMPTS_MAX", 10, 1, 1_000)?,
            event_bus: event_bus(lookup)?,
            tick: tick(lookup)?,
        })
    }
}

fn event_bus(lookup: Lookup<'_>) -> Result<Option<String>, ConfigError> {
    let Some(bus) = text(lookup, "EVENT_BUS") else { return Ok(None) };
    let name = match bus.split_once(":event-bus/") {
        Some((arn, name)) if arn.starts_with("arn:") => name,
        Some(_) | None => &bus,
    };
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    if name.is_empty() || !name.bytes().all(known) {
        return Err(malformed(
            "EVENT_BUS",
            &bus,
            "the name of an EventBridge bus, or its ARN, arn:aws:events:…:event-bus/…",
        ));
    }
    Ok(Some(bus))
}

fn tick(lookup: Lookup<'_>) -> Result<Duration, ConfigError> {
    Ok(Duration::from_secs(number(lookup, "TICK_SECONDS", 55, 1, 86_400)?))
}

/// What the figures are read with. Stripe's key is none of it.
#[derive(Clone, Debug)]
pub struct LagSettings {
    /// `REQUESTS_PER_SECOND` of all functions together.
    pub requests_per_second: u32,
    /// The name under which the request budget is kept: `STRIPE_ACCOUNT`, or the platform's own.
    pub account: String,
    /// `KEYSET`: the order of the walk; `None` where the type of the key decides.
    pub keyset: Option<Keyset>,
}

impl LagSettings {
    /// Reads the settings named at the fields.
    pub fn from_lookup(lookup: Lookup<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            requests_per_second: requests_per_second(lookup)?,
            account: text(lookup, "STRIPE_ACCOUNT").unwrap_or_else(|| stripe::OWN_ACCOUNT.to_owned()),
            keyset: keyset(lookup)?,
        })
    }
}

/// What a migration goes by.
#[derive(Clone, Debug)]
pub struct MigrateSettings {
    /// How to reach Postgres, as the owner of the payments.
    pub database: DatabaseSettings,
    /// `ADAPTER_FILE`: an adapter that the function's package ships, as a path within the package.
    pub adapter_file: Option<String>,
    /// `KEYSET`: the order of the walk, whose index is looked for; `None` where the type of the key decides.
    pub keyset: Option<Keyset>,
}

impl MigrateSettings {
    /// Reads the settings named at the fields.
    pub fn from_lookup(lookup: Lookup<'_>) -> Result<Self, ConfigError> {
        let adapter_file = text(lookup, "ADAPTER_FILE");
        let leaves = |path: &str| path.starts_with('/') || path.split('/').any(|part| part == "..");
        if let Some(path) = adapter_file.as_ref().filter(|path| leaves(path)) {
            return Err(malformed("ADAPTER_FILE", path, "a path within the function's package, such as adapter.sql"));
        }
        Ok(Self { database: DatabaseSettings::from_lookup(lookup)?, adapter_file, keyset: keyset(lookup)? })
    }
}

/// How Stripe is asked about a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observe {
    /// By list calls wherever these cost less, and one by one what they leave over.
    Bulk,
    /// One by one.
    Single,
}

/// How a scan goes about it.
#[derive(Clone, Debug)]
pub struct ScanSettings {
    /// `BATCH_SIZE`: payments in one tick.
    pub batch_size: u32,
    /// `REQUESTS_PER_SECOND` of all functions together.
    pub requests_per_second: u32,
    /// `CONCURRENCY`: requests under way at once in one tick.
    pub concurrency: u32,
    /// `GRACE_SECONDS`, `RETRY_WINDOW_SECONDS`, `IN_FLIGHT_MAX_DAYS`.
    pub policy: Policy,
    /// `MISSING_CAP`: more confirmed 404s than this, and more than half of the rows asked, withhold the batch.
    pub missing_cap: u32,
    /// `MIN_CYCLE_SECONDS`: a new cycle begins no sooner than this after the last one began.
    pub min_cycle: time::Duration,
    /// `UNFINISHED_CYCLE_SECONDS`: the same of the unfinished scan.
    pub unfinished_cycle: time::Duration,
    /// `TICK_SECONDS`: how long a tick of `cargo tick` may issue calls. In Lambda it is the function's timeout, less a reserve.
    pub tick: Duration,
    /// `SWEEP_AFTER_SECONDS`: a payment that has not ended is a suspect when it was not updated for longer.
    pub sweep_after: time::Duration,
    /// `KEYSET`: the order of the walk; `None` where the type of the key decides.
    pub keyset: Option<Keyset>,
    /// Of the reverse scan alone.
    pub reverse: ReverseSettings,
    /// `OBSERVE`: whether list calls may answer.
    pub observe: Observe,
}

impl ScanSettings {
    /// Reads the settings named at the fields. `stripe` says whether the rate is Stripe's to bear.
    pub fn from_lookup(lookup: Lookup<'_>, stripe: &StripeSettings) -> Result<Self, ConfigError> {
        let requests_per_second = requests_per_second(lookup)?;
        if stripe.is_stripe_itself() && requests_per_second > REQUESTS_PER_SECOND_MAX {
            let why = "at most 25, Stripe's limit on one endpoint, which the checkout shares; 5 to 10 is a good slice";
            return Err(malformed("REQUESTS_PER_SECOND", &requests_per_second.to_string(), why));
        }
        Ok(Self {
            batch_size: number(lookup, "BATCH_SIZE", 1_000, 1, 20_000)?,
            requests_per_second,
            concurrency: number(lookup, "CONCURRENCY", 8, 1, 100)?,
            policy: Policy {
                grace: time::Duration::seconds(number(lookup, "GRACE_SECONDS", 600, 0, 86_400)?),
                retry_window: time::Duration::seconds(number(lookup, "RETRY_WINDOW_SECONDS", 86_400, 0, 31_536_000)?),
                in_flight_max: time::Duration::days(number(lookup, "IN_FLIGHT_MAX_DAYS", 30, 1, 3_650)?),
            },
            missing_cap: number(lookup, "MISSING_CAP", 50, 0, 1_000_000)?,
            min_cycle: time::Duration::seconds(number(lookup, "MIN_CYCLE_SECONDS", 21_600, 0, 31_536_000)?),
            unfinished_cycle: time::Duration::seconds(number(
                lookup,
                "UNFINISHED_CYCLE_SECONDS",
                3_600,
                0,
                31_536_000,
            )?),
            tick: tick(lookup)?,
            sweep_after: time::Duration::seconds(number(lookup, "SWEEP_AFTER_SECONDS", 600, 0, 31_536_000)?),
            keyset: keyset(lookup)?,
            reverse: ReverseSettings::from_lookup(lookup)?,
            observe: match text(lookup, "OBSERVE").as_deref() {
                None | Some("bulk") => Observe::Bulk,
                Some("single") => Observe::Single,
                Some(other) => return Err(malformed("OBSERVE", other, "bulk or single")),
            },
        })
    }
}

fn requests_per_second(lookup: Lookup<'_>) -> Result<u32, ConfigError> {
    number(lookup, "REQUESTS_PER_SECOND", 5, 1, 10_000)
}

fn keyset(lookup: Lookup<'_>) -> Result<Option<Keyset>, ConfigError> {
    match text(lookup, "KEYSET").as_deref() {
        None | Some("auto") => Ok(None),
        Some("id") => Ok(Some(Keyset::Id)),
        Some("created_at") => Ok(Some(Keyset::CreatedAt)),
        Some(other) => Err(malformed("KEYSET", other, "auto, id or created_at")),
    }
}

fn text(lookup: Lookup<'_>, key: &str) -> Option<String> {
    lookup(key).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn required(lookup: Lookup<'_>, key: &'static str, expected: &'static str) -> Result<String, ConfigError> {
    text(lookup, key).ok_or(ConfigError::Missing { key, expected })
}

fn number<N>(lookup: Lookup<'_>, key: &'static str, default: N, least: N, most: N) -> Result<N, ConfigError>
where
    N: Copy + FromStr + PartialOrd + fmt::Display,
{
    let Some(value) = text(lookup, key) else { return Ok(default) };
    value
        .parse()
        .ok()
        .filter(|number| *number >= least && *number <= most)
        .ok_or_else(|| malformed(key, &value, format!("a whole number from {least} to {most}")))
}

fn malformed(key: &'static str, value: &str, expected: impl Into<String>) -> ConfigError {
    ConfigError::Malformed { key, value: format!(" = {value:?}"), expected: expected.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripe(base: &str) -> StripeSettings {
        let base = base.to_owned();
        StripeSettings::from_lookup(&|key| match key {
            "STRIPE_API_BASE" => Some(base.clone()),
            _ => None,
        })
        .unwrap()
    }

    fn scan(base: &str, key: &str, value: &str) -> Result<ScanSettings, ConfigError> {
        ScanSettings::from_lookup(&|asked| (asked == key).then(|| value.to_owned()), &stripe(base))
    }

    #[test]
    fn the_defaults_are_the_documented_ones() {
        let settings = scan(STRIPE_API_BASE_DEFAULT, "", "").unwrap();
        assert_eq!((settings.batch_size, settings.requests_per_second, settings.missing_cap), (1_000, 5, 50));
        assert_eq!(settings.policy.grace, time::Duration::minutes(10));
        assert_eq!(settings.policy.retry_window, time::Duration::hours(24));
        assert_eq!(settings.policy.in_flight_max, time::Duration::days(30));
        assert_eq!(settings.min_cycle, time::Duration::hours(6));
        assert_eq!(settings.observe, Observe::Bulk);
        assert!(StripeSettings::from_lookup(&|_| None).unwrap().is_stripe_itself());
    }

    #[test]
    fn more_than_25_a_second_is_refused_against_stripe_itself_only() {
        for base in ["https://api.stripe.com", "https://api.stripe.com/", "https://API.STRIPE.COM:443"] {
            let error = scan(base, "REQUESTS_PER_SECOND", "26").unwrap_err().to_string();
            assert!(error.contains("REQUESTS_PER_SECOND") && error.contains("at most 25"), "{error}");
            assert_eq!(scan(base, "REQUESTS_PER_SECOND", "25").unwrap().requests_per_second, 25);
        }
        for base in ["http://127.0.0.1:12111", "http://localhost:1/api.stripe.com", "https://api.stripe.com.example"] {
            assert_eq!(scan(base, "REQUESTS_PER_SECOND", "400").unwrap().requests_per_second, 400, "{base}");
        }
    }

    #[test]
    fn a_bus_is_a_name_or_an_arn() {
        let dispatch = |key: &'static str, value: &'static str| {
            DispatchSettings::from_lookup(&move |asked| (asked == key).then(|| value.to_owned()))
        };
        assert_eq!(dispatch("EVENT_BUS", " ").unwrap().event_bus, None);
        for bus in ["payments", "aws.partner/x.y/1", "arn:aws:events:eu-west-1:123456789012:event-bus/payments"] {
            assert_eq!(dispatch("EVENT_BUS", bus).unwrap().event_bus.as_deref(), Some(bus));
        }
        for bus in ["pay ments", "arn:aws:sqs:eu-west-1:123456789012:payments", "arn:aws:events:x:1:event-bus/"] {
            let error = dispatch("EVENT_BUS", bus).unwrap_err().to_string();
            assert!(error.contains("EVENT_BUS") && error.contains(bus), "{error}");
        }
        assert!(dispatch("DISPATCH_LEASE_SECONDS", "59").unwrap_err().to_string().contains("DISPATCH_LEASE_SECONDS"));
        assert_eq!(dispatch("TICK_SECONDS", "7").unwrap().tick, Duration::from_secs(7));
    }

    #[test]
    fn webhook_secrets_are_a_list_and_never_shown() {
        let webhook = |secrets: &str, livemode: &str| {
            let (secrets, livemode) = (secrets.to_owned(), livemode.to_owned());
            WebhookSettings::from_lookup(&move |key| match key {
                "STRIPE_WEBHOOK_SECRETS" => Some(secrets.clone()),
                "STRIPE_LIVEMODE" => Some(livemode.clone()),
                _ => None,
            })
        };
        let settings = webhook(" whsec_old , whsec_new", "false").unwrap();
        let both = vec![Secret::new("whsec_old"), Secret::new("whsec_new")];
        assert_eq!(settings.secrets, WebhookSecrets::Given(both));
        assert!(!settings.livemode && webhook("whsec_old", "true").unwrap().livemode);
        assert!(!format!("{settings:?}").contains("whsec"), "{settings:?}");
        for (secrets, livemode, key) in [
            ("", "true", "STRIPE_WEBHOOK_SECRETS"),
            ("whsec_hidden,", "true", "STRIPE_WEBHOOK_SECRETS"),
            ("whsec_hidden,sk_hidden", "true", "STRIPE_WEBHOOK_SECRETS"),
            ("whsec_", "true", "STRIPE_WEBHOOK_SECRETS"),
            ("whsec_hidden", "", "STRIPE_LIVEMODE"),
            ("whsec_hidden", "yes", "STRIPE_LIVEMODE"),
        ] {
            let error = webhook(secrets, livemode).unwrap_err();
            assert!(error.to_string().contains(key) && !format!("{error} {error:?}").contains("hidden"), "{error}");
        }
    }

    #[test]
    fn an_adapters_file_is_within_the_package() {
        let migrate = |file: &str| {
            let file = file.to_owned();
            MigrateSettings::from_lookup(&move |key| match key {
                "ADAPTER_FILE" => Some(file.clone()),
                "DATABASE_URL" => Some("postgres://u@localhost/x".to_owned()),
                _ => None,
            })
        };
        assert_eq!(migrate("sql/mine.sql").unwrap().adapter_file.as_deref(), Some("sql/mine.sql"));
        assert_eq!(migrate(" ").unwrap().adapter_file, None);
        for outside in ["/etc/passwd", "../x.sql", "sql/../../x.sql"] {
            assert!(migrate(outside).unwrap_err().to_string().contains("ADAPTER_FILE"), "{outside}");
        }
    }

    #[test]
    fn every_error_names_its_key_and_shows_no_secret() {
        assert!(DatabaseSettings::from_lookup(&|_| None).unwrap_err().to_string().contains("DATABASE_URL"));
        assert!(stripe_key(&|_| Some("  ".into())).unwrap_err().to_string().contains("STRIPE_API_KEY"));
        for (key, value) in [
            ("BATCH_SIZE", "0"),
            ("BATCH_SIZE", "20001"),
            ("BATCH_SIZE", "many"),
            ("GRACE_SECONDS", "-1"),
            ("REQUESTS_PER_SECOND", "0"),
            ("REQUESTS_PER_SECOND", "5.5"),
            ("IN_FLIGHT_MAX_DAYS", "0"),
            ("MISSING_CAP", "x"),
            ("MIN_CYCLE_SECONDS", "99999999999999999999"),
            ("RETRY_WINDOW_SECONDS", "1h"),
            ("KEYSET", "uuid"),
            ("OBSERVE", "list"),
        ] {
            let error = scan("http://127.0.0.1:1", key, value).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(value), "{error}");
        }
    }
}
