//! How many connections a process may have, over all its shards: each takes a descriptor, and what else needs some
//! must find them.
//!
//! A connection has a permit from its accept to the close of its socket, whichever shard it is with. Near the end
//! of them connections are accepted one at a time: an accept that goes on takes descriptors for as many as wait,
//! before anybody can say no.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Permits that are there, for all shards.
#[derive(Clone, Debug)]
pub struct Permits(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    /// With fewer than this left, connections are accepted one at a time.
    ample: usize,
    taken: AtomicUsize,
}

/// A connection's right to its descriptor.
#[derive(Debug)]
pub(super) struct Permit(Arc<Shared>);

impl Permits {
    /// Allows `most` connections, for `reactors` that each accept up to `at_once` connections before they can be
    /// counted.
    pub fn new(most: usize, reactors: usize, at_once: usize) -> Self {
        // Between two checks each reactor can accept twice its batch: what was in flight, and one batch more.
        let ample = reactors.saturating_mul(at_once).saturating_mul(2);
        Self(Arc::new(Shared { most, ample, taken: AtomicUsize::new(0) }))
    }

    /// As many as there are.
    pub fn most(&self) -> usize {
        self.0.most
    }

    /// As many as are taken.
    pub fn taken(&self) -> usize {
        self.0.taken.load(Ordering::Relaxed)
    }

    /// Whether so many are left that connections need not be counted one by one.
    pub(super) fn are_ample(&self) -> bool {
        self.taken().saturating_add(self.0.ample) <= self.0.most
    }

    pub(super) fn take(&self) -> Option<Permit> {
        let taken = self.0.taken.fetch_add(1, Ordering::Relaxed);
        // Given back at once if it is one too many.
        let permit = Permit(Arc::clone(&self.0));
        (taken < self.0.most).then_some(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_than_there_may_be_and_each_comes_back() {
        let permits = Permits::new(3, 1, 1);
        assert!(permits.are_ample());
        let held: Vec<_> = (0..3).map(|_| permits.take().unwrap()).collect();
        assert!(permits.take().is_none() && permits.take().is_none());
        assert_eq!((permits.taken(), permits.are_ample()), (3, false));
        drop(held);
        assert_eq!((permits.taken(), permits.are_ample()), (0, true));
        assert!(permits.take().is_some());
    }

    #[test]
    fn near_the_end_of_them_they_are_not_ample() {
        let permits = Permits::new(100, 2, 10);
        let held: Vec<_> = (0..60).map(|_| permits.take().unwrap()).collect();
        assert!(permits.are_ample());
        let _one = permits.take().unwrap();
        assert!(!permits.are_ample());
        drop(held);
        assert!(permits.are_ample());
    }
}
