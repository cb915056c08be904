//! The key and the address, checked once at the start.

use std::fmt;

use url::{Host, Url};

use crate::config::Secret;

/// The gateway cannot be built from its settings. No value is shown: a key is a secret, and a URL can hold a password.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A value cannot be used.
    #[error("the setting {key} is not usable: {expected}")]
    Malformed {
        /// Which setting.
        key: &'static str,
        /// What it should hold.
        expected: &'static str,
    },
    /// TLS or its certificate authorities could not be set up.
    #[error("the HTTP client for Stripe could not be built")]
    Client {
        /// Why.
        #[source]
        source: reqwest::Error,
    },
}

/// Which of Stripe's two worlds a key opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Real money.
    Live,
    /// Test mode or a sandbox.
    Test,
}

/// A secret or restricted key. Never printed.
#[derive(Clone, Debug)]
pub struct ApiKey {
    text: Secret,
    mode: Mode,
}

impl ApiKey {
    /// Takes the value of `STRIPE_API_KEY`: `sk_` or `rk_`, then `live_` or `test_`, then letters, digits, underscores.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let prefixes =
            [("sk_live_", Mode::Live), ("rk_live_", Mode::Live), ("sk_test_", Mode::Test), ("rk_test_", Mode::Test)];
        let found = prefixes.into_iter().find_map(|(prefix, mode)| Some((text.strip_prefix(prefix)?, mode)));
        match found {
            Some((rest, mode)) if is_word(rest) => Ok(Self { text: Secret::new(text), mode }),
            Some(_) | None => Err(SettingsError::Malformed {
                key: "STRIPE_API_KEY",
                expected: "it has to start with rk_live_, rk_test_, sk_live_ or sk_test_, and go on in letters and digits",
            }),
        }
    }

    /// Live or test, by its prefix.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The key, for the one place that sends it.
    pub(super) fn reveal(&self) -> &str {
        self.text.reveal()
    }
}

/// A connected account's id, fit for a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AccountId(String);

impl AccountId {
    pub(super) fn parse(text: &str) -> Result<Self, SettingsError> {
        match text.strip_prefix("acct_") {
            Some(rest) if is_word(rest) => Ok(Self(text.to_owned())),
            Some(_) | None => Err(SettingsError::Malformed {
                key: "STRIPE_ACCOUNT",
                expected: "it has to be the id of a connected account, acct_…",
            }),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Where Stripe's API is: https, or http to this very machine (a laptop's sandbox), since the key goes over it.
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl(Url);

impl BaseUrl {
    /// Takes the value of `STRIPE_API_BASE`. A path is kept as a prefix.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let malformed = |expected| SettingsError::Malformed { key: "STRIPE_API_BASE", expected };
        let Ok(url) = Url::parse(text) else {
            return Err(malformed("it has to be a URL such as https://api.stripe.com"));
        };
        let loopback = match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        match url.scheme() {
            "https" => {}
            "http" if loopback => {}
            _ => return Err(malformed("it has to be https, or http to the loopback address")),
        }
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return Err(malformed("it may have a host, a port and a path, and nothing else"));
        }
        // "api.stripe.com." is Stripe too, and would pass by every check of the host's name
        if url.host_str().is_some_and(|host| host.ends_with('.')) {
            return Err(malformed("its host may not end in a dot"));
        }
        Ok(Self(url))
    }

    /// Whether the connection is encrypted.
    pub fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// The URL of a path below the base; `path` begins with a slash and needs no escaping.
    pub(super) fn at(&self, path: &str) -> Url {
        let mut url = self.0.clone();
        url.set_path(&format!("{}{path}", self.0.path().trim_end_matches('/')));
        url
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BaseUrl({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_its_mode_by_its_prefix() {
        for (text, mode) in [
            ("sk_live_51Ab", Mode::Live),
            ("rk_live_51Ab", Mode::Live),
            ("sk_test_51Ab_c", Mode::Test),
            ("rk_test_51Ab", Mode::Test),
        ] {
            assert_eq!(ApiKey::parse(text).unwrap().mode(), mode, "{text}");
        }
    }

    #[test]
    fn any_other_key_is_refused_by_the_name_of_its_setting_and_not_shown() {
        for text in
            ["", "hush", "pk_live_hush", "sk_live_", "SK_LIVE_hush", "sk_live_hush\n", "sk_test_hu sh", "sk_hush"]
        {
            let error = ApiKey::parse(text).unwrap_err();
            assert!(error.to_string().contains("STRIPE_API_KEY"), "{error}");
            assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
        }
    }

    #[test]
    fn a_key_is_never_printed() {
        let printed = format!("{:?}", ApiKey::parse("sk_live_hush").unwrap());
        assert!(printed.contains("Live") && !printed.contains("hush"), "{printed}");
    }

    #[test]
    fn the_base_is_https_or_this_machine() {
        for good in [
            "https://api.stripe.com",
            "https://proxy.example:8443/stripe/",
            "http://127.0.0.1:12111",
            "http://127.9.9.9",
            "http://[::1]:80",
            "http://localhost:1",
        ] {
            assert!(BaseUrl::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "api.stripe.com",
            "http://api.stripe.com",
            "http://localhost.example",
            "http://10.0.0.1",
            "http://0.0.0.0",
            "ftp://localhost",
            "https://user:hush@api.stripe.com",
            "https://user@api.stripe.com",
            "https://api.stripe.com/?a=hush",
            "https://api.stripe.com/#a",
            "https://api.stripe.com.",
        ] {
            let error = BaseUrl::parse(bad).expect_err(bad);
            assert!(error.to_string().contains("STRIPE_API_BASE"), "{error}");
            assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
        }
    }

    #[test]
    fn an_account_is_fit_for_a_header() {
        assert_eq!(AccountId::parse("acct_1Ab").unwrap().as_str(), "acct_1Ab");
        for bad in ["", "acct_", "ac_1", "acct_1\r\nX: y", "acct_ü"] {
            assert!(AccountId::parse(bad).unwrap_err().to_string().contains("STRIPE_ACCOUNT"), "{bad:?}");
        }
    }
}
