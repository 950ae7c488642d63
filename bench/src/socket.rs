//! Transport of a connection: TCP, TLS or a unix socket; blocking at first, by readiness later. Knows nothing of
//! requests.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::target::Target;

/// A connection to the server: TCP, a unix socket, or TLS over one of them.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<Secure>),
}

/// Keys, and the socket below them.
pub(crate) struct Secure {
    tls: ClientConnection,
    socket: TcpStream,
}

/// Ends a socket that another thread reads.
pub(crate) enum Ender {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects to the server's port for frames, or to its socket.
    pub(crate) fn frames(target: &Target) -> Result<Self, String> {
        Self::open(target, target.port, target.socket.as_deref())
    }

    /// Connects to the server's port for HTTP, or to its socket.
    pub(crate) fn http(target: &Target) -> Result<Self, String> {
        Self::open(target, target.http_port, target.http_socket.as_deref())
    }

    fn open(target: &Target, port: u16, path: Option<&Path>) -> Result<Self, String> {
        let host = target.host.as_str();
        if let Some(path) = path {
            let socket = UnixStream::connect(path);
            let failed = |error| format!("cannot connect to {}: {error}", path.display());
            return socket.map(Self::Unix).map_err(failed);
        }
        let failed =
            |error: &dyn std::fmt::Display| format!("cannot connect to {host}:{port}: {error}");
        let mut socket = TcpStream::connect((host, port)).map_err(|error| failed(&error))?;
        socket.set_nodelay(true).map_err(|error| failed(&error))?;
        let Some(config) = config(target)? else { return Ok(Self::Tcp(socket)) };
        let name = match host.parse::<IpAddr>() {
            Ok(address) => ServerName::from(address),
            Err(_) => ServerName::try_from(host.to_owned()).map_err(|error| failed(&error))?,
        };
        let mut tls = ClientConnection::new(config, name).map_err(|error| failed(&error))?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket).map_err(|error| failed(&error))?;
        }
        Ok(Self::Tls(Box::new(Secure { tls, socket })))
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) -> std::io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.set_nonblocking(nonblocking),
            Self::Unix(socket) => socket.set_nonblocking(nonblocking),
            Self::Tls(secure) => secure.socket.set_nonblocking(nonblocking),
        }
    }

    pub(crate) fn set_patience(&self, patience: Option<Duration>) -> std::io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.set_read_timeout(patience),
            Self::Unix(socket) => socket.set_read_timeout(patience),
            Self::Tls(secure) => secure.socket.set_read_timeout(patience),
        }
    }

    /// Whether a read would find something that no readiness tells of any more.
    pub(crate) fn holds_input(&mut self) -> bool {
        match self {
            Self::Tls(secure) => {
                // The packets have been processed already: ask only how much plain text there is.
                secure
                    .tls
                    .process_new_packets()
                    .is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
            }
            _ => false,
        }
    }

    /// Whether something has been taken that is not written yet.
    pub(crate) fn holds_output(&self) -> bool {
        matches!(self, Self::Tls(secure) if secure.tls.wants_write())
    }

    /// The addresses of both ends, this one first, unless it is a unix socket.
    pub(crate) fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let socket = match self {
            Self::Tcp(socket) => socket,
            Self::Unix(_) => return None,
            Self::Tls(secure) => &secure.socket,
        };
        Some((socket.local_addr().ok()?, socket.peer_addr().ok()?))
    }

    pub(crate) fn ender(&self) -> std::io::Result<Ender> {
        Ok(match self {
            Self::Tcp(socket) => Ender::Tcp(socket.try_clone()?),
            Self::Unix(socket) => Ender::Unix(socket.try_clone()?),
            Self::Tls(secure) => Ender::Tcp(secure.socket.try_clone()?),
        })
    }
}

/// Text for a connection that failed while something was `doing`.
pub(crate) fn lost(doing: &str, error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe => CLOSED.to_owned(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("{doing}: no answer"),
        _ => format!("{doing}: {error}"),
    }
}

pub(crate) const CLOSED: &str = "the server closed the connection";

impl Ender {
    pub(crate) fn end(&self) {
        // Ignore the error of a socket that has ended already.
        let _ = match self {
            Self::Tcp(socket) => socket.shutdown(Shutdown::Both),
            Self::Unix(socket) => socket.shutdown(Shutdown::Both),
        };
    }
}

fn config(target: &Target) -> Result<Option<Arc<ClientConfig>>, String> {
    let Target { tls, tls_ca, tls_cert, tls_key, .. } = target;
    if !tls && tls_ca.is_none() && tls_cert.is_none() {
        return Ok(None);
    }
    let wrong = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, String> {
        let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(path, &error))?;
        found.collect::<Result<_, _>>().map_err(|error| wrong(path, &error))
    };
    let mut roots = RootCertStore::empty();
    match tls_ca {
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| wrong(path, &error))?;
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let config = match (tls_cert, tls_key) {
        (Some(certificate), Some(path)) => {
            let key = PrivateKeyDer::from_pem_file(path).map_err(|error| wrong(path, &error))?;
            builder
                .with_client_auth_cert(certificates(certificate)?, key)
                .map_err(|error| wrong(path, &error))?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Some(Arc::new(config)))
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let secure = match self {
            Self::Tcp(socket) => return socket.read(buffer),
            Self::Unix(socket) => return socket.read(buffer),
            Self::Tls(secure) => secure,
        };
        loop {
            match secure.tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
            // An end that was not announced comes back from the reader as an error.
            secure.tls.read_tls(&mut secure.socket)?;
            let processed = secure.tls.process_new_packets();
            processed.map_err(|error| std::io::Error::new(ErrorKind::InvalidData, error))?;
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let secure = match self {
            Self::Tcp(socket) => return socket.write(bytes),
            Self::Unix(socket) => return socket.write(bytes),
            Self::Tls(secure) => secure,
        };
        let taken = secure.tls.writer().write(bytes)?;
        match self.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock && taken > 0 => Ok(taken),
            Err(error) => Err(error),
            Ok(()) => Ok(taken),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if let Self::Tls(secure) = self {
            while secure.tls.wants_write() {
                secure.tls.write_tls(&mut secure.socket)?;
            }
        }
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
            Self::Tls(secure) => secure.socket.as_fd(),
        }
    }
}
