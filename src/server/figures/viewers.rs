//! The table of the connections of a shard that watch, and how far a sample has come among them.
//!
//! A viewer has one sample at most that it has not read: while that is so, it gets no other, and then the newest.
//! A ground type: of the server it imports what is said about figures only.

use super::messages::Wanted;
use super::sample::Sample;
use crate::api::access::Scope;
use corq_io::net::ConnId;
use std::sync::Arc;

/// A connection that gets samples.
#[derive(Clone, Copy, Debug)]
pub struct Viewer {
    pub conn: ConnId,
    /// Parts that the viewer watches, as a mask.
    pub what: u32,
    pub every_ms: u64,
    /// Most queues that it gets.
    pub top: u32,
    /// When the next sample is for it.
    pub due_ms: u64,
    /// Where its last sample ends in its output.
    pub sent_upto: u64,
    /// Whether it subscribes to snapshots, rather than watching.
    pub subscribes: bool,
    /// The queues that there were for it when it asked: it sees the busiest of these alone.
    pub scope: Scope,
}

impl Viewer {
    /// Whether a sample has what this one wants: one that was under way when it came may have less.
    pub fn is_served_by(&self, sample: &Sample) -> bool {
        let parts = self.scope.is_some() || self.what & !sample.what == 0;
        parts && self.top <= sample.top && sample.queues_of(self.scope).is_some()
    }

    fn add_to(&self, wanted: &mut Wanted) {
        let (every_ms, top, scopes) = (self.every_ms, self.top, Vec::new());
        // A viewer of some queues gets parts of its own, and none that the others see.
        let what = if self.scope.is_some() { 0 } else { self.what };
        wanted.add(&Wanted { every_ms, what, top, scopes });
        if let Some(queues) = self.scope {
            wanted.add_scope(queues);
        }
    }
}

/// A sample on its way to the viewers, who get it some at a time.
#[derive(Debug)]
pub struct Feeding {
    pub sample: Arc<Sample>,
    /// The sample with its rows as JSON, once a viewer needs that.
    pub text: Option<Sample>,
    /// Viewers that have not been offered it.
    pub left: usize,
    /// Wishes of the viewers that have been offered the sample.
    wanted: Wanted,
}

/// The viewers of a shard.
#[derive(Debug, Default)]
pub struct Viewers {
    all: Vec<Viewer>,
    pub feeding: Option<Feeding>,
    /// The viewer whose turn is next.
    next: usize,
    /// Wishes that the sampler was last sent.
    pub told: Wanted,
    /// Samples that were sent.
    pub sent: u64,
    /// Samples that were left out for viewers that had not read the one before.
    pub skipped: u64,
    /// Parts of samples that this shard was asked for.
    pub looks: u64,
    pub scratch: Vec<u8>,
}

impl Viewers {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Takes a viewer in; says at which place it is.
    pub fn insert(&mut self, viewer: Viewer) -> u32 {
        viewer.add_to(&mut self.told);
        if let Some(feeding) = &mut self.feeding {
            viewer.add_to(&mut feeding.wanted);
        }
        self.all.push(viewer);
        self.all.len() as u32 - 1
    }

    /// Forgets a viewer. Another may come to its place: then that one.
    pub fn remove(&mut self, place: u32) -> Option<Viewer> {
        let place = place as usize;
        if place < self.all.len() {
            self.all.swap_remove(place);
        }
        self.all.get(place).copied()
    }

    /// A viewer got a sample: when the next one is for it, and where this one ends in its output.
    pub fn note_sent(&mut self, place: u32, due_ms: u64, sent_upto: u64) {
        if let Some(viewer) = self.all.get_mut(place as usize) {
            (viewer.due_ms, viewer.sent_upto) = (due_ms, sent_upto);
        }
    }

    /// A sample has come: the viewers are offered it, those first whose turn it is.
    pub fn begin(&mut self, sample: Arc<Sample>) {
        let left = self.all.len();
        self.feeding = Some(Feeding { sample, text: None, left, wanted: Wanted::default() });
    }

    /// The next viewer that is offered the sample. None if all have been: then it is gone.
    pub fn next(&mut self) -> Option<&mut Viewer> {
        let feeding = self.feeding.as_mut()?;
        if feeding.left == 0 || self.all.is_empty() {
            return None;
        }
        feeding.left -= 1;
        if self.next >= self.all.len() {
            self.next = 0;
        }
        let viewer = &mut self.all[self.next];
        self.next += 1;
        viewer.add_to(&mut feeding.wanted);
        Some(viewer)
    }

    /// All have been offered the sample. Says what they want if that is less than the sampler knows.
    pub fn end(&mut self) -> Option<Wanted> {
        let wanted = self.feeding.take().map_or(Wanted::default(), |feeding| feeding.wanted);
        // A viewer that was moved to the place of another was passed over: its turn comes with the next sample.
        if wanted.every_ms == 0 && !self.all.is_empty() {
            return None;
        }
        let changed = wanted != self.told;
        self.told = wanted;
        changed.then(|| self.told.clone())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Viewer> {
        self.all.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn viewer(index: u32, every_ms: u64) -> Viewer {
        let conn = ConnId { index, generation: 0 };
        let (due_ms, sent_upto, subscribes, scope) = (0, 0, false, None);
        Viewer { conn, what: 1, every_ms, top: index, due_ms, sent_upto, subscribes, scope }
    }

    fn wanted(every_ms: u64) -> Wanted {
        Wanted { every_ms, what: 1, top: 2, scopes: Vec::new() }
    }

    fn feed(viewers: &mut Viewers) -> Vec<u32> {
        std::iter::from_fn(|| viewers.next().map(|viewer| viewer.conn.index)).collect()
    }

    /// The fear: viewers that come and go while others are fed end the samples of one that stays.
    #[test]
    fn viewers_that_leave_take_nothing_from_those_that_stay() {
        for leaves in 0..4_usize {
            for fed in 0..4_usize {
                let mut viewers = Viewers::default();
                for index in 0..4 {
                    viewers.insert(viewer(index, 1000));
                }
                viewers.begin(Arc::default());
                for _ in 0..fed {
                    viewers.next();
                }
                viewers.remove(leaves as u32);
                feed(&mut viewers);
                viewers.end();
                assert_eq!(viewers.told.every_ms, 1000);
                viewers.begin(Arc::default());
                assert_eq!(feed(&mut viewers).len(), 3);
            }
        }
    }

    /// The fear: a viewer that comes while a sample is under way for others is sent a part that is not there.
    #[test]
    fn a_viewer_is_not_served_by_a_sample_that_was_begun_for_less() {
        let sample = |what: u32, top: u32| Sample { what, top, ..Sample::default() };
        let own = viewer(5, 1000);
        assert!(own.is_served_by(&sample(1, 5)) && own.is_served_by(&sample(3, 9)));
        assert!(!own.is_served_by(&sample(2, 9)), "it lacks what is watched");
        assert!(!own.is_served_by(&sample(1, 4)), "it lacks queues");
        let patterns = crate::api::access::QueuePatterns::new(["a.*"].into_iter());
        let limited = Viewer { scope: Some(Box::leak(Box::new(patterns))), ..own };
        assert!(!limited.is_served_by(&sample(3, 9)), "it is about none of its queues");
    }

    #[test]
    fn every_viewer_is_offered_a_sample_once_and_what_they_want_follows_them() {
        let mut viewers = Viewers::default();
        for index in 0..3 {
            viewers.insert(viewer(index, 1000 + u64::from(index)));
        }
        assert_eq!(viewers.told, wanted(1000));
        viewers.begin(Arc::default());
        assert_eq!(viewers.next().map(|viewer| viewer.conn.index), Some(0));
        // A newer one takes its place: those that were not offered it come first.
        viewers.begin(Arc::default());
        assert_eq!(feed(&mut viewers), [1, 2, 0]);
        assert_eq!(viewers.end(), None, "what they want is known");
        assert_eq!(viewers.remove(0).map(|moved| moved.conn.index), Some(2));
        viewers.begin(Arc::default());
        assert_eq!(feed(&mut viewers).len(), 2);
        assert_eq!(viewers.end(), Some(wanted(1001)));
        assert!(viewers.remove(1).is_none() && viewers.remove(0).is_none());
        viewers.begin(Arc::default());
        assert_eq!((feed(&mut viewers).len(), viewers.end()), (0, Some(Wanted::default())));
    }
}
