//! Certificates of an authority of the tests' own, clients over TLS, and a tunnel that gives clients without it a
//! plain port to speak to. Not every test binary has what this needs, so those that want it name it themselves.
#![allow(dead_code)]

use std::fs::{self, Permissions};
use std::io::{Cursor, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use tempfile::TempDir;

use crate::support::{DEADLINE, Start};

/// Who signs certificates, in a directory of its own.
pub(crate) struct Authority {
    dir: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in files.
#[derive(Clone)]
pub(crate) struct Paper {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("the system has a temporary directory");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Of the same name they would be taken for each other.
        let name = format!("the authority of {}", dir.path().display());
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("keys can be made");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("it can be signed");
        fs::write(dir.path().join("ca.pem"), issuer.pem()).expect("files can be written");
        Self { dir, issuer }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// For a server on loopback, or a client; in force now unless it ended in `expired`.
    pub(crate) fn issue(&self, name: &str, expired: Option<i32>) -> Paper {
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut params = CertificateParams::new(names).expect("these are names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        if let Some(year) = expired {
            params.not_before = date_time_ymd(year - 1, 1, 1);
            params.not_after = date_time_ymd(year, 1, 1);
        }
        let key = KeyPair::generate().expect("keys can be made");
        let cert = params.signed_by(&key, &self.issuer).expect("it can be signed");
        let paper = Paper {
            cert: self.file(&format!("{name}.pem")),
            key: self.file(&format!("{name}.key")),
        };
        fs::write(&paper.cert, cert.pem()).expect("files can be written");
        fs::write(&paper.key, key.serialize_pem()).expect("files can be written");
        fs::set_permissions(&paper.key, Permissions::from_mode(0o600)).expect("it is ours");
        paper
    }

    /// Settings of a client that believes this authority, and may show a certificate.
    pub(crate) fn client(
        &self,
        paper: Option<&Paper>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_file(self.path()).expect("it was written above");
        roots.add(root).expect("it is an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("there are such versions")
            .with_root_certificates(roots);
        let config = match paper {
            None => builder.with_no_client_auth(),
            Some(paper) => {
                let cert = CertificateDer::from_pem_file(&paper.cert).expect("it was issued");
                let key = PrivateKeyDer::from_pem_file(&paper.key).expect("it was issued");
                builder.with_client_auth_cert(vec![cert], key).expect("they fit each other")
            }
        };
        Arc::new(config)
    }

    /// The usual client.
    pub(crate) fn believer(&self) -> Arc<ClientConfig> {
        self.client(None, rustls::ALL_VERSIONS)
    }
}

impl Start {
    /// With this certificate.
    pub(crate) fn tls(self, paper: &Paper) -> Self {
        self.env("TLS_CERT_FILE", paper.cert.display()).env("TLS_KEY_FILE", paper.key.display())
    }
}

/// A stream over TLS.
pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;

pub(crate) fn socket(port: u16) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", port)).expect("the port is open");
    socket.set_nodelay(true).expect("an option is taken");
    socket.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero is taken");
    socket.set_write_timeout(Some(DEADLINE)).expect("a timeout above zero is taken");
    socket
}

pub(crate) fn session(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("127.0.0.1").expect("an address is a name");
    ClientConnection::new(Arc::clone(config), name).expect("the configuration is sound")
}

/// Connects and agrees on keys.
pub(crate) fn connect(port: u16, config: &Arc<ClientConfig>) -> std::io::Result<Tls> {
    let mut socket = socket(port);
    let mut tls = session(config);
    while tls.is_handshaking() {
        tls.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(tls, socket))
}

/// A plain port on loopback; what is said there goes to a server in another way. It ends with the process.
pub(crate) fn tunnel(port: u16, config: &Arc<ClientConfig>) -> u16 {
    let config = Arc::clone(config);
    listen(move |near| {
        // A server that is being started again is not there.
        let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { return };
        let _ = far.set_nodelay(true);
        let tls = Arc::new(Mutex::new(session(&config)));
        let (mut near_out, mut far_in) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        let reader = Arc::clone(&tls);
        flush(&tls, &far);
        let back = far.try_clone().unwrap();
        thread::spawn(move || {
            let mut bytes = vec![0; 64 << 10];
            while let Ok(read @ 1..) = far_in.read(&mut bytes) {
                let mut cursor = Cursor::new(&bytes[..read]);
                while cursor.position() < read as u64 {
                    let mut plain = Vec::new();
                    {
                        let mut tls = reader.lock().unwrap();
                        if tls.read_tls(&mut cursor).is_err() || tls.process_new_packets().is_err()
                        {
                            return;
                        }
                        let _ = tls.reader().read_to_end(&mut plain);
                    }
                    flush(&reader, &back);
                    if near_out.write_all(&plain).is_err() {
                        return;
                    }
                }
            }
            let _ = near_out.shutdown(Shutdown::Write);
        });
        thread::spawn(move || {
            let (mut near, mut bytes) = (near, vec![0; 64 << 10]);
            loop {
                let read = near.read(&mut bytes);
                let mut locked = tls.lock().unwrap();
                let Ok(read @ 1..) = read else {
                    locked.send_close_notify();
                    drop(locked);
                    flush(&tls, &far);
                    // As a client does that is gone altogether.
                    if read.is_err() {
                        let _ = far.shutdown(Shutdown::Both);
                    }
                    return;
                };
                if locked.writer().write_all(&bytes[..read]).is_err() {
                    return;
                }
                drop(locked);
                flush(&tls, &far);
            }
        });
    })
}

fn flush(tls: &Mutex<ClientConnection>, mut far: &TcpStream) {
    let mut tls = tls.lock().unwrap();
    while tls.wants_write() && tls.write_tls(&mut far).is_ok_and(|bytes| bytes > 0) {}
}

/// Tunnels to a unix socket.
pub(crate) fn tunnel_to_path(path: &Path) -> u16 {
    let path = path.to_path_buf();
    listen(move |near| {
        let Ok(far) = UnixStream::connect(&path) else { return };
        let (near_out, far_in) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        thread::spawn(move || {
            let _ = std::io::copy(&mut &far_in, &mut &near_out);
            let _ = near_out.shutdown(Shutdown::Write);
        });
        thread::spawn(move || {
            let _ = std::io::copy(&mut &near, &mut &far);
            let _ = far.shutdown(Shutdown::Write);
        });
    })
}

fn listen(serve: impl Fn(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let _ = near.set_nodelay(true);
            serve(near);
        }
    });
    port
}

/// Whether a stream has ended, and the end was announced. Anything else that comes is an error.
pub(crate) fn ends_in_order(stream: &mut Tls) -> bool {
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(0) => true,
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => false,
        other => panic!("{other:?} instead of the end"),
    }
}
