//! The request and the answer of a Lambda Function URL (payload format 2.0).

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// The largest body that is looked at, in bytes: 512 KiB. Stripe's are a few.
pub const BODY_MAX: usize = 512 * 1024;

/// The name of the header with the signature, in lower case.
const SIGNATURE: &str = "stripe-signature";

/// What came over the URL. `Debug` is not derived: the body holds the PaymentIntent's `client_secret`.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// The headers; several of one name are joined by Lambda with commas.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body as text, or in base64.
    #[serde(default)]
    pub body: Option<String>,
    /// Whether the body is in base64.
    #[serde(default)]
    pub is_base64_encoded: bool,
}

/// A body that is not looked at.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// More than [`BODY_MAX`].
    #[error("the body is longer than {BODY_MAX} bytes")]
    TooLong,
    /// Said to be in base64, and is not.
    #[error("the body is not in base64")]
    Base64(#[source] base64::DecodeError),
}

impl Request {
    /// The header with the signature, whatever the case of its name. Where several spellings are there, they are joined as
    /// Lambda does it; with two times, that is refused further on.
    pub fn signature(&self) -> String {
        let named = self.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(SIGNATURE));
        named.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(",")
    }

    /// The bytes that were sent. None are no error here: nothing signs them.
    pub fn raw_body(&self) -> Result<Vec<u8>, BodyError> {
        let text = self.body.as_deref().unwrap_or_default();
        let longest = if self.is_base64_encoded { BODY_MAX.div_ceil(3) * 4 } else { BODY_MAX };
        if text.len() > longest {
            return Err(BodyError::TooLong);
        }
        if !self.is_base64_encoded {
            return Ok(text.as_bytes().to_vec());
        }
        let bytes = STANDARD.decode(text).map_err(BodyError::Base64)?;
        if bytes.len() > BODY_MAX { Err(BodyError::TooLong) } else { Ok(bytes) }
    }
}

/// What goes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    /// The HTTP status. Stripe sends an event again after anything but 2xx.
    pub status_code: u16,
    /// The headers.
    pub headers: BTreeMap<&'static str, &'static str>,
    /// A few words, which Stripe's dashboard shows beside the delivery. Nothing of ours is in them.
    pub body: &'static str,
}

impl Response {
    /// An answer in plain text.
    pub fn new(status_code: u16, body: &'static str) -> Self {
        Self { status_code, headers: BTreeMap::from([("content-type", "text/plain; charset=utf-8")]), body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(event: serde_json::Value) -> Request {
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn a_header_is_found_whatever_its_case() {
        for name in ["stripe-signature", "Stripe-Signature", "STRIPE-SIGNATURE"] {
            assert_eq!(request(json!({"headers": {name: "t=1", "x": "y"}})).signature(), "t=1");
        }
        let twice = request(json!({"headers": {"Stripe-Signature": "t=1", "stripe-signature": "t=2"}}));
        assert_eq!(twice.signature(), "t=1,t=2");
        assert_eq!(request(json!({"headers": {}})).signature(), "");
        assert_eq!(request(json!({"version": "2.0"})).signature(), "");
    }

    #[test]
    fn the_body_is_the_bytes_that_were_sent() {
        let plain = |body: &str| request(json!({"body": body, "isBase64Encoded": false})).raw_body();
        let encoded = |body: &str| request(json!({"body": body, "isBase64Encoded": true})).raw_body();
        assert_eq!(plain("{\n \"é\"}").unwrap(), "{\n \"é\"}".as_bytes());
        assert_eq!(plain("/wA=").unwrap(), b"/wA=");
        assert_eq!(encoded("/wA=").unwrap(), [0xff, 0]);
        assert!(matches!(encoded("/wA"), Err(BodyError::Base64(_))));
        assert!(matches!(encoded("{}"), Err(BodyError::Base64(_))));
        assert_eq!(request(json!({"body": null})).raw_body().unwrap(), b"");
        assert_eq!(request(json!({})).raw_body().unwrap(), b"");
    }

    #[test]
    fn a_body_over_512_kib_is_refused() {
        let plain = |bytes: usize| request(json!({"body": "x".repeat(bytes)})).raw_body().map(|body| body.len());
        let encoded = |bytes: usize| {
            let body = STANDARD.encode(vec![b'x'; bytes]);
            request(json!({"body": body, "isBase64Encoded": true})).raw_body().map(|body| body.len())
        };
        assert_eq!(plain(BODY_MAX).unwrap(), BODY_MAX);
        assert_eq!(encoded(BODY_MAX).unwrap(), BODY_MAX);
        for more in [1, 2, 3, 4, 1_000_000] {
            assert!(matches!(plain(BODY_MAX + more), Err(BodyError::TooLong)), "{more}");
            assert!(matches!(encoded(BODY_MAX + more), Err(BodyError::TooLong)), "{more}");
        }
    }

    #[test]
    fn the_answer_has_the_form_of_a_function_url() {
        let answer = serde_json::to_value(Response::new(200, "ok")).unwrap();
        let headers = json!({"content-type": "text/plain; charset=utf-8"});
        assert_eq!(answer, json!({"statusCode": 200, "headers": headers, "body": "ok"}));
    }
}
