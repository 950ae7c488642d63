//! Counts of a queue by the minute: for a day, in memory only, and only minutes in which something was done.
//!
//! All queues of a shard together remember [`MINUTES_IN_ALL_MAX`] minutes that are over. Beyond that a queue
//! that begins a minute gives up its own oldest one, and one that has none remembers no more than the
//! minute under way.

use std::collections::VecDeque;

/// Minutes that are remembered.
pub const MINUTES_MAX: usize = 1440;

/// Minutes that all queues of a shard remember together.
pub const MINUTES_IN_ALL_MAX: usize = 500_000;

const MINUTE_MS: u64 = 60_000;

/// How many minutes all queues of a shard remember.
#[derive(Clone, Debug)]
pub struct Budget {
    used: usize,
    max: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { used: 0, max: MINUTES_IN_ALL_MAX }
    }
}

impl Budget {
    /// How many are remembered.
    pub fn used(&self) -> usize {
        self.used
    }
}

/// Ends of one kind in a queue.
#[derive(Clone, Debug, Default)]
pub struct Minutes {
    /// Minutes since the epoch and what was counted in them, oldest first: those that are over.
    counts: VecDeque<(u32, u32)>,
    /// The last one in which anything was counted.
    last: (u32, u32),
    /// All that was counted since the start.
    pub total: u64,
    /// When it was counted last.
    pub last_ms: u64,
}

impl Minutes {
    /// Counts one.
    #[inline]
    pub fn count(&mut self, now_ms: u64, budget: &mut Budget) {
        let minute = (now_ms / MINUTE_MS) as u32;
        self.total += 1;
        self.last_ms = now_ms;
        if self.last.0 == minute {
            self.last.1 = self.last.1.saturating_add(1);
        } else {
            self.begin(minute, budget);
        }
    }

    #[cold]
    fn begin(&mut self, minute: u32, budget: &mut Budget) {
        let over = std::mem::replace(&mut self.last, (minute, 1));
        self.forget_old(minute, budget);
        if over.1 == 0 {
            return;
        }
        if budget.used >= budget.max {
            if self.counts.pop_front().is_none() {
                return;
            }
            budget.used -= 1;
        }
        budget.used += 1;
        self.counts.push_back(over);
    }

    /// Forgets what is older than a day at this minute.
    fn forget_old(&mut self, minute: u32, budget: &mut Budget) {
        let oldest = (minute + 1).saturating_sub(MINUTES_MAX as u32);
        while self.counts.front().is_some_and(|(first, _)| *first < oldest) {
            self.counts.pop_front();
            budget.used -= 1;
        }
        if self.counts.is_empty() {
            self.counts = VecDeque::new();
        }
    }

    /// Forgets minutes older than a day in a queue in which nothing may be counted any more for long.
    pub(crate) fn grow_old(&mut self, now_ms: u64, budget: &mut Budget) {
        self.forget_old((now_ms / MINUTE_MS) as u32, budget);
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self, budget: &mut Budget) {
        budget.used -= self.counts.len();
        *self = Self::default();
    }

    /// Minutes that are remembered and over.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.counts.len()
    }

    fn all(&self) -> impl Iterator<Item = (u32, u32)> {
        let last = Some(self.last).filter(|(_, count)| *count > 0);
        self.counts.iter().copied().chain(last)
    }

    /// How many minutes there are from the first that is remembered to now.
    pub fn len(&self, now_ms: u64) -> u64 {
        let now = now_ms / MINUTE_MS;
        let first = self.all().next().map_or(now + 1, |(first, _)| u64::from(first));
        (now + 1).saturating_sub(first).min(MINUTES_MAX as u64)
    }

    /// Counts of the minutes from `start` to `end`, both included, the newest first.
    pub fn newest_first(&self, now_ms: u64, start: u64, end: u64) -> Vec<u64> {
        let now = now_ms / MINUTE_MS;
        let end = end.min(self.len(now_ms).saturating_sub(1));
        if self.all().next().is_none() || start > end {
            return Vec::new();
        }
        let mut counts = vec![0; (end - start + 1) as usize];
        for (minute, count) in self.all() {
            let place = now.saturating_sub(u64::from(minute)).checked_sub(start);
            if let Some(place) = place.and_then(|place| counts.get_mut(place as usize)) {
                *place = u64::from(count);
            }
        }
        counts
    }

    /// The recent count: in the minute under way and the `minutes` before it, and how long that is, in milliseconds. A
    /// minute before the first that is remembered does not count as time. `None` if nothing was counted.
    pub fn lately(&self, now_ms: u64, minutes: u64) -> Option<(u64, u64)> {
        let now = now_ms / MINUTE_MS;
        let last = Some(self.last).filter(|(_, count)| *count > 0);
        let newest_first = last.into_iter().chain(self.counts.iter().rev().copied());
        let recent = newest_first.take_while(|(minute, _)| u64::from(*minute) + minutes >= now);
        let (count, first) = recent.fold((0, now), |(sum, _), (minute, count)| {
            (sum + u64::from(count), u64::from(minute))
        });
        let over_ms = (now - first.min(now)) * MINUTE_MS + now_ms % MINUTE_MS;
        (count > 0).then_some((count, over_ms.max(1000)))
    }

    /// The count of the last minute in which anything was counted.
    pub fn last_count(&self) -> u64 {
        u64::from(self.last.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_counted_apart_and_a_day_of_them_is_remembered() {
        let (mut minutes, mut budget) = (Minutes::default(), Budget::default());
        assert_eq!((minutes.len(5), minutes.newest_first(5, 0, u64::MAX)), (0, vec![]));
        let start = 1_700_000_040_000;
        for at in [0, 59_999, 60_000, 180_000, 180_001, 180_002] {
            minutes.count(start + at, &mut budget);
        }
        let now = start + 250_000;
        assert_eq!(minutes.newest_first(now, 0, u64::MAX), [0, 3, 0, 1, 2]);
        assert_eq!(minutes.newest_first(now, 1, 3), [3, 0, 1]);
        assert_eq!(minutes.newest_first(now, 4, 9), [2]);
        assert_eq!(minutes.newest_first(now, 5, 9), [0_u64; 0]);
        assert_eq!((minutes.len(now), minutes.total, minutes.last_count()), (5, 6, 3));
        for minute in 0..5000 {
            minutes.count(start + 300_000 + minute * MINUTE_MS, &mut budget);
        }
        let now = start + 300_000 + 4999 * MINUTE_MS;
        assert_eq!(minutes.newest_first(now, 0, u64::MAX), vec![1; MINUTES_MAX]);
        assert!(minutes.counts.len() <= MINUTES_MAX && budget.used == minutes.counts.len());
        minutes.clear(&mut budget);
        assert_eq!(budget.used, 0);
    }

    #[test]
    fn all_queues_together_remember_so_many_minutes_and_no_more() {
        let mut budget = Budget { used: 0, max: 100 };
        let mut queues = vec![Minutes::default(); 90];
        for minute in 0..200 {
            for (place, queue) in queues.iter_mut().enumerate() {
                // Some have come before the others.
                if place < 40 || minute > 50 {
                    queue.count(minute * MINUTE_MS, &mut budget);
                }
            }
            assert!(budget.used <= 100);
            assert_eq!(budget.used, queues.iter().map(Minutes::held).sum::<usize>());
        }
        let now = 199 * MINUTE_MS;
        assert!(queues.iter().all(|queue| queue.last_count() == 1 && queue.len(now) >= 1));
        assert!(queues[0].newest_first(now, 0, 1) == [1, 1]);
        // Counts of idle queues grow old, and make room for others.
        let later = now + 2 * MINUTES_MAX as u64 * MINUTE_MS;
        for queue in &mut queues {
            queue.grow_old(later, &mut budget);
        }
        assert_eq!(budget.used, 0);
    }
}
