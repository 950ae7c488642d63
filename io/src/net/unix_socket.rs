//! Listening sockets that have a path instead of a port. Knows files and modes; not who connects.
//!
//! A file of a server that is dead is replaced, one of a server that lives is left alone. That is decided under
//! a lock of the directory, so that two servers that start at once do not take each other's file away.

use std::fs::{self, File, Metadata, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use socket2::{Domain, SockAddr, Socket, Type};

use super::listener::BACKLOG;

/// Bytes that the kernel has for a path, its end included.
const PATH_BYTES: usize = 108;

/// The file of a listening socket. It goes with this value, if it still is the one that was made.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: Identity,
}

/// Device, number and birth of a file: the number of one that is gone may be another's soon.
type Identity = (u64, u64, Option<SystemTime>);

fn identity(file: &Metadata) -> Identity {
    (file.dev(), file.ino(), file.created().ok())
}

impl SocketFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours =
            fs::symlink_metadata(&self.path).is_ok_and(|found| identity(&found) == self.identity);
        if is_ours {
            // Ignore a failure: the next start replaces a file that stays.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens at a path, to those who may read and write a file of this mode. The socket may be accepted from by
/// several, but the kernel spreads nothing.
///
/// `AddrInUse` says that another process listens there, or is about to.
pub fn listen_at(path: &Path, mode: u32) -> io::Result<(OwnedFd, SocketFile)> {
    if path.as_os_str().len() >= PATH_BYTES {
        let text = format!("the path has more than {} bytes", PATH_BYTES - 1);
        return Err(io::Error::new(ErrorKind::InvalidInput, text));
    }
    let address = SockAddr::unix(path)?;
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    let directory = File::open(directory.unwrap_or(Path::new(".")))?;
    directory.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => {
            io::Error::new(ErrorKind::AddrInUse, "somebody has locked its directory")
        }
        TryLockError::Error(error) => error,
    })?;
    clear(path, &address)?;
    // `new` sets CLOEXEC.
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&address)?;
    // Nobody can connect before the listening begins.
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    let made = fs::symlink_metadata(path)?;
    let file = SocketFile { path: path.to_path_buf(), identity: identity(&made) };
    Ok((socket.into(), file))
}

/// Takes away what a dead server has left.
fn clear(path: &Path, address: &SockAddr) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(
                ErrorKind::AlreadyExists,
                "there is a file of another kind",
            ));
        }
        Ok(_) => {}
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Who has no room for another connection lives as well, and must not be waited for.
    probe.set_nonblocking(true)?;
    match probe.connect(address) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Ok(()) => Err(io::Error::new(ErrorKind::AddrInUse, "a server listens there")),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            Err(io::Error::new(ErrorKind::AddrInUse, "a server listens there"))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_file_lives_as_long_as_its_server_and_a_dead_ones_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let (socket, file) = listen_at(&path, 0o660).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o660);
        UnixStream::connect(&path).unwrap();
        assert_eq!(listen_at(&path, 0o660).unwrap_err().kind(), ErrorKind::AddrInUse);
        // As a kill leaves it.
        drop(socket);
        assert!(path.exists());
        let (_socket, next) = listen_at(&path, 0o600).unwrap();
        drop(file);
        assert!(path.exists(), "it is another's by now");
        UnixStream::connect(&path).unwrap();
        drop(next);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("letter");
        fs::write(&path, "dear").unwrap();
        assert_eq!(listen_at(&path, 0o660).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"dear");
        let long = dir.path().join("x".repeat(PATH_BYTES));
        assert_eq!(listen_at(&long, 0o660).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(listen_at(&dir.path().join("no/where"), 0o660).is_err());
    }

    #[test]
    fn two_that_start_at_once_do_not_take_each_others_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        for _ in 0..50 {
            drop(listen_at(&path, 0o660).map(|(socket, file)| {
                std::mem::forget(file);
                socket
            }));
            let starts: Vec<_> = (0..4)
                .map(|_| {
                    let path = path.clone();
                    std::thread::spawn(move || listen_at(&path, 0o660).ok())
                })
                .collect();
            let got: Vec<_> = starts.into_iter().filter_map(|it| it.join().unwrap()).collect();
            assert_eq!(got.len(), 1, "one of them listens");
            UnixStream::connect(&path).unwrap();
        }
    }
}
