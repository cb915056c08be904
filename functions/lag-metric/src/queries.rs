//! What is read, statement by statement. None of them reads a whole table: each goes by an index, and what could be long is
//! counted up to a bound.

use reconciler::domain::Timestamp;
use reconciler::store::Keyset;
use serde_json::Value;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Transaction};

use crate::LagError;

/// Observations of deleted payments that the probe for the oldest passes over. The walk forgets them within a cycle.
pub const DELETED_MAX: i64 = 1_000;

/// How far payments are counted that were met and never verified.
pub const COUNTED_MAX: i64 = 10_000;

/// How many payments beyond the furthest are looked up one by one, whether another function has met them. With random keys
/// each is a page of its own: 10,000 of them took 60 ms among a million.
pub const NOT_MET_MAX: i64 = 2_000;

/// How far the inflow of an hour is counted.
pub const INFLOW_MAX: i64 = 100_000;

/// The statements and how they are called in errors.
pub const STATEMENTS: [(&str, &str); 11] = [
    ("cursors", include_str!("sql/cursors.sql")),
    ("window", include_str!("sql/window.sql")),
    ("oldest_met", include_str!("sql/oldest_met.sql")),
    ("not_met_by_id", include_str!("sql/not_met_by_id.sql")),
    ("not_met_by_created_at", include_str!("sql/not_met_by_created_at.sql")),
    ("inflow", include_str!("sql/inflow.sql")),
    ("findings", include_str!("sql/findings.sql")),
    ("review_queue", include_str!("sql/review_queue.sql")),
    ("outbox", include_str!("sql/outbox.sql")),
    ("budget", include_str!("sql/budget.sql")),
    ("payments_estimate", include_str!("sql/payments_estimate.sql")),
];

/// A job's cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The job's name.
    pub job: String,
    /// The word of the order that the furthest payment belongs to.
    pub keyset: String,
    /// When the cycle that runs began, or the last one.
    pub cycle_started_at: Option<Timestamp>,
    /// When the last whole cycle ended.
    pub last_cycle_completed_at: Option<Timestamp>,
    /// Payments judged in that cycle so far.
    pub cycle_rows: i64,
    /// The furthest payment that was passed: creation and key.
    pub furthest: Option<(Timestamp, String)>,
}

/// Where the reverse scan stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The job's name.
    pub job: String,
    /// When the window under way began.
    pub started_at: Option<Timestamp>,
    /// When the last one was complete.
    pub last_completed_at: Option<Timestamp>,
    /// Everything that Stripe created before this has been listed to the end.
    pub completed_to: Option<Timestamp>,
}

/// What is known of the payments that a scan has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldestMet {
    /// The oldest verification, or creation where there was none.
    pub oldest: Option<Timestamp>,
    /// How many were never verified, at most [`COUNTED_MAX`].
    pub never_verified: i64,
}

/// What is known of those that none has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotMet {
    /// How many, at most [`NOT_MET_MAX`].
    pub count: i64,
    /// The oldest creation.
    pub oldest: Option<Timestamp>,
}

/// What waits for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReviewQueue {
    /// Each age band's name, and how many findings are in it.
    pub bands: [(&'static str, i64); 4],
    /// How many are put off.
    pub snoozed: i64,
}

/// Open findings of one kind and verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// The kind's name.
    pub kind: String,
    /// `repairable` or `needs_review`.
    pub verdict: String,
    /// How many are open.
    pub open: i64,
    /// When the oldest opened.
    pub oldest: Option<Timestamp>,
}

/// One kind of the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// `command` or `event`.
    pub kind: String,
    /// How many wait.
    pub waiting: i64,
    /// When the oldest of them was put in.
    pub oldest: Option<Timestamp>,
    /// How many are dead.
    pub dead: i64,
}

/// The request budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetUse {
    /// How often the rate is halved now.
    pub throttle_level: i32,
    /// Requests in the last whole ten minutes.
    pub reads_lately: i64,
    /// Requests in the last 30 days.
    pub reads: i64,
}

type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

async fn rows(db: &Transaction<'_>, what: &'static str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, LagError> {
    let sql = STATEMENTS.iter().find(|(name, _)| *name == what).map_or("", |(_, sql)| sql);
    db.query_typed(sql, parameters).await.map_err(|source| LagError::Query { what, source })
}

/// A statement that answers with one row, whatever there is.
async fn row<T>(
    db: &Transaction<'_>,
    what: &'static str,
    parameters: &[Parameter<'_>],
    read: impl Fn(&Row) -> Result<T, tokio_postgres::Error>,
) -> Result<T, LagError> {
    let rows = rows(db, what, parameters).await?;
    let row = rows.first().ok_or(LagError::NoRow { what })?;
    read(row).map_err(|source| LagError::Query { what, source })
}

async fn all<T>(
    db: &Transaction<'_>,
    what: &'static str,
    parameters: &[Parameter<'_>],
    read: impl Fn(&Row) -> Result<T, tokio_postgres::Error>,
) -> Result<Vec<T>, LagError> {
    let rows = rows(db, what, parameters).await?;
    rows.iter().map(read).collect::<Result<_, _>>().map_err(|source| LagError::Query { what, source })
}

/// Where each job stands.
pub async fn cursors(db: &Transaction<'_>) -> Result<Vec<Cursor>, LagError> {
    all(db, "cursors", &[], |row| {
        let created_at: Option<Timestamp> = row.try_get("furthest_created_at")?;
        Ok(Cursor {
            job: row.try_get("job")?,
            keyset: row.try_get("keyset")?,
            cycle_started_at: row.try_get("cycle_started_at")?,
            last_cycle_completed_at: row.try_get("last_cycle_completed_at")?,
            cycle_rows: row.try_get("cycle_rows")?,
            furthest: created_at.zip(row.try_get("furthest_id")?),
        })
    })
    .await
}

/// Where the reverse scan stands.
pub async fn windows(db: &Transaction<'_>) -> Result<Vec<Window>, LagError> {
    all(db, "window", &[], |row| {
        Ok(Window {
            job: row.try_get("job")?,
            started_at: row.try_get("started_at")?,
            last_completed_at: row.try_get("last_completed_at")?,
            completed_to: row.try_get("completed_to")?,
        })
    })
    .await
}

/// The payments that a scan has met. Nothing was verified last before `from`, where that is known.
pub async fn oldest_met(db: &Transaction<'_>, from: Option<Timestamp>) -> Result<OldestMet, LagError> {
    let parameters: [Parameter<'_>; 3] =
        [(&from, Type::TIMESTAMPTZ), (&DELETED_MAX, Type::INT8), (&COUNTED_MAX, Type::INT8)];
    row(db, "oldest_met", &parameters, |row| {
        Ok(OldestMet { oldest: row.try_get("oldest")?, never_verified: row.try_get("never_verified")? })
    })
    .await
}

/// The payments beyond the furthest one that the walk has passed.
pub async fn not_met(
    db: &Transaction<'_>,
    keyset: Keyset,
    furthest: Option<&(Timestamp, String)>,
) -> Result<NotMet, LagError> {
    let (created_at, id) = furthest.map(|(created_at, id)| (*created_at, id.as_str())).unzip();
    let what = match keyset {
        Keyset::Id => "not_met_by_id",
        Keyset::CreatedAt => "not_met_by_created_at",
    };
    let parameters: [Parameter<'_>; 3] =
        [(&created_at, Type::TIMESTAMPTZ), (&id, Type::TEXT), (&NOT_MET_MAX, Type::INT8)];
    row(db, what, &parameters, |row| Ok(NotMet { count: row.try_get("not_met")?, oldest: row.try_get("oldest")? }))
        .await
}

/// Payments that were created in the hour before `furthest`.
pub async fn inflow(db: &Transaction<'_>, furthest: Timestamp) -> Result<i64, LagError> {
    let parameters: [Parameter<'_>; 2] = [(&furthest, Type::TIMESTAMPTZ), (&INFLOW_MAX, Type::INT8)];
    row(db, "inflow", &parameters, |row| row.try_get("inflow")).await
}

/// What waits for a person, by how long it has been open.
pub async fn review_queue(db: &Transaction<'_>, now: Timestamp) -> Result<ReviewQueue, LagError> {
    row(db, "review_queue", &[(&now, Type::TIMESTAMPTZ)], |row| {
        Ok(ReviewQueue {
            bands: [
                ("under_1h", row.try_get("under_1h")?),
                ("1h_to_24h", row.try_get("from_1h")?),
                ("1d_to_3d", row.try_get("from_1d")?),
                ("over_3d", row.try_get("from_3d")?),
            ],
            snoozed: row.try_get("snoozed")?,
        })
    })
    .await
}

/// The open findings, and the kinds of those that were closed within the last hour.
pub async fn findings(db: &Transaction<'_>, now: Timestamp) -> Result<Vec<Findings>, LagError> {
    all(db, "findings", &[(&now, Type::TIMESTAMPTZ)], |row| {
        Ok(Findings {
            kind: row.try_get("kind")?,
            verdict: row.try_get("verdict")?,
            open: row.try_get("open")?,
            oldest: row.try_get("oldest")?,
        })
    })
    .await
}

/// The outbox: commands, then events.
pub async fn outbox(db: &Transaction<'_>) -> Result<Vec<Waiting>, LagError> {
    all(db, "outbox", &[], |row| {
        Ok(Waiting {
            kind: row.try_get("kind")?,
            waiting: row.try_get("waiting")?,
            oldest: row.try_get("oldest")?,
            dead: row.try_get("dead")?,
        })
    })
    .await
}

/// The request budget of `account`.
pub async fn budget(db: &Transaction<'_>, account: &str, now: Timestamp) -> Result<BudgetUse, LagError> {
    row(db, "budget", &[(&account, Type::TEXT), (&now, Type::TIMESTAMPTZ)], |row| {
        Ok(BudgetUse {
            throttle_level: row.try_get("throttle_level")?,
            reads_lately: row.try_get("reads_lately")?,
            reads: row.try_get("reads")?,
        })
    })
    .await
}

/// About how many payments there are.
pub async fn payments_estimate(db: &Transaction<'_>) -> Result<u64, LagError> {
    let what = "payments_estimate";
    let plan: Value = row(db, what, &[], |row| row.try_get(0)).await?;
    plan.pointer("/0/Plan/Plan Rows").and_then(Value::as_u64).ok_or(LagError::NoRow { what })
}
