//! Payloads that more than one job has: those of a repeated job, whose runs all point to the record
//! that the first of them came in. Kept by address, so that the record can be moved in one step
//! however many jobs share it.

use crate::collections::count::Count;
use crate::collections::slab::{NONE, Slab};
use crate::log_record::location::LogRef;
use std::collections::BTreeMap;

/// A record whose payload jobs share.
#[derive(Clone, Copy, Default, Debug)]
struct Share {
    stored: LogRef,
    /// Jobs that point to it.
    jobs: u32,
}

/// The place of a share, for the jobs that have it. Says nothing when it is shown: where it stands
/// differs between a live shard and one that has replayed the same log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ShareRef(u32);

impl Default for ShareRef {
    fn default() -> Self {
        Self(NONE)
    }
}

impl std::fmt::Debug for ShareRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0 == NONE { "own" } else { "shared" })
    }
}

/// Payloads that several jobs share, each with the number of its jobs.
#[derive(Default)]
pub struct Shares {
    slab: Slab<Share>,
    by_position: BTreeMap<u64, u32>,
}

impl Shares {
    /// Adds a job that shares `stored`. True if it is the first.
    pub fn join(&mut self, stored: LogRef) -> (ShareRef, bool) {
        let slab = &mut self.slab;
        let place = self.by_position.entry(stored.position);
        let place = *place.or_insert_with(|| slab.insert(Share { stored, jobs: 0 }));
        self.slab[place].jobs += 1;
        (ShareRef(place), self.slab[place].jobs == 1)
    }

    /// A job shares it no longer. Its record, if that was the last.
    pub fn leave(&mut self, share: ShareRef) -> Option<LogRef> {
        let ShareRef(place) = share;
        self.slab[place].jobs.take_out(1);
        if self.slab[place].jobs > 0 {
            return None;
        }
        let stored = self.slab.remove(place).stored;
        self.by_position.remove(&stored.position);
        Some(stored)
    }

    /// Where the record lies.
    pub fn stored(&self, share: ShareRef) -> LogRef {
        self.slab[share.0].stored
    }

    /// The record at `position`, if jobs share it.
    pub fn at(&self, position: u64) -> Option<LogRef> {
        self.by_position.get(&position).map(|&place| self.slab[place].stored)
    }

    /// The record at `from`, if jobs share it, lies at `to` from now on. Returns it as it lay before.
    pub fn relocate(&mut self, from: u64, to: LogRef) -> Option<LogRef> {
        let place = self.by_position.remove(&from)?;
        self.by_position.insert(to.position, place);
        Some(std::mem::replace(&mut self.slab[place].stored, to))
    }

    /// Every record that is shared.
    pub fn records(&self) -> impl Iterator<Item = LogRef> {
        (0..self.slab.end())
            .map(|place| *self.slab.peek(place))
            .filter(|it| it.jobs > 0)
            .map(|it| it.stored)
    }

    /// How many jobs share something.
    pub fn jobs(&self) -> u64 {
        (0..self.slab.end()).map(|place| u64::from(self.slab.peek(place).jobs)).sum()
    }
}
