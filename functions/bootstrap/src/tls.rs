//! TLS to Postgres: the server's chain and host name are verified, against the CA bundle that the settings name, or else
//! against the CAs that the system trusts.
//!
//! rustls with ring, as for Stripe, so that there is one TLS in a binary and no OpenSSL to build. With a bundle the system's
//! store is not read: parsing it is most of a cold start.

use std::path::PathBuf;
use std::sync::Arc;

use reconciler::config::CaBundle;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

/// TLS cannot be prepared. Nothing was sent to anybody.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file of `DATABASE_CA_FILE` cannot be read.
    #[error("could not read the CA bundle {}, which DATABASE_CA_FILE names", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The bundle is not a list of certificates in PEM.
    #[error("the CA bundle of {setting} is not in PEM")]
    Pem {
        /// `DATABASE_CA_FILE` or `DATABASE_CA`.
        setting: &'static str,
        /// Where it ends to be.
        #[source]
        source: pem::Error,
    },
    /// A certificate of the bundle is none.
    #[error("certificate {number} of {setting} cannot be used")]
    Certificate {
        /// `DATABASE_CA_FILE` or `DATABASE_CA`.
        setting: &'static str,
        /// From 1.
        number: usize,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// There is nobody to trust.
    #[error("{of} holds no certificate, so no server could be trusted: set DATABASE_CA_FILE to a CA bundle in PEM")]
    Empty {
        /// Which store.
        of: &'static str,
    },
    /// The TLS library refuses its own defaults.
    #[error("could not prepare TLS")]
    Versions(#[source] rustls::Error),
}

/// What connections to Postgres are made with. Reads the bundle or the system's store, and is built once.
pub fn connector(bundle: Option<&CaBundle>) -> Result<MakeRustlsConnect, TlsError> {
    let roots = match bundle {
        Some(CaBundle::File(path)) => {
            let pem = std::fs::read(path).map_err(|source| TlsError::File { path: path.clone(), source })?;
            roots_of(&pem, "DATABASE_CA_FILE")?
        }
        Some(CaBundle::Pem(pem)) => roots_of(pem.as_bytes(), "DATABASE_CA")?,
        None => system_roots()?,
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Versions)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn roots_of(pem: &[u8], setting: &'static str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for (index, certificate) in CertificateDer::pem_slice_iter(pem).enumerate() {
        let certificate = certificate.map_err(|source| TlsError::Pem { setting, source })?;
        let refused = |source| TlsError::Certificate { setting, number: index + 1, source };
        roots.add(certificate).map_err(refused)?;
    }
    if roots.is_empty() { Err(TlsError::Empty { of: setting }) } else { Ok(roots) }
}

/// One unreadable certificate of the system's does not matter as long as others are there; what is missing shows as an
/// unknown issuer when a server presents it.
fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(error = %crate::chain(error), "a CA of the system cannot be read");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() { Err(TlsError::Empty { of: "the system's CA store" }) } else { Ok(roots) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_that_cannot_be_used_is_told_by_its_setting() {
        let cut = "-----BEGIN CERTIFICATE-----\nAAAA\n";
        let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (bundle, words) in [
            (CaBundle::Pem(String::new()), "DATABASE_CA holds no certificate"),
            (CaBundle::Pem("nothing of the kind".to_owned()), "DATABASE_CA holds no certificate"),
            (CaBundle::Pem(cut.to_owned()), "the CA bundle of DATABASE_CA is not in PEM"),
            (CaBundle::Pem(nonsense.to_owned()), "certificate 1 of DATABASE_CA cannot be used"),
            (CaBundle::File("/nowhere/ca.pem".into()), "could not read the CA bundle /nowhere/ca.pem"),
        ] {
            let error = connector(Some(&bundle)).err().unwrap();
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
