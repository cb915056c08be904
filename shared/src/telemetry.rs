//! What a tick has to say for itself: one `Report`, which is returned, logged as one line, and asserted in tests.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::domain::verdict::Verdict;

/// How a tick ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A batch was committed and the cursor moved on.
    Advanced,
    /// The cycle is complete; the cursor is at the first payment again.
    Wrapped,
    /// Between two cycles: the next one is not due.
    Waiting,
    /// The deadline came first; what was finished is committed.
    Partial,
    /// Stripe asked to slow down, or did not answer; what was finished is committed.
    Stopped,
    /// So much is missing at Stripe that nothing was written; a person has to look.
    Withheld,
    /// Another tick moved the cursor first; nothing was written. Not an error.
    AbortedConcurrentRun,
}

impl Outcome {
    /// The word in reports, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Advanced => "advanced",
            Self::Wrapped => "wrapped",
            Self::Waiting => "waiting",
            Self::Partial => "partial",
            Self::Stopped => "stopped",
            Self::Withheld => "withheld",
            Self::AbortedConcurrentRun => "aborted_concurrent_run",
        }
    }
}

/// One tick of one function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Which function.
    pub function: &'static str,
    /// Which job's cursor it worked on.
    pub job: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Payments that were judged: the sum of the five verdicts below.
    pub scanned: u64,
    /// Both sides agree.
    pub in_sync: u64,
    /// Not an end yet, too fresh, or changed while it was being looked at.
    pub in_flight: u64,
    /// The canonical writer can mend it.
    pub repairable: u64,
    /// A person decides.
    pub needs_review: u64,
    /// No confirmed answer.
    pub unverifiable: u64,
    /// Findings that were not open before.
    pub findings_opened: u64,
    /// Findings that are over.
    pub findings_closed: u64,
    /// Findings whose repairs did not help, and which turned to a person.
    pub findings_escalated: u64,
    /// `findings_opened` by kind.
    pub opened_by_kind: BTreeMap<String, u64>,
    /// `findings_closed` by kind.
    pub closed_by_kind: BTreeMap<String, u64>,
    /// Commands that were put into the outbox.
    pub commands_queued: u64,
    /// Requests that were sent to Stripe, retries included.
    pub requests: u64,
    /// Answers of Stripe that asked to slow down.
    pub throttled: u64,
    /// From the tick's start to this report, milliseconds.
    pub duration_ms: u64,
    /// What only the sweep has to say.
    #[serde(flatten)]
    pub sweep: Option<SweepFacts>,
}

/// What only the sweep has to say. A suspect **comes to an end** with a tick when both sides agree on it, or when Stripe's
/// answer asks for a repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SweepFacts {
    /// Suspects that were judged in this tick.
    pub candidates: u64,
    /// Those of them that did not come to an end with it: in flight, for a person, or without a confirmed answer.
    pub unresolved: u64,
    /// Findings of any job that the canonical writer closed as repaired since the previous tick counted them, up to a minute
    /// ago. A repair is counted where it is written, not where it is asked for, and once.
    pub drifts_corrected: u64,
}

impl Report {
    /// A tick that has done nothing yet.
    pub fn new(function: &'static str, job: &str, outcome: Outcome) -> Self {
        Self {
            function,
            job: job.to_owned(),
            outcome,
            scanned: 0,
            in_sync: 0,
            in_flight: 0,
            repairable: 0,
            needs_review: 0,
            unverifiable: 0,
            findings_opened: 0,
            findings_closed: 0,
            findings_escalated: 0,
            opened_by_kind: BTreeMap::new(),
            closed_by_kind: BTreeMap::new(),
            commands_queued: 0,
            requests: 0,
            throttled: 0,
            duration_ms: 0,
            sweep: None,
        }
    }

    /// Counts one judged payment.
    pub fn count(&mut self, verdict: Verdict) {
        self.scanned += 1;
        match verdict {
            Verdict::InSync => self.in_sync += 1,
            Verdict::InFlight => self.in_flight += 1,
            Verdict::Repairable => self.repairable += 1,
            Verdict::NeedsReview => self.needs_review += 1,
            Verdict::Unverifiable => self.unverifiable += 1,
        }
    }
}
