//! Where the server listens: two ports that every shard accepts from, and paths of which one shard takes in
//! all connections and deals them out to the shards in turn, since the kernel spreads connections over ports only.

use super::error::StartError;
use crate::config::Config;
use crate::server::connection::protocol::Protocol;
use corq_io::net::{self, Reactor, SocketFile};
use corq_io::tls::{Acceptor, CertificateStore};
use std::fmt::{Display, Write};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a start waits for a port or a path that is in use.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often it tries.
const PAUSE: Duration = Duration::from_millis(20);

/// The shard that accepts from paths.
const PORTER: usize = 0;

/// What comes through a listener; a number between the reactor and its shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Port {
    /// What is spoken there.
    pub protocol: Protocol,
    /// Whether this shard accepts all its connections, as through a path.
    pub seats: bool,
}

impl Port {
    const HTTP: u32 = 1;
    const SEATS: u32 = 2;

    pub fn tag(self) -> u32 {
        let http = if self.protocol == Protocol::Http { Self::HTTP } else { 0 };
        http | if self.seats { Self::SEATS } else { 0 }
    }

    /// What a number stands for.
    pub fn of(tag: u32) -> Self {
        let protocol = if tag & Self::HTTP == 0 { Protocol::Frames } else { Protocol::Http };
        Self { protocol, seats: tag & Self::SEATS != 0 }
    }
}

/// A socket to accept from.
#[derive(Debug)]
pub struct BoundListener {
    pub socket: OwnedFd,
    /// What comes through it.
    pub port: Port,
    /// What TLS begins with there.
    pub acceptor: Option<Acceptor>,
}

impl BoundListener {
    /// Accepts connections from now on.
    pub fn open(self, reactor: &mut Reactor) {
        let Self { socket, port, acceptor } = self;
        match acceptor {
            None if port.seats => reactor.add_shared_listener(socket, port.tag()),
            None => reactor.add_listener(socket, port.tag()),
            Some(acceptor) => reactor.add_tls_listener(socket, port.tag(), acceptor),
        }
    }
}

/// All sockets, before they go to the shards.
#[derive(Debug)]
pub struct Listeners {
    /// Those of each shard.
    pub of_shards: Vec<Vec<BoundListener>>,
    /// How they are shown to people.
    pub shown: String,
    /// The files of paths, which are removed when this goes.
    pub files: Vec<SocketFile>,
    certificates: Option<Arc<CertificateStore>>,
}

impl Listeners {
    /// Takes the ports and the paths. Those of a path need no TLS: what goes through them stays in the kernel.
    pub fn bind(
        config: &Config,
        shards: usize,
        certificates: Option<&Arc<CertificateStore>>,
    ) -> Result<Self, StartError> {
        let mut listeners = Vec::with_capacity(shards);
        listeners.resize_with(shards, Vec::new);
        let certificates = certificates.cloned();
        let mut ports =
            Self { of_shards: listeners, shown: String::new(), files: Vec::new(), certificates };
        ports.bind_port(config, (config.tcp_port, "TCP_PORT"), ("tcp", Protocol::Frames))?;
        ports.bind_port(config, (config.http_port, "HTTP_PORT"), ("http", Protocol::Http))?;
        let mode = config.unix_socket_mode;
        for (path, setting, name, protocol) in [
            (&config.tcp_socket_path, "TCP_SOCKET_PATH", "tcp", Protocol::Frames),
            (&config.http_socket_path, "HTTP_SOCKET_PATH", "http", Protocol::Http),
        ] {
            if let Some(path) = path {
                ports.bind_path((path, setting), mode, (name, protocol))?;
            }
        }
        Ok(ports)
    }

    fn bind_port(
        &mut self,
        config: &Config,
        (port, setting): (u16, &str),
        (name, protocol): (&str, Protocol),
    ) -> Result<(), StartError> {
        let wished = SocketAddr::new(config.listen_host(), port);
        let fail = |error: io::Error| refused(setting, &wished, &error);
        // Shards share a port by SO_REUSEPORT, which would let a second server share it as well:
        // a socket without it finds out first.
        let probe = patiently(|| net::listen(wished, false)).map_err(fail)?;
        let address = probe.local_addr().map_err(fail)?;
        drop(probe);
        for listeners in &mut self.of_shards {
            let socket: TcpListener = net::listen(address, true).map_err(fail)?;
            let port = Port { protocol, seats: false };
            let acceptor = acceptor(self.certificates.as_ref(), port);
            listeners.push(BoundListener { socket: socket.into(), port, acceptor });
        }
        let tls = if self.certificates.is_some() { " (TLS)" } else { "" };
        self.show(name, &format_args!("{address}{tls}"));
        Ok(())
    }

    fn bind_path(
        &mut self,
        (path, setting): (&Path, &str),
        mode: u32,
        (name, protocol): (&str, Protocol),
    ) -> Result<(), StartError> {
        let bound = patiently(|| net::listen_at(path, mode));
        let (socket, file) = bound.map_err(|error| refused(setting, &path.display(), &error))?;
        let port = Port { protocol, seats: true };
        self.of_shards[PORTER].push(BoundListener { socket, port, acceptor: None });
        self.files.push(file);
        self.show(name, &path.display());
        Ok(())
    }

    fn show(&mut self, name: &str, place: &dyn Display) {
        let comma = if self.shown.is_empty() { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(self.shown, "{comma}{name} {place}");
    }

    /// Second handles of the sockets where HTTP is spoken.
    pub fn https(&self) -> io::Result<Vec<BoundListener>> {
        let all = self.of_shards.iter().flatten();
        let https = all.filter(|listener| listener.port.protocol == Protocol::Http);
        let second = |listener: &BoundListener| {
            let (socket, port) = (listener.socket.try_clone()?, listener.port);
            let certificates = self.certificates.as_ref().filter(|_| listener.acceptor.is_some());
            Ok(BoundListener { socket, port, acceptor: acceptor(certificates, port) })
        };
        https.map(second).collect()
    }
}

fn acceptor(certificates: Option<&Arc<CertificateStore>>, port: Port) -> Option<Acceptor> {
    certificates.map(|certificates| {
        Acceptor::new(Arc::clone(certificates), port.protocol == Protocol::Http)
    })
}

fn refused(setting: &str, place: &dyn Display, error: &io::Error) -> StartError {
    StartError::Other(format!("{setting}: cannot listen on {place}: {error}"))
}

/// Listens once the place is free. A server that was just killed keeps its own until the kernel has taken
/// down its ring, some milliseconds after the process is gone.
fn patiently<T>(listen: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match listen() {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < give_up => {
                std::thread::sleep(PAUSE);
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_says_which_port_it_is() {
        for protocol in [Protocol::Frames, Protocol::Http] {
            for seats in [false, true] {
                let port = Port { protocol, seats };
                assert_eq!(Port::of(port.tag()), port);
            }
        }
    }
}
