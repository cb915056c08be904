//! Which objects of the account are ours, and what of them may be kept.

use reconciler::config::{Marker, ReverseSettings};
use reconciler::domain::external::ExternalPayment;
use reconciler::domain::id::PaymentId;
use serde_json::{Map, Value, json};
use time::format_description::well_known::Rfc3339;

/// Whether the object is ours, as far as the settings tell. One that a payment here names is, whatever they say.
pub(crate) fn is_ours(settings: &ReverseSettings, object: &ExternalPayment) -> bool {
    let marked = |marker: &Marker| {
        object.metadata.get(&marker.key).is_some_and(|found| marker.value.as_ref().is_none_or(|value| value == found))
    };
    (settings.markers.is_empty() || settings.markers.iter().any(marked))
        && (settings.currencies.is_empty() || settings.currencies.contains(&object.currency))
}

/// What the object's metadata says under `MATCH_METADATA_KEY`.
pub(crate) fn match_key_of<'a>(settings: &ReverseSettings, object: &'a ExternalPayment) -> Option<&'a str> {
    let key = settings.match_key.as_ref()?;
    object.metadata.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// What a person should see of an orphan: chosen fields and the metadata that the settings name, never the raw object.
pub(crate) fn evidence(settings: &ReverseSettings, object: &ExternalPayment, payment_id: Option<&PaymentId>) -> Value {
    let keys = settings.markers.iter().map(|marker| &marker.key).chain(&settings.match_key);
    let metadata: Map<String, Value> =
        keys.filter_map(|key| Some((key.clone(), object.metadata.get(key)?.as_str().into()))).collect();
    json!({
        "external_ref": object.id.as_str(),
        "external_status": object.status.as_str(),
        "amount_minor": object.amount_minor,
        "amount_received_minor": object.amount_received_minor,
        "currency": object.currency,
        "external_created_at": object.created.format(&Rfc3339).ok(),
        "livemode": object.livemode,
        "metadata": metadata,
        "match_key": match_key_of(settings, object),
        "payment_id": payment_id.map(PaymentId::as_str),
    })
}

#[cfg(test)]
mod tests {
    use reconciler::domain::Timestamp;
    use reconciler::domain::external::ExternalStatus;
    use reconciler::domain::id::ExternalRef;

    use super::*;

    fn settings(key: &str, value: &str) -> ReverseSettings {
        ReverseSettings::from_lookup(&|asked| (asked == key).then(|| value.to_owned())).unwrap()
    }

    fn object(metadata: &[(&str, &str)]) -> ExternalPayment {
        ExternalPayment {
            id: ExternalRef::parse("pi_1").unwrap(),
            status: ExternalStatus::Succeeded,
            amount_minor: 1_000,
            amount_received_minor: 1_000,
            currency: "eur".to_owned(),
            created: Timestamp::UNIX_EPOCH,
            livemode: false,
            metadata: metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            decline: None,
            cancellation_reason: None,
        }
    }

    #[test]
    fn a_filter_tells_ours_from_others() {
        let ours = |key, value, metadata: &[(&str, &str)]| is_ours(&settings(key, value), &object(metadata));
        assert!(ours("", "", &[]), "without a filter all are");
        let key = "REVERSE_METADATA_KEY";
        assert!(ours(key, "shop", &[("shop", "")]) && !ours(key, "shop", &[("order", "1")]));
        assert!(ours(key, "app=shop", &[("app", "shop")]) && !ours(key, "app=shop", &[("app", "blog")]));
        assert!(ours(key, "shop,app", &[("app", "x")]));
        assert!(ours("REVERSE_CURRENCY", "usd,eur", &[]) && !ours("REVERSE_CURRENCY", "usd", &[]));
    }

    #[test]
    fn evidence_holds_the_metadata_that_the_settings_name_and_no_other() {
        let mut settings = settings("REVERSE_METADATA_KEY", "app");
        settings.match_key = Some("order_id".to_owned());
        let object = object(&[("app", "shop"), ("order_id", "7"), ("email", "a@b.example")]);
        let seen = evidence(&settings, &object, Some(&PaymentId::new("42")));
        assert_eq!(seen["metadata"], json!({"app": "shop", "order_id": "7"}));
        assert_eq!((&seen["match_key"], &seen["payment_id"]), (&json!("7"), &json!("42")));
        assert!(!seen.to_string().contains("example"));
    }
}
