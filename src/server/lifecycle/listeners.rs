//! Where the server listens: two ports that every shard accepts from, and sockets of which one shard takes in all
//! connections and deals them out to the shards in turn, since the kernel spreads connections only over ports that each
//! shard has opened itself. Those are the sockets at paths and the ones that a service manager has opened.

use super::error::StartError;
use crate::config::Config;
use crate::server::connection::protocol::Protocol;
use corq_io::net::{self, Inherited, Place, Reactor, SocketFile};
use corq_io::tls::{Acceptor, CertificateStore};
use std::fmt::{Display, Write};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a start waits for a port or a path that is in use.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often it tries.
const PAUSE: Duration = Duration::from_millis(20);

/// The shard that accepts for all.
const PORTER: usize = 0;

/// How connections of a listener are served; goes as a number from the reactor to its shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Port {
    pub protocol: Protocol,
    /// Whether this shard accepts all its connections and deals them out.
    pub seats: bool,
    /// Whether it has a path: what comes through it stays in the kernel.
    pub is_path: bool,
}

impl Port {
    const HTTP: u32 = 1;
    const SEATS: u32 = 2;
    const PATH: u32 = 4;

    pub fn tag(self) -> u32 {
        let http = if self.protocol == Protocol::Http { Self::HTTP } else { 0 };
        let seats = if self.seats { Self::SEATS } else { 0 };
        http | seats | if self.is_path { Self::PATH } else { 0 }
    }

    /// The port that a number of `tag` stands for.
    pub fn of(tag: u32) -> Self {
        let protocol = if tag & Self::HTTP == 0 { Protocol::Frames } else { Protocol::Http };
        Self { protocol, seats: tag & Self::SEATS != 0, is_path: tag & Self::PATH != 0 }
    }
}

/// A socket to accept from.
#[derive(Debug)]
pub struct BoundListener {
    pub socket: OwnedFd,
    pub port: Port,
    /// Begins TLS on each connection; none on a port without TLS.
    pub acceptor: Option<Acceptor>,
}

impl BoundListener {
    /// Accepts connections from now on.
    pub fn open(self, reactor: &mut Reactor) {
        let Self { socket, port, acceptor } = self;
        match (acceptor, port.seats) {
            (None, true) => reactor.add_shared_listener(socket, port.tag()),
            (None, false) => reactor.add_listener(socket, port.tag()),
            (Some(acceptor), true) => {
                reactor.add_shared_tls_listener(socket, port.tag(), acceptor);
            }
            (Some(acceptor), false) => reactor.add_tls_listener(socket, port.tag(), acceptor),
        }
    }
}

/// All sockets, before they go to the shards.
#[derive(Debug)]
pub struct Listeners {
    /// Sockets by shard.
    pub of_shards: Vec<Vec<BoundListener>>,
    /// How they are shown to people.
    pub shown: String,
    /// The port of HTTP.
    pub http: Option<SocketAddr>,
    /// The addresses of all ports, each once.
    pub hosts: Vec<IpAddr>,
    /// The files of paths, which are removed when this goes.
    pub files: Vec<SocketFile>,
    certificates: Option<Arc<CertificateStore>>,
}

impl Listeners {
    /// Takes the ports and the paths, and what was inherited instead of ports. Those of a path need no TLS: what goes
    /// through them stays in the kernel.
    pub fn bind(
        config: &Config,
        shards: usize,
        certificates: Option<&Arc<CertificateStore>>,
        inherited: Vec<Inherited>,
    ) -> Result<Self, StartError> {
        let mut listeners = Vec::with_capacity(shards);
        listeners.resize_with(shards, Vec::new);
        let certificates = certificates.cloned();
        let mut ports = Self {
            of_shards: listeners,
            shown: String::new(),
            http: None,
            hosts: Vec::new(),
            files: Vec::new(),
            certificates,
        };
        let mut is_inherited = [false; 2];
        for socket in inherited {
            let protocol = protocol_of(&socket, config)?;
            // A path stands beside the port, as one of the settings does.
            is_inherited[usize::from(protocol == Protocol::Http)] |=
                matches!(socket.place, Place::Port(_));
            ports.take(socket, protocol);
        }
        for (port, setting, protocol) in [
            (config.tcp_port, "TCP_PORT", Protocol::Frames),
            (config.http_port, "HTTP_PORT", Protocol::Http),
        ] {
            if !is_inherited[usize::from(protocol == Protocol::Http)] {
                ports.bind_hosts(config, (port, setting), protocol)?;
            }
        }
        let mode = config.unix_socket_mode;
        for (path, setting, protocol) in [
            (&config.tcp_socket_path, "TCP_SOCKET_PATH", Protocol::Frames),
            (&config.http_socket_path, "HTTP_SOCKET_PATH", Protocol::Http),
        ] {
            if let Some(path) = path {
                ports.bind_path((path, setting), mode, protocol)?;
            }
        }
        Ok(ports)
    }

    /// Takes over a socket that is open already.
    fn take(&mut self, inherited: Inherited, protocol: Protocol) {
        let Inherited { place, socket, .. } = inherited;
        let port = Port { protocol, seats: true, is_path: matches!(place, Place::Path(_)) };
        let acceptor = acceptor(self.certificates.as_ref().filter(|_| !port.is_path), port);
        self.of_shards[PORTER].push(BoundListener { socket, port, acceptor });
        match place {
            Place::Port(address) => self.show_port(address, protocol, ", inherited"),
            Place::Path(path) => {
                self.show(protocol, &format_args!("{} (inherited)", path.display()));
            }
        }
    }

    /// Listens at each of the addresses of `HOST`.
    fn bind_hosts(
        &mut self,
        config: &Config,
        (port, setting): (u16, &str),
        protocol: Protocol,
    ) -> Result<(), StartError> {
        let mut hosts = config.listen_hosts().into_iter();
        let Some(first) = hosts.next() else { return Ok(()) };
        let bound = self.bind_port((first, port), protocol);
        let bound =
            bound.map_err(|error| refused(setting, &SocketAddr::new(first, port), &error))?;
        for host in hosts {
            match self.bind_port((host, bound.port()), protocol) {
                Ok(_) => {}
                // A machine without this family has the first address alone.
                Err(error) if net::lacks_family(&error) => {}
                Err(error) => {
                    return Err(refused(setting, &SocketAddr::new(host, bound.port()), &error));
                }
            }
        }
        Ok(())
    }

    fn bind_port(&mut self, wished: (IpAddr, u16), protocol: Protocol) -> io::Result<SocketAddr> {
        let wished = SocketAddr::from(wished);
        // Shards share a port by SO_REUSEPORT, which would let a second server share it as well:
        // a socket without it finds out first.
        let probe = patiently(|| net::listen(wished, false))?;
        let address = probe.local_addr()?;
        drop(probe);
        for listeners in &mut self.of_shards {
            let socket: TcpListener = net::listen(address, true)?;
            let port = Port { protocol, seats: false, is_path: false };
            let acceptor = acceptor(self.certificates.as_ref(), port);
            listeners.push(BoundListener { socket: socket.into(), port, acceptor });
        }
        self.show_port(address, protocol, "");
        Ok(address)
    }

    fn bind_path(
        &mut self,
        (path, setting): (&Path, &str),
        mode: u32,
        protocol: Protocol,
    ) -> Result<(), StartError> {
        let bound = patiently(|| net::listen_at(path, mode));
        let (socket, file) = bound.map_err(|error| refused(setting, &path.display(), &error))?;
        let port = Port { protocol, seats: true, is_path: true };
        self.of_shards[PORTER].push(BoundListener { socket, port, acceptor: None });
        self.files.push(file);
        self.show(protocol, &path.display());
        Ok(())
    }

    fn show_port(&mut self, address: SocketAddr, protocol: Protocol, how: &str) {
        let tls = if self.certificates.is_some() { " (TLS)" } else { "" };
        self.show(protocol, &format_args!("{address}{tls}{how}"));
        if !self.hosts.contains(&address.ip()) {
            self.hosts.push(address.ip());
        }
        if protocol == Protocol::Http {
            self.http.get_or_insert(address);
        }
    }

    fn show(&mut self, protocol: Protocol, place: &dyn Display) {
        let name = name_of(protocol);
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

/// As the log and a service manager call it.
fn name_of(protocol: Protocol) -> &'static str {
    if protocol == Protocol::Http { "http" } else { "tcp" }
}

/// The protocol of an inherited socket: by its name, or else by its port.
fn protocol_of(inherited: &Inherited, config: &Config) -> Result<Protocol, StartError> {
    let port = match inherited.place {
        Place::Port(address) => Some(address.port()),
        Place::Path(_) => None,
    };
    match &*inherited.name {
        "tcp" => Ok(Protocol::Frames),
        "http" => Ok(Protocol::Http),
        _ if port == Some(config.tcp_port) => Ok(Protocol::Frames),
        _ if port == Some(config.http_port) => Ok(Protocol::Http),
        name => Err(StartError::Other(format!(
            "LISTEN_FDNAMES: a socket is called {name:?} and is at neither TCP_PORT nor HTTP_PORT: its unit needs \
             FileDescriptorName=tcp or http"
        ))),
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

/// Listens once the place is free.
fn patiently<T>(listen: impl Fn() -> io::Result<T>) -> io::Result<T> {
    once_free(listen, |error| error.kind() == ErrorKind::AddrInUse)
}

/// Takes something once it is free. A server that was just stopped or killed keeps what it has until its process is gone
/// and the kernel has taken down its ring.
pub(super) fn once_free<T, E>(
    take: impl Fn() -> Result<T, E>,
    is_taken: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match take() {
            Err(error) if is_taken(&error) && Instant::now() < give_up => {
                std::thread::sleep(PAUSE);
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn what_is_still_taken_is_waited_for_and_no_other_error_is() {
        let tries = Cell::new(0);
        let take = |outcomes: &[Result<(), &'static str>]| {
            tries.set(0);
            let next = || {
                tries.set(tries.get() + 1);
                outcomes[tries.get() - 1]
            };
            (once_free(next, |&error| error == "taken"), tries.get())
        };
        assert_eq!(take(&[Err("taken"), Err("taken"), Ok(())]), (Ok(()), 3));
        assert_eq!(take(&[Err("taken"), Err("broken"), Ok(())]), (Err("broken"), 2));
    }

    #[test]
    fn a_number_says_which_port_it_is() {
        for protocol in [Protocol::Frames, Protocol::Http] {
            for (seats, is_path) in [(false, false), (true, false), (true, true)] {
                let port = Port { protocol, seats, is_path };
                assert_eq!(Port::of(port.tag()), port);
            }
        }
    }
}
