//! Reading the next payments of a walk.

use std::pin::pin;

use futures_util::TryStreamExt;
use time::Duration;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::cursor::Position;
use super::{Keyset, StoreError};
use crate::domain::Timestamp;
use crate::domain::id::PaymentId;
use crate::domain::payment::{LocalState, Observation, Payment, Reference};

/// The next payments in key order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The cursor's revision when they were read.
    pub revision: i64,
    /// How many ticks have started a batch at this position by now, this one included.
    pub starts: i32,
    /// At most as many as were asked for.
    pub payments: Vec<Payment>,
}

/// Reads up to `limit` payments after `after` with their last observations, and notes that a batch starts here. One round
/// trip; the transaction is over when it returns.
pub async fn load_batch(
    db: &Client,
    job: &str,
    keyset: Keyset,
    after: Option<&Position>,
    limit: i64,
) -> Result<Batch, StoreError> {
    let statement = match keyset {
        Keyset::Id => include_str!("sql/batch_by_id.sql"),
        Keyset::CreatedAt => include_str!("sql/batch_by_created_at.sql"),
    };
    load(
        db,
        job,
        statement,
        limit,
        &[
            (&job, Type::TEXT),
            (&limit, Type::INT8),
            (&after.map(|position| position.created_at), Type::TIMESTAMPTZ),
            (&after.map(|position| position.id.as_str()), Type::TEXT),
            (&keyset.as_str(), Type::TEXT),
        ],
    )
    .await
}

/// What makes a payment a suspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// Not updated for longer than this; and not asked again sooner.
    pub after: Duration,
    /// A pending payment is no suspect beyond this age: an abandoned cart, most likely.
    pub pending_until: Duration,
}

/// The same for the suspects only, oldest first. A suspect is asked again after a growing interval.
pub async fn load_suspects(
    db: &Client,
    job: &str,
    after: Option<&Position>,
    limit: i64,
    suspicion: &Suspicion,
    now: Timestamp,
) -> Result<Batch, StoreError> {
    let micros = |duration: Duration| i64::try_from(duration.whole_microseconds()).unwrap_or(i64::MAX);
    load(
        db,
        job,
        include_str!("sql/batch_of_suspects.sql"),
        limit,
        &[
            (&job, Type::TEXT),
            (&limit, Type::INT8),
            (&after.map(|position| position.created_at), Type::TIMESTAMPTZ),
            (&after.map(|position| position.id.as_str()), Type::TEXT),
            (&now, Type::TIMESTAMPTZ),
            (&micros(suspicion.after), Type::INT8),
            (&micros(suspicion.pending_until), Type::INT8),
        ],
    )
    .await
}

/// The same for the unfinished payments that were created at `created_from` or later, oldest first.
pub async fn load_unfinished(
    db: &Client,
    job: &str,
    after: Option<&Position>,
    limit: i64,
    created_from: Timestamp,
) -> Result<Batch, StoreError> {
    load(
        db,
        job,
        include_str!("sql/batch_of_unfinished.sql"),
        limit,
        &[
            (&job, Type::TEXT),
            (&limit, Type::INT8),
            (&after.map(|position| position.created_at), Type::TIMESTAMPTZ),
            (&after.map(|position| position.id.as_str()), Type::TEXT),
            (&created_from, Type::TIMESTAMPTZ),
        ],
    )
    .await
}

/// Row by row, for the rows of a large batch take more memory than its payments.
async fn load(
    db: &Client,
    job: &str,
    statement: &str,
    limit: i64,
    parameters: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Batch, StoreError> {
    let failed = |source| StoreError::LoadBatch { job: job.to_owned(), source };
    let parameters = parameters.iter().map(|(value, of_type)| (*value, of_type.clone()));
    let mut rows = pin!(db.query_typed_raw(statement, parameters).await.map_err(failed)?);
    let mut batch = Batch { revision: 0, starts: 0, payments: Vec::with_capacity(usize::try_from(limit).unwrap_or(0)) };
    while let Some(row) = rows.try_next().await.map_err(failed)? {
        batch.revision = row.try_get("revision").map_err(failed)?;
        batch.starts = row.try_get("starts").map_err(failed)?;
        if let Some(id) = row.try_get::<_, Option<String>>("id").map_err(failed)? {
            // a view that names a payment twice, by a join say, must not stop the walk
            if batch.payments.last().is_none_or(|last| last.id.as_str() != id) {
                batch.payments.push(payment_of(&row, id, job)?);
            }
        }
    }
    Ok(batch)
}

/// Reads a payment's columns, as every statement that loads payments names them.
pub(super) fn payment_of(row: &Row, id: String, job: &str) -> Result<Payment, StoreError> {
    let failed = |source| StoreError::LoadBatch { job: job.to_owned(), source };
    let observed_at: Option<Timestamp> = row.try_get("observed_at").map_err(failed)?;
    let external_status = row.try_get("external_status").map_err(failed)?;
    let external_created_at = row.try_get("external_created_at").map_err(failed)?;
    let open_kinds = row.try_get("open_kinds").map_err(failed)?;
    Ok(Payment {
        reference: Reference::from_view(row.try_get("external_ref").map_err(failed)?),
        match_key: row.try_get("match_key").map_err(failed)?,
        state: LocalState::from_view(row.try_get("state").map_err(failed)?),
        created_at: row.try_get("created_at").map_err(failed)?,
        updated_at: row.try_get("updated_at").map_err(failed)?,
        version: row.try_get("version").map_err(failed)?,
        previous: observed_at.map(|observed_at| Observation {
            external_status,
            observed_at,
            external_created_at,
            open_kinds,
        }),
        id: PaymentId::new(id),
    })
}
