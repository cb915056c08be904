//! How many drifts the canonical writer corrected: read where it wrote it, not where a repair was asked for (promise 12).

use time::Duration;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::StoreError;
use crate::domain::Timestamp;

/// A finding is closed with the time at which its writer began, and shows when that has committed. So much later all have:
/// none of our statements may take longer than half of it.
pub const COUNTED_AFTER: Duration = Duration::minutes(1);

/// The repairs that were written since `job` last asked, up to a minute before `now`. Each is counted once.
pub async fn count_corrections(db: &Client, job: &str, now: Timestamp) -> Result<u64, StoreError> {
    let up_to = now - COUNTED_AFTER;
    let failed = |source| StoreError::CountCorrections { job: job.to_owned(), source };
    let row = db
        .query_typed_one(include_str!("sql/corrections_count.sql"), &[(&job, Type::TEXT), (&up_to, Type::TIMESTAMPTZ)])
        .await
        .map_err(failed)?;
    let corrected: i64 = row.try_get("corrected").map_err(failed)?;
    Ok(u64::try_from(corrected).unwrap_or(0))
}
