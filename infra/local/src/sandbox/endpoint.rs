//! Which operation a method and a path name. Stripe limits each operation on its own, whatever the id.

use serde::{Deserialize, Serialize};

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// `POST /v1/payment_intents`
    Create,
    /// `GET /v1/payment_intents`
    List,
    /// `GET /v1/payment_intents/{id}`
    Retrieve,
    /// `POST /v1/payment_intents/{id}`
    Update,
    /// `POST /v1/payment_intents/{id}/confirm`
    Confirm,
    /// `POST /v1/payment_intents/{id}/capture`
    Capture,
    /// `POST /v1/payment_intents/{id}/cancel`
    Cancel,
    /// Any other method or path.
    Unrecognized,
}

impl Endpoint {
    /// Every operation.
    pub const ALL: [Self; 8] = [
        Self::Create,
        Self::List,
        Self::Retrieve,
        Self::Update,
        Self::Confirm,
        Self::Capture,
        Self::Cancel,
        Self::Unrecognized,
    ];

    /// Whether a restricted key needs write access.
    pub(super) fn writes(self) -> bool {
        match self {
            Self::Create | Self::Update | Self::Confirm | Self::Capture | Self::Cancel => true,
            Self::List | Self::Retrieve | Self::Unrecognized => false,
        }
    }
}

/// The operation, and the id in the path where it has one (still percent-encoded: no id of ours needs it).
pub(super) fn route<'a>(method: &str, path: &'a str) -> (Endpoint, Option<&'a str>) {
    let Some(rest) = path.strip_prefix("/v1/payment_intents") else { return (Endpoint::Unrecognized, None) };
    let segments: Vec<&str> = rest.split('/').collect();
    match (method, segments.as_slice()) {
        ("POST", [""]) => (Endpoint::Create, None),
        ("GET", [""]) => (Endpoint::List, None),
        // The search is an endpoint of its own, which is not imitated.
        (_, ["", ""] | ["", "", ..] | ["", "search"]) => (Endpoint::Unrecognized, None),
        ("GET", ["", id]) => (Endpoint::Retrieve, Some(id)),
        ("POST", ["", id]) => (Endpoint::Update, Some(id)),
        ("POST", ["", id, "confirm"]) => (Endpoint::Confirm, Some(id)),
        ("POST", ["", id, "capture"]) => (Endpoint::Capture, Some(id)),
        ("POST", ["", id, "cancel"]) => (Endpoint::Cancel, Some(id)),
        _ => (Endpoint::Unrecognized, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn method_and_path_name_the_operation() {
        for (method, path, expected) in [
            ("GET", "/v1/payment_intents", (Endpoint::List, None)),
            ("POST", "/v1/payment_intents", (Endpoint::Create, None)),
            ("GET", "/v1/payment_intents/pi_1", (Endpoint::Retrieve, Some("pi_1"))),
            ("POST", "/v1/payment_intents/pi_1", (Endpoint::Update, Some("pi_1"))),
            ("POST", "/v1/payment_intents/pi_1/confirm", (Endpoint::Confirm, Some("pi_1"))),
            ("POST", "/v1/payment_intents/pi_1/capture", (Endpoint::Capture, Some("pi_1"))),
            ("POST", "/v1/payment_intents/pi_1/cancel", (Endpoint::Cancel, Some("pi_1"))),
            ("GET", "/v1/payment_intents/", (Endpoint::Unrecognized, None)),
            ("GET", "/v1/payment_intents//", (Endpoint::Unrecognized, None)),
            ("GET", "/v1/payment_intents/search", (Endpoint::Unrecognized, None)),
            ("GET", "/v1/payment_intents/pi_1/confirm", (Endpoint::Unrecognized, None)),
            ("DELETE", "/v1/payment_intents/pi_1", (Endpoint::Unrecognized, None)),
            ("GET", "/v1/payment_intentsx", (Endpoint::Unrecognized, None)),
            ("GET", "/v1/charges", (Endpoint::Unrecognized, None)),
        ] {
            assert_eq!(route(method, path), expected, "{method} {path}");
        }
    }
}
