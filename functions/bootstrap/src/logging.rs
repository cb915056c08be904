//! Logs: JSON lines with an RFC 3339 time and a level (Lambda counts a line without them as INFO).

use reconciler::telemetry::Report;
use tracing_subscriber::filter::LevelFilter;

/// Where the lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output: Lambda collects it.
    Stdout,
    /// Standard error: standard output belongs to the reports.
    Stderr,
}

/// Writes logs from here on. Once a process; a second call changes nothing.
pub fn start(output: Output, level: LevelFilter) {
    let format = tracing_subscriber::fmt().json().flatten_event(true).with_span_list(false).with_max_level(level);
    let started = match output {
        Output::Stdout => format.with_writer(std::io::stdout).try_init(),
        Output::Stderr => format.with_writer(std::io::stderr).try_init(),
    };
    if let Err(error) = started {
        tracing::debug!(%error, "logs are written already");
    }
}

/// The one line of a tick of a function that is no scan, as JSON within the line.
pub fn log_tick(report: &impl serde::Serialize) {
    match serde_json::to_string(report) {
        Ok(report) => tracing::info!(%report, "tick"),
        Err(error) => tracing::error!(%error, "the report of a tick cannot be written as JSON"),
    }
}

/// The one line of a tick of a scan.
pub fn log_report(report: &Report) {
    tracing::info!(
        function = report.function,
        job = %report.job,
        outcome = report.outcome.as_str(),
        scanned = report.scanned,
        in_sync = report.in_sync,
        in_flight = report.in_flight,
        repairable = report.repairable,
        needs_review = report.needs_review,
        unverifiable = report.unverifiable,
        findings_opened = report.findings_opened,
        findings_closed = report.findings_closed,
        findings_escalated = report.findings_escalated,
        commands_queued = report.commands_queued,
        requests = report.requests,
        throttled = report.throttled,
        candidates = report.sweep.map(|sweep| sweep.candidates),
        unresolved = report.sweep.map(|sweep| sweep.unresolved),
        drifts_corrected = report.sweep.map(|sweep| sweep.drifts_corrected),
        duration_ms = report.duration_ms,
        "tick"
    );
}
