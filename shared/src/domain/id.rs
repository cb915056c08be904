//! Ids as types: a payment's key here, and a PaymentIntent's id at Stripe.

use std::fmt;

/// The key of a payment, as text whatever its SQL type is (`id::text` of the view `reconciliation.payment`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PaymentId(String);

impl PaymentId {
    /// Takes the key as Postgres prints it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The key as Postgres prints it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PaymentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The longest id that Stripe gives out, in bytes.
pub const EXTERNAL_REF_MAX_LEN: usize = 255;

/// What a client secret has and an id has not: `pi_…_secret_…`.
pub const CLIENT_SECRET_MARK: &str = "_secret_";

/// The id of a PaymentIntent: `^pi_[A-Za-z0-9_]+$`, at most 255 bytes, and no client secret.
///
/// Only a value of this type is ever put into a URL. An empty reference would turn "retrieve" into "list", and
/// one with a slash into some other endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExternalRef(String);

impl ExternalRef {
    /// `None` where the text does not look like the id of a PaymentIntent.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("pi_")?;
        let well_formed = !rest.is_empty()
            && !text.contains(CLIENT_SECRET_MARK)
            && text.len() <= EXTERNAL_REF_MAX_LEN
            && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        well_formed.then(|| Self(text.to_owned()))
    }

    /// The id as Stripe writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ExternalRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_looks_like_a_payment_intent_is_a_reference() {
        let longest = format!("pi_{}", "x".repeat(EXTERNAL_REF_MAX_LEN - 3));
        for good in ["pi_1", "pi_3MtwBwLkdIwHu7ix28a3tqPa", "pi_a_b", longest.as_str()] {
            assert_eq!(ExternalRef::parse(good).map(|r| r.as_str().to_owned()), Some(good.to_owned()));
        }
        let too_long = format!("pi_{}", "x".repeat(EXTERNAL_REF_MAX_LEN - 2));
        for bad in [
            "",
            "pi_1_secret_2",
            "pi_",
            "PI_1",
            "ch_1",
            " pi_1",
            "pi_1 ",
            "pi_1/../x",
            "pi_1?a=b",
            "pi_ü",
            "pi_1\n",
            too_long.as_str(),
        ] {
            assert_eq!(ExternalRef::parse(bad), None, "{bad:?}");
        }
    }
}
