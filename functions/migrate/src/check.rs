//! What has to hold for the reconciler to work in this database, looked at without changing anything.
//!
//! An error stops the deployment: a tick would fail, miss payments, read the whole table for every batch, or somebody could
//! change a payment who must not. A warning is something that works, and will cost time or a person's attention.
//!
//! Each check looks where the answer does not depend on how much data there is: in the catalog, and in plans made with
//! sequential scans and sorts switched off, which are left in a plan exactly where no index can take their place. Only what
//! the catalog cannot say is sampled: `looked_at` tells which is which. The write port is not tried out: it changes payments.

mod plans;
mod privileges;
mod rows;

use std::fmt;

use reconciler::store::ports::{Defect, read_ports};
use reconciler::store::{Keyset, StoreError};
use serde::Serialize;
use tokio_postgres::{Client, Transaction};

/// What is wrong, and what was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// What has to be mended before the reconciler is let near this database.
    pub errors: Vec<Defect>,
    /// What works, and should be mended nevertheless.
    pub warnings: Vec<Defect>,
    /// What was looked at, how, and what could not be.
    pub looked_at: Vec<String>,
}

impl Checked {
    /// Whether nothing is in the way.
    pub fn is_fit(&self) -> bool {
        self.errors.is_empty()
    }
}

/// One tidy list for people. It does not end in a newline.
impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |number: usize, what: &str| match number {
            1 => format!("1 {what}"),
            _ => format!("{number} {what}s"),
        };
        write!(f, "{}, {}", count(self.errors.len(), "error"), count(self.warnings.len(), "warning"))?;
        for (title, defects) in [("error", &self.errors), ("warning", &self.warnings)] {
            for (defect, number) in defects.iter().zip(1..) {
                write!(f, "\n{title} {number}: {}\n  mend: {}", defect.what, defect.mend)?;
            }
        }
        for line in &self.looked_at {
            write!(f, "\nlooked at: {line}")?;
        }
        Ok(())
    }
}

/// The check itself could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// No transaction, or no way out of it.
    #[error("could not look at the database in a transaction")]
    Transaction(#[source] tokio_postgres::Error),
    /// The versions could not be read.
    #[error("could not read which versions of the schema are applied")]
    Versions(#[source] tokio_postgres::Error),
    /// The ports could not be read, or a statement not be planned.
    #[error(transparent)]
    Ports(#[from] StoreError),
    /// The view's columns could not be traced to their tables.
    #[error("could not trace the columns of the view reconciliation.payment")]
    Columns(#[source] tokio_postgres::Error),
    /// The view could not be read.
    #[error("could not read a sample of the view reconciliation.payment")]
    Sample(#[source] tokio_postgres::Error),
    /// The privileges could not be read.
    #[error("could not read the privileges")]
    Privileges(#[source] tokio_postgres::Error),
}

/// Checks everything in a read only transaction, which is rolled back. `keyset` is the setting `KEYSET`: the order of the
/// walk where the key's type does not decide.
pub async fn check(db: &mut Client, keyset: Option<Keyset>) -> Result<Checked, CheckError> {
    let mut transaction = db.build_transaction().read_only(true).start().await.map_err(CheckError::Transaction)?;
    let checked = whole(&mut transaction, keyset).await?;
    transaction.rollback().await.map_err(CheckError::Transaction)?;
    Ok(checked)
}

async fn whole(transaction: &mut Transaction<'_>, keyset: Option<Keyset>) -> Result<Checked, CheckError> {
    let mut checked = Checked::default();
    versions(transaction, &mut checked).await?;
    let ready = ports(transaction, &mut checked).await?;
    if let Some(fitting) = ready {
        let keyset = keyset.unwrap_or(fitting);
        let by_index = plans::check(transaction, keyset, &mut checked).await?;
        rows::check(transaction, by_index.then_some(keyset), &mut checked).await?;
    } else {
        checked.looked_at.push("not at plans and rows: the errors above stand before them".to_owned());
    }
    privileges::check(transaction, &mut checked).await?;
    Ok(checked)
}

/// What can be said of an adapter before it is committed, without reading a row: it holds locks on the payments until then.
/// The plans are left out where our tables, which they read too, are not there yet.
pub(crate) async fn adapter(transaction: &mut Transaction<'_>, keyset: Option<Keyset>) -> Result<Checked, CheckError> {
    let mut checked = Checked::default();
    let seen = read_ports(transaction).await?;
    checked.errors.extend(seen.adapter_defects());
    checked.errors.extend(seen.optional_defects());
    if let (true, true, Some(fitting)) = (checked.is_fit(), seen.has_schema(), seen.keyset()) {
        plans::check(transaction, keyset.unwrap_or(fitting), &mut checked).await?;
    }
    Ok(checked)
}

/// Both ports. The order that fits the key, where a statement that reads payments can be planned at all.
async fn ports(transaction: &Transaction<'_>, checked: &mut Checked) -> Result<Option<Keyset>, CheckError> {
    let seen = read_ports(transaction).await?;
    checked.errors.extend(seen.defects());
    checked.errors.extend(seen.optional_defects());
    let materialized = transaction.query_typed_one(include_str!("sql/view_is_materialized.sql"), &[]).await;
    if materialized.and_then(|row| row.try_get(0)).map_err(CheckError::Columns)? {
        checked.errors.push(Defect::new(
            "reconciliation.payment is a materialized view, which shows the payments as they were when it was refreshed",
            "make it a plain view",
        ));
    }
    checked.looked_at.push("both ports: names and types, in the catalog".to_owned());
    Ok(if checked.errors.is_empty() { seen.keyset() } else { None })
}

/// The versions of the schema: all of them, and no others.
async fn versions(transaction: &Transaction<'_>, checked: &mut Checked) -> Result<(), CheckError> {
    let found = transaction.query_typed_one(include_str!("sql/found.sql"), &[]).await;
    let somebody_elses: bool = found.and_then(|row| row.try_get("somebody_elses")).map_err(CheckError::Versions)?;
    if somebody_elses {
        checked.errors.push(Defect::new(
            "there is a schema named reconciliation in this database, and it is not the reconciler's",
            "rename it, or give the reconciler a database where the name is free",
        ));
        return Ok(());
    }
    let exists = transaction.query_typed_one("select to_regclass('reconciliation.applied_migration') is not null", &[]);
    if !exists.await.and_then(|row| row.try_get(0)).map_err(CheckError::Versions)? {
        return Ok(()); // that the schema is missing is said with the ports
    }
    let rows = transaction.query_typed(include_str!("sql/applied_versions.sql"), &[]).await;
    let applied: Vec<i32> =
        rows.and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect()).map_err(CheckError::Versions)?;
    let missing: Vec<&str> =
        crate::version_names().filter(|(version, _)| !applied.contains(version)).map(|(_, name)| name).collect();
    if !missing.is_empty() {
        checked.errors.push(Defect::new(
            format!("versions of the schema are not applied: {}", missing.join(", ")),
            "apply the migrations (`cargo tick migrate`)",
        ));
    }
    let newer: Vec<String> = applied
        .iter()
        .filter(|version| !crate::version_names().any(|(ours, _)| ours == **version))
        .map(ToString::to_string)
        .collect();
    if !newer.is_empty() {
        checked.errors.push(Defect::new(
            format!("the schema has versions that this program does not know: {}", newer.join(", ")),
            "deploy the program that applied them; a schema is never taken back",
        ));
    }
    checked.looked_at.push(format!("{} applied versions of the schema", applied.len()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_says_what_is_wrong_and_how_to_mend_it() {
        let checked = Checked {
            errors: vec![Defect::new("a is wrong", "mend a"), Defect::new("b is wrong", "mend b")],
            warnings: vec![Defect::new("c is slow", "mend c")],
            looked_at: vec!["the catalog".to_owned()],
        };
        let list = "2 errors, 1 warning\nerror 1: a is wrong\n  mend: mend a\nerror 2: b is wrong\n  mend: mend b\n\
                    warning 1: c is slow\n  mend: mend c\nlooked at: the catalog";
        assert_eq!(checked.to_string(), list);
        assert!(!checked.is_fit() && Checked::default().is_fit());
        let json = serde_json::to_value(&checked).unwrap();
        assert_eq!(json["errors"][1], serde_json::json!({"what": "b is wrong", "mend": "mend b"}));
    }
}
