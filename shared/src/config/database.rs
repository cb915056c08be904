//! The settings of the connection to Postgres.

use std::path::PathBuf;

use super::secret::source;
use super::{ConfigError, Lookup, Secret, SecretArn, SecretSource, malformed, number, text};

/// How to reach Postgres.
#[derive(Clone, Debug)]
pub struct DatabaseSettings {
    /// Where, as whom, with which password.
    pub login: DatabaseLogin,
    /// Whom to trust with TLS; `None`: whom the system trusts.
    pub ca: Option<CaBundle>,
}

/// Server, user and password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabaseLogin {
    /// `DATABASE_URL`; holds a password.
    Url(Secret),
    /// A secret that AWS Secrets Manager keeps.
    Stored(StoredLogin),
}

/// A login in AWS Secrets Manager. What is set here is taken instead of what the secret says: so a proxy in front of the
/// database can be named, while the secret names the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLogin {
    /// `DATABASE_SECRET_ARN`.
    pub secret: SecretArn,
    /// `DATABASE_HOST`.
    pub host: Option<String>,
    /// `DATABASE_PORT`; 5432 where the secret has none, either.
    pub port: Option<u16>,
    /// `DATABASE_NAME`.
    pub name: Option<String>,
}

/// Certificates of the authorities that may vouch for the database's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaBundle {
    /// `DATABASE_CA_FILE`: a file with them, in PEM.
    File(PathBuf),
    /// `DATABASE_CA`: the PEM text itself.
    Pem(String),
}

impl DatabaseSettings {
    /// Reads the settings named at the fields.
    pub fn from_lookup(lookup: Lookup<'_>) -> Result<Self, ConfigError> {
        let login = database_login(lookup)?;
        let ca = match (text(lookup, "DATABASE_CA_FILE"), text(lookup, "DATABASE_CA")) {
            (Some(file), Some(_)) => {
                return Err(malformed("DATABASE_CA_FILE", &file, "either it or DATABASE_CA, not both"));
            }
            (Some(file), None) => Some(CaBundle::File(PathBuf::from(file))),
            (None, pem) => pem.map(CaBundle::Pem),
        };
        Ok(Self { login, ca })
    }

    /// A login by its URL.
    pub fn by_url(url: &str, ca: Option<CaBundle>) -> Self {
        Self { login: DatabaseLogin::Url(Secret::new(url)), ca }
    }
}

fn database_login(lookup: Lookup<'_>) -> Result<DatabaseLogin, ConfigError> {
    const EXPECTED: &str = "a URL such as postgres://user:password@host/database, or DATABASE_SECRET_ARN instead of it";
    match source(lookup, "DATABASE_URL", "DATABASE_SECRET_ARN", EXPECTED)? {
        SecretSource::Given(url) => Ok(DatabaseLogin::Url(url)),
        SecretSource::Stored(secret) => Ok(DatabaseLogin::Stored(StoredLogin {
            secret,
            host: text(lookup, "DATABASE_HOST"),
            port: match text(lookup, "DATABASE_PORT") {
                Some(_) => Some(number(lookup, "DATABASE_PORT", 5432, 1, u16::MAX)?),
                None => None,
            },
            name: text(lookup, "DATABASE_NAME"),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_beside_a_stored_login_is_kept_with_it() {
        let arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db";
        let read = |port: &'static str| {
            DatabaseSettings::from_lookup(&move |key| match key {
                "DATABASE_SECRET_ARN" => Some(arn.to_owned()),
                "DATABASE_HOST" => Some("db.example".to_owned()),
                "DATABASE_PORT" => Some(port.to_owned()),
                "DATABASE_NAME" => Some("shop".to_owned()),
                _ => None,
            })
        };
        let expected = |port| {
            DatabaseLogin::Stored(StoredLogin {
                secret: SecretArn::parse("DATABASE_SECRET_ARN", arn).unwrap(),
                host: Some("db.example".to_owned()),
                port,
                name: Some("shop".to_owned()),
            })
        };
        assert_eq!(read("6432").unwrap().login, expected(Some(6432)));
        assert_eq!(read("").unwrap().login, expected(None));
        for wrong in ["0", "65536", "x"] {
            assert!(read(wrong).unwrap_err().to_string().contains("DATABASE_PORT"), "{wrong}");
        }
    }
}
