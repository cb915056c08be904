//! TLS to Postgres: verified by chain and name, or no connection. The server's side of TLS is a front of the test's own, for
//! not every build of PostgreSQL has it: it answers the request for TLS as Postgres does, and hands on what it decrypts.

use std::sync::Arc;

use bootstrap::database::{Database, DatabaseError};
use local::postgres;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use reconciler::config::{CaBundle, DatabaseSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::world::World;

/// What a client sends first when it wants TLS: the length and a number that is no version.
const TLS_WANTED: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Issuer {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A server's side, with a certificate for `name` by `issuer`.
fn acceptor(issuer: &Issuer, name: &str) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, issuer).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Postgres behind TLS, or, without an acceptor, one that has none. Ends with the value.
struct Front {
    url: String,
    serving: JoinHandle<()>,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn front(database: &postgres::Database, acceptor: Option<TlsAcceptor>) -> Front {
    let behind: Config = database.url().parse().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let url =
        format!("postgres://{}:hush@localhost:{port}/{}", behind.get_user().unwrap(), behind.get_dbname().unwrap());
    let serving = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (acceptor, behind) = (acceptor.clone(), behind.clone());
            tokio::spawn(async move {
                let mut wanted = [0; 8];
                client.read_exact(&mut wanted).await.unwrap();
                assert_eq!(wanted, TLS_WANTED, "it sent something else before TLS");
                let Some(acceptor) = acceptor else {
                    client.write_all(b"N").await.unwrap();
                    let mut rest = Vec::new();
                    client.read_to_end(&mut rest).await.unwrap();
                    assert!(rest.is_empty(), "it went on in plain text: {rest:?}");
                    return;
                };
                client.write_all(b"S").await.unwrap();
                // a client that does not trust us ends the handshake
                if let Ok(mut client) = acceptor.accept(client).await {
                    pass_on(&mut client, &behind).await;
                }
            });
        }
    });
    Front { url, serving }
}

async fn pass_on(client: &mut (impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin), behind: &Config) {
    let port = behind.get_ports().first().copied().unwrap_or(5432);
    // the end of either side is the end of both
    drop(match &behind.get_hosts()[0] {
        Host::Unix(directory) => {
            let socket = directory.join(format!(".s.PGSQL.{port}"));
            copy_bidirectional(client, &mut UnixStream::connect(socket).await.unwrap()).await
        }
        Host::Tcp(name) => {
            copy_bidirectional(client, &mut TcpStream::connect((name.as_str(), port)).await.unwrap()).await
        }
    });
}

fn database(url: &str, ca: Option<CaBundle>) -> Database {
    Database::new(&DatabaseSettings::by_url(url, ca), bootstrap::SCAN_ROLE).unwrap()
}

#[tokio::test]
async fn a_server_that_the_bundle_vouches_for_is_worked_with() {
    let world = World::new().await;
    let (other, ours) = (authority("other"), authority("ours"));
    let front = front(&world.database, Some(acceptor(&ours, "localhost"))).await;
    let bundle = format!("a comment between\n{}\n{}", other.pem(), ours.pem());
    let file = std::env::temp_dir().join(format!("reconciler-ca-{}.pem", std::process::id()));
    std::fs::write(&file, &bundle).unwrap();
    for ca in [CaBundle::Pem(bundle), CaBundle::File(file.clone())] {
        let database = database(&front.url, Some(ca));
        let session = database.session().await.unwrap();
        let role: String = session.client.query_one("select current_user::text", &[]).await.unwrap().get(0);
        assert_eq!(role, "reconciler_scan");
    }
    std::fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_or_of_another_name_is_not_talked_to() {
    let world = World::new().await;
    let (ours, other) = (authority("ours"), authority("other"));
    for (case, issuer, name, ca, words) in [
        ("another authority", &other, "localhost", Some(&ours), "UnknownIssuer"),
        ("none of the system's", &ours, "localhost", None, "UnknownIssuer"),
        ("another name", &ours, "db.example", Some(&ours), "not valid for name \"localhost\""),
    ] {
        let front = front(&world.database, Some(acceptor(issuer, name))).await;
        let database = database(&front.url, ca.map(|ca| CaBundle::Pem(ca.pem())));
        let error = database.session().await.err().unwrap();
        assert!(matches!(error, DatabaseError::Connect { .. }), "{case}: {error}");
        let words_of = bootstrap::chain(&error);
        assert!(words_of.contains(words) && !words_of.contains("hush"), "{case}: {words_of}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_not_talked_to_in_plain_text() {
    let world = World::new().await;
    let front = front(&world.database, None).await;
    let database = database(&front.url, Some(CaBundle::Pem(authority("ours").pem())));
    let error = database.session().await.err().unwrap();
    assert!(matches!(error, DatabaseError::NoTls { .. }), "{error}");
    assert!(error.to_string().contains("add sslmode=disable to DATABASE_URL"), "{error}");
}
