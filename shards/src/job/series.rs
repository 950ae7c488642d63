//! The series that a run of a repeated job belongs to.

use super::new_job::Repeat;
use super::recurrence::{KeptRecurrence, Recurrence};
use crate::log_record::push::Pushed;

/// The series of runs that a run belongs to, and its place there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Series {
    /// Distance between due times, at least 1.
    pub every_ms: u64,
    /// Total number of runs, or `None` for no end.
    pub limit: Option<u64>,
    /// Runs before this one.
    pub count: u64,
    /// When this run was due, whatever delayed it since.
    pub due_ms: u64,
    /// Life of each run while not active; 0 for none.
    pub ttl_ms: u64,
    /// Whether the next run has come, so that this one, if it is run again, brings no other.
    pub continued: bool,
    /// The reply waits for the disk.
    pub durable: bool,
    /// When runs are due, if that is more than an interval.
    pub recurrence: Option<Box<KeptRecurrence>>,
}

impl Series {
    /// The series that a job begins.
    pub(crate) fn of(pushed: &Pushed<'_>) -> Option<Self> {
        let repeat = pushed.job.repeat?;
        Some(Self {
            every_ms: repeat.every_ms.max(1),
            limit: repeat.limit,
            count: repeat.count,
            due_ms: pushed.run_at_ms,
            ttl_ms: pushed.job.ttl_ms.unwrap_or(0),
            continued: false,
            durable: pushed.job.durable,
            recurrence: (pushed.job.recurrence.as_deref())
                .map(|given| Box::new(KeptRecurrence::of(given))),
        })
    }

    /// The recurrence in the form in which it is pushed.
    pub(crate) fn given_recurrence(&self) -> Option<Box<Recurrence<'_>>> {
        self.recurrence.as_deref().map(|kept| Box::new(kept.given()))
    }

    /// As it would be asked for.
    pub(crate) fn repeat(&self) -> Repeat {
        Repeat { every_ms: self.every_ms, limit: self.limit, count: self.count }
    }

    pub(crate) fn has_next(&self) -> bool {
        !self.continued && self.limit.is_none_or(|limit| self.count.saturating_add(1) < limit)
    }

    /// When the next run is due: at the first time of its expression, or a whole number of intervals later, not before
    /// `now_ms`, and not sooner than runs may follow each other. `None` if that is too late.
    pub(crate) fn next_due_ms(&self, now_ms: u64, interval_min_ms: u64) -> Option<u64> {
        let soonest_ms = now_ms.max(self.due_ms.saturating_add(interval_min_ms));
        let by_interval = || {
            let missed = soonest_ms.saturating_sub(self.due_ms).div_ceil(self.every_ms);
            Some(self.due_ms.saturating_add(missed.max(1).saturating_mul(self.every_ms)))
        };
        let Some(recurrence) = &self.recurrence else { return by_interval() };
        let due_ms = recurrence.next_ms(soonest_ms, by_interval);
        due_ms.filter(|&due_ms| recurrence.allows(due_ms))
    }
}
