//! What a tick has to say.

use reconciler::domain::Timestamp;
use serde::Serialize;

/// One tick. Ages are whole seconds before now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LagReport {
    /// Which function.
    pub function: &'static str,
    /// The age of the payment that has gone unverified longest; 0 where there is none.
    pub lag_seconds: u64,
    /// Payments that a scan has met and none has verified; counted up to 10,000.
    pub never_verified: u64,
    /// Payments beyond the furthest that the forward scan has passed, and that no other function has met; counted up to 2,000.
    pub not_met: u64,
    /// About how many payments there are.
    pub payments_estimate: u64,
    /// Payments judged in an hour, at the pace of the forward scan's cycle.
    pub throughput_per_hour: u64,
    /// How long a cycle takes at that pace.
    pub projected_cycle_seconds: u64,
    /// Inflow ÷ throughput, in thousandths.
    pub inflow_permille: u64,
    /// Everything that Stripe created longer ago than this has been listed to the end by the reverse scan; since its first
    /// window began where none is complete, and the lag where none has begun.
    pub reverse_window_age_seconds: u64,
    /// Each job's cycle; the reverse scan's are its windows.
    pub jobs: Vec<JobReport>,
    /// Findings that are open.
    pub open_findings: u64,
    /// The age of the oldest of them that no person has put off; 0 where there is none.
    pub oldest_finding_seconds: u64,
    /// The same by kind and verdict; what was closed within the last hour is there with 0.
    pub findings: Vec<FindingsReport>,
    /// Findings that wait for a person and are not put off, by how long they have been open.
    pub review_queue: [QueueReport; 4],
    /// Findings that a person has put off.
    pub snoozed: u64,
    /// The outbox's commands.
    pub commands: OutboxReport,
    /// The outbox's events.
    pub events: OutboxReport,
    /// Of the requests that `REQUESTS_PER_SECOND` allowed in the last whole ten minutes (of the clock), how many were sent, in
    /// thousandths.
    pub budget_used_permille: u64,
    /// How often the rate is halved, for Stripe asked to slow down.
    pub throttle_level: u64,
    /// Requests to Stripe in the last 30 days.
    pub stripe_reads_30_days: u64,
    /// From the tick's start to this report, milliseconds.
    pub duration_ms: u64,
    /// Where the next probe may begin from.
    #[serde(skip)]
    pub oldest_met: Option<Timestamp>,
}

/// A job's cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobReport {
    /// The job.
    pub job: String,
    /// How long the cycle that runs has been running; 0 between two.
    pub cycle_age_seconds: u64,
    /// Since the last whole cycle; since the first one began where none has completed; the lag where none has begun.
    pub since_completed_seconds: u64,
}

/// Open findings of one kind and verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FindingsReport {
    /// The kind.
    pub kind: String,
    /// `repairable` or `needs_review`.
    pub verdict: String,
    /// How many.
    pub open: u64,
    /// The age of the oldest.
    pub oldest_seconds: u64,
}

/// How many findings of an age wait for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct QueueReport {
    /// `under_1h`, `1h_to_24h`, `1d_to_3d` or `over_3d`.
    pub age_band: &'static str,
    /// How many.
    pub open: u64,
}

/// What waits in the outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutboxReport {
    /// How many rows wait.
    pub waiting: u64,
    /// The age of the oldest of them.
    pub oldest_seconds: u64,
    /// How many are dead.
    pub dead: u64,
}
