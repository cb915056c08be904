//! The header `Stripe-Signature`, written from Stripe's documentation and not with the verifier's code.

use std::fmt::Write;

use hmac::{Hmac, KeyInit, Mac};
use reconciler::domain::Timestamp;
use sha2::Sha256;

/// `t=…,v1=…`, with a v1 for each secret. In test mode a v0 follows, which signs nothing: Stripe adds one so that a
/// receiver that takes any scheme is found out.
pub(super) fn header(secrets: &[String], body: &[u8], livemode: bool, now: Timestamp) -> String {
    let time = now.unix_timestamp().to_string();
    let mut header = format!("t={time}");
    for secret in secrets {
        header.push_str(",v1=");
        header.push_str(&tag(secret, &[time.as_bytes(), b".", body]));
    }
    if !livemode {
        header.push_str(",v0=");
        header.push_str(&tag("v0", &[time.as_bytes()]));
    }
    header
}

fn tag(secret: &str, parts: &[&[u8]]) -> String {
    let mut hex = String::new();
    // HMAC takes a key of any length
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else { return hex };
    parts.iter().for_each(|part| mac.update(part));
    for byte in mac.finalize().into_bytes() {
        match write!(hex, "{byte:02x}") {
            // a String takes everything
            Ok(()) | Err(_) => {}
        }
    }
    hex
}
