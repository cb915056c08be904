//! The real binaries, built by the same cargo that runs the tests.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;

/// The folder of the built binaries, with all of them up to date.
pub(crate) fn binaries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let test = std::env::current_exe().expect("the test's own path");
        let folder = test.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>").to_owned();
        let target = folder.parent().expect("target/<profile>");
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--locked", "--workspace", "--bins", "--examples"])
            .arg("--target-dir")
            .arg(target)
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .status()
            .expect("cargo");
        assert!(built.success(), "the binaries do not build");
        folder
    })
}

/// A process that is ended with the value, and what it printed.
pub(crate) struct Running {
    child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

/// Starts a binary with nothing in its environment but this.
pub(crate) fn start<'a>(
    path: &Path,
    arguments: &[&str],
    environment: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Running {
    let mut child = Command::new(path)
        .args(arguments)
        .env_clear()
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let stdout = child.stdout.take().map(drain);
    let stderr = child.stderr.take().map(drain);
    Running { child, stdout, stderr }
}

fn drain(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).expect("what it printed");
        text
    })
}

impl Running {
    /// Kills it (SIGKILL), wherever it stands. What it printed: stdout, stderr.
    pub(crate) fn kill(mut self) -> (String, String) {
        self.child.kill().expect("kill");
        self.printed()
    }

    /// Waits for its end: exit code, stdout, stderr. Does not block the runtime.
    pub(crate) async fn ended(mut self) -> (i32, String, String) {
        tokio::task::spawn_blocking(move || {
            let status = self.child.wait().expect("wait");
            let (stdout, stderr) = self.printed();
            (status.code().unwrap_or(-1), stdout, stderr)
        })
        .await
        .expect("join")
    }

    fn printed(&mut self) -> (String, String) {
        self.child.wait().expect("wait");
        let join = |pipe: Option<JoinHandle<String>>| pipe.expect("taken once").join().expect("drained");
        (join(self.stdout.take()), join(self.stderr.take()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.stdout.is_some() {
            self.child.kill().and_then(|()| self.child.wait()).map(drop).unwrap_or_default();
        }
    }
}
