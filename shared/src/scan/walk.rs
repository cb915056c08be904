//! A walk: one tick of a job that goes through payments in key order, batch by batch. The scans differ in what they load and
//! when a cycle is due; what they do with a batch is this one implementation.

use time::Duration;

use super::cycle::{Turn, before_horizon, turn};
use super::examine::{Examined, examine, key_opens_known_payments};
use super::observe::Stop;
use super::steps::Step;
use super::{Deps, RunError, report_judged, report_written};
use crate::config::Observe;
use crate::domain::Timestamp;
use crate::domain::classify::Policy;
use crate::domain::payment::Payment;
use crate::domain::verdict::Verdict;
use crate::error_chain::chain;
use crate::gateway::Gateway;
use crate::store::Keyset;
use crate::store::batch::{Batch, Suspicion, load_batch, load_suspects, load_unfinished};
use crate::store::commit::{CommitOutcome, CursorMove, commit_batch};
use crate::store::cursor::{Cursor, Position, note_withheld, read_cursor};
use crate::store::learned::write_learned;
use crate::telemetry::{Outcome, Report};

/// A walk that has started at one place this often is held up by rows that do not answer.
const STARTS_BEFORE_PASSING_OVER: i32 = 3;

/// And when it has started there this often, list calls do not get it on: it goes one by one.
const STARTS_BEFORE_ONE_BY_ONE: i32 = 5;

/// Which payments a walk goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// All of them, up to the horizon.
    Every,
    /// Those that have not ended and were created within this time before now, up to the horizon.
    Unfinished {
        /// How far back.
        younger_than: Duration,
    },
    /// Those that should have ended by now, oldest first.
    Suspects(Suspicion),
}

/// A job that walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The function whose job it is.
    pub function: &'static str,
    /// The name of the cursor.
    pub job: &'static str,
    /// Which payments.
    pub source: Source,
    /// The order.
    pub keyset: Keyset,
    /// A new cycle begins no sooner than this after the last one began.
    pub min_cycle: Duration,
}

/// One tick: one batch. `now` is the database's time.
pub async fn run<G: Gateway>(deps: &Deps<'_, G>, walk: &Walk, now: Timestamp) -> Result<Report, RunError> {
    let began = deps.clock.now();
    let mut report = Report::new(walk.function, walk.job, Outcome::Waiting);
    let ended = tick(deps, walk, now, &mut report).await;
    report.duration_ms = u64::try_from((deps.clock.now() - began).whole_milliseconds()).unwrap_or_default();
    match ended {
        Ok(outcome) => {
            report.outcome = outcome;
            Ok(report)
        }
        Err(Failure::Withheld { revision, reason }) => {
            report.outcome = Outcome::Withheld;
            Err(RunError::Withheld { job: walk.job.to_owned(), revision, reason, report: Box::new(report) })
        }
        Err(Failure::Run(error)) => Err(error),
    }
}

/// How a tick fails, before its report is complete.
enum Failure {
    Withheld { revision: i64, reason: String },
    Run(RunError),
}

impl<E: Into<RunError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Run(error.into())
    }
}

async fn tick<G: Gateway>(
    deps: &Deps<'_, G>,
    walk: &Walk,
    now: Timestamp,
    report: &mut Report,
) -> Result<Outcome, Failure> {
    let cursor = read_cursor(deps.db, walk.job, walk.keyset).await?;
    deps.steps.reach(Step::CursorRead).await;
    let turn = turn(&cursor, walk.min_cycle, now);
    if turn == Turn::Wait {
        return Ok(Outcome::Waiting);
    }

    let batch = load(deps, walk, &cursor, now).await?;
    deps.steps.reach(Step::Loaded).await;
    if batch.revision != cursor.revision {
        return Ok(Outcome::AbortedConcurrentRun);
    }

    let Batch { mut payments, starts, .. } = batch;
    let horizon = match walk.source {
        Source::Every | Source::Unfinished { .. } => {
            payments.split_off(before_horizon(&payments, deps.settings.policy.grace, now))
        }
        Source::Suspects(_) => Vec::new(), // none of them is fresh
    };
    let nothing_left = payments.is_empty();
    let loaded = payments.len();

    let pass_over = starts >= STARTS_BEFORE_PASSING_OVER;
    let policy = match walk.source {
        Source::Every | Source::Unfinished { .. } => deps.settings.policy,
        // a suspect has waited long enough by its own threshold
        Source::Suspects(_) => Policy { grace: Duration::ZERO, ..deps.settings.policy },
    };
    let learned = match deps.settings.observe {
        Observe::Bulk if starts < STARTS_BEFORE_ONE_BY_ONE => Some(cursor.learned),
        Observe::Bulk | Observe::Single => None,
    };
    let examined = examine(&deps.observing(pass_over), &policy, now, payments, learned).await?;
    report.requests += examined.requests;
    report.throttled += examined.throttled;
    deps.steps.reach(Step::Observed).await;

    if cursor.released_revision != Some(cursor.revision)
        && let Some(reason) = reason_to_withhold(deps, &examined, report).await?
    {
        // the desk shows it; the tick fails for the reason itself, whether that can be kept or not
        if let Err(error) = note_withheld(deps.db, walk.job, cursor.revision, &reason, now).await {
            tracing::error!(job = walk.job, error = %chain(&error), "a withheld batch does not show at the review desk");
        }
        return Err(Failure::Withheld { revision: cursor.revision, reason });
    }

    let all_passed = examined.passed == loaded;
    let wraps = all_passed && (nothing_left || !horizon.is_empty());
    // what is passed is judged, and stands first
    let passed_last = examined.passed.checked_sub(1).and_then(|last| examined.judged.get(last));
    let cursor_move = CursorMove {
        to: passed_last.map(|judged| position_of(&judged.payment)).or_else(|| cursor.position.clone()),
        from: cursor.position.clone(),
        wraps,
        // a cycle that has not come anywhere has not begun
        begins: turn == Turn::Begin && (examined.passed > 0 || wraps),
        // a view that is empty as a whole is a wrong adapter before it is a table without payments
        cleans: walk.source == Source::Every && !(nothing_left && horizon.is_empty() && cursor.position.is_none()),
    };
    deps.steps.reach(Step::Decided).await;
    let committed =
        commit_batch(deps.db, walk.job, walk.keyset, cursor.revision, now, &cursor_move, &examined.judged).await?;
    deps.steps.reach(Step::Committed).await;

    match committed {
        CommitOutcome::Lost => Ok(Outcome::AbortedConcurrentRun),
        CommitOutcome::Written(written) => {
            report_judged(report, &examined.judged, &written);
            if wraps {
                (0..horizon.len()).for_each(|_| report.count(Verdict::InFlight));
            }
            report_written(report, &written);
            remember(deps, walk, &cursor, &examined, now).await;
            Ok(outcome_of(&examined, wraps))
        }
    }
}

/// Keeps what was learned, for the next tick. The batch is written by now, so an error is told and ends nothing.
async fn remember<G>(deps: &Deps<'_, G>, walk: &Walk, cursor: &Cursor, examined: &Examined, now: Timestamp) {
    if let Some(learned) = examined.learned.filter(|learned| *learned != cursor.learned)
        && let Err(error) = write_learned(deps.db, walk.job, &learned, now).await
    {
        tracing::warn!(job = walk.job, error = %chain(&error), "the next batch may cost more requests than it need");
    }
}

async fn load<G>(deps: &Deps<'_, G>, walk: &Walk, cursor: &Cursor, now: Timestamp) -> Result<Batch, RunError> {
    let limit = i64::from(deps.settings.batch_size);
    let after = cursor.position.as_ref();
    Ok(match &walk.source {
        Source::Every => load_batch(deps.db, walk.job, walk.keyset, after, limit).await?,
        Source::Unfinished { younger_than } => {
            load_unfinished(deps.db, walk.job, after, limit, now.saturating_sub(*younger_than)).await?
        }
        Source::Suspects(suspicion) => load_suspects(deps.db, walk.job, after, limit, suspicion, now).await?,
    })
}

fn position_of(payment: &Payment) -> Position {
    Position { created_at: payment.created_at, id: payment.id.clone() }
}

fn outcome_of(examined: &Examined, wraps: bool) -> Outcome {
    match examined.stop {
        Some(Stop::Deadline) => Outcome::Partial,
        Some(Stop::RateLimited | Stop::Outage) => Outcome::Stopped,
        None if wraps => Outcome::Wrapped,
        None => Outcome::Advanced,
    }
}

async fn reason_to_withhold<G: Gateway>(
    deps: &Deps<'_, G>,
    examined: &Examined,
    report: &mut Report,
) -> Result<Option<String>, RunError> {
    let missing = examined.missing;
    if missing.looks_like_a_wrong_key() {
        let (opens, requests) = key_opens_known_payments(&deps.observing(false), deps.db).await?;
        report.requests += requests;
        if !opens {
            return Ok(Some(format!(
                "all {} answered payments exist in the other mode only (live or test), which is what a wrong key looks like",
                missing.answered
            )));
        }
    }
    let cap = deps.settings.missing_cap;
    Ok(missing.is_a_flood(cap).then(|| {
        format!(
            "Stripe does not know {} of the {} payments that were asked for, more than half and more than MISSING_CAP = {cap}",
            missing.missing, missing.answered
        )
    }))
}
