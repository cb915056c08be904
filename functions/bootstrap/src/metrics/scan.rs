//! A scan's report as records.

use std::collections::BTreeSet;

use reconciler::telemetry::{Outcome, Report, ReverseFigures, SweepFacts};

use super::catalogue::{
    ABORTED_CONCURRENT_RUN, CANDIDATES, COMMANDS_QUEUED, DRIFTS_CORRECTED, DRIFTS_PER_THOUSAND, DURATION, FAILED,
    FINDINGS_CLOSED, FINDINGS_ESCALATED, FINDINGS_OPENED, FOREIGN, Function, IN_FLIGHT, IN_SYNC, KNOWN, LOOKS,
    MOVED_BY_KIND, Metric, NEEDS_REVIEW, OBJECTS, ORPHAN_CANDIDATES, ORPHANS, PAGES, REPAIRABLE, REQUESTS, RESTARTS,
    ROWS_PER_HUNDRED_REQUESTS, SCANNED, THROTTLED, UNEXPLAINED, UNREAD, UNRESOLVED, UNVERIFIABLE,
    UNVERIFIABLE_PERMILLE, WINDOWS_COMPLETED, WITHHELD,
};
use super::{Record, scaled};

/// The tick's record, and one for each kind of finding that moved. `failed`: the tick ended in an error and has a report all
/// the same.
pub fn records(function: &Function, report: &Report, failed: bool) -> Vec<Record> {
    let Report {
        function: _,
        job,
        outcome,
        scanned,
        in_sync,
        in_flight,
        repairable,
        needs_review,
        unverifiable,
        findings_opened,
        findings_closed,
        findings_escalated,
        opened_by_kind,
        closed_by_kind,
        commands_queued,
        requests,
        throttled,
        duration_ms,
        reverse,
        sweep,
    } = report;
    let aborted = *outcome == Outcome::AbortedConcurrentRun;
    let mut values = vec![
        (FAILED, u64::from(failed)),
        (DURATION, *duration_ms),
        (SCANNED, *scanned),
        (IN_SYNC, *in_sync),
        (IN_FLIGHT, *in_flight),
        (REPAIRABLE, *repairable),
        (NEEDS_REVIEW, *needs_review),
        (UNVERIFIABLE, *unverifiable),
        (UNVERIFIABLE_PERMILLE, scaled(*unverifiable, 1_000, *scanned)),
        (DRIFTS_PER_THOUSAND, scaled(repairable + needs_review, 1_000, scanned.saturating_sub(*unverifiable))),
        (FINDINGS_OPENED, *findings_opened),
        (FINDINGS_CLOSED, *findings_closed),
        (FINDINGS_ESCALATED, *findings_escalated),
        (COMMANDS_QUEUED, *commands_queued),
        (REQUESTS, *requests),
        (THROTTLED, *throttled),
        (ABORTED_CONCURRENT_RUN, u64::from(aborted)),
        (WITHHELD, u64::from(*outcome == Outcome::Withheld)),
        (ROWS_PER_HUNDRED_REQUESTS, scaled(*scanned, 100, *requests)),
    ];
    if let Some(SweepFacts { candidates, unresolved, drifts_corrected }) = sweep {
        values.extend([(CANDIDATES, *candidates), (UNRESOLVED, *unresolved), (DRIFTS_CORRECTED, *drifts_corrected)]);
    }
    if let Some(figures) = reverse {
        values.extend(of_the_window(figures));
    }
    let mut tick = Record::of_tick(function, values);
    tick.properties = vec![("job", job.clone()), ("outcome", outcome.as_str().to_owned())];

    let kinds: BTreeSet<&String> = opened_by_kind.keys().chain(closed_by_kind.keys()).collect();
    let moved = kinds.into_iter().map(|kind| {
        let opened = opened_by_kind.get(kind).copied().unwrap_or(0);
        let closed = closed_by_kind.get(kind).copied().unwrap_or(0);
        Record::of(function, &MOVED_BY_KIND, &[kind], vec![(FINDINGS_OPENED, opened), (FINDINGS_CLOSED, closed)])
    });
    std::iter::once(tick).chain(moved).collect()
}

fn of_the_window(figures: &ReverseFigures) -> [(Metric, u64); 11] {
    let ReverseFigures {
        window_from: _,
        window_to: _,
        window_complete,
        completed_to: _,
        pages,
        restarts,
        objects,
        known,
        foreign,
        unread,
        candidates,
        looks,
        orphans,
        unexplained,
    } = figures;
    [
        (PAGES, *pages),
        (RESTARTS, *restarts),
        (OBJECTS, *objects),
        (KNOWN, *known),
        (FOREIGN, *foreign),
        (UNREAD, *unread),
        (ORPHAN_CANDIDATES, *candidates),
        (LOOKS, *looks),
        (ORPHANS, *orphans),
        (UNEXPLAINED, *unexplained),
        (WINDOWS_COMPLETED, u64::from(*window_complete)),
    ]
}
