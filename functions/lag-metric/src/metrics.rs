//! The report as records of metrics: the tick's, one for each job, and one for each kind and verdict of finding.

use bootstrap::metrics::Record;
use bootstrap::metrics::catalogue::{
    BUDGET_USED_PERMILLE, BY_JOB, COMMANDS_DEAD, COMMANDS_WAITING, CYCLE_AGE, DURATION, EVENTS_DEAD, EVENTS_WAITING,
    FAILED, INFLOW_PERMILLE, LAG, LAG_METRIC, NEVER_VERIFIED, NOT_MET, OLDEST_COMMAND, OLDEST_EVENT, OLDEST_FINDING,
    OPEN_BY_KIND, OPEN_FINDINGS, PAYMENTS, PROJECTED_CYCLE, QUEUE_BY_AGE, REVIEW_QUEUE, SINCE_COMPLETED, SNOOZED,
    STRIPE_READS, THROTTLE_LEVEL, THROUGHPUT, WINDOW_AGE,
};

use crate::{FindingsReport, JobReport, LagReport, OutboxReport, QueueReport};

/// The records of a tick that did not fail.
pub fn records(report: &LagReport) -> Vec<Record> {
    let LagReport {
        function: _,
        lag_seconds,
        never_verified,
        not_met,
        payments_estimate,
        throughput_per_hour,
        projected_cycle_seconds,
        inflow_permille,
        reverse_window_age_seconds,
        jobs,
        open_findings,
        oldest_finding_seconds,
        findings,
        review_queue,
        snoozed,
        commands,
        events,
        budget_used_permille,
        throttle_level,
        stripe_reads_30_days,
        duration_ms,
        oldest_met: _,
    } = report;
    let OutboxReport { waiting: commands_waiting, oldest_seconds: oldest_command, dead: commands_dead } = *commands;
    let OutboxReport { waiting: events_waiting, oldest_seconds: oldest_event, dead: events_dead } = *events;
    let tick = Record::of_tick(
        &LAG_METRIC,
        vec![
            (FAILED, 0),
            (DURATION, *duration_ms),
            (LAG, *lag_seconds),
            (NEVER_VERIFIED, *never_verified),
            (NOT_MET, *not_met),
            (PAYMENTS, *payments_estimate),
            (THROUGHPUT, *throughput_per_hour),
            (PROJECTED_CYCLE, *projected_cycle_seconds),
            (INFLOW_PERMILLE, *inflow_permille),
            (WINDOW_AGE, *reverse_window_age_seconds),
            (OPEN_FINDINGS, *open_findings),
            (OLDEST_FINDING, *oldest_finding_seconds),
            (SNOOZED, *snoozed),
            (COMMANDS_WAITING, commands_waiting),
            (OLDEST_COMMAND, oldest_command),
            (COMMANDS_DEAD, commands_dead),
            (EVENTS_WAITING, events_waiting),
            (OLDEST_EVENT, oldest_event),
            (EVENTS_DEAD, events_dead),
            (BUDGET_USED_PERMILLE, *budget_used_permille),
            (THROTTLE_LEVEL, *throttle_level),
            (STRIPE_READS, *stripe_reads_30_days),
        ],
    );
    let jobs = jobs.iter().map(|JobReport { job, cycle_age_seconds, since_completed_seconds }| {
        let values = vec![(CYCLE_AGE, *cycle_age_seconds), (SINCE_COMPLETED, *since_completed_seconds)];
        Record::of(&LAG_METRIC, &BY_JOB, &[job], values)
    });
    let kinds = findings.iter().map(|FindingsReport { kind, verdict, open, oldest_seconds }| {
        let values = vec![(OPEN_FINDINGS, *open), (OLDEST_FINDING, *oldest_seconds)];
        Record::of(&LAG_METRIC, &OPEN_BY_KIND, &[kind, verdict], values)
    });
    let queue = review_queue.iter().map(|QueueReport { age_band, open }| {
        Record::of(&LAG_METRIC, &QUEUE_BY_AGE, &[age_band], vec![(REVIEW_QUEUE, *open)])
    });
    std::iter::once(tick).chain(jobs).chain(kinds).chain(queue).collect()
}
