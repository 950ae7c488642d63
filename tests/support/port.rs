//! Ports for servers. A server is killed and comes back to its port, so nobody else may have taken that meanwhile: neither
//! another test, nor one of another process, nor an outgoing connection.

use std::fs;
use std::net::TcpListener;
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

/// Where they are taken from.
const ALL: Range<u16> = 10_000..32_000;

/// Ports that a process owns at a time.
const BLOCK: u16 = 100;

/// The blocks of this process, each with a name that no other process can have until this one is gone.
static OWN: Mutex<Own> = Mutex::new(Own { left: 0..0, names: Vec::new() });

struct Own {
    left: Range<u16>,
    names: Vec<UnixListener>,
}

/// A port that nobody listens on, and that is given to nobody else while this process lives.
pub(crate) fn free_port() -> u16 {
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let Own { left, names } = &mut *own;
        let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        if let Some(port) = left.find(is_free) {
            return port;
        }
        let (name, block) = blocks().find_map(claim).expect("a block of ports is left");
        names.push(name);
        *left = block;
    }
}

/// All of them, from one on that depends on the process.
fn blocks() -> impl Iterator<Item = Range<u16>> {
    let all = ALL.step_by(usize::from(BLOCK)).map(|first| first..first + BLOCK);
    let outgoing = outgoing();
    let is_apart = |block: &Range<u16>| block.end <= outgoing.start || outgoing.end <= block.start;
    let (apart, others): (Vec<_>, Vec<_>) = all.partition(is_apart);
    let first = std::process::id() as usize * 7 % apart.len().max(1);
    let (before, from) = apart.split_at(first);
    // If the system takes the ports of outgoing connections from everywhere, one of those has to do.
    [from, before, &others].concat().into_iter()
}

/// The ports from which the system takes those of outgoing connections.
fn outgoing() -> Range<u16> {
    let said = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ends = said.split_whitespace().filter_map(|end| end.parse::<u16>().ok());
    match (ends.next(), ends.next()) {
        (Some(first), Some(last)) => first..last.saturating_add(1),
        _ => 32_768..61_000,
    }
}

/// Makes a block this process's own, if it is no other's. The name is one of the same network as the ports.
fn claim(block: Range<u16>) -> Option<(UnixListener, Range<u16>)> {
    let name = format!("corq-test-ports-{}", block.start);
    let address = SocketAddr::from_abstract_name(name).ok()?;
    Some((UnixListener::bind_addr(&address).ok()?, block))
}
