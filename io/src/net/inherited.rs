//! Listening sockets that a service manager such as systemd has opened and hands over, by `LISTEN_FDS` and what belongs to
//! it. They outlive the process: who connects while it starts anew waits in the socket and is not refused.
#![allow(unsafe_code)] // Descriptors are taken over by their numbers.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{SockRef, Type};

use super::listener::prepare;

/// The number of the first.
const FIRST: RawFd = 3;

/// More are not taken.
const MOST: usize = 64;

/// They are taken once.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Where an inherited socket listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// At an address and a port.
    Port(SocketAddr),
    /// At a path; an empty one for a socket without a file.
    Path(PathBuf),
}

/// A socket that another process has opened.
#[derive(Debug)]
pub struct Inherited {
    /// The name of the socket in `LISTEN_FDNAMES`.
    pub name: String,
    /// Where it listens.
    pub place: Place,
    /// To accept from. It may be shared with other processes: it is closed, never shut down.
    pub socket: OwnedFd,
}

/// Takes the sockets that this process was given. An error names the variable that is wrong. Later calls give none.
pub fn inherited() -> io::Result<Vec<Inherited>> {
    let names = names(|name| std::env::var_os(name), std::process::id())?;
    if names.is_empty() || TAKEN.swap(true, Ordering::AcqRel) {
        return Ok(Vec::new());
    }
    (FIRST..).zip(names).map(|(number, name)| take(number, name)).collect()
}

fn wrong(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// The names of the sockets that are meant for the process `own`.
fn names(variable: impl Fn(&str) -> Option<OsString>, own: u32) -> io::Result<Vec<String>> {
    let text = |name: &str| Some(variable(name)?.to_string_lossy().into_owned());
    let (Some(count), Some(process)) = (text("LISTEN_FDS"), text("LISTEN_PID")) else {
        return Ok(Vec::new());
    };
    if process.parse() != Ok(own) {
        // They were meant for a parent of this process.
        return Ok(Vec::new());
    }
    let count = count.parse().ok().filter(|&count: &usize| count <= MOST);
    let count = count.ok_or_else(|| wrong(format!("LISTEN_FDS must be between 0 and {MOST}")))?;
    let mut names: Vec<String> = text("LISTEN_FDNAMES")
        .filter(|names| !names.is_empty())
        .map(|names| names.split(':').map(str::to_owned).collect())
        .unwrap_or_default();
    if !names.is_empty() && names.len() != count {
        return Err(wrong(format!("LISTEN_FDNAMES has {} names for {count} sockets", names.len())));
    }
    names.resize(count, String::new());
    Ok(names)
}

fn take(number: RawFd, name: String) -> io::Result<Inherited> {
    // SAFETY: a flag is read of a number that need not be a descriptor.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(wrong(format!("LISTEN_FDS counts descriptor {number}, which is not open")));
    }
    // SAFETY: it is open, and stays so until the next line has looked at it.
    let place = place(unsafe { BorrowedFd::borrow_raw(number) })
        .map_err(|error| wrong(format!("descriptor {number} of LISTEN_FDS: {error}")))?;
    // SAFETY: the process was given this open descriptor, and takes it here and only once.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    // Processes that this one might start are not meant.
    SockRef::from(&socket).set_cloexec(true)?;
    if matches!(place, Place::Port(_)) {
        prepare(&SockRef::from(&socket))?;
    }
    Ok(Inherited { name, place, socket })
}

fn place(socket: BorrowedFd<'_>) -> io::Result<Place> {
    let socket = SockRef::from(&socket);
    if socket.r#type()? != Type::STREAM || !socket.is_listener()? {
        return Err(io::Error::other(
            "it is no listening stream socket: the unit needs ListenStream=",
        ));
    }
    let address = socket.local_addr()?;
    match address.as_socket() {
        Some(address) => Ok(Place::Port(address)),
        None if address.is_unix() => {
            Ok(Place::Path(address.as_pathname().unwrap_or(std::path::Path::new("")).into()))
        }
        None => Err(io::Error::other("it is neither a TCP nor a unix socket")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
    use std::os::unix::net::UnixListener;

    fn named(variables: &[(&str, &str)]) -> io::Result<Vec<String>> {
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        };
        names(find, 7)
    }

    #[test]
    fn sockets_are_those_that_are_meant_for_this_process() {
        assert!(named(&[]).unwrap().is_empty());
        assert!(named(&[("LISTEN_FDS", "2"), ("LISTEN_PID", "8")]).unwrap().is_empty());
        let two = [("LISTEN_FDS", "2"), ("LISTEN_PID", "7")];
        assert_eq!(named(&two).unwrap(), ["", ""]);
        let with_names = |names| [two[0], two[1], ("LISTEN_FDNAMES", names)];
        assert_eq!(named(&with_names("tcp:http")).unwrap(), ["tcp", "http"]);
        assert!(named(&with_names("tcp")).unwrap_err().to_string().contains("1 names for 2"));
        for wrong in ["-1", "many", "65"] {
            let variables = [("LISTEN_FDS", wrong), ("LISTEN_PID", "7")];
            assert!(named(&variables).unwrap_err().to_string().starts_with("LISTEN_FDS must be"));
        }
    }

    #[test]
    fn only_listening_stream_sockets_are_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let taken = take(listener.into_raw_fd(), "tcp".into()).unwrap();
        assert_eq!(taken.place, Place::Port(address));
        assert!(SockRef::from(&taken.socket).tcp_nodelay().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(place(listener.as_fd()).unwrap(), Place::Path(path));
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = take(datagrams.as_raw_fd(), String::new()).unwrap_err().to_string();
        assert!(error.contains("ListenStream="), "{error}");
        let closed = take(100_000, String::new()).unwrap_err().to_string();
        assert!(closed.contains("100000, which is not open"), "{closed}");
    }
}
