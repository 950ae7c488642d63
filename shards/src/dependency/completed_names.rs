//! Custom ids of completed jobs that are forgotten: what a start tells the directory of custom ids, so that a job pushed a
//! little too late may still name one as its dependency. Derived from the log like the jobs themselves.
//!
//! When the beginning of the log goes, names that only it tells are written again. While it runs, the directory keeps its own
//! memory of them ([`crate::dependency::custom_ids`]).

use crate::job::id::JobId;
use std::collections::{BTreeMap, VecDeque};

/// Names remembered after their jobs are gone.
pub const COMPLETED_NAMES_MAX: usize = 20_000;

/// Names written again by one record.
const BATCH: usize = 256;

/// Names looked at for that at a time.
const LOOKS: u64 = 2048;

/// Bytes of a name in a record besides its text: the id, and its length.
const NAME_BYTES: u64 = 16 + 2;

struct Named {
    name: Box<str>,
    id: JobId,
    /// A replay of the log from there on learns of it.
    told_from: u64,
}

/// Custom ids of completed jobs, within a bound.
pub struct CompletedNames {
    /// Oldest first.
    names: VecDeque<Named>,
    /// The number of each, which is its place plus `gone`.
    by_id: BTreeMap<JobId, u64>,
    /// How many have been forgotten: the number of the oldest.
    gone: u64,
    /// Bytes of all names in the log.
    bytes: u64,
    /// No name needs a replay from further back.
    told_from: u64,
    retelling: Retelling,
}

/// How far the search for names that have to be written again has come.
#[derive(Default)]
struct Retelling {
    /// Which names are searched: those of which only records before this address tell.
    until: u64,
    /// The number of the next that is looked at.
    next: u64,
    /// The lowest address from which a replay learns of one of those before it.
    lowest: u64,
    /// The numbers of those that are being written.
    numbers: Vec<u64>,
}

impl CompletedNames {
    /// Nothing is remembered.
    pub fn new() -> Self {
        Self {
            names: VecDeque::new(),
            by_id: BTreeMap::new(),
            gone: 0,
            bytes: 0,
            told_from: u64::MAX,
            retelling: Retelling::default(),
        }
    }

    /// Remembers the custom id of a job. A replay of the log from `told_from` on learns of it.
    pub fn note(&mut self, name: Box<str>, id: JobId, told_from: u64) {
        if let Some(&number) = self.by_id.get(&id) {
            // Two records may tell of it: the later one is there for longer.
            let known = &mut self.names[(number - self.gone) as usize];
            known.told_from = known.told_from.max(told_from);
            return;
        }
        if self.names.len() == COMPLETED_NAMES_MAX
            && let Some(oldest) = self.names.pop_front()
        {
            self.gone += 1;
            self.bytes -= bytes_of(&oldest.name);
            self.by_id.remove(&oldest.id);
        }
        self.bytes += bytes_of(&name);
        self.told_from = self.told_from.min(told_from);
        self.by_id.insert(id, self.gone + self.names.len() as u64);
        self.names.push_back(Named { name, id, told_from });
    }

    /// All that are remembered, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, JobId)> {
        self.names.iter().map(|named| (&*named.name, named.id))
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Bytes of all names in the log when they are written again.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Looks at the next names: those of which a replay from `until` on would not learn, and whether no more are to be looked
    /// at. They are to be written again, see [`CompletedNames::told_at`].
    pub fn told_before(&mut self, until: u64) -> (Vec<(&str, JobId)>, bool) {
        let search = &mut self.retelling;
        search.numbers.clear();
        if self.told_from >= until {
            return (Vec::new(), true);
        }
        if search.until != until {
            (search.until, search.next, search.lowest) = (until, 0, u64::MAX);
        }
        let end = self.gone + self.names.len() as u64;
        search.next = search.next.max(self.gone);
        let stop = end.min(search.next + LOOKS);
        while search.next < stop && search.numbers.len() < BATCH {
            let told_from = self.names[(search.next - self.gone) as usize].told_from;
            if told_from < until {
                search.numbers.push(search.next);
            } else {
                search.lowest = search.lowest.min(told_from);
            }
            search.next += 1;
        }
        let last = search.next == end;
        if last {
            self.told_from = search.lowest;
            search.until = 0;
        }
        let found = search.numbers.iter().map(|number| &self.names[(number - self.gone) as usize]);
        (found.map(|named| (&*named.name, named.id)).collect(), last)
    }

    /// The record that tells of the names of the last [`CompletedNames::told_before`] lies there.
    pub fn told_at(&mut self, position: u64) {
        for number in self.retelling.numbers.drain(..) {
            self.names[(number - self.gone) as usize].told_from = position;
        }
        self.retelling.lowest = self.retelling.lowest.min(position);
        self.told_from = self.told_from.min(position);
    }
}

fn bytes_of(name: &str) -> u64 {
    NAME_BYTES + name.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes what has to be written again, as the end of the log at `head`; returns the ids.
    fn retell(names: &mut CompletedNames, until: u64, head: u64) -> Vec<u128> {
        let mut told = Vec::new();
        loop {
            let (batch, last) = names.told_before(until);
            assert!(batch.len() <= BATCH);
            told.extend(batch.into_iter().map(|(_, id)| id.0));
            names.told_at(head);
            if last {
                return told;
            }
        }
    }

    #[test]
    fn what_only_the_beginning_of_the_log_tells_is_told_again_and_nothing_else() {
        let mut names = CompletedNames::new();
        assert!(retell(&mut names, u64::MAX, 1).is_empty());
        for id in 0..5000 {
            names.note(format!("n{id}").into(), JobId(id), 100 + id as u64 % 2);
        }
        assert!(retell(&mut names, 100, 300).is_empty(), "all of it is still told");
        let even: Vec<u128> = (0..5000).step_by(2).collect();
        assert_eq!(retell(&mut names, 101, 300), even);
        assert!(retell(&mut names, 101, 300).is_empty());
        let odd: Vec<u128> = (1..5000).step_by(2).collect();
        assert_eq!(retell(&mut names, 102, 400), odd);
        assert!(retell(&mut names, 300, 500).is_empty());
        assert_eq!(retell(&mut names, 301, 500), even);
        for id in 5000..5000 + COMPLETED_NAMES_MAX as u128 {
            names.note(format!("n{id}").into(), JobId(id), 600);
        }
        assert!(retell(&mut names, 600, 700).is_empty(), "what is forgotten is not told");
        let all = 5000..5000 + COMPLETED_NAMES_MAX as u128;
        assert!(names.iter().map(|(_, id)| id.0).eq(all.clone()));
        assert!(retell(&mut names, 601, 700).into_iter().eq(all));
        let bytes = names.iter().map(|(name, _)| bytes_of(name)).sum::<u64>();
        assert_eq!((names.bytes(), names.len()), (bytes, COMPLETED_NAMES_MAX));
        assert_eq!(names.by_id.len(), COMPLETED_NAMES_MAX);
    }

    #[test]
    fn what_is_noted_while_others_are_told_again_is_not_lost() {
        let mut names = CompletedNames::new();
        (0..600).for_each(|id| names.note("a".into(), JobId(id), 10));
        assert_eq!(names.told_before(11).0.len(), BATCH);
        names.told_at(20);
        (600..700).for_each(|id| names.note("a".into(), JobId(id), 15));
        assert_eq!(retell(&mut names, 11, 21).len(), 600 - BATCH);
        assert!(retell(&mut names, 15, 30).is_empty());
        assert_eq!(retell(&mut names, 16, 30), (600..700).collect::<Vec<_>>());
        assert_eq!(retell(&mut names, 22, 40), (0..600).collect::<Vec<_>>());
    }

    /// The beginning of the log may be given up in two attempts, of which the second goes further.
    #[test]
    fn a_search_that_is_given_up_for_another_begins_anew() {
        let mut names = CompletedNames::new();
        (0..600).for_each(|id| names.note("a".into(), JobId(id), if id < 10 { 50 } else { 10 }));
        assert!(!names.told_before(11).1);
        names.told_at(90);
        assert_eq!(retell(&mut names, 51, 100).len(), 600 - BATCH);
        assert!(names.names.iter().all(|named| named.told_from >= 90));
    }

    #[test]
    fn a_job_that_two_records_tell_of_is_remembered_once_for_as_long_as_either_is_there() {
        let mut names = CompletedNames::new();
        for told_from in [10, 40, 20] {
            names.note("a".into(), JobId(1), told_from);
        }
        assert_eq!((names.len(), names.bytes()), (1, NAME_BYTES + 1));
        assert!(retell(&mut names, 40, 50).is_empty());
        assert_eq!(retell(&mut names, 41, 50), [1]);
    }
}
