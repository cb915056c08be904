//! Where a job's walk stands.

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, GenericClient, Row};

use super::learned::learned_of;
use super::{Keyset, StoreError};
use crate::domain::Timestamp;
use crate::domain::id::PaymentId;
use crate::domain::learned::Learned;

/// A place between two payments: after this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The payment's creation.
    pub created_at: Timestamp,
    /// The payment's key.
    pub id: PaymentId,
}

/// A job's row in `reconciliation.cursor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The last payment that was passed; `None` before the first of a cycle.
    pub position: Option<Position>,
    /// Grows with every commit.
    pub revision: i64,
    /// The number of the cycle that runs, or of the last one; 0 before the first.
    pub cycle: i64,
    /// When that cycle began.
    pub cycle_started_at: Option<Timestamp>,
    /// When the last whole cycle ended.
    pub last_cycle_completed_at: Option<Timestamp>,
    /// The revision whose withheld batch a person let through.
    pub released_revision: Option<i64>,
    /// What the job has learned of its account.
    pub learned: Learned,
}

impl Cursor {
    /// The cursor of a job that has never started.
    pub const NEW: Self = Self {
        position: None,
        revision: 0,
        cycle: 0,
        cycle_started_at: None,
        last_cycle_completed_at: None,
        released_revision: None,
        learned: Learned { offsets: None, foreign: None },
    };

    /// Whether a cycle is under way: one has begun, and has not completed since.
    pub fn cycle_runs(&self) -> bool {
        self.cycle_started_at.is_some_and(|began| self.last_cycle_completed_at.is_none_or(|ended| ended < began))
    }
}

/// Reads a job's cursor. A position that was kept in another order is no position in this one: the cycle's walk begins
/// again from the first payment, so that none is skipped.
pub async fn read_cursor(db: &Client, job: &str, keyset: Keyset) -> Result<Cursor, StoreError> {
    let failed = |source| StoreError::ReadCursor { job: job.to_owned(), source };
    let row = db.query_typed_opt(include_str!("sql/cursor_read.sql"), &[(&job, Type::TEXT)]).await.map_err(failed)?;
    row.map_or(Ok(Cursor::NEW), |row| cursor_of(&row, keyset)).map_err(failed)
}

fn cursor_of(row: &Row, keyset: Keyset) -> Result<Cursor, tokio_postgres::Error> {
    let created_at: Option<Timestamp> = row.try_get("position_created_at")?;
    let id: Option<String> = row.try_get("position_id")?;
    let same_order = row.try_get::<_, &str>("keyset")? == keyset.as_str();
    let position = created_at
        .zip(id)
        .filter(|_| same_order)
        .map(|(created_at, id)| Position { created_at, id: PaymentId::new(id) });
    Ok(Cursor {
        position,
        revision: row.try_get("revision")?,
        cycle: row.try_get("cycle")?,
        cycle_started_at: row.try_get("cycle_started_at")?,
        last_cycle_completed_at: row.try_get("last_cycle_completed_at")?,
        released_revision: row.try_get("released_revision")?,
        learned: learned_of(row)?,
    })
}

/// Keeps that the batch of `revision` is withheld, so that a person can be shown it.
pub async fn note_withheld(
    db: &Client,
    job: &str,
    revision: i64,
    reason: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let parameters: [(&(dyn ToSql + Sync), Type); 4] =
        [(&job, Type::TEXT), (&revision, Type::INT8), (&now, Type::TIMESTAMPTZ), (&reason, Type::TEXT)];
    let kept = db.query_typed(include_str!("sql/cursor_withhold.sql"), &parameters).await;
    kept.map(drop).map_err(|source| StoreError::Withhold { job: job.to_owned(), source })
}

/// What came of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The batch of this revision goes through at the next tick, and no other.
    Released,
    /// No batch is withheld at this revision, it was released before, or there is no such job.
    Outdated,
}

/// A person has looked at the withheld batch of `revision` and lets it through, this once.
pub async fn release(db: &impl GenericClient, job: &str, revision: i64) -> Result<Release, StoreError> {
    let released = db
        .query_typed(include_str!("sql/cursor_release.sql"), &[(&job, Type::TEXT), (&revision, Type::INT8)])
        .await
        .map_err(|source| StoreError::Release { job: job.to_owned(), source })?;
    Ok(if released.is_empty() { Release::Outdated } else { Release::Released })
}
