//! The other end: blocking connections to a server, over TCP, TLS or a unix socket, for tools. Knows how to get
//! there; not what is said.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A name or address, and a port.
    Port(String, u16),
    /// The path of a socket.
    Path(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Port(host, port) => write!(f, "{host}:{port}"),
            Self::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A connection. The end of a stream over TLS that was not announced is an error.
pub enum Wire {
    /// Over TCP.
    Plain(TcpStream),
    /// Over TLS.
    Secure(Box<StreamOwned<ClientConnection, TcpStream>>),
    /// Over a unix socket.
    Local(UnixStream),
}

impl Wire {
    /// Connects, to the first address of a host that answers within `patience` each, and agrees on keys if there is
    /// a `config` (not over a path, where nothing can be heard). Later reads and writes wait up to `silence`.
    pub fn open(
        place: &Place,
        config: Option<&Arc<ClientConfig>>,
        patience: Duration,
        silence: Duration,
    ) -> io::Result<Self> {
        let (host, port) = match place {
            Place::Path(path) => {
                let wire = Self::Local(UnixStream::connect(path)?);
                wire.set_silence(silence)?;
                return Ok(wire);
            }
            Place::Port(host, port) => (host.as_str(), *port),
        };
        let socket = connect(host, port, patience)?;
        socket.set_read_timeout(Some(silence))?;
        socket.set_write_timeout(Some(silence))?;
        match config {
            Some(config) => greet(Arc::clone(config), host, socket),
            None => Ok(Self::Plain(socket)),
        }
    }

    /// How long reads and writes wait.
    pub fn set_silence(&self, silence: Duration) -> io::Result<()> {
        match self {
            Self::Plain(socket) => {
                socket.set_read_timeout(Some(silence))?;
                socket.set_write_timeout(Some(silence))
            }
            Self::Secure(stream) => {
                stream.sock.set_read_timeout(Some(silence))?;
                stream.sock.set_write_timeout(Some(silence))
            }
            Self::Local(socket) => {
                socket.set_read_timeout(Some(silence))?;
                socket.set_write_timeout(Some(silence))
            }
        }
    }
}

fn connect(host: &str, port: u16, patience: Duration) -> io::Result<TcpStream> {
    let mut failure = ErrorKind::NotFound.into();
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Agrees on keys before the first byte, so that what is wrong is said of the connection and not of a command.
fn greet(config: Arc<ClientConfig>, host: &str, mut socket: TcpStream) -> io::Result<Wire> {
    let invalid =
        |error: &dyn fmt::Display| io::Error::new(ErrorKind::InvalidInput, error.to_string());
    let name = match host.parse::<IpAddr>() {
        Ok(address) => ServerName::from(address),
        Err(_) => ServerName::try_from(host.to_owned()).map_err(|error| invalid(&error))?,
    };
    let mut tls = ClientConnection::new(config, name).map_err(|error| invalid(&error))?;
    while tls.is_handshaking() {
        tls.complete_io(&mut socket)?;
    }
    Ok(Wire::Secure(Box::new(StreamOwned::new(tls, socket))))
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Secure(stream) => stream.read(buffer),
            Self::Local(socket) => socket.read(buffer),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Secure(stream) => stream.write(bytes),
            Self::Local(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Secure(stream) => stream.flush(),
            Self::Local(socket) => socket.flush(),
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if let Self::Secure(stream) = self {
            // The server should know that all was said; it may be gone.
            stream.conn.send_close_notify();
            let _ = stream.conn.write_tls(&mut stream.sock);
        }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Wire::Plain",
            Self::Secure(_) => "Wire::Secure",
            Self::Local(_) => "Wire::Local",
        })
    }
}
