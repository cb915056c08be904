//! Secrets: texts that are never printed. One is given as a setting, or kept in AWS Secrets Manager and named by its ARN.

use std::fmt;

use super::{ConfigError, Lookup, text};

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Which secret of AWS Secrets Manager, and the setting that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretArn {
    setting: &'static str,
    arn: String,
    region: String,
}

impl SecretArn {
    /// Takes `arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME` (in any partition), the value of `setting`. An error does not
    /// show it: somebody may have set the secret itself in its place.
    pub fn parse(setting: &'static str, arn: &str) -> Result<Self, ConfigError> {
        let parts: Vec<&str> = arn.splitn(7, ':').collect();
        match parts.as_slice() {
            ["arn", partition, "secretsmanager", region, account, "secret", name]
                if partition.starts_with("aws") && is_region(region) && is_account(account) && !name.is_empty() =>
            {
                Ok(Self { setting, arn: arn.to_owned(), region: (*region).to_owned() })
            }
            _ => Err(ConfigError::Malformed {
                key: setting,
                value: String::new(),
                expected: "the ARN of a secret, arn:aws:secretsmanager:…:…:secret:…".to_owned(),
            }),
        }
    }

    /// The setting that names it.
    pub fn setting(&self) -> &'static str {
        self.setting
    }

    /// The ARN, as it was set.
    pub fn as_str(&self) -> &str {
        &self.arn
    }

    /// The region that keeps it, such as `eu-west-1`.
    pub fn region(&self) -> &str {
        &self.region
    }
}

fn is_region(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn is_account(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Where a secret comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// The setting holds it.
    Given(Secret),
    /// AWS Secrets Manager holds it.
    Stored(SecretArn),
}

/// Reads the setting that holds a secret, or the one that names it: exactly one of them.
pub(super) fn source(
    lookup: Lookup<'_>,
    given: &'static str,
    stored: &'static str,
    expected: &'static str,
) -> Result<SecretSource, ConfigError> {
    match (text(lookup, given), text(lookup, stored)) {
        (Some(secret), None) => Ok(SecretSource::Given(Secret::new(secret))),
        (None, Some(arn)) => Ok(SecretSource::Stored(SecretArn::parse(stored, &arn)?)),
        (None, None) => Err(ConfigError::Missing { key: given, expected }),
        (Some(_), Some(_)) => Err(ConfigError::Malformed {
            key: given,
            value: String::new(),
            expected: format!("either it or {stored}, not both"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARN: &str = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:shop/db-AbCdEf";

    #[test]
    fn a_secret_has_exactly_one_source() {
        let read = |key: &'static str, arn: &'static str| {
            source(
                &move |asked| match asked {
                    "KEY" => Some(key.to_owned()),
                    "KEY_ARN" => Some(arn.to_owned()),
                    _ => None,
                },
                "KEY",
                "KEY_ARN",
                "a key, or KEY_ARN",
            )
        };
        assert_eq!(read("hush", " ").unwrap(), SecretSource::Given(Secret::new("hush")));
        let SecretSource::Stored(arn) = read("", ARN).unwrap() else { panic!("given") };
        assert_eq!((arn.setting(), arn.as_str(), arn.region()), ("KEY_ARN", ARN, "eu-west-1"));
        for (key, arn) in [("", ""), ("hush", ARN)] {
            let error = read(key, arn).unwrap_err();
            let words = error.to_string();
            assert!(words.contains("the setting KEY is") && words.contains("or KEY_ARN"), "{words}");
            assert!(!format!("{words}{error:?}").contains("hush"), "{error:?}");
        }
    }

    #[test]
    fn what_is_no_arn_of_a_secret_is_refused_and_not_shown() {
        for arn in [
            "arn:aws:secretsmanager:eu-west-1:123456789012:secret:rds!cluster-1a2b-AbCdEf",
            "arn:aws-cn:secretsmanager:cn-north-1:123456789012:secret:a:b",
        ] {
            assert_eq!(SecretArn::parse("KEY_ARN", arn).unwrap().as_str(), arn);
        }
        for wrong in [
            "hush",
            "{\"password\": \"hush\"}",
            "arn:aws:ssm:eu-west-1:123456789012:parameter:hush",
            "arn:aws:secretsmanager::123456789012:secret:hush",
            "arn:aws:secretsmanager:eu/west:123456789012:secret:hush",
            "arn:aws:secretsmanager:eu-west-1:hush:secret:hush",
            "arn:aws:secretsmanager:eu-west-1:123456789012:secret:",
        ] {
            let error = SecretArn::parse("KEY_ARN", wrong).unwrap_err();
            assert!(error.to_string().contains("KEY_ARN"), "{error}");
            assert!(!format!("{error}{error:?}").contains("hush"), "{error:?}");
        }
    }
}
