//! Starting a cluster, or joining the one that this test run has already.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_postgres::NoTls;

use super::binaries;
use super::connection_url;
use super::directory::{self, StartLock};
use super::error::PostgresError;
use super::runner;
use super::server_user::{ServerUser, output};
use super::settings::{Settings, environment};
use super::supervisor::Supervisor;

/// The superuser of our clusters.
const SUPERUSER: &str = "postgres";
/// The database that administrative sessions use on our clusters.
const MAINTENANCE: &str = "postgres";
const PORT: u16 = 5432;
/// From the server's start to its first answer; usual are 40 ms.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How an own cluster is to be.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterOptions {
    /// Keep PostgreSQL's own defaults for durability (fsync and synchronous commit) and lie in the temporary
    /// directory instead of in memory: for a benchmark that is to say something about a real server.
    pub durable: bool,
    /// Listen on this port of 127.0.0.1 as well; any user of this machine can connect then.
    pub tcp_port: Option<u16>,
    /// This role has to give its password, which `prepare` must have set. Everybody else is taken at their word.
    pub password_of: Option<&'static str>,
}

/// A running server. Clones are the same cluster; an own cluster ends with the last of them.
#[derive(Clone, Debug)]
pub struct Cluster(Arc<Server>);

#[derive(Debug)]
struct Server {
    place: Place,
    /// Present if the cluster is to end with this value.
    _supervisor: Option<Supervisor>,
}

#[derive(Debug)]
enum Place {
    Ours { directory: PathBuf, port: u16, listens: bool },
    Given { url: String },
}

/// The cluster that all processes of this test run share, or the server that `TEST_DATABASE_URL` names.
///
/// It ends with the run, not with the value: with cargo's or nextest's process, or with this one if it was started
/// by neither.
///
/// # Errors
/// Whatever kept the server from being found, fetched or started.
pub async fn shared_cluster() -> Result<Cluster, PostgresError> {
    static SHARED: tokio::sync::OnceCell<Cluster> = tokio::sync::OnceCell::const_new();
    let cluster = SHARED.get_or_try_init(|| async {
        let settings = Settings::from_lookup(&environment, Some("TEST_DATABASE_URL"))?;
        shared_by(runner::of_this_test_run(), settings).await
    });
    cluster.await.cloned()
}

/// The cluster that ends with the process `runner`.
pub(super) async fn shared_by(runner: u32, settings: Settings) -> Result<Cluster, PostgresError> {
    if let Some(url) = settings.server_url {
        return given(url).await;
    }
    let options = ClusterOptions::default();
    let start = Start { settings, options, runner, name: runner.to_string() };
    let place = off_the_runtime(move || {
        let user = ServerUser::find()?;
        let _one_at_a_time = StartLock::acquire(&user)?;
        if let Some(directory) = directory::running(&start.name, &user)? {
            wait_until_ready(&directory, PORT, directory::open_log(&directory)?)?;
            return Ok(Place::Ours { directory, port: PORT, listens: false });
        }
        let (place, supervisor) = start.run(&user)?;
        supervisor.leave_to_runner();
        Ok(place)
    });
    Ok(Cluster(Arc::new(Server { place: place.await?, _supervisor: None })))
}

/// A cluster that ends with the returned value, or with this process, whichever is first; or the server that the
/// settings name, which is left as it is but for databases of our own making.
///
/// # Errors
/// Whatever kept the server from being found, fetched or started.
pub async fn own_cluster(settings: Settings, options: ClusterOptions) -> Result<Cluster, PostgresError> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    if let Some(url) = settings.server_url {
        return given(url).await;
    }
    let runner = std::process::id();
    let name = format!("{runner}-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let start = Start { settings, options, runner, name };
    let server = off_the_runtime(move || {
        let user = ServerUser::find()?;
        let _one_at_a_time = StartLock::acquire(&user)?;
        let (place, supervisor) = start.run(&user)?;
        Ok(Server { place, _supervisor: Some(supervisor) })
    });
    Ok(Cluster(Arc::new(server.await?)))
}

async fn given(url: String) -> Result<Cluster, PostgresError> {
    let cluster = Cluster(Arc::new(Server { place: Place::Given { url }, _supervisor: None }));
    cluster.check_version().await?;
    Ok(cluster)
}

/// Waiting for locks, programs and downloads blocks; and the caller's clock may be a test's, which stands still.
async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PostgresError> + Send + 'static,
) -> Result<T, PostgresError> {
    tokio::task::spawn_blocking(work).await.map_err(PostgresError::Interrupted)?
}

impl Cluster {
    /// The address of a database, as the superuser (on a given server: as the role that its address names).
    ///
    /// tokio-postgres, psql and other users of libpq read it; on our own clusters it leads to the Unix socket.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        match &self.0.place {
            Place::Ours { directory, port, .. } => connection_url::on_socket(directory, *port, database, SUPERUSER),
            Place::Given { url } => connection_url::on_given_server(url, database, None),
        }
    }

    /// The address of a database as another role, which `prepare` must have created, with LOGIN.
    #[must_use]
    pub fn url_as(&self, database: &str, role: &str) -> String {
        match &self.0.place {
            Place::Ours { directory, port, .. } => connection_url::on_socket(directory, *port, database, role),
            Place::Given { url } => connection_url::on_given_server(url, database, Some(role)),
        }
    }

    /// The same over TCP, if [`ClusterOptions::tcp_port`] asked for it.
    #[must_use]
    pub fn tcp_url(&self, database: &str, role: &str) -> Option<String> {
        match &self.0.place {
            Place::Ours { port, listens: true, .. } => Some(connection_url::on_port(*port, database, role)),
            Place::Ours { listens: false, .. } | Place::Given { .. } => None,
        }
    }

    /// The cluster's directory, unless the server was given.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        match &self.0.place {
            Place::Ours { directory, .. } => Some(directory),
            Place::Given { .. } => None,
        }
    }

    /// Kills the supervisor of an own cluster, and it alone.
    #[cfg(test)]
    pub(super) fn kill_supervisor(self) {
        let server = Arc::into_inner(self.0).expect("the last clone");
        server._supervisor.expect("an own cluster").kill();
    }

    /// Where `CREATE DATABASE` and the like are said.
    pub(super) fn maintenance_url(&self) -> String {
        match &self.0.place {
            Place::Ours { .. } => self.url(MAINTENANCE),
            Place::Given { url } => url.clone(),
        }
    }
}

struct Start {
    settings: Settings,
    options: ClusterOptions,
    runner: u32,
    name: String,
}

impl Start {
    /// Call it under the [`StartLock`].
    fn run(&self, user: &ServerUser) -> Result<(Place, Supervisor), PostgresError> {
        directory::sweep(user)?;
        let bin = binaries::find(&self.settings, user)?.directory;
        let port = self.options.tcp_port.unwrap_or(PORT);
        let (directory, lock) = directory::create(&self.name, user, self.options.durable)?;
        let started = directory::socket(&directory, port).and_then(|_| {
            let mut initdb = user.command(bin.join("initdb"));
            initdb.args(["-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "-U", SUPERUSER, "-D"]);
            output(initdb.arg(directory.join("data")))?;
            self.write_access_rules(&directory)?;
            let command = self.server_command(&bin, &directory, port);
            let log = directory::create_log(&directory)?;
            let read_log = directory::open_log(&directory)?;
            let supervisor = Supervisor::start(user, self.runner, &directory, lock, log, &command)?;
            Ok((supervisor, read_log))
        });
        let (supervisor, log) = match started {
            Ok(started) => started,
            Err(error) => {
                directory::remove(&directory)?;
                return Err(error);
            }
        };
        wait_until_ready(&directory, port, log)?;
        Ok((Place::Ours { directory, port, listens: self.options.tcp_port.is_some() }, supervisor))
    }

    /// Puts what the options ask for before the rules that initdb wrote: the first that fits decides.
    fn write_access_rules(&self, directory: &Path) -> Result<(), PostgresError> {
        let Some(role) = self.options.password_of else { return Ok(()) };
        let path = directory.join("data/pg_hba.conf");
        let failed = |operation| {
            let path = path.clone();
            move |source| PostgresError::File { operation, path, source }
        };
        let rules = std::fs::read_to_string(&path).map_err(failed("read"))?;
        let first = format!("local all {role} scram-sha-256\nhost all {role} 127.0.0.1/32 scram-sha-256\n");
        std::fs::write(&path, first + &rules).map_err(failed("write"))
    }

    fn server_command(&self, bin: &Path, directory: &Path, port: u16) -> Vec<PathBuf> {
        let listen = if self.options.tcp_port.is_some() { "127.0.0.1" } else { "" };
        let mut settings = vec![
            format!("listen_addresses={listen}"),
            format!("port={port}"),
            "timezone=UTC".to_owned(),
            "log_timezone=UTC".to_owned(),
            "max_connections=200".to_owned(),
        ];
        if !self.options.durable {
            settings.extend(
                [
                    "fsync=off",
                    "synchronous_commit=off",
                    "full_page_writes=off",
                    "wal_level=minimal",
                    "max_wal_senders=0",
                    // In the directory, which is removed, and not beside it, where a killed server would leave it.
                    "dynamic_shared_memory_type=mmap",
                    // The directory may be in memory, and the log of changes is needed by nobody.
                    "max_wal_size=128MB",
                    "min_wal_size=32MB",
                ]
                .map(str::to_owned),
            );
        }
        let mut command =
            vec![bin.join("postgres"), "-D".into(), directory.join("data"), "-k".into(), directory.into()];
        command.extend(settings.into_iter().flat_map(|setting| [PathBuf::from("-c"), setting.into()]));
        command
    }
}

/// Connects until it succeeds, the supervisor has given up, or time is up. On a runtime of its own, whose clock runs.
fn wait_until_ready(directory: &Path, port: u16, log: File) -> Result<(), PostgresError> {
    let not_ready = |reason, source| {
        let log = std::io::read_to_string(log).unwrap_or_else(|error| format!("(not readable: {error})"));
        let skipped = log.lines().count().saturating_sub(20);
        let log = log.lines().skip(skipped).collect::<Vec<_>>().join("\n");
        PostgresError::NotReady { directory: directory.to_owned(), reason, log, source }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| PostgresError::Spawn { program: "a runtime".to_owned(), source })?;
    let url = connection_url::on_socket(directory, port, MAINTENANCE, SUPERUSER);
    runtime.block_on(async {
        let mut last = None;
        let connected = tokio::time::timeout(READY_WITHIN, async {
            let mut pause = tokio::time::interval(Duration::from_millis(5));
            pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                pause.tick().await;
                match tokio_postgres::connect(&url, NoTls).await {
                    Ok(_) => return Ok(true),
                    Err(error) => last = Some(error),
                }
                if !directory::is_supervised(directory)? {
                    return Ok(false);
                }
            }
        });
        match connected.await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(not_ready("it ended", last)),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(not_ready("time is up", last)),
        }
    })
}
