//! Completed jobs that are forgotten: a bounded memory of their ids, so that a job pushed a little too
//! late may still name one as its dependency. Derived from the log like the jobs themselves.
//!
//! Remembering costs one sequential store, since every job may pass through here; the index is only
//! brought up to date when somebody asks.

use crate::directory::PAST_NAMES_MAX;
use crate::id::{IdMap, JobId};
use std::collections::VecDeque;

/// Ids remembered, newest first.
pub const PAST_MAX: usize = 100_000;

/// See the module.
#[derive(Default)]
pub struct Past {
    /// The number of an id, modulo [`PAST_MAX`], is its place.
    ring: Vec<JobId>,
    /// Ids noted so far; the number of the next one.
    noted: u64,
    index: IdMap<u64>,
    /// Ids below this number are in the index, or are remembered no more.
    indexed: u64,
    /// Custom ids found at recovery, oldest first.
    names: VecDeque<(Box<str>, JobId)>,
}

impl Past {
    /// Remembers a job that was completed and is forgotten now.
    pub fn note(&mut self, id: JobId) {
        if self.ring.capacity() == 0 {
            // Once for all: nothing is allocated or moved while jobs are being completed.
            self.ring.reserve_exact(PAST_MAX);
        }
        let place = self.noted as usize % PAST_MAX;
        match self.ring.get_mut(place) {
            Some(oldest) => *oldest = id,
            None => self.ring.push(id),
        }
        self.noted += 1;
    }

    /// Remembers the custom id of such a job, for the directory to be told of after recovery.
    pub fn note_name(&mut self, name: Box<str>, id: JobId) {
        if self.names.len() == PAST_NAMES_MAX {
            self.names.pop_front();
        }
        self.names.push_back((name, id));
    }

    /// Hands out the custom ids.
    pub fn take_names(&mut self) -> VecDeque<(Box<str>, JobId)> {
        std::mem::take(&mut self.names)
    }

    /// Whether the job was completed, as far as is remembered.
    pub fn has(&mut self, id: JobId) -> bool {
        let oldest = self.noted.saturating_sub(PAST_MAX as u64);
        if self.index.len() >= 2 * PAST_MAX {
            // At least half of it is too old by now.
            self.index.clear();
            self.indexed = oldest;
        }
        for number in self.indexed.max(oldest)..self.noted {
            self.index.insert(self.ring[number as usize % PAST_MAX], number);
        }
        self.indexed = self.noted;
        self.index.get(&id).is_some_and(|&number| number >= oldest)
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.ring.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_remembered_and_the_index_stays_bounded() {
        let mut past = Past::default();
        let reach = PAST_MAX as u128;
        for id in 0..5 * reach {
            past.note(JobId(id));
            if id % 1000 == 0 {
                assert!(past.has(JobId(id)) && !past.has(JobId(id + 1)), "{id}");
                assert!(past.has(JobId(id.saturating_sub(reach - 1))), "{id}");
                assert!(id < reach || !past.has(JobId(id - reach)), "{id}");
            }
        }
        assert!(past.len() == PAST_MAX && past.index.len() <= 2 * PAST_MAX);
    }
}
