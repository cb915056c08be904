//! Who may do what. The reconciler cannot change a payment if and only if neither its roles nor everybody may write to the
//! view, to any table behind it, or call the write port; the canonical writer is for `reconciler_writer`, and with a person's
//! review for `reconciler_reviewer`, alone. Reviews are added by the latter and changed by nobody.
//!
//! What is asked is what a role may do in the end, through whatever membership, ownership or grant to everybody.

use reconciler::store::ports::Defect;
use tokio_postgres::{Row, Transaction};

use super::{CheckError, Checked};

pub(super) async fn check(transaction: &Transaction<'_>, checked: &mut Checked) -> Result<(), CheckError> {
    let rows =
        transaction.query_typed(include_str!("../sql/privileges.sql"), &[]).await.map_err(CheckError::Privileges)?;
    for row in &rows {
        checked.errors.push(defect(row).map_err(CheckError::Privileges)?);
    }
    checked.looked_at.push(
        "what the four roles and PUBLIC may do with the view, the tables behind it, the reviews, and the functions"
            .to_owned(),
    );
    Ok(())
}

fn defect(row: &Row) -> Result<Defect, tokio_postgres::Error> {
    let (fact, role, object): (&str, &str, &str) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let again = "apply the grants again (`cargo tick migrate`)";
    Ok(match fact {
        "no_role" => Defect::new(format!("there is no role {role}"), format!("`create role {role} nologin`")),
        "may_write" => Defect::new(
            format!("the role {role} may change payments: it may write to {object}"),
            format!("take that right from it, and from PUBLIC and every role that {role} is a member of"),
        ),
        "may_execute" => Defect::new(
            format!("the role {role} may call {object}, which changes payments"),
            format!("{again}; if it stays, take the right from the roles that {role} is a member of"),
        ),
        "may_become" => Defect::new(
            format!("the role {role} may take on {object}, and with it change payments"),
            format!("`revoke {object} from {role}`; a login is given one of the roles"),
        ),
        "may_decide" => Defect::new(
            format!("the role {role} may write a review, and with it let a person's transition through"),
            format!("{again}; if it stays, take the right from the roles that {role} is a member of"),
        ),
        "may_rewrite" => Defect::new(
            format!("the role {role} may change or take away reviews, which are a record"),
            format!("{again}; if it stays, take the right from the roles that {role} is a member of"),
        ),
        "may_not" => Defect::new(format!("the role {role} may not {object}"), again),
        "public" => Defect::new(format!("everybody (PUBLIC) has {object}"), again),
        "unpinned" => Defect::new(
            format!("the function {object} runs with its owner's rights and with its caller's search_path"),
            "add `set search_path = pg_catalog, pg_temp` to it in the adapter, and qualify every name in it",
        ),
        other => Defect::new(format!("{other}: {role} {object}"), again),
    })
}
