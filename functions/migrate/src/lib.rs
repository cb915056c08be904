//! `migrate`: applies the schema and the adapter, and checks the ports.
//!
//! The order is: schema and roles, adapter (the view and the write port), the domain that takes its type from the view, the
//! tables, the canonical writer, the grants. The adapter and the grants are applied again every time, the versions once.
//! Two that run at once wait for each other.
//!
//! An adapter may be a file of the adopter's own: it is SQL that runs with the migrating user's rights, like any migration.
//!
//! What is wrong is refused as early as it can be told. An adapter is looked at in its own transaction, which is short since
//! it holds locks on the payments: a wrong one is rolled back, and the one that was there goes on working. Privileges and
//! rows are looked at when all is done ([`check`]).

pub mod check;
mod custom_resource;
pub mod invocation;

use std::hash::{DefaultHasher, Hash, Hasher};

use reconciler::store::ports::check_ports;
use reconciler::store::{Keyset, StoreError};
use refinery::{Migration, Runner, Target};
use tokio_postgres::Client;

use check::{CheckError, Checked};

/// The adapter for a table `payments`, as the design names its columns.
pub const DEFAULT_ADAPTER: &str = include_str!("../../../migrations/adapters/default.sql");

/// A second adapter, with uuid keys and other names, which proves the ports.
pub const UUID_CHECKOUT_ADAPTER: &str = include_str!("../../../migrations/adapters/uuid_checkout.sql");

const GRANTS: &str = include_str!("../../../migrations/grants.sql");

/// Our versions: name and text. Version 1 comes before the adapter, the others behind it.
const VERSIONS: [(&str, &str); 12] = [
    ("V1__schema_and_roles", include_str!("../../../migrations/V1__schema_and_roles.sql")),
    ("V2__payment_id", include_str!("../../../migrations/V2__payment_id.sql")),
    ("V3__tables", include_str!("../../../migrations/V3__tables.sql")),
    ("V4__transition", include_str!("../../../migrations/V4__transition.sql")),
    ("V5__one_waiting_command", include_str!("../../../migrations/V5__one_waiting_command.sql")),
    ("V6__webhook_inbox", include_str!("../../../migrations/V6__webhook_inbox.sql")),
    ("V7__outbox_in_order", include_str!("../../../migrations/V7__outbox_in_order.sql")),
    ("V8__outbox_claims_in_place", include_str!("../../../migrations/V8__outbox_claims_in_place.sql")),
    ("V9__reverse_scan", include_str!("../../../migrations/V9__reverse_scan.sql")),
    ("V10__lag", include_str!("../../../migrations/V10__lag.sql")),
    ("V11__bulk_learned", include_str!("../../../migrations/V11__bulk_learned.sql")),
    ("V12__review", include_str!("../../../migrations/V12__review.sql")),
];

/// The version up to which the schema must be there for the adapter.
const BEFORE_ADAPTER: i32 = 1;

/// The table of applied versions; in our schema, since the application may use refinery itself.
const HISTORY: &str = "reconciliation.applied_migration";

/// Any number that nobody else locks.
const LOCK: &str = "select pg_advisory_lock(7228637711)";
const UNLOCK: &str = "select pg_advisory_unlock(7228637711)";

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The versions that were not there before.
    pub versions: Vec<String>,
    /// Whether an adapter was applied; else the one that was there stays.
    pub adapter: bool,
    /// The order of the walk that fits the key.
    pub keyset: Keyset,
    /// What was looked at afterwards, and found fit.
    pub checked: Checked,
}

/// The schema could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// Another migration could not be waited for, or the schema not be made.
    #[error("could not prepare the database for the migration")]
    Prepare(#[source] tokio_postgres::Error),
    /// There is a schema of our name, with tables that are none of ours.
    #[error(
        "there is a schema named reconciliation in this database already, and it is not the reconciler's: rename it, or \
         give the reconciler a database where the name is free. Nothing was changed"
    )]
    SomebodyElses,
    /// A version of ours failed.
    #[error("could not apply the schema")]
    Versions(#[source] refinery::Error),
    /// The adapter failed. Nothing of it is applied.
    #[error("could not apply the adapter: mend its SQL and migrate again")]
    Adapter(#[source] tokio_postgres::Error),
    /// The grants failed.
    #[error("could not apply the grants")]
    Grants(#[source] tokio_postgres::Error),
    /// The adapter is not what the reconciler needs. Nothing of it is applied.
    #[error(
        "the adapter is refused, and nothing of it is applied: an adapter that was there before goes on working. Mend it and \
         migrate again. {0}"
    )]
    AdapterRefused(Checked),
    /// All is applied, and the database is not fit for the reconciler.
    #[error(
        "the schema, the adapter and the grants are applied, but the reconciler must not work with them yet: mend what is \
         wrong and migrate again. {0}"
    )]
    Unfit(Checked),
    /// What was applied could not be looked at.
    #[error("the schema, the adapter and the grants are applied, but could not be checked")]
    Check(#[source] CheckError),
    /// The adapter could not be looked at. Nothing of it is applied.
    #[error("could not check the adapter; nothing of it is applied")]
    CheckAdapter(#[source] CheckError),
    /// The ports could not be read.
    #[error(transparent)]
    Ports(#[from] StoreError),
}

impl MigrateError {
    /// A name that does not change, for Lambda's `errorType`.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::SomebodyElses => "SchemaNameTaken",
            Self::Adapter(_) => "AdapterFailed",
            Self::AdapterRefused(_) | Self::Unfit(_) => "PortsNotReady",
            Self::Prepare(_)
            | Self::Versions(_)
            | Self::Grants(_)
            | Self::Check(_)
            | Self::CheckAdapter(_)
            | Self::Ports(_) => "DatabaseFailed",
        }
    }
}

/// The adapter that comes with the reconciler under this name.
pub fn shipped_adapter(name: &str) -> Option<&'static str> {
    match name {
        "default" => Some(DEFAULT_ADAPTER),
        "uuid_checkout" => Some(UUID_CHECKOUT_ADAPTER),
        _ => None,
    }
}

/// Number and name of each version.
pub(crate) fn version_names() -> impl Iterator<Item = (i32, &'static str)> {
    VERSIONS.iter().filter_map(|(name, _)| {
        let number = name.strip_prefix('V').and_then(|rest| rest.split_once("__")).map(|(number, _)| number);
        number.and_then(|number| number.parse().ok()).map(|number| (number, *name))
    })
}

/// A number that stands for the whole schema with this adapter: another one means other SQL. For a test's template database.
pub fn fingerprint(adapter: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (VERSIONS, adapter, GRANTS).hash(&mut hasher);
    hasher.finish()
}

/// Applies what is missing of the schema, the adapter, and the grants, and checks it all. Without an adapter the one that
/// is there stays, and the default one is applied where there is none.
pub async fn apply(db: &mut Client, adapter: Option<&str>) -> Result<Applied, MigrateError> {
    apply_for(db, adapter, None).await
}

/// The same, for a walk in this order (the setting `KEYSET`) where the key's type does not decide.
pub async fn apply_for(
    db: &mut Client,
    adapter: Option<&str>,
    keyset: Option<Keyset>,
) -> Result<Applied, MigrateError> {
    db.batch_execute(LOCK).await.map_err(MigrateError::Prepare)?;
    let applied = apply_locked(db, adapter, keyset).await;
    // Ending the session lets go of the lock as well, so an error here is the connection's and shows there.
    let unlocked = db.batch_execute(UNLOCK).await.map_err(MigrateError::Prepare);
    let applied = applied?;
    unlocked?;
    Ok(applied)
}

async fn apply_locked(db: &mut Client, adapter: Option<&str>, keyset: Option<Keyset>) -> Result<Applied, MigrateError> {
    let found = db.query_typed_one(include_str!("sql/found.sql"), &[]).await.map_err(MigrateError::Prepare)?;
    if found.try_get("somebody_elses").map_err(MigrateError::Prepare)? {
        return Err(MigrateError::SomebodyElses);
    }
    let has_adapter: bool = found.try_get("has_adapter").map_err(MigrateError::Prepare)?;
    let adapter = adapter.or((!has_adapter).then_some(DEFAULT_ADAPTER));
    // Notices ("already exists, skipping") would only hide what matters.
    db.batch_execute("set client_min_messages = warning; create schema if not exists reconciliation")
        .await
        .map_err(MigrateError::Prepare)?;
    let mut versions = run_to(db, Target::Version(BEFORE_ADAPTER)).await?;
    if let Some(adapter) = adapter {
        apply_adapter(db, adapter, keyset).await?;
    }
    versions.extend(run_to(db, Target::Latest).await?);
    let grants = in_one_transaction(db, GRANTS).await;
    grants.map_err(MigrateError::Grants)?;
    let checked = check::check(db, keyset).await.map_err(MigrateError::Check)?;
    if !checked.is_fit() {
        return Err(MigrateError::Unfit(checked));
    }
    let ports = check_ports(db).await?;
    Ok(Applied { versions, adapter: adapter.is_some(), keyset: keyset.unwrap_or(ports.keyset), checked })
}

async fn apply_adapter(db: &mut Client, adapter: &str, keyset: Option<Keyset>) -> Result<(), MigrateError> {
    let mut transaction = db.transaction().await.map_err(MigrateError::Adapter)?;
    transaction.batch_execute(adapter).await.map_err(MigrateError::Adapter)?;
    let checked = check::adapter(&mut transaction, keyset).await.map_err(MigrateError::CheckAdapter)?;
    if !checked.is_fit() {
        transaction.rollback().await.map_err(MigrateError::Adapter)?;
        return Err(MigrateError::AdapterRefused(checked));
    }
    transaction.commit().await.map_err(MigrateError::Adapter)
}

async fn run_to(db: &mut Client, target: Target) -> Result<Vec<String>, MigrateError> {
    let migrations = VERSIONS
        .iter()
        .map(|(name, sql)| Migration::unapplied(name, sql))
        .collect::<Result<Vec<_>, _>>()
        .map_err(MigrateError::Versions)?;
    let mut runner = Runner::new(&migrations).set_target(target).set_grouped(true);
    runner.set_migration_table_name(HISTORY);
    let report = runner.run_async(db).await.map_err(MigrateError::Versions)?;
    Ok(report.applied_migrations().iter().map(ToString::to_string).collect())
}

async fn in_one_transaction(db: &mut Client, sql: &str) -> Result<(), tokio_postgres::Error> {
    let transaction = db.transaction().await?;
    transaction.batch_execute(sql).await?;
    transaction.commit().await
}
