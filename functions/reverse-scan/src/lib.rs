//! `reverse-scan`: walks what Stripe created, newest first, a few pages a tick, and finds what no payment here names. On the
//! way it verifies the payments that it meets: a page already holds their status.
//!
//! A tick: the candidates that are due for another look (`candidates.rs`) → the window (`window.rs`) → up to `REVERSE_PAGES`
//! pages of it (`page.rs`), and when that was its last one, the payments whose charge it has not met (`unexplained.rs`). Each
//! part is observed outside of any transaction and committed by one statement, which begins with a compare-and-set of the
//! window's revision and has its middle in common with the walks' commit: an overlapping tick writes nothing.
//!
//! A list proves presence only. What becomes a new finding is retrieved first, and the retrieve decides; an orphan is so a
//! grace period after it was seen first. Stripe's search is never used: it may be behind by an hour.
//!
//! It uses at most 30 % of the request budget.

mod candidates;
mod filter;
mod input;
mod page;
mod sort;
mod tick;
mod unexplained;
mod window;

use reconciler::budget::Share;
use reconciler::domain::Timestamp;
use reconciler::gateway::Gateway;
use reconciler::scan::steps::Step;
use reconciler::scan::{Deps, RunError};
use reconciler::store::reverse::{count_candidates, read_window};
use reconciler::telemetry::{Outcome, Report};

pub use input::{Input, InputError};
use page::PageEnd;
use tick::{Go, Tick, written_time};

/// The name of the function.
pub const FUNCTION: &str = "reverse-scan";

/// The name of its job, whose window it moves.
pub const JOB: &str = "stripe-vs-payments";

/// Its part of the request budget.
pub const SHARE: Share = Share { name: "reverse-scan", percent: 30 };

/// One tick. `now` is the database's time.
///
/// Outcomes: `wrapped`, the window is complete; `advanced`, it is not yet; `waiting`, there is nothing newer to walk; `partial`
/// and `stopped`, it is not, and the next tick goes on where this one stood; `aborted_concurrent_run`.
pub async fn run<G: Gateway>(deps: &Deps<'_, G>, now: Timestamp, input: &Input) -> Result<Report, RunError> {
    let began = deps.clock.now();
    let window = read_window(deps.db, JOB).await?;
    deps.steps.reach(Step::CursorRead).await;
    let mut tick = Tick::new(deps, now, window);
    tick.report.outcome = all(&mut tick, input).await?;

    let Tick { mut report, mut figures, window, .. } = tick;
    figures.completed_to = window.completed.and_then(|(completed_to, _)| written_time(completed_to));
    figures.candidates = u64::try_from(count_candidates(deps.db).await?).unwrap_or_default();
    report.duration_ms = u64::try_from((deps.clock.now() - began).whole_milliseconds()).unwrap_or_default();
    tracing::info!(
        window_from = figures.window_from.as_deref(),
        window_to = figures.window_to.as_deref(),
        window_complete = figures.window_complete,
        pages = figures.pages,
        objects = figures.objects,
        known = figures.known,
        candidates = figures.candidates,
        orphans = figures.orphans,
        "reverse window"
    );
    report.reverse = Some(figures);
    Ok(report)
}

async fn all<G: Gateway>(tick: &mut Tick<'_, '_, G>, input: &Input) -> Result<Outcome, RunError> {
    match candidates::look_again(tick).await? {
        Go::On => {}
        Go::End(outcome) => return Ok(outcome),
    }

    let settings = &tick.deps.settings.reverse;
    let policy = &tick.deps.settings.policy;
    if let Some(begun) = window::begin(&tick.window, settings, policy, tick.now, input.from)
        && !tick.commit(begun, &[], &[]).await?
    {
        return Ok(Outcome::AbortedConcurrentRun);
    }
    let Some(under_way) = &tick.window.under_way else {
        return Ok(if tick.figures.looks > 0 { Outcome::Advanced } else { Outcome::Waiting });
    };
    tick.figures.window_from = written_time(under_way.from);
    tick.figures.window_to = written_time(under_way.to);

    for _ in 0..settings.pages {
        match page::read(tick).await? {
            PageEnd::Next => {}
            PageEnd::Complete => {
                tick.figures.window_complete = true;
                return match unexplained::report(tick).await? {
                    Go::On => Ok(Outcome::Wrapped),
                    Go::End(outcome) => Ok(outcome),
                };
            }
            PageEnd::End(outcome) => return Ok(outcome),
        }
    }
    Ok(Outcome::Advanced)
}
