//! Support for tests of the real server: the server itself on free ports (`Server`), a client that shares no code with
//! it (`Client`), and waiting for a condition (`until`).
//!
//! Each test binary takes its own part of this, hence the allowance for what it leaves.
#![allow(dead_code, unused_imports)]

pub(crate) mod client;
mod codes;
pub(crate) mod common;
pub(crate) mod database;
mod http;
mod mount;
mod port;
pub(crate) mod proxy;
mod receiver;
mod server;
pub(crate) mod stream;
pub(crate) mod terminal;
pub(crate) mod tool;

use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) use client::{Client, decode, encode, frame};
pub(crate) use http::{Answer, Http};
pub(crate) use mount::Mount;
pub(crate) use port::free_port;
pub(crate) use receiver::{Habit, Post, Receiver};
pub(crate) use server::{Server, Start, get, program, segments};

/// How long a condition may take. Generous, because a loaded machine is not a broken server.
pub(crate) const DEADLINE: Duration = Duration::from_mins(5);

/// How long one call to the server waits for a job or an end: less than it allows.
pub(crate) const WAIT: Duration = Duration::from_secs(30);

/// Copies a directory with all below it.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, copied) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &copied);
        } else {
            std::fs::copy(&path, &copied).unwrap();
        }
    }
}

/// Waits until `probe` answers something; panics with `what` when the deadline passes.
pub(crate) fn until<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    until_within(DEADLINE, what, probe)
}

pub(crate) fn until_within<T>(
    deadline: Duration,
    what: &str,
    mut probe: impl FnMut() -> Option<T>,
) -> T {
    let start = Instant::now();
    while start.elapsed() < deadline {
        if let Some(found) = probe() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("waited {deadline:?} in vain: {what}");
}

/// Numbers that look random and are the same for the same seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`.
    pub(crate) fn roll(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound.max(1)
    }
}
