//! Whether the statements that read payments are answered by an index.
//!
//! A statement is answered by an index if and only if, on the way from its limit down to the table that it walks along,
//!
//! - nothing is sorted,
//! - that table is read through an index, and
//! - what the statement asks for (the position, the reference) is a condition of that index, not a filter over all of it.
//!
//! The plans are made with sequential scans and sorts switched off. Postgres takes them then only where it has nothing else,
//! so the answer is the same for ten payments and for a billion.

use reconciler::domain::Timestamp;
use reconciler::domain::id::PaymentId;
use reconciler::store::cursor::Position;
use reconciler::store::plan::{explain_batch, explain_lookup, explain_suspects};
use reconciler::store::ports::Defect;
use reconciler::store::{Keyset, StoreError};
use serde_json::Value;
use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

use super::{CheckError, Checked};

const INDEXES_ALONE: &str = "set local enable_seqscan = off; set local enable_sort = off";

/// As many payments as a batch has by default.
const LIMIT: i64 = 200;

/// How a statement gets at its rows.
#[derive(Debug, Default, PartialEq, Eq)]
struct Access {
    /// It sorts everything that it found.
    sorts: bool,
    /// It sorts rows that are equal in the first columns of an index.
    sorts_ties: bool,
    /// The indexes that it reads on its way.
    indexes: Vec<String>,
    /// Tables that it reads from end to end on its way.
    reads_all: Vec<String>,
    /// Those of the indexes that it reads without a condition: from their beginning until it has enough.
    from_the_beginning: Vec<String>,
    /// Tables beside the way that it reads from end to end, for each payment even.
    reads_all_beside: Vec<String>,
}

/// Looks at the walk, the sweep and the lookup by reference. Whether the walk is answered by an index.
pub(super) async fn check(
    transaction: &mut Transaction<'_>,
    keyset: Keyset,
    checked: &mut Checked,
) -> Result<bool, CheckError> {
    let savepoint = transaction.transaction().await.map_err(CheckError::Transaction)?;
    savepoint.batch_execute(INDEXES_ALONE).await.map_err(CheckError::Transaction)?;
    let by_index = match look(&savepoint, keyset, checked).await {
        Ok(by_index) => by_index,
        Err(CheckError::Ports(StoreError::Explain(error))) if error.as_db_error().is_some() => {
            let said = error.as_db_error().map(ToString::to_string).unwrap_or_default();
            checked.errors.push(Defect::new(
                format!("Postgres cannot plan a statement that reads payments ({said})"),
                "mend the adapter's view",
            ));
            false
        }
        Err(error) => return Err(error),
    };
    savepoint.rollback().await.map_err(CheckError::Transaction)?;
    checked.looked_at.push(format!(
        "the plans of the walk by {}, of the sweep, and of the lookup by external_ref, without sequential scans and sorts",
        order_of(keyset)
    ));
    Ok(by_index)
}

async fn look(savepoint: &Transaction<'_>, keyset: Keyset, checked: &mut Checked) -> Result<bool, CheckError> {
    let position = Position { created_at: Timestamp::UNIX_EPOCH, id: lowest_key(savepoint).await? };
    let first = access(&explain_batch(savepoint, keyset, None, LIMIT).await?);
    let next = access(&explain_batch(savepoint, keyset, Some(&position), LIMIT).await?);
    let wrong = walk_defect(keyset, &first, &next);
    let by_index = wrong.is_none();
    checked.errors.extend(wrong);
    checked.warnings.extend(ties_defect(keyset, &next));
    let lookup = access(&explain_lookup(savepoint).await?);
    checked.warnings.extend(lookup_defect(&lookup));

    // In the order of the sweep an index of all payments is read from the oldest on, condition or not: most have ended.
    let mut sweep = access(&explain_suspects(savepoint, Timestamp::UNIX_EPOCH, LIMIT).await?);
    if !sweep.sorts {
        for index in &sweep.indexes {
            if !is_partial(savepoint, index).await? {
                sweep.reads_all.push(index.clone());
            }
        }
    }
    checked.warnings.extend(sweep_defect(&sweep));
    checked.warnings.extend(beside_defect(&next));
    Ok(by_index)
}

fn walk_defect(keyset: Keyset, first: &Access, next: &Access) -> Option<Defect> {
    let mut wrong: Vec<String> = Vec::new();
    let reads: Vec<&String> =
        [&first.reads_all, &next.reads_all, &next.from_the_beginning].into_iter().flatten().collect();
    if let Some(read) = reads.first() {
        wrong.push(format!("reads {read} from end to end"));
    }
    if first.sorts || next.sorts {
        wrong.push("sorts all that it reads".to_owned());
    }
    let index = match keyset {
        Keyset::Id => {
            "an index on the column behind id, which has to be a plain column in the view: no cast, no expression"
        }
        Keyset::CreatedAt => {
            "an index on the columns behind (created_at, id), which have to be plain columns in the view: no cast, no \
             expression. Where the keys grow with time, as UUIDv7 does, KEYSET=id asks for one on id instead"
        }
    };
    (!wrong.is_empty()).then(|| {
        Defect::new(
            format!("the walk by {} is answered by no index: every batch {}", order_of(keyset), wrong.join(" and ")),
            format!("give the table {index} (`create index concurrently`)"),
        )
    })
}

fn ties_defect(keyset: Keyset, next: &Access) -> Option<Defect> {
    next.sorts_ties.then(|| {
        Defect::new(
            format!(
                "the walk by {} sorts, in every batch, the payments that are equal in the first part of its index",
                order_of(keyset)
            ),
            "harmless while few are equal there; where many were created in one instant, index both columns of the order",
        )
    })
}

fn lookup_defect(lookup: &Access) -> Option<Defect> {
    let read = lookup.reads_all.iter().chain(&lookup.from_the_beginning).next()?;
    Some(Defect::new(
        format!(
            "the lookup by external_ref is answered by no index: every webhook and every page of the reverse scan reads {read} from end to end"
        ),
        "give the column behind external_ref an index, best a unique one, and keep it a plain column in the view",
    ))
}

fn sweep_defect(sweep: &Access) -> Option<Defect> {
    let without_a_condition = if sweep.sorts { sweep.from_the_beginning.as_slice() } else { &[] };
    let read = sweep.reads_all.iter().chain(without_a_condition).next()?;
    let sorts = if sweep.sorts { " and sorts it" } else { "" };
    Some(Defect::new(
        format!(
            "the sweep finds its suspects through no index of their own: every tick may read {read} from end to end{sorts}"
        ),
        "harmless up to some 100,000 payments. Beyond that: an index on the columns behind (created_at, id), `where` the view's \
         own expression for state is in ('pending', 'finalizing', 'expired')",
    ))
}

fn beside_defect(next: &Access) -> Option<Defect> {
    let tables = &next.reads_all_beside;
    (!tables.is_empty()).then(|| {
        Defect::new(
            format!("every batch reads {} from end to end, to join it to the payments", tables.join(", ")),
            "give the columns of the join an index; harmless where the table stays small",
        )
    })
}

fn order_of(keyset: Keyset) -> &'static str {
    match keyset {
        Keyset::Id => "id",
        Keyset::CreatedAt => "(created_at, id)",
    }
}

/// A key before all others, of the type that the keys have.
async fn lowest_key(savepoint: &Transaction<'_>) -> Result<PaymentId, CheckError> {
    let row = savepoint.query_typed_one(include_str!("../sql/lowest_key.sql"), &[]).await;
    row.and_then(|row| row.try_get(0)).map(|key: String| PaymentId::new(key)).map_err(CheckError::Versions)
}

async fn is_partial(savepoint: &Transaction<'_>, index: &str) -> Result<bool, CheckError> {
    let row = savepoint.query_typed_one(include_str!("../sql/index_is_partial.sql"), &[(&index, Type::TEXT)]).await;
    row.and_then(|row| row.try_get(0)).map_err(CheckError::Columns)
}

/// Reads a plan in Postgres's JSON.
fn access(plan: &Value) -> Access {
    let mut found = Access::default();
    // Above the limit there is a batch at most.
    match plan.get("Plan").and_then(limit_of) {
        Some(limit) => follow(limit, true, &mut found),
        None => found.reads_all.push("an unknown plan".to_owned()),
    }
    found
}

fn limit_of(node: &Value) -> Option<&Value> {
    if text(node, "Node Type") == "Limit" { Some(node) } else { children(node).find_map(limit_of) }
}

/// `on_the_way`: whether the node hands on rows of the table that the statement walks along, in their order.
fn follow(node: &Value, on_the_way: bool, found: &mut Access) {
    let kind = text(node, "Node Type");
    if !on_the_way {
        if kind == "Seq Scan" {
            found.reads_all_beside.push(text(node, "Relation Name").to_owned());
        }
        children(node).for_each(|child| follow(child, false, found));
        return;
    }
    match kind {
        "Sort" => found.sorts = true,
        "Incremental Sort" => found.sorts_ties = true,
        _ => {}
    }
    let mut is_leaf = true;
    for child in children(node) {
        let hands_on = matches!(text(child, "Parent Relationship"), "Outer" | "Subquery" | "Member");
        is_leaf &= !hands_on;
        follow(child, hands_on, found);
    }
    if !is_leaf {
        return;
    }
    match kind {
        "Index Scan" | "Index Only Scan" | "Bitmap Index Scan" => {
            let index = text(node, "Index Name").to_owned();
            if node.get("Index Cond").is_none() {
                found.from_the_beginning.push(index.clone());
            }
            found.indexes.push(index);
        }
        "Result" => {} // Postgres knows that there is nothing to read
        _ => found.reads_all.push(match text(node, "Relation Name") {
            "" => format!("all payments (a {kind})"),
            relation => relation.to_owned(),
        }),
    }
}

fn children(node: &Value) -> impl Iterator<Item = &Value> {
    node.get("Plans").and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(node: &'a Value, key: &str) -> &'a str {
    node.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(walk: Value) -> Value {
        let started =
            json!({"Node Type": "ModifyTable", "Parent Relationship": "InitPlan", "Plans": [{"Node Type": "Result"}]});
        let mut walk = walk;
        walk["Parent Relationship"] = json!("Outer");
        let limit = json!({"Node Type": "Limit", "Parent Relationship": "Inner", "Plans": [walk]});
        json!({"Plan": {"Node Type": "Sort", "Plans": [started, limit]}})
    }

    #[test]
    fn only_what_is_below_the_limit_counts() {
        let by_index =
            json!({"Node Type": "Index Scan", "Index Name": "k", "Relation Name": "p", "Index Cond": "(id > 1)"});
        assert_eq!(access(&plan(by_index)), Access { indexes: vec!["k".to_owned()], ..Access::default() });
        assert_eq!(access(&json!({"Plan": {"Node Type": "Seq Scan"}})).reads_all, ["an unknown plan"]);
    }

    #[test]
    fn a_sort_and_a_full_scan_on_the_way_are_seen_and_those_beside_are_told_apart() {
        let read = json!({"Node Type": "Seq Scan", "Relation Name": "p", "Parent Relationship": "Outer"});
        let sorted = access(&plan(json!({"Node Type": "Sort", "Plans": [read]})));
        assert!(sorted.sorts && sorted.reads_all == ["p"], "{sorted:?}");

        let outer =
            json!({"Node Type": "Index Scan", "Index Name": "k", "Relation Name": "p", "Parent Relationship": "Outer"});
        let latest = json!({"Node Type": "Sort", "Parent Relationship": "Outer", "Plans": [{"Node Type": "Seq Scan", "Relation Name": "a", "Parent Relationship": "Outer"}]});
        let inner = json!({"Node Type": "Limit", "Parent Relationship": "Inner", "Plans": [latest]});
        let joined = access(&plan(json!({"Node Type": "Nested Loop", "Plans": [outer, inner]})));
        assert!(!joined.sorts, "what is sorted for one payment is not the walk: {joined:?}");
        assert_eq!((joined.from_the_beginning, joined.reads_all_beside), (vec!["k".to_owned()], vec!["a".to_owned()]));
    }

    #[test]
    fn each_part_of_a_partitioned_table_counts() {
        let part = |name: &str, kind: &str| json!({"Node Type": kind, "Index Name": name, "Relation Name": name, "Index Cond": "x", "Parent Relationship": "Member"});
        let parts = json!({"Node Type": "Merge Append", "Plans": [part("p1", "Index Scan"), part("p2", "Seq Scan")]});
        assert_eq!(access(&plan(parts)).reads_all, ["p2"]);
    }
}
