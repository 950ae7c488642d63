//! All jobs of one queue in the order they were made: what listings page through.
//!
//! Ids of a queue rise, so a new job almost always joins the end, and most jobs leave near the
//! front. The roll is a row of short chunks of job indices: four bytes per job, O(1) to join, a step
//! per chunk to skip. Knows jobs only by their ids.

use crate::id::JobId;
use crate::job::Job;
use crate::slab::Slab;
use std::collections::VecDeque;

/// Jobs in one chunk: few enough to be searched and moved at once, many enough to be skipped.
const CHUNK_JOBS_MAX: usize = 256;

/// Neighbours that have become this small together are joined.
const JOINED_JOBS_MAX: usize = CHUNK_JOBS_MAX / 4;

struct Chunk {
    /// No id of this chunk is below, none of the chunks before is at or above.
    floor: JobId,
    jobs: Vec<u32>,
}

/// See the module.
#[derive(Default)]
pub struct Roll {
    chunks: VecDeque<Chunk>,
}

impl Roll {
    /// Adds a job. In life its id is the highest; at recovery it may be any.
    pub fn insert(&mut self, jobs: &Slab<Job>, index: u32) {
        let id = jobs[index].id;
        match self.chunks.back_mut() {
            Some(last) if last.jobs.last().is_none_or(|&end| jobs[end].id < id) => {
                if last.jobs.is_empty() {
                    last.floor = id;
                }
                if last.jobs.len() < CHUNK_JOBS_MAX {
                    last.jobs.push(index);
                } else {
                    self.chunks.push_back(Chunk { floor: id, jobs: vec![index] });
                }
            }
            Some(_) => self.insert_between(jobs, index, id),
            None => self.chunks.push_back(Chunk { floor: id, jobs: vec![index] }),
        }
    }

    #[cold]
    fn insert_between(&mut self, jobs: &Slab<Job>, index: u32, id: JobId) {
        let at = self.chunk_of(id);
        let chunk = &mut self.chunks[at];
        chunk.floor = chunk.floor.min(id);
        let place = chunk.jobs.partition_point(|&other| jobs[other].id < id);
        chunk.jobs.insert(place, index);
        if chunk.jobs.len() > CHUNK_JOBS_MAX {
            let upper = chunk.jobs.split_off(CHUNK_JOBS_MAX / 2);
            let floor = jobs[upper[0]].id;
            self.chunks.insert(at + 1, Chunk { floor, jobs: upper });
        }
    }

    /// Takes a job out, which must be in.
    pub fn remove(&mut self, jobs: &Slab<Job>, index: u32) {
        let at = self.chunk_of(jobs[index].id);
        let chunk = &mut self.chunks[at];
        // Comparing indices looks at no job, so a whole chunk is searched faster than halved.
        let place = chunk.jobs.iter().position(|&other| other == index);
        assert!(place.is_some(), "a job is on the roll of its queue");
        place.map(|place| chunk.jobs.remove(place));
        let left = chunk.jobs.len();
        if left == 0 && self.chunks.len() > 1 {
            self.chunks.remove(at);
        } else if left < JOINED_JOBS_MAX / 2 && at + 1 < self.chunks.len() {
            self.join(at);
        }
    }

    fn join(&mut self, at: usize) {
        if self.chunks[at].jobs.len() + self.chunks[at + 1].jobs.len() > JOINED_JOBS_MAX {
            return;
        }
        if let Some(upper) = self.chunks.remove(at + 1) {
            self.chunks[at].jobs.extend(upper.jobs);
        }
    }

    /// The chunk that holds an id, or that it would join.
    fn chunk_of(&self, id: JobId) -> usize {
        // Most jobs leave near the front.
        if self.chunks.get(1).is_none_or(|second| id < second.floor) {
            return 0;
        }
        self.chunks.partition_point(|chunk| chunk.floor <= id) - 1
    }

    /// How many jobs there are. A step per chunk.
    pub fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.jobs.len()).sum()
    }

    /// The jobs behind `after`, in order; all of them if that is `None`.
    pub fn behind<'a>(
        &'a self,
        jobs: &'a Slab<Job>,
        after: Option<JobId>,
    ) -> impl Iterator<Item = u32> + 'a {
        let (at, place) = match after {
            Some(id) if !self.chunks.is_empty() => {
                let at = self.chunk_of(id);
                (at, self.chunks[at].jobs.partition_point(|&other| jobs[other].id <= id))
            }
            _ => (0, 0),
        };
        self.chunks.range(at..).flat_map(|chunk| &chunk.jobs).copied().skip(place)
    }

    /// The jobs before `until`, the last one first; all of them if that is `None`.
    pub fn before<'a>(
        &'a self,
        jobs: &'a Slab<Job>,
        until: Option<JobId>,
    ) -> impl Iterator<Item = u32> + 'a {
        let (chunks, skip) = match until {
            Some(id) if !self.chunks.is_empty() => {
                let at = self.chunk_of(id);
                let chunk = &self.chunks[at].jobs;
                let place = chunk.partition_point(|&other| jobs[other].id < id);
                (at + 1, chunk.len() - place)
            }
            _ => (self.chunks.len(), 0),
        };
        self.chunks
            .range(..chunks)
            .rev()
            .flat_map(|chunk| chunk.jobs.iter().rev())
            .copied()
            .skip(skip)
    }

    /// The jobs behind the first `count`, in order. A step per chunk to get there.
    pub fn from(&self, count: u64) -> impl Iterator<Item = u32> + '_ {
        let mut left = count;
        let whole = self.chunks.iter().take_while(|chunk| {
            let jobs = chunk.jobs.len() as u64;
            let skipped = jobs <= left;
            left -= if skipped { jobs } else { 0 };
            skipped
        });
        let at = whole.count();
        self.chunks.range(at..).flat_map(|chunk| &chunk.jobs).copied().skip(left as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Chance;

    /// Guards against a job that is listed twice, not at all or out of order, whatever came and went.
    #[test]
    fn the_roll_is_a_sorted_list_of_what_is_in_it() {
        for seed in 0..30 {
            let mut chance = Chance::new(seed);
            let mut jobs = Slab::new();
            let mut roll = Roll::default();
            let mut model = std::collections::BTreeMap::new();
            for step in 0..6000_u128 {
                let growing = (step / 1500).is_multiple_of(2);
                let gone = model.keys().nth(chance.draw() as usize % 400).copied();
                if let Some(id) = gone
                    && chance.draw() % 8 < if growing { 1 } else { 6 }
                {
                    let index = model.remove(&id).unwrap_or_default();
                    roll.remove(&jobs, index);
                    jobs.remove(index);
                } else {
                    // As in life, or as when recovery reads what was written again later.
                    let late = chance.draw().is_multiple_of(5);
                    let back = if late { u128::from(chance.draw() % 900) } else { 0 };
                    let id = JobId((step + 1000).saturating_sub(back) << 16 | step);
                    let index = jobs.insert(Job { id, ..Job::default() });
                    roll.insert(&jobs, index);
                    model.insert(id, index);
                }
                if step % 97 == 0 {
                    let expected: Vec<u32> = model.values().copied().collect();
                    assert_eq!(roll.len(), expected.len());
                    assert_eq!(roll.from(0).collect::<Vec<_>>(), expected);
                    let skip = chance.draw() as usize % (expected.len() + 2);
                    let rest = expected.get(skip..).unwrap_or_default();
                    assert_eq!(roll.from(skip as u64).collect::<Vec<_>>(), rest);
                    // Also behind an id that is not there.
                    let after = JobId(u128::from(chance.draw() % 7000) << 16);
                    let rest: Vec<u32> =
                        model.range(after..).filter(|it| *it.0 > after).map(|it| *it.1).collect();
                    assert_eq!(roll.behind(&jobs, Some(after)).collect::<Vec<_>>(), rest);
                    assert_eq!(roll.behind(&jobs, None).collect::<Vec<_>>(), expected);
                    let before = model.range(..after).rev().map(|it| *it.1);
                    assert!(roll.before(&jobs, Some(after)).eq(before));
                    assert!(roll.before(&jobs, None).eq(expected.iter().rev().copied()));
                }
            }
        }
    }
}
