//! The outbox's statements.

use reconciler::domain::Timestamp;
use serde_json::Value;
use time::Duration;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

/// A claimed row.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// `reconciliation.outbox.id`.
    pub id: i64,
    /// The payment's key.
    pub aggregate: String,
    /// Command or event.
    pub is_command: bool,
    /// Which one.
    pub name: String,
    /// What it says.
    pub payload: Value,
    /// The number of this claim: an outdated one can mark nothing.
    pub fence: i64,
    /// How often it has been claimed, this time included, and not given back.
    pub attempts: i32,
    /// When another worker may claim it, by the database's time.
    pub lease_expires_at: Timestamp,
}

/// A statement failed.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// No rows could be claimed.
    #[error("could not claim rows of the outbox")]
    Claim(#[source] tokio_postgres::Error),
    /// Rows could not be marked. They are claimed again when their lease has run out.
    #[error("could not mark rows of the outbox")]
    Mark(#[source] tokio_postgres::Error),
    /// Rows could not be given back. They are claimed again when their lease has run out.
    #[error("could not give rows of the outbox back")]
    Release(#[source] tokio_postgres::Error),
}

/// Claims up to `limit` rows for `lease_seconds`.
pub async fn claim(db: &Client, now: Timestamp, limit: i64, lease_seconds: i64) -> Result<Vec<Claimed>, OutboxError> {
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&now, Type::TIMESTAMPTZ), (&limit, Type::INT8), (&lease_seconds, Type::INT8)];
    let rows = db.query_typed(include_str!("sql/claim.sql"), &parameters).await.map_err(OutboxError::Claim)?;
    let lease_expires_at = now + Duration::seconds(lease_seconds);
    rows.iter().map(|row| claimed_of(row, lease_expires_at)).collect::<Result<_, _>>().map_err(OutboxError::Claim)
}

fn claimed_of(row: &Row, lease_expires_at: Timestamp) -> Result<Claimed, tokio_postgres::Error> {
    Ok(Claimed {
        id: row.try_get("id")?,
        aggregate: row.try_get("aggregate")?,
        is_command: row.try_get::<_, &str>("kind")? == "command",
        name: row.try_get("type")?,
        payload: row.try_get("payload")?,
        fence: row.try_get("fence")?,
        attempts: row.try_get("attempts")?,
        lease_expires_at,
    })
}

/// Marks events delivered. How many of them were still ours to mark.
pub async fn mark_delivered(db: &Client, now: Timestamp, rows: &[&Claimed]) -> Result<usize, OutboxError> {
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let fences: Vec<i64> = rows.iter().map(|row| row.fence).collect();
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&now, Type::TIMESTAMPTZ), (&ids, Type::INT8_ARRAY), (&fences, Type::INT8_ARRAY)];
    let marked = db.query_typed(include_str!("sql/mark_delivered.sql"), &parameters).await;
    marked.map(|rows| rows.len()).map_err(OutboxError::Mark)
}

/// Puts a row back until `due`, or among the dead. Whether it was still ours.
pub async fn mark_failed(
    db: &Client,
    row: &Claimed,
    due: Timestamp,
    died_at: Option<Timestamp>,
    error: &str,
) -> Result<bool, OutboxError> {
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 5] = [
        (&row.id, Type::INT8),
        (&row.fence, Type::INT8),
        (&due, Type::TIMESTAMPTZ),
        (&died_at, Type::TIMESTAMPTZ),
        (&error, Type::TEXT),
    ];
    let marked = db.query_typed_opt(include_str!("sql/mark_failed.sql"), &parameters).await;
    marked.map(|row| row.is_some()).map_err(OutboxError::Mark)
}

/// Gives rows back that were not worked: another worker may claim them at once, and this claim does not count as an attempt.
/// How many of them were still ours to give.
pub async fn release(db: &Client, rows: &[&Claimed]) -> Result<usize, OutboxError> {
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let fences: Vec<i64> = rows.iter().map(|row| row.fence).collect();
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&ids, Type::INT8_ARRAY), (&fences, Type::INT8_ARRAY)];
    let released = db.query_typed(include_str!("sql/release.sql"), &parameters).await;
    released.map(|rows| rows.len()).map_err(OutboxError::Release)
}
