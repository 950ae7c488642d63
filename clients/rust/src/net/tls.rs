//! TLS: whom to believe, and who one is.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::error::Error;

/// How a client checks the server of a `tls://` address, and shows who it is itself.
///
/// Without any, the certificates of the system are believed, and none is shown.
///
/// ```no_run
/// # use corq_client::{Client, Tls};
/// # async fn example() -> Result<(), corq_client::Error> {
/// let tls = Tls::with_ca_file("ca.pem")?.client_certificate("me.pem", "me.key")?;
/// let client = Client::builder("tls://jobs.example.org").tls(tls).connect().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Tls {
    roots: Option<Arc<RootCertStore>>,
    identity: Option<Arc<Identity>>,
    server_name: Option<ServerName<'static>>,
}

struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

fn unreadable(path: &Path, error: impl fmt::Display) -> Error {
    Error::Invalid(format!("{}: {error}", path.display()).into())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| unreadable(path, error))?;
    let list: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| unreadable(path, error))?;
    if list.is_empty() { Err(unreadable(path, "there is no certificate in it")) } else { Ok(list) }
}

impl Tls {
    /// Believes the certificates of the system.
    pub fn with_system_certificates() -> Self {
        Self::default()
    }

    /// Believes the certificates in a PEM file, and no others.
    pub fn with_ca_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| unreadable(path, error))?;
        }
        Ok(Self { roots: Some(Arc::new(roots)), ..Self::default() })
    }

    /// Shows a certificate, from PEM files of its chain and its key.
    pub fn client_certificate(
        mut self,
        chain: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<Self, Error> {
        let chain = certificates(chain.as_ref())?;
        let path = key.as_ref();
        let key = PrivateKeyDer::from_pem_file(path).map_err(|error| unreadable(path, error))?;
        self.identity = Some(Arc::new(Identity { chain, key }));
        Ok(self)
    }

    /// Expects a certificate for this name rather than for the host of the address.
    pub fn server_name(mut self, name: &str) -> Result<Self, Error> {
        let name = ServerName::try_from(name.to_owned());
        self.server_name = Some(name.map_err(|error| Error::Invalid(error.to_string().into()))?);
        Ok(self)
    }

    /// Reads the system's certificates if need be; told once, when the client is made.
    pub(crate) fn into_connector(self) -> Result<Connector, Error> {
        let roots = match self.roots {
            Some(roots) => roots,
            None => system_roots()?,
        };
        let wrong = |error: tokio_rustls::rustls::Error| Error::Invalid(error.to_string().into());
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(wrong)?
            .with_root_certificates(roots);
        let config = match self.identity {
            Some(identity) => config
                .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
                .map_err(wrong)?,
            None => config.with_no_client_auth(),
        };
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Connector { connector: Some(connector), server_name: self.server_name })
    }
}

fn system_roots() -> Result<Arc<RootCertStore>, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let why = found.errors.first().map_or_else(String::new, |error| format!(": {error}"));
        let text = format!("the system has no certificates to believe{why}");
        return Err(Error::Invalid(text.into()));
    }
    Ok(Arc::new(roots))
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roots = if self.roots.is_some() { "a file" } else { "the system" };
        formatter
            .debug_struct("Tls")
            .field("roots", &roots)
            .field("certificate", &self.identity.is_some())
            .finish_non_exhaustive()
    }
}

/// Wraps a TCP connection in TLS; empty where no address asks for TLS.
#[derive(Clone, Default)]
pub(crate) struct Connector {
    connector: Option<TlsConnector>,
    server_name: Option<ServerName<'static>>,
}

impl Connector {
    pub(crate) async fn connect(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let connector = self.connector.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
        };
        connector.connect(name, stream).await
    }
}
