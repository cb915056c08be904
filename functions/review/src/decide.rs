//! A decision: judge → record → act → commit, in one transaction over one snapshot.
//!
//! Review, payment, ledger, event and the finding's end are written together or not at all. Two who decide at once meet in the
//! review's unique index (one review of a finding at a revision), and a scan that changes the finding meanwhile in its row:
//! Postgres refuses the second one of them, the transaction is rolled back, and what is there now is judged again. So the loser
//! is told what is true now.
//!
//! The desk does not ask Stripe. What it knows of Stripe's side is the last confirmed answer, whose time is shown; where that is
//! old, look at the object in Stripe's dashboard before you apply anything.

use reconciler::domain::Timestamp;
use reconciler::domain::id::PaymentId;
use reconciler::domain::review::{Act, Decision, FindingNow, PersonOnly, Refusal, judge};
use reconciler::domain::verdict::Repair;
use reconciler::store::cursor::{self, release};
use reconciler::writer::{Transition, WriteOutcome, WriterError, transition};
use serde::Serialize;
use serde_json::{Value, json};
use time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, IsolationLevel, Transaction};

use crate::ReviewError;
use crate::caller::Caller;
use crate::request::{Asked, Decide, Release};
use crate::show::{finding_of, read};

/// How often a decision is judged anew because somebody else wrote meanwhile.
const TRIES_MAX: u32 = 5;

/// What came of a decision. Losing a race is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    /// It is written.
    Recorded(Recorded),
    /// Nothing is written.
    Refused(Refused),
}

/// A decision that is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recorded {
    /// The review.
    pub review: i64,
    /// What was decided.
    pub decision: &'static str,
    /// What it has come to: `accepted`, `applied`, `already_written`, `queued`, `snoozed`, `released`.
    pub result: &'static str,
    /// The finding, unless it is a batch's release.
    pub finding: Option<i64>,
    /// The batch's job, where it is one.
    pub job: Option<String>,
    /// Who is on record, and what vouches for it.
    pub who: String,
    /// See `reconciliation.review.who_is`.
    pub who_is: &'static str,
    /// Seconds from the opening of the finding, or the first withholding, to this.
    pub waited_seconds: u64,
}

/// A decision that does not stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// A name that does not change.
    pub reason: &'static str,
    /// What is true now.
    pub message: String,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { reason: refusal.reason(), message: refusal.to_string() }
    }
}

/// How one try ends.
enum Try {
    Ended(Decided),
    /// Somebody else wrote meanwhile: to be judged anew.
    Overtaken,
}

/// Decides about a finding. `now` is the database's time.
pub async fn decide(
    db: &mut Client,
    request: &Decide,
    caller: &Caller,
    now: Timestamp,
) -> Result<Decided, ReviewError> {
    for _ in 0..TRIES_MAX {
        let within = begin(db).await?;
        match try_once(&within, request, caller, now).await {
            Ok(Try::Ended(Decided::Recorded(recorded))) => match within.commit().await {
                Ok(()) => return Ok(Decided::Recorded(recorded)),
                Err(source) if overtaken(&source) => {}
                Err(source) => return Err(ReviewError::Commit { source }),
            },
            Ok(Try::Ended(refused)) => return Ok(refused), // dropped, the transaction is rolled back
            Ok(Try::Overtaken) => {}
            Err(ReviewError::Query { source, .. } | ReviewError::Writer(WriterError::Transition { source, .. }))
                if overtaken(&source) => {}
            Err(error) => return Err(error),
        }
    }
    Err(ReviewError::Contended { finding: request.finding })
}

/// Lets a withheld batch through. `now` is the database's time.
pub async fn release_batch(
    db: &mut Client,
    request: &Release,
    caller: &Caller,
    now: Timestamp,
) -> Result<Decided, ReviewError> {
    let Release { job, revision, note, by } = request;
    let within = db.transaction().await.map_err(|source| ReviewError::Begin { source })?;
    let parameters: [(&(dyn ToSql + Sync), Type); 8] = [
        (job, Type::TEXT),
        (revision, Type::INT8),
        (&caller.name(), Type::TEXT),
        (&caller.kind(), Type::TEXT),
        (&caller.request_id, Type::TEXT),
        (by, Type::TEXT),
        (note, Type::TEXT),
        (&now, Type::TIMESTAMPTZ),
    ];
    let failed = |source| ReviewError::Query { what: "the release of a batch", source };
    let row = within.query_typed_opt(include_str!("sql/release_insert.sql"), &parameters).await.map_err(failed)?;
    let released = match row {
        Some(row) if release(&within, job, *revision).await? == cursor::Release::Released => row,
        _ => {
            let message = not_withheld(&within, job, *revision).await?;
            return Ok(Decided::Refused(Refused { reason: "not_withheld", message }));
        }
    };
    let review = released.try_get("id").map_err(failed)?;
    let withheld_at: Timestamp = released.try_get("withheld_at").map_err(failed)?;
    within.commit().await.map_err(|source| ReviewError::Commit { source })?;
    Ok(Decided::Recorded(Recorded {
        review,
        decision: "release",
        result: "released",
        finding: None,
        job: Some(job.clone()),
        who: caller.name(),
        who_is: caller.kind(),
        waited_seconds: seconds(now - withheld_at),
    }))
}

/// What is true now of a batch that cannot be let through.
async fn not_withheld(within: &Transaction<'_>, job: &str, revision: i64) -> Result<String, ReviewError> {
    let failed = |source| ReviewError::Query { what: "a cursor", source };
    let row = within.query_typed_opt(include_str!("sql/cursor_of.sql"), &[(&job, Type::TEXT)]).await.map_err(failed)?;
    let Some(row) = row else { return Ok(format!("there is no job {job}")) };
    let at: i64 = row.try_get("revision").map_err(failed)?;
    let withheld: bool = row.try_get("withheld").map_err(failed)?;
    let released: bool = row.try_get("released").map_err(failed)?;
    let is = match (withheld, released) {
        (_, true) => "let through already",
        (true, false) => "withheld",
        (false, false) => "not withheld",
    };
    Ok(format!(
        "no batch of {job} is to be let through at revision {revision}: it is at revision {at}, where its batch is {is}"
    ))
}

async fn begin(db: &mut Client) -> Result<Transaction<'_>, ReviewError> {
    let transaction = db.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
    transaction.start().await.map_err(|source| ReviewError::Begin { source })
}

/// Somebody else wrote what this transaction has read or wants to write.
fn overtaken(error: &tokio_postgres::Error) -> bool {
    matches!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED))
}

async fn try_once(
    within: &Transaction<'_>,
    request: &Decide,
    caller: &Caller,
    now: Timestamp,
) -> Result<Try, ReviewError> {
    let failed = |source| ReviewError::Query { what: "a finding", source };
    let Some(row) = read(within, request.finding).await? else {
        return Ok(refused("no_such_finding", format!("there is no finding {}", request.finding)));
    };
    let finding = finding_of(&row).map_err(failed)?;
    let decision = decision_of(request.decision, now);
    let act = match judge(decision, request.revision, &finding, now) {
        Ok(act) => act,
        Err(refusal) => return Ok(Try::Ended(Decided::Refused(refusal.into()))),
    };
    let Some(review) = record(within, request, decision, caller, now).await? else { return Ok(Try::Overtaken) };
    let payment: Option<String> = row.try_get("payment_id").map_err(failed)?;
    let result = match act {
        Act::Accept => {
            one(within, include_str!("sql/finding_accept.sql"), request, review, &now).await?.map(|()| "accepted")
        }
        Act::Snooze { until } => {
            one(within, include_str!("sql/finding_snooze.sql"), request, review, &until).await?.map(|()| "snoozed")
        }
        Act::Issue(repair) => issue(within, request, review, now, repair).await?.map(|()| "queued"),
        Act::Apply(asked) => {
            let payment = PaymentId::new(payment.unwrap_or_default());
            match apply(within, &finding, &payment, asked, review).await? {
                WriteOutcome::Written => Some("applied"),
                WriteOutcome::AlreadyWritten => Some("already_written"),
                WriteOutcome::Superseded => {
                    let message =
                        "the application's write port says that the payment went another way; the next scan judges it";
                    return Ok(refused("superseded", message.to_owned()));
                }
            }
        }
    };
    let Some(result) = result else { return Ok(Try::Overtaken) };
    let detected_at: Timestamp = row.try_get("detected_at").map_err(failed)?;
    Ok(Try::Ended(Decided::Recorded(Recorded {
        review,
        decision: decision.as_str(),
        result,
        finding: Some(finding.id),
        job: None,
        who: caller.name(),
        who_is: caller.kind(),
        waited_seconds: seconds(now - detected_at),
    })))
}

fn refused(reason: &'static str, message: String) -> Try {
    Try::Ended(Decided::Refused(Refused { reason, message }))
}

fn decision_of(asked: Asked, now: Timestamp) -> Decision {
    match asked {
        Asked::Accept => Decision::Accept,
        Asked::Apply(transition) => Decision::Apply(transition),
        Asked::Retry => Decision::Retry,
        Asked::SnoozeUntil(until) => Decision::Snooze { until },
        Asked::SnoozeDays(days) => Decision::Snooze { until: now.saturating_add(Duration::days(days)) },
    }
}

async fn record(
    within: &Transaction<'_>,
    request: &Decide,
    decision: Decision,
    caller: &Caller,
    now: Timestamp,
) -> Result<Option<i64>, ReviewError> {
    let transition = match decision {
        Decision::Apply(transition) => Some(transition.as_str()),
        Decision::Accept | Decision::Retry | Decision::Snooze { .. } => None,
    };
    let until = match decision {
        Decision::Snooze { until } => Some(until),
        Decision::Accept | Decision::Retry | Decision::Apply(_) => None,
    };
    let parameters: [(&(dyn ToSql + Sync), Type); 11] = [
        (&request.finding, Type::INT8),
        (&request.revision, Type::INT8),
        (&decision.as_str(), Type::TEXT),
        (&transition, Type::TEXT),
        (&until, Type::TIMESTAMPTZ),
        (&caller.name(), Type::TEXT),
        (&caller.kind(), Type::TEXT),
        (&caller.request_id, Type::TEXT),
        (&request.by, Type::TEXT),
        (&request.note, Type::TEXT),
        (&now, Type::TIMESTAMPTZ),
    ];
    let failed = |source| ReviewError::Query { what: "the record of a decision", source };
    let row = within.query_typed_opt(include_str!("sql/review_insert.sql"), &parameters).await.map_err(failed)?;
    row.map(|row| row.try_get("id")).transpose().map_err(failed)
}

/// A statement that changes the finding as it was shown. `None`: it is not so any more.
async fn one(
    within: &Transaction<'_>,
    sql: &str,
    request: &Decide,
    review: i64,
    at: &Timestamp,
) -> Result<Option<()>, ReviewError> {
    let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
        (&request.finding, Type::INT8),
        (&request.revision, Type::INT8),
        (&review, Type::INT8),
        (at, Type::TIMESTAMPTZ),
    ];
    let row = within.query_typed_opt(sql, &parameters).await;
    row.map(|row| row.map(drop)).map_err(|source| ReviewError::Query { what: "the change of a finding", source })
}

async fn issue(
    within: &Transaction<'_>,
    request: &Decide,
    review: i64,
    now: Timestamp,
    repair: Repair,
) -> Result<Option<()>, ReviewError> {
    let parameters: [(&(dyn ToSql + Sync), Type); 5] = [
        (&request.finding, Type::INT8),
        (&request.revision, Type::INT8),
        (&review, Type::INT8),
        (&now, Type::TIMESTAMPTZ),
        (&repair.command(), Type::TEXT),
    ];
    let row = within.query_typed_opt(include_str!("sql/finding_retry.sql"), &parameters).await;
    row.map(|row| row.map(drop)).map_err(|source| ReviewError::Query { what: "the command of a finding", source })
}

async fn apply(
    within: &Transaction<'_>,
    finding: &FindingNow,
    payment: &PaymentId,
    asked: PersonOnly,
    review: i64,
) -> Result<WriteOutcome, ReviewError> {
    let wanted = match asked {
        PersonOnly::ReversePaid => Transition::ReversePaid,
        PersonOnly::AcceptLateSuccess => Transition::AcceptLateSuccess,
    };
    let evidence: Value = json!({
        "external_ref": finding.external_ref,
        "external_status": finding.external_status,
        "source": "review",
    });
    Ok(transition(within, payment, wanted, &evidence, Some(finding.id), Some(review)).await?)
}

fn seconds(waited: Duration) -> u64 {
    u64::try_from(waited.whole_seconds()).unwrap_or(0)
}
