//! How many completed jobs a queue keeps, and for how long. Settings say so, and they may differ from one
//! start to the next; so what they lead to is judged when a job completes and when time passes, and the
//! log says what was forgotten. A replay asks no setting.
//!
//! For number: the record of a completion says which older one it displaces ([`Evicts`]). For age, and
//! where a queue has more than the setting of today allows: a walk over the queues forgets them in
//! slices, and says so queue by queue.

use crate::job::{State, flags};
use crate::log_record::Journal;
use crate::log_record::completed::Evicts;
use crate::shard::{SLICE, Shard};

/// How often completed jobs are checked for their age.
pub(crate) const RETENTION_CHECK_MS: u64 = 60_000;

/// The walk over the queues.
#[derive(Debug)]
pub(crate) struct Retention {
    /// When it goes on.
    pub(crate) due_ms: u64,
    /// The next queue.
    queue: u32,
    /// The walk has met a completed job that stays.
    any: bool,
}

impl Default for Retention {
    fn default() -> Self {
        Self { due_ms: u64::MAX, queue: 0, any: false }
    }
}

impl Retention {
    /// A job was completed, and will be too old some day.
    pub(crate) fn note_end(&mut self, finished_at_ms: u64) {
        self.due_ms = self.due_ms.min(finished_at_ms.saturating_add(RETENTION_CHECK_MS));
    }
}

impl Shard {
    /// Completed jobs that are to be forgotten for the completion of an active job.
    #[inline]
    pub(crate) fn evicts(&self, job: u32) -> Evicts {
        let about = &self.jobs.slab[job];
        let max = self.config.completed_max;
        if about.has(flags::REMOVE_ON_COMPLETE) {
            return Evicts::Nothing;
        }
        if max == 0 {
            return Evicts::Itself;
        }
        let queue = &self.queues[about.queue];
        if queue.count(State::Completed) < u64::from(max) || self.queues.has_elder(about.queue) {
            return Evicts::Nothing;
        }
        let oldest = queue.completed.front(&self.jobs);
        oldest.map_or(Evicts::Nothing, |oldest| Evicts::Below(self.jobs.end_order(oldest) + 1))
    }

    /// Forgets what the completion of a job in this queue has displaced.
    pub(crate) fn evict_for(&mut self, queue: u32, evicts: Evicts) {
        let unsaid_max = u64::from(self.config.unsaid_completed_max);
        while let Some(oldest) = self.queues[queue].completed.front(&self.jobs) {
            let goes = match evicts {
                Evicts::Unsaid => self.queues[queue].count(State::Completed) > unsaid_max,
                Evicts::Nothing | Evicts::Itself => false,
                Evicts::Below(below) => self.jobs.end_order(oldest) < below,
            };
            if !goes {
                return;
            }
            self.evict(oldest);
        }
    }

    /// Goes on with the walk if it is time: at most a slice of looks at queues and jobs.
    pub(crate) fn end_retention<J: Journal>(&mut self, now_ms: u64, journal: &mut J) {
        if now_ms < self.retention.due_ms {
            return;
        }
        let mut left = SLICE;
        while self.retention.queue < self.queues.end() {
            let queue = self.retention.queue;
            while left > 0 && self.is_too_much(now_ms, queue) {
                let Some(oldest) = self.queues[queue].completed.front(&self.jobs) else { break };
                self.evict(oldest);
                left -= 1;
            }
            self.note_evicted(queue, journal);
            if left == 0 {
                self.retention.due_ms = now_ms;
                return;
            }
            left -= 1;
            self.retention.any |= self.queues[queue].count(State::Completed) > 0;
            self.retention.queue += 1;
        }
        let any = std::mem::take(&mut self.retention.any);
        self.retention.queue = 0;
        self.retention.due_ms = if any { now_ms + RETENTION_CHECK_MS } else { u64::MAX };
    }

    /// Whether the oldest completed job of a queue is to be forgotten.
    fn is_too_much(&self, now_ms: u64, queue: u32) -> bool {
        let about = &self.queues[queue];
        if self.queues.has_elder(queue) {
            return false;
        }
        let Some(oldest) = about.completed.front(&self.jobs) else { return false };
        let ended_ms = self.jobs.outcome_of(oldest).map_or(0, |how| how.finished_at_ms);
        about.count(State::Completed) > u64::from(self.config.completed_max)
            || ended_ms.saturating_add(self.config.completed_retention_ms) <= now_ms
    }
}
