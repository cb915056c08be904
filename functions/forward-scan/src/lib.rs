//! `forward-scan`: walks every payment in key order, one batch a tick, and compares it with Stripe (promise 1).
//!
//! load (short reads) → observe (Stripe, outside any transaction) → decide (pure) → commit (one statement) → report.
//! Three round trips to Postgres whatever the batch size, and one for each request's slot of the budget. The walk itself is
//! [`reconciler::scan::walk`], which the sweep shares, and the optional second job of this function: [`unfinished`].

pub mod unfinished;

use reconciler::domain::Timestamp;
use reconciler::gateway::Gateway;
use reconciler::scan::walk::{self, Source, Walk};
use reconciler::scan::{Deps, RunError};
use reconciler::telemetry::Report;

/// The name of the function.
pub const FUNCTION: &str = "forward-scan";

/// The name of its job, whose cursor it moves.
pub const JOB: &str = "payments-vs-stripe";

/// One tick: one batch. `now` is the database's time.
pub async fn run<G: Gateway>(deps: &Deps<'_, G>, now: Timestamp) -> Result<Report, RunError> {
    let all = Walk {
        function: FUNCTION,
        job: JOB,
        source: Source::Every,
        keyset: deps.keyset,
        min_cycle: deps.settings.min_cycle,
    };
    walk::run(deps, &all, now).await
}
