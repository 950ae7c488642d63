//! Steps of sampled jobs on their way from a shard to the thread that posts their spans. They are held until the log has
//! what they tell of, so that no span tells of what a crash then undoes. Nothing waits for them: what finds no room is lost
//! and counted.
//!
//! Which jobs are sampled, and what they consist of, is decided by the engine (`corq_shards::traced`); how spans look, in
//! [`crate::otlp`].
//!
//! | file | responsibility |
//! |---|---|
//! | `delivery` | from settings to the thread that posts, and what is logged about it |

pub(super) mod delivery;

use crate::otlp::span::{Step, bytes_of, spans_of};
use corq_io::batch_post::{Feed, Header};
use corq_io::log::Position;
use corq_shards::traced::Traced;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

/// Steps of a shard that may wait for its log.
const WAITING_MAX: usize = 16_384;
/// And their memory.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Spans of a shard that wait for the log; none unless there is an endpoint to send them to.
#[derive(Default)]
pub struct Spans {
    feed: Option<Feed<Step>>,
    /// With the address of the log's end when they happened.
    waiting: VecDeque<(Position, Traced)>,
    bytes: usize,
}

impl Spans {
    /// Steps go there.
    pub fn new(feed: Option<Feed<Step>>) -> Self {
        Self { feed, ..Self::default() }
    }

    /// Whether spans are made at all.
    pub fn are_made(&self) -> bool {
        self.feed.is_some()
    }

    /// Whether nothing waits for the log.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next posts have these headers.
    pub fn set_headers(&self, headers: Vec<Header>) {
        if let Some(feed) = &self.feed {
            feed.set_headers(headers);
        }
    }

    /// Takes steps over that the log has once it has released `until`.
    #[cold]
    pub fn take(&mut self, steps: &mut Vec<Traced>, until: Position) {
        let Some(feed) = &self.feed else { return steps.clear() };
        for step in steps.drain(..) {
            let bytes = bytes_of(&step);
            if self.waiting.len() >= WAITING_MAX || self.bytes + bytes > WAITING_BYTES_MAX {
                feed.drop_units(spans_of(&step));
                continue;
            }
            self.bytes += bytes;
            self.waiting.push_back((until, step));
        }
    }

    /// Hands over what the log has. `now_us` is asked for the time in microseconds since the epoch.
    #[cold]
    pub fn release(&mut self, released: Position, now_us: impl FnOnce() -> u64) {
        let Some(feed) = &self.feed else { return };
        let may_go = |first: &mut (Position, Traced)| first.0 <= released;
        let Some(mut next) = self.waiting.pop_front_if(may_go) else { return };
        let done_us = now_us();
        loop {
            self.bytes -= bytes_of(&next.1);
            feed.offer(Step { traced: next.1, done_us });
            let Some(behind) = self.waiting.pop_front_if(may_go) else { return };
            next = behind;
        }
    }

    /// Counts of all spans of the server: exported, lost for want of room, given up, rejected; posts that failed; spans
    /// that wait, and their memory in bytes.
    pub fn counts(&self) -> [u64; 7] {
        let Some(feed) = &self.feed else { return [0; 7] };
        let counters = feed.counters();
        [
            counters.taken.load(Relaxed),
            counters.dropped.load(Relaxed),
            counters.abandoned.load(Relaxed),
            counters.rejected.load(Relaxed),
            counters.failed_posts.load(Relaxed),
            counters.waiting.load(Relaxed),
            counters.waiting_bytes.load(Relaxed) as u64,
        ]
    }
}
