//! The history of a shard: when its steps end, and what is asked of it.

use crate::job::State;
use crate::queue::Queue;
use crate::shard::Shard;
use crate::stats::history::History;
use crate::stats::history::share::Share;
use crate::stats::history::span::Span;
use crate::stats::history::track::{Counters, Pace};

/// Queues that are looked at in one call at the end of a step.
const LOOKS_MAX: usize = 250;

/// A queue of those in which most happens.
pub struct Busy<'a> {
    /// The queue.
    pub queue: &'a Queue,
    /// Recent rates of the queue.
    pub pace: Pace,
}

impl Shard {
    fn counters(&self) -> Counters {
        Counters {
            pushed: self.totals.pushed,
            completed: self.totals.completed,
            failed: self.totals.failed,
            waiting: self.queues.count(State::Waiting),
        }
    }

    /// Begins the history, at the start.
    pub(crate) fn begin_history(&mut self, now_ms: u64) {
        let counters = self.counters();
        self.queues.begin_history(now_ms, counters);
    }

    /// Ends a step of the history if it is over, a slice of the queues at a time. Returns when to come again, in
    /// milliseconds since the epoch: `now_ms` if there is more to do. All queues together keep so many bytes.
    pub fn end_history_step(&mut self, now_ms: u64, bytes_max: usize) -> u64 {
        let counters = self.counters();
        self.queues.end_history_step(now_ms, counters, (LOOKS_MAX, bytes_max));
        let history = self.queues.history();
        if history.is_due(now_ms) { now_ms } else { history.next_ms() }
    }

    /// The history of the last day.
    pub fn history(&self) -> &History {
        self.queues.history()
    }

    /// The history of the shard in a span, and how many looks that took.
    pub fn history_of_shard(&self, now_ms: u64, span: Span) -> (Share, usize) {
        self.history().shard().share(now_ms, self.counters(), span)
    }

    /// The history of a queue in a span, if it has one, and how many looks that took.
    pub fn history_of(&mut self, name: &str, now_ms: u64, span: Span) -> Option<(Share, usize)> {
        let index = self.queues.find(name)?;
        let queue = &self.queues[index];
        let track = self.history().of(&queue.history)?;
        Some(track.share(now_ms, queue.counters(), span))
    }

    /// The queues in which most happens, with what that is: at most so many, the busiest first.
    pub fn busiest(&self, now_ms: u64, most: usize) -> Vec<Busy<'_>> {
        let busiest = self.by_pace(now_ms, most).into_iter();
        busiest.filter_map(|queue| self.busy(now_ms, queue)).collect()
    }

    /// Recent rates of a queue that has a history.
    pub fn busy<'a>(&self, now_ms: u64, queue: &'a Queue) -> Option<Busy<'a>> {
        let pace = self.history().of(&queue.history)?.pace(now_ms, queue.counters());
        Some(Busy { queue, pace })
    }

    /// The queues that have a history: at most so many, those first in which most happens.
    pub fn by_pace(&self, now_ms: u64, most: usize) -> Vec<&Queue> {
        let rated = self.history().queues().map(|(index, track)| {
            let counters = self.queues[index].counters();
            (track.rate(now_ms, counters), counters.waiting, index)
        });
        let mut rated: Vec<(f64, u64, u32)> = rated.collect();
        let order = |one: &(f64, u64, u32), other: &(f64, u64, u32)| {
            other.0.total_cmp(&one.0).then(other.1.cmp(&one.1)).then(one.2.cmp(&other.2))
        };
        if rated.len() > most {
            rated.select_nth_unstable_by(most, order);
            rated.truncate(most);
        }
        rated.sort_unstable_by(order);
        rated.into_iter().map(|(_, _, index)| &self.queues[index]).collect()
    }
}
