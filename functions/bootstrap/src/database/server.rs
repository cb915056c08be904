//! A server, and how to reach it: where, as whom, over TLS or not.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::OnceLock;

use reconciler::config::{CaBundle, DatabaseLogin, DatabaseSettings, Secret};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{DatabaseError, SESSION};
use crate::secrets::{self, StoredSecret};
use crate::tls::{self, TlsError};

/// A server and how to reach it.
pub(super) struct Server {
    login: Login,
    ca: Option<CaBundle>,
    connector: OnceLock<MakeRustlsConnect>,
}

enum Login {
    Given(Config),
    Stored(StoredSecret<Config>),
}

/// A new connection, prepared.
pub(super) struct Connected {
    pub(super) client: Client,
    /// Host, port and database, for errors.
    pub(super) at: String,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Server");
        match &self.login {
            Login::Given(config) => shown.field("at", &place(config)),
            Login::Stored(secret) => shown.field("at", secret),
        };
        shown.finish_non_exhaustive()
    }
}

impl Server {
    /// Reads the URL, if there is one; calls nothing.
    pub(super) fn new(settings: &DatabaseSettings) -> Result<Self, DatabaseError> {
        let login = match &settings.login {
            DatabaseLogin::Url(url) => Login::Given(with_defaults(of_url(url)?)),
            DatabaseLogin::Stored(place) => {
                let secret = place.secret.clone();
                let place = place.clone();
                let read = move |text: &str| Ok(with_defaults(secrets::login(text, &place)?));
                Login::Stored(StoredSecret::new(&secret, read))
            }
        };
        Ok(Self { login, ca: settings.ca.clone(), connector: OnceLock::new() })
    }

    /// A new connection.
    pub(super) async fn connect(&self) -> Result<Connected, DatabaseError> {
        let secret = match &self.login {
            Login::Given(config) => return self.connect_by(config).await,
            Login::Stored(secret) => secret,
        };
        let config = secret.get().await?;
        match self.connect_by(&config).await {
            Err(DatabaseError::Connect { at, source }) if is_refused(&source) => {
                let fresh = secret.get_anew().await?;
                if fresh == config {
                    return Err(DatabaseError::LoginRefused { at, source });
                }
                tracing::warn!(at, error = %crate::chain(&source), "Postgres refused the login; trying the one that its secret holds by now");
                match self.connect_by(&fresh).await {
                    Err(DatabaseError::Connect { at, source }) if is_refused(&source) => {
                        Err(DatabaseError::LoginRefused { at, source })
                    }
                    ended => ended,
                }
            }
            ended => ended,
        }
    }

    async fn connect_by(&self, config: &Config) -> Result<Connected, DatabaseError> {
        let at = place(config);
        let failed = |source| match lacks_tls(config, &source) {
            true => DatabaseError::NoTls { at: place(config) },
            false => DatabaseError::Connect { at: place(config), source },
        };
        let client = if config.get_ssl_mode() == SslMode::Disable {
            let (client, connection) = config.connect(NoTls).await.map_err(failed)?;
            tokio::spawn(async move { log_end(connection.await) });
            client
        } else {
            let (client, connection) = config.connect(self.connector()?).await.map_err(failed)?;
            tokio::spawn(async move { log_end(connection.await) });
            client
        };
        match client.batch_execute(SESSION).await {
            Ok(()) => Ok(Connected { client, at }),
            Err(source) => Err(DatabaseError::Session { at, source }),
        }
    }

    fn connector(&self) -> Result<MakeRustlsConnect, TlsError> {
        if let Some(built) = self.connector.get() {
            return Ok(built.clone());
        }
        let built = tls::connector(self.ca.as_ref())?;
        Ok(self.connector.get_or_init(|| built).clone())
    }
}

fn of_url(url: &Secret) -> Result<Config, DatabaseError> {
    let config = Config::from_str(url.reveal()).map_err(DatabaseError::Url)?;
    if config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(name) if name.contains('@'))) {
        return Err(DatabaseError::UrlHost);
    }
    Ok(config)
}

/// What neither URL nor secret says. TLS is asked for wherever there can be any, but for a server on this machine whose URL
/// says `sslmode=disable`.
fn with_defaults(mut config: Config) -> Config {
    if config.get_application_name().is_none() {
        config.application_name("reconciler");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(std::time::Duration::from_secs(5));
    }
    if is_a_socket(&config) {
        config.ssl_mode(SslMode::Disable);
    } else if config.get_ssl_mode() != SslMode::Disable || !is_on_this_machine(&config) {
        config.ssl_mode(SslMode::Require);
    }
    config
}

/// Postgres knows the user or the password no more: `invalid_password`, `invalid_authorization_specification`.
fn is_refused(error: &tokio_postgres::Error) -> bool {
    let refusals = [&SqlState::INVALID_PASSWORD, &SqlState::INVALID_AUTHORIZATION_SPECIFICATION];
    error.code().is_some_and(|code| refusals.contains(&code))
}

/// A server on this machine that knows no TLS, and was not said to.
fn lacks_tls(config: &Config, error: &tokio_postgres::Error) -> bool {
    is_on_this_machine(config) && crate::chain(error).contains("server does not support TLS")
}

fn is_a_socket(config: &Config) -> bool {
    let hosts = config.get_hosts();
    !hosts.is_empty() && config.get_hostaddrs().is_empty() && hosts.iter().all(|host| matches!(host, Host::Unix(_)))
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

    fn config(url: &str) -> Result<Config, DatabaseError> {
        Ok(with_defaults(of_url(&Secret::new(url))?))
    }

    #[test]
    fn tls_is_required_but_for_a_socket_and_where_a_laptops_url_says_otherwise() {
        for (url, mode) in [
            ("postgres://u:p@db.example/x", SslMode::Require),
            ("postgres://u:p@db.example/x?sslmode=disable", SslMode::Require),
            ("postgres://u:p@db.example/x?sslmode=prefer", SslMode::Require),
            ("postgres://u:p@127.0.0.1/x", SslMode::Require),
            ("postgres://u:p@127.0.0.1/x?sslmode=prefer", SslMode::Require),
            ("postgres://u:p@localhost/x?sslmode=disable", SslMode::Disable),
            ("postgres://u:p@127.0.0.1/x?sslmode=require", SslMode::Require),
            ("postgres://u@%2Frun%2Fpostgresql/x", SslMode::Disable),
            ("postgres://u@%2Frun%2Fpostgresql/x?sslmode=require", SslMode::Disable),
            ("host=/run/postgresql,db.example user=u", SslMode::Require),
            ("postgres://u:p@localhost/x?hostaddr=10.0.0.7", SslMode::Require),
            ("postgres://u:p@/x?hostaddr=10.0.0.7", SslMode::Require),
            ("postgres://u:p@db.example/x?hostaddr=127.0.0.2&sslmode=disable", SslMode::Require),
            ("postgres://u:p@localhost/x?hostaddr=127.0.0.2&sslmode=disable", SslMode::Disable),
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
