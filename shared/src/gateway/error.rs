//! Why a call gave no fact, and what the caller has to do about it.

use std::fmt;
use std::time::Duration;

use crate::domain::id::ExternalRef;

/// Which call was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// One PaymentIntent.
    Retrieve(ExternalRef),
    /// One page.
    List {
        /// The page's cursor.
        starting_after: Option<ExternalRef>,
    },
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retrieve(id) => write!(f, "retrieve of {id}"),
            Self::List { starting_after: None } => f.write_str("list"),
            Self::List { starting_after: Some(id) } => write!(f, "list after {id}"),
        }
    }
}

/// The call, and what came back. Texts are bounded, on one line, and free of secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// What was asked.
    pub call: Call,
    /// The HTTP status, where there was an answer.
    pub http_status: Option<u16>,
    /// Stripe's `Request-Id`: what its support asks for.
    pub request_id: Option<String>,
    /// `code` of the error in the body.
    pub code: Option<String>,
    /// `message` of the error in the body.
    pub message: Option<String>,
}

impl Exchange {
    /// A call without an answer.
    pub fn unanswered(call: Call) -> Self {
        Self { call, http_status: None, request_id: None, code: None, message: None }
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.call)?;
        if let Some(status) = self.http_status {
            write!(f, ", HTTP {status}")?;
        }
        if let Some(code) = &self.code {
            write!(f, ", code {code}")?;
        }
        if let Some(id) = &self.request_id {
            write!(f, ", request {id}")?;
        }
        if let Some(message) = &self.message {
            write!(f, ", \"{message}\"")?;
        }
        Ok(())
    }
}

/// The value of `Stripe-Rate-Limited-Reason`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateLimitReason {
    /// The account's requests a second.
    GlobalRate,
    /// The account's requests under way.
    GlobalConcurrency,
    /// The endpoint's requests a second.
    EndpointRate,
    /// The endpoint's requests under way.
    EndpointConcurrency,
    /// Too many requests for one object.
    ResourceSpecific,
    /// Another word, as it stands.
    Other(String),
    /// No header, but `code: rate_limit` in the body.
    Unstated,
}

impl RateLimitReason {
    /// Every reason that is known today.
    pub const KNOWN: [Self; 5] = [
        Self::GlobalRate,
        Self::GlobalConcurrency,
        Self::EndpointRate,
        Self::EndpointConcurrency,
        Self::ResourceSpecific,
    ];

    /// Stripe's word.
    pub fn as_str(&self) -> &str {
        match self {
            Self::GlobalRate => "global-rate",
            Self::GlobalConcurrency => "global-concurrency",
            Self::EndpointRate => "endpoint-rate",
            Self::EndpointConcurrency => "endpoint-concurrency",
            Self::ResourceSpecific => "resource-specific",
            Self::Other(text) => text,
            Self::Unstated => "unstated",
        }
    }

    /// Reads Stripe's word; never fails.
    pub(super) fn from_header(text: &str) -> Self {
        Self::KNOWN.into_iter().find(|known| known.as_str() == text).unwrap_or_else(|| Self::Other(text.to_owned()))
    }
}

impl fmt::Display for RateLimitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why there is no answer for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransientCause {
    /// Stripe said so: 409, 5xx, or a 429 that is not its limiter's.
    Refused,
    /// It took longer than the settings allow.
    TimedOut,
    /// No connection.
    NotConnected,
    /// The connection ended, or went wrong, before the answer was complete.
    BrokenOff,
}

impl fmt::Display for TransientCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "refused for now",
            Self::TimedOut => "timed out",
            Self::NotConnected => "not connected",
            Self::BrokenOff => "broken off",
        })
    }
}

/// What is wrong with an answer. Names members and never shows values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// An HTTP status that is no answer to this call.
    Status,
    /// A 404 that does not speak of the PaymentIntent asked for: a wrong URL, or somebody in between.
    OtherNotFound,
    /// Longer than [`super::BODY_MAX_BYTES`].
    TooLong,
    /// Not JSON, or cut off.
    NotJson,
    /// Not one JSON object, or one that has a member twice.
    NotAnObject,
    /// `object` says that it is something else.
    OtherObject,
    /// The PaymentIntent has another id than the one asked for.
    OtherId,
    /// A member is missing or null.
    Missing(&'static str),
    /// A member is of another kind, or out of range.
    WrongKind(&'static str),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status => f.write_str("this HTTP status is no answer"),
            Self::OtherNotFound => f.write_str("this 404 is not about the payment intent"),
            Self::TooLong => f.write_str("the body is too long"),
            Self::NotJson => f.write_str("the body is not JSON"),
            Self::NotAnObject => f.write_str("it is not one JSON object with each member once"),
            Self::OtherObject => f.write_str("it is another kind of object"),
            Self::OtherId => f.write_str("it is another payment intent"),
            Self::Missing(member) => write!(f, "`{member}` is missing"),
            Self::WrongKind(member) => write!(f, "`{member}` is of the wrong kind"),
        }
    }
}

/// A call gave no fact. Nothing of it may count as a confirmation.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// Stripe's limiter: step back, for everybody.
    #[error("Stripe's limiter ({reason}) refused the call: {exchange}")]
    RateLimited {
        /// Which limit.
        reason: RateLimitReason,
        /// How long Stripe asks to wait, where it says so; at most an hour.
        retry_after: Option<Duration>,
        /// The call.
        exchange: Box<Exchange>,
    },
    /// No answer for now: worth another attempt.
    #[error("no answer from Stripe ({cause}): {exchange}")]
    Transient {
        /// In which way.
        cause: TransientCause,
        /// How long Stripe asks to wait, where it says so; at most an hour.
        retry_after: Option<Duration>,
        /// The call.
        exchange: Box<Exchange>,
        /// The network's error, where there was one.
        #[source]
        source: Option<reqwest::Error>,
    },
    /// 401 or 403: the key is wrong or has expired, lacks a permission, or the account is not ours.
    #[error(
        "Stripe refused the key (STRIPE_API_KEY or STRIPE_SECRET_ARN, and STRIPE_ACCOUNT if it is set): {exchange}"
    )]
    Unauthorized {
        /// The call.
        exchange: Box<Exchange>,
    },
    /// Stripe does not know `starting_after`, or it is outside of the window by now: list the window from its beginning.
    #[error("the page cursor is no good any more: {exchange}")]
    PageCursorInvalid {
        /// The call.
        exchange: Box<Exchange>,
    },
    /// A page that says `has_more` and is empty, or leads back to itself: going on would never end.
    #[error("the page says has_more and leads nowhere: {exchange}")]
    EndlessPage {
        /// The call.
        exchange: Box<Exchange>,
    },
    /// An answer that cannot be understood.
    #[error("an answer that cannot be read ({flaw}): {exchange}")]
    Unreadable {
        /// What is wrong with it.
        flaw: Flaw,
        /// The call.
        exchange: Box<Exchange>,
    },
}

/// What the caller has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Try again after a pause, a few times; then the payment is unverifiable.
    Retry,
    /// Send nothing more in this batch, and make all functions slower.
    StopBatch {
        /// How long Stripe asks to wait, where it says so.
        retry_after: Option<Duration>,
    },
    /// End the tick as failed, with nothing written.
    EndTick,
    /// Another attempt would end in the same way: the payment is unverifiable, or the window has to be listed anew.
    GiveUp,
}

impl GatewayError {
    /// What the caller has to do. Whoever pages looks for [`GatewayError::PageCursorInvalid`] first.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::RateLimited { retry_after, .. } => Remedy::StopBatch { retry_after: *retry_after },
            Self::Transient { .. } => Remedy::Retry,
            Self::Unauthorized { .. } => Remedy::EndTick,
            Self::PageCursorInvalid { .. } | Self::EndlessPage { .. } | Self::Unreadable { .. } => Remedy::GiveUp,
        }
    }

    /// The call, and what came back.
    pub fn exchange(&self) -> &Exchange {
        match self {
            Self::RateLimited { exchange, .. }
            | Self::Transient { exchange, .. }
            | Self::Unauthorized { exchange }
            | Self::PageCursorInvalid { exchange }
            | Self::EndlessPage { exchange }
            | Self::Unreadable { exchange, .. } => exchange,
        }
    }
}
