//! Signals from outside, taken by the main thread and by no other.
//!
//! Block before the first thread starts, since threads inherit what is blocked. Does not know what
//! a stop means.
#![allow(unsafe_code)] // Signal masks are system calls on plain memory.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// What the process was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: an operator or a service manager.
    Terminate,
    /// SIGINT: a person at a terminal.
    Interrupt,
    /// SIGHUP: a terminal that has gone, or somebody who wants files to be read again.
    Hangup,
}

/// The blocked signals, to be waited for.
pub struct Signals(libc::sigset_t);

impl Signals {
    /// Blocks SIGTERM, SIGINT and SIGHUP in this thread and all that it starts, and ignores SIGPIPE.
    pub fn block() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` initialises the set before anything reads it; the other calls get
        // that set, or no memory at all.
        let (set, error) = unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGHUP);
            let set = set.assume_init();
            (set, libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))
        };
        if error == 0 { Ok(Self(set)) } else { Err(io::Error::from_raw_os_error(error)) }
    }

    /// Sleeps until one of them comes, at most for so long.
    pub fn wait_for(&self, limit: Duration) -> io::Result<Option<Signal>> {
        let limit = libc::timespec {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(limit.subsec_nanos()),
        };
        // SAFETY: an initialised set, no room for details, and a live time.
        match unsafe {
            libc::sigtimedwait(&raw const self.0, std::ptr::null_mut(), &raw const limit)
        } {
            libc::SIGINT => Ok(Some(Signal::Interrupt)),
            libc::SIGHUP => Ok(Some(Signal::Hangup)),
            -1 => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EAGAIN) => Ok(None),
                error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
                error => Err(error),
            },
            _ => Ok(Some(Signal::Terminate)),
        }
    }

    /// Sleeps until one of them comes.
    pub fn wait(&self) -> io::Result<Signal> {
        loop {
            let mut number = 0;
            // SAFETY: an initialised set and a live integer.
            match unsafe { libc::sigwait(&raw const self.0, &raw mut number) } {
                0 if number == libc::SIGINT => return Ok(Signal::Interrupt),
                0 if number == libc::SIGHUP => return Ok(Signal::Hangup),
                0 => return Ok(Signal::Terminate),
                libc::EINTR => {}
                error => return Err(io::Error::from_raw_os_error(error)),
            }
        }
    }
}

/// Makes the main thread's wait end as if the process had got SIGTERM: how a failed shard asks for
/// the end of the others.
pub fn request_stop() {
    // SAFETY: no memory is involved; the process signals itself.
    unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
}
