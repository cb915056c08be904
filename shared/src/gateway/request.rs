//! The pure request builder: what is asked, as an HTTP request that is not sent yet.

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use reqwest::{Method, Request, Url};

use super::settings::AccountId;
use super::{ApiKey, BaseUrl, ListQuery, PAGE_MAX, SettingsError};
use crate::domain::Timestamp;
use crate::domain::id::ExternalRef;

/// The version of Stripe's API that the decoder was written for. Without it the account's default would apply.
pub const API_VERSION: &str = "2026-10-28.endive";

const STRIPE_VERSION: HeaderName = HeaderName::from_static("stripe-version");
const STRIPE_ACCOUNT: HeaderName = HeaderName::from_static("stripe-account");

/// What every request has in common. `Debug` hides the key.
#[derive(Clone, Debug)]
pub struct Requests {
    base: BaseUrl,
    headers: HeaderMap,
}

impl Requests {
    /// `account` is a connected account's id, `acct_…`.
    pub fn new(base: BaseUrl, key: &ApiKey, account: Option<&str>) -> Result<Self, SettingsError> {
        let malformed = |key| SettingsError::Malformed { key, expected: "it has to be printable ASCII" };
        let mut authorization =
            HeaderValue::try_from(format!("Bearer {}", key.reveal())).or(Err(malformed("STRIPE_API_KEY")))?; // the source is dropped: nothing about a key is shown
        authorization.set_sensitive(true);
        let mut headers = HeaderMap::from_iter([
            (AUTHORIZATION, authorization),
            (STRIPE_VERSION, HeaderValue::from_static(API_VERSION)),
            (USER_AGENT, HeaderValue::from_static(concat!("payment-reconciler/", env!("CARGO_PKG_VERSION")))),
        ]);
        if let Some(account) = account {
            let account = AccountId::parse(account)?;
            headers
                .insert(STRIPE_ACCOUNT, HeaderValue::from_str(account.as_str()).or(Err(malformed("STRIPE_ACCOUNT")))?);
        }
        Ok(Self { base, headers })
    }

    /// `GET /v1/payment_intents/{id}`, with its latest charge: that tells when a decline was.
    pub fn retrieve(&self, id: &ExternalRef) -> Request {
        let mut url = self.base.at(&format!("/v1/payment_intents/{id}"));
        url.query_pairs_mut().append_pair("expand[]", "latest_charge");
        self.get(url)
    }

    /// `GET /v1/payment_intents`, each with its latest charge.
    pub fn list(&self, query: &ListQuery) -> Request {
        let mut url = self.base.at("/v1/payment_intents");
        {
            let mut pairs = url.query_pairs_mut();
            if let Some(from) = query.created_from {
                pairs.append_pair("created[gte]", &from.unix_timestamp().to_string());
            }
            if let Some(before) = query.created_before {
                pairs.append_pair("created[lt]", &seconds_rounded_up(before).to_string());
            }
            pairs.append_pair("limit", &query.limit.clamp(1, PAGE_MAX).to_string());
            if let Some(cursor) = &query.starting_after {
                pairs.append_pair("starting_after", cursor.as_str());
            }
            pairs.append_pair("expand[]", "data.latest_charge");
        }
        self.get(url)
    }

    fn get(&self, url: Url) -> Request {
        let mut request = Request::new(Method::GET, url);
        *request.headers_mut() = self.headers.clone();
        request
    }
}

fn seconds_rounded_up(moment: Timestamp) -> i64 {
    moment.unix_timestamp() + i64::from(moment.nanosecond() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(base: &str, account: Option<&str>) -> Requests {
        Requests::new(BaseUrl::parse(base).unwrap(), &ApiKey::parse("rk_test_hush").unwrap(), account).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_timestamp(seconds).unwrap()
    }

    fn id(text: &str) -> ExternalRef {
        ExternalRef::parse(text).unwrap()
    }

    fn whole() -> ListQuery {
        ListQuery { created_from: None, created_before: None, limit: 100, starting_after: None }
    }

    #[test]
    fn a_retrieve_word_for_word() {
        let request = requests("https://api.stripe.com", None).retrieve(&id("pi_3Mt_x"));
        assert_eq!(request.method(), Method::GET);
        assert_eq!(
            request.url().as_str(),
            "https://api.stripe.com/v1/payment_intents/pi_3Mt_x?expand%5B%5D=latest_charge"
        );
        assert!(request.body().is_none());
        let mut headers: Vec<_> =
            request.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        headers.sort_unstable();
        assert_eq!(
            headers,
            [
                ("authorization", "Bearer rk_test_hush"),
                ("stripe-version", "2026-10-28.endive"),
                ("user-agent", concat!("payment-reconciler/", env!("CARGO_PKG_VERSION"))),
            ]
        );
    }

    #[test]
    fn a_list_word_for_word() {
        let requests = requests("http://127.0.0.1:12111", None);
        assert_eq!(
            requests.list(&whole()).url().as_str(),
            "http://127.0.0.1:12111/v1/payment_intents?limit=100&expand%5B%5D=data.latest_charge"
        );
        let query = ListQuery {
            created_from: Some(at(1_790_000_000)),
            created_before: Some(at(1_790_000_060)),
            limit: 25,
            starting_after: Some(id("pi_last")),
        };
        assert_eq!(
            requests.list(&query).url().as_str(),
            "http://127.0.0.1:12111/v1/payment_intents?created%5Bgte%5D=1790000000&created%5Blt%5D=1790000060\
             &limit=25&starting_after=pi_last&expand%5B%5D=data.latest_charge"
        );
    }

    #[test]
    fn a_window_is_never_narrower_than_what_was_asked_and_a_limit_is_one_that_stripe_takes() {
        let requests = requests("https://api.stripe.com", None);
        let half = time::Duration::milliseconds(500);
        let query = ListQuery { created_from: Some(at(10) + half), created_before: Some(at(20) + half), ..whole() };
        let url = requests.list(&query).url().to_string();
        assert!(url.contains("created%5Bgte%5D=10&created%5Blt%5D=21&"), "{url}");
        for (asked, sent) in [(0, "limit=1&"), (1, "limit=1&"), (100, "limit=100&"), (255, "limit=100&")] {
            let url = requests.list(&ListQuery { limit: asked, ..whole() }).url().to_string();
            assert!(url.contains(sent), "{url}");
        }
    }

    #[test]
    fn a_path_of_the_base_is_kept_and_a_connected_account_is_named() {
        for base in ["https://proxy.example/stripe", "https://proxy.example/stripe/"] {
            let request = requests(base, Some("acct_1Ab")).retrieve(&id("pi_1"));
            assert_eq!(
                request.url().as_str(),
                "https://proxy.example/stripe/v1/payment_intents/pi_1?expand%5B%5D=latest_charge"
            );
            assert_eq!(request.headers().get("Stripe-Account").unwrap(), "acct_1Ab");
        }
        let refused = Requests::new(
            BaseUrl::parse("https://api.stripe.com").unwrap(),
            &ApiKey::parse("sk_test_1").unwrap(),
            Some("acct_1\r\nX: y"),
        );
        assert!(refused.unwrap_err().to_string().contains("STRIPE_ACCOUNT"));
    }

    #[test]
    fn no_debug_text_shows_the_key() {
        let requests = requests("https://api.stripe.com", None);
        for printed in [format!("{requests:?}"), format!("{:?}", requests.retrieve(&id("pi_1")))] {
            assert!(printed.contains("authorization") && !printed.contains("hush"), "{printed}");
        }
    }
}
