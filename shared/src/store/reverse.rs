//! The reverse scan's window, its candidates for an orphan, and its commit.

use std::collections::HashMap;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::StoreError;
use super::batch::payment_of;
use super::commit::{
    COMMAND_TAKES_EFFECT_WITHIN, COMMANDS_MAX, Columns, CommitOutcome, JudgedPayment, outcome_of, send_commit,
};
use crate::domain::Timestamp;
use crate::domain::id::{ExternalRef, PaymentId};
use crate::domain::payment::Payment;
use crate::domain::verdict::Kind;

/// A job's row in `reconciliation.reverse_window`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Grows with every commit.
    pub revision: i64,
    /// The settings by which objects are told apart and matched.
    pub terms: String,
    /// The window that is being walked; `None` between two.
    pub under_way: Option<UnderWay>,
    /// Objects that a payment here names, of all windows.
    pub known: i64,
    /// The last completed window's upper edge, and when it was completed.
    pub completed: Option<(Timestamp, Timestamp)>,
    /// From here to the last completed upper edge every object was read under these terms.
    pub proven_from: Option<Timestamp>,
    /// Objects of that proof whose metadata names the payment that names them.
    pub proven_matched: i64,
}

/// A window that is being walked. Half-open, in Stripe's `created`, whole seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderWay {
    /// Its lower edge.
    pub from: Timestamp,
    /// Its upper edge.
    pub to: Timestamp,
    /// The last object of the page that was read last; `None` before the first.
    pub page_after: Option<ExternalRef>,
    /// When it was begun.
    pub started_at: Timestamp,
    /// Pages read.
    pub pages: i64,
    /// Objects on them.
    pub objects: i64,
    /// Of these, those whose metadata names the payment that names them.
    pub matched: i64,
    /// Of these, those that could not be read.
    pub unread: i64,
}

/// Reads a job's window, and makes its row where it has never started.
pub async fn read_window(db: &Client, job: &str) -> Result<Window, StoreError> {
    let failed = |source| StoreError::ReadWindow { job: job.to_owned(), source };
    let row = db.query_typed_opt(include_str!("sql/window_read.sql"), &[(&job, Type::TEXT)]).await.map_err(failed)?;
    row.map_or(Ok(Window::default()), |row| window_of(&row)).map_err(failed)
}

fn window_of(row: &Row) -> Result<Window, tokio_postgres::Error> {
    let (from, to, started_at): (Option<Timestamp>, Option<Timestamp>, Option<Timestamp>) =
        (row.try_get("window_from")?, row.try_get("window_to")?, row.try_get("started_at")?);
    let page_after: Option<String> = row.try_get("page_after")?;
    let (pages, objects) = (row.try_get("pages")?, row.try_get("objects")?);
    let (matched, unread) = (row.try_get("matched")?, row.try_get("unread")?);
    let under_way = from.zip(to).zip(started_at).map(|((from, to), started_at)| UnderWay {
        from,
        to,
        // a text that is no id leads nowhere, and the window begins anew
        page_after: page_after.as_deref().and_then(ExternalRef::parse),
        started_at,
        pages,
        objects,
        matched,
        unread,
    });
    let completed_to: Option<Timestamp> = row.try_get("completed_to")?;
    Ok(Window {
        revision: row.try_get("revision")?,
        terms: row.try_get("terms")?,
        under_way,
        known: row.try_get("known")?,
        completed: completed_to.zip(row.try_get("last_completed_at")?),
        proven_from: row.try_get("proven_from")?,
        proven_matched: row.try_get("proven_matched")?,
    })
}

/// A payment that names an object of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPayment {
    /// The payment.
    pub payment: Payment,
    /// The kinds of its open findings, by name.
    pub open_kinds: Vec<String>,
    /// What a person accepted of it as it is now: kind and external status, with a space between.
    pub accepted: Vec<String>,
}

impl KnownPayment {
    /// Whether a drift of this kind opens no new finding.
    pub fn is_settled(&self, kind: &str, external_status: &str) -> bool {
        self.open_kinds.iter().any(|open| open == kind)
            || self.accepted.iter().any(|accepted| *accepted == format!("{kind} {external_status}"))
    }
}

/// The payments that name one of these PaymentIntents.
pub async fn load_known(db: &Client, job: &str, ids: &[&str]) -> Result<Vec<KnownPayment>, StoreError> {
    let failed = |source| StoreError::LoadBatch { job: job.to_owned(), source };
    let statement = include_str!("sql/known_payments.sql");
    let rows = db.query_typed(statement, &[(&ids, Type::TEXT_ARRAY)]).await.map_err(failed)?;
    let mut known: Vec<KnownPayment> = Vec::with_capacity(rows.len());
    for row in &rows {
        let id: String = row.try_get("id").map_err(failed)?;
        // a view that names a payment twice, by a join say, must not stop the walk
        if known.last().is_none_or(|last| last.payment.id.as_str() != id) {
            let open_kinds = row.try_get("open_kinds").map_err(failed)?;
            let accepted = row.try_get("accepted").map_err(failed)?;
            known.push(KnownPayment { payment: payment_of(row, id, job)?, open_kinds, accepted });
        }
    }
    Ok(known)
}

/// A PaymentIntent to be looked at again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its id.
    pub id: ExternalRef,
    /// The status that was seen last.
    pub status: String,
    /// When it was seen first; `None` where there is only a finding of it.
    pub first_seen_at: Option<Timestamp>,
    /// A payment names it by now.
    pub named: bool,
}

/// Candidates that are due, at most `limit` of them, and open findings of orphans that a payment names by now.
pub async fn load_candidates(db: &Client, now: Timestamp, limit: i64) -> Result<Vec<Candidate>, StoreError> {
    let failed = |source| StoreError::LoadCandidates { source };
    let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&now, Type::TIMESTAMPTZ), (&limit, Type::INT8)];
    let rows = db.query_typed(include_str!("sql/candidates_due.sql"), &parameters).await.map_err(failed)?;
    let mut candidates = Vec::with_capacity(rows.len());
    for row in &rows {
        if let Some(id) = ExternalRef::parse(row.try_get("external_ref").map_err(failed)?) {
            candidates.push(Candidate {
                id,
                status: row.try_get("status").map_err(failed)?,
                first_seen_at: row.try_get("first_seen_at").map_err(failed)?,
                named: row.try_get("named").map_err(failed)?,
            });
        }
    }
    Ok(candidates)
}

/// How many PaymentIntents are candidates for an orphan.
pub async fn count_candidates(db: &Client) -> Result<i64, StoreError> {
    db.query_typed_one(include_str!("sql/candidate_count.sql"), &[])
        .await
        .and_then(|row| row.try_get(0))
        .map_err(|source| StoreError::LoadCandidates { source })
}

/// For each of these match keys the oldest payment that has it and has no reference.
pub async fn load_unlinked(db: &Client, match_keys: &[&str]) -> Result<HashMap<String, PaymentId>, StoreError> {
    let failed = |source| StoreError::LoadUnlinked { source };
    let statement = include_str!("sql/unlinked_payments.sql");
    let rows = db.query_typed(statement, &[(&match_keys, Type::TEXT_ARRAY)]).await.map_err(failed)?;
    rows.iter()
        .map(|row| Ok((row.try_get("match_key")?, PaymentId::new(row.try_get::<_, String>("id")?))))
        .collect::<Result<_, _>>()
        .map_err(failed)
}

/// Which payments a proof of absence is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Created at this or later.
    pub from: Timestamp,
    /// Created and last changed before this.
    pub to: Timestamp,
    /// Last changed at this or later.
    pub changed_since: Timestamp,
}

/// Payments that were sent, have no reference, and that no PaymentIntent names. At most `limit`, new ones first.
pub async fn load_unexplained(db: &Client, job: &str, proof: &Proof, limit: i64) -> Result<Vec<Payment>, StoreError> {
    let failed = |source| StoreError::LoadBatch { job: job.to_owned(), source };
    let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
        (&proof.from, Type::TIMESTAMPTZ),
        (&proof.to, Type::TIMESTAMPTZ),
        (&proof.changed_since, Type::TIMESTAMPTZ),
        (&limit, Type::INT8),
    ];
    let rows = db.query_typed(include_str!("sql/unexplained_payments.sql"), &parameters).await.map_err(failed)?;
    let mut payments: Vec<Payment> = Vec::with_capacity(rows.len());
    for row in &rows {
        let id: String = row.try_get("id").map_err(failed)?;
        if payments.iter().all(|payment| payment.id.as_str() != id) {
            payments.push(payment_of(row, id, job)?);
        }
    }
    Ok(payments)
}

/// How a PaymentIntent that no payment names was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It was on a page: the first look, or a sighting between two.
    Listed,
    /// It was retrieved: a look that decides.
    Retrieved,
    /// It was asked for without an answer that counts: only the next look is put off.
    Unanswered,
}

impl How {
    fn as_str(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::Retrieved => "retrieved",
            Self::Unanswered => "unanswered",
        }
    }
}

/// A PaymentIntent that no payment names, as it is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// Its id.
    pub id: ExternalRef,
    /// How it was come by.
    pub how: How,
    /// Its status; `unreadable` or `not_found` where there was none.
    pub status: String,
    /// The payment that its metadata names.
    pub match_key: Option<String>,
    /// When Stripe created it, where that is known.
    pub created: Option<Timestamp>,
    /// When it is looked at again; `None` where it is no candidate any more.
    pub next_look_at: Option<Timestamp>,
    /// The finding that it is, with its evidence.
    pub finding: Option<(Kind, serde_json::Value)>,
}

/// The reverse scan's commit; its middle is that of the walks.
const COMMIT: &str = concat!(
    include_str!("sql/commit_window_move.sql"),
    include_str!("sql/commit_judged.sql"),
    include_str!("sql/commit_window_orphans.sql"),
);

/// What a tick came to, to be written as a whole.
#[derive(Clone, Copy, Debug)]
pub struct WindowCommit<'a> {
    /// The window's next state. Its revision is the one that it was read at.
    pub window: &'a Window,
    /// Payments, each at most once.
    pub judged: &'a [JudgedPayment],
    /// PaymentIntents that no payment names, each at most once.
    pub strangers: &'a [Stranger],
}

/// Writes all of it, or nothing where another tick wrote since the window was read. A deadlock repeats the whole statement.
pub async fn commit_window(
    db: &Client,
    job: &str,
    now: Timestamp,
    commit: &WindowCommit<'_>,
) -> Result<CommitOutcome, StoreError> {
    let WindowCommit { window, judged, strangers } = *commit;
    let columns = Columns::of(judged);
    let under_way = window.under_way.as_ref();
    let (from, to) = under_way.map(|under_way| (under_way.from, under_way.to)).unzip();
    let started_at = under_way.map(|under_way| under_way.started_at);
    let page_after = under_way.and_then(|under_way| under_way.page_after.as_ref()).map(ExternalRef::as_str);
    let (completed_to, completed_at) = window.completed.unzip();
    let counted = |count: fn(&UnderWay) -> i64| under_way.map_or(0, count);
    let counters = [
        counted(|under_way| under_way.pages),
        counted(|under_way| under_way.objects),
        counted(|under_way| under_way.matched),
        counted(|under_way| under_way.unread),
        window.known,
        window.proven_matched,
    ];
    let counters = counters.as_slice();
    let takes_effect_before = now - COMMAND_TAKES_EFFECT_WITHIN;
    let ids: Vec<&str> = strangers.iter().map(|stranger| stranger.id.as_str()).collect();
    let how: Vec<&str> = strangers.iter().map(|stranger| stranger.how.as_str()).collect();
    let status: Vec<&str> = strangers.iter().map(|stranger| stranger.status.as_str()).collect();
    let match_key: Vec<Option<&str>> = strangers.iter().map(|stranger| stranger.match_key.as_deref()).collect();
    let created: Vec<Option<Timestamp>> = strangers.iter().map(|stranger| stranger.created).collect();
    let next_look_at: Vec<Option<Timestamp>> = strangers.iter().map(|stranger| stranger.next_look_at).collect();
    let finding =
        |stranger: &Stranger| stranger.finding.clone().map(|(kind, seen)| (kind.to_string(), seen.to_string()));
    let (kind, evidence): (Vec<Option<String>>, Vec<Option<String>>) =
        strangers.iter().map(|stranger| finding(stranger).unzip()).unzip();
    let parameters: [(&(dyn ToSql + Sync), Type); 34] = [
        (&job, Type::TEXT),
        (&window.revision, Type::INT8),
        (&now, Type::TIMESTAMPTZ),
        (&from, Type::TIMESTAMPTZ),
        (&to, Type::TIMESTAMPTZ),
        (&page_after, Type::TEXT),
        (&started_at, Type::TIMESTAMPTZ),
        (&window.terms, Type::TEXT),
        (&completed_to, Type::TIMESTAMPTZ),
        (&completed_at, Type::TIMESTAMPTZ),
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
        (&counters, Type::INT8_ARRAY),
        (&window.proven_from, Type::TIMESTAMPTZ),
        (&ids, Type::TEXT_ARRAY),
        (&how, Type::TEXT_ARRAY),
        (&status, Type::TEXT_ARRAY),
        (&match_key, Type::TEXT_ARRAY),
        (&created, Type::TIMESTAMPTZ_ARRAY),
        (&next_look_at, Type::TIMESTAMPTZ_ARRAY),
        (&kind, Type::TEXT_ARRAY),
        (&evidence, Type::TEXT_ARRAY),
    ];
    let rows = send_commit(db, COMMIT, &parameters, job, window.revision).await?;
    outcome_of(&rows).map_err(|source| StoreError::CommitBatch {
        job: job.to_owned(),
        revision: window.revision,
        source,
    })
}
