//! TLS: whom the client believes. The fear: a client that talks to anybody, or cannot talk to its own server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use corq_client::{Client, Error, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// An authority, and what it has signed, as files.
struct Authority {
    dir: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { dir, issuer }
    }

    fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Paths of a certificate for this name and its key.
    fn sign(&self, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let path = |kind: &str| self.dir.path().join(format!("{name}.{kind}"));
        std::fs::write(path("pem"), certificate.pem()).unwrap();
        std::fs::write(path("key"), key.serialize_pem()).unwrap();
        (path("pem"), path("key"))
    }
}

fn read_certificate(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).unwrap()
}

/// A server with a certificate of `authority` for `name`; it wants one of its clients as well if `clients` says so.
async fn serve(authority: &Authority, name: &str, clients: bool) -> u16 {
    let (chain, key) = authority.sign(name);
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if clients {
        let mut roots = RootCertStore::empty();
        roots.add(read_certificate(&authority.ca())).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let config = builder.with_single_cert(vec![read_certificate(&chain)], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let mut peer = crate::fake::Peer { stream, number: 0 };
                while let Some(asked) = peer.next().await {
                    let data = asked.fields["data"].clone();
                    let size = data.as_str().map_or(0, str::len);
                    peer.ok(&asked, &[("id", size.to_string().into()), ("data", data)]).await;
                }
            });
        }
    });
    port
}

async fn connect(port: u16, tls: Tls) -> Result<Client, Error> {
    Client::builder(&format!("tls://127.0.0.1:{port}")).tls(tls).connect().await
}

#[tokio::test]
async fn a_server_is_believed_by_its_authority_and_payloads_of_any_size_go_through() {
    let authority = Authority::new();
    let port = serve(&authority, "127.0.0.1", false).await;
    let client = connect(port, Tls::with_ca_file(authority.ca()).unwrap()).await.unwrap();
    for bytes in [0, 1, 100_000, 5 << 20] {
        let id = client.queue("q").push(&"x".repeat(bytes)).await.unwrap();
        assert_eq!(id, bytes.to_string());
    }
}

#[tokio::test]
async fn strangers_are_not_believed() {
    let (authority, other) = (Authority::new(), Authority::new());
    let port = serve(&authority, "127.0.0.1", false).await;
    for tls in [Tls::with_ca_file(other.ca()).unwrap(), Tls::with_system_certificates()] {
        match connect(port, tls).await {
            Err(Error::Unreachable(why)) => assert!(why.contains("certificate"), "{why}"),
            // A system may have no certificates at all.
            Err(Error::Invalid(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_certificate_counts_for_its_name_only() {
    let authority = Authority::new();
    let port = serve(&authority, "jobs.example.org", false).await;
    let tls = Tls::with_ca_file(authority.ca()).unwrap();
    assert!(matches!(connect(port, tls.clone()).await, Err(Error::Unreachable(_))));
    assert!(connect(port, tls.server_name("jobs.example.org").unwrap()).await.is_ok());
}

#[tokio::test]
async fn a_client_shows_its_own_certificate_where_one_is_wanted() {
    let authority = Authority::new();
    let port = serve(&authority, "127.0.0.1", true).await;
    let tls = Tls::with_ca_file(authority.ca()).unwrap();
    assert!(connect(port, tls.clone()).await.is_err());
    let (chain, key) = authority.sign("me");
    assert!(connect(port, tls.client_certificate(chain, key).unwrap()).await.is_ok());
}

#[test]
fn files_that_are_none_are_named() {
    let authority = Authority::new();
    let missing = Tls::with_ca_file("/no/such.pem").unwrap_err().to_string();
    assert!(missing.contains("/no/such.pem"), "{missing}");
    let (chain, key) = authority.sign("me");
    let tls = Tls::with_ca_file(authority.ca()).unwrap();
    let wrong = tls.clone().client_certificate(&key, &chain).unwrap_err().to_string();
    assert!(wrong.contains("me.key"), "{wrong}");
    assert!(Tls::with_ca_file(&key).unwrap_err().to_string().contains("no certificate"));
}
