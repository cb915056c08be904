//! Every name that CloudWatch is told: the namespace, the dimensions, the metrics of each function. Nowhere else is one
//! written down; the README's table is checked against this.
//!
//! A **sum** counts what happened in a tick; it is emitted by every tick, zero included, and by a failed tick as zero. A
//! **gauge** is a state or a share; a failed tick does not know it and leaves it out, for a zero there would be false health.
//! Shares are whole thousandths.

/// The namespace.
pub const NAMESPACE: &str = "PaymentReconciler";

/// The dimension that every record has: the function's name.
pub const FUNCTION: &str = "Function";
/// A finding's kind: a closed set.
pub const KIND: &str = "Kind";
/// A finding's verdict.
pub const VERDICT: &str = "Verdict";
/// A job's name.
pub const JOB: &str = "Job";
/// What a person decided: accept, apply, retry, snooze or release.
pub const DECISION: &str = "Decision";
/// How long a finding has been open: `under_1h`, `1h_to_24h`, `1d_to_3d` or `over_3d`.
pub const AGE_BAND: &str = "AgeBand";

/// In what a metric is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Whole milliseconds.
    Milliseconds,
    /// Whole seconds.
    Seconds,
    /// A ratio or a level.
    None,
}

impl Unit {
    /// CloudWatch's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Count => "Count",
            Self::Milliseconds => "Milliseconds",
            Self::Seconds => "Seconds",
            Self::None => "None",
        }
    }
}

/// What kind of figure a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// What happened in a tick: zero where nothing did, and where the tick failed.
    Sum,
    /// A state or a share: unknown where the tick failed.
    Gauge,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// In what it is counted.
    pub unit: Unit,
    /// What kind of figure it is.
    pub nature: Nature,
}

const fn sum(name: &'static str) -> Metric {
    Metric { name, unit: Unit::Count, nature: Nature::Sum }
}

const fn gauge(name: &'static str, unit: Unit) -> Metric {
    Metric { name, unit, nature: Nature::Gauge }
}

/// 1 for a tick that ended in an error or a panic, else 0.
pub const FAILED: Metric = sum("Failed");
/// The tick's time.
pub const DURATION: Metric = Metric { name: "Duration", unit: Unit::Milliseconds, nature: Nature::Sum };

/// Payments that were judged.
pub const SCANNED: Metric = sum("Scanned");
/// Both sides agree.
pub const IN_SYNC: Metric = sum("InSync");
/// Not an end yet, or too fresh.
pub const IN_FLIGHT: Metric = sum("InFlight");
/// The canonical writer can mend it.
pub const REPAIRABLE: Metric = sum("Repairable");
/// A person decides.
pub const NEEDS_REVIEW: Metric = sum("NeedsReview");
/// No confirmed answer.
pub const UNVERIFIABLE: Metric = sum("Unverifiable");
/// `Unverifiable` ÷ `Scanned`.
pub const UNVERIFIABLE_PERMILLE: Metric = gauge("UnverifiablePermille", Unit::None);
/// `Repairable` and `NeedsReview` ÷ those that had a confirmed answer or needed none.
pub const DRIFTS_PER_THOUSAND: Metric = gauge("DriftsPerThousandVerified", Unit::None);
/// Findings that were not open before.
pub const FINDINGS_OPENED: Metric = sum("FindingsOpened");
/// Findings that are over.
pub const FINDINGS_CLOSED: Metric = sum("FindingsClosed");
/// Findings whose repairs did not help.
pub const FINDINGS_ESCALATED: Metric = sum("FindingsEscalated");
/// Commands that were put into the outbox.
pub const COMMANDS_QUEUED: Metric = sum("CommandsQueued");
/// Requests to Stripe.
pub const REQUESTS: Metric = sum("Requests");
/// Answers that asked to slow down.
pub const THROTTLED: Metric = sum("Throttled");
/// 1 for a tick that another one was ahead of.
pub const ABORTED_CONCURRENT_RUN: Metric = sum("AbortedConcurrentRun");
/// 1 for a tick whose batch is withheld until a person has looked.
pub const WITHHELD: Metric = sum("Withheld");
/// `Scanned` for each hundred of `Requests`.
pub const ROWS_PER_HUNDRED_REQUESTS: Metric = gauge("RowsPerHundredRequests", Unit::None);

/// Suspects that were judged.
pub const CANDIDATES: Metric = sum("Candidates");
/// Those of them that came to no end.
pub const UNRESOLVED: Metric = sum("Unresolved");
/// Drifts that the canonical writer corrected.
pub const DRIFTS_CORRECTED: Metric = sum("DriftsCorrected");

/// Pages of Stripe's list that were read to the end.
pub const PAGES: Metric = sum("Pages");
/// Windows that were begun anew.
pub const RESTARTS: Metric = sum("Restarts");
/// Objects on those pages.
pub const OBJECTS: Metric = sum("Objects");
/// Those that a payment here names.
pub const KNOWN: Metric = sum("Known");
/// Those that are not ours.
pub const FOREIGN: Metric = sum("Foreign");
/// Those that could not be read.
pub const UNREAD: Metric = sum("Unread");
/// Candidates for an orphan.
pub const ORPHAN_CANDIDATES: Metric = gauge("OrphanCandidates", Unit::Count);
/// Candidates that were looked at again.
pub const LOOKS: Metric = sum("Looks");
/// Those of them that are money and nobody's.
pub const ORPHANS: Metric = sum("Orphans");
/// Payments without a reference whose charge is not there.
pub const UNEXPLAINED: Metric = sum("Unexplained");
/// 1 for a tick that read the last page of a window.
pub const WINDOWS_COMPLETED: Metric = sum("WindowsCompleted");

/// Rows claimed.
pub const CLAIMED: Metric = sum("Claimed");
/// The payment was there already.
pub const ALREADY_WRITTEN: Metric = sum("AlreadyWritten");
/// The payment went another way.
pub const SUPERSEDED: Metric = sum("Superseded");
/// Events that were accepted outside.
pub const PUBLISHED: Metric = sum("Published");
/// Rows that come back later.
pub const ROWS_FAILED: Metric = sum("RowsFailed");
/// Rows that do not come back.
pub const ROWS_DEAD: Metric = sum("RowsDead");
/// Rows that another worker claimed meanwhile.
pub const OUTDATED: Metric = sum("Outdated");
/// Rows that there was no time for.
pub const GIVEN_BACK: Metric = sum("GivenBack");

/// Deliveries of Stripe's.
pub const RECEIVED: Metric = sum("Received");
/// The event changed a payment.
pub const WRITTEN: Metric = sum("Written");
/// The event was recorded before.
pub const DUPLICATE: Metric = sum("Duplicate");
/// No payment names the PaymentIntent.
pub const NO_SUCH_PAYMENT: Metric = sum("NoSuchPayment");
/// More than one does.
pub const SEVERAL_PAYMENTS: Metric = sum("SeveralPayments");
/// Events of its type change nothing.
pub const NO_TRANSITION: Metric = sum("NoTransition");
/// Events of its type are not used.
pub const OTHER_TYPE: Metric = sum("OtherType");
/// A connected account's other mode.
pub const OTHER_MODE: Metric = sum("OtherMode");
/// Answered with 4xx.
pub const REFUSED: Metric = sum("Refused");

/// The age of the payment that has gone unverified longest.
pub const LAG: Metric = gauge("Lag", Unit::Seconds);
/// Payments met and never verified.
pub const NEVER_VERIFIED: Metric = gauge("NeverVerified", Unit::Count);
/// Payments that no scan has met.
pub const NOT_MET: Metric = gauge("NotMet", Unit::Count);
/// About how many payments there are.
pub const PAYMENTS: Metric = gauge("Payments", Unit::Count);
/// Payments judged in an hour.
pub const THROUGHPUT: Metric = gauge("ThroughputPerHour", Unit::Count);
/// How long a cycle takes at that pace.
pub const PROJECTED_CYCLE: Metric = gauge("ProjectedCycle", Unit::Seconds);
/// Inflow ÷ throughput.
pub const INFLOW_PERMILLE: Metric = gauge("InflowPermilleOfThroughput", Unit::None);
/// The age of the moment up to which the reverse scan has listed everything.
pub const WINDOW_AGE: Metric = gauge("WindowAge", Unit::Seconds);
/// Findings that are open.
pub const OPEN_FINDINGS: Metric = gauge("OpenFindings", Unit::Count);
/// The age of the oldest of them.
pub const OLDEST_FINDING: Metric = gauge("OldestFinding", Unit::Seconds);
/// Commands that wait.
pub const COMMANDS_WAITING: Metric = gauge("CommandsWaiting", Unit::Count);
/// The age of the oldest of them.
pub const OLDEST_COMMAND: Metric = gauge("OldestCommand", Unit::Seconds);
/// Commands that are dead.
pub const COMMANDS_DEAD: Metric = gauge("CommandsDead", Unit::Count);
/// Events that wait.
pub const EVENTS_WAITING: Metric = gauge("EventsWaiting", Unit::Count);
/// The age of the oldest of them.
pub const OLDEST_EVENT: Metric = gauge("OldestEvent", Unit::Seconds);
/// Events that are dead.
pub const EVENTS_DEAD: Metric = gauge("EventsDead", Unit::Count);
/// Requests sent ÷ requests allowed.
pub const BUDGET_USED_PERMILLE: Metric = gauge("BudgetUsedPermille", Unit::None);
/// How often the rate is halved.
pub const THROTTLE_LEVEL: Metric = gauge("ThrottleLevel", Unit::None);
/// Requests in the last 30 days.
pub const STRIPE_READS: Metric = gauge("StripeReads30Days", Unit::Count);
/// Decisions that were written.
pub const DECISIONS: Metric = sum("Decisions");
/// Requests that could not be used, and decisions that did not stand.
pub const REQUESTS_REFUSED: Metric = sum("RequestsRefused");
/// From the opening of a finding to the decision about it.
pub const TIME_TO_DECISION: Metric = gauge("TimeToDecision", Unit::Seconds);
/// Daily summaries that were put into the outbox.
pub const DIGESTS: Metric = sum("Digests");
/// Findings that wait for a person, and are not put off.
pub const REVIEW_QUEUE: Metric = gauge("ReviewQueue", Unit::Count);
/// Findings that a person has put off.
pub const SNOOZED: Metric = gauge("Snoozed", Unit::Count);
/// How long the cycle that runs has been running.
pub const CYCLE_AGE: Metric = gauge("CycleAge", Unit::Seconds);
/// How long ago a whole cycle completed.
pub const SINCE_COMPLETED: Metric = gauge("SinceCompletedCycle", Unit::Seconds);

/// A set of metrics that are emitted together, under the same dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordKind {
    /// Its dimensions, all of them at once.
    pub dimensions: &'static [&'static str],
    /// All of its metrics.
    pub metrics: &'static [Metric],
}

/// One function's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// The function's name.
    pub name: &'static str,
    /// The record that each tick emits exactly once.
    pub tick: RecordKind,
    /// What it emits besides, one for each value of the further dimensions that there is something to say of.
    pub further: &'static [RecordKind],
}

const fn tick(metrics: &'static [Metric]) -> RecordKind {
    RecordKind { dimensions: &[FUNCTION], metrics }
}

const SCAN: [Metric; 19] = [
    FAILED,
    DURATION,
    SCANNED,
    IN_SYNC,
    IN_FLIGHT,
    REPAIRABLE,
    NEEDS_REVIEW,
    UNVERIFIABLE,
    UNVERIFIABLE_PERMILLE,
    DRIFTS_PER_THOUSAND,
    FINDINGS_OPENED,
    FINDINGS_CLOSED,
    FINDINGS_ESCALATED,
    COMMANDS_QUEUED,
    REQUESTS,
    THROTTLED,
    ABORTED_CONCURRENT_RUN,
    WITHHELD,
    ROWS_PER_HUNDRED_REQUESTS,
];

const SWEEPS: [Metric; 22] = {
    let mut all = [FAILED; 22];
    let (scan, more) = all.split_at_mut(SCAN.len());
    scan.copy_from_slice(&SCAN);
    more.copy_from_slice(&[CANDIDATES, UNRESOLVED, DRIFTS_CORRECTED]);
    all
};

const REVERSES: [Metric; 30] = {
    let mut all = [FAILED; 30];
    let (scan, more) = all.split_at_mut(SCAN.len());
    scan.copy_from_slice(&SCAN);
    more.copy_from_slice(&[
        PAGES,
        RESTARTS,
        OBJECTS,
        KNOWN,
        FOREIGN,
        UNREAD,
        ORPHAN_CANDIDATES,
        LOOKS,
        ORPHANS,
        UNEXPLAINED,
        WINDOWS_COMPLETED,
    ]);
    all
};

/// The kinds that moved in a tick of a scan.
pub const MOVED_BY_KIND: RecordKind =
    RecordKind { dimensions: &[FUNCTION, KIND], metrics: &[FINDINGS_OPENED, FINDINGS_CLOSED] };

/// The kinds that are open, or were within the last hour.
pub const OPEN_BY_KIND: RecordKind =
    RecordKind { dimensions: &[FUNCTION, KIND, VERDICT], metrics: &[OPEN_FINDINGS, OLDEST_FINDING] };

/// What waits for a person, by how long it has been open; all bands in each tick.
pub const QUEUE_BY_AGE: RecordKind = RecordKind { dimensions: &[FUNCTION, AGE_BAND], metrics: &[REVIEW_QUEUE] };

/// The jobs.
pub const BY_JOB: RecordKind = RecordKind { dimensions: &[FUNCTION, JOB], metrics: &[CYCLE_AGE, SINCE_COMPLETED] };

/// `forward-scan`
pub const FORWARD_SCAN: Function = Function { name: "forward-scan", tick: tick(&SCAN), further: &[MOVED_BY_KIND] };

/// `unfinished-scan`
pub const UNFINISHED_SCAN: Function =
    Function { name: "unfinished-scan", tick: tick(&SCAN), further: &[MOVED_BY_KIND] };

/// `sweep`
pub const SWEEP: Function = Function { name: "sweep", tick: tick(&SWEEPS), further: &[MOVED_BY_KIND] };

/// `reverse-scan`
pub const REVERSE_SCAN: Function = Function { name: "reverse-scan", tick: tick(&REVERSES), further: &[MOVED_BY_KIND] };

/// `dispatch`
pub const DISPATCH: Function = Function {
    name: "dispatch",
    tick: tick(&[
        FAILED,
        DURATION,
        CLAIMED,
        DRIFTS_CORRECTED,
        ALREADY_WRITTEN,
        SUPERSEDED,
        PUBLISHED,
        ROWS_FAILED,
        ROWS_DEAD,
        OUTDATED,
        GIVEN_BACK,
    ]),
    further: &[],
};

/// `webhook`: a record for each delivery.
pub const WEBHOOK: Function = Function {
    name: "webhook",
    tick: tick(&[
        FAILED,
        DURATION,
        RECEIVED,
        WRITTEN,
        ALREADY_WRITTEN,
        SUPERSEDED,
        DUPLICATE,
        NO_SUCH_PAYMENT,
        SEVERAL_PAYMENTS,
        NO_TRANSITION,
        OTHER_TYPE,
        OTHER_MODE,
        REFUSED,
    ]),
    further: &[],
};

/// `lag-metric`
pub const LAG_METRIC: Function = Function {
    name: "lag-metric",
    tick: tick(&[
        FAILED,
        DURATION,
        LAG,
        NEVER_VERIFIED,
        NOT_MET,
        PAYMENTS,
        THROUGHPUT,
        PROJECTED_CYCLE,
        INFLOW_PERMILLE,
        WINDOW_AGE,
        OPEN_FINDINGS,
        OLDEST_FINDING,
        SNOOZED,
        COMMANDS_WAITING,
        OLDEST_COMMAND,
        COMMANDS_DEAD,
        EVENTS_WAITING,
        OLDEST_EVENT,
        EVENTS_DEAD,
        BUDGET_USED_PERMILLE,
        THROTTLE_LEVEL,
        STRIPE_READS,
    ]),
    further: &[BY_JOB, OPEN_BY_KIND, QUEUE_BY_AGE],
};

/// The decisions that were written.
pub const BY_DECISION: RecordKind =
    RecordKind { dimensions: &[FUNCTION, DECISION], metrics: &[DECISIONS, TIME_TO_DECISION] };

/// `review`: a record for each request.
pub const REVIEW: Function =
    Function { name: "review", tick: tick(&[FAILED, DURATION, REQUESTS_REFUSED]), further: &[] };

/// `review-decide`: a record for each request, and one for a decision that was written.
pub const REVIEW_DECIDE: Function = Function {
    name: "review-decide",
    tick: tick(&[FAILED, DURATION, REQUESTS_REFUSED, DECISIONS, DIGESTS]),
    further: &[BY_DECISION],
};

/// All functions that emit metrics.
pub const FUNCTIONS: [Function; 9] =
    [FORWARD_SCAN, UNFINISHED_SCAN, SWEEP, REVERSE_SCAN, DISPATCH, WEBHOOK, LAG_METRIC, REVIEW, REVIEW_DECIDE];
