//! The waiting jobs of one queue, in order of delivery: priority high to low, then LIFO jobs newest
//! first, then FIFO jobs by due time and push order.
//!
//! Almost every job arrives in order and joins the end of a list in O(1). The few that come back out
//! of order (a retry, a release, a delay that fell due late) go to a heap of jobs out of order, O(log n). What
//! is delivered next is the better of the two.
//!
//! Lanes are searched for the first that has a job in its lists. One that has jobs out of order only is none: clients
//! could make any number of those, and each look for the next job would pass them all.

use crate::collections::count::Count;
use crate::collections::slab::{Links, List, NONE, Slab};
use crate::job::id::JobId;
use crate::job::{InQueue, Job, flags};
use crate::queue::out_of_order::{Order, OutOfOrderHeap};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The jobs of one priority that came in order.
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

/// The waiting jobs of one queue in order of delivery.
#[derive(Default)]
pub struct Ready {
    lanes: BTreeMap<Reverse<i32>, Lane>,
    out_of_order: OutOfOrderHeap<Delivery>,
    /// How many jobs out of order there are of each priority that has any.
    out_of_order_of: BTreeMap<Reverse<i32>, u32>,
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

/// The jobs of a list, from its front.
fn row(jobs: &Slab<Job>, list: List<InQueue>) -> impl Iterator<Item = u32> {
    std::iter::successors(list.front(), |&at| List::<InQueue>::after(jobs, at))
}

/// How many jobs are ahead of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ahead {
    /// How many, or at least how many.
    pub count: u64,
    /// Whether it is all of them.
    pub exact: bool,
}

impl Ready {
    /// The next job to deliver.
    pub fn first(&self, jobs: &Slab<Job>) -> Option<u32> {
        let in_order = self.lanes.values().find_map(Lane::front);
        match (in_order, self.out_of_order.first()) {
            (Some(a), Some(b)) => Some(if rank(&jobs[a]) < rank(&jobs[b]) { a } else { b }),
            (one, other) => one.or(other),
        }
    }

    /// Adds a job.
    pub fn insert(&mut self, jobs: &mut Slab<Job>, index: u32) {
        let job = &jobs[index];
        let lane = self.lanes.entry(Reverse(job.priority)).or_default();
        let list = if job.has(flags::LIFO) { &mut lane.lifo } else { &mut lane.fifo };
        let rank_here = rank(job);
        match (list.front(), list.back()) {
            (Some(_), Some(back)) if rank_here > rank(&jobs[back]) => {
                list.push_back(jobs, index);
            }
            (Some(front), _) if rank_here < rank(&jobs[front]) => list.push_front(jobs, index),
            (Some(_), _) => {
                *self.out_of_order_of.entry(Reverse(job.priority)).or_default() += 1;
                self.out_of_order.insert(jobs, index);
                return;
            }
            (None, _) => list.push_back(jobs, index),
        }
        lane.jobs += 1;
    }

    /// Takes a job out.
    pub fn remove(&mut self, jobs: &mut Slab<Job>, index: u32) {
        let key = Reverse(jobs[index].priority);
        if jobs[index].has(flags::OUT_OF_ORDER) {
            self.remove_out_of_order(jobs, index, key);
            return;
        }
        let lifo = jobs[index].has(flags::LIFO);
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.jobs.take_out(1);
            let list = if lifo { &mut lane.lifo } else { &mut lane.fifo };
            list.remove(jobs, index);
            if lane.jobs == 0 && self.lanes.len() > EMPTY_LANES_MAX {
                self.lanes.remove(&key);
            }
        }
    }

    #[cold]
    fn remove_out_of_order(&mut self, jobs: &mut Slab<Job>, index: u32, key: Reverse<i32>) {
        self.out_of_order.remove(jobs, index);
        if let Some(count) = self.out_of_order_of.get_mut(&key) {
            count.take_out(1);
            if *count == 0 {
                self.out_of_order_of.remove(&key);
            }
        }
    }

    /// How many jobs are delivered before a waiting one. `looks` is how many neighbours are looked at on each side.
    pub(crate) fn ahead(&self, jobs: &Slab<Job>, index: u32, looks: usize) -> Ahead {
        let (own, key) = (rank(&jobs[index]), Reverse(jobs[index].priority));
        let above = (Bound::Unbounded, Bound::Excluded(key));
        let mut lanes = self.lanes.range(above).map(|(_, lane)| u64::from(lane.jobs));
        let mut others = self.out_of_order_of.range(above).map(|(_, &jobs)| u64::from(jobs));
        let mut count = lanes.by_ref().take(looks).sum::<u64>();
        count += others.by_ref().take(looks).sum::<u64>();
        let mut exact = lanes.next().is_none() && others.next().is_none();
        // Counts jobs of the same priority that came out of order.
        if self.out_of_order_of.contains_key(&key) {
            exact &= self.out_of_order.len() <= looks;
            let first = |&other: &u32| jobs[other].priority == key.0 && rank(&jobs[other]) < own;
            count += self.out_of_order.iter().take(looks).filter(first).count() as u64;
        }
        let Some(lane) = self.lanes.get(&key) else { return Ahead { count, exact } };
        let (lifo, stray) = (jobs[index].has(flags::LIFO), jobs[index].has(flags::OUT_OF_ORDER));
        let own_list = if lifo { lane.lifo } else { lane.fifo };
        let mut add = |(jobs, whole): (u64, bool)| {
            count += jobs;
            exact &= whole;
        };
        if stray {
            let before = |&other: &u32| rank(&jobs[other]) < own;
            let row = row(jobs, own_list).take(looks + 1).take_while(before).count();
            add((row.min(looks) as u64, row <= looks));
        } else {
            let towards = |next: fn(&Links) -> u32| {
                let step = move |&at: &u32| {
                    let next = next(&jobs[at].links);
                    (next != NONE).then_some(next)
                };
                std::iter::successors(Some(index), step).skip(1).take(looks + 1).count()
            };
            let (before, behind) = (towards(|at| at.prev), towards(|at| at.next));
            if before <= looks {
                add((before as u64, true));
            } else if !lifo && behind <= looks {
                // All others of the lane, those that are LIFO included.
                count += u64::from(lane.jobs).saturating_sub(behind as u64 + 1);
                return Ahead { count, exact };
            } else {
                add((looks as u64, false));
            }
        }
        if !lifo {
            let first = row(jobs, lane.lifo).take(looks + 1).count();
            add((first.min(looks) as u64, first <= looks));
        }
        Ahead { count, exact }
    }

    /// When the jobs became due that wait for longest, as far as that shows at the front of a few priorities, the lowest
    /// ones among them: those wait longest where higher ones come first.
    pub(crate) fn oldest_due_ms(&self, jobs: &Slab<Job>, lanes_max: usize) -> Option<u64> {
        let lanes =
            self.lanes.values().rev().take(lanes_max).chain(self.lanes.values().take(lanes_max));
        let fronts = lanes.flat_map(|lane| [lane.fifo.front(), lane.lifo.back()]).flatten();
        let fronts = fronts.chain(self.out_of_order.first());
        fronts.map(|index| jobs[index].run_at_ms).min()
    }

    /// How many jobs there are of each priority that has any, highest first, from below one on.
    pub fn priorities(&self, below: Option<i32>) -> impl Iterator<Item = (i32, u64)> {
        let first = below.map_or(Bound::Unbounded, |below| Bound::Excluded(Reverse(below)));
        let rest = (first, Bound::Unbounded);
        let lanes = self.lanes.range(rest).map(|(at, lane)| (at.0, u64::from(lane.jobs)));
        let out_of_order =
            self.out_of_order_of.range(rest).map(|(at, &jobs)| (at.0, u64::from(jobs)));
        merged(lanes.filter(|(_, jobs)| *jobs > 0), out_of_order)
    }

    /// How many priorities there are at most.
    pub fn priorities_max(&self) -> usize {
        self.lanes.len() + self.out_of_order_of.len()
    }
}

/// Two rows of counts by priority as one; each is in order, highest first.
pub(crate) fn merged(
    one: impl Iterator<Item = (i32, u64)>,
    other: impl Iterator<Item = (i32, u64)>,
) -> impl Iterator<Item = (i32, u64)> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || {
        let next = one.peek().map(|it| it.0).max(other.peek().map(|it| it.0))?;
        let here = one.next_if(|it| it.0 == next).map_or(0, |(_, jobs)| jobs);
        Some((next, here + other.next_if(|it| it.0 == next).map_or(0, |(_, jobs)| jobs)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::id::Chance;

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
            let counted: Vec<(i32, u64)> = ready.priorities(None).collect();
            let recount = |at: i32| model.iter().filter(|&&one| jobs[one].priority == at).count();
            let recounted = [1, 0, -1].map(|at| (at, recount(at) as u64));
            assert!(counted.into_iter().eq(recounted.into_iter().filter(|it| it.1 > 0)));
            for (place, &index) in model.iter().enumerate() {
                let ahead = Ahead { count: place as u64, exact: true };
                assert_eq!(ready.ahead(&jobs, index, 1000), ahead, "seed {seed}");
                let some = ready.ahead(&jobs, index, 2);
                assert!(some.count <= place as u64 && (!some.exact || some == ahead));
            }
            for index in model {
                assert_eq!(ready.first(&jobs), Some(index));
                ready.remove(&mut jobs, index);
            }
            assert_eq!(ready.first(&jobs), None);
        }
    }

    /// Guards against priorities that each look for the next job passes, and finds nothing at.
    #[test]
    fn the_next_job_is_found_in_few_steps_however_many_priorities_have_jobs_out_of_order_only() {
        let (mut jobs, mut ready) = (Slab::new(), Ready::default());
        let insert = |ready: &mut Ready, jobs: &mut Slab<Job>, priority: i32, id: u128| {
            let index = jobs.insert(Job { id: JobId(id), priority, ..Job::default() });
            ready.insert(jobs, index);
            index
        };
        for priority in 0..1000 {
            let [first, last, _between] =
                [1, 3, 2].map(|id| insert(&mut ready, &mut jobs, priority, id));
            ready.remove(&mut jobs, first);
            ready.remove(&mut jobs, last);
        }
        let looked_at = ready.lanes.values().take_while(|lane| lane.front().is_none()).count();
        assert!(looked_at <= EMPTY_LANES_MAX, "{looked_at} priorities are passed");
        assert!(ready.priorities(None).map(|(_, jobs)| jobs).sum::<u64>() == 1000);
        for priority in (0..1000).rev() {
            let next = ready.first(&jobs).unwrap_or_default();
            assert_eq!(jobs[next].priority, priority);
            ready.remove(&mut jobs, next);
        }
        assert!(ready.first(&jobs).is_none() && ready.priorities(None).next().is_none());
        assert!(ready.lanes.len() <= EMPTY_LANES_MAX && ready.out_of_order_of.is_empty());
    }
}
