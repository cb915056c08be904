//! What the secrets hold. Pure; an error says what is expected and never what is there.

use reconciler::config::{Secret, StoredLogin, signing_secrets};
use serde_json::{Map, Value};
use tokio_postgres::Config;

/// The member of a JSON secret that holds the key for Stripe: the name of the setting that holds it otherwise.
const KEY_MEMBER: &str = "STRIPE_API_KEY";
/// The same for the webhook's signing secrets.
const WEBHOOK_MEMBER: &str = "STRIPE_WEBHOOK_SECRETS";

const PORT_DEFAULT: u16 = 5432;

/// A login in one of the shapes that AWS writes:
///
/// - the standard one, a JSON object with `engine`, `host`, `username`, `password`, `dbname` and `port` (a number or a text);
/// - the one of RDS's own management, with `username` and `password` only.
///
/// What `place` sets is taken instead of what the secret says. The result says nothing about TLS.
pub fn login(text: &str, place: &StoredLogin) -> Result<Config, &'static str> {
    let secret = object(text).ok_or("it has to be a JSON object with username and password")?;
    if word(&secret, "engine").is_some_and(|engine| !engine.contains("postgres")) {
        return Err("its engine is not postgres");
    }
    let user = word(&secret, "username").ok_or("it has no username")?;
    let password = secret.get("password").and_then(Value::as_str).filter(|password| !password.is_empty());
    let password = password.ok_or("it has no password")?;
    let host = place.host.as_deref().or(word(&secret, "host"));
    let host = host.ok_or("it has no host, and DATABASE_HOST is not set")?;
    let name = place.name.as_deref().or(word(&secret, "dbname"));
    let name = name.ok_or("it has no dbname, and DATABASE_NAME is not set")?;
    let port = match place.port {
        Some(port) => port,
        None => port(&secret)?,
    };
    let mut config = Config::new();
    config.host(host).port(port).user(user).password(password).dbname(name);
    Ok(config)
}

fn port(secret: &Map<String, Value>) -> Result<u16, &'static str> {
    let port = match secret.get("port") {
        None | Some(Value::Null) => Some(PORT_DEFAULT),
        Some(Value::Number(number)) => number.as_u64().and_then(|port| u16::try_from(port).ok()),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => None,
    };
    port.filter(|port| *port > 0).ok_or("its port is not one, as a number or a text")
}

/// The key for Stripe: the whole text, or the member `STRIPE_API_KEY` of a JSON object.
pub fn stripe_key(text: &str) -> Result<Secret, &'static str> {
    const EXPECTED: &str =
        "it has to be the key for Stripe and nothing else, or a JSON object with the key as STRIPE_API_KEY";
    let key = text.trim();
    if key.is_empty() {
        return Err(EXPECTED);
    }
    if !key.starts_with('{') {
        return Ok(Secret::new(key));
    }
    let secret = object(key).ok_or(EXPECTED)?;
    word(&secret, KEY_MEMBER).map(|key| Secret::new(key.trim())).ok_or(EXPECTED)
}

/// The webhook's signing secrets: a list with commas, as the whole text or as the member `STRIPE_WEBHOOK_SECRETS` of a JSON
/// object, where it may be an array as well.
pub fn webhook_secrets(text: &str) -> Result<Vec<Secret>, &'static str> {
    const EXPECTED: &str = "it has to be a list of signing secrets, whsec_…, with commas between them, or a JSON object with that \
                            list, or an array of them, as STRIPE_WEBHOOK_SECRETS";
    let list = text.trim();
    if !list.starts_with('{') {
        return signing_secrets(list).ok_or(EXPECTED);
    }
    let secret = object(list).ok_or(EXPECTED)?;
    let list = match secret.get(WEBHOOK_MEMBER) {
        Some(Value::String(list)) => list.clone(),
        Some(Value::Array(each)) => {
            each.iter().map(Value::as_str).collect::<Option<Vec<&str>>>().ok_or(EXPECTED)?.join(",")
        }
        None | Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => return Err(EXPECTED),
    };
    signing_secrets(&list).ok_or(EXPECTED)
}

fn object(text: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(text).ok()
}

/// A member that is a text with something in it.
fn word<'a>(secret: &'a Map<String, Value>, member: &str) -> Option<&'a str> {
    secret.get(member).and_then(Value::as_str).filter(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use reconciler::config::SecretArn;
    use serde_json::json;

    use super::*;

    /// Every printable sign of ASCII, and more; a blank at its end, too.
    fn password() -> String {
        (' '..='~').chain("é€%40 ".chars()).collect()
    }

    fn place(host: Option<&str>, port: Option<u16>, name: Option<&str>) -> StoredLogin {
        let arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db";
        let secret = SecretArn::parse("DATABASE_SECRET_ARN", arn).unwrap();
        StoredLogin { secret, host: host.map(str::to_owned), port, name: name.map(str::to_owned) }
    }

    fn expected(host: &str, port: u16, name: &str) -> Config {
        let mut config = Config::new();
        config.host(host).port(port).user("u").password(password()).dbname(name);
        config
    }

    #[test]
    fn a_login_is_read_in_both_shapes_with_any_password() {
        let standard = |port: Value| json!({"engine": "postgres", "host": "db.example", "username": "u", "password": password(), "dbname": "shop", "port": port});
        let managed = json!({"username": "u", "password": password()});
        for (secret, place, expected) in [
            (standard(json!(6432)), place(None, None, None), expected("db.example", 6432, "shop")),
            (standard(json!("6432")), place(None, None, None), expected("db.example", 6432, "shop")),
            (standard(Value::Null), place(None, None, None), expected("db.example", 5432, "shop")),
            (standard(json!(6432)), place(Some("proxy"), Some(1), Some("other")), expected("proxy", 1, "other")),
            (managed.clone(), place(Some("proxy"), None, Some("shop")), expected("proxy", 5432, "shop")),
            (managed, place(Some("proxy"), Some(6432), Some("shop")), expected("proxy", 6432, "shop")),
        ] {
            let read = login(&secret.to_string(), &place).unwrap();
            assert_eq!(read, expected, "{place:?}");
            assert_eq!(read.get_password(), Some(password().as_bytes()));
        }
    }

    #[test]
    fn a_login_that_lacks_something_is_refused_by_its_name() {
        let whole =
            json!({"engine": "aurora-postgresql", "host": "h", "username": "u", "password": "hush", "dbname": "d"});
        assert!(login(&whole.to_string(), &place(None, None, None)).is_ok());
        for (member, value, words) in [
            ("engine", json!("mysql"), "engine"),
            ("host", json!(" "), "DATABASE_HOST"),
            ("dbname", Value::Null, "DATABASE_NAME"),
            ("username", json!(7), "username"),
            ("password", json!(""), "password"),
            ("port", json!(0), "port"),
            ("port", json!(65_536), "port"),
            ("port", json!("hush"), "port"),
            ("port", json!(-1), "port"),
            ("port", json!([5432]), "port"),
        ] {
            let mut secret = whole.clone();
            secret[member] = value;
            let error = login(&secret.to_string(), &place(None, None, None)).unwrap_err();
            assert!(error.contains(words) && !error.contains("hush"), "{member}: {error}");
        }
        for text in ["", "hush", "[]", "\"hush\"", "{\"username\": \"u\", \"password\": \"hush\""] {
            assert!(login(text, &place(None, None, None)).unwrap_err().contains("JSON object"), "{text}");
        }
    }

    #[test]
    fn a_key_is_a_text_or_a_member() {
        for text in ["rk_test_1", " rk_test_1\n", "{\"STRIPE_API_KEY\": \"rk_test_1\", \"note\": 1}"] {
            assert_eq!(stripe_key(text), Ok(Secret::new("rk_test_1")), "{text}");
        }
        for text in ["", "  ", "{", "{\"key\": \"hush\"}", "{\"STRIPE_API_KEY\": 1}", "{\"STRIPE_API_KEY\": \"\"}"] {
            let error = stripe_key(text).unwrap_err();
            assert!(error.contains("STRIPE_API_KEY") && !error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn signing_secrets_are_a_list_or_a_member() {
        for text in [
            "whsec_a, whsec_b",
            "{\"STRIPE_WEBHOOK_SECRETS\": \"whsec_a,whsec_b\"}",
            "{\"STRIPE_WEBHOOK_SECRETS\": [\"whsec_a\", \"whsec_b\"]}",
        ] {
            assert_eq!(webhook_secrets(text), Ok(vec![Secret::new("whsec_a"), Secret::new("whsec_b")]), "{text}");
        }
        for text in
            ["", "hush", "whsec_a,", "{}", "{\"STRIPE_WEBHOOK_SECRETS\": []}", "{\"STRIPE_WEBHOOK_SECRETS\": [1]}"]
        {
            let error = webhook_secrets(text).unwrap_err();
            assert!(error.contains("STRIPE_WEBHOOK_SECRETS") && !error.contains("hush"), "{error}");
        }
    }
}
