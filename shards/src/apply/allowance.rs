//! How much of what one command brings about for others is done before the next step of time, by all commands
//! together. What is beyond it waits for that step, so that no command and no crowd of them makes a turn long.

use crate::shard::SLICE;

/// Remaining work until the next step of time, by kind; each part is counted down.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Notices to the shards of other jobs of what jobs here wait for.
    pub(crate) news: u64,
    /// Notices of the end of a job to its dependents. Apart from `news`, which new jobs can keep used up: dependents
    /// that have waited would never continue.
    pub(crate) tells: u64,
    /// Answers to those who wait for the end of a job.
    pub(crate) ends: u64,
    /// Jobs of connections that are gone, which go back.
    pub(crate) releases: u64,
    /// Groups that are looked at since limits that pulls bring have changed.
    pub(crate) looks: u64,
    /// Jobs that go to pulls which have waited for them.
    pub(crate) deliveries: u64,
    /// Groups whose time has come.
    pub(crate) wakes: u64,
}

/// Groups looked at between two steps of time.
const LOOKS: u64 = 4 * SLICE;

impl Default for Allowance {
    fn default() -> Self {
        Self {
            news: SLICE,
            tells: SLICE,
            ends: SLICE,
            releases: SLICE,
            wakes: SLICE,
            looks: LOOKS,
            deliveries: 2 * SLICE,
        }
    }
}

/// Takes one of what is left; false if nothing is.
pub(crate) fn take(left: &mut u64) -> bool {
    let some = *left > 0;
    *left -= u64::from(some);
    some
}
