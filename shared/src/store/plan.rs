//! How Postgres would answer the statements that read payments: their plans, without running them.

use serde_json::Value;
use time::Duration;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use super::cursor::Position;
use super::{Keyset, StoreError};
use crate::domain::Timestamp;

/// The plan of the statement that loads the next batch of a walk (`load_batch`), in Postgres's JSON.
pub async fn explain_batch(
    db: &impl GenericClient,
    keyset: Keyset,
    after: Option<&Position>,
    limit: i64,
) -> Result<Value, StoreError> {
    let statement = match keyset {
        Keyset::Id => include_str!("sql/batch_by_id.sql"),
        Keyset::CreatedAt => include_str!("sql/batch_by_created_at.sql"),
    };
    explain(
        db,
        statement,
        &[
            (&"plan", Type::TEXT),
            (&limit, Type::INT8),
            (&after.map(|position| position.created_at), Type::TIMESTAMPTZ),
            (&after.map(|position| position.id.as_str()), Type::TEXT),
            (&keyset.as_str(), Type::TEXT),
        ],
    )
    .await
}

/// The plan of the statement that loads the first suspects of a sweep (`load_suspects`).
pub async fn explain_suspects(db: &impl GenericClient, now: Timestamp, limit: i64) -> Result<Value, StoreError> {
    let micros = |duration: Duration| i64::try_from(duration.whole_microseconds()).unwrap_or(i64::MAX);
    explain(
        db,
        include_str!("sql/batch_of_suspects.sql"),
        &[
            (&"plan", Type::TEXT),
            (&limit, Type::INT8),
            (&None::<Timestamp>, Type::TIMESTAMPTZ),
            (&None::<&str>, Type::TEXT),
            (&now, Type::TIMESTAMPTZ),
            (&micros(Duration::minutes(10)), Type::INT8),
            (&micros(Duration::hours(48)), Type::INT8),
        ],
    )
    .await
}

/// The plan of looking a payment up by its PaymentIntent.
pub async fn explain_lookup(db: &impl GenericClient) -> Result<Value, StoreError> {
    explain(db, include_str!("sql/lookup_by_reference.sql"), &[(&"pi_plan", Type::TEXT)]).await
}

async fn explain(
    db: &impl GenericClient,
    statement: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Value, StoreError> {
    let explain = format!("explain (format json, costs off)\n{statement}");
    let plan = db.query_typed_one(&explain, parameters).await.and_then(|row: Row| row.try_get::<_, Value>(0));
    // one statement: an array of one
    plan.map(|mut plan| plan.get_mut(0).map_or(Value::Null, Value::take)).map_err(StoreError::Explain)
}
