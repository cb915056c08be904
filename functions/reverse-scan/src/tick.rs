//! What the parts of a tick share: where it stands, what it has met, and its commit.

use reconciler::domain::Timestamp;
use reconciler::gateway::Gateway;
use reconciler::scan::observe::Stop;
use reconciler::scan::steps::Step;
use reconciler::scan::{Deps, RunError, report_judged, report_written};
use reconciler::store::commit::{CommitOutcome, JudgedPayment};
use reconciler::store::reverse::{Stranger, Window, WindowCommit, commit_window};
use reconciler::telemetry::{Outcome, Report, ReverseFigures};
use time::format_description::well_known::Rfc3339;

use crate::{FUNCTION, JOB};

/// A tick that is under way.
pub(crate) struct Tick<'t, 'd, G> {
    pub(crate) deps: &'t Deps<'d, G>,
    /// The database's time at its beginning.
    pub(crate) now: Timestamp,
    /// The window as this tick wrote it last.
    pub(crate) window: Window,
    pub(crate) report: Report,
    pub(crate) figures: ReverseFigures,
}

/// Whether the tick goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Go {
    On,
    End(Outcome),
}

impl<'t, 'd, G: Gateway> Tick<'t, 'd, G> {
    pub(crate) fn new(deps: &'t Deps<'d, G>, now: Timestamp, window: Window) -> Self {
        let report = Report::new(FUNCTION, JOB, Outcome::Waiting);
        Self { deps, now, window, report, figures: ReverseFigures::default() }
    }

    /// Writes the window's next state with all of this. False: another tick wrote first, and nothing is written.
    pub(crate) async fn commit(
        &mut self,
        next: Window,
        judged: &[JudgedPayment],
        strangers: &[Stranger],
    ) -> Result<bool, RunError> {
        self.deps.steps.reach(Step::Decided).await;
        let commit = WindowCommit { window: &next, judged, strangers };
        let committed = commit_window(self.deps.db, JOB, self.now, &commit).await?;
        self.deps.steps.reach(Step::Committed).await;
        match committed {
            CommitOutcome::Lost => Ok(false),
            CommitOutcome::Written(written) => {
                report_judged(&mut self.report, judged, &written);
                report_written(&mut self.report, &written);
                self.window = Window { revision: next.revision + 1, ..next };
                Ok(true)
            }
        }
    }
}

/// How a tick ends that was stopped.
pub(crate) fn outcome_of(stop: Stop) -> Outcome {
    match stop {
        Stop::Deadline => Outcome::Partial,
        Stop::RateLimited | Stop::Outage => Outcome::Stopped,
    }
}

/// RFC 3339; `None` for a year that it cannot write.
pub(crate) fn written_time(at: Timestamp) -> Option<String> {
    at.format(&Rfc3339).ok()
}
