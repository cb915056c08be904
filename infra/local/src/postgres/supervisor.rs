//! The supervisor: a shell script that owns the server, in a process group of its own, so that neither Ctrl-C nor a
//! test runner's kill of the group reaches it.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::binaries::explained;
use super::directory;
use super::error::PostgresError;
use super::server_user::{ServerUser, output};

/// `$1` is the runner's process id, `$2` the cluster's directory, the rest the server's command line.
///
/// The runner may belong to another user (root), and then "not permitted" means that it lives. A `sleep` in the
/// foreground would put off the trap, `wait` does not. QUIT is PostgreSQL's immediate shutdown: nothing in the
/// directory is needed again. But a shell starts what runs in the background with QUIT ignored, so before the server
/// has its own handlers it takes TERM to end it. Nothing but this script has the lock, which is its standard input. Its output and the server's is the log.
const SCRIPT: &str = r#"
runner=$1 directory=$2
shift 2
lives() {
    case $(kill -0 "$1" 2>&1) in
        '' | *ermitted*) return 0 ;;
        *) return 1 ;;
    esac
}
finish() {
    trap '' TERM
    kill -TERM "${server:-$!}" 2>/dev/null
    kill -QUIT "${server:-$!}" 2>/dev/null
    wait "${server:-$!}"
    [ -z "$pause" ] || kill "$pause" 2>/dev/null
    rm -rf "$directory"
    exit 0
}
server= pause=
trap finish TERM
"$@" </dev/null &
server=$!
while lives "$runner" && lives "$server"; do
    sleep 1 </dev/null &
    pause=$!
    wait "$pause"
done
finish
"#;

/// A supervisor that this process started. Dropping it ends the cluster and waits until it is gone.
#[derive(Debug)]
pub(super) struct Supervisor {
    /// None once it is the runner's end alone that ends the cluster.
    child: Option<Child>,
    directory: PathBuf,
    user: ServerUser,
}

impl Supervisor {
    /// Starts the server `command` (program and arguments) in `directory`, for as long as `runner` lives.
    pub(super) fn start(
        user: &ServerUser,
        runner: u32,
        directory: &Path,
        lock: File,
        log: File,
        command: &[PathBuf],
    ) -> Result<Self, PostgresError> {
        let failed = |source| PostgresError::Spawn { program: "/bin/sh".to_owned(), source };
        let child = user
            .command("/bin/sh")
            .args(["-c", SCRIPT, "reconciler-pg-supervisor", &runner.to_string()])
            .arg(directory)
            .args(command)
            .stdin(Stdio::from(lock))
            .stdout(Stdio::from(log.try_clone().map_err(failed)?))
            .stderr(Stdio::from(log))
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        Ok(Self { child: Some(child), directory: directory.to_owned(), user: user.clone() })
    }

    /// From here on only the runner's end ends the cluster.
    pub(super) fn leave_to_runner(mut self) {
        self.child = None;
    }

    /// Kills the supervisor alone, so that a test can see who cleans up then.
    #[cfg(test)]
    pub(super) fn kill(mut self) {
        let mut child = self.child.take().expect("still ours");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else { return };
        // The second step is for a supervisor that was killed, or ended before it had its trap.
        if let Err(error) = end(child).and_then(|()| directory::sweep_one(&self.directory, &self.user)) {
            eprintln!("the PostgreSQL server in {} was not ended: {}", self.directory.display(), explained(&error));
        }
    }
}

fn end(mut child: Child) -> Result<(), PostgresError> {
    let process = child.id().to_string();
    let failed = |source| PostgresError::Spawn { program: format!("PostgreSQL supervisor {process}"), source };
    if child.try_wait().map_err(failed)?.is_none() {
        // The standard library can only send KILL, which would leave the server behind.
        let mut kill = Command::new("/bin/sh");
        output(kill.args(["-c", "kill -TERM \"$1\"", "sh", &process]).stdin(Stdio::null()))?;
        child.wait().map_err(failed)?;
    }
    Ok(())
}
