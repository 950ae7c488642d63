//! The last posts to a webhook with their outcomes, for people who ask: a ring, bounded by number and by bytes, in
//! memory only. The dispatcher's thread writes the ring, and readers copy what they show.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Posts that are remembered of a webhook.
pub const DELIVERIES_MAX: usize = 50;
/// Memory of these posts. The newest is always remembered.
const BYTES_MAX: usize = 16 << 10;
/// Bytes that are remembered of the error of a failed post.
const ERROR_BYTES_MAX: usize = 512;

/// A post to a webhook: an attempt to deliver an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// When it began, in milliseconds since the epoch.
    pub at_ms: u64,
    /// The name of the event.
    pub event: &'static str,
    /// The job that the event was about, as clients know it.
    pub job: Box<str>,
    /// Which attempt for this event it was, from 1.
    pub attempt: u32,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// Why it failed; none if it did not.
    pub error: Option<Box<str>>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// Whether it was asked for, to see whether the webhook answers.
    pub is_test: bool,
}

impl Delivery {
    /// Memory of this record in bytes.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.job.len() + self.error.as_ref().map_or(0, |error| error.len())
    }
}

/// How a post went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Outcome {
    /// When it began.
    pub(super) at_ms: u64,
    pub(super) took_ms: u64,
    pub(super) status: Option<u16>,
    /// Why it counts as failed, if it does.
    pub(super) failure: Option<String>,
}

impl Outcome {
    /// The record to be remembered of this outcome.
    pub(super) fn delivery(
        &self,
        (event, job): (&'static str, &str),
        attempt: u32,
        is_test: bool,
    ) -> Delivery {
        let Self { at_ms, took_ms, status, .. } = *self;
        let cut = |text: &String| text[..text.floor_char_boundary(ERROR_BYTES_MAX)].into();
        let (job, error) = (job.into(), self.failure.as_ref().map(cut));
        Delivery { at_ms, event, job, attempt, status, error, took_ms, is_test }
    }
}

/// The last posts to a webhook.
#[derive(Default)]
pub(super) struct Deliveries {
    /// Oldest first. Held for no longer than one entry is put in or all are copied.
    ring: Mutex<VecDeque<Delivery>>,
    kept: AtomicUsize,
    bytes: AtomicUsize,
}

impl Deliveries {
    fn ring(&self) -> MutexGuard<'_, VecDeque<Delivery>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, delivery: Delivery) {
        let mut ring = self.ring();
        let mut bytes = self.bytes.load(Ordering::Relaxed) + delivery.bytes();
        ring.push_back(delivery);
        while ring.len() > DELIVERIES_MAX || bytes > BYTES_MAX && ring.len() > 1 {
            bytes -= ring.pop_front().map_or(0, |oldest| oldest.bytes());
        }
        self.kept.store(ring.len(), Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// The newest of those that are meant, newest first.
    pub(super) fn newest(
        &self,
        limit: usize,
        is_meant: impl Fn(&Delivery) -> bool,
    ) -> Vec<Delivery> {
        let ring = self.ring();
        ring.iter().rev().filter(|one| is_meant(one)).take(limit).cloned().collect()
    }

    /// How many are remembered, and what they take.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.kept.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(at_ms: u64, failure: Option<String>) -> Delivery {
        let outcome = Outcome { at_ms, took_ms: 1, status: None, failure };
        outcome.delivery(("job.failed", "j"), 1, false)
    }

    #[test]
    fn the_last_posts_are_remembered_and_no_more_than_have_room() {
        let deliveries = Deliveries::default();
        for at_ms in 0..200 {
            deliveries.note(post(at_ms, None));
        }
        let newest = deliveries.newest(3, |_| true);
        assert_eq!(newest.iter().map(|one| one.at_ms).collect::<Vec<_>>(), [199, 198, 197]);
        assert_eq!(deliveries.newest(1000, |_| true).len(), DELIVERIES_MAX);
        assert_eq!(deliveries.newest(1000, |one| one.at_ms % 2 == 0).len(), DELIVERIES_MAX / 2);
        // Long reasons are cut, and leave room for fewer.
        for at_ms in 0..200 {
            deliveries.note(post(at_ms, Some("\u{e4}".repeat(10_000))));
            let (kept, bytes) = deliveries.size();
            assert!(kept <= DELIVERIES_MAX && bytes <= BYTES_MAX, "{kept} of {bytes} bytes");
        }
        let all = deliveries.newest(1000, |_| true);
        let sum: usize = all.iter().map(Delivery::bytes).sum();
        assert_eq!((all.len(), sum), deliveries.size());
        assert!(
            all.len() < DELIVERIES_MAX && all[0].error.as_ref().is_some_and(|it| it.len() == 512)
        );
    }
}
