//! The lock of a data directory: taking it, and asking whether another process has it.
//!
//! It is the directory that is locked, so that nothing in it can be replaced to get around that. A second lock on
//! it, of a kind that can be asked for without being taken, tells those who only ask. `LOCK` is locked for
//! builds that know no other, and holds the process id for people.
#![allow(unsafe_code)] // The second kind of lock has no wrapper in std.

use super::identity::Identity;
use super::refusal::{LockError, io_error};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{process, thread};

pub(crate) const LOCK: &str = "LOCK";
/// As long, at most, as one who asks whether a directory is in use may hold `LOCK`.
const GLANCE: Duration = Duration::from_secs(1);
/// Between two attempts meanwhile.
const PAUSE: Duration = Duration::from_millis(5);

/// A directory that nobody else has. The kernel lets go of locks with their files, however the process ends.
#[derive(Debug)]
pub(crate) struct Claim {
    _file: File,
    directory: File,
}

impl Claim {
    /// Device and inode of the directory, whatever it is called by now.
    pub(crate) fn identity(&self) -> io::Result<Identity> {
        Identity::of_open(&self.directory)
    }

    /// Locks a directory, unless another process has it.
    pub(crate) fn take(directory: &Path) -> Result<Self, LockError> {
        let path = directory.join(LOCK);
        let held = |text: &mut File| Err(held_by(directory, text));
        let mut file = open_lock(&path).map_err(|source| io_error(&path, source))?;
        let whole = File::open(directory).map_err(|source| io_error(directory, source))?;
        match whole.try_lock() {
            Err(TryLockError::WouldBlock) => return held(&mut file),
            Err(TryLockError::Error(error)) if !is_unknown(&error) => {
                return Err(io_error(directory, error));
            }
            // Where directories cannot be locked, the file must do.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        mark(&whole).map_err(|source| io_error(directory, source))?;
        let give_up = Instant::now() + GLANCE;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(source)) => return Err(io_error(&path, source)),
                // A process that asks whether the directory is in use holds the file for a moment.
                Err(TryLockError::WouldBlock) if Instant::now() < give_up => thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => return held(&mut file),
            }
        }
        let mut write = || {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", process::id())
        };
        write().map_err(|source| io_error(&path, source))?;
        Ok(Self { _file: file, directory: whole })
    }
}

/// A directory that no server gets, and in which nothing was changed for that. Several processes can have one.
#[derive(Debug)]
pub struct KeptOut {
    _locks: Vec<File>,
}

/// Keeps servers out of a directory, unless one has it.
pub(crate) fn keep_out(directory: &Path) -> Result<KeptOut, LockError> {
    let whole = File::open(directory).map_err(|source| io_error(directory, source))?;
    let path = directory.join(LOCK);
    let mut locks = vec![whole];
    match not_followed().open(&path) {
        // A server of an earlier build locks this file only.
        Ok(file) => locks.push(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(io_error(&path, source)),
    }
    let locked = locks.iter().try_for_each(|lock| match lock.try_lock_shared() {
        Err(TryLockError::Error(error)) if is_unknown(&error) => Ok(()),
        locked => locked,
    });
    match (locked, locks.get_mut(1)) {
        (Ok(()), _) => Ok(KeptOut { _locks: locks }),
        (Err(TryLockError::Error(error)), _) => Err(io_error(directory, error)),
        (Err(TryLockError::WouldBlock), Some(text)) => Err(held_by(directory, text)),
        (Err(TryLockError::WouldBlock), None) => {
            Err(LockError::Held { path: directory.into(), pid: None })
        }
    }
}

/// Who has a directory, as its lock says. A process that keeps servers out writes nothing there: what it says may be gone.
fn held_by(directory: &Path, text: &mut File) -> LockError {
    let mut said = String::new();
    let pid = text.read_to_string(&mut said).ok().and_then(|_| said.trim().parse().ok());
    let pid = pid.filter(|pid: &u32| Path::new(&format!("/proc/{pid}")).exists());
    LockError::Held { path: directory.into(), pid }
}

/// How `LOCK` is opened. Its directory may be another user's, who may have put there what leads elsewhere: that is not
/// followed, nor waited for.
fn not_followed() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

/// Opens the file, making it if it is not there.
fn open_lock(path: &Path) -> io::Result<File> {
    not_followed().write(true).create(true).truncate(false).open(path)
}

/// Whether this user could take a directory that nobody has.
pub(crate) fn can_be_taken(directory: &Path) -> Result<(), LockError> {
    let path = directory.join(LOCK);
    match not_followed().write(true).open(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(&path, error)),
        _ => Ok(()),
    }
}

/// Whether a process has locked a directory at the moment. The question itself locks nothing.
pub(crate) fn is_taken(path: &Path) -> Result<bool, LockError> {
    match File::open(path).and_then(|directory| is_marked(&directory)) {
        Ok(false) => {}
        Ok(true) => return Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(io_error(path, source)),
    }
    // A server of an earlier build locks this file only. One of this build waits until this look is over.
    let path = path.join(LOCK);
    let file = match not_followed().open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(io_error(&path, source)),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(source)) => Err(io_error(&path, source)),
    }
}

/// Whether a file system does not know this kind of lock.
fn is_unknown(error: &io::Error) -> bool {
    let errors = [libc::EBADF, libc::EINVAL, libc::ENOLCK, libc::ENOSYS, libc::EOPNOTSUPP];
    error.raw_os_error().is_some_and(|error| errors.contains(&error))
}

/// A lock on all of a file, of the kind that belongs to an open file and that can be asked for without taking it.
fn whole_file(kind: libc::c_int) -> libc::flock {
    // SAFETY: all fields are numbers, for which zero is a value: from the first byte to the last, no process.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock
}

/// Marks a directory that is locked as such, for those who ask.
fn mark(directory: &File) -> io::Result<()> {
    let lock = whole_file(libc::F_RDLCK);
    // SAFETY: an open descriptor and a live struct that the kernel reads.
    if unsafe { libc::fcntl(directory.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if is_unknown(&error) { Ok(()) } else { Err(error) }
}

/// Whether a directory is marked. Takes nothing, so nobody else is kept from it.
fn is_marked(directory: &File) -> io::Result<bool> {
    let mut lock = whole_file(libc::F_WRLCK);
    // SAFETY: an open descriptor and a live struct that the kernel fills.
    if unsafe { libc::fcntl(directory.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } == 0 {
        return Ok(libc::c_int::from(lock.l_type) != libc::F_UNLCK);
    }
    let error = io::Error::last_os_error();
    if is_unknown(&error) { Ok(false) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::log::data_dir::DataDir;
    use std::fs;

    #[test]
    fn one_who_asks_whether_it_is_in_use_keeps_nobody_from_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        let mut data = Some(DataDir::open(path, 1).unwrap());
        let over = std::sync::atomic::AtomicBool::new(false);
        let is_over = || over.load(std::sync::atomic::Ordering::Relaxed);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over() {
                        DataDir::is_held(path).unwrap();
                    }
                });
            }
            for _ in 0..300 {
                drop(data.take());
                let opened = DataDir::open(path, 1);
                over.store(opened.is_err(), std::sync::atomic::Ordering::Relaxed);
                data = Some(opened.unwrap());
                assert!(DataDir::is_held(path).unwrap());
            }
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        drop(data);
        assert!(!DataDir::is_held(path).unwrap());
    }

    #[test]
    fn nothing_in_a_directory_can_be_replaced_to_have_it_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        let held = DataDir::open(path, 1).unwrap();
        fs::remove_file(path.join(LOCK)).unwrap();
        for _ in 0..2 {
            let error = DataDir::open(path, 1).unwrap_err();
            assert!(matches!(error, LockError::Held { .. }), "{error}");
            assert!(matches!(DataDir::keep_out(path), Err(LockError::Held { .. })));
            assert!(DataDir::is_held(path).unwrap());
            fs::write(path.join(LOCK), "").unwrap();
        }
        drop(held);
        assert!(!DataDir::is_held(path).unwrap());
        DataDir::open(path, 1).unwrap();
    }

    #[test]
    fn one_who_keeps_servers_out_changes_nothing_and_keeps_out_no_other_such() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        drop(DataDir::open(path, 1).unwrap());
        for has_lock in [true, false] {
            let said = fs::read(path.join(LOCK)).ok();
            assert_eq!(said.is_some(), has_lock);
            let kept = [DataDir::keep_out(path).unwrap(), DataDir::keep_out(path).unwrap()];
            assert!(!DataDir::is_held(path).unwrap());
            assert_eq!(fs::read(path.join(LOCK)).ok(), said);
            assert!(matches!(DataDir::open(path, 1), Err(LockError::Held { .. })));
            drop(kept);
            drop(DataDir::open(path, 1).unwrap());
            fs::remove_file(path.join(LOCK)).unwrap();
        }
    }

    /// A server of an earlier build locks `LOCK` only.
    #[test]
    fn a_server_of_an_earlier_build_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        drop(DataDir::open(dir.path(), 1).unwrap());
        let earlier = OpenOptions::new().write(true).open(dir.path().join(LOCK)).unwrap();
        earlier.try_lock().unwrap();
        assert!(DataDir::is_held(dir.path()).unwrap());
        assert!(matches!(DataDir::open(dir.path(), 1), Err(LockError::Held { .. })));
        assert!(matches!(DataDir::keep_out(dir.path()), Err(LockError::Held { .. })));
        drop(earlier);
        let own = DataDir::open(dir.path(), 1).unwrap();
        let earlier = OpenOptions::new().write(true).open(dir.path().join(LOCK)).unwrap();
        assert!(matches!(earlier.try_lock(), Err(TryLockError::WouldBlock)));
        drop(own);
    }
}
