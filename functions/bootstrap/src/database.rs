//! The connection to Postgres: one, made by the first tick and kept; made again when it is gone.
//!
//! TLS is required wherever the server is not on this machine, with its chain and host name verified ([`crate::tls`]). The
//! connector is built once, and only where it is needed.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use reconciler::config::{CaBundle, DatabaseSettings};
use reconciler::store::StoreError;
use reconciler::store::ports::{Ports, check_ports};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::tls::{self, TlsError};

/// How every session begins. No statement may hang: a commit of 20,000 rows takes about a second. JIT compilation is off,
/// since Postgres would compile the commit statement anew, for longer than it runs, with each large batch.
pub const SESSION: &str = "set jit = off; set statement_timeout = '30s'; set lock_timeout = '10s'; \
                       set idle_in_transaction_session_timeout = '30s'; set timezone = 'UTC'";

/// What a scan's session adds: its commits do not wait for the disk. If the server loses its last moments,
/// it loses the batch with its cursor, all or nothing, and the next tick repeats it. Whoever acts upon what a scan wrote
/// commits after it, and waits. (The writer's sessions do wait: Stripe is told 2xx only after the commit.)
pub const SCAN_SESSION: &str = "set synchronous_commit = off";

/// Postgres as one role sees it.
#[derive(Debug)]
pub struct Database {
    server: Server,
    role: &'static str,
    session: Mutex<Option<Arc<Session>>>,
    exclusive: Mutex<Option<Session>>,
}

/// An open connection, whose ports have been looked at.
#[derive(Debug)]
pub struct Session {
    /// The connection.
    pub client: Client,
    /// What the ports say about the key.
    pub ports: Ports,
}

/// A server and how to reach it.
struct Server {
    config: Config,
    ca: Option<CaBundle>,
    connector: OnceLock<MakeRustlsConnect>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("at", &place(&self.config)).finish_non_exhaustive()
    }
}

/// Postgres could not be reached, or does not let us work. No variant shows the URL, which holds a password.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The URL cannot be read.
    #[error(
        "the setting DATABASE_URL is not usable: it should read postgres://user:password@host:port/database, with special \
         characters in the password written as %40 and so on"
    )]
    Url(#[source] tokio_postgres::Error),
    /// The URL has an @ in its host, so a part of the password would be taken for the host.
    #[error("the setting DATABASE_URL is not usable: write an @ in the user name or password as %40")]
    UrlHost,
    /// The TLS connector cannot be built.
    #[error("could not prepare TLS for the connection to Postgres")]
    Tls(#[from] TlsError),
    /// Nobody answers, or the login is refused.
    #[error("could not connect to Postgres at {at}")]
    Connect {
        /// Host, port and database.
        at: String,
        /// What went wrong.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The role is not there.
    #[error("the database has no role {role}: apply the schema first (`cargo tick migrate`)")]
    NoSuchRole {
        /// The role that the function works with.
        role: &'static str,
    },
    /// The login may not take on the role.
    #[error("the user of DATABASE_URL may not take on the role {role}: run `grant {role} to` that user")]
    RoleRefused {
        /// The role that the function works with.
        role: &'static str,
    },
    /// The session could not be prepared.
    #[error("could not prepare the session with Postgres at {at}")]
    Session {
        /// Host, port and database.
        at: String,
        /// What Postgres said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The role may not look into the schema: a migration stopped before it had granted anything.
    #[error(
        "the role {role} may not use the schema reconciliation: apply the schema again, to its end (`cargo tick migrate`)"
    )]
    NoGrants {
        /// The role that the function works with.
        role: &'static str,
    },
    /// The schema or the adapter is not ready.
    #[error(transparent)]
    Ports(#[from] StoreError),
}

impl Database {
    /// Reads the URL. Every session takes on `role` first, so that a scan has no more rights than it needs, whoever logs in.
    pub fn new(settings: &DatabaseSettings, role: &'static str) -> Result<Self, DatabaseError> {
        Ok(Self { server: Server::new(settings)?, role, session: Mutex::new(None), exclusive: Mutex::new(None) })
    }

    /// The open session, or a new one where it is gone.
    pub async fn session(&self) -> Result<Arc<Session>, DatabaseError> {
        let mut open = self.session.lock().await;
        if let Some(session) = open.as_ref().filter(|session| !session.client.is_closed()) {
            return Ok(Arc::clone(session));
        }
        *open = None;
        let session = Arc::new(self.open().await?);
        *open = Some(Arc::clone(&session));
        Ok(session)
    }

    /// A session for one caller at a time, since a transaction needs one: the kept one, or a new one where it is gone. Others
    /// wait until the guard is dropped. It is another session than [`Database::session`]'s.
    pub async fn exclusive_session(&self) -> Result<MappedMutexGuard<'_, Session>, DatabaseError> {
        let mut kept = self.exclusive.lock().await;
        let session = match kept.take().filter(|session| !session.client.is_closed()) {
            Some(session) => session,
            None => self.open().await?,
        };
        Ok(MutexGuard::map(kept, |kept| kept.insert(session)))
    }

    /// The same, over a new connection in place of the kept one: for a caller that has just seen the kept one fail, which it
    /// does before it knows that it is closed.
    pub async fn new_exclusive_session(&self) -> Result<MappedMutexGuard<'_, Session>, DatabaseError> {
        let mut kept = self.exclusive.lock().await;
        *kept = None;
        let session = self.open().await?;
        Ok(MutexGuard::map(kept, |kept| kept.insert(session)))
    }

    async fn open(&self) -> Result<Session, DatabaseError> {
        let client = self.server.connect().await?;
        self.take_on_role(&client).await?;
        let ports = check_ports(&client).await.map_err(|error| {
            let refused = matches!(&error, StoreError::ReadPorts(source)
                if source.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE));
            if refused { DatabaseError::NoGrants { role: self.role } } else { DatabaseError::Ports(error) }
        })?;
        Ok(Session { client, ports })
    }

    async fn take_on_role(&self, client: &Client) -> Result<(), DatabaseError> {
        let role = self.role;
        let further = if role == crate::SCAN_ROLE { SCAN_SESSION } else { "" };
        client.batch_execute(&format!("set role {role}; {further}")).await.map_err(|source| match source.code() {
            Some(&SqlState::UNDEFINED_OBJECT | &SqlState::INVALID_PARAMETER_VALUE) => {
                DatabaseError::NoSuchRole { role }
            }
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => DatabaseError::RoleRefused { role },
            _ => DatabaseError::Session { at: place(&self.server.config), source },
        })
    }
}

/// A connection with the login's own rights, for migrations.
/// Statements may take as long as they need: an index on a large table does.
pub async fn connect_as_owner(settings: &DatabaseSettings) -> Result<Client, DatabaseError> {
    let server = Server::new(settings)?;
    let client = server.connect().await?;
    let longer = client.batch_execute("set statement_timeout = 0; set lock_timeout = '2min'").await;
    longer.map_err(|source| DatabaseError::Session { at: place(&server.config), source })?;
    Ok(client)
}

impl Server {
    fn new(settings: &DatabaseSettings) -> Result<Self, DatabaseError> {
        Ok(Self { config: config_of(settings)?, ca: settings.ca.clone(), connector: OnceLock::new() })
    }

    async fn connect(&self) -> Result<Client, DatabaseError> {
        let failed = |source| DatabaseError::Connect { at: place(&self.config), source };
        let client = if self.config.get_ssl_mode() == SslMode::Disable {
            let (client, connection) = self.config.connect(NoTls).await.map_err(failed)?;
            tokio::spawn(async move { log_end(connection.await) });
            client
        } else {
            let (client, connection) = self.config.connect(self.connector()?).await.map_err(failed)?;
            tokio::spawn(async move { log_end(connection.await) });
            client
        };
        let prepared = client.batch_execute(SESSION).await;
        prepared.map_err(|source| DatabaseError::Session { at: place(&self.config), source })?;
        Ok(client)
    }

    fn connector(&self) -> Result<MakeRustlsConnect, TlsError> {
        if let Some(built) = self.connector.get() {
            return Ok(built.clone());
        }
        let built = tls::connector(self.ca.as_ref())?;
        Ok(self.connector.get_or_init(|| built).clone())
    }
}

fn config_of(settings: &DatabaseSettings) -> Result<Config, DatabaseError> {
    let mut config = Config::from_str(settings.url.reveal()).map_err(DatabaseError::Url)?;
    if config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(name) if name.contains('@'))) {
        return Err(DatabaseError::UrlHost);
    }
    if config.get_application_name().is_none() {
        config.application_name("reconciler");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(std::time::Duration::from_secs(5));
    }
    if !is_on_this_machine(&config) {
        config.ssl_mode(SslMode::Require);
    } else if config.get_ssl_mode() == SslMode::Prefer {
        config.ssl_mode(SslMode::Disable);
    }
    Ok(config)
}

fn is_on_this_machine(config: &Config) -> bool {
    // hostaddr, where it is given, is where the connection really goes
    let addresses = config.get_hostaddrs().iter().all(IpAddr::is_loopback);
    let hosts = config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback()),
        Host::Unix(_) => true,
    });
    addresses && hosts
}

/// A connection that breaks shows in the statement that was under way; this says why, where it was idle.
fn log_end(ended: Result<(), tokio_postgres::Error>) {
    if let Err(error) = ended {
        tracing::warn!(error = %crate::chain(&error), "the connection to Postgres ended");
    }
}

fn place(config: &Config) -> String {
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        })
        .collect();
    let port = config.get_ports().first().copied().unwrap_or(5432);
    format!("{}:{port}/{}", hosts.join(","), config.get_dbname().unwrap_or("(default database)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use reconciler::config::Secret;

    fn config(url: &str) -> Result<Config, DatabaseError> {
        config_of(&DatabaseSettings { url: Secret::new(url), ca: None })
    }

    #[test]
    fn tls_is_required_but_for_this_machine() {
        for (url, mode) in [
            ("postgres://u:p@db.example/x", SslMode::Require),
            ("postgres://u:p@db.example/x?sslmode=disable", SslMode::Require),
            ("postgres://u:p@db.example/x?sslmode=prefer", SslMode::Require),
            ("postgres://u:p@127.0.0.1/x", SslMode::Disable),
            ("postgres://u:p@127.0.0.1/x?sslmode=require", SslMode::Require),
            ("postgres://u@%2Frun%2Fpostgresql/x", SslMode::Disable),
            ("host=/run/postgresql,db.example user=u", SslMode::Require),
            ("postgres://u:p@localhost/x?hostaddr=10.0.0.7", SslMode::Require),
            ("postgres://u:p@/x?hostaddr=10.0.0.7", SslMode::Require),
            ("postgres://u:p@localhost/x?hostaddr=127.0.0.2", SslMode::Disable),
        ] {
            assert_eq!(config(url).unwrap().get_ssl_mode(), mode, "{url}");
        }
    }

    #[test]
    fn an_error_never_shows_the_password() {
        for url in
            ["postgres://u:hid@den@db.example/x", "postgres://u:hidden@db.example:port/x", "hidden", "postgres://"]
        {
            if let Err(error) = config(url) {
                let text = format!("{} {error:?}", crate::chain(&error));
                assert!(text.contains("DATABASE_URL") && !text.contains("hid"), "{text}");
            }
        }
        assert!(config("postgres://u:hid@den@db.example/x").is_err());
        assert!(config("nonsense").is_err());
    }
}
