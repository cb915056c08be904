//! The connection to Postgres: one, made by the first tick and kept; made again when it is gone.
//!
//! TLS is required but for a local socket, and for a server on this machine whose URL says `sslmode=disable`; chain and host
//! name are verified ([`crate::tls`]). The connector is built once, and only where it is needed.
//!
//! A login that AWS Secrets Manager keeps is fetched for the first connection, and once more when Postgres refuses it: so a
//! rotated password costs no tick. Sessions that are open go on with the old one, as Postgres lets them.

mod server;

use std::sync::Arc;
use std::time::Duration;

use reconciler::config::DatabaseSettings;
use reconciler::store::StoreError;
use reconciler::store::ports::{Ports, check_ports};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::secrets::SecretError;
use crate::tls::TlsError;
use server::{Connected, Server};

/// How every session begins. No statement may hang: a commit of 20,000 rows takes about a second. JIT compilation is off,
/// since Postgres would compile the commit statement anew, for longer than it runs, with each large batch.
pub const SESSION: &str = "set jit = off; set statement_timeout = '30s'; set lock_timeout = '10s'; \
                       set idle_in_transaction_session_timeout = '30s'; set timezone = 'UTC'";

/// What a scan's session adds: its commits do not wait for the disk. If the server loses its last moments,
/// it loses the batch with its cursor, all or nothing, and the next tick repeats it. Whoever acts upon what a scan wrote
/// commits after it, and waits. (The writer's sessions do wait: Stripe is told 2xx only after the commit.)
pub const SCAN_SESSION: &str = "set synchronous_commit = off";

/// A server that says nothing for so long has forgotten the kept session.
const ALIVE_WITHIN: Duration = Duration::from_secs(2);

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
    /// The login cannot be had from where it is kept.
    #[error(transparent)]
    Secret(#[from] SecretError),
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
    /// A server on this machine that has no TLS.
    #[error(
        "Postgres at {at} has no TLS, which is required but for a local socket: for a server on this machine add \
         sslmode=disable to DATABASE_URL"
    )]
    NoTls {
        /// Host, port and database.
        at: String,
    },
    /// The login that a secret holds is refused, and fetching the secret anew did not help.
    #[error(
        "Postgres at {at} refuses the login of the secret that DATABASE_SECRET_ARN names, which was fetched anew after a first \
         refusal: is the password another one than the secret's, or a rotation under way?"
    )]
    LoginRefused {
        /// Host, port and database.
        at: String,
        /// What Postgres said.
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
    #[error("the user of the database login may not take on the role {role}: run `grant {role} to` that user")]
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

impl DatabaseError {
    /// A name that does not change, for alarms and for Lambda's `errorType`.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::Secret(error) => error.error_type(),
            Self::Url(_)
            | Self::UrlHost
            | Self::Tls(_)
            | Self::Connect { .. }
            | Self::NoTls { .. }
            | Self::LoginRefused { .. }
            | Self::NoSuchRole { .. }
            | Self::RoleRefused { .. }
            | Self::Session { .. }
            | Self::NoGrants { .. }
            | Self::Ports(_) => "DatabaseUnreachable",
        }
    }
}

impl Database {
    /// Reads the URL, if there is one; calls nothing. Every session takes on `role` first, so that a scan has no more rights
    /// than it needs, whoever logs in.
    pub fn new(settings: &DatabaseSettings, role: &'static str) -> Result<Self, DatabaseError> {
        Ok(Self { server: Server::new(settings)?, role, session: Mutex::new(None), exclusive: Mutex::new(None) })
    }

    /// The open session, or a new one where it is gone. The server is asked: after an invocation the process stands still,
    /// and does not learn that it was cut off meanwhile.
    pub async fn session(&self) -> Result<Arc<Session>, DatabaseError> {
        let mut open = self.session.lock().await;
        if let Some(session) = open.as_ref()
            && timeout(ALIVE_WITHIN, session.client.check_connection()).await.is_ok_and(|alive| alive.is_ok())
        {
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
        let Connected { client, at } = self.server.connect().await?;
        self.take_on_role(&client, at).await?;
        let ports = check_ports(&client).await.map_err(|error| {
            let refused = matches!(&error, StoreError::ReadPorts(source)
                if source.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE));
            if refused { DatabaseError::NoGrants { role: self.role } } else { DatabaseError::Ports(error) }
        })?;
        Ok(Session { client, ports })
    }

    async fn take_on_role(&self, client: &Client, at: String) -> Result<(), DatabaseError> {
        let role = self.role;
        let further = if role == crate::SCAN_ROLE { SCAN_SESSION } else { "" };
        client.batch_execute(&format!("set role {role}; {further}")).await.map_err(|source| match source.code() {
            Some(&SqlState::UNDEFINED_OBJECT | &SqlState::INVALID_PARAMETER_VALUE) => {
                DatabaseError::NoSuchRole { role }
            }
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => DatabaseError::RoleRefused { role },
            _ => DatabaseError::Session { at, source },
        })
    }
}

/// A connection with the login's own rights, for migrations.
/// Statements may take as long as they need: an index on a large table does.
pub async fn connect_as_owner(settings: &DatabaseSettings) -> Result<Client, DatabaseError> {
    let Connected { client, at } = Server::new(settings)?.connect().await?;
    let longer = client.batch_execute("set statement_timeout = 0; set lock_timeout = '2min'").await;
    longer.map_err(|source| DatabaseError::Session { at, source })?;
    Ok(client)
}
