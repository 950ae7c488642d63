//! Deduplication keys: while a job that holds one lives, a second push under it makes no job.
//!
//! Mostly one job holds a key. More do when jobs came back that had ended, or when the time of a key ended
//! before its job did: there is no bound on how many. The key is that of the one which holds it for longest,
//! the oldest of equals. All of them stand in that order, so it is known at once, and so is whether time has
//! freed the key: if the first one's time is over, that of all is. What changes costs a step into a tree.

use crate::collections::hash_key::HashKey;
use crate::collections::slab::{NONE, Slab};
use crate::collections::table::Table;
use crate::job::Jobs;
use crate::job::id::JobId;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The jobs that hold a key, by queue and key. The keys themselves stay with the jobs.
pub struct UniqueKeys {
    hash_key: HashKey,
    keys: Table<Key>,
    crowds: Slab<Crowd>,
    /// Holders of all keys.
    holders: usize,
}

/// One key.
#[derive(Clone, Copy)]
struct Key {
    /// The job that holds it for longest; it knows the text.
    first: u32,
    /// All that hold it, if that is more than one; or `NONE`.
    crowd: u32,
}

type Crowd = BTreeMap<Rank, u32>;

/// The order of those that hold one key: by when their time with it ends, if ever, the last in front.
type Rank = (Reverse<u64>, JobId);

/// The queue and the key of a job that has one.
fn key_of(jobs: &Jobs, job: u32) -> Option<(u32, &str)> {
    let key = jobs.options_of(job)?.unique_key.as_deref()?;
    Some((jobs.slab[job].queue, key))
}

fn hash_of(hash_key: HashKey, jobs: &Jobs, job: u32) -> u64 {
    key_of(jobs, job).map_or(0, |(queue, key)| hash_key.in_queue(queue, key))
}

/// When the time of a job with its key ends; `u64::MAX` for not before the job does.
fn until_ms(jobs: &Jobs, job: u32) -> u64 {
    let dedup = jobs.extras_of(job).and_then(|extras| extras.dedup);
    dedup.map(|dedup| dedup.until_ms).filter(|&until_ms| until_ms > 0).unwrap_or(u64::MAX)
}

fn rank(jobs: &Jobs, job: u32) -> Rank {
    (Reverse(until_ms(jobs, job)), jobs.slab[job].id)
}

impl UniqueKeys {
    /// No keys.
    pub fn new(hash_key: HashKey) -> Self {
        Self { hash_key, keys: Table::default(), crowds: Slab::new(), holders: 0 }
    }

    fn find(&self, jobs: &Jobs, queue: u32, key: &str) -> Option<Key> {
        let same = |known: &Key| key_of(jobs, known.first) == Some((queue, key));
        self.keys.find(self.hash_key.in_queue(queue, key), same).copied()
    }

    fn find_mut(&mut self, jobs: &Jobs, queue: u32, key: &str) -> Option<&mut Key> {
        let same = |known: &Key| key_of(jobs, known.first) == Some((queue, key));
        self.keys.find_mut(self.hash_key.in_queue(queue, key), same)
    }

    /// The job that holds `key` in a queue for longest, the oldest of equals; its time may be over.
    pub fn holder(&self, jobs: &Jobs, queue: u32, key: &str) -> Option<u32> {
        self.find(jobs, queue, key).map(|known| known.first)
    }

    /// How many jobs hold `key` in a queue.
    pub fn count(&self, jobs: &Jobs, queue: u32, key: &str) -> usize {
        self.find(jobs, queue, key).map_or(0, |known| match known.crowd {
            NONE => 1,
            crowd => self.crowds[crowd].len(),
        })
    }

    /// The holders of `key` in a queue, in their order.
    pub fn holders(
        &self,
        jobs: &Jobs,
        queue: u32,
        key: &str,
    ) -> impl DoubleEndedIterator<Item = u32> {
        let known = self.find(jobs, queue, key);
        let alone = known.filter(|known| known.crowd == NONE).map(|known| known.first);
        let crowd =
            known.filter(|known| known.crowd != NONE).map(|known| &self.crowds[known.crowd]);
        alone.into_iter().chain(crowd.into_iter().flat_map(|crowd| crowd.values().copied()))
    }

    /// Makes `job` a holder of its key, if it has one. Saying it twice changes nothing.
    pub fn take(&mut self, jobs: &Jobs, job: u32) {
        let Some((queue, key)) = key_of(jobs, job) else { return };
        let Some(known) = self.find(jobs, queue, key) else {
            let alone = Key { first: job, crowd: NONE };
            let hash_key = self.hash_key;
            let hash_of = |other: &Key| hash_of(hash_key, jobs, other.first);
            self.keys.insert(hash_key.in_queue(queue, key), alone, hash_of);
            self.holders += 1;
            return;
        };
        let crowd = match known.crowd {
            NONE if known.first == job => return,
            NONE => self.crowds.insert(BTreeMap::from([(rank(jobs, known.first), known.first)])),
            crowd => crowd,
        };
        self.holders += usize::from(self.crowds[crowd].insert(rank(jobs, job), job).is_none());
        self.note_first(jobs, (queue, key), crowd);
    }

    /// Ends the hold of `job` on its key, if it has one. To be called before the key or its time changes.
    pub fn release(&mut self, jobs: &Jobs, job: u32) {
        let Some((queue, key)) = key_of(jobs, job) else { return };
        let Some(known) = self.find(jobs, queue, key) else { return };
        if known.crowd != NONE {
            self.holders -=
                usize::from(self.crowds[known.crowd].remove(&rank(jobs, job)).is_some());
            self.note_first(jobs, (queue, key), known.crowd);
        } else if known.first == job {
            let hash_key = self.hash_key;
            let hash_of = |other: &Key| hash_of(hash_key, jobs, other.first);
            let hash = hash_key.in_queue(queue, key);
            let gone = self.keys.remove(hash, |known| known.first == job, hash_of);
            self.holders -= usize::from(gone.is_some());
        }
    }

    /// A crowd has changed, in which at least one is left.
    fn note_first(&mut self, jobs: &Jobs, (queue, key): (u32, &str), crowd: u32) {
        let members = &self.crowds[crowd];
        let Some((_, &first)) = members.first_key_value() else { return };
        let alone = members.len() == 1;
        if let Some(known) = self.find_mut(jobs, queue, key) {
            *known = Key { first, crowd: if alone { NONE } else { crowd } };
        }
        if alone {
            self.crowds.remove(crowd);
        }
    }

    /// How many jobs hold a key.
    pub fn len(&self) -> usize {
        self.holders
    }

    /// Whether `job` is a holder of its key.
    pub fn has(&self, jobs: &Jobs, job: u32) -> bool {
        let Some((queue, key)) = key_of(jobs, job) else { return false };
        self.find(jobs, queue, key).is_some_and(|known| match known.crowd {
            NONE => known.first == job,
            crowd => self.crowds[crowd].get(&rank(jobs, job)) == Some(&job),
        })
    }

    /// Says what does not agree, if anything, where `holding` jobs should hold a key.
    pub fn audit(&self, jobs: &Jobs, holding: usize) -> Result<(), String> {
        let crowds = || self.keys.iter().filter(|known| known.crowd != NONE);
        let mut held = self.keys.len() - self.crowds.len();
        for known in crowds() {
            let crowd = &self.crowds[known.crowd];
            held += crowd.len();
            let first = crowd.values().next() == Some(&known.first);
            if !first || crowd.len() < 2 || crowd.iter().any(|(at, &job)| *at != rank(jobs, job)) {
                return Err("those that hold one key are out of order".into());
            }
        }
        if (crowds().count(), held, holding) != (self.crowds.len(), self.holders, self.holders) {
            return Err(format!("{holding} jobs hold a key, {held} found, {}", self.holders));
        }
        Ok(())
    }
}
