//! Writing everything that one batch came to, in one statement: all of it or nothing (promises 3 to 5).

use time::Duration;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::cursor::Position;
use super::{Keyset, StoreError, is_deadlock};
use crate::domain::Timestamp;
use crate::domain::external::Seen;
use crate::domain::payment::{LocalState, Payment, Reference};
use crate::domain::verdict::{Judgement, Verdict};

/// How often a commit that Postgres ended to break a deadlock is sent again.
const DEADLOCK_RETRIES: u32 = 5;

/// A command that was delivered longer ago than this has had its effect, or will have none.
pub(super) const COMMAND_TAKES_EFFECT_WITHIN: Duration = Duration::hours(1);

/// How often the command of one finding is issued: once, and again at most three times. Then a person decides.
pub(super) const COMMANDS_MAX: i64 = 4;

/// One payment's outcome, as it is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedPayment {
    /// The row as it was loaded; another version by the time of the commit outdates the judgement.
    pub payment: Payment,
    /// What came of it.
    pub outcome: JudgedOutcome,
}

/// What is known of a payment at the end of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JudgedOutcome {
    /// Confirmed, by Stripe or because there is nothing to ask: it counts as verified.
    Confirmed {
        /// The database's time before the request, or of the tick where none was needed.
        observed_at: Timestamp,
        /// What Stripe said; `None` where there was nothing to ask.
        seen: Option<Seen>,
        /// What the comparison came to.
        judgement: Judgement,
        /// What a person should see of it, as a JSON object; used where the judgement is a drift.
        evidence: serde_json::Value,
    },
    /// Too fresh to be judged: not asked, and not verified.
    NotAsked,
    /// Asked without a confirmed answer: not verified.
    Unanswered,
}

impl JudgedOutcome {
    /// The verdict that it is counted under.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Confirmed { judgement, .. } => judgement.verdict(),
            Self::NotAsked => Verdict::InFlight,
            Self::Unanswered => Verdict::Unverifiable,
        }
    }
}

/// Where the cursor goes with a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorMove {
    /// The position that the batch was loaded at.
    pub from: Option<Position>,
    /// The last payment that was passed; the same as `from` where none was.
    pub to: Option<Position>,
    /// The cycle ends here: the next one starts from the first payment.
    pub wraps: bool,
    /// The cycle begins here.
    pub begins: bool,
    /// Observations between the two positions whose payment is gone are forgotten: for a walk that passes every payment, so
    /// that the distance between the positions is a batch.
    pub cleans: bool,
}

/// What a commit came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// All of it is written.
    Written(Written),
    /// Another tick moved the cursor first: nothing is written.
    Lost,
}

/// The facts of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Findings that were not open before.
    pub opened: Vec<FindingFact>,
    /// Findings that are over.
    pub closed: Vec<FindingFact>,
    /// Findings whose repairs did not help: a person decides from here on.
    pub escalated: Vec<FindingFact>,
    /// Commands that were put into the outbox, for the first time or again.
    pub commands_queued: u64,
    /// Events that were put into the outbox.
    pub events_queued: u64,
    /// Keys of payments that changed, went away, or were observed by a faster scan meanwhile: nothing was decided.
    pub passed_by: Vec<String>,
    /// PaymentIntents that were taken for orphans, and that a payment names by now.
    pub named: Vec<String>,
}

/// A finding as the log and the metrics name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingFact {
    /// `reconciliation.finding.id`.
    pub id: i64,
    /// The payment's key; `None` for an orphan's finding.
    pub payment_id: Option<String>,
    /// The PaymentIntent, for an orphan's finding.
    pub external_ref: Option<String>,
    /// The kind's name.
    pub kind: String,
    /// `repairable` or `needs_review`.
    pub verdict: String,
}

/// What a walk's commit is made of. The reverse scan's has the same middle.
const COMMIT: &str = concat!(
    include_str!("sql/commit_cursor_move.sql"),
    include_str!("sql/commit_judged.sql"),
    include_str!("sql/commit_cursor_clean.sql"),
);

/// Commits one batch of `job`, loaded at `revision`. `judged` holds each payment at most once. A deadlock repeats the whole
/// statement; any other error means that nothing is written, or, where the connection broke, that the next tick will find
/// out by the revision.
pub async fn commit_batch(
    db: &Client,
    job: &str,
    keyset: Keyset,
    revision: i64,
    now: Timestamp,
    cursor: &CursorMove,
    judged: &[JudgedPayment],
) -> Result<CommitOutcome, StoreError> {
    let columns = Columns::of(judged);
    let (from_at, from_id) = parts(cursor.from.as_ref());
    let (to_at, to_id) = parts(cursor.to.as_ref());
    let takes_effect_before = now - COMMAND_TAKES_EFFECT_WITHIN;
    let parameters: [(&(dyn ToSql + Sync), Type); 25] = [
        (&job, Type::TEXT),
        (&revision, Type::INT8),
        (&now, Type::TIMESTAMPTZ),
        (&keyset.as_str(), Type::TEXT),
        (&from_at, Type::TIMESTAMPTZ),
        (&from_id, Type::TEXT),
        (&to_at, Type::TIMESTAMPTZ),
        (&to_id, Type::TEXT),
        (&cursor.wraps, Type::BOOL),
        (&cursor.begins, Type::BOOL),
        (&columns.payment_id, Type::TEXT_ARRAY),
        (&columns.version, Type::TEXT_ARRAY),
        (&columns.observed_at, Type::TIMESTAMPTZ_ARRAY),
        (&columns.external_status, Type::TEXT_ARRAY),
        (&columns.external_created_at, Type::TIMESTAMPTZ_ARRAY),
        (&columns.local_state, Type::TEXT_ARRAY),
        (&columns.external_ref, Type::TEXT_ARRAY),
        (&columns.verdict, Type::TEXT_ARRAY),
        (&columns.kind, Type::TEXT_ARRAY),
        (&columns.evidence, Type::TEXT_ARRAY),
        (&columns.command, Type::TEXT_ARRAY),
        (&columns.compensation, Type::BOOL_ARRAY),
        (&takes_effect_before, Type::TIMESTAMPTZ),
        (&COMMANDS_MAX, Type::INT8),
        (&cursor.cleans, Type::BOOL),
    ];
    let rows = send_commit(db, COMMIT, &parameters, job, revision).await?;
    outcome_of(&rows).map_err(|source| StoreError::CommitBatch { job: job.to_owned(), revision, source })
}

/// Sends a commit, again where Postgres ended it to break a deadlock.
pub(super) async fn send_commit(
    db: &Client,
    statement: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
    job: &str,
    revision: i64,
) -> Result<Vec<Row>, StoreError> {
    let mut deadlocks = 0;
    loop {
        match db.query_typed(statement, parameters).await {
            Ok(rows) => return Ok(rows),
            Err(error) if is_deadlock(&error) && deadlocks < DEADLOCK_RETRIES => {
                deadlocks += 1;
                tracing::warn!(job, revision, deadlocks, "a deadlock ended the commit, which is sent again");
            }
            Err(source) => return Err(StoreError::CommitBatch { job: job.to_owned(), revision, source }),
        }
    }
}

/// Reads the facts that a commit returns.
pub(super) fn outcome_of(rows: &[Row]) -> Result<CommitOutcome, tokio_postgres::Error> {
    let mut written = Written::default();
    let mut moved = false;
    for row in rows {
        match row.try_get::<_, &str>("fact")? {
            "moved" => moved = true,
            "opened" => written.opened.push(finding_of(row)?),
            "closed" => written.closed.push(finding_of(row)?),
            "escalated" => written.escalated.push(finding_of(row)?),
            "queued" => written.commands_queued += 1,
            "announced" => written.events_queued += 1,
            "named" => written.named.extend(row.try_get::<_, Option<String>>("external_ref")?),
            _ => written.passed_by.push(row.try_get("payment_id")?),
        }
    }
    Ok(if moved { CommitOutcome::Written(written) } else { CommitOutcome::Lost })
}

fn finding_of(row: &Row) -> Result<FindingFact, tokio_postgres::Error> {
    Ok(FindingFact {
        id: row.try_get("id")?,
        payment_id: row.try_get("payment_id")?,
        external_ref: row.try_get("external_ref")?,
        kind: row.try_get("kind")?,
        verdict: row.try_get("verdict")?,
    })
}

fn parts(position: Option<&Position>) -> (Option<Timestamp>, Option<&str>) {
    position.map(|position| (position.created_at, position.id.as_str())).unzip()
}

/// The statement's arrays: one element a row.
pub(super) struct Columns<'a> {
    pub(super) payment_id: Vec<&'a str>,
    pub(super) version: Vec<&'a str>,
    pub(super) observed_at: Vec<Option<Timestamp>>,
    pub(super) external_status: Vec<Option<&'a str>>,
    pub(super) external_created_at: Vec<Option<Timestamp>>,
    pub(super) local_state: Vec<Option<&'a str>>,
    pub(super) external_ref: Vec<Option<&'a str>>,
    pub(super) verdict: Vec<&'static str>,
    pub(super) kind: Vec<Option<String>>,
    pub(super) evidence: Vec<Option<String>>,
    pub(super) command: Vec<Option<&'static str>>,
    pub(super) compensation: Vec<bool>,
}

impl<'a> Columns<'a> {
    fn with_capacity(rows: usize) -> Self {
        Self {
            payment_id: Vec::with_capacity(rows),
            version: Vec::with_capacity(rows),
            observed_at: Vec::with_capacity(rows),
            external_status: Vec::with_capacity(rows),
            external_created_at: Vec::with_capacity(rows),
            local_state: Vec::with_capacity(rows),
            external_ref: Vec::with_capacity(rows),
            verdict: Vec::with_capacity(rows),
            kind: Vec::with_capacity(rows),
            evidence: Vec::with_capacity(rows),
            command: Vec::with_capacity(rows),
            compensation: Vec::with_capacity(rows),
        }
    }

    pub(super) fn of(judged: &'a [JudgedPayment]) -> Self {
        let mut columns = Self::with_capacity(judged.len());
        for JudgedPayment { payment, outcome } in judged {
            columns.payment_id.push(payment.id.as_str());
            columns.version.push(&payment.version);
            columns.local_state.push(LocalState::as_str(&payment.state));
            columns.external_ref.push(Reference::as_str(&payment.reference));
            columns.verdict.push(outcome.verdict().as_str());
            match outcome {
                JudgedOutcome::Confirmed { observed_at, seen, judgement, evidence } => {
                    columns.observed_at.push(Some(*observed_at));
                    columns.external_status.push(seen.as_ref().map(Seen::status_text));
                    columns.external_created_at.push(seen.as_ref().and_then(|seen| seen.created));
                    columns.kind.push(judgement.kind().map(|kind| kind.to_string()));
                    columns.evidence.push(judgement.kind().map(|_| evidence.to_string()));
                    let (command, compensation) = consequences(judgement);
                    columns.command.push(command);
                    columns.compensation.push(compensation);
                }
                JudgedOutcome::NotAsked | JudgedOutcome::Unanswered => {
                    columns.observed_at.push(None);
                    columns.external_status.push(None);
                    columns.external_created_at.push(None);
                    columns.kind.push(None);
                    columns.evidence.push(None);
                    columns.command.push(None);
                    columns.compensation.push(false);
                }
            }
        }
        columns
    }
}

fn consequences(judgement: &Judgement) -> (Option<&'static str>, bool) {
    match judgement {
        Judgement::InSync | Judgement::InFlight => (None, false),
        Judgement::Repairable(repair) => (Some(repair.command()), false),
        Judgement::NeedsReview { compensation, .. } => (None, *compensation),
    }
}
