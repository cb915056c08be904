//! What the rows of the view have to be like: never null where a payment would be lost by it, and in a state that we know.
//!
//! A view's column carries no not-null of its own. Where it is a plain column of a table, and no outer join may have made it
//! null, the table's not-null proves it. Everything else is sampled: as many rows as come first, and as many of the newest
//! by the order of the walk, which a null comes before.

use std::collections::BTreeMap;

use reconciler::domain::payment::LocalState;
use reconciler::store::Keyset;
use reconciler::store::ports::Defect;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Row, Transaction};

use super::{CheckError, Checked};

/// Rows of each of the two samples.
const SAMPLE: i64 = 10_000;

/// A view that reads everything before it gives the first row must not hold up the deployment.
const BOUNDED: &str = "set local statement_timeout = '15s'";

/// So many unknown states are named.
const STATES_SHOWN: usize = 20;

/// What becomes of a payment where the column is null.
const NEVER_NULL: [(&str, &str); 5] = [
    ("id", "such a payment is never compared"),
    ("created_at", "such a payment has no place in the order by (created_at, id), and no age"),
    ("updated_at", "such a payment is taken for unchanged since its creation"),
    ("state", "such a payment is a finding, `unmapped_state`"),
    ("version", "a change between reading and writing goes unnoticed"),
];

/// Looks at the columns and a sample of the rows. `walk`: the order of the walk, where an index answers it.
pub(super) async fn check(
    transaction: &mut Transaction<'_>,
    walk: Option<Keyset>,
    checked: &mut Checked,
) -> Result<(), CheckError> {
    let proved = proved_by_tables(transaction).await?;
    let savepoint = transaction.transaction().await.map_err(CheckError::Transaction)?;
    savepoint.batch_execute(BOUNDED).await.map_err(CheckError::Transaction)?;
    let sampled = sample(&savepoint, walk).await;
    savepoint.rollback().await.map_err(CheckError::Transaction)?;
    match sampled {
        Ok(sample) => judge(&sample, &proved, checked),
        Err(error) => checked.errors.push(unreadable(error)?),
    }
    Ok(())
}

/// Of each column, the column of a table that proves that it is never null.
type Proved = BTreeMap<&'static str, String>;

#[derive(Debug, Default)]
struct Sample {
    rows: i64,
    nulls: BTreeMap<&'static str, i64>,
    unmapped: BTreeMap<String, i64>,
}

async fn sample(savepoint: &Transaction<'_>, walk: Option<Keyset>) -> Result<Sample, tokio_postgres::Error> {
    let newest = match walk {
        Some(Keyset::Id) => Some(include_str!("../sql/newest_by_id.sql")),
        Some(Keyset::CreatedAt) => Some(include_str!("../sql/newest_by_created_at.sql")),
        None => None,
    };
    let mut sample = Sample::default();
    for statement in [Some(include_str!("../sql/first_rows.sql")), newest].into_iter().flatten() {
        for row in &savepoint.query_typed(statement, &[(&SAMPLE, Type::INT8)]).await? {
            add(row, &mut sample)?;
        }
    }
    Ok(sample)
}

fn add(row: &Row, sample: &mut Sample) -> Result<(), tokio_postgres::Error> {
    let rows: i64 = row.try_get("rows")?;
    sample.rows += rows;
    for column in ["id", "created_at", "updated_at", "version"] {
        let nulls: i64 = row.try_get(format!("{column}_nulls").as_str())?;
        *sample.nulls.entry(column).or_default() += nulls;
    }
    match LocalState::from_view(row.try_get("state")?) {
        LocalState::Unmapped(None) => *sample.nulls.entry("state").or_default() += rows,
        LocalState::Unmapped(Some(state)) => *sample.unmapped.entry(state).or_default() += rows,
        LocalState::Pending | LocalState::Finalizing | LocalState::Expired | LocalState::Paid | LocalState::Failed => {}
    }
    Ok(())
}

fn judge(sample: &Sample, proved: &Proved, checked: &mut Checked) {
    for (column, consequence) in NEVER_NULL {
        match (sample.nulls.get(column), proved.get(column)) {
            (Some(1..), _) => checked.errors.push(Defect::new(
                format!("the column {column} of the view reconciliation.payment is null in some rows: {consequence}"),
                "make the column behind it `not null`, or have the view say what stands for null (`coalesce`)",
            )),
            (_, Some(column_behind)) => {
                checked.looked_at.push(format!("{column} is never null: {column_behind} is `not null`"));
            }
            (_, None) => checked.looked_at.push(format!("{column} is not null in any row of the sample")),
        }
    }
    if !sample.unmapped.is_empty() {
        let shown: Vec<String> = sample.unmapped.keys().take(STATES_SHOWN).map(|state| format!("{state:?}")).collect();
        let more = match sample.unmapped.len().saturating_sub(STATES_SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        checked.warnings.push(Defect::new(
            format!("the view's state has values that map to none of ours: {}{more}", shown.join(", ")),
            "map them in the view to pending, finalizing, expired, paid or failed; until then each such payment is a finding, \
             `unmapped_state`",
        ));
    }
    checked.looked_at.push(format!(
        "states and nulls in a sample of {} rows: the first {SAMPLE}, and the newest {SAMPLE} where the walk has an index",
        sample.rows
    ));
}

/// A view that cannot be read is an error of the adapter's; anything else is an error of the check.
fn unreadable(error: tokio_postgres::Error) -> Result<Defect, CheckError> {
    match error.as_db_error() {
        Some(said) if *said.code() == SqlState::QUERY_CANCELED => Ok(Defect::new(
            format!("the first {SAMPLE} rows of the view reconciliation.payment took longer than 15 s"),
            "have the view read one table by its index, with no grouping, sorting or window over the whole of it",
        )),
        Some(said) => Ok(Defect::new(
            format!("the view reconciliation.payment cannot be read: {}", said.message()),
            "mend the expression in the view that fails for some row",
        )),
        None => Err(CheckError::Sample(error)),
    }
}

/// Traces the view's columns to the tables behind it: Postgres itself says, when it describes the view's query, which
/// column of which relation a result column is, and says nothing for an expression.
async fn proved_by_tables(transaction: &Transaction<'_>) -> Result<Proved, CheckError> {
    let columns =
        transaction.query_typed(include_str!("../sql/view_columns.sql"), &[]).await.map_err(CheckError::Columns)?;
    let mut proved = Proved::new();
    for row in &columns {
        let (name, view, number): (&str, u32, i16) = (
            row.try_get(0).map_err(CheckError::Columns)?,
            row.try_get(1).map_err(CheckError::Columns)?,
            row.try_get(2).map_err(CheckError::Columns)?,
        );
        let wanted = NEVER_NULL.iter().find(|(column, _)| *column == name);
        if let Some((column, _)) = wanted
            && let Some(behind) = not_null_behind(transaction, view, number).await.map_err(CheckError::Columns)?
        {
            proved.insert(column, behind);
        }
    }
    Ok(proved)
}

/// The `not null` column behind a view's column, through views of views.
async fn not_null_behind(
    transaction: &Transaction<'_>,
    mut relation: u32,
    mut number: i16,
) -> Result<Option<String>, tokio_postgres::Error> {
    loop {
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
            [(&relation, Type::OID), (&number, Type::INT2)];
        let row = transaction.query_typed_one(include_str!("../sql/column_behind.sql"), &parameters).await?;
        let definition: Option<String> = row.try_get("definition")?;
        let Some(definition) = definition else {
            let not_null: bool = row.try_get("not_null")?;
            let name: String = row.try_get("name")?;
            return Ok(not_null.then_some(name));
        };
        if ["LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "GROUPING SETS", "ROLLUP", "CUBE"]
            .iter()
            .any(|join| definition.contains(join))
        {
            return Ok(None);
        }
        let described = transaction.prepare(&definition).await?;
        let place = usize::try_from(number).unwrap_or_default();
        let column = place.checked_sub(1).and_then(|place| described.columns().get(place));
        match column.and_then(|column| column.table_oid().zip(column.column_id())) {
            Some((oid, id)) => (relation, number) = (oid, id),
            None => return Ok(None),
        }
    }
}
