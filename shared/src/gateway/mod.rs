//! Stripe: one trait, a pure request builder, a pure decoder and a thin sender.
//!
//! An answer is a fact if and only if
//!
//! - it came with HTTP 200, is JSON, and is the PaymentIntent that was asked for (or a page of them); or
//! - it came with HTTP 404, `code: resource_missing` and `param: intent`, about that same id.
//!
//! Everything else is a [`GatewayError`], which says what the caller has to do ([`GatewayError::remedy`]). Stripe's body
//! has only four values of `type`, so errors are told apart by HTTP status, code and header. A 404 of another kind (an
//! unrecognised URL, a proxy's page) is not absence: taken for it, a wrong base URL would make a finding of every payment.
//!
//! The calls make one attempt. Whoever calls paces, retries, and counts.
//!
//! Parsing is lenient where Stripe may grow (unknown members, unknown statuses, members left out) and strict where money
//! is: id, status, created, amount, currency and livemode have to be there, and amounts are whole numbers. `client_secret`
//! is never decoded. No key and no client secret is in any error or `Debug` of this module.

mod client;
mod decode;
mod error;
mod intent;
mod redact;
mod request;
mod settings;

use std::future::Future;

use crate::domain::Timestamp;
use crate::domain::external::{External, ExternalPayment};
use crate::domain::id::ExternalRef;

pub use client::{BODY_MAX_BYTES, StripeClient, install_tls_provider};
pub use decode::{Answer, decode_list, decode_retrieve};
pub use error::{Call, Exchange, Flaw, GatewayError, RateLimitReason, Remedy, TransientCause};
pub use request::{API_VERSION, Requests};
pub use settings::{ApiKey, BaseUrl, Mode, SettingsError};

/// Reads PaymentIntents. The client and every fake pass the same conformance suite.
pub trait Gateway: Send + Sync {
    /// The state of one PaymentIntent now. One attempt, no retry (the caller paces and retries).
    fn retrieve(&self, id: &ExternalRef) -> impl Future<Output = Result<External, GatewayError>> + Send;

    /// One page of PaymentIntents, newest first. One attempt, no retry.
    ///
    /// It proves presence only: what is not on a page has to be retrieved before it counts as absent.
    fn list(&self, query: &ListQuery) -> impl Future<Output = Result<ListPage, GatewayError>> + Send;

    /// Whether it reads live mode; `None` where that is not known. An object of the other mode is no answer on a page.
    fn livemode(&self) -> Option<bool> {
        None
    }
}

/// The most PaymentIntents on one page.
pub const PAGE_MAX: u8 = 100;

/// Which page to list. The window is half-open, in Stripe's `created`, which has whole seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListQuery {
    /// `created[gte]`; a part of a second is rounded down.
    pub created_from: Option<Timestamp>,
    /// `created[lt]`; a part of a second is rounded up, so that the window is never narrower than what was asked.
    pub created_before: Option<Timestamp>,
    /// Objects on the page, 1 to [`PAGE_MAX`]; the nearest of these is sent for any other number.
    pub limit: u8,
    /// The last object of the page before ([`ListPage::next`]); gives older ones.
    pub starting_after: Option<ExternalRef>,
}

/// One page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage {
    /// What could be read, newest first.
    pub payments: Vec<ExternalPayment>,
    /// What was on the page and could not be read: as little a fact as a missing answer.
    pub unreadable: Vec<UnreadableObject>,
    /// `starting_after` of the next page. `Some` exactly where Stripe said `has_more`; a window is complete only at `None`.
    pub next: Option<ExternalRef>,
}

impl ListPage {
    /// Whether Stripe has older objects in this window.
    pub fn has_more(&self) -> bool {
        self.next.is_some()
    }
}

/// An object on a page that is no readable PaymentIntent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableObject {
    /// Its id, where that much could be read.
    pub id: Option<ExternalRef>,
    /// What is wrong with it.
    pub flaw: Flaw,
}
