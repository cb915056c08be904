//! The two ports, looked at before the first payment is read: what is missing is said all at once, and how to mend it.

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;
use tokio_postgres::GenericClient;

use super::{Keyset, StoreError};

/// The types of a text column.
const TEXT: &[&str] = &["text", "character varying"];

/// The read port's columns and the types that each may have.
const COLUMNS: [(&str, &[&str]); 7] = [
    ("id", &["smallint", "integer", "bigint", "uuid", "text", "character varying"]),
    ("external_ref", TEXT),
    ("match_key", TEXT),
    ("state", TEXT),
    ("created_at", &["timestamp with time zone"]),
    ("updated_at", &["timestamp with time zone"]),
    ("version", TEXT),
];

/// Columns that the read port may have besides, and the types that each may have then.
const OPTIONAL_COLUMNS: [(&str, &[&str]); 4] =
    [("amount_minor", &["bigint"]), ("currency", TEXT), ("refunded_minor", &["bigint"]), ("account", TEXT)];

/// What the ports say about the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The order that fits the key's type: by id where it grows with time, else by `(created_at, id)`.
    pub keyset: Keyset,
}

/// Something in the database that is not as the reconciler needs it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Defect {
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub mend: String,
}

impl Defect {
    /// Both parts.
    pub fn new(what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { what: what.into(), mend: mend.into() }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.mend)
    }
}

/// The ports as they are in the catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenPorts {
    /// The view's columns and their types.
    columns: HashMap<String, String>,
    /// The type under the domain `reconciliation.payment_id`, where the schema is there.
    domain: Option<String>,
    /// `apply_transition` and `transition`, with their signatures.
    functions: Vec<(String, String)>,
}

impl SeenPorts {
    /// What is wrong with the adapter: the view and the write port.
    pub fn adapter_defects(&self) -> Vec<Defect> {
        let mut wrong = wrong_columns(&self.columns);
        let viewed = self.columns.get("id").and_then(|kind| key_type(kind));
        if let (Some(viewed), Some(domain)) = (viewed, self.domain.as_deref())
            && viewed != domain
        {
            wrong.push(Defect::new(
                format!("the column id of the view reconciliation.payment is of a {viewed} key, but the schema was made for {domain}"),
                format!(
                    "give back the old key in the adapter's view; for another key, make the schema reconciliation anew (its type \
                     cannot be altered; what is kept there about {domain} keys is lost)"
                ),
            ));
        }
        wrong.extend(self.domain.as_deref().or(viewed).and_then(|key| wrong_write_port(key, &self.functions)));
        wrong
    }

    /// What is wrong with the adapter, and what is missing of the schema.
    pub fn defects(&self) -> Vec<Defect> {
        let mut wrong = self.adapter_defects();
        if !self.has_schema() {
            wrong.push(Defect::new(
                "the schema reconciliation is not there",
                "apply the migrations (`cargo tick migrate`)",
            ));
        } else if !self.functions.iter().any(|(name, _)| name == "transition") {
            wrong.push(Defect::new(
                "the function reconciliation.transition is missing",
                "apply the migrations (`cargo tick migrate`)",
            ));
        }
        wrong
    }

    /// What is wrong with columns that no function reads yet.
    pub fn optional_defects(&self) -> Vec<Defect> {
        OPTIONAL_COLUMNS
            .iter()
            .filter_map(|(name, allowed)| {
                self.columns.get(*name).and_then(|kind| wrong_type(name, kind, allowed, "or leave it out"))
            })
            .collect()
    }

    /// Whether our tables are there.
    pub fn has_schema(&self) -> bool {
        self.domain.is_some()
    }

    /// The order that fits the key, where there is one.
    pub fn keyset(&self) -> Option<Keyset> {
        let key = self.domain.as_deref().or_else(|| self.columns.get("id").and_then(|kind| key_type(kind)))?;
        Some(if key == "bigint" { Keyset::Id } else { Keyset::CreatedAt })
    }
}

/// Reads both ports from the catalog. Changes nothing.
pub async fn read_ports(db: &impl GenericClient) -> Result<SeenPorts, StoreError> {
    let rows = db.query_typed(include_str!("sql/ports.sql"), &[]).await.map_err(StoreError::ReadPorts)?;
    let mut seen = SeenPorts::default();
    for row in &rows {
        let (part, name, kind): (String, String, String) = (
            row.try_get(0).map_err(StoreError::ReadPorts)?,
            row.try_get(1).map_err(StoreError::ReadPorts)?,
            row.try_get(2).map_err(StoreError::ReadPorts)?,
        );
        match part.as_str() {
            "column" => drop(seen.columns.insert(name, kind)),
            "domain" => seen.domain = Some(kind),
            _ => seen.functions.push((name, kind)),
        }
    }
    Ok(seen)
}

/// Checks that the schema is there and that both ports are what the reconciler needs. One error lists all that is not.
pub async fn check_ports(db: &impl GenericClient) -> Result<Ports, StoreError> {
    let seen = read_ports(db).await?;
    let wrong = seen.defects();
    match seen.keyset() {
        Some(keyset) if wrong.is_empty() => Ok(Ports { keyset }),
        Some(_) | None => Err(StoreError::Ports(wrong.iter().map(ToString::to_string).collect())),
    }
}

/// The type of the domain that a key of this type gets (`migrations/V2__payment_id.sql`), where it is one of those.
fn key_type(kind: &str) -> Option<&'static str> {
    match kind {
        "smallint" | "integer" | "bigint" => Some("bigint"),
        "uuid" => Some("uuid"),
        "text" | "character varying" => Some("text"),
        _ => None,
    }
}

/// The write port has to take the key's own type: SQL finds no function for a bigint where there is one for an integer.
fn wrong_write_port(key: &str, functions: &[(String, String)]) -> Option<Defect> {
    let wanted = format!("{key}, text, jsonb -> text");
    let found: Vec<&str> = functions
        .iter()
        .filter(|(name, _)| name == "apply_transition")
        .map(|(_, signature)| signature.as_str())
        .collect();
    if found.contains(&wanted.as_str()) {
        return None;
    }
    let instead = if found.is_empty() { "there is none".to_owned() } else { format!("found: {}", found.join("; ")) };
    Some(Defect::new(
        format!(
            "the function reconciliation.apply_transition({key}, text, jsonb) returning text is missing ({instead})"
        ),
        "add it to the adapter, with exactly these types",
    ))
}

fn wrong_columns(columns: &HashMap<String, String>) -> Vec<Defect> {
    if columns.is_empty() {
        return vec![Defect::new(
            "the view reconciliation.payment is not there",
            "apply an adapter (`cargo tick migrate --adapter default`, or a file of yours)",
        )];
    }
    COLUMNS
        .iter()
        .filter_map(|(name, allowed)| match columns.get(*name) {
            None => Some(Defect::new(
                format!("the view reconciliation.payment has no column {name} ({})", allowed.join(" or ")),
                "add it to the adapter's view",
            )),
            Some(kind) => wrong_type(name, kind, allowed, "its index has to be over that same expression"),
        })
        .collect()
}

fn wrong_type(name: &str, kind: &str, allowed: &[&str], besides: &str) -> Option<Defect> {
    (!allowed.contains(&kind)).then(|| {
        Defect::new(
            format!(
                "the column {name} of the view reconciliation.payment is {kind}, and has to be {}",
                allowed.join(" or ")
            ),
            format!("cast it in the adapter's view ({besides})"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(of: &[(&str, &str)]) -> HashMap<String, String> {
        of.iter().map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned())).collect()
    }

    #[test]
    fn the_write_port_has_to_take_the_keys_own_type() {
        let port = |signature: &str| vec![("apply_transition".to_owned(), signature.to_owned())];
        assert_eq!(wrong_write_port("bigint", &port("bigint, text, jsonb -> text")), None);
        for wrong in ["integer, text, jsonb -> text", "bigint, text, json -> text", "bigint, text, jsonb -> void"] {
            let said = wrong_write_port("bigint", &port(wrong)).unwrap().to_string();
            assert!(said.contains("apply_transition(bigint, text, jsonb)") && said.contains(wrong), "{said}");
        }
        assert!(wrong_write_port("uuid", &[]).unwrap().what.contains("there is none"));
    }

    #[test]
    fn every_wrong_column_is_named_at_once() {
        let wrong = wrong_columns(&columns(&[
            ("id", "numeric"),
            ("external_ref", "text"),
            ("match_key", "text"),
            ("state", "text"),
            ("created_at", "timestamp without time zone"),
            ("updated_at", "timestamp with time zone"),
        ]));
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        for part in ["column id of", "created_at", "no column version"] {
            assert!(wrong.iter().any(|defect| defect.what.contains(part)), "{part}: {wrong:?}");
        }
        assert!(wrong_columns(&HashMap::new())[0].mend.contains("apply an adapter"));
    }

    #[test]
    fn a_column_that_may_be_left_out_has_its_type_where_it_is_there() {
        let seen = |of| SeenPorts { columns: columns(of), ..SeenPorts::default() };
        assert_eq!(seen(&[("amount_minor", "bigint"), ("account", "text")]).optional_defects(), []);
        let wrong = seen(&[("amount_minor", "numeric"), ("refunded_minor", "integer"), ("currency", "character")]);
        assert_eq!(wrong.optional_defects().len(), 3, "{wrong:?}");
    }

    #[test]
    fn the_key_may_not_become_another() {
        let port = ("apply_transition".to_owned(), "uuid, text, jsonb -> text".to_owned());
        let seen = SeenPorts {
            columns: columns(&COLUMNS.map(|(name, allowed)| (name, allowed[0]))),
            domain: Some("uuid".to_owned()),
            functions: vec![port],
        };
        let wrong = seen.adapter_defects();
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(wrong[0].what.contains("bigint key, but the schema was made for uuid"), "{wrong:?}");
    }
}
