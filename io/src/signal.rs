//! Signals from outside, taken by the main thread and by no other.
//!
//! Block before the first thread starts, since threads inherit what is blocked. Does not know what
//! a stop means.
#![allow(unsafe_code)] // Signal masks are system calls on plain memory.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::time::Duration;

/// A signal that the process got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: an operator or a service manager.
    Terminate,
    /// SIGINT: a person at a terminal.
    Interrupt,
    /// SIGQUIT: the same, in a hurry.
    Quit,
    /// SIGPWR: the power fails, or a container is to end.
    Power,
    /// SIGHUP: a terminal that has gone, or a wish that files are read again.
    Hangup,
    /// Any other that would end a process by default, by its number.
    Other(libc::c_int),
}

/// Signals that end a process by default and say nothing about a fault of it: a supervisor or an operator sends them by
/// mistake, or a limit on the process does.
const STRAY: [(libc::c_int, &str); 9] = [
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGUSR2, "SIGUSR2"),
    (libc::SIGALRM, "SIGALRM"),
    (libc::SIGVTALRM, "SIGVTALRM"),
    (libc::SIGPROF, "SIGPROF"),
    (libc::SIGIO, "SIGIO"),
    (libc::SIGSTKFLT, "SIGSTKFLT"),
    (libc::SIGXCPU, "SIGXCPU"),
    (libc::SIGXFSZ, "SIGXFSZ"),
];

/// Real-time signals, which have no meaning of their own. The C library keeps the two below for itself.
fn real_time() -> RangeInclusive<libc::c_int> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}

impl Signal {
    fn of(number: libc::c_int) -> Self {
        match number {
            libc::SIGTERM => Self::Terminate,
            libc::SIGINT => Self::Interrupt,
            libc::SIGQUIT => Self::Quit,
            libc::SIGPWR => Self::Power,
            libc::SIGHUP => Self::Hangup,
            number => Self::Other(number),
        }
    }

    /// Whether the end is wanted by it.
    pub fn is_stop(self) -> bool {
        matches!(self, Self::Terminate | Self::Interrupt | Self::Quit | Self::Power)
    }
}

/// Writes the name of the signal.
impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = match self {
            Self::Terminate => return f.write_str("SIGTERM"),
            Self::Interrupt => return f.write_str("SIGINT"),
            Self::Quit => return f.write_str("SIGQUIT"),
            Self::Power => return f.write_str("SIGPWR"),
            Self::Hangup => return f.write_str("SIGHUP"),
            Self::Other(number) => *number,
        };
        match STRAY.iter().find(|(known, _)| *known == number) {
            Some((_, name)) => f.write_str(name),
            None if real_time().contains(&number) => {
                write!(f, "SIGRTMIN+{}", number - libc::SIGRTMIN())
            }
            None => write!(f, "signal {number}"),
        }
    }
}

/// The blocked signals, to be waited for.
pub struct Signals(libc::sigset_t);

impl Signals {
    /// Blocks all that end a process by default in this thread and all that it starts, and ignores SIGPIPE. Left out
    /// are SIGKILL, which cannot be blocked, and those that tell of a fault of the process itself.
    pub fn block() -> io::Result<Self> {
        let named = [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGPWR, libc::SIGHUP];
        let numbers = named.into_iter().chain(STRAY.map(|(number, _)| number)).chain(real_time());
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` initialises the set before anything reads it; the other calls get
        // that set, or no memory at all.
        let (set, error) = unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            libc::sigemptyset(set.as_mut_ptr());
            for number in numbers {
                libc::sigaddset(set.as_mut_ptr(), number);
            }
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
            -1 => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EAGAIN) => Ok(None),
                error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
                error => Err(error),
            },
            number => Ok(Some(Signal::of(number))),
        }
    }

    /// Sleeps until one of them comes.
    pub fn wait(&self) -> io::Result<Signal> {
        loop {
            let mut number = 0;
            // SAFETY: an initialised set and a live integer.
            match unsafe { libc::sigwait(&raw const self.0, &raw mut number) } {
                0 => return Ok(Signal::of(number)),
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
