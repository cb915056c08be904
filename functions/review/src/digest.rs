//! The daily summary: an event `ReviewDigest` in the outbox, for a team to route to chat or tickets. Once a day (UTC), however
//! often it is asked for.

use reconciler::domain::Timestamp;
use serde::Serialize;
use serde_json::json;
use tokio_postgres::Client;
use tokio_postgres::types::{Json, Type};

use crate::ReviewError;
use crate::list::{Totals, totals};

/// The answer to `digest`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Digest {
    /// Which day.
    pub day: String,
    /// Whether the event is new; else the day has one.
    pub announced: bool,
    /// What it says, or would say now.
    pub totals: Totals,
}

/// Puts the day's summary into the outbox. `now` is the database's time.
pub async fn digest(db: &Client, now: Timestamp) -> Result<Digest, ReviewError> {
    let totals = totals(db, now).await?;
    let day = now.date().to_string();
    let payload = json!({"day": day, "totals": totals});
    let row = db
        .query_typed_opt(
            include_str!("sql/digest_insert.sql"),
            &[(&Json(&payload), Type::JSONB), (&now, Type::TIMESTAMPTZ)],
        )
        .await
        .map_err(|source| ReviewError::Query { what: "the daily summary", source })?;
    Ok(Digest { day, announced: row.is_some(), totals })
}
