//! A front that gives a Postgres TLS, for not every build of PostgreSQL has it: it answers the request for TLS as Postgres does,
//! and hands on what it decrypts. With an authority of its own making, so that a client can be told whom to trust.

use std::io;
use std::sync::Arc;

use anyhow::Context;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// What a client sends first when it wants TLS: the length and a number that is no version.
const TLS_WANTED: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// An authority that vouches for certificates.
pub type Authority = CertifiedIssuer<'static, KeyPair>;

/// A new authority.
pub fn authority(name: &str) -> anyhow::Result<Authority> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

/// A server's side of TLS, with a certificate for `name` by `issuer`.
pub fn acceptor(issuer: &Authority, name: &str) -> anyhow::Result<TlsAcceptor> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new([name.to_owned()])?.signed_by(&key, issuer)?;
    let private = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Postgres behind TLS, or, without an acceptor, one that says that it has none. Ends with the value.
#[derive(Debug)]
pub struct TlsFront {
    /// The port of 127.0.0.1 that it listens on.
    pub port: u16,
    serving: JoinHandle<io::Result<()>>,
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl TlsFront {
    /// In front of the server of `url`. A client that sends anything else than a request for TLS is cut off, and so is one that
    /// goes on after it was told that there is none.
    pub async fn start(url: &str, acceptor: Option<TlsAcceptor>) -> anyhow::Result<Self> {
        let behind: Config = url.parse().context("the address of the server behind")?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let serving = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await?;
                let (acceptor, behind) = (acceptor.clone(), behind.clone());
                tokio::spawn(async move {
                    // a client that does not trust us ends the handshake, which is the end of its connection alone
                    drop(serve(client, acceptor, &behind).await);
                });
            }
        });
        Ok(Self { port, serving })
    }
}

async fn serve(mut client: TcpStream, acceptor: Option<TlsAcceptor>, behind: &Config) -> io::Result<()> {
    let mut wanted = [0; 8];
    client.read_exact(&mut wanted).await?;
    if wanted != TLS_WANTED {
        return Err(io::Error::other("it sent something else before TLS"));
    }
    let Some(acceptor) = acceptor else { return client.write_all(b"N").await };
    client.write_all(b"S").await?;
    pass_on(&mut acceptor.accept(client).await?, behind).await
}

async fn pass_on(client: &mut (impl AsyncRead + AsyncWrite + Unpin), behind: &Config) -> io::Result<()> {
    let port = behind.get_ports().first().copied().unwrap_or(5432);
    match behind.get_hosts().first() {
        Some(Host::Unix(directory)) => {
            let socket = directory.join(format!(".s.PGSQL.{port}"));
            copy_bidirectional(client, &mut UnixStream::connect(socket).await?).await.map(drop)
        }
        Some(Host::Tcp(name)) => {
            copy_bidirectional(client, &mut TcpStream::connect((name.as_str(), port)).await?).await.map(drop)
        }
        None => Err(io::Error::other("there is no host behind")),
    }
}
