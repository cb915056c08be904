//! Postgres: what is read of the payments, and what is written about them.
//!
//! Every statement is one file in `sql/`, one round trip, and static whatever the type of the key is. They are sent
//! unprepared with their parameters' types (`query_typed`), so that each is planned for its own values (a comparison with
//! a null position folds away, an array is as long as it is) and so that a connection pooler may stand in between.

pub mod batch;
pub mod commit;
pub mod corrections;
pub mod cursor;
pub mod learned;
pub mod plan;
pub mod ports;
pub mod reverse;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::domain::Timestamp;
use crate::domain::id::ExternalRef;

/// The order of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyset {
    /// By id, for keys that grow with time.
    Id,
    /// By `(created_at, id)`, for keys that do not, such as random uuids.
    CreatedAt,
}

impl Keyset {
    /// The word in `reconciliation.cursor`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::CreatedAt => "created_at",
        }
    }
}

/// A statement failed. Each variant names the operation.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database's time could not be read.
    #[error("could not read the database's time")]
    Time(#[source] tokio_postgres::Error),
    /// A job's cursor could not be read.
    #[error("could not read the cursor of job {job}")]
    ReadCursor {
        /// Which job.
        job: String,
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The next payments could not be read.
    #[error("could not load the next batch of job {job}")]
    LoadBatch {
        /// Which job.
        job: String,
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// A batch could not be written. Nothing of it is.
    #[error("could not commit the batch of job {job} at revision {revision}")]
    CommitBatch {
        /// Which job.
        job: String,
        /// The revision that the batch was loaded at.
        revision: i64,
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// Repairs could not be counted.
    #[error("could not count the drifts that were corrected, for job {job}")]
    CountCorrections {
        /// Which job.
        job: String,
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// What a job has learned of its account could not be kept.
    #[error("could not keep what job {job} has learned of its account")]
    WriteLearned {
        /// Which job.
        job: String,
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The reverse scan's window could not be read.
    #[error("could not read the window of job {job}")]
    ReadWindow {
        /// Which job.
        job: String,
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The candidates for an orphan could not be read.
    #[error("could not read the candidates for an orphan")]
    LoadCandidates {
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The payments that orphans name could not be read.
    #[error("could not read the payments without a reference that orphans name")]
    LoadUnlinked {
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// References that Stripe once knew could not be read.
    #[error("could not read references that Stripe is known to have")]
    KnownPresent(#[source] tokio_postgres::Error),
    /// That a batch is withheld could not be kept.
    #[error("could not keep that the batch of job {job} is withheld")]
    Withhold {
        /// Which job.
        job: String,
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// A withheld batch could not be released.
    #[error("could not release the withheld batch of job {job}")]
    Release {
        /// Which job.
        job: String,
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The ports could not be looked at.
    #[error("could not read the ports of the schema reconciliation")]
    ReadPorts(#[source] tokio_postgres::Error),
    /// A statement could not be planned.
    #[error("could not plan a statement that reads payments")]
    Explain(#[source] tokio_postgres::Error),
    /// The ports are not what the reconciler needs.
    #[error("the database is not ready for the reconciler:\n  - {}", .0.join("\n  - "))]
    Ports(Vec<String>),
}

/// Whether Postgres ended the statement to break a deadlock. The statement may be sent again as it is.
pub(crate) fn is_deadlock(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED)
}

/// The database's time now, which all processes share.
pub async fn database_time(db: &Client) -> Result<Timestamp, StoreError> {
    db.query_typed_one("select clock_timestamp()", &[]).await.and_then(|row| row.try_get(0)).map_err(StoreError::Time)
}

/// A few references that Stripe once knew, to tell a wrong key from wrong rows.
pub async fn known_present(db: &Client) -> Result<Vec<ExternalRef>, StoreError> {
    let rows = db.query_typed(include_str!("sql/known_present.sql"), &[]).await.map_err(StoreError::KnownPresent)?;
    let texts: Vec<String> =
        rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(StoreError::KnownPresent)?;
    Ok(texts.iter().filter_map(|text| ExternalRef::parse(text)).collect())
}
