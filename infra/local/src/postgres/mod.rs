//! A throw-away PostgreSQL for the demo, the tests and the benchmark: real, concurrent, gone afterwards.
//!
//! - A **cluster** is one server with its directory. [`shared_cluster`] gives every process of one test run the
//!   same one; [`own_cluster`] gives one that ends with its value.
//! - A **template** is a database that a caller's `prepare` filled once for a key (a hash of the schema).
//! - A **database** is a copy of a template, made in milliseconds, so that every test has its own.
//!
//! Nothing is left behind. A small shell script, the supervisor, owns the server: it watches the process that the
//! cluster was started for (the runner), and when that is gone, however it went, it stops the server and removes
//! the directory. What a killed supervisor leaves is swept up by the next start. The kernel's parent-death signal
//! would be shorter, but it fires when the *thread* that spawned the child ends.
//!
//! The server listens on a Unix socket in a directory of mode 0700, so there is no port to race for and nobody
//! else can reach it, although it trusts every connection. With a TCP port (only when asked for, on 127.0.0.1) any
//! user of the machine can connect: put nothing into it that matters.
//!
//! On a server that is given (`TEST_DATABASE_URL` for the tests) we work in databases of our own making only, named
//! `reconciler_db_…` and `reconciler_template_…`. No supervisor can watch over that server: templates stay on it for
//! the next run, and so does the database of a test that was killed. It is reached without TLS.
//!
//! Roles belong to the whole cluster, not to one database. `prepare` runs under one lock for all keys, so it may
//! create roles, but it must allow for their existing already.

mod binaries;
mod cluster;
mod connection_url;
mod database;
mod directory;
mod download;
mod error;
mod runner;
mod server_user;
mod settings;
mod supervisor;
#[cfg(test)]
mod tests;

pub use cluster::{Cluster, ClusterOptions, own_cluster, shared_cluster};
pub use database::Database;
pub use error::{Attempt, PostgresError};
pub use settings::{Settings, environment};
