//! moto, a program that plays AWS's services on this machine, for the tests of what goes out to EventBridge.
//!
//! It is a Python package, installed once with everything it needs into a virtual environment in a cache folder of the
//! project's own, under a lock, so that two tests at once do not install it twice. Only wheels are taken, which run no code of
//! theirs while they are installed. A server ends with its value, or with the process that started it: it reads its standard
//! input, which the kernel closes then.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

const PACKAGE: &str = "moto[server]==5.2.5";
const DIRECTORY: &str = "moto-5.2.5";
/// Written when the installation has come to its end.
const COMPLETE: &str = "complete";

/// From the start to the port; usual are three seconds.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// Prints the port that the kernel chose, once it is listening there, and ends with its standard input.
const SERVER: &str = "
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger('werkzeug').setLevel(logging.ERROR)
server = ThreadedMotoServer('127.0.0.1', 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
";

/// moto is not to be had, or does not answer.
#[derive(Debug, thiserror::Error)]
pub enum MotoError {
    /// It is not here and could not be installed.
    #[error("moto could not be installed: {0}")]
    Install(String),
    /// It did not start.
    #[error("moto did not start: {0}")]
    Start(String),
    /// A request of ours was not answered, or refused.
    #[error("moto did not answer {operation}: {reason}")]
    Call {
        /// Such as `AmazonSQS.CreateQueue`.
        operation: String,
        /// What went wrong.
        reason: String,
    },
}

/// A running server with accounts, buses and queues of its own.
#[derive(Debug)]
pub struct Moto {
    child: Child,
    stdin: Option<ChildStdin>,
    port: u16,
}

impl Moto {
    /// Starts a server, having installed it where it is not here yet. `lookup` reads the environment: `MOTO_CACHE` (where it is
    /// installed), `HOME`, `XDG_CACHE_HOME` and `PATH`.
    ///
    /// # Errors
    /// [`MotoError::Install`] or [`MotoError::Start`], with what was tried.
    pub async fn start(lookup: fn(&str) -> Option<String>) -> Result<Self, MotoError> {
        let started = tokio::task::spawn_blocking(move || start(&install(lookup)?)).await;
        let (mut moto, port) = started.map_err(|error| MotoError::Start(error.to_string()))??;
        let read = tokio::time::timeout(READY_WITHIN, tokio::task::spawn_blocking(port)).await;
        match read {
            Ok(Ok(Some(port))) => moto.port = port,
            Ok(Ok(None)) => return Err(MotoError::Start(moto.said())),
            Ok(Err(error)) => return Err(MotoError::Start(error.to_string())),
            Err(_) => return Err(MotoError::Start(format!("no port after {} seconds", READY_WITHIN.as_secs()))),
        }
        Ok(moto)
    }

    /// What to set `AWS_ENDPOINT_URL` to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Calls an operation of a service that speaks JSON, such as `AWSEvents.PutRule` of `events`. Any credentials will do.
    ///
    /// # Errors
    /// [`MotoError::Call`], also where moto refuses.
    pub async fn call(&self, service: &str, operation: &str, input: &Value) -> Result<Value, MotoError> {
        let failed = |reason: String| MotoError::Call { operation: operation.to_owned(), reason };
        let connected = TcpStream::connect(("127.0.0.1", self.port)).await;
        let io = TokioIo::new(connected.map_err(|error| failed(error.to_string()))?);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(io).await.map_err(|error| failed(error.to_string()))?;
        tokio::spawn(connection);
        let credential = format!("none/20260101/us-east-1/{service}/aws4_request");
        let request = hyper::Request::post("/")
            .header("host", format!("127.0.0.1:{}", self.port))
            .header("content-type", "application/x-amz-json-1.1")
            .header("x-amz-target", operation)
            .header(
                "authorization",
                format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=0"),
            )
            .body(Full::new(Bytes::from(input.to_string())))
            .map_err(|error| failed(error.to_string()))?;
        let response = sender.send_request(request).await.map_err(|error| failed(error.to_string()))?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|error| failed(error.to_string()))?.to_bytes();
        if !status.is_success() {
            return Err(failed(format!("{status}: {}", String::from_utf8_lossy(&body))));
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|error| failed(error.to_string()))
    }

    /// Why it ended.
    fn said(&mut self) -> String {
        let mut text = String::new();
        match self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut text)) {
            Some(Ok(_)) | None => text,
            Some(Err(error)) => error.to_string(),
        }
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("moto, process {}, was not ended: {error}", self.child.id());
        }
    }
}

/// The server's process, and what waits for its port: `None` where it ended without one.
type Starting = (Moto, Box<dyn FnOnce() -> Option<u16> + Send>);

fn start(python: &Path) -> Result<Starting, MotoError> {
    let failed = |error: std::io::Error| MotoError::Start(format!("{}: {error}", python.display()));
    let mut child = Command::new(python)
        .args(["-c", SERVER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let moto = Moto { child, stdin, port: 0 };
    let port = move || {
        let mut line = String::new();
        BufReader::new(stdout?).read_line(&mut line).ok()?;
        line.trim().parse().ok()
    };
    Ok((moto, Box::new(port)))
}

/// The Python that has moto, installed if need be.
fn install(lookup: fn(&str) -> Option<String>) -> Result<PathBuf, MotoError> {
    let failed = |path: &Path, error: std::io::Error| MotoError::Install(format!("{}: {error}", path.display()));
    let cache = cache(lookup).ok_or_else(|| MotoError::Install("neither HOME nor MOTO_CACHE is set".to_owned()))?;
    std::fs::create_dir_all(&cache).map_err(|error| failed(&cache, error))?;
    let lock = cache.join("install.lock");
    // held until this function ends, or the process, however it ends
    let held = File::create(&lock).and_then(|file| file.lock().map(|()| file)).map_err(|error| failed(&lock, error))?;
    let directory = cache.join(DIRECTORY);
    let (python, complete) = (directory.join("bin/python"), directory.join(COMPLETE));
    if !complete.exists() {
        if directory.exists() {
            std::fs::remove_dir_all(&directory).map_err(|error| failed(&directory, error))?;
        }
        run(OsStr::new("python3"), &[OsStr::new("-m"), OsStr::new("venv"), directory.as_os_str()])?;
        let pip = ["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--retries", "1"];
        let arguments: Vec<&OsStr> = pip.iter().chain(&["--only-binary=:all:", PACKAGE]).map(OsStr::new).collect();
        run(python.as_os_str(), &arguments)?;
        File::create(&complete).map_err(|error| failed(&complete, error))?;
    }
    drop(held);
    Ok(python)
}

/// Beside the one that Postgres is fetched into, by the same rule but for root, whose home will do here.
fn cache(lookup: fn(&str) -> Option<String>) -> Option<PathBuf> {
    let setting = |name: &str| lookup(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home_cache = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
    let users = || setting("XDG_CACHE_HOME").or_else(|| setting("HOME").map(|home| home.join(home_cache)));
    setting("MOTO_CACHE").or_else(|| users().map(|cache| cache.join("reconciler-moto")))
}

/// Runs an installer with the user's own environment (mirrors, proxies).
fn run(program: &OsStr, arguments: &[&OsStr]) -> Result<(), MotoError> {
    let mut command = Command::new(program);
    let words = format!("{} {}", program.display(), arguments.join(OsStr::new(" ")).display());
    match command.args(arguments).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(MotoError::Install(format!(
            "{words}: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
        Err(error) => Err(MotoError::Install(format!("{words}: {error}"))),
    }
}
