//! Stripe's rate limits: so many requests a second for the account, and so many for each operation.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use reconciler::domain::Timestamp;
use serde::{Deserialize, Serialize};

use super::account::Space;
use super::endpoint::Endpoint;
use super::error::ApiError;

/// Requests a second; `None` is no limit. A burst of one second's worth is let through.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// All operations together.
    pub global: Option<NonZeroU32>,
    /// Each operation, where `per_endpoint` says nothing else.
    pub endpoint: Option<NonZeroU32>,
    /// Single operations.
    pub per_endpoint: BTreeMap<Endpoint, NonZeroU32>,
}

impl Limits {
    /// What Stripe publishes: 100 a second in live mode, 25 in a sandbox, and 25 for each operation.
    pub fn published(livemode: bool) -> Self {
        let global = NonZeroU32::new(if livemode { 100 } else { 25 });
        Self { global, endpoint: NonZeroU32::new(25), per_endpoint: BTreeMap::new() }
    }
}

/// The value of `Stripe-Rate-Limited-Reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitReason {
    /// Requests a second, whole account.
    GlobalRate,
    /// Requests at a time, whole account.
    GlobalConcurrency,
    /// Requests a second, one operation.
    EndpointRate,
    /// Requests at a time, one operation.
    EndpointConcurrency,
    /// A limit of one object or resource.
    ResourceSpecific,
}

impl LimitReason {
    /// Stripe's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::GlobalRate => "global-rate",
            Self::GlobalConcurrency => "global-concurrency",
            Self::EndpointRate => "endpoint-rate",
            Self::EndpointConcurrency => "endpoint-concurrency",
            Self::ResourceSpecific => "resource-specific",
        }
    }
}

/// The 429 of the limiter.
pub(super) fn rate_limited(reason: LimitReason) -> ApiError {
    ApiError::invalid(
        429,
        "Request rate limit exceeded. Learn more about rate limits here https://stripe.com/docs/rate-limits.",
    )
    .code("rate_limit")
    .header("Stripe-Rate-Limited-Reason", reason.as_str())
}

/// When each bucket is next empty (theoretical arrival time, in nanoseconds since 1970).
#[derive(Clone, Debug, Default)]
pub(super) struct Limiter {
    empty_at: BTreeMap<(Space, Option<Endpoint>), i128>,
}

const SECOND: i128 = 1_000_000_000;

impl Limiter {
    /// Takes a token from both buckets, or from neither and says which was empty.
    pub(super) fn admit(
        &mut self,
        limits: &Limits,
        space: &Space,
        endpoint: Endpoint,
        now: Timestamp,
    ) -> Result<(), LimitReason> {
        let own = limits.per_endpoint.get(&endpoint).copied().or(limits.endpoint);
        let mut taken = Vec::new();
        for (scope, rate, reason) in
            [(None, limits.global, LimitReason::GlobalRate), (Some(endpoint), own, LimitReason::EndpointRate)]
        {
            let Some(rate) = rate else { continue };
            let key = (space.clone(), scope);
            let interval = SECOND / i128::from(rate.get());
            let now = now.unix_timestamp_nanos();
            let empty_at = self.empty_at.get(&key).copied().unwrap_or(now).max(now);
            if empty_at - now > SECOND - interval {
                return Err(reason);
            }
            taken.push((key, empty_at + interval));
        }
        self.empty_at.extend(taken);
        Ok(())
    }
}
