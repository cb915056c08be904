//! What was asked and what was said, for assertions: a log of the last requests, and counters that only grow until
//! they are cleared.

use std::collections::{BTreeMap, VecDeque};

use reconciler::domain::Timestamp;
use serde::Serialize;

use super::endpoint::Endpoint;

/// Older entries are forgotten; the counters are not.
pub const LOG_CAPACITY: usize = 200_000;

/// What a request was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Given {
    /// An answer with this HTTP status.
    Status(u16),
    /// The connection was closed without a byte.
    Dropped,
    /// Nothing yet: it is held.
    Held,
    /// Nothing: it was held, and the client went away first.
    Abandoned,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogEntry {
    /// From 1; grows by 1, also over a `clear`.
    pub sequence: u64,
    /// When it arrived.
    #[serde(serialize_with = "unix_milliseconds", rename = "at_unix_ms")]
    pub at: Timestamp,
    /// The operation.
    pub endpoint: Endpoint,
    /// The id in the path.
    pub id: Option<String>,
    /// What it was given.
    pub given: Given,
}

pub(super) fn unix_milliseconds<S: serde::Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_i128(at.unix_timestamp_nanos() / 1_000_000)
}

/// How many requests there were since the last `clear`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// All that arrived.
    pub arrived: u64,
    /// Those that arrived, by operation.
    pub by_endpoint: BTreeMap<Endpoint, u64>,
    /// Those that were answered, by HTTP status.
    pub by_status: BTreeMap<u16, u64>,
    /// Those whose connection was closed.
    pub dropped: u64,
    /// Those that are being held now; not changed by `clear`.
    pub held: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    entries: VecDeque<LogEntry>,
    last_sequence: u64,
    pub(super) counters: Counters,
}

impl Log {
    /// Takes down an arrival and gives its sequence. It is `Held` until something else is said.
    pub(super) fn arrival(&mut self, at: Timestamp, endpoint: Endpoint, id: Option<&str>) -> u64 {
        self.last_sequence += 1;
        self.counters.arrived += 1;
        *self.counters.by_endpoint.entry(endpoint).or_default() += 1;
        if self.entries.len() == LOG_CAPACITY {
            self.entries.pop_front();
        }
        let id = id.map(str::to_owned);
        self.entries.push_back(LogEntry { sequence: self.last_sequence, at, endpoint, id, given: Given::Held });
        self.last_sequence
    }

    /// Says what became of a request. One that was cleared away in the meantime is not counted.
    pub(super) fn settle(&mut self, sequence: u64, given: Given) {
        let Some(entry) = self.entries.iter_mut().rev().find(|entry| entry.sequence == sequence) else { return };
        entry.given = given;
        match given {
            Given::Status(status) => *self.counters.by_status.entry(status).or_default() += 1,
            Given::Dropped => self.counters.dropped += 1,
            Given::Held | Given::Abandoned => {}
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &LogEntry> {
        self.entries.iter()
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.counters = Counters { held: self.counters.held, ..Counters::default() };
    }
}
