//! TLS to Postgres: verified by chain and name, or no connection. The server's side of TLS is [`local::tls_front`]'s.

use bootstrap::database::{Database, DatabaseError};
use local::postgres;
use local::tls_front::{Authority, TlsFront, acceptor};
use reconciler::config::{CaBundle, DatabaseSettings};
use tokio_rustls::TlsAcceptor;

use crate::world::World;

fn authority(name: &str) -> Authority {
    local::tls_front::authority(name).unwrap()
}

/// A front, and the address for a client that says nothing of TLS.
async fn front(database: &postgres::Database, acceptor: Option<TlsAcceptor>) -> (TlsFront, String) {
    let front = TlsFront::start(&database.url(), acceptor).await.unwrap();
    let behind: tokio_postgres::Config = database.url().parse().unwrap();
    let (user, name) = (behind.get_user().unwrap(), behind.get_dbname().unwrap());
    let url = format!("postgres://{user}:hush@localhost:{}/{name}", front.port);
    (front, url)
}

fn database(url: &str, ca: Option<CaBundle>) -> Database {
    Database::new(&DatabaseSettings::by_url(url, ca), bootstrap::SCAN_ROLE).unwrap()
}

#[tokio::test]
async fn a_server_that_the_bundle_vouches_for_is_worked_with() {
    let world = World::new().await;
    let (other, ours) = (authority("other"), authority("ours"));
    let (_front, url) = front(&world.database, Some(acceptor(&ours, "localhost").unwrap())).await;
    let bundle = format!("a comment between\n{}\n{}", other.pem(), ours.pem());
    let file = std::env::temp_dir().join(format!("reconciler-ca-{}.pem", std::process::id()));
    std::fs::write(&file, &bundle).unwrap();
    for ca in [CaBundle::Pem(bundle), CaBundle::File(file.clone())] {
        let database = database(&url, Some(ca));
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
        let (_front, url) = front(&world.database, Some(acceptor(issuer, name).unwrap())).await;
        let database = database(&url, ca.map(|ca| CaBundle::Pem(ca.pem())));
        let error = database.session().await.err().unwrap();
        assert!(matches!(error, DatabaseError::Connect { .. }), "{case}: {error}");
        let words_of = bootstrap::chain(&error);
        assert!(words_of.contains(words) && !words_of.contains("hush"), "{case}: {words_of}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_not_talked_to_in_plain_text() {
    let world = World::new().await;
    let (_front, url) = front(&world.database, None).await;
    let database = database(&url, Some(CaBundle::Pem(authority("ours").pem())));
    let error = database.session().await.err().unwrap();
    assert!(matches!(error, DatabaseError::NoTls { .. }), "{error}");
    assert!(error.to_string().contains("add sslmode=disable to DATABASE_URL"), "{error}");
}
