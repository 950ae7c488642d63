//! Messages to a service manager such as systemd, over the socket that `NOTIFY_SOCKET` names; and how often it wants a
//! sign of life. Without one nothing is sent.
//!
//! Knows datagrams and the clock; does not know when a service is ready.
#![allow(unsafe_code)] // The monotonic clock is a system call on plain memory.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a manager that does not read is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two lines about progress.
const PROGRESS: Duration = Duration::from_secs(1);

/// For how long a start or an end that makes progress may go on without more of it.
const EXTENSION: Duration = Duration::from_mins(2);

/// A manager, or none.
#[derive(Debug, Default)]
pub struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
    /// The last line about progress, and when it was sent.
    progress: Mutex<Option<(String, Instant)>>,
}

impl ServiceManager {
    /// The one that started this process, as its environment says.
    pub fn of_environment() -> io::Result<Self> {
        let variable = |name: &str| std::env::var_os(name);
        let number = |name: &str| variable(name)?.into_string().ok()?.parse::<u64>().ok();
        let Some(place) = variable("NOTIFY_SOCKET").filter(|place| !place.is_empty()) else {
            return Ok(Self::default());
        };
        let named = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|&limit_us| named && limit_us > 0);
        Self::at(&place, watchdog.map(Duration::from_micros))
    }

    /// A service manager that listens at a path, or at an abstract name behind an `@`.
    pub fn at(place: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        let address = match place.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(place)?,
            _ => {
                let text = "NOTIFY_SOCKET is neither a path nor an abstract name";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { socket: Some((socket, address)), watchdog, progress: Mutex::default() })
    }

    /// Whether there is one.
    pub fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// Within what time it wants a sign of life again, if it does.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Sends lines such as `READY=1`. What cannot be sent is lost: a manager that does not listen is no reason to end.
    pub fn send(&self, lines: &str) {
        if let Some((socket, address)) = &self.socket {
            let _ = socket.send_to_addr(lines.as_bytes(), address);
        }
    }

    /// The service is ready. `status` is one line.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// The service reads its settings again; [`ServiceManager::ready`] follows.
    pub fn reloading(&self) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_us()));
    }

    /// The service ends, within so much time.
    pub fn stopping(&self, limit: Duration) {
        let mut lines =
            format!("STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC={}", limit.as_micros());
        if self.watchdog.is_some() {
            // Nothing gives signs of life while the shards end. Writing to a text does not fail.
            let _ = write!(lines, "\nWATCHDOG=1\nWATCHDOG_USEC={}", limit.as_micros());
        }
        self.send(&lines);
    }

    /// The service lives.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// How far a long start is: one line. It gets more time as long as this changes. May be called often.
    pub fn progress(&self, text: &str) {
        if !self.is_there() {
            return;
        }
        let Ok(mut last) = self.progress.lock() else { return };
        if last.as_ref().is_some_and(|(said, at)| said == text || at.elapsed() < PROGRESS) {
            return;
        }
        *last = Some((text.to_owned(), Instant::now()));
        // A server that stood by counts as ready, and is watched while it starts.
        let alive = if self.watchdog.is_some() { "\nWATCHDOG=1" } else { "" };
        self.send(&format!("STATUS={text}\nEXTEND_TIMEOUT_USEC={}{alive}", EXTENSION.as_micros()));
    }
}

/// Time of the kernel's monotonic clock, in microseconds.
fn monotonic_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live time to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 4096];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn a_manager_at_a_path_or_at_a_name_hears_each_message_as_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("corq-test-{}", std::process::id());
        let at_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, place) in [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (UnixDatagram::bind_addr(&at_name).unwrap(), format!("@{name}").into()),
        ] {
            let manager = ServiceManager::at(&place, Some(Duration::from_secs(1))).unwrap();
            let before_us = monotonic_us();
            manager.ready("all is well");
            manager.reloading();
            manager.stopping(Duration::from_secs(2));
            assert_eq!(read(&socket), "READY=1\nSTATUS=all is well");
            let reloading = read(&socket);
            let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
            assert!(since.parse::<u64>().unwrap() >= before_us);
            assert_eq!(
                read(&socket),
                "STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC=2000000\nWATCHDOG=1\nWATCHDOG_USEC=2000000"
            );
        }
        assert!(ServiceManager::at("relative".as_ref(), None).is_err());
    }

    #[test]
    fn a_start_gets_more_time_only_while_it_gets_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let manager = ServiceManager::at(path.as_os_str(), None).unwrap();
        manager.progress("1 of 9 MB");
        assert_eq!(read(&socket), "STATUS=1 of 9 MB\nEXTEND_TIMEOUT_USEC=120000000");
        manager.progress("1 of 9 MB");
        manager.progress("2 of 9 MB");
        assert!(socket.recv(&mut [0; 9]).is_err(), "too soon, or nothing new");
        // A second later.
        *manager.progress.lock().unwrap() =
            Some(("1 of 9 MB".into(), Instant::now().checked_sub(PROGRESS).unwrap()));
        manager.progress("1 of 9 MB");
        assert!(socket.recv(&mut [0; 9]).is_err(), "it stands still");
        manager.progress("2 of 9 MB");
        assert!(read(&socket).starts_with("STATUS=2 of 9 MB\n"));
        ServiceManager::default().ready("without a manager nothing happens");
    }
}
