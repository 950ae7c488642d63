//! The newest events of a shard, kept for clients that lost their connection and come back. An event is kept if a client
//! that can come back was to hear it; it has a number, which with those of the other shards is a
//! [`Position`](super::position::Position).
//!
//! Both the events and their bytes are bounded. What has left is counted by its number alone: a client from before
//! cannot be told how many of those it would have heard.

use super::text::{EventText, Layout};
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of the texts of kept events beyond which the oldest go.
pub const KEPT_BYTES_MAX: usize = 8 << 20;

/// Memory of an event beside its text and the name of its queue.
const EVENT_BYTES: usize = 128;

/// A kept event, shared by the clients that come back.
#[derive(Debug)]
pub struct Kept {
    pub number: u64,
    pub queue: Box<str>,
    layout: Layout,
    text: Box<[u8]>,
}

impl Kept {
    pub fn event(&self) -> EventText<'_> {
        EventText { text: &self.text, layout: self.layout }
    }

    pub fn bytes(&self) -> usize {
        self.text.len() + self.queue.len() + EVENT_BYTES
    }
}

/// The events that a shard keeps.
#[derive(Debug, Default)]
pub struct KeptEvents {
    events: VecDeque<Arc<Kept>>,
    bytes: usize,
    /// The number of the last event.
    last: u64,
    /// The number of the last event that has left.
    left: u64,
}

impl KeptEvents {
    /// The number of the last event.
    pub fn last(&self) -> u64 {
        self.last
    }

    pub fn len(&self) -> usize {
        self.events.len()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether all events behind a number are still here.
    pub fn has_all_behind(&self, number: u64) -> bool {
        number >= self.left && number <= self.last
    }

    /// Keeps an event; of all no more than `events_max`.
    pub fn push(&mut self, queue: &str, event: &EventText<'_>, events_max: usize) {
        self.last += 1;
        let (queue, text) = (queue.into(), event.text.into());
        let kept = Kept { number: self.last, queue, layout: event.layout, text };
        self.bytes += kept.bytes();
        self.events.push_back(Arc::new(kept));
        while self.events.len() > events_max || self.bytes > KEPT_BYTES_MAX {
            self.drop_oldest();
        }
    }

    /// Takes a number for no event: who knows of none behind it has not heard what follows from its beginning.
    pub fn skip(&mut self) {
        self.last += 1;
    }

    fn drop_oldest(&mut self) {
        let Some(gone) = self.events.pop_front() else { return };
        self.bytes -= gone.bytes();
        self.left = gone.number;
    }

    /// There is no client any more that could come back.
    pub fn clear(&mut self) {
        self.events = VecDeque::new();
        (self.bytes, self.left) = (0, self.last);
    }

    /// The events behind a number, up to another one.
    pub fn between(&self, number: u64, upto: u64) -> Vec<Arc<Kept>> {
        let from = self.events.partition_point(|kept| kept.number <= number);
        let end = self.events.partition_point(|kept| kept.number <= upto).max(from);
        self.events.range(from..end).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(kept: &mut KeptEvents, text: &[u8], events_max: usize) {
        kept.push("q", &EventText { text, layout: Layout::default() }, events_max);
    }

    #[test]
    fn the_newest_events_are_kept_within_both_bounds_and_what_has_left_is_known() {
        let mut kept = KeptEvents::default();
        assert!(kept.has_all_behind(0) && !kept.has_all_behind(1));
        for _ in 0..10 {
            push(&mut kept, b"{}", 4);
        }
        assert_eq!((kept.len(), kept.last()), (4, 10));
        assert!(kept.has_all_behind(6) && kept.has_all_behind(10));
        assert!(!kept.has_all_behind(5) && !kept.has_all_behind(11));
        let numbers = |kept: &KeptEvents, number| {
            kept.between(number, u64::MAX).iter().map(|kept| kept.number).collect::<Vec<_>>()
        };
        assert_eq!((numbers(&kept, 8), numbers(&kept, 0)), (vec![9, 10], vec![7, 8, 9, 10]));
        let upto = |number, upto| kept.between(number, upto).len();
        assert_eq!([upto(7, 9), upto(7, 7), upto(9, 7), upto(10, 99)], [2, 0, 0, 0]);
        let large = vec![b' '; KEPT_BYTES_MAX / 2];
        push(&mut kept, &large, 4);
        push(&mut kept, &large, 4);
        assert_eq!((kept.len(), numbers(&kept, 0)), (1, vec![12]));
        assert!(kept.bytes() <= KEPT_BYTES_MAX);
        kept.clear();
        assert_eq!((kept.len(), kept.bytes()), (0, 0));
        assert!(kept.has_all_behind(12) && !kept.has_all_behind(11));
    }
}
