//! `sweep`: asks Stripe about the suspects, the payments that should have ended by now. It is the fast net beside the forward
//! scan, which is the complete one: minutes instead of a cycle.
//!
//! A payment is a suspect if and only if it has not been updated for longer than `SWEEP_AFTER_SECONDS` and is `finalizing`,
//! `expired`, or `pending` with a reference and younger than 48 hours (older ones are abandoned carts, which the forward scan
//! meets all the same). Three causes make most of them: the worker died after sending, the answer was lost, the lease ran out
//! too early. Each is asked again after half of the time that it had been waiting when it was asked last, so suspects that
//! never resolve cost less and less, and starve no new one: the walk goes round through all of them, oldest first.
//!
//! It uses at most 30 % of the request budget, has a cursor of its own, and observes, decides and commits by the same walk as
//! the forward scan ([`reconciler::scan::walk`]).

use reconciler::budget::Share;
use reconciler::domain::Timestamp;
use reconciler::gateway::Gateway;
use reconciler::scan::walk::{self, Source, Walk};
use reconciler::scan::{Deps, RunError};
use reconciler::store::Keyset;
use reconciler::store::batch::Suspicion;
use reconciler::store::corrections::count_corrections;
use reconciler::telemetry::{Report, SweepFacts};
use time::Duration;

/// The name of the function.
pub const FUNCTION: &str = "sweep";

/// The name of its job, whose cursor it moves.
pub const JOB: &str = "suspects-vs-stripe";

/// Its part of the request budget.
pub const SHARE: Share = Share { name: "sweep", percent: 30 };

/// A pending payment is no suspect beyond this age.
const PENDING_UNTIL: Duration = Duration::hours(48);

/// One tick: one batch of suspects. `now` is the database's time.
pub async fn run<G: Gateway>(deps: &Deps<'_, G>, now: Timestamp) -> Result<Report, RunError> {
    let suspects = Walk {
        function: FUNCTION,
        job: JOB,
        source: Source::Suspects(Suspicion { after: deps.settings.sweep_after, pending_until: PENDING_UNTIL }),
        keyset: Keyset::CreatedAt,
        min_cycle: Duration::ZERO,
    };
    match walk::run(deps, &suspects, now).await {
        Ok(mut report) => {
            report.sweep = Some(facts(&report, count_corrections(deps.db, JOB, now).await?));
            Ok(report)
        }
        Err(RunError::Withheld { job, revision, reason, mut report }) => {
            report.sweep = Some(facts(&report, 0)); // the next tick counts them
            Err(RunError::Withheld { job, revision, reason, report })
        }
        Err(error @ (RunError::Store(_) | RunError::Observe(_) | RunError::Input(_) | RunError::OtherMode { .. })) => {
            Err(error)
        }
    }
}

fn facts(report: &Report, drifts_corrected: u64) -> SweepFacts {
    SweepFacts {
        candidates: report.scanned,
        unresolved: report.in_flight + report.needs_review + report.unverifiable,
        drifts_corrected,
    }
}
