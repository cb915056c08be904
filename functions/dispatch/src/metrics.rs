//! The report as a record of metrics.

use bootstrap::metrics::Record;
use bootstrap::metrics::catalogue::{
    ALREADY_WRITTEN, CLAIMED, DISPATCH, DRIFTS_CORRECTED, DURATION, FAILED, GIVEN_BACK, OUTDATED, PUBLISHED, ROWS_DEAD,
    ROWS_FAILED, SUPERSEDED,
};

use crate::DispatchReport;

/// The record of a tick that did not fail.
pub fn records(report: &DispatchReport) -> Vec<Record> {
    let DispatchReport {
        function: _,
        claimed,
        written,
        already_written,
        superseded,
        published,
        failed,
        dead,
        outdated,
        given_back,
        duration_ms,
    } = *report;
    let values = vec![
        (FAILED, 0),
        (DURATION, duration_ms),
        (CLAIMED, claimed),
        (DRIFTS_CORRECTED, written),
        (ALREADY_WRITTEN, already_written),
        (SUPERSEDED, superseded),
        (PUBLISHED, published),
        (ROWS_FAILED, failed),
        (ROWS_DEAD, dead),
        (OUTDATED, outdated),
        (GIVEN_BACK, given_back),
    ];
    vec![Record::of_tick(&DISPATCH, values)]
}
