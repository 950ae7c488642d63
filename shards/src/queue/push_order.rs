//! All jobs of one queue in the order they were made, as far as their clients say when: what listings page through.
//!
//! Ids of a queue rise, and few jobs come with a time of their own, so a new job almost always joins the end, and most jobs
//! leave near the front. The push order is a row of short chunks of job indices: four bytes per job, a step per chunk to skip.
//! The row is a tree: a chunk may come or go in its middle, and no others move. Jobs stand here by [`Jobs::order_of`].

use crate::job::Jobs;
use crate::job::id::JobId;
use std::collections::{BTreeMap, VecDeque};

/// Jobs in one chunk: few enough to be searched and moved at once, many enough to be skipped.
const CHUNK_JOBS_MAX: usize = 256;

/// Neighbours that have become this small together are joined.
const JOINED_JOBS_MAX: usize = CHUNK_JOBS_MAX / 4;

/// Room for so few jobs is not given back.
const KEPT: usize = 16;

/// All jobs of one queue in push order.
#[derive(Default)]
pub struct PushOrder {
    /// By an id that none of the chunk is below, and none of those before at or above. As jobs leave near the front, those
    /// behind them are not moved.
    chunks: BTreeMap<JobId, VecDeque<u32>>,
}

impl PushOrder {
    /// Adds a job. In life its id is the highest; at recovery it may be any.
    pub fn insert(&mut self, jobs: &Jobs, index: u32) {
        let id = jobs.order_of(index);
        let Some(mut last) = self.chunks.last_entry() else {
            self.chunks.insert(id, [index].into());
            return;
        };
        if *last.key() > id || last.get().back().is_some_and(|&end| jobs.order_of(end) > id) {
            self.insert_between(jobs, index, id);
        } else if last.get().len() < CHUNK_JOBS_MAX {
            last.get_mut().push_back(index);
        } else {
            self.chunks.insert(id, [index].into());
        }
    }

    #[cold]
    fn insert_between(&mut self, jobs: &Jobs, index: u32, id: JobId) {
        let Some(mut floor) = self.floor_of(id) else { return };
        if floor > id {
            // Below all that are there.
            let first = self.chunks.remove(&floor).unwrap_or_default();
            self.chunks.insert(id, first);
            floor = id;
        }
        let Some(chunk) = self.chunks.get_mut(&floor) else { return };
        let place = chunk.partition_point(|&other| jobs.order_of(other) < id);
        chunk.insert(place, index);
        if chunk.len() > CHUNK_JOBS_MAX {
            let upper = chunk.split_off(CHUNK_JOBS_MAX / 2);
            self.chunks.insert(jobs.order_of(upper[0]), upper);
        }
    }

    /// Takes a job out, which must be in.
    pub fn remove(&mut self, jobs: &Jobs, index: u32) {
        let found = self.chunks.range_mut(..=jobs.order_of(index)).next_back();
        // Comparing indices looks at no job, so a whole chunk is searched faster than halved.
        let place = |chunk: &VecDeque<u32>| chunk.iter().position(|&other| other == index);
        let found = found.and_then(|(&floor, chunk)| Some((floor, place(chunk)?, chunk)));
        let (floor, place, chunk) = found.expect("a job is on the roll of its queue");
        chunk.remove(place);
        let left = chunk.len();
        if chunk.capacity() > KEPT && left * 4 <= chunk.capacity() {
            chunk.shrink_to(KEPT.max(left * 2));
        }
        if left == 0 && self.chunks.len() > 1 {
            self.chunks.remove(&floor);
        } else if left < JOINED_JOBS_MAX / 2 {
            self.join(floor);
        }
    }

    /// Joins a chunk with the one behind it, if they are small together.
    fn join(&mut self, floor: JobId) {
        let mut chunks = self.chunks.range(floor..).map(|(&floor, chunk)| (floor, chunk.len()));
        let (Some((_, jobs)), Some((next, more))) = (chunks.next(), chunks.next()) else { return };
        if jobs + more <= JOINED_JOBS_MAX
            && let Some(upper) = self.chunks.remove(&next)
            && let Some(chunk) = self.chunks.get_mut(&floor)
        {
            chunk.extend(upper);
        }
    }

    /// The chunk that holds an id, or that it would join, if there is one.
    fn floor_of(&self, id: JobId) -> Option<JobId> {
        let below = self.chunks.range(..=id).next_back();
        below.or_else(|| self.chunks.first_key_value()).map(|(&floor, _)| floor)
    }

    /// How many jobs are behind one that is in, looking at no more than so many chunks; of more, how many there are at least.
    pub fn count_behind(&self, jobs: &Jobs, id: JobId, chunks_max: usize) -> u64 {
        let Some(floor) = self.floor_of(id) else { return 0 };
        let place = self.chunks[&floor].partition_point(|&other| jobs.order_of(other) <= id);
        let later = self.chunks.range(floor..).take(chunks_max).map(|(_, chunk)| chunk.len());
        (later.sum::<usize>() - place) as u64
    }

    /// How many jobs there are. A step per chunk.
    pub fn len(&self) -> usize {
        self.chunks.values().map(VecDeque::len).sum()
    }

    /// The jobs behind `after`, in order; all of them if that is `None`.
    pub fn behind<'a>(
        &'a self,
        jobs: &'a Jobs,
        after: Option<JobId>,
    ) -> impl Iterator<Item = u32> + 'a {
        let from = after.and_then(|id| Some((self.floor_of(id)?, id)));
        let place = from.map_or(0, |(floor, id)| {
            self.chunks[&floor].partition_point(|&other| jobs.order_of(other) <= id)
        });
        let chunks = self.chunks.range(from.map_or(JobId::default(), |(floor, _)| floor)..);
        chunks.flat_map(|(_, chunk)| chunk).copied().skip(place)
    }

    /// The jobs before `until`, the last one first; all of them if that is `None`.
    pub fn before<'a>(
        &'a self,
        jobs: &'a Jobs,
        until: Option<JobId>,
    ) -> impl Iterator<Item = u32> + 'a {
        let to = until.and_then(|id| Some((self.floor_of(id)?, id)));
        let skip = to.map_or(0, |(floor, id)| {
            let chunk = &self.chunks[&floor];
            chunk.len() - chunk.partition_point(|&other| jobs.order_of(other) < id)
        });
        let chunks = self.chunks.range(..=to.map_or(JobId(u128::MAX), |(floor, _)| floor));
        chunks.rev().flat_map(|(_, chunk)| chunk.iter().rev()).copied().skip(skip)
    }

    /// The jobs behind the first `count`, in order. A step per chunk to get there.
    pub fn from(&self, count: u64) -> impl Iterator<Item = u32> + '_ {
        let mut left = count;
        let whole = self.chunks.values().take_while(|chunk| {
            let jobs = chunk.len() as u64;
            let skipped = jobs <= left;
            left -= if skipped { jobs } else { 0 };
            skipped
        });
        let whole = whole.count();
        self.chunks.values().skip(whole).flatten().copied().skip(left as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collections::hash_key::HashKey;
    use crate::collections::slab::NONE;
    use crate::job::Job;
    use crate::job::id::Chance;

    /// Guards against a job that is listed twice, not at all or out of order, whatever came and went.
    #[test]
    fn the_push_order_is_a_sorted_list_of_what_is_in_it() {
        for seed in 0..30 {
            let mut chance = Chance::new(seed);
            let mut jobs = Jobs::new(HashKey::new(1));
            let mut push_order = PushOrder::default();
            let mut model = BTreeMap::new();
            for step in 0..6000_u128 {
                let growing = (step / 1500).is_multiple_of(2);
                let gone = model.keys().nth(chance.draw() as usize % 400).copied();
                if let Some(id) = gone
                    && chance.draw() % 8 < if growing { 1 } else { 6 }
                {
                    let index = model.remove(&id).unwrap_or_default();
                    push_order.remove(&jobs, index);
                    jobs.slab.remove(index);
                } else {
                    // As in life, or as when recovery reads what was written again later.
                    let late = chance.draw().is_multiple_of(5);
                    let back = if late { u128::from(chance.draw() % 900) } else { 0 };
                    let id = JobId((step + 1000).saturating_sub(back) << 16 | step);
                    let index = jobs.slab.insert(Job { id, options: NONE, ..Job::default() });
                    push_order.insert(&jobs, index);
                    model.insert(id, index);
                }
                if step % 97 == 0 {
                    let expected: Vec<u32> = model.values().copied().collect();
                    assert_eq!(push_order.len(), expected.len());
                    assert_eq!(push_order.from(0).collect::<Vec<_>>(), expected);
                    let skip = chance.draw() as usize % (expected.len() + 2);
                    let rest = expected.get(skip..).unwrap_or_default();
                    assert_eq!(push_order.from(skip as u64).collect::<Vec<_>>(), rest);
                    // Also behind an id that is not there.
                    let after = JobId(u128::from(chance.draw() % 7000) << 16);
                    let rest: Vec<u32> =
                        model.range(after..).filter(|it| *it.0 > after).map(|it| *it.1).collect();
                    assert_eq!(push_order.behind(&jobs, Some(after)).collect::<Vec<_>>(), rest);
                    assert_eq!(push_order.behind(&jobs, None).collect::<Vec<_>>(), expected);
                    let before = model.range(..after).rev().map(|it| *it.1);
                    assert!(push_order.before(&jobs, Some(after)).eq(before));
                    assert!(push_order.before(&jobs, None).eq(expected.iter().rev().copied()));
                    if let Some((&some, _)) = model.range(after..).next() {
                        let behind = model.range(some..).count() as u64 - 1;
                        assert_eq!(push_order.count_behind(&jobs, some, usize::MAX), behind);
                        assert!(push_order.count_behind(&jobs, some, 1) <= behind);
                    }
                }
            }
        }
    }
}
