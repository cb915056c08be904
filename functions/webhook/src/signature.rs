//! The signature of a delivery, pure. It is good if and only if
//!
//! - the header names exactly one `t`, in digits, and at least one `v1` (other schemes are ignored, so that nobody can
//!   downgrade to them);
//! - `t` is within 300 seconds of `now`, before or after;
//! - one `v1`, 64 lower-case hex digits, is the HMAC-SHA256 of `<t>.<raw body>` with one of the secrets.
//!
//! Two `t` are refused, since the one that is checked for its age and the one that is signed could be different ones. The
//! body is taken as it came: one that was parsed and written again has other bytes.

use hmac::{Hmac, KeyInit, Mac};
use reconciler::config::Secret;
use reconciler::domain::Timestamp;
use sha2::Sha256;

/// How far the signature's time may be from ours, in seconds, in both directions.
pub const TOLERANCE_SECONDS: u64 = 300;

/// The length of an HMAC-SHA256 in bytes.
const TAG_LEN: usize = 32;

/// A delivery that is not known to be Stripe's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// There is no header, or it is not of the form `t=…,v1=…`.
    #[error("the header Stripe-Signature is missing, or does not read t=…,v1=… with exactly one t")]
    Malformed,
    /// Signed too long ago or too far ahead: a replay, or a clock that is wrong.
    #[error("the signature's time {signed_at} is more than {TOLERANCE_SECONDS} s away from ours")]
    OutOfTolerance {
        /// The header's `t`, Unix seconds.
        signed_at: i64,
    },
    /// No `v1` is the one of any secret.
    #[error("no signature in the header was made with a secret of ours over this body")]
    NoMatch,
}

/// Whether `header` signs `body` with one of the secrets. Comparisons take the same time wherever they differ.
pub fn verify(header: &str, body: &[u8], secrets: &[Secret], now: Timestamp) -> Result<(), SignatureError> {
    let Header { time, signed_at, tags } = parse(header)?;
    if signed_at.abs_diff(now.unix_timestamp()) > TOLERANCE_SECONDS {
        return Err(SignatureError::OutOfTolerance { signed_at });
    }
    for secret in secrets {
        // HMAC takes a key of any length
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.reveal().as_bytes()) else { continue };
        mac.update(time.as_bytes());
        mac.update(b".");
        mac.update(body);
        if tags.iter().any(|tag| mac.clone().verify_slice(tag).is_ok()) {
            return Ok(());
        }
    }
    Err(SignatureError::NoMatch)
}

struct Header<'a> {
    /// `t` as it is written, for that is what is signed.
    time: &'a str,
    signed_at: i64,
    /// The well-formed ones among the `v1`.
    tags: Vec<[u8; TAG_LEN]>,
}

fn parse(header: &str) -> Result<Header<'_>, SignatureError> {
    let mut time = None;
    let mut tags = Vec::new();
    let mut any_v1 = false;
    for item in header.split(',') {
        match item.split_once('=') {
            Some(("t", value)) if time.is_none() => time = Some(value),
            Some(("t", _second)) => return Err(SignatureError::Malformed),
            Some(("v1", value)) => {
                any_v1 = true;
                tags.extend(tag(value));
            }
            Some(_) | None => {}
        }
    }
    let time = time.filter(|_| any_v1).ok_or(SignatureError::Malformed)?;
    let signed_at = Some(time)
        .filter(|time| time.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|time| time.parse().ok())
        .ok_or(SignatureError::Malformed)?;
    Ok(Header { time, signed_at, tags })
}

/// 64 lower-case hex digits. Stripe writes no others, and one signature is to have one spelling.
fn tag(hex: &str) -> Option<[u8; TAG_LEN]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs.iter().map(|[high, low]| Some(digit(*high)? * 16 + digit(*low)?)).collect();
    bytes.filter(|_| rest.is_empty())?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const SECRET: &str = "whsec_test";
    const AT: i64 = 1_795_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_timestamp(seconds).unwrap()
    }

    fn hex(secret: &str, time: &str, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(&[time.as_bytes(), b".", body].concat());
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn judge(header: &str, body: &[u8]) -> Result<(), SignatureError> {
        verify(header, body, &[Secret::new("whsec_other"), Secret::new(SECRET)], at(AT))
    }

    #[test]
    fn the_official_sdks_judge_all_vectors_alike() {
        let vectors: Vec<Value> = serde_json::from_str(include_str!("../tests/signature-vectors.json")).unwrap();
        assert!(vectors.len() >= 9, "{}", vectors.len());
        for vector in &vectors {
            let text = |key: &str| vector[key].as_str().unwrap();
            let now = at(vector["at"].as_i64().unwrap());
            let judged = verify(text("header"), text("payload").as_bytes(), &[Secret::new(text("secret"))], now);
            assert_eq!(judged.is_ok(), vector["accept"].as_bool().unwrap(), "{}: {judged:?}", text("name"));
        }
    }

    #[test]
    fn any_v1_with_any_secret_is_enough_and_other_schemes_are_nothing() {
        let body = b"\xff\x00 any bytes";
        let good = hex(SECRET, "1795000000", body);
        let zero = "0".repeat(64);
        for header in [
            format!("t={AT},v1={good}"),
            format!("v1={good},t={AT}"),
            format!("t={AT},v1={zero},v1=nonsense,v1={good},v1={zero}"),
            format!("t={AT},v0={zero},v1={good},v2=x,,rest"),
        ] {
            assert_eq!(judge(&header, body), Ok(()), "{header}");
        }
        for header in [
            format!("t={AT},v1={zero}"),
            format!("t={AT},v1={}", good.to_uppercase()),
            format!("t={AT},v1={}", &good[..62]),
            format!("t={AT},v1={}", &good[..63]),
            format!("t={AT},v1={good}00"),
            format!("t={AT},v1= {good}"),
            format!("t={AT},v1="),
            format!("t=1795000001,v1={good}"),
            format!("t=01795000000,v1={good}"),
        ] {
            assert_eq!(judge(&header, body), Err(SignatureError::NoMatch), "{header}");
        }
        assert_eq!(verify(&format!("t={AT},v1={good}"), body, &[], at(AT)), Err(SignatureError::NoMatch));
        assert_eq!(judge(&format!("t={AT},v1={good}"), b"\xff\x00 any byte"), Err(SignatureError::NoMatch));
    }

    #[test]
    fn a_header_of_another_form_is_refused() {
        let body = b"{}";
        let good = hex(SECRET, "1795000000", body);
        for header in [
            String::new(),
            format!("v1={good}"),
            format!("t={AT}"),
            format!("t={AT},v0={good}"),
            format!("t={AT},t={AT},v1={good}"),
            format!("t=1,v1={good},t={AT}"),
            format!("t=,v1={good}"),
            format!("t=+{AT},v1={good}"),
            format!("t=-{AT},v1={good}"),
            format!("t= {AT},v1={good}"),
            format!("t={AT}.0,v1={good}"),
            format!("t=99999999999999999999,v1={good}"),
            format!("T={AT},V1={good}"),
        ] {
            assert_eq!(judge(&header, body), Err(SignatureError::Malformed), "{header}");
        }
    }

    #[test]
    fn the_tolerance_runs_both_ways() {
        for (away, good) in [(-301, false), (-300, true), (0, true), (300, true), (301, false)] {
            let signed_at = AT + away;
            let header = format!("t={signed_at},v1={}", hex(SECRET, &signed_at.to_string(), b"{}"));
            let expected = if good { Ok(()) } else { Err(SignatureError::OutOfTolerance { signed_at }) };
            assert_eq!(judge(&header, b"{}"), expected, "{away}");
        }
        let far = format!("t={},v1={}", i64::MAX, hex(SECRET, &i64::MAX.to_string(), b"{}"));
        assert_eq!(judge(&far, b"{}"), Err(SignatureError::OutOfTolerance { signed_at: i64::MAX }));
    }

    #[test]
    fn a_body_that_was_written_again_is_refused() {
        let vectors: Vec<Value> = serde_json::from_str(include_str!("../tests/signature-vectors.json")).unwrap();
        let text = |key: &str| vectors[0][key].as_str().unwrap();
        let again = serde_json::from_str::<Value>(text("payload")).unwrap().to_string();
        let judged = verify(text("header"), again.as_bytes(), &[Secret::new(text("secret"))], at(AT));
        assert_eq!(judged, Err(SignatureError::NoMatch));
    }
}
