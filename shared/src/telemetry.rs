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
    /// What the reverse scan alone counts; nothing in the reports of the others.
    #[serde(flatten)]
    pub reverse: Option<ReverseFigures>,
    /// What only the sweep has to say.
    #[serde(flatten)]
    pub sweep: Option<SweepFacts>,
}

/// What a tick of the reverse scan met. A window is proven clean by nothing less than `window_complete`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReverseFigures {
    /// The window's lower edge, RFC 3339; `None` where none was under way.
    pub window_from: Option<String>,
    /// Its upper edge.
    pub window_to: Option<String>,
    /// This tick read its last page.
    pub window_complete: bool,
    /// The last completed window's upper edge.
    pub completed_to: Option<String>,
    /// Pages that were read to the end.
    pub pages: u64,
    /// Windows that were begun anew, since Stripe did not know the page any more.
    pub restarts: u64,
    /// Objects on those pages.
    pub objects: u64,
    /// Of these, those that a payment here names.
    pub known: u64,
    /// Of these, those that are not ours, by the filter.
    pub foreign: u64,
    /// Of these, those that could not be read, not by a retrieve either.
    pub unread: u64,
    /// Candidates for an orphan, at the end of the tick.
    pub candidates: u64,
    /// Candidates that were looked at again.
    pub looks: u64,
    /// Orphans that were told apart as money at this look, whether their finding is new or not.
    pub orphans: u64,
    /// Payments without a reference whose charge a complete window has not met.
    pub unexplained: u64,
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
            reverse: None,
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
