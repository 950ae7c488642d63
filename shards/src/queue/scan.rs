//! Pages of jobs by a cursor: from any place on, in both directions, at the cost of the jobs that are passed and no others.
//! Changes nothing. A page of one queue goes by the order in which its jobs were made, as their clients say; one of all queues goes by the places
//! that jobs have in memory, which no job leaves while it is there.

use super::Queue;
use super::listing::{States, Views};
use crate::job::id::{ID_MS_MAX, JobId};
use crate::job::{Job, State};
use crate::shard::Shard;

/// Which jobs are meant, as far as memory tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// In any of these states.
    pub states: States,
    /// Or among these.
    pub views: Views,
    /// Of this name.
    pub name: Option<Box<str>>,
    /// Of this group.
    pub group: Option<Box<str>>,
    /// Made at this time or later.
    pub from_ms: u64,
    /// Made at this time or before.
    pub to_ms: u64,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            states: States::all(),
            views: Views::default(),
            name: None,
            group: None,
            from_ms: 0,
            to_ms: u64::MAX,
        }
    }
}

/// Where jobs are looked for, and how far that is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Range {
    /// In one queue.
    Queue {
        /// Name of the queue.
        name: Box<str>,
        /// Whether the newest job comes first.
        newest_first: bool,
        /// Where the last job that was looked at stands ([`crate::job::Jobs::order_of`]).
        after: Option<JobId>,
    },
    /// In all of them, from a place on.
    All {
        /// The next place.
        next: u32,
    },
}

/// Jobs that are looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scan {
    /// Which they are.
    pub wanted: Wanted,
    /// Where they are looked for.
    pub range: Range,
}

/// A job that was found: the scan goes on behind it if it is made to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The job.
    pub id: JobId,
    /// Where the job stands among those of its queue.
    pub order: JobId,
    /// Index of the job in memory.
    pub place: u32,
    /// How many its slice had looked at with it.
    pub looked: u64,
}

/// Results of a slice of a scan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Slice {
    /// The jobs, in their order.
    pub found: Vec<Found>,
    /// How many were looked at.
    pub looked: u64,
    /// Whether there are no more.
    pub is_done: bool,
}

impl Wanted {
    /// The first id that is not before the span of time.
    fn first(&self) -> JobId {
        match self.from_ms {
            from_ms @ 0..=ID_MS_MAX => JobId::default().made_at(from_ms),
            _ => JobId(u128::MAX),
        }
    }

    /// The first id that is behind it.
    fn end(&self) -> JobId {
        match self.to_ms {
            ID_MS_MAX.. => JobId(u128::MAX),
            to_ms => JobId::default().made_at(to_ms + 1),
        }
    }
}

impl Range {
    /// Goes on behind a job that was found.
    pub fn go_behind(&mut self, found: Found) {
        match self {
            Self::Queue { after, .. } => *after = Some(found.order),
            Self::All { next } => *next = found.place + 1,
        }
    }
}

impl Shard {
    /// Looks on for jobs: at most so many, and at no more than so many.
    pub fn scan_jobs(&mut self, scan: &mut Scan, most: usize, looks: usize) -> Slice {
        let Scan { wanted, range } = scan;
        match range {
            Range::Queue { name, newest_first, after } => {
                let Some(queue) = self.queues.find(name) else {
                    return Slice { is_done: true, ..Slice::default() };
                };
                self.scan_queue(queue, wanted, (*newest_first, after), (most, looks))
            }
            Range::All { next } => self.scan_all(wanted, next, (most, looks)),
        }
    }

    /// At or above the id of every job that is there, and below those of all that will come.
    pub fn newest_id(&self) -> JobId {
        self.ids.highest()
    }

    /// Whether a job that was found is still there, and one that is meant.
    pub fn is_still_wanted(&self, found: Found, wanted: &Wanted) -> bool {
        self.jobs.find(found.id).is_some_and(|place| {
            let job = &self.jobs.slab[place];
            let about = &self.queues[job.queue];
            !about.detached && self.is_wanted(place, job, about, wanted)
        })
    }

    fn scan_queue(
        &self,
        queue: u32,
        wanted: &Wanted,
        (newest_first, after): (bool, &mut Option<JobId>),
        (most, looks): (usize, usize),
    ) -> Slice {
        let about = &self.queues[queue];
        let jobs = &self.jobs.slab;
        let (first, end) = (wanted.first(), wanted.end());
        let (ahead, back) = if newest_first {
            let until = after.map_or(end, |after| after.min(end));
            (None, Some(about.push_order.before(&self.jobs, Some(until))))
        } else {
            let before_first = JobId(first.0.wrapping_sub(1));
            let from = if first.0 == 0 {
                *after
            } else {
                Some(after.map_or(before_first, |it| it.max(before_first)))
            };
            (Some(about.push_order.behind(&self.jobs, from)), None)
        };
        let mut slice = Slice::default();
        for place in ahead.into_iter().flatten().chain(back.into_iter().flatten()) {
            let (job, order) = (&jobs[place], self.jobs.order_of(place));
            if order < first || order >= end {
                slice.is_done = true;
                return slice;
            }
            if slice.found.len() == most || slice.looked == looks as u64 {
                return slice;
            }
            slice.looked += 1;
            *after = Some(order);
            if self.is_wanted(place, job, about, wanted) {
                slice.found.push(Found { id: job.id, order, place, looked: slice.looked });
            }
        }
        slice.is_done = true;
        slice
    }

    fn scan_all(&self, wanted: &Wanted, next: &mut u32, (most, looks): (usize, usize)) -> Slice {
        let mut slice = Slice::default();
        let jobs = &self.jobs.slab;
        // Free places cost a look as well.
        for _ in 0..looks {
            if *next >= jobs.end() {
                slice.is_done = true;
                return slice;
            }
            if slice.found.len() == most {
                return slice;
            }
            let place = *next;
            *next += 1;
            let job = jobs.peek(place);
            if job.state == State::Vacant {
                continue;
            }
            slice.looked += 1;
            let about = &self.queues[job.queue];
            let order = self.jobs.order_of(place);
            let is_in_time = order >= wanted.first() && order < wanted.end();
            if is_in_time && !about.detached && self.is_wanted(place, job, about, wanted) {
                slice.found.push(Found { id: job.id, order, place, looked: slice.looked });
            }
        }
        slice
    }

    fn is_wanted(&self, place: u32, job: &Job, queue: &Queue, wanted: &Wanted) -> bool {
        let waits = job.state == State::Waiting;
        let in_view = waits
            && (wanted.views.prioritized && job.priority > 0
                || wanted.views.paused && queue.is_paused());
        (in_view || wanted.states.has(job.state))
            && wanted.name.as_deref().is_none_or(|name| self.name_of(place) == Some(name))
            && wanted.group.as_deref().is_none_or(|group| self.group_name_of(place) == Some(group))
    }
}
