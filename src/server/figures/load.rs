//! How busy a shard is: the share of the time that its turns take, and the longest of them lately. Counted from what a turn
//! measures anyway.
//!
//! A ground type: it imports nothing of the server.

use std::collections::VecDeque;

/// Span over which the share is taken.
const SPAN_MS: u64 = 5_000;

/// Half the time for which a long turn is shown.
const LATELY_MS: u64 = 30_000;

/// The longest turn of a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LongTurn {
    /// How long, in microseconds.
    pub length_us: u64,
    /// The work that took most of the turn.
    pub work: &'static str,
}

/// The turns of a shard, as far as they tell its load.
#[derive(Debug, Default)]
pub struct Load {
    busy_us: u64,
    turns: u64,
    /// The time, `busy_us` and `turns` at the beginning of recent seconds.
    samples: VecDeque<(u64, u64, u64)>,
    /// The longest of this half minute, and of the one before.
    longest: [LongTurn; 2],
    /// When this half minute began.
    since_ms: u64,
}

impl Load {
    /// A turn begins.
    #[inline]
    pub fn begin_turn(&mut self, now_ms: u64) {
        if self.samples.back().is_none_or(|(at_ms, ..)| now_ms >= at_ms + 1000) {
            self.begin_second(now_ms);
        }
    }

    fn begin_second(&mut self, now_ms: u64) {
        self.samples.push_back((now_ms, self.busy_us, self.turns));
        while self.samples.front().is_some_and(|(at_ms, ..)| at_ms + SPAN_MS < now_ms) {
            self.samples.pop_front();
        }
        if now_ms >= self.since_ms + LATELY_MS {
            // Of a shard that slept for long, neither half is recent.
            let before = if now_ms < self.since_ms + 2 * LATELY_MS {
                self.longest[0]
            } else {
                LongTurn::default()
            };
            self.longest = [LongTurn::default(), before];
            self.since_ms = now_ms;
        }
    }

    /// A turn is over.
    #[inline]
    pub fn end_turn(&mut self, length_us: u64, work: &'static str) {
        self.busy_us += length_us;
        self.turns += 1;
        if length_us > self.longest[0].length_us {
            self.longest[0] = LongTurn { length_us, work };
        }
    }

    /// The share of the last seconds that turns took, and how many turns there were per second.
    pub fn lately(&self, now_ms: u64) -> (f64, f64) {
        let recent = self.samples.iter().find(|(at_ms, ..)| at_ms + SPAN_MS >= now_ms);
        let Some((at_ms, busy_us, turns)) = recent else { return (0.0, 0.0) };
        let seconds = now_ms.saturating_sub(*at_ms).max(1000) as f64 / 1000.0;
        let busy = (self.busy_us - busy_us) as f64 / 1e6 / seconds;
        (busy.min(1.0), (self.turns - turns) as f64 / seconds)
    }

    /// The longest turn of the last half minute or minute.
    pub fn longest(&self) -> LongTurn {
        let [now, before] = self.longest;
        if now.length_us >= before.length_us { now } else { before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_the_share_of_the_last_seconds_and_falls_to_nothing() {
        let mut load = Load::default();
        for turn in 0..1000_u64 {
            load.begin_turn(turn * 10);
            load.end_turn(2_500, "due");
        }
        let (busy, turns) = load.lately(10_000);
        assert!((busy - 0.25).abs() < 0.02 && (turns - 100.0).abs() < 5.0, "{busy} {turns}");
        load.begin_turn(60_000);
        assert_eq!(load.lately(60_000), (0.0, 0.0));
    }

    #[test]
    fn a_long_turn_is_shown_for_a_while_and_then_no_more() {
        let mut load = Load::default();
        load.begin_turn(0);
        load.end_turn(9_000, "due");
        for second in 1..=59 {
            load.begin_turn(second * 1000);
            load.end_turn(100, "news");
        }
        assert_eq!(load.longest(), LongTurn { length_us: 9_000, work: "due" });
        for second in 60..130 {
            load.begin_turn(second * 1000);
            load.end_turn(100, "news");
        }
        assert_eq!(load.longest().length_us, 100);
        load.begin_turn(1_000_000);
        assert_eq!(load.longest().length_us, 0);
    }
}
