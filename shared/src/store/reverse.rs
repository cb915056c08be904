//! The reverse scan's window, its candidates for an orphan, and its commit.

mod commit;

use std::collections::HashMap;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::StoreError;
use super::batch::payment_of;
use crate::domain::Timestamp;
use crate::domain::id::{ExternalRef, PaymentId};
use crate::domain::payment::Payment;

pub use commit::{How, Stranger, WindowCommit, commit_window};

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
