//! Databases: a template for each schema, made once, and copies of it, one for each test.
//!
//! Copying files (`STRATEGY FILE_COPY`) takes about 20 ms where writing the copy to the log takes several times
//! that. A template must have no session while it is copied, so it is closed to connections once it is made.
//! `DROP DATABASE … WITH (FORCE)` would end sessions too, but sleeps 100 ms after it did.
//!
//! Two things are not in a copy, as always with `CREATE DATABASE`: grants on the database itself, and
//! `ALTER DATABASE … SET`.

use std::sync::atomic::{AtomicU32, Ordering};

use tokio_postgres::{Client, NoTls};

use super::cluster::Cluster;
use super::error::PostgresError;

/// Making a template is locked for all keys at once, because `prepare` may create roles, which belong to the
/// cluster. The number is arbitrary, and the same in every process.
const TEMPLATE_LOCK: i64 = 0x7265_636f_6e63_696c;
/// How often to look whether ended sessions are gone (a fraction of a millisecond each) before leaving it to the
/// server's own check, which waits up to five seconds and then says so.
const LOOKS: u32 = 2_000;

/// A database of its own on a [`Cluster`]. Dropping it drops the database; sessions in it are ended.
#[derive(Debug)]
pub struct Database {
    cluster: Cluster,
    name: String,
}

impl Cluster {
    /// A fresh copy of the template for `key`, which `prepare` fills when there is none yet.
    ///
    /// `key` must stand for all that `prepare` does, such as a hash of the migrations: on a given server templates
    /// outlive the run. `prepare` gets the address (as superuser) of an empty database, encoding UTF-8, collation C.
    /// It runs alone in the cluster; sessions that it leaves open are ended. When it fails no template is made, and
    /// the next call tries again.
    ///
    /// # Errors
    /// [`PostgresError::Prepare`], or [`PostgresError::Sql`] from making the databases.
    pub async fn database(
        &self,
        key: &str,
        prepare: impl AsyncFnOnce(String) -> anyhow::Result<()>,
    ) -> Result<Database, PostgresError> {
        let url = self.maintenance_url();
        let name = in_session(&url, async |client| {
            let template = template_name(client, key).await?;
            if !is_made(client, &template).await? {
                self.make_template(client, &template, key, prepare).await?;
            }
            let name = unused_name();
            create(client, &name, &format!("TEMPLATE {template}")).await?;
            Ok(name)
        });
        Ok(Database { cluster: self.clone(), name: name.await? })
    }

    /// An empty database, encoding UTF-8, collation C.
    ///
    /// # Errors
    /// [`PostgresError::Sql`].
    pub async fn empty_database(&self) -> Result<Database, PostgresError> {
        let url = self.maintenance_url();
        let name = in_session(&url, async |client| {
            let name = unused_name();
            create(client, &name, EMPTY).await?;
            Ok(name)
        });
        Ok(Database { cluster: self.clone(), name: name.await? })
    }

    async fn make_template(
        &self,
        client: &Client,
        template: &str,
        key: &str,
        prepare: impl AsyncFnOnce(String) -> anyhow::Result<()>,
    ) -> Result<(), PostgresError> {
        // Given up with the session, so also when we fail or are cancelled.
        let locked = client.execute("select pg_advisory_lock($1)", &[&TEMPLATE_LOCK]).await;
        locked.map_err(sql("lock the making of templates", template))?;
        if !is_made(client, template).await? {
            // What a killed or failed `prepare` left.
            remove(client, template).await?;
            create(client, template, EMPTY).await?;
            if let Err(source) = prepare(self.url(template)).await {
                remove(client, template).await?;
                return Err(PostgresError::Prepare { key: key.to_owned(), source });
            }
            close(client, template).await?;
            let finished = client.batch_execute(&format!("ALTER DATABASE {template} IS_TEMPLATE true")).await;
            finished.map_err(sql("finish the template", template))?;
        }
        let unlocked = client.execute("select pg_advisory_unlock($1)", &[&TEMPLATE_LOCK]).await;
        unlocked.map(|_| ()).map_err(sql("unlock the making of templates", template))
    }

    /// Refuses a server that is too old for the SQL of this module and of the reconciler.
    pub(super) async fn check_version(&self) -> Result<(), PostgresError> {
        in_session(&self.maintenance_url(), async |client| {
            let answer = client.query_one("select current_setting('server_version_num')::integer", &[]).await;
            match answer.and_then(|row| row.try_get(0)).map_err(sql("ask for the version", ""))? {
                version_num if version_num < 150_000 => Err(PostgresError::TooOld { version_num }),
                _ => Ok(()),
            }
        })
        .await
    }
}

impl Database {
    /// The database's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address as superuser; see [`Cluster::url`].
    #[must_use]
    pub fn url(&self) -> String {
        self.cluster.url(&self.name)
    }

    /// Its address as another role; see [`Cluster::url_as`].
    #[must_use]
    pub fn url_as(&self, role: &str) -> String {
        self.cluster.url_as(&self.name, role)
    }

    /// The cluster that it is in.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}

impl Drop for Database {
    /// On a thread and a runtime of its own, since the caller's may be the one that is just ending.
    fn drop(&mut self) {
        let (url, name) = (self.cluster.maintenance_url(), self.name.clone());
        let dropping = std::thread::Builder::new().spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|source| PostgresError::Spawn { program: "a runtime".to_owned(), source })?;
            runtime.block_on(in_session(&url, async |client| remove(client, &name).await))
        });
        match dropping.map(std::thread::JoinHandle::join) {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => eprintln!("database {} stays until its cluster ends: {error}", self.name),
            Ok(Err(_)) => eprintln!("database {} stays until its cluster ends: its thread panicked", self.name),
            Err(error) => eprintln!("database {} stays until its cluster ends: no thread: {error}", self.name),
        }
    }
}

/// template0 is the one that nobody changes and nobody can be connected to.
const EMPTY: &str = "TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER libc LOCALE 'C'";

/// Unused on a given server too, where other machines' processes may work.
fn unused_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    format!("reconciler_db_{process}_{number}_{:08x}", fastrand::u32(..))
}

async fn template_name(client: &Client, key: &str) -> Result<String, PostgresError> {
    const NAME: &str = "select 'reconciler_template_' || left(encode(sha256(convert_to($1, 'UTF8')), 'hex'), 32)";
    let row = client.query_one(NAME, &[&key]).await;
    row.and_then(|row| row.try_get(0)).map_err(sql("name the template", key))
}

async fn is_made(client: &Client, template: &str) -> Result<bool, PostgresError> {
    const MADE: &str = "select exists (select from pg_database where datname = $1 and datistemplate)";
    let row = client.query_one(MADE, &[&template]).await;
    row.and_then(|row| row.try_get(0)).map_err(sql("look for the template", template))
}

/// `name` is one of ours, so it needs no quoting.
async fn create(client: &Client, name: &str, from: &str) -> Result<(), PostgresError> {
    let created = client.batch_execute(&format!("CREATE DATABASE {name} {from} STRATEGY FILE_COPY")).await;
    created.map_err(sql("create the database", name))
}

async fn remove(client: &Client, name: &str) -> Result<(), PostgresError> {
    let there = client.query_opt("select from pg_database where datname = $1", &[&name]).await;
    if there.map_err(sql("look for the database", name))?.is_none() {
        return Ok(());
    }
    close(client, name).await?;
    client.batch_execute(&format!("DROP DATABASE {name}")).await.map_err(sql("drop the database", name))
}

/// Lets nobody in any more and ends the sessions that are there.
async fn close(client: &Client, name: &str) -> Result<(), PostgresError> {
    const END: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity
         where datname = $1 and backend_type = 'client backend'";
    let closed = client.batch_execute(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false")).await;
    closed.map_err(sql("close the database to connections", name))?;
    for _ in 0..LOOKS {
        let row = client.query_one(END, &[&name]).await;
        let sessions: i64 = row.and_then(|row| row.try_get(0)).map_err(sql("end the sessions", name))?;
        if sessions == 0 {
            break;
        }
    }
    Ok(())
}

/// Runs `work` in a session, which has ended when this returns. Connection and work share one task, so that nothing
/// is left running on the caller's runtime, and a failure of either is returned.
async fn in_session<T>(
    url: &str,
    work: impl AsyncFnOnce(&Client) -> Result<T, PostgresError>,
) -> Result<T, PostgresError> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(sql("connect", "maintenance"))?;
    let working = async {
        let worked = work(&client).await;
        drop(client);
        worked
    };
    let (worked, driven) = tokio::join!(working, connection);
    let value = worked?;
    driven.map_err(sql("keep the connection", "maintenance"))?;
    Ok(value)
}

fn sql(operation: &'static str, database: &str) -> impl FnOnce(tokio_postgres::Error) -> PostgresError {
    let database = database.to_owned();
    move |source| PostgresError::Sql { operation, database, source }
}
