//! Whether every shard still goes through its turns: each answers every question once, in its next turn.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A question to all shards, and how many have answered.
#[derive(Debug, Default)]
pub struct Pulse {
    /// The number of the question.
    asked: AtomicU64,
    answers: AtomicUsize,
}

impl Pulse {
    /// Asks all shards. Every one must have answered the question before.
    pub fn ask(&self) {
        self.answers.store(0, Ordering::Release);
        self.asked.fetch_add(1, Ordering::AcqRel);
    }

    /// How many shards have answered.
    pub fn answers(&self) -> usize {
        self.answers.load(Ordering::Acquire)
    }

    /// Answers a question that is new to a shard; `last` is the one that it has answered.
    #[inline]
    pub fn answer(&self, last: &mut u64) {
        let asked = self.asked.load(Ordering::Acquire);
        if *last != asked {
            *last = asked;
            self.answers.fetch_add(1, Ordering::AcqRel);
        }
    }
}
