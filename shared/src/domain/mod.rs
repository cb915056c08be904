//! The pure part: words, ids, states and every decision. No serde, no tokio, no SQL, no HTTP, no clock.

pub mod external;
pub mod id;

/// A moment in UTC.
pub type Timestamp = time::OffsetDateTime;
