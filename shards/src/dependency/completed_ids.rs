//! Completed jobs that are forgotten: a bounded memory of their ids, so that a job pushed a little too
//! late may still name one as its dependency. Derived from the log like the jobs themselves.
//!
//! Every job may pass through here, so remembering costs one store in a row and nothing else: ids lie in a ring. Few
//! servers have dependencies, so an id is put into the index only when the next one is asked for: by then those of one
//! hash are linked from the newest to the oldest. What the ring has written over ends the walk, so nothing is ever
//! taken out.
//!
//! When the beginning of the log goes, ids of which only that told are told again. Which those are is
//! known by ranges of them, each with the lowest address from which a replay would learn of all.

use crate::collections::hash_key::HashKey;
use crate::dependency::completed_names::CompletedNames;
use crate::job::id::JobId;
use std::ops::Range;

/// Ids remembered, newest first.
pub const COMPLETED_IDS_MAX: usize = 100_000;

/// Hashes that are told apart.
const HASHES: usize = 1 << 16;

/// Ids that one question puts into the index. What is left is looked through, one by one.
const INDEXED_PER_LOOK: u64 = 4096;

/// Ids told again by one record.
const BATCH: u64 = 256;

/// The ids of completed jobs, within a bound.
pub struct CompletedIds {
    /// The number of an id, modulo [`COMPLETED_IDS_MAX`], is its place.
    ring: Vec<JobId>,
    /// Ids noted so far; the number of the next one.
    noted: u64,
    key: HashKey,
    /// Ids below this number are in the index.
    indexed: u64,
    /// By hash, the number of the newest id in the index, its lowest 32 bits. Empty before the first question.
    newest: Vec<u32>,
    /// By place in the ring, how far behind its id the one before of its hash is; as far as the very first of all, if
    /// there is none.
    before: Vec<u32>,
    /// The custom ids of those that had any.
    pub names: CompletedNames,
    /// Ids below this number are told from `closed_from` on, the others from `open_from` on.
    closed: u64,
    closed_from: u64,
    open_from: u64,
    /// Numbers of ids that are being told again.
    retelling: Range<u64>,
}

impl CompletedIds {
    /// Nothing is remembered.
    pub fn new(key: HashKey) -> Self {
        Self {
            ring: Vec::new(),
            noted: 0,
            key,
            indexed: 0,
            newest: Vec::new(),
            before: Vec::new(),
            names: CompletedNames::new(),
            closed: 0,
            closed_from: u64::MAX,
            open_from: u64::MAX,
            retelling: 0..0,
        }
    }

    /// Remembers a job that was completed and is forgotten now. A replay of the log from `told_from`
    /// on learns of it.
    pub fn note(&mut self, id: JobId, told_from: u64) {
        self.open_from = self.open_from.min(told_from);
        if self.ring.capacity() == 0 {
            // Once for all: nothing is allocated or moved while jobs are being completed.
            self.ring.reserve_exact(COMPLETED_IDS_MAX);
        }
        match self.ring.get_mut(place_of(self.noted)) {
            Some(oldest) => *oldest = id,
            None => self.ring.push(id),
        }
        self.noted += 1;
    }

    /// Whether the job was completed, as far as is remembered.
    pub fn has(&mut self, id: JobId) -> bool {
        self.index_some();
        self.walk(id).any(|known| known == id)
            || self.numbers(self.indexed).any(|other| other == id)
    }

    /// Puts ids into the index that have come since it was asked last.
    fn index_some(&mut self) {
        self.indexed = self.indexed.max(self.oldest());
        let until = self.noted.min(self.indexed + INDEXED_PER_LOOK);
        if self.newest.is_empty() && self.indexed < until {
            (self.newest, self.before) = (vec![0; HASHES], vec![0; COMPLETED_IDS_MAX]);
        }
        for number in self.indexed..until {
            let place = place_of(number);
            let newest =
                &mut self.newest[self.key.number(folded(self.ring[place])) as usize % HASHES];
            self.before[place] = (number as u32).wrapping_sub(*newest);
            *newest = number as u32;
        }
        self.indexed = until;
    }

    /// Indexed ids with the same hash as an id, newest first.
    fn walk(&self, id: JobId) -> impl Iterator<Item = JobId> {
        let newest = self.newest.get(self.key.number(folded(id)) as usize % HASHES);
        let behind = newest.map(|&newest| (self.noted as u32).wrapping_sub(newest));
        let at = move |behind: u32| {
            let number = self.noted.checked_sub(u64::from(behind))?;
            (behind > 0 && number >= self.oldest()).then(|| (behind, place_of(number)))
        };
        let before = move |&(behind, place): &(u32, usize)| {
            // Distances grow, so the walk ends; zero is that of the very first id.
            let before = self.before[place];
            at(behind.checked_add(before).filter(|_| before > 0)?)
        };
        std::iter::successors(behind.and_then(at), before).map(|(_, place)| self.ring[place])
    }

    /// Remembered ids with this number or a higher one, in order.
    fn numbers(&self, from: u64) -> impl DoubleEndedIterator<Item = JobId> {
        (from.max(self.oldest())..self.noted).map(|number| self.ring[place_of(number)])
    }

    /// The number of the oldest id that is remembered.
    fn oldest(&self) -> u64 {
        self.noted.saturating_sub(COMPLETED_IDS_MAX as u64)
    }

    /// A few ids of which a replay from `until` on would not learn; none if there are no more. They
    /// are to be told again, see [`CompletedIds::recorded_at`].
    pub fn recorded_before(&mut self, until: u64) -> Vec<JobId> {
        if self.retelling.is_empty() {
            let (closed, open) = (self.closed_from < until, self.open_from < until);
            let first = if closed { 0 } else { self.closed };
            if closed {
                self.closed_from = u64::MAX;
            }
            if open {
                (self.closed, self.open_from) = (self.noted, u64::MAX);
            }
            self.retelling = first..self.closed;
            if !closed && !open {
                self.retelling = 0..0;
            }
        }
        let start = self.retelling.start.max(self.oldest());
        let end = (start + BATCH).min(self.retelling.end);
        self.retelling.start = end;
        (start..end).map(|number| self.ring[place_of(number)]).collect()
    }

    /// The record that tells of the ids of the last [`CompletedIds::recorded_before`] lies there.
    pub fn recorded_at(&mut self, position: u64) {
        self.closed_from = self.closed_from.min(position);
    }

    /// Remembered ids, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = JobId> {
        self.numbers(0).rev()
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.ring.len()
    }
}

/// Where the id of a number lies.
fn place_of(number: u64) -> usize {
    number as usize % COMPLETED_IDS_MAX
}

/// An id in 64 bits, among which all those are that differ between the ids of a shard.
fn folded(id: JobId) -> u64 {
    (id.0 as u64) ^ ((id.0 >> 64) as u64).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: HashKey = HashKey::new(0x0000_5eed_0000_9a57_0000_0001_0000_0001);

    #[test]
    fn the_newest_are_remembered_and_those_that_are_asked_for_are_few_steps_away() {
        let mut completed_ids = CompletedIds::new(KEY);
        let reach = COMPLETED_IDS_MAX as u128;
        for id in 0..5 * reach {
            completed_ids.note(JobId(id), 0);
            if id % 1000 == 0 {
                assert!(completed_ids.has(JobId(id)) && !completed_ids.has(JobId(id + 1)), "{id}");
                assert!(completed_ids.has(JobId(id.saturating_sub(reach - 1))), "{id}");
                assert!(id < reach || !completed_ids.has(JobId(id - reach)), "{id}");
            }
        }
        completed_ids.has(JobId(0));
        assert!(completed_ids.len() == COMPLETED_IDS_MAX && completed_ids.newest.len() == HASHES);
        let longest = (0..6 * reach).map(|id| completed_ids.walk(JobId(id)).count()).max();
        assert!(longest < Some(20), "{longest:?}");
    }

    /// Guards against an index that is kept where nobody asks, a first question that costs as much as all of it, and
    /// ids that are in neither the index nor the rest.
    #[test]
    fn ids_are_indexed_when_they_are_asked_for_so_many_at_a_time_and_found_all_along() {
        let mut completed_ids = CompletedIds::new(KEY);
        let reach = COMPLETED_IDS_MAX as u128;
        assert!(!completed_ids.has(JobId(0)) && completed_ids.newest.is_empty());
        for (first, last) in [(0, 10), (10, reach), (reach, 4 * reach), (4 * reach, 4 * reach + 7)]
        {
            for id in first..last {
                completed_ids.note(JobId(id), 0);
            }
            let oldest = last.saturating_sub(reach);
            let asked = [oldest, oldest + 1, u128::midpoint(oldest, last), last - 1];
            for ask in 0..120 {
                let before = completed_ids.indexed.max(completed_ids.oldest());
                assert!(completed_ids.has(JobId(asked[ask % asked.len()])), "{last}, {ask}");
                assert!(completed_ids.indexed - before <= INDEXED_PER_LOOK);
                assert!(!completed_ids.has(JobId(last)));
                assert!(oldest == 0 || !completed_ids.has(JobId(oldest - 1)));
            }
            assert_eq!(completed_ids.indexed, completed_ids.noted, "all that is left is nothing");
        }
    }

    /// Tells what has to be told again, as the end of the log at `head`; returns the ids.
    fn retell(completed_ids: &mut CompletedIds, until: u64, head: u64) -> Vec<u128> {
        let mut told = Vec::new();
        loop {
            let ids = completed_ids.recorded_before(until);
            if ids.is_empty() {
                return told;
            }
            assert!(ids.len() <= BATCH as usize);
            completed_ids.recorded_at(head);
            told.extend(ids.into_iter().map(|id| id.0));
        }
    }

    #[test]
    fn what_only_the_beginning_of_the_log_tells_is_told_again_and_nothing_else() {
        let mut completed_ids = CompletedIds::new(KEY);
        assert!(completed_ids.recorded_before(u64::MAX).is_empty());
        for id in 0..1000 {
            completed_ids.note(JobId(id), 100 + id as u64 / 10);
        }
        assert!(retell(&mut completed_ids, 100, 300).is_empty(), "all of it is still told");
        assert_eq!(retell(&mut completed_ids, 101, 300), (0..1000).collect::<Vec<_>>());
        for id in 1000..1100 {
            completed_ids.note(JobId(id), 250);
        }
        assert!(retell(&mut completed_ids, 250, 400).is_empty());
        // The older ones are told at 300 now.
        assert_eq!(retell(&mut completed_ids, 251, 400), (1000..1100).collect::<Vec<_>>());
        completed_ids.note(JobId(2000), 1000);
        assert_eq!(retell(&mut completed_ids, 301, 600), (0..1100).collect::<Vec<_>>());
        let reach = COMPLETED_IDS_MAX as u128;
        for id in 3000..3000 + reach {
            completed_ids.note(JobId(id), 1000);
        }
        assert!(retell(&mut completed_ids, 900, 1100).is_empty(), "what is forgotten is not told");
        assert!(retell(&mut completed_ids, 1001, 1200).into_iter().eq(3000..3000 + reach));
    }

    #[test]
    fn what_is_noted_while_others_are_told_again_is_not_lost() {
        let mut completed_ids = CompletedIds::new(KEY);
        for id in 0..600 {
            completed_ids.note(JobId(id), 10);
        }
        let mut told = completed_ids.recorded_before(11).len();
        completed_ids.recorded_at(20);
        for id in 600..700 {
            completed_ids.note(JobId(id), 15);
        }
        told += retell(&mut completed_ids, 11, 21).len();
        assert_eq!(told, 600);
        assert!(retell(&mut completed_ids, 15, 30).is_empty());
        assert_eq!(retell(&mut completed_ids, 16, 30), (600..700).collect::<Vec<_>>());
        assert_eq!(retell(&mut completed_ids, 21, 40), (0..700).collect::<Vec<_>>());
    }
}
