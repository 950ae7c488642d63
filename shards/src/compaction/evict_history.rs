//! Completed jobs make room: on a full disk the history of what was done gives way to what is to be
//! done, oldest first, whatever was said about how much of it is kept.
//!
//! Oldest across all queues, as far as that can be told by looking at a few of them at a time: ends have
//! addresses, and all queues are gone through for those below a mark before the mark rises.

use crate::log_record::Journal;
use crate::shard::{Out, SLICE, Shard};

/// How far the search has come.
#[derive(Debug, Default)]
pub(crate) struct HistoryEviction {
    /// The next queue to be looked at.
    queue: u32,
    /// Ends below this mark go in this round.
    mark: u64,
    /// The oldest end that was found above it.
    above: Option<u64>,
}

impl Shard {
    /// Whether there are completed jobs, which could make room.
    pub fn has_history(&self) -> bool {
        // Failed jobs have outcomes, too, and never go by themselves.
        self.completed_jobs > 0
    }

    /// Forgets some completed jobs, among the oldest there are; returns how many.
    pub fn forget_history<J: Journal>(&mut self, out: &mut Out<'_, J>) -> u64 {
        self.forget_some_history(SLICE, out)
    }

    /// Forgets completed jobs as `forget_history`, with at most so many looks at jobs and queues.
    pub fn forget_some_history<J: Journal>(&mut self, looks: u64, out: &mut Out<'_, J>) -> u64 {
        let forgotten = self.forget_oldest(looks, out.journal);
        out.effects.names.append(&mut self.names);
        self.give_notices(out.effects);
        forgotten
    }

    fn forget_oldest<J: Journal>(&mut self, mut left: u64, journal: &mut J) -> u64 {
        let mut forgotten = 0;
        while left > 0 && self.has_history() {
            if self.history_eviction.queue >= self.queues.end() {
                self.begin_round();
            }
            let queue = self.history_eviction.queue;
            left -= 1;
            let mut any = false;
            while !self.queues.has_elder(queue)
                && let Some(oldest) = self.queues[queue].completed.front(&self.jobs)
            {
                let order = self.jobs.end_order(oldest);
                if order >= self.history_eviction.mark {
                    let above = self.history_eviction.above;
                    self.history_eviction.above =
                        Some(above.map_or(order, |found| found.min(order)));
                    break;
                }
                if left == 0 {
                    // The next call goes on with this queue.
                    break;
                }
                left -= 1;
                forgotten += 1;
                any = true;
                self.evict(oldest);
            }
            if any {
                // A restart must not bring them back, as it would those that others have pushed out.
                self.note_evicted(queue, journal);
            }
            if left > 0 {
                self.history_eviction.queue += 1;
            }
        }
        forgotten
    }

    /// All queues have been gone through for the ends below the mark.
    fn begin_round(&mut self) {
        let step = 1 << self.config.span_bits;
        let HistoryEviction { queue, mark, above } = &mut self.history_eviction;
        *queue = 0;
        *mark = above.take().map_or(0, |oldest| oldest.saturating_add(step));
    }
}
