//! Deduplication keys: while a job that holds one lives, a second push under it makes no job.

use crate::id::fnv1a;
use crate::job::Jobs;
use hashbrown::HashTable;

/// The jobs that hold a key, by queue and key. The keys themselves stay with the jobs.
#[derive(Default)]
pub struct UniqueKeys {
    holders: HashTable<u32>,
}

fn hash(queue: u32, key: &str) -> u64 {
    fnv1a(key.as_bytes()).rotate_left(17) ^ u64::from(queue).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn holds(jobs: &Jobs, job: u32, queue: u32, key: &str) -> bool {
    jobs.slab[job].queue == queue
        && jobs.options_of(job).and_then(|options| options.unique_key.as_deref()) == Some(key)
}

impl UniqueKeys {
    /// The job that holds `key` in a queue: the oldest, if more than one does.
    pub fn holder(&self, jobs: &Jobs, queue: u32, key: &str) -> Option<u32> {
        let same = self.holders.iter_hash(hash(queue, key)).copied();
        same.filter(|&job| holds(jobs, job, queue, key)).min_by_key(|&job| jobs.slab[job].id)
    }

    /// Makes `job` a holder of its key, if it has one. There can be two: a job that came back from the
    /// dead-letter queue, and one that was pushed meanwhile.
    pub fn take(&mut self, jobs: &Jobs, job: u32) {
        let queue = jobs.slab[job].queue;
        let Some(key) = jobs.options_of(job).and_then(|options| options.unique_key.as_deref())
        else {
            return;
        };
        self.holders.insert_unique(hash(queue, key), job, |&other| {
            let key = jobs.options_of(other).and_then(|options| options.unique_key.as_deref());
            hash(jobs.slab[other].queue, key.unwrap_or_default())
        });
    }

    /// Ends the hold of `job` on its key, if it has one.
    pub fn release(&mut self, jobs: &Jobs, job: u32) {
        let queue = jobs.slab[job].queue;
        let Some(key) = jobs.options_of(job).and_then(|options| options.unique_key.as_deref())
        else {
            return;
        };
        if let Ok(entry) = self.holders.find_entry(hash(queue, key), |&holder| holder == job) {
            entry.remove();
        }
    }

    /// How many keys are held.
    pub fn len(&self) -> usize {
        self.holders.len()
    }
}
