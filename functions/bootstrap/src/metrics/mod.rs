//! Metrics: each tick of a Lambda function writes one record of CloudWatch's Embedded Metric Format to standard output, and
//! one more for each kind of finding that moved (each job, for `lag-metric`), since a dimension has one value in a record.
//!
//! A [`Tick`] that is let go of without an end has failed: it writes its record all the same, with `Failed` at 1. So an error
//! and a panic show, and an alarm can tell a function that fails from one that is silent.

pub mod catalogue;
mod emf;
mod scan;

use std::io::Write;

use reconciler::clock::Clock;
use reconciler::domain::Timestamp;

use catalogue::{DURATION, FAILED, Function, Metric, Nature, RecordKind};
pub use emf::{EmfError, lines};
pub use scan::records as scan_records;

/// One record: its dimensions' values, and its metrics'.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Names and values.
    pub dimensions: Vec<(&'static str, String)>,
    /// Texts that are no dimension: for reading the log, without a metric of their own.
    pub properties: Vec<(&'static str, String)>,
    /// Metrics and values.
    pub values: Vec<(Metric, u64)>,
}

impl Record {
    /// The record of a function's tick.
    pub fn of_tick(function: &Function, values: Vec<(Metric, u64)>) -> Self {
        Self::of(function, &function.tick, &[], values)
    }

    /// A record with further dimensions, whose values are given in their order.
    pub fn of(function: &Function, kind: &RecordKind, further: &[&str], values: Vec<(Metric, u64)>) -> Self {
        let all = std::iter::once(function.name).chain(further.iter().copied());
        let dimensions = kind.dimensions.iter().copied().zip(all.map(str::to_owned)).collect();
        Self { dimensions, properties: Vec::new(), values }
    }

    /// What is known of a tick that failed: every sum is zero, and no gauge is known.
    pub fn of_failure(function: &Function, duration_ms: u64) -> Self {
        let sums = function.tick.metrics.iter().filter(|metric| metric.nature == Nature::Sum);
        let value = |metric: &Metric| match *metric {
            FAILED => 1,
            DURATION => duration_ms,
            _ => 0,
        };
        Self::of_tick(function, sums.map(|metric| (*metric, value(metric))).collect())
    }
}

/// A tick that is under way. Its end writes its records; without one it has failed, and that is written.
#[derive(Debug)]
pub struct Tick {
    function: &'static Function,
    clock: Clock,
    began: Timestamp,
    ended: bool,
}

impl Tick {
    /// A tick of `function` begins.
    pub fn begin(function: &'static Function) -> Self {
        let clock = Clock::System;
        Self { function, began: clock.now(), clock, ended: false }
    }

    /// Milliseconds since it began.
    pub fn elapsed_ms(&self) -> u64 {
        u64::try_from((self.clock.now() - self.began).whole_milliseconds()).unwrap_or_default()
    }

    /// It has ended, with these records.
    pub fn end(mut self, records: &[Record]) {
        self.ended = true;
        self.write(records);
    }

    fn write(&self, records: &[Record]) {
        let written = lines(records, self.clock.now()).map_err(|error| crate::chain(&error)).and_then(|lines| {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(&lines).and_then(|()| stdout.flush()).map_err(|error| error.to_string())
        });
        if let Err(error) = written {
            tracing::error!(function = self.function.name, error, "the metrics of a tick could not be written");
        }
    }
}

impl Drop for Tick {
    fn drop(&mut self) {
        if !self.ended {
            self.write(&[Record::of_failure(self.function, self.elapsed_ms())]);
        }
    }
}

/// `part ÷ whole`, times `scale`, rounded down; 0 where there is no whole.
pub fn scaled(part: u64, scale: u64, whole: u64) -> u64 {
    part.saturating_mul(scale).checked_div(whole).unwrap_or(0)
}
