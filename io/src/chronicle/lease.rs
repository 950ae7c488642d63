//! How long a node may speak for what it owns: a part of the lease behind the moment at which its last beat was sent.
//!
//! Another node declares this one dead when it has seen the same beat for a whole lease, by its own clock. So no clock of one
//! machine is compared with that of another: they only have to run about equally fast.
#![allow(unsafe_code)] // The clock has no wrapper in std.

use std::sync::atomic::{AtomicU64, Ordering};

/// Milliseconds since the machine was started, also those in which it slept.
fn boot_ms() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a system call that fills a value of this thread.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Shared by the thread that beats and all shards.
#[derive(Debug)]
pub struct Lease {
    lease_ms: u64,
    good_until_ms: AtomicU64,
}

impl Lease {
    /// A lease that is not good before the first beat.
    pub fn new(lease_ms: u64) -> Self {
        Self { lease_ms, good_until_ms: AtomicU64::new(0) }
    }

    /// How long it is.
    pub fn ms(&self) -> u64 {
        self.lease_ms
    }

    /// The time for [`Lease::beaten`], to be taken before a beat is sent.
    pub fn now_ms() -> u64 {
        boot_ms()
    }

    /// A beat that was sent at this time has reached the database.
    pub fn beaten(&self, sent_ms: u64) {
        self.good_until_ms.store(sent_ms + self.lease_ms * 7 / 10, Ordering::Release);
    }

    /// The node may not speak, though it is alive.
    pub fn withdraw(&self) {
        self.good_until_ms.store(0, Ordering::Release);
    }

    /// Whether the node may speak.
    pub fn is_good(&self) -> bool {
        boot_ms() < self.good_until_ms.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_good_for_a_part_of_it_after_a_beat_was_sent() {
        let lease = Lease::new(10_000);
        assert!(!lease.is_good());
        lease.beaten(boot_ms());
        assert!(lease.is_good());
        lease.beaten(boot_ms() - 7_000);
        assert!(!lease.is_good());
        lease.beaten(boot_ms());
        lease.withdraw();
        assert!(!lease.is_good());
    }
}
