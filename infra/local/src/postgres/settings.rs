//! Which server to use, as the caller's environment says.

use std::path::PathBuf;

use super::error::PostgresError;

/// Where a server may come from. Made by [`Settings::from_lookup`].
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// A running server to use instead of starting one: `postgresql://…`, as a role that may create databases.
    pub(super) server_url: Option<String>,
    /// `POSTGRES_BIN`: the directory of `postgres` and `initdb`; nothing else is tried then.
    pub(super) bin: Option<PathBuf>,
    /// `POSTGRES_PREFER`: the one major version to use, found locally or else fetched.
    pub(super) major: Option<u32>,
    /// `POSTGRES_CACHE`: where a fetched server is kept.
    pub(super) cache: Option<PathBuf>,
    /// The caller's own cache directory, used when `cache` is not set and the caller is not root.
    pub(super) user_cache: Option<PathBuf>,
    /// `PATH`, taken apart.
    pub(super) search_path: Vec<PathBuf>,
}

impl Settings {
    /// Reads the settings `POSTGRES_BIN`, `POSTGRES_PREFER` and `POSTGRES_CACHE`, and `PATH`, `HOME` and
    /// `XDG_CACHE_HOME`. An empty value counts as not set.
    ///
    /// `server_setting` names the setting that holds a running server's address, such as `TEST_DATABASE_URL`;
    /// without a name none is read, so that nobody's `DATABASE_URL` is used by surprise.
    ///
    /// # Errors
    /// [`PostgresError::Setting`], for a version that is not a number from 15 on or an address that is not a URL.
    pub fn from_lookup(
        lookup: &dyn Fn(&str) -> Option<String>,
        server_setting: Option<&'static str>,
    ) -> Result<Self, PostgresError> {
        let setting = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let home_cache = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
        Ok(Self {
            server_url: match server_setting {
                Some(name) => setting(name).map(|url| server_url(name, url)).transpose()?,
                None => None,
            },
            bin: setting("POSTGRES_BIN").map(PathBuf::from),
            major: setting("POSTGRES_PREFER").map(major).transpose()?,
            cache: setting("POSTGRES_CACHE").map(PathBuf::from),
            user_cache: setting("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .or_else(|| setting("HOME").map(|home| PathBuf::from(home).join(home_cache))),
            search_path: setting("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default(),
        })
    }

    /// The first program of this name on the search path.
    pub(super) fn program(&self, name: &str) -> Option<PathBuf> {
        self.search_path.iter().map(|directory| directory.join(name)).find(|path| path.is_file())
    }
}

/// Looks a setting up in this process's environment, for [`Settings::from_lookup`].
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place of this module that reads the environment")]
pub fn environment(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn server_url(name: &'static str, url: String) -> Result<String, PostgresError> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Ok(url);
    }
    Err(PostgresError::Setting { name, value: "…".to_owned(), reason: "expected postgresql://…".to_owned() })
}

fn major(value: String) -> Result<u32, PostgresError> {
    match value.parse() {
        Ok(major) if major >= super::binaries::OLDEST_MAJOR => Ok(major),
        Ok(_) | Err(_) => Err(PostgresError::Setting {
            name: "POSTGRES_PREFER",
            value,
            reason: "expected a major version, 15 or above".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "POSTGRES_PREFER" => Some("18".to_owned()),
            "POSTGRES_BIN" => Some(String::new()),
            "HOME" => Some("/home/someone".to_owned()),
            "DATABASE_URL" => Some("postgresql://production/payments".to_owned()),
            "OTHER" => Some("host=production".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn a_server_is_read_only_from_the_setting_that_the_caller_names() {
        let unnamed = Settings::from_lookup(&lookup, None).expect("readable");
        assert_eq!(unnamed.server_url, None);
        assert_eq!(unnamed.major, Some(18));
        assert_eq!(unnamed.bin, None, "an empty value counts as not set");
        let tests = Settings::from_lookup(&lookup, Some("TEST_DATABASE_URL")).expect("readable");
        assert_eq!(tests.server_url, None);
        let named = Settings::from_lookup(&lookup, Some("DATABASE_URL")).expect("readable");
        assert_eq!(named.server_url.as_deref(), Some("postgresql://production/payments"));
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name() {
        let old = |name: &str| (name == "POSTGRES_PREFER").then(|| "9".to_owned());
        let error = Settings::from_lookup(&old, None).expect_err("9 is too old");
        assert!(error.to_string().contains("POSTGRES_PREFER=\"9\""), "{error}");
        let error = Settings::from_lookup(&lookup, Some("OTHER")).expect_err("not a URL");
        assert!(error.to_string().contains("OTHER"), "{error}");
        assert!(!error.to_string().contains("production"), "an address may hold a password: {error}");
    }
}
