//! How many connections a sleep is to hear from before it ends.
//!
//! Clients that wait for their answers come back at about the same time. A sleep that ends with the first of
//! them is followed by another, and by another wake-up of the core; one that goes on for a moment hears several
//! and pays once: one wake-up, one block, one sync. Clients that were heard in the last two rounds are expected again, for a
//! few microseconds. Where they do not come the waits get rarer at once, so that a client alone is not delayed by
//! others who have stopped.
//!
//! Knows rounds and counts; what a round is, its user says.

use std::num::NonZero;
use std::time::Duration;

/// Rounds without waiting for others after it has been in vain again and again.
const PAUSE_ROUNDS_MAX: u32 = 256;
/// More are not waited for together: what they bring is worth a wake-up by itself.
const WANTED_MAX: u32 = 32;

/// When a source was heard last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastHeard(u32);

/// How many clients the next sleep waits for, learnt from the rounds before.
#[derive(Debug)]
pub(super) struct WakeupBatching {
    window_us: u32,
    round: u32,
    /// Sources heard in this round, and how many of them in the one before as well.
    heard: u32,
    again: u32,
    expected: u32,
    heard_before: u32,
    /// How many the last sleep wanted to hear; 0 if any one would do.
    wanted: u32,
    /// Rounds until the next try, and how many there were before the last.
    pause: u32,
    pauses: u32,
}

impl WakeupBatching {
    /// Waits for others so long at most; not at all if that is zero.
    pub(super) fn new(window_us: u32) -> Self {
        Self {
            window_us,
            round: 2,
            heard: 0,
            again: 0,
            expected: 0,
            heard_before: 0,
            wanted: 0,
            pause: 0,
            pauses: 0,
        }
    }

    /// A sleep begins: how many are to be heard within the window, if more than one.
    #[inline]
    pub(super) fn wanted(&mut self) -> Option<NonZero<u32>> {
        let waits = self.is_worth_while();
        self.wanted = if waits { self.expected.min(WANTED_MAX) } else { 0 };
        NonZero::new(self.wanted)
    }

    /// Whether there are others who come about now.
    pub(super) fn is_worth_while(&self) -> bool {
        self.window_us > 0 && self.expected > 1 && self.pause == 0
    }

    /// A sleep of the length of the window begins, for so many if so many can be expected. How many they are.
    pub(super) fn want(&mut self, wanted: NonZero<u32>) -> Option<NonZero<u32>> {
        self.wanted = wanted.get().min(self.expected).min(WANTED_MAX);
        NonZero::new(self.wanted)
    }

    /// How long they are waited for.
    pub(super) fn window(&self) -> Duration {
        Duration::from_micros(self.window_us.into())
    }

    /// Begins a round: the events of a sleep are about to be handled.
    #[inline]
    pub(super) fn begin_round(&mut self) {
        self.round = self.round.wrapping_add(1);
        (self.heard, self.again) = (0, 0);
    }

    /// Something of a source.
    #[inline]
    pub(super) fn note(&mut self, source: &mut LastHeard) {
        if source.0 != self.round {
            self.heard += 1;
            self.again += u32::from(source.0 == self.round.wrapping_sub(1));
            source.0 = self.round;
        }
    }

    /// All of it has been looked at.
    #[inline]
    pub(super) fn end_round(&mut self) {
        let wanted = std::mem::take(&mut self.wanted);
        if wanted == 0 {
            self.pause = self.pause.saturating_sub(u32::from(self.heard > 0));
        } else if self.heard >= wanted.min(2) {
            self.pauses = 0;
        } else {
            self.pauses = (self.pauses * 2).clamp(1, PAUSE_ROUNDS_MAX);
            self.pause = self.pauses;
        }
        if self.heard == 0 {
            // Nobody has spoken: as if it had not been.
            self.round = self.round.wrapping_sub(1);
            return;
        }
        // Expect sources that were heard only last time, too.
        self.expected = self.heard + self.heard_before - self.again;
        self.heard_before = self.heard;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(batching: &mut WakeupBatching, sources: &mut [LastHeard], heard: &[usize]) -> u32 {
        batching.begin_round();
        for &at in heard {
            batching.note(&mut sources[at]);
        }
        batching.end_round();
        batching.wanted().map_or(0, NonZero::get)
    }

    #[test]
    fn those_who_take_turns_are_waited_for_together_and_one_alone_is_not() {
        let mut batching = WakeupBatching::new(30);
        let mut sources = [LastHeard::default(); 4];
        assert_eq!(round(&mut batching, &mut sources, &[0]), 0);
        assert_eq!(round(&mut batching, &mut sources, &[0]), 0);
        assert_eq!(round(&mut batching, &mut sources, &[1]), 2);
        assert_eq!(round(&mut batching, &mut sources, &[0, 1, 1]), 2);
        assert_eq!(round(&mut batching, &mut sources, &[]), 0, "nobody came");
        assert_eq!(round(&mut batching, &mut sources, &[1, 0]), 2);
        assert_eq!(round(&mut batching, &mut sources, &[2, 3]), 4);
        assert_eq!(round(&mut batching, &mut sources, &[2, 3]), 2);
    }

    #[test]
    fn waiting_in_vain_gets_rare_and_ends_when_others_come() {
        let mut batching = WakeupBatching::new(30);
        let mut sources = [LastHeard::default(); 2];
        let mut waits = 0;
        for turn in 0..10_000 {
            waits += u32::from(round(&mut batching, &mut sources, &[turn % 2]) > 0);
        }
        assert!((10..60).contains(&waits), "{waits}");
        let all = (0..1000).filter(|_| round(&mut batching, &mut sources, &[0, 1]) == 2).count();
        assert!(all > 700, "{all}");
    }

    #[test]
    fn without_a_window_nobody_is_waited_for() {
        let mut batching = WakeupBatching::new(0);
        let mut sources = [LastHeard::default(); 8];
        for _ in 0..10 {
            assert_eq!(round(&mut batching, &mut sources, &[0, 1, 2, 3, 4, 5, 6, 7]), 0);
        }
    }
}
