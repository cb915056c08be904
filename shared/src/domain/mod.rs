//! The pure part: words, ids, states and every decision. No serde, no tokio, no SQL, no HTTP, no clock.

pub mod classify;
pub mod external;
pub mod id;
pub mod learned;
pub mod orphan;
pub mod payment;
pub mod plan;
pub mod review;
pub mod severity;
pub mod verdict;

#[cfg(test)]
mod classify_tests;

/// A moment in UTC.
pub type Timestamp = time::OffsetDateTime;
