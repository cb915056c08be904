//! The process's clock, so that time is a parameter: the system's, or one that a test moves.
//!
//! It says when a tick has to end and it waits. What is compared across processes (slots, observations, ages) is the
//! database's time and does not come from here.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::domain::Timestamp;

/// Where the time comes from.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's clock and tokio's timer.
    System,
    /// A clock that stands still but for [`Clock::advance`], and for waiting, which moves it at once.
    Manual(Arc<Mutex<Timestamp>>),
}

impl Clock {
    /// A clock that stands at `start`.
    pub fn manual(start: Timestamp) -> Self {
        Self::Manual(Arc::new(Mutex::new(start)))
    }

    /// The time now.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now_utc(),
            Self::Manual(at) => *at.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Waits for `duration`. A manual clock moves on by it and goes on at once.
    #[expect(clippy::disallowed_methods, reason = "the one place that waits")]
    pub async fn sleep(&self, duration: Duration) {
        match self {
            Self::System => tokio::time::sleep(duration).await,
            Self::Manual(_) => self.advance(duration),
        }
    }

    /// Comes back when the time has come to `at`. A manual clock does not come to it by itself: nothing else would get a
    /// turn before.
    pub async fn reach(&self, at: Timestamp) {
        match self {
            Self::System => self.sleep(Duration::try_from(at - self.now()).unwrap_or_default()).await,
            Self::Manual(_) => std::future::pending().await,
        }
    }

    /// Moves a manual clock on; the system's clock goes by itself.
    pub fn advance(&self, duration: Duration) {
        match self {
            Self::System => {}
            Self::Manual(at) => *at.lock().unwrap_or_else(PoisonError::into_inner) += duration,
        }
    }

    /// What a statement has to be given instead of the database's clock: nothing, but for a manual clock.
    pub fn instead_of_the_databases(&self) -> Option<Timestamp> {
        match self {
            Self::System => None,
            Self::Manual(_) => Some(self.now()),
        }
    }
}
