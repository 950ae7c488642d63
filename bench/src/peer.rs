//! The process behind a connection, where that is on this machine: the owner of the connection's other end.

use std::fs;
use std::net::SocketAddr;

use crate::socket::Socket;

/// The process that serves a connection, unless it is on another machine or another user's.
pub(crate) fn process_of(socket: &Socket) -> Option<u32> {
    if let Socket::Unix(socket) = socket {
        let peer = rustix::net::sockopt::socket_peercred(socket).ok()?;
        return u32::try_from(peer.pid.as_raw_nonzero().get()).ok();
    }
    let (own, peer) = socket.addresses()?;
    if !peer.ip().is_loopback() && peer.ip() != own.ip() {
        return None;
    }
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .find_map(|table| inode_of(&table, peer, own))?;
    owner_of(&format!("socket:[{inode}]"))
}

/// The inode of the connection from `peer` to `own` in a table of the kernel. Both are this machine's, so that their
/// ports tell the connection.
fn inode_of(table: &str, peer: SocketAddr, own: SocketAddr) -> Option<String> {
    let port = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let ends = [port(fields.get(1)?)?, port(fields.get(2)?)?];
        let inode = *fields.get(9)?;
        (ends == [peer.port(), own.port()] && inode != "0").then(|| inode.to_owned())
    })
}

fn owner_of(socket: &str) -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(|pid: &u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|file| fs::read_link(file.path()).ok())
            .any(|file| file.as_os_str() == socket)
    })
}

/// The name of a process.
pub(crate) fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    name.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

/// Settings of the server that figures depend on, none of them a secret.
const SETTINGS: &[&str] = &[
    "SHARDS",
    "DURABILITY",
    "FSYNC_INTERVAL_MS",
    "PAYLOAD_CACHE_MB",
    "CLIENT_MEMORY_MB",
    "PLACEMENT",
    "MEMORY",
    "CONFIG",
];

/// Settings out of [`SETTINGS`] that a server was started with, by variables and options.
pub(crate) fn settings_of(pid: u32) -> Vec<String> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let (variables, line) = (read("environ"), read("cmdline"));
    let by_variable = variables.split('\0').filter(|variable| {
        let name = variable.split('=').next().unwrap_or_default();
        SETTINGS.contains(&name.strip_prefix("CORQ_").unwrap_or(name)) && !variable.ends_with('=')
    });
    let words: Vec<&str> = line.split('\0').collect();
    let by_option = words.iter().enumerate().filter_map(|(at, word)| {
        let (name, value) = word.strip_prefix("--")?.split_once('=').unzip();
        let name = name.unwrap_or(word.strip_prefix("--")?);
        let value = value.or_else(|| words.get(at + 1).copied().filter(|it| !it.starts_with('-')));
        let known = SETTINGS.contains(&name.to_uppercase().replace('-', "_").as_str());
        known.then(|| match value {
            Some(value) if name != "memory" => format!("--{name} {value}"),
            _ => format!("--{name}"),
        })
    });
    by_variable.map(str::to_owned).chain(by_option).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_process_behind_a_connection_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let socket = Socket::Tcp(TcpStream::connect(address).expect("a listener is there"));
        let accepted = listener.accept().expect("a connection waits");
        assert_eq!(process_of(&socket), Some(std::process::id()));
        drop(accepted);
    }
}
