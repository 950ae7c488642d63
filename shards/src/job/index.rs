//! Ids of jobs to their places. Ids carry a sequence, and jobs that were pushed one after the other are mostly
//! pulled and acknowledged one after the other, too: so there is a page for 16 ids in a row, and most lookups
//! are answered by the page of the one before.
//!
//! Ids come from the server alone, but clients choose which jobs stay: pages are found by a keyed hash. Their
//! table grows and shrinks in steps, with one entry to move for 16 jobs.

use crate::collections::hash_key::HashKey;
use crate::collections::slab::{NONE, Slab};
use crate::collections::table::Table;
use crate::job::Job;
use crate::job::id::JobId;
use std::cell::Cell;

/// Ids of one page, as a power of two.
const PAGE_BITS: u32 = 4;
/// Ids of one page.
const PAGE: usize = 1 << PAGE_BITS;

/// Milliseconds of ids that may be of one page, as a power of two: a quarter of an hour. The sequence starts
/// over, and every shard has its own.
const TIME_BITS: u32 = 20;

/// The jobs among 16 ids in a row.
struct Page {
    run: u64,
    /// How many are there.
    used: u32,
    /// Their places, or `NONE`.
    jobs: [u32; PAGE],
}

impl Default for Page {
    fn default() -> Self {
        Self { run: u64::MAX, used: 0, jobs: [NONE; PAGE] }
    }
}

/// Number of the run of ids that share a page: neighbours by sequence number, made at about the same time.
fn run_of(id: JobId) -> u64 {
    u64::from(id.sequence() >> PAGE_BITS) | (id.made_at_ms() >> TIME_BITS) << (32 - PAGE_BITS)
}

/// Runs in a row that are near each other in the table, as a power of two.
const NEAR_BITS: u32 = 4;

/// The hash of a run: neighbours are of one part of the table and beside each other there.
fn hash(key: HashKey, run: u64) -> u64 {
    let near = run & ((1 << NEAR_BITS) - 1);
    // The lowest bits tell where in its part an entry lies, the highest seven are compared first.
    let all = key.number(run >> NEAR_BITS) ^ near << 57;
    all >> NEAR_BITS << NEAR_BITS | near
}

/// Where an id stands in its page.
fn place_of(id: JobId) -> usize {
    id.sequence() as usize & (PAGE - 1)
}

/// The places of jobs by their ids.
pub(crate) struct JobIndex {
    key: HashKey,
    pages: Slab<Page>,
    /// More than one of a run only where ids of several shards have the same sequence.
    by_run: Table<u32>,
    /// The pages of the last job that was found, of the last that came and of the last that went: who acknowledges new
    /// jobs has old ones removed, and each of both goes its way. Pages may have gone since.
    found: Cell<u32>,
    added: u32,
    removed: u32,
}

impl JobIndex {
    pub(crate) fn new(key: HashKey) -> Self {
        let (pages, by_run) = (Slab::new(), Table::default());
        Self { key, pages, by_run, found: Cell::new(0), added: 0, removed: 0 }
    }

    /// A page, which may be gone.
    fn page(&self, page: u32) -> Option<&Page> {
        (page < self.pages.end()).then(|| self.pages.peek(page))
    }

    /// The place of a job.
    #[inline]
    pub(crate) fn find(&self, id: JobId, jobs: &Slab<Job>) -> Option<u32> {
        let (run, place) = (run_of(id), place_of(id));
        let job_of = |about: &Page| {
            let job = about.jobs[place];
            (about.run == run && job != NONE && jobs[job].id == id).then_some(job)
        };
        if let Some(job) = self.page(self.found.get()).and_then(job_of) {
            return Some(job);
        }
        let has = |&page: &u32| job_of(&self.pages[page]).is_some();
        let page = *self.by_run.find(hash(self.key, run), has)?;
        self.found.set(page);
        Some(self.pages[page].jobs[place])
    }

    /// Adds a job, which is not there.
    #[inline]
    pub(crate) fn insert(&mut self, id: JobId, job: u32) {
        let (run, place) = (run_of(id), place_of(id));
        let has_room = |about: &Page| about.run == run && about.jobs[place] == NONE;
        if !self.page(self.added).is_some_and(has_room) {
            let (key, pages) = (self.key, &self.pages);
            let known = self.by_run.find(hash(key, run), |&page| has_room(&pages[page]));
            self.added = known.copied().unwrap_or_else(|| self.add_page(run));
        }
        let about = &mut self.pages[self.added];
        about.jobs[place] = job;
        about.used += 1;
    }

    fn add_page(&mut self, run: u64) -> u32 {
        let page = self.pages.insert(Page { run, ..Page::default() });
        let (key, pages) = (self.key, &self.pages);
        self.by_run.insert(hash(key, run), page, |&other| hash(key, pages[other].run));
        page
    }

    /// Takes a job out, which is there.
    #[inline]
    pub(crate) fn remove(&mut self, id: JobId, job: u32) {
        let (run, place) = (run_of(id), place_of(id));
        // The place of a job is its own as long as it is there, so the job need not be looked at.
        let has = |about: &Page| about.run == run && about.jobs[place] == job;
        if !self.page(self.removed).is_some_and(has) {
            let pages = &self.pages;
            let known = self.by_run.find(hash(self.key, run), |&page| has(&pages[page]));
            let Some(&page) = known else { return };
            self.removed = page;
        }
        let about = &mut self.pages[self.removed];
        about.jobs[place] = NONE;
        about.used -= 1;
        if about.used == 0 {
            self.remove_page(self.removed);
        }
    }

    fn remove_page(&mut self, page: u32) {
        let (key, pages) = (self.key, &self.pages);
        let hash_of = |&other: &u32| hash(key, pages[other].run);
        self.by_run.remove(hash_of(&page), |&other| other == page, hash_of);
        self.pages.remove(page);
    }

    /// Bytes for which there is room.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.pages.capacity() * size_of::<Page>() + self.by_run.capacity() * (size_of::<u32>() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::id::{Chance, IdMaker, Slot};
    use std::collections::BTreeMap;

    const KEY: HashKey = HashKey::new(0x0101_0bad_cafe_0000_0000_00de_5000_0001);

    #[test]
    fn it_finds_the_jobs_that_are_there_and_no_others() {
        for seed in 0..10 {
            let mut chance = Chance::new(seed);
            // As after a change of the number of shards: ids of several makers, whose sequences agree.
            let mut makers: Vec<IdMaker> =
                (0..4).map(|shard| IdMaker::new(seed + shard, JobId::default())).collect();
            let (mut jobs, mut index, mut model) =
                (Slab::new(), JobIndex::new(KEY), BTreeMap::new());
            let mut gone = Vec::new();
            for step in 0..20_000_u64 {
                let growing = (step / 5000).is_multiple_of(2);
                if (chance.draw() % 8 < 6) == growing {
                    let maker = chance.draw() as usize % makers.len();
                    let id = makers[maker].make(1_700_000_000_000 + step, Slot::default());
                    let job = jobs.insert(Job { id, ..Job::default() });
                    index.insert(id, job);
                    model.insert(id, job);
                } else {
                    let first = chance.draw() as usize % 64;
                    let Some((&id, &job)) = model.iter().nth(first) else { continue };
                    index.remove(id, job);
                    jobs.remove(job);
                    model.remove(&id);
                    gone.push(id);
                }
            }
            for (&id, &job) in &model {
                assert_eq!(index.find(id, &jobs), Some(job));
                // An id that differs in its random bits only is not found.
                assert_eq!(index.find(JobId(id.0 ^ (1 << 20)), &jobs), None);
            }
            assert!(gone.iter().all(|&id| index.find(id, &jobs).is_none()));
        }
    }

    /// Guards against a step that moves many pages, since those of neighbours are of one part: also if a client
    /// lets go of all jobs but one of each page, or of each group of pages.
    #[test]
    fn no_part_of_the_table_is_long() {
        for every in [1, PAGE, PAGE << NEAR_BITS] {
            let mut index = JobIndex::new(KEY);
            let mut maker = IdMaker::new(1, JobId::default());
            for step in 0..4_000_000 {
                let id = maker.make(1_700_000_000_000, Slot::default());
                if step % every == 0 {
                    index.insert(id, 7);
                }
            }
            let longest = index.by_run.longest_part();
            assert!(longest < 500, "{longest} of {} pages, every {every}", index.by_run.len());
        }
    }

    /// Guards against an index that outgrows its jobs, or stays as large as it ever was.
    #[test]
    fn it_takes_few_bytes_of_each_job_and_gives_them_back() {
        const JOBS: usize = 200_000;
        let mut maker = IdMaker::new(1, JobId::default());
        let mut index = JobIndex::new(KEY);
        let ids: Vec<JobId> =
            (0..JOBS).map(|_| maker.make(1_700_000_000_000, Slot::default())).collect();
        for (job, &id) in (0..).zip(&ids) {
            index.insert(id, job);
        }
        assert!(index.bytes() < 6 * JOBS, "{} bytes for {JOBS} jobs", index.bytes());
        for (job, &id) in (0_u32..).zip(&ids) {
            // Every 16th job stays, each in a page of its own.
            if !job.is_multiple_of(PAGE as u32) {
                index.remove(id, job);
            }
        }
        assert!(index.bytes() < 96 * (JOBS / PAGE), "{} bytes", index.bytes());
        for (job, &id) in (0..).zip(&ids) {
            index.remove(id, job);
        }
        assert!(index.bytes() < 3 * 1024 * size_of::<Page>(), "{} bytes", index.bytes());
    }
}
