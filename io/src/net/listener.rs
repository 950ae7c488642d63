//! Listening sockets: how they are made and in what state their accepting is.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crate::tls::Acceptor;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Connections that the kernel completes and keeps until they are accepted.
pub(super) const BACKLOG: i32 = 4096;
/// A silent connection is asked for life after this long, then at this interval, this often: a dead
/// peer is noticed after about 30 s.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;

/// A listening socket. With `reuse_port` any number of shards can listen to one address and the
/// kernel spreads connections over them.
///
/// NODELAY and keepalive are set here, since on Linux an accepted socket inherits them: no system
/// call per connection.
pub fn listen(addr: SocketAddr, reuse_port: bool) -> io::Result<TcpListener> {
    // `new` sets CLOEXEC.
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(reuse_port)?;
    prepare(&SockRef::from(&socket))?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Whether an address cannot be listened at because the machine has none of its family.
pub fn lacks_family(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
}

/// Sets what the sockets that a listening one accepts shall inherit.
pub(super) fn prepare(socket: &SockRef<'_>) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(KEEPALIVE_IDLE)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_PROBES),
    )
}

/// A listener of a reactor.
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    pub(super) tag: u32,
    /// Set where clients speak TLS.
    pub(super) acceptor: Option<Acceptor>,
    /// The limit of connections is looked at here.
    pub(super) limited: bool,
    /// An accept is with the kernel.
    pub(super) armed: bool,
    /// The accept is being cancelled, so that connections are accepted one at a time.
    pub(super) recalled: bool,
    /// No accept before this: something ran out.
    pub(super) paused_until: Option<Instant>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn an_accepted_socket_inherits_what_it_needs() {
        let listener = listen("127.0.0.1:0".parse().unwrap(), true).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let socket = SockRef::from(&accepted);
        assert!(socket.tcp_nodelay().unwrap());
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_IDLE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), KEEPALIVE_PROBES);
    }

    #[test]
    fn an_address_is_shared_only_on_request() {
        let first = listen("127.0.0.1:0".parse().unwrap(), true).unwrap();
        let addr = first.local_addr().unwrap();
        assert!(listen(addr, true).is_ok());
        assert_eq!(listen(addr, false).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
