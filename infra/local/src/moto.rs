//! moto, a program that plays AWS's services on this machine, for the tests of what goes out to EventBridge.
//!
//! A server ends with its value, or with the process that started it: it reads its standard input, which the kernel closes
//! then.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::python::{Tool, install};

const TOOL: Tool = Tool { name: "moto-5.2.5", packages: &["moto[server]==5.2.5"] };

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
    /// Starts a server, having installed it where it is not here yet. `lookup` reads the environment, as for [`install`].
    ///
    /// # Errors
    /// [`MotoError::Install`] or [`MotoError::Start`], with what was tried.
    pub async fn start(lookup: fn(&str) -> Option<String>) -> Result<Self, MotoError> {
        let started = tokio::task::spawn_blocking(move || {
            start(&install(&TOOL, lookup).map_err(MotoError::Install)?.join("python"))
        })
        .await;
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
