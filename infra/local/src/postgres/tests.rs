//! The promises of the module, each against a real server.
//!
//! "Another process" is this test binary again, running [`a_process_of_a_test_run`] only.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio_postgres::{Client, NoTls};

use super::cluster::shared_by;
use super::directory::{self, StartLock};
use super::server_user::ServerUser;
use super::supervisor::Supervisor;
use super::*;

const RUNNER: &str = "RECONCILER_TEST_RUNNER";
const REPORT: &str = "report ";

fn settings() -> Settings {
    Settings::from_lookup(&environment, None).expect("readable settings")
}

async fn own() -> Cluster {
    own_cluster(settings(), ClusterOptions::default()).await.expect("a cluster")
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect(url);
    // Some tests have their sessions ended under them, which the connection reports as an error.
    tokio::spawn(async move { connection.await.err() });
    client
}

async fn text(client: &Client, query: &str) -> String {
    client.query_one(query, &[]).await.expect(query).get(0)
}

/// Looks again every 50 ms until it is so, for at most 20 s.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let mut pause = tokio::time::interval(Duration::from_millis(50));
    for _ in 0..400 {
        pause.tick().await;
        if is_so() {
            return;
        }
    }
    panic!("not within 20 s: {what}");
}

fn server_process(directory: &Path) -> String {
    let file = std::fs::read_to_string(directory.join("data/postmaster.pid")).expect("a running server's file");
    file.lines().next().expect("its process id").to_owned()
}

/// `kill -0` as root or as the same user; a zombie that nobody has waited for does not count as running.
fn runs(process: &str) -> bool {
    let state = Command::new("ps").args(["-o", "stat=", "-p", process]).output().expect("ps");
    let state = String::from_utf8_lossy(&state.stdout).trim().to_owned();
    !state.is_empty() && !state.starts_with('Z')
}

/// A process that stands for cargo or nextest. Dropping it kills it, as SIGKILL does to a run.
struct Runner(Child);

impl Runner {
    fn start() -> Self {
        let mut command = Command::new("/bin/sh");
        Self(command.args(["-c", "read -r _"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("sh"))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("waited for");
    }
}

fn process_of(runner: &Runner) -> Child {
    Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "postgres::tests::a_process_of_a_test_run", "--nocapture"])
        .env(RUNNER, runner.0.id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this binary runs")
}

fn report_of(process: &mut Child) -> Vec<String> {
    let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
    let lines: Vec<String> = lines.map(|line| line.expect("text")).collect();
    assert!(process.wait().expect("waited for").success(), "{lines:?}");
    let report = lines.iter().find_map(|line| line.split_once(REPORT)).expect("a report").1;
    report.split(' ').map(str::to_owned).collect()
}

/// On its own, for this process; and the other process of the tests below, for the runner that they name.
#[tokio::test]
async fn a_process_of_a_test_run() {
    let runner = environment(RUNNER).map_or_else(std::process::id, |runner| runner.parse().expect("a process id"));
    let cluster = shared_by(runner, settings()).await.expect("a cluster");
    let prepare = async |url: String| {
        connect(&url).await.batch_execute("create table who (process text)").await?;
        Ok(())
    };
    let database = cluster.database("who", prepare).await.expect("a database");
    let client = connect(&database.url()).await;
    let system = text(&client, "select system_identifier::text from pg_control_system()").await;
    let template = "select string_agg(oid::text, ',') from pg_database where datname like 'reconciler_template%'";
    let template = text(&client, template).await;
    assert!(!system.is_empty() && !template.is_empty(), "a server, and one template on it");
    println!("{REPORT}{} {system} {template}", cluster.directory().expect("ours").display());
}

#[tokio::test]
async fn the_processes_of_a_run_share_a_cluster_which_ends_with_the_run() {
    let runner = Runner::start();
    let (mut one, mut other) = (process_of(&runner), process_of(&runner));
    let (one, other) = (report_of(&mut one), report_of(&mut other));
    assert_eq!(one, other, "same directory, same server, same template");

    let directory = PathBuf::from(&one[0]);
    let server = server_process(&directory);
    assert!(runs(&server), "it outlives the processes that used it");
    drop(runner);
    until("directory and server are gone", || !directory.exists() && !runs(&server)).await;
}

#[tokio::test]
async fn a_cluster_of_its_own_is_gone_when_its_last_value_is() {
    let cluster = own().await;
    let directory = cluster.directory().expect("ours").to_owned();
    let server = server_process(&directory);
    let database = cluster.empty_database().await.expect("a database");
    drop(cluster);
    assert!(runs(&server), "the database still needs it");
    drop(database);
    assert!(!directory.exists());
    assert!(!runs(&server));
}

#[tokio::test]
async fn what_a_killed_supervisor_leaves_is_swept_up() {
    let cluster = own().await;
    let directory = cluster.directory().expect("ours").to_owned();
    let server = server_process(&directory);
    cluster.kill_supervisor();
    assert!(runs(&server) && directory.exists(), "nobody has cleaned up yet");

    let living = own().await;
    assert!(!directory.exists());
    assert!(!runs(&server));
    assert!(living.directory().expect("ours").exists(), "a supervised cluster stays");
}

#[tokio::test]
async fn a_server_can_be_stopped_in_the_middle_of_its_start() {
    let user = ServerUser::find().expect("some user");
    for number in 0..5 {
        let name = format!("{}-stopped-{number}", std::process::id());
        let (directory, supervisor) = {
            let _lock = StartLock::acquire(&user).expect("the lock");
            let (directory, lock) = directory::create(&name, &user, false).expect("a directory");
            let log = directory::create_log(&directory).expect("a log");
            // Stands for a server before it has installed its handlers: QUIT is ignored, as sh leaves it.
            let server = ["sleep", "600"].map(PathBuf::from);
            let runner = std::process::id();
            let started = Supervisor::start(&user, runner, &directory, lock, log, &server);
            (directory, started.expect("it starts"))
        };
        drop(supervisor);
        assert!(!directory.exists());
    }
}

#[tokio::test]
async fn an_abandoned_start_is_swept_up() {
    let user = ServerUser::find().expect("some user");
    let name = format!("{}-abandoned", std::process::id());
    let (directory, held) = {
        let _lock = StartLock::acquire(&user).expect("the lock");
        let (directory, lock) = directory::create(&name, &user, false).expect("a directory");
        directory::sweep(&user).expect("swept");
        assert!(directory.exists(), "its lock is held");
        (directory, lock)
    };
    drop(held);
    let _lock = StartLock::acquire(&user).expect("the lock");
    directory::sweep(&user).expect("swept");
    assert!(!directory.exists());
}

#[tokio::test]
async fn ten_databases_at_once_are_prepared_once_and_independent() {
    let cluster = own().await;
    let prepared = AtomicU32::new(0);
    let key = "ten at once";
    let one = async || {
        let prepare = async |url: String| {
            prepared.fetch_add(1, Ordering::Relaxed);
            let client = connect(&url).await;
            client.batch_execute("create table t (n integer); insert into t values (0)").await?;
            // Left open: a template with a session could not be copied.
            std::mem::forget(client);
            Ok(())
        };
        let database = cluster.database(key, prepare).await.expect("a database");
        let client = connect(&database.url()).await;
        client.batch_execute("update t set n = n + 1").await.expect("updated");
        let n = text(&client, "select string_agg(n::text, ',') from t").await;
        (database, n)
    };
    let all = tokio::join!(one(), one(), one(), one(), one(), one(), one(), one(), one(), one());
    let all = [all.0, all.1, all.2, all.3, all.4, all.5, all.6, all.7, all.8, all.9];
    assert_eq!(prepared.load(Ordering::Relaxed), 1);
    assert!(all.iter().all(|(_, n)| n == "1"), "each sees only its own change");
}

#[tokio::test]
async fn dropping_a_database_drops_it_even_under_an_open_session() {
    let cluster = shared_cluster().await.expect("a cluster");
    let database = cluster.empty_database().await.expect("a database");
    let client = connect(&database.url()).await;
    assert_eq!(text(&client, "select current_database()::text").await, database.name());
    let (name, url) = (database.name().to_owned(), cluster.url("postgres"));
    drop(database);
    let left = connect(&url).await.query("select from pg_database where datname = $1", &[&name]).await;
    assert!(left.expect("a query").is_empty());
}

#[tokio::test]
async fn a_failed_preparation_says_so_and_is_tried_again() {
    let cluster = own().await;
    let key = "failing";
    let failing = async |url: String| {
        connect(&url).await.batch_execute("create table half ()").await?;
        anyhow::bail!("migration 7 is wrong")
    };
    let error = cluster.database(key, failing).await.expect_err("prepare failed");
    assert!(matches!(&error, PostgresError::Prepare { key: named, source }
        if named == key && source.to_string() == "migration 7 is wrong"));

    let database = cluster.database(key, async |_| Ok(())).await.expect("a database");
    let client = connect(&database.url()).await;
    assert_eq!(text(&client, "select coalesce(to_regclass('half')::text, 'none')").await, "none");
}

#[tokio::test]
async fn roles_connect_by_name_on_ours_and_are_assumed_on_a_given_server() {
    let ours = own().await;
    let lookup = |name: &str| (name == "TEST_DATABASE_URL").then(|| ours.url("postgres"));
    let settings = Settings::from_lookup(&lookup, Some("TEST_DATABASE_URL")).expect("readable");
    let given = own_cluster(settings, ClusterOptions::default()).await.expect("the given server");
    assert_eq!(given.directory(), None, "no server was started");
    let prepare = async |url: String| {
        connect(&url).await.batch_execute("create role scan login").await?;
        Ok(())
    };
    let first = ours.database("roles", prepare).await.expect("a database");
    let second = given.database("roles", async |_| anyhow::bail!("made already")).await.expect("the same template");
    for (database, session_user) in [(&first, "scan"), (&second, "postgres")] {
        let client = connect(&database.url_as("scan")).await;
        assert_eq!(text(&client, "select current_user::text").await, "scan");
        assert_eq!(text(&client, "select session_user::text").await, session_user);
        assert_eq!(text(&client, "select current_database()::text").await, database.name());
    }
}

/// A port that was free a moment ago may be taken by now: then another one.
async fn on_a_free_port() -> (Cluster, u16) {
    for _ in 0..10 {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("its address").port();
        drop(free);
        let options = ClusterOptions { durable: true, tcp_port: Some(port), ..ClusterOptions::default() };
        match own_cluster(settings(), options).await {
            Ok(cluster) => return (cluster, port),
            Err(PostgresError::NotReady { log, .. }) if log.contains("127.0.0.1") => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("ten ports in a row were taken");
}

#[tokio::test]
async fn a_durable_cluster_on_a_port_is_durable_and_answers_there() {
    let (cluster, port) = on_a_free_port().await;
    let url = cluster.tcp_url("postgres", "postgres").expect("it listens");
    assert!(url.contains(&format!("127.0.0.1:{port}")), "{url}");
    let client = connect(&url).await;
    assert_eq!(text(&client, "show fsync").await, "on");
    assert_eq!(text(&client, "show synchronous_commit").await, "on");
    assert!(!cluster.directory().expect("ours").starts_with("/dev/shm"));
}

#[tokio::test]
async fn a_server_that_cannot_start_shows_its_log_and_leaves_nothing() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its address").port();
    let options = ClusterOptions { durable: false, tcp_port: Some(port), ..ClusterOptions::default() };
    let error = own_cluster(settings(), options).await.expect_err("the port is taken");
    let PostgresError::NotReady { directory, log, .. } = error else { panic!("{error}") };
    assert!(log.contains("127.0.0.1"), "{log}");
    assert!(!directory.exists());
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_stands_still_does_not_matter() {
    let cluster = own().await;
    let database = cluster.empty_database().await.expect("a database");
    assert!(database.url().contains(database.name()));
}

#[tokio::test]
async fn databases_can_be_made_from_spawned_tasks() {
    let made = tokio::spawn(async {
        let cluster = shared_cluster().await?;
        let prepare = async |url: String| {
            connect(&url).await.batch_execute("create table t ()").await?;
            Ok(())
        };
        let filled = cluster.database("spawned", prepare).await?;
        Ok::<_, PostgresError>((filled, cluster.empty_database().await?))
    });
    let (filled, empty) = made.await.expect("not cut off").expect("both made");
    assert_ne!(filled.name(), empty.name());
}
