//! A port on the loopback interface that speaks HTTP/1.1.
//!
//! Every connection is a task of one set, which the accepting task owns: when the [`Listening`] is dropped, that task is
//! aborted, and with it go all connections. An exchange that fails closes its connection without having written anything.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// An open port. Dropping it closes the port and every connection.
pub(crate) struct Listening {
    /// `http://127.0.0.1:PORT`, without a slash at the end.
    pub(crate) base_url: String,
    accepting: JoinHandle<io::Error>,
}

impl Listening {
    /// Listens on 127.0.0.1; port 0 is any free one. Must be called within a tokio runtime.
    pub(crate) async fn start<X, A, E>(port: u16, exchange: X) -> io::Result<Self>
    where
        X: Fn(hyper::Request<Incoming>) -> A + Clone + Send + 'static,
        A: Future<Output = Result<hyper::Response<Full<Bytes>>, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
        let base_url = format!("http://{}", listener.local_addr()?);
        Ok(Self { base_url, accepting: tokio::spawn(accept(listener, exchange)) })
    }

    /// Runs until it takes no more connections, and says why.
    pub(crate) async fn ended(&mut self) -> io::Error {
        (&mut self.accepting).await.unwrap_or_else(io::Error::other)
    }

    /// Closes the port and every connection, and comes back when that is done.
    pub(crate) async fn stop(&mut self) {
        self.accepting.abort();
        match (&mut self.accepting).await {
            // It had ended by itself, or it has now: either way nothing listens any more.
            Ok(_) | Err(_) => {}
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept<X, A, E>(listener: TcpListener, exchange: X) -> io::Error
where
    X: Fn(hyper::Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Result<hyper::Response<Full<Bytes>>, E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(stream, exchange.clone()));
                }
                // The client gave up before we looked; the next one is no worse for it.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return error,
            },
            Some(_ended) = connections.join_next() => {}
        }
    }
}

async fn serve<X, A, E>(stream: TcpStream, exchange: X)
where
    X: Fn(hyper::Request<Incoming>) -> A,
    A: Future<Output = Result<hyper::Response<Full<Bytes>>, E>>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    // A connection ends in an error whenever a fault drops it or the client leaves, which is what tests are for;
    // the client has its own error, and there is nobody else to tell.
    match http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(exchange)).await {
        Ok(()) | Err(_) => {}
    }
}
