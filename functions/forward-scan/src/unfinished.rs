//! `unfinished-scan`: the forward scan's optional second job. It walks only the payments that have not ended and are no older
//! than 90 days, with a cursor, a schedule and a share of the budget of its own.
//!
//! **Narrow before faster.** Most payments have ended, and an end rarely changes. Where the complete cycle takes longer than a
//! drift may stay unseen, this walk goes round in a fraction of its requests. It proves nothing about the payments that it
//! leaves out, so it comes beside the complete one and never instead of it. It differs from the sweep in that it asks for
//! every unfinished payment in each of its cycles, however long that has been waiting, where the sweep asks less and less
//! often, and for none that is pending for longer than 48 hours.

use reconciler::budget::Share;
use reconciler::domain::Timestamp;
use reconciler::gateway::Gateway;
use reconciler::scan::walk::{self, Source, Walk};
use reconciler::scan::{Deps, RunError};
use reconciler::store::Keyset;
use reconciler::telemetry::Report;
use time::Duration;

/// The name of the function.
pub const FUNCTION: &str = "unfinished-scan";

/// The name of its job, whose cursor it moves.
pub const JOB: &str = "unfinished-vs-stripe";

/// Its part of the request budget.
pub const SHARE: Share = Share { name: "unfinished-scan", percent: 30 };

/// Payments that were created longer ago are the complete walk's alone.
pub const YOUNGER_THAN: Duration = Duration::days(90);

/// One tick: one batch. `now` is the database's time.
pub async fn run<G: Gateway>(deps: &Deps<'_, G>, now: Timestamp) -> Result<Report, RunError> {
    let unfinished = Walk {
        function: FUNCTION,
        job: JOB,
        source: Source::Unfinished { younger_than: YOUNGER_THAN },
        keyset: Keyset::CreatedAt,
        min_cycle: deps.settings.unfinished_cycle,
    };
    walk::run(deps, &unfinished, now).await
}
