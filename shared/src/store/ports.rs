//! The two ports, looked at before the first payment is read: what is missing is said all at once, and how to mend it.

use std::collections::HashMap;

use tokio_postgres::Client;

use super::{Keyset, StoreError};

/// The read port's columns and the types that each may have.
const COLUMNS: [(&str, &[&str]); 7] = [
    ("id", &["smallint", "integer", "bigint", "uuid", "text", "character varying"]),
    ("external_ref", &["text", "character varying"]),
    ("match_key", &["text", "character varying"]),
    ("state", &["text", "character varying"]),
    ("created_at", &["timestamp with time zone"]),
    ("updated_at", &["timestamp with time zone"]),
    ("version", &["text", "character varying"]),
];

/// What the ports say about the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The order that fits the key's type: by id where it grows with time, else by `(created_at, id)`.
    pub keyset: Keyset,
}

/// Checks that the schema is there and that both ports are what the reconciler needs. One error lists all that is not.
pub async fn check_ports(db: &Client) -> Result<Ports, StoreError> {
    let rows = db.query_typed(include_str!("sql/ports.sql"), &[]).await.map_err(StoreError::ReadPorts)?;
    let mut columns = HashMap::new();
    let mut domain = None;
    let mut functions = Vec::new();
    for row in &rows {
        let (part, name, kind): (String, String, String) = (
            row.try_get(0).map_err(StoreError::ReadPorts)?,
            row.try_get(1).map_err(StoreError::ReadPorts)?,
            row.try_get(2).map_err(StoreError::ReadPorts)?,
        );
        match part.as_str() {
            "column" => drop(columns.insert(name, kind)),
            "domain" => domain = Some(kind),
            _ => functions.push((name, kind)),
        }
    }

    let mut wrong = wrong_columns(&columns);
    if domain.is_none() {
        wrong.push("the schema reconciliation is not there: apply the migrations (`cargo tick migrate`)".to_owned());
    }
    if domain.is_some() && !functions.iter().any(|(name, _)| name == "transition") {
        wrong.push(
            "the function reconciliation.transition is missing: apply the migrations (`cargo tick migrate`)".to_owned(),
        );
    }
    wrong.extend(domain.as_deref().and_then(|key| wrong_write_port(key, &functions)));
    if !wrong.is_empty() {
        return Err(StoreError::Ports(wrong));
    }
    let keyset = if domain.as_deref() == Some("bigint") { Keyset::Id } else { Keyset::CreatedAt };
    Ok(Ports { keyset })
}

/// The write port has to take the key's own type: SQL finds no function for a bigint where there is one for an integer.
fn wrong_write_port(key: &str, functions: &[(String, String)]) -> Option<String> {
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
    Some(format!(
        "the function reconciliation.apply_transition({key}, text, jsonb) returning text is missing ({instead}): add it to the \
         adapter, with exactly these types"
    ))
}

fn wrong_columns(columns: &HashMap<String, String>) -> Vec<String> {
    if columns.is_empty() {
        return vec![
            "the view reconciliation.payment is not there: apply an adapter (`cargo tick migrate --adapter default`, or a \
             file of yours)"
                .to_owned(),
        ];
    }
    COLUMNS
        .iter()
        .filter_map(|(name, allowed)| match columns.get(*name) {
            None => Some(format!(
                "the view reconciliation.payment has no column {name} ({}): add it to the adapter's view",
                allowed.join(" or ")
            )),
            Some(kind) if !allowed.contains(&kind.as_str()) => Some(format!(
                "the column {name} of the view reconciliation.payment is {kind}, and has to be {}: cast it in the \
                 adapter's view",
                allowed.join(" or ")
            )),
            Some(_) => None,
        })
        .collect()
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
            let said = wrong_write_port("bigint", &port(wrong)).unwrap();
            assert!(said.contains("apply_transition(bigint, text, jsonb)") && said.contains(wrong), "{said}");
        }
        assert!(wrong_write_port("uuid", &[]).unwrap().contains("there is none"));
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
            assert!(wrong.iter().any(|line| line.contains(part)), "{part}: {wrong:?}");
        }
        assert!(wrong_columns(&HashMap::new())[0].contains("apply an adapter"));
    }
}
