//! The waiting jobs of one queue, in order of delivery: priority high to low, then LIFO jobs newest
//! first, then FIFO jobs by due time and push order.
//!
//! Almost every job arrives in order and joins the end of a list in O(1). The few that come back out
//! of order (a retry, a release, a delay that fell due late) go to a heap of strays, O(log n). What
//! is delivered next is the better of the two.

use crate::id::JobId;
use crate::job::{InQueue, Job, flags};
use crate::slab::{List, Slab};
use crate::strays::{Order, Strays};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The jobs of one priority: lists of those that came in order, and how many there are with strays.
#[derive(Default, Clone, Copy)]
struct Lane {
    jobs: u32,
    lifo: List<InQueue>,
    fifo: List<InQueue>,
}

impl Lane {
    fn front(&self) -> Option<u32> {
        self.lifo.front().or(self.fifo.front())
    }
}

/// Lanes that may stand empty, so that a queue which empties and fills allocates nothing.
const EMPTY_LANES_MAX: usize = 16;

/// See the module.
#[derive(Default)]
pub struct Ready {
    lanes: BTreeMap<Reverse<i32>, Lane>,
    strays: Strays<Delivery>,
}

/// Sorts in order of delivery.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    priority: Reverse<i32>,
    fifo: bool,
    run_at_ms: u64,
    sequence: u128,
}

/// See [`Rank`].
struct Delivery;

impl Order for Delivery {
    type Rank = Rank;
    fn rank(job: &Job) -> Rank {
        rank(job)
    }
}

fn rank(job: &Job) -> Rank {
    let priority = Reverse(job.priority);
    let JobId(id) = job.id;
    if job.has(flags::LIFO) {
        Rank { priority, fifo: false, run_at_ms: 0, sequence: !id }
    } else {
        Rank { priority, fifo: true, run_at_ms: job.run_at_ms, sequence: id }
    }
}

impl Ready {
    /// The next job to deliver.
    pub fn first(&self, jobs: &Slab<Job>) -> Option<u32> {
        let in_order = self.lanes.values().find_map(Lane::front);
        match (in_order, self.strays.first()) {
            (Some(a), Some(b)) => Some(if rank(&jobs[a]) < rank(&jobs[b]) { a } else { b }),
            (one, other) => one.or(other),
        }
    }

    /// Adds a job.
    pub fn insert(&mut self, jobs: &mut Slab<Job>, index: u32) {
        let job = &jobs[index];
        let lane = self.lanes.entry(Reverse(job.priority)).or_default();
        lane.jobs += 1;
        let list = if job.has(flags::LIFO) { &mut lane.lifo } else { &mut lane.fifo };
        let (Some(front), Some(back)) = (list.front(), list.back()) else {
            list.push_back(jobs, index);
            return;
        };
        let rank_here = rank(job);
        if rank_here > rank(&jobs[back]) {
            list.push_back(jobs, index);
        } else if rank_here < rank(&jobs[front]) {
            list.push_front(jobs, index);
        } else {
            self.strays.insert(jobs, index);
        }
    }

    /// Takes a job out.
    pub fn remove(&mut self, jobs: &mut Slab<Job>, index: u32) {
        let key = Reverse(jobs[index].priority);
        let (lifo, stray) = (jobs[index].has(flags::LIFO), jobs[index].has(flags::STRAY));
        if stray {
            self.strays.remove(jobs, index);
        }
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.jobs -= 1;
            if !stray {
                let list = if lifo { &mut lane.lifo } else { &mut lane.fifo };
                list.remove(jobs, index);
            }
            if lane.jobs == 0 && self.lanes.len() > EMPTY_LANES_MAX {
                self.lanes.remove(&key);
            }
        }
    }

    /// How many jobs there are of each priority that has any, highest first.
    pub fn priorities(&self) -> impl Iterator<Item = (i32, u64)> {
        let used = self.lanes.iter().filter(|(_, lane)| lane.jobs > 0);
        used.map(|(Reverse(priority), lane)| (*priority, u64::from(lane.jobs)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Chance;

    /// Guards against an order that depends on how a job came to wait.
    #[test]
    fn order_of_delivery_is_that_of_a_sort() {
        for seed in 0..200 {
            let mut chance = Chance::new(seed);
            let mut jobs = Slab::new();
            let mut ready = Ready::default();
            let mut model: Vec<u32> = Vec::new();
            for step in 0..300_u128 {
                let dice = chance.draw();
                if dice.is_multiple_of(4) && !model.is_empty() {
                    let gone = model.swap_remove(dice as usize / 4 % model.len());
                    ready.remove(&mut jobs, gone);
                } else if dice % 4 == 1 && !model.is_empty() {
                    model.sort_by(|&a, &b| rank(&jobs[a]).cmp(&rank(&jobs[b])));
                    assert_eq!(ready.first(&jobs), Some(model[0]));
                    let first = model.remove(0);
                    ready.remove(&mut jobs, first);
                } else {
                    let index = jobs.insert(Job {
                        id: JobId(step << 12),
                        priority: (chance.draw() % 3) as i32 - 1,
                        run_at_ms: step as u64 + chance.draw() % 4 * (chance.draw() % 20),
                        flags: if chance.draw().is_multiple_of(3) { flags::LIFO } else { 0 },
                        ..Job::default()
                    });
                    ready.insert(&mut jobs, index);
                    model.push(index);
                }
            }
            model.sort_by(|&a, &b| rank(&jobs[a]).cmp(&rank(&jobs[b])));
            let counted: Vec<(i32, u64)> = ready.priorities().collect();
            let recount = |at: i32| model.iter().filter(|&&one| jobs[one].priority == at).count();
            let recounted = [1, 0, -1].map(|at| (at, recount(at) as u64));
            assert_eq!(counted, recounted.into_iter().filter(|it| it.1 > 0).collect::<Vec<_>>());
            for index in model {
                assert_eq!(ready.first(&jobs), Some(index));
                ready.remove(&mut jobs, index);
            }
            assert_eq!(ready.first(&jobs), None);
        }
    }
}
