//! The server's certificate and key, and how they are exchanged without a stop.
//!
//! Shards look at a number when a connection comes, and take the certificate anew when it has changed:
//! connections there are keep what they began with.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::crypto::CryptoProvider;
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::sign::SingleCertAndKey;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::files;

const CERTIFICATE: &str = "TLS_CERT_FILE";
const KEY: &str = "TLS_KEY_FILE";
const CLIENT_CA: &str = "TLS_CLIENT_CA_FILE";

/// Names of a certificate that are shown.
const NAMES_SHOWN_MAX: usize = 4;

/// Where the server's certificate is.
#[derive(Clone, Debug)]
pub struct ServerFiles {
    /// Certificate chain, the server's own first.
    pub certificate: PathBuf,
    /// Private key of the server's certificate.
    pub key: PathBuf,
    /// Whose clients may connect; all may if there is none.
    pub client_authorities: Option<PathBuf>,
}

/// A certificate that may be shown to clients.
#[derive(Debug)]
pub struct Identity {
    frames: Arc<ServerConfig>,
    http: Arc<ServerConfig>,
    /// Whose it is, for people.
    pub names: String,
    /// From when on it is valid, in seconds since the epoch.
    pub begins_s: i64,
    /// Until when.
    pub expires_s: i64,
    /// Which of its files other users of the machine can do too much with, a line for each.
    pub exposures: Vec<String>,
}

/// How TLS stands, for people and metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CertificateStatus {
    /// Until when the certificate is valid, in seconds since the epoch.
    pub expires_s: i64,
    /// Times that it was exchanged.
    pub reloads: u64,
    /// Times that it could not be, and the old one stayed.
    pub failed_reloads: u64,
    /// Whether the last attempt was one of those.
    pub is_stale: bool,
}

#[derive(Debug)]
struct Current {
    identity: Arc<Identity>,
    status: CertificateStatus,
}

/// Holds the certificate that connections get, and exchanges it while the server runs.
#[derive(Debug)]
pub struct CertificateStore {
    files: ServerFiles,
    current: Mutex<Current>,
    version: AtomicU64,
}

impl CertificateStore {
    /// Reads the files. An error is one line that names the file.
    pub fn open(files: ServerFiles) -> Result<Self, String> {
        let identity = Arc::new(Identity::read(&files)?);
        let expires_s = identity.expires_s;
        let status =
            CertificateStatus { expires_s, reloads: 0, failed_reloads: 0, is_stale: false };
        let current = Mutex::new(Current { identity, status });
        Ok(Self { files, current, version: AtomicU64::new(0) })
    }

    /// Reads the files again. On an error, which is one line that names the file, all stays as it is.
    pub fn reload(&self) -> Result<Arc<Identity>, String> {
        let read = Identity::read(&self.files);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let status = &mut current.status;
        status.is_stale = read.is_err();
        let identity = Arc::new(read.inspect_err(|_| status.failed_reloads += 1)?);
        status.reloads += 1;
        status.expires_s = identity.expires_s;
        current.identity = Arc::clone(&identity);
        self.version.fetch_add(1, Ordering::Release);
        Ok(identity)
    }

    /// The certificate that new connections get.
    pub fn identity(&self) -> Arc<Identity> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current.identity)
    }

    /// See there.
    pub fn status(&self) -> CertificateStatus {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).status
    }
}

impl Identity {
    fn read(files: &ServerFiles) -> Result<Self, String> {
        let ServerFiles { certificate, key, client_authorities } = files;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = files::certificates(CERTIFICATE, certificate)?;
        let private = files::key(KEY, key)?;
        let signer = provider.key_provider.load_private_key(private).map_err(|_| {
            files::line(
                KEY,
                key,
                "the key is of a kind that is not known: RSA, ECDSA or Ed25519 is wanted",
            )
        })?;
        let (names, begins_s, expires_s) =
            look_at(&chain[0]).map_err(|what| files::line(CERTIFICATE, certificate, what))?;
        let certified = CertifiedKey::new(chain, signer);
        certified.keys_match().map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                files::line(KEY, key, format!("it is not the key of {}", certificate.display()))
            }
            error => files::line(CERTIFICATE, certificate, error),
        })?;
        let verifier = match client_authorities {
            None => None,
            Some(path) => {
                let roots = Arc::new(files::authorities(CLIENT_CA, path)?);
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
                        .build();
                Some(verifier.map_err(|error| files::line(CLIENT_CA, path, error))?)
            }
        };
        let resolver = Arc::new(SingleCertAndKey::from(certified));
        let fail = |error: rustls::Error| files::line(CERTIFICATE, certificate, error);
        // Of this certificate: a client that was let in by an earlier one has to show again who it is.
        let ticketer = rustls::crypto::ring::Ticketer::new().map_err(fail)?;
        let config = |protocols: &[&[u8]], tickets: usize| {
            let builder = builder(Arc::clone(&provider)).map_err(fail)?;
            let builder = match &verifier {
                None => builder.with_no_client_auth(),
                Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
            };
            let mut config = builder.with_cert_resolver(Arc::clone(&resolver) as _);
            config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
            // A returning client shows its ticket; nothing is remembered here.
            config.ticketer = Arc::clone(&ticketer);
            config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
            config.send_tls13_tickets = tickets;
            Ok::<_, String>(Arc::new(config))
        };
        // TLS 1.3 hands tickets over when the client may already write. Connections of frames last, and many of
        // their clients read in one thread while another writes: OpenSSL takes no ticket in the midst of that.
        let (frames, http) = (config(&[], 0)?, config(&[b"http/1.1"], 1)?);
        let exposures = [
            files::exposure(CERTIFICATE, certificate, false),
            files::exposure(KEY, key, true),
            client_authorities.as_ref().and_then(|path| files::exposure(CLIENT_CA, path, false)),
        ];
        let exposures = exposures.into_iter().flatten().collect();
        Ok(Self { frames, http, names, begins_s, expires_s, exposures })
    }

    /// How long it is valid, in seconds from now: negative if it has expired.
    pub fn remaining_s(&self) -> i64 {
        self.expires_s - now_s()
    }

    /// Whether its time has not come yet.
    pub fn is_early(&self) -> bool {
        self.begins_s > now_s()
    }
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed()
}

fn builder(
    provider: Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier>, rustls::Error> {
    let versions = &[&rustls::version::TLS13, &rustls::version::TLS12];
    ServerConfig::builder_with_provider(provider).with_protocol_versions(versions)
}

/// Whose a certificate is, and its first and last second.
fn look_at(certificate: &[u8]) -> Result<(String, i64, i64), String> {
    let (_, certificate) = X509Certificate::from_der(certificate)
        .map_err(|error| format!("its first certificate cannot be read: {error}"))?;
    let mut names = Vec::new();
    if let Ok(Some(listed)) = certificate.subject_alternative_name() {
        names.extend(listed.value.general_names.iter().filter_map(|name| {
            match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                GeneralName::IPAddress(bytes) => match *bytes {
                    [a, b, c, d] => Some(std::net::Ipv4Addr::new(*a, *b, *c, *d).to_string()),
                    bytes => <[u8; 16]>::try_from(bytes)
                        .ok()
                        .map(|it| std::net::Ipv6Addr::from(it).to_string()),
                },
                _ => None,
            }
        }));
    }
    let more = names.len().saturating_sub(NAMES_SHOWN_MAX);
    names.truncate(NAMES_SHOWN_MAX);
    if names.is_empty() {
        names.push(certificate.subject().to_string());
    }
    if more > 0 {
        names.push(format!("{more} more"));
    }
    let validity = certificate.validity();
    Ok((names.join(", "), validity.not_before.timestamp(), validity.not_after.timestamp()))
}

/// TLS settings for the connections of a listener.
#[derive(Debug)]
pub struct Acceptor {
    certificate_store: Arc<CertificateStore>,
    http: bool,
    version: u64,
    config: Arc<ServerConfig>,
}

impl Acceptor {
    /// For a listener where HTTP is spoken, or not.
    pub fn new(certificate_store: Arc<CertificateStore>, http: bool) -> Self {
        let version = certificate_store.version.load(Ordering::Acquire);
        let config = config_of(&certificate_store.identity(), http);
        Self { certificate_store, http, version, config }
    }

    /// TLS settings for the next connection: those of the newest certificate.
    pub(crate) fn config(&mut self) -> Arc<ServerConfig> {
        let version = self.certificate_store.version.load(Ordering::Acquire);
        if version != self.version {
            self.version = version;
            self.config = config_of(&self.certificate_store.identity(), self.http);
        }
        Arc::clone(&self.config)
    }
}

fn config_of(identity: &Identity, http: bool) -> Arc<ServerConfig> {
    Arc::clone(if http { &identity.http } else { &identity.frames })
}
