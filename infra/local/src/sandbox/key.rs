//! API keys and what they may do.
//!
//! Every well-formed secret or restricted key is accepted until it is told otherwise, so that a test needs no
//! set-up. A restricted key may read PaymentIntents and charges and nothing else, which is what this project asks
//! its users to grant.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::error::ApiError;
use super::wire::Request;

/// What a restricted key can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// Read PaymentIntents.
    PaymentIntentRead,
    /// Write PaymentIntents, which includes reading them.
    PaymentIntentWrite,
    /// Read charges, which expanding `latest_charge` needs.
    ChargeRead,
}

impl Permission {
    fn rak(self) -> &'static str {
        match self {
            Self::PaymentIntentRead => "rak_payment_intent_read",
            Self::PaymentIntentWrite => "rak_payment_intent_write",
            Self::ChargeRead => "rak_charge_read",
        }
    }
}

/// What a key is good for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grant {
    /// Everything.
    Full,
    /// Only these.
    Restricted(BTreeSet<Permission>),
    /// It was good once: 401 `api_key_expired`.
    Expired,
    /// No such key: 401.
    Unknown,
}

impl Grant {
    fn by_default(restricted: bool) -> Self {
        if restricted {
            Self::Restricted([Permission::PaymentIntentRead, Permission::ChargeRead].into())
        } else {
            Self::Full
        }
    }
}

/// Who is asking.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) livemode: bool,
    key: String,
    grant: Grant,
}

impl Caller {
    /// 403 where a restricted key lacks the permission.
    pub(super) fn require(&self, permission: Permission, account_id: &str) -> Result<(), ApiError> {
        let granted = match &self.grant {
            Grant::Full => true,
            Grant::Restricted(set) => {
                set.contains(&permission)
                    || (permission == Permission::PaymentIntentRead && set.contains(&Permission::PaymentIntentWrite))
            }
            Grant::Expired | Grant::Unknown => false,
        };
        if granted {
            return Ok(());
        }
        Err(forbidden(&self.key, permission, account_id))
    }

    /// The key as Stripe quotes it.
    pub(super) fn masked_key(&self) -> String {
        mask(&self.key)
    }
}

/// The caller, or the 401 (403 for a publishable key) that the key earns.
pub(super) fn authenticate(request: &Request, grants: &BTreeMap<String, Grant>) -> Result<Caller, ApiError> {
    let Some(key) = presented(request) else { return Err(missing(request.header_value("Authorization"))) };
    if key.starts_with("pk_") {
        return Err(ApiError::invalid(
            403,
            "This API call cannot be made with a publishable API key. Please use a secret API key. You can find a \
             list of your API keys at https://dashboard.stripe.com/account/apikeys.",
        )
        .code("secret_key_required"));
    }
    let Some((restricted, livemode)) = read(&key) else { return Err(invalid(&key)) };
    let grant = grants.get(&key).cloned().unwrap_or_else(|| Grant::by_default(restricted));
    match &grant {
        Grant::Full | Grant::Restricted(_) => Ok(Caller { livemode, key, grant }),
        Grant::Expired => Err(expired(&key)),
        Grant::Unknown => Err(invalid(&key)),
    }
}

/// What Stripe says to a key that it does not know.
pub(super) fn invalid(key: &str) -> ApiError {
    unauthorized(format!("Invalid API Key provided: {}", mask(key)))
}

/// What Stripe says to a key that was good once.
pub(super) fn expired(key: &str) -> ApiError {
    unauthorized(format!("Expired API Key provided: {}", mask(key))).code("api_key_expired")
}

/// What Stripe says to a restricted key that lacks a permission.
pub(super) fn forbidden(key: &str, permission: Permission, account_id: &str) -> ApiError {
    ApiError::invalid(
        403,
        format!(
            "The provided key '{}' does not have the required permissions for this endpoint on account \
             '{account_id}'. Having the '{}' permission would allow this request to continue.",
            mask(key),
            permission.rak()
        ),
    )
}

/// The key in the request, whatever it is worth.
pub(super) fn presented(request: &Request) -> Option<String> {
    let header = request.header_value("Authorization")?;
    let (scheme, rest) = header.split_once(' ')?;
    let key = if scheme.eq_ignore_ascii_case("bearer") {
        rest.trim().to_owned()
    } else if scheme.eq_ignore_ascii_case("basic") {
        // `curl -u KEY:` sends the key as the user's name.
        let decoded = String::from_utf8(decode_base64(rest.trim())?).ok()?;
        decoded.split_once(':').map_or(decoded.as_str(), |(user, _)| user).to_owned()
    } else {
        return None;
    };
    (!key.is_empty()).then_some(key)
}

/// Whether the key is a live one; `None` for what is not a secret or restricted key.
pub(super) fn livemode(key: &str) -> Option<bool> {
    read(key).map(|(_, livemode)| livemode)
}

fn read(key: &str) -> Option<(bool, bool)> {
    let (restricted, rest) = match (key.strip_prefix("sk_"), key.strip_prefix("rk_")) {
        (Some(rest), _) => (false, rest),
        (None, Some(rest)) => (true, rest),
        (None, None) => return None,
    };
    let (livemode, rest) = match (rest.strip_prefix("live_"), rest.strip_prefix("test_")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return None,
    };
    let well_formed = !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    well_formed.then_some((restricted, livemode))
}

fn unauthorized(message: impl Into<String>) -> ApiError {
    ApiError::invalid(401, message).header("WWW-Authenticate", "Bearer realm=\"Stripe\"")
}

fn missing(header: Option<&str>) -> ApiError {
    let (begin, end) = match header {
        None => (
            "You did not provide an API key. You need to provide your API key in the Authorization header, using \
             Bearer auth (e.g. 'Authorization: Bearer YOUR_SECRET_KEY')."
                .to_owned(),
            "",
        ),
        Some(given) => (
            format!("You did not provide an API key, though you did set your Authorization header to \"{given}\"."),
            " Using Bearer auth, your Authorization header should look something like 'Authorization: Bearer \
             YOUR_SECRET_KEY'.",
        ),
    };
    unauthorized(format!(
        "{begin}{end} See https://stripe.com/docs/api#authentication for details, or we can help at \
         https://support.stripe.com/."
    ))
}

/// A key as Stripe quotes it: the prefix, stars, and the last four characters (six of a long one).
fn mask(key: &str) -> String {
    let prefix = ["sk_live_", "sk_test_", "rk_live_", "rk_test_"].into_iter().find(|prefix| key.starts_with(prefix));
    let prefix = prefix.unwrap_or_default();
    let secret: Vec<char> = key.chars().skip(prefix.len()).collect();
    let shown = if secret.len() > 40 { 6 } else { 4.min(secret.len() / 2) };
    let hidden = secret.len() - shown;
    format!("{prefix}{}{}", "*".repeat(hidden), secret.iter().skip(hidden).collect::<String>())
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut buffer, mut bits) = (0_u32, 0_u32);
    for symbol in text.trim_end_matches('=').bytes() {
        let value = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a' + 26,
            b'0'..=b'9' => symbol - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        buffer = (buffer << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from((buffer >> bits) & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(authorization: Option<&str>) -> Result<bool, u16> {
        let mut request = Request::new("GET", "/v1/payment_intents");
        if let Some(value) = authorization {
            request = request.header("authorization", value);
        }
        authenticate(&request, &BTreeMap::new()).map(|caller| caller.livemode).map_err(|error| error.status)
    }

    #[test]
    fn the_prefix_decides_the_mode_and_anything_else_is_refused() {
        assert_eq!(status(Some("Bearer sk_test_abc")), Ok(false));
        assert_eq!(status(Some("bearer rk_live_abc")), Ok(true));
        // `sk_test_abc:` as `curl -u` sends it.
        assert_eq!(status(Some("Basic c2tfdGVzdF9hYmM6")), Ok(false));
        for refused in
            [None, Some("Bearer "), Some("null"), Some("Bearer sk_abc"), Some("Bearer sk_test_"), Some("Basic !")]
        {
            assert_eq!(status(refused), Err(401), "{refused:?}");
        }
        assert_eq!(status(Some("Bearer pk_test_abc")), Err(403));
    }

    #[test]
    fn a_quoted_key_never_shows_its_middle() {
        assert_eq!(mask("sk_test_placeholder"), "sk_test_*******lder");
        let long = format!("rk_live_{}qs8Kgd", "x".repeat(93));
        assert_eq!(mask(&long), format!("rk_live_{}qs8Kgd", "*".repeat(93)));
        assert_eq!(mask("ab"), "*b");
    }
}
