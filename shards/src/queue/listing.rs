//! Listings of jobs: a page of a queue by state, in the order the jobs were made (`createdAt`, then their ids), found in slices
//! so that no queue is too long for it. Changes nothing.

use crate::job::State;
use crate::job::id::JobId;
use crate::queue::ready::merged;
use crate::shard::Shard;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Jobs looked at by one slice. A look costs a few nanoseconds; a slice, well under a millisecond.
const LOOKS_MAX: usize = 8192;

/// A set of states.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct States(u16);

impl States {
    /// Every state.
    pub fn all() -> Self {
        State::ALL.into_iter().collect()
    }

    /// Whether a state is in it.
    pub fn has(self, state: State) -> bool {
        self.0 & (1 << state as u16) != 0
    }

    /// These and one more.
    #[must_use]
    pub fn and(self, state: State) -> Self {
        Self(self.0 | 1 << state as u16)
    }
}

impl FromIterator<State> for States {
    fn from_iter<I: IntoIterator<Item = State>>(states: I) -> Self {
        Self(states.into_iter().fold(0, |set, state| set | 1 << state as u16))
    }
}

/// Jobs of a listing beside those of the states that it names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Views {
    /// Waiting jobs of a priority above 0.
    pub prioritized: bool,
    /// Waiting jobs of a queue that is paused.
    pub paused: bool,
}

/// A page being looked for. Jobs that come, go or change their state meanwhile may or may not be on
/// it; all others are where they belong.
#[derive(Clone, Debug)]
pub struct Listing {
    queue: Box<str>,
    states: States,
    views: Views,
    skip: u64,
    limit: usize,
    /// Whether it begins with the newest job.
    newest_first: bool,
    /// Where the last job that was looked at stands.
    after: Option<JobId>,
    found: Vec<JobId>,
}

impl Listing {
    /// A page of at most `limit` jobs of `queue` in one of `states`, after the first `offset` of them.
    pub fn new(queue: &str, states: States, offset: u64, limit: usize) -> Self {
        let (after, found) = (None, Vec::new());
        let queue = queue.into();
        let views = Views::default();
        Self { queue, states, views, skip: offset, limit, newest_first: false, after, found }
    }

    /// Adds the jobs of these views to the page.
    #[must_use]
    pub fn with(self, views: Views) -> Self {
        Self { views, ..self }
    }

    /// Begins the page with the newest job, or with the oldest.
    #[must_use]
    pub fn newest_first(self, newest_first: bool) -> Self {
        Self { newest_first, ..self }
    }

    /// The jobs on it, in their order.
    pub fn found(self) -> Vec<JobId> {
        self.found
    }
}

/// The delayed jobs of a queue by priority, being counted. Jobs that come, go or change their state meanwhile may or may
/// not count.
#[derive(Clone, Debug)]
pub struct DelayedCount {
    queue: Box<str>,
    /// Where the last job that was looked at stands.
    after: Option<JobId>,
    /// How many of each priority there are.
    jobs: BTreeMap<i32, u64>,
}

impl DelayedCount {
    /// None of `queue` yet.
    pub fn new(queue: &str) -> Self {
        Self { queue: queue.into(), after: None, jobs: BTreeMap::new() }
    }

    /// Rows of waiting jobs by priority, highest first, as rows of waiting and delayed ones: at most `most`, below a
    /// priority.
    pub fn with(
        &self,
        waiting: Vec<(i32, u64)>,
        below: Option<i32>,
        most: usize,
    ) -> Vec<(i32, u64)> {
        let rest = (Bound::Unbounded, below.map_or(Bound::Unbounded, Bound::Excluded));
        let delayed = self.jobs.range(rest).rev().map(|(&at, &jobs)| (at, jobs));
        merged(waiting.into_iter(), delayed).take(most).collect()
    }
}

impl Shard {
    /// Counts on, at most a slice; true once all have been seen. Tells how many jobs were looked at.
    pub fn count_delayed(&mut self, counting: &mut DelayedCount) -> (bool, usize) {
        let queue = self.queues.find(&counting.queue).map(|queue| &self.queues[queue]);
        let Some(queue) = queue.filter(|queue| queue.count(State::Delayed) > 0) else {
            return (true, 0);
        };
        let jobs = &self.jobs.slab;
        let mut looks = 0;
        for index in queue.push_order.behind(&self.jobs, counting.after).take(LOOKS_MAX) {
            let job = &jobs[index];
            counting.after = Some(self.jobs.order_of(index));
            looks += 1;
            if job.state == State::Delayed {
                *counting.jobs.entry(job.priority).or_default() += 1;
            }
        }
        (looks < LOOKS_MAX, looks)
    }

    /// Looks on for the jobs of a page, at most a slice; true once it is complete.
    pub fn look_for(&mut self, listing: &mut Listing) -> bool {
        let Some(queue) = self.queues.find(&listing.queue) else { return true };
        let queue = &self.queues[queue];
        let begins = listing.after.is_none();
        let mut states = listing.states;
        if listing.views.paused && queue.is_paused() {
            states = states.and(State::Waiting);
        }
        let prioritized = listing.views.prioritized;
        // While nothing can change, the counts say when all there is has been seen.
        let most = if prioritized { states.and(State::Waiting) } else { states };
        let mut unseen = if begins { queue.count_of(most) } else { u64::MAX };
        if unseen <= listing.skip || listing.limit == 0 {
            return true;
        }
        let jobs = &self.jobs.slab;
        if begins && states == States::all() && !listing.newest_first {
            listing.found.extend(
                queue.push_order.from(listing.skip).take(listing.limit).map(|index| jobs[index].id),
            );
            return true;
        }
        let mut looks = 0;
        let (ahead, back) = if listing.newest_first {
            (None, Some(queue.push_order.before(&self.jobs, listing.after)))
        } else {
            (Some(queue.push_order.behind(&self.jobs, listing.after)), None)
        };
        for index in ahead.into_iter().flatten().chain(back.into_iter().flatten()) {
            let job = &jobs[index];
            listing.after = Some(self.jobs.order_of(index));
            let urgent = prioritized && job.state == State::Waiting && job.priority > 0;
            if urgent || states.has(job.state) {
                unseen -= 1;
                if listing.skip > 0 {
                    listing.skip -= 1;
                } else {
                    listing.found.push(job.id);
                }
                if unseen == 0 || listing.found.len() == listing.limit {
                    return true;
                }
            }
            looks += 1;
            if looks == LOOKS_MAX {
                return false;
            }
        }
        true
    }
}
