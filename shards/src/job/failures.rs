//! Where the log tells how earlier attempts of jobs failed, for those who look at a job between two attempts or after them.
//!
//! Only jobs of which an attempt has failed have an entry, which is why this is a map beside the jobs and no field of them. An
//! entry is bounded by number and by bytes of its records: the oldest attempts are forgotten. The records are needed for as long
//! as the entry points to them, so they survive compaction as the lines of a job's log do. Those of all jobs together are bounded
//! as well ([`crate::Config`]), since they take space that jobs could have: beyond it, no other attempt is remembered.

use crate::collections::count::Count;
use crate::compaction::live_bytes::bytes_of;
use crate::log_record::location::LogRef;
use std::collections::BTreeMap;

/// Failed attempts that are remembered of a job, beside the one that buried it: the newest.
pub const FAILURES_MAX: usize = 20;

/// Bytes of the records of a job's remembered attempts together. The newest is always remembered.
pub const FAILURES_BYTES_MAX: u64 = 16 << 10;

/// Bytes that are remembered of the reason of an attempt that another follows.
pub const REASON_BYTES_MAX: usize = 8 << 10;

/// Bytes that are remembered of an attempt's stack: as many of its first lines as have room.
pub const STACK_BYTES_MAX: usize = 4 << 10;

/// The failed attempts of all jobs, oldest first of each.
#[derive(Default)]
pub(crate) struct Failures {
    by_job: BTreeMap<u32, Box<[LogRef]>>,
    all: Remembered,
}

/// How many failed attempts are remembered, and what their records take of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remembered {
    /// How many there are.
    pub count: u64,
    /// Bytes of their records.
    pub bytes: u64,
}

impl Remembered {
    fn add(&mut self, some: &[LogRef]) {
        self.count += some.len() as u64;
        self.bytes += some.iter().map(bytes_of).sum::<u64>();
    }

    fn sub(&mut self, some: &[LogRef]) {
        self.count.take_out(some.len() as u64);
        self.bytes.take_out(some.iter().map(bytes_of).sum());
    }
}

impl Failures {
    /// Remembered failures of a job, oldest first.
    pub(crate) fn of(&self, job: u32) -> &[LogRef] {
        self.by_job.get(&job).map_or(&[], |failures| failures)
    }

    /// Remembers a failed attempt. Returns the failures that are forgotten for it.
    pub(crate) fn note(&mut self, job: u32, stored: LogRef) -> Box<[LogRef]> {
        let known = self.by_job.entry(job).or_default();
        let all: Vec<LogRef> = known.iter().copied().chain([stored]).collect();
        let bytes = |some: &[LogRef]| some.iter().map(|it| u64::from(it.record_bytes)).sum::<u64>();
        let mut first = all.len().saturating_sub(FAILURES_MAX);
        while first + 1 < all.len() && bytes(&all[first..]) > FAILURES_BYTES_MAX {
            first += 1;
        }
        *known = all[first..].into();
        self.all.add(&[stored]);
        self.all.sub(&all[..first]);
        all[..first].into()
    }

    /// All of them.
    pub(crate) fn remembered(&self) -> Remembered {
        self.all
    }

    /// Sets the failures of a job that was written again.
    pub(crate) fn set(&mut self, job: u32, failures: Box<[LogRef]>) {
        if !failures.is_empty() {
            self.all.add(&failures);
            self.by_job.insert(job, failures);
        }
    }

    /// Takes out the failures of a job that needs them no more.
    pub(crate) fn take(&mut self, job: u32) -> Box<[LogRef]> {
        let failures = self.by_job.remove(&job).unwrap_or_default();
        self.all.sub(&failures);
        failures
    }

    /// Follows a record from `from` to `to`. Returns its earlier location, if it is a failure of the job.
    pub(crate) fn relocate(&mut self, job: u32, from: u64, to: LogRef) -> Option<LogRef> {
        let mut known = self.by_job.get_mut(&job)?.iter_mut();
        let stored = known.find(|stored| stored.position == from)?;
        let before = std::mem::replace(stored, to);
        self.all.sub(&[before]);
        self.all.add(&[to]);
        Some(before)
    }

    /// All, by job.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &[LogRef])> {
        self.by_job.iter().map(|(job, failures)| (*job, &**failures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(position: u64, record_bytes: u32) -> LogRef {
        LogRef { position, record_bytes, payload_bytes: 1 }
    }

    fn positions(failures: &[LogRef]) -> Vec<u64> {
        failures.iter().map(|it| it.position).collect()
    }

    #[test]
    fn the_newest_attempts_are_remembered_and_no_more_than_have_room() {
        let mut failures = Failures::default();
        for position in 0..30 {
            let gone = failures.note(7, stored(position, 100));
            let expected: Vec<u64> = position.checked_sub(20).into_iter().collect();
            assert_eq!(positions(&gone), expected);
        }
        assert_eq!(positions(failures.of(7)), (10..30).collect::<Vec<u64>>());
        assert!(failures.of(8).is_empty());
        let gone = failures.note(7, stored(30, 16 << 10));
        assert_eq!((gone.len(), positions(failures.of(7))), (20, vec![30]), "no other has room");
        let gone = failures.note(7, stored(31, 32 << 10));
        assert_eq!((gone.len(), positions(failures.of(7))), (1, vec![31]), "the newest stays");
        assert_eq!(positions(&failures.take(7)), [31]);
        assert_eq!(failures.iter().count(), 0);
        assert_eq!(failures.remembered(), Remembered::default());
    }

    #[test]
    fn what_all_take_is_known_also_after_they_moved() {
        let mut failures = Failures::default();
        failures.note(1, stored(10, 100));
        failures.set(2, [stored(20, 50), stored(30, 60)].into());
        let known =
            |failures: &Failures| (failures.remembered().count, failures.remembered().bytes);
        assert_eq!(known(&failures), (3, 210 + 3 * 8));
        assert_eq!(failures.relocate(2, 10, stored(40, 70)), None, "it is another job's");
        assert_eq!(failures.relocate(2, 30, stored(40, 86)), Some(stored(30, 60)));
        assert_eq!(known(&failures), (3, 236 + 3 * 8));
        failures.take(2);
        assert_eq!(known(&failures), (1, 108));
    }
}
