//! What a queue has done, by the minute: for a day, in memory only, and only minutes in which something was done.

use std::collections::VecDeque;

/// Minutes that are remembered.
pub const MINUTES_MAX: usize = 1440;

const MINUTE_MS: u64 = 60_000;

/// Ends of one kind in a queue.
#[derive(Clone, Debug, Default)]
pub struct Minutes {
    /// Minutes since the epoch and what was counted in them, oldest first.
    counts: VecDeque<(u64, u64)>,
    /// All that was counted since the start.
    pub total: u64,
    /// When it was counted last.
    pub last_ms: u64,
}

impl Minutes {
    /// Counts one.
    #[inline]
    pub fn count(&mut self, now_ms: u64) {
        let minute = now_ms / MINUTE_MS;
        self.total += 1;
        self.last_ms = now_ms;
        match self.counts.back_mut() {
            Some((last, count)) if *last == minute => *count += 1,
            _ => self.begin(minute),
        }
    }

    #[cold]
    fn begin(&mut self, minute: u64) {
        self.counts.push_back((minute, 1));
        let oldest = (minute + 1).saturating_sub(MINUTES_MAX as u64);
        while self.counts.front().is_some_and(|(first, _)| *first < oldest) {
            self.counts.pop_front();
        }
    }

    /// How many minutes there are from the first that is remembered to now.
    pub fn len(&self, now_ms: u64) -> u64 {
        let now = now_ms / MINUTE_MS;
        let first = self.counts.front().map_or(now + 1, |(first, _)| *first);
        (now + 1).saturating_sub(first).min(MINUTES_MAX as u64)
    }

    /// What was counted in the minutes from `start` to `end`, both included, the newest first.
    pub fn newest_first(&self, now_ms: u64, start: u64, end: u64) -> Vec<u64> {
        let now = now_ms / MINUTE_MS;
        let end = end.min(self.len(now_ms).saturating_sub(1));
        if self.counts.is_empty() || start > end {
            return Vec::new();
        }
        let mut counts = vec![0; (end - start + 1) as usize];
        for (minute, count) in &self.counts {
            let place = now.saturating_sub(*minute).checked_sub(start);
            if let Some(place) = place.and_then(|place| counts.get_mut(place as usize)) {
                *place = *count;
            }
        }
        counts
    }

    /// What was counted in the last minute in which anything was.
    pub fn last_count(&self) -> u64 {
        self.counts.back().map_or(0, |(_, count)| *count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_counted_apart_and_a_day_of_them_is_remembered() {
        let mut minutes = Minutes::default();
        assert_eq!((minutes.len(5), minutes.newest_first(5, 0, u64::MAX)), (0, vec![]));
        let start = 1_700_000_040_000;
        for at in [0, 59_999, 60_000, 180_000, 180_001, 180_002] {
            minutes.count(start + at);
        }
        let now = start + 250_000;
        assert_eq!(minutes.newest_first(now, 0, u64::MAX), [0, 3, 0, 1, 2]);
        assert_eq!(minutes.newest_first(now, 1, 3), [3, 0, 1]);
        assert_eq!(minutes.newest_first(now, 4, 9), [2]);
        assert_eq!(minutes.newest_first(now, 5, 9), [0_u64; 0]);
        assert_eq!((minutes.len(now), minutes.total, minutes.last_count()), (5, 6, 3));
        for minute in 0..5000 {
            minutes.count(start + 300_000 + minute * MINUTE_MS);
        }
        let now = start + 300_000 + 4999 * MINUTE_MS;
        assert_eq!(minutes.newest_first(now, 0, u64::MAX), vec![1; MINUTES_MAX]);
        assert!(minutes.counts.len() <= MINUTES_MAX);
    }
}
