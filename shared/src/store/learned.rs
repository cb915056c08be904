//! What a job has learned of its account, kept from one tick to the next. It is read with the cursor.
//!
//! It is written by a statement of its own behind a batch that has committed: a batch that lost teaches nothing. It belongs
//! to no promise, since it decides what a batch costs and no verdict: where it is lost, the next batch teaches the same.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::StoreError;
use crate::domain::Timestamp;
use crate::domain::learned::{Learned, Offsets};
use crate::domain::plan::Density;

/// Remembers what `job` has learned.
pub async fn write_learned(db: &Client, job: &str, learned: &Learned, now: Timestamp) -> Result<(), StoreError> {
    let density = learned.foreign.map(|density| i64::try_from(density.per_million_seconds).unwrap_or(i64::MAX));
    db.query_typed(
        include_str!("sql/bulk_learned_write.sql"),
        &[
            (&job, Type::TEXT),
            (&learned.offsets.map(|offsets| offsets.from), Type::INT8),
            (&learned.offsets.map(|offsets| offsets.to), Type::INT8),
            (&density, Type::INT8),
            (&now, Type::TIMESTAMPTZ),
        ],
    )
    .await
    .map(drop)
    .map_err(|source| StoreError::WriteLearned { job: job.to_owned(), source })
}

/// The columns of `reconciliation.bulk_learned`, which are null before anything is learned.
pub(super) fn learned_of(row: &Row) -> Result<Learned, tokio_postgres::Error> {
    let from: Option<i64> = row.try_get("offset_from_seconds")?;
    let to: Option<i64> = row.try_get("offset_to_seconds")?;
    let foreign: Option<i64> = row.try_get("foreign_per_million_seconds")?;
    Ok(Learned {
        offsets: from.zip(to).map(|(from, to)| Offsets { from, to }),
        foreign: foreign.map(|foreign| Density { per_million_seconds: foreign.unsigned_abs() }),
    })
}
