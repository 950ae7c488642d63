//! Parents that are to be written into the data of children, or taken out of it. The data may have 10 MB and is read and
//! written anew for that, so a turn begins no other once it has patched [`TURN_BYTES_MAX`], and one at a time is read
//! from the disk. The others wait in their order; each belongs to a command that its connection has unanswered.
//!
//! A ground type: of the server it imports the envelope only.

use super::messages::Link;
use crate::server::shard_mail::envelope::Step;
use std::collections::VecDeque;

/// Bytes of records after which a turn patches no other.
pub const TURN_BYTES_MAX: usize = 256 << 10;

/// The children that are still to be patched, in their order.
#[derive(Debug, Default)]
pub struct ChildPatches {
    waiting: VecDeque<(Step, Link)>,
    /// Whether the record of one is being read from the disk.
    pub reads: bool,
}

impl ChildPatches {
    /// Takes one in.
    pub fn push(&mut self, step: Step, link: Link) {
        self.waiting.push_back((step, link));
    }

    /// The next, if it may begin after so many bytes in this turn.
    pub fn next(&mut self, patched_bytes: usize) -> Option<(Step, Link)> {
        if self.reads || patched_bytes >= TURN_BYTES_MAX {
            return None;
        }
        self.waiting.pop_front()
    }

    /// Whether one can begin.
    pub fn has_left(&self) -> bool {
        !self.reads && !self.waiting.is_empty()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corq_shards::job::id::JobId;

    #[test]
    fn a_turn_patches_one_large_child_and_many_small_ones() {
        let step = |task| Step { shard: 0, task, round: 0 };
        let link = || Link { child: JobId::default(), parent: None };
        let mut patches = ChildPatches::default();
        (0..100).for_each(|task| patches.push(step(task), link()));
        let mut turn = |record_bytes: usize| {
            let mut bytes = 0;
            std::iter::from_fn(|| {
                let next = patches.next(bytes)?;
                bytes += record_bytes;
                Some(next.0.task)
            })
            .collect::<Vec<_>>()
        };
        assert_eq!(turn(10 << 20), [0]);
        assert_eq!(turn(TURN_BYTES_MAX - 1), [1, 2]);
        assert_eq!(turn(1000), (3..100).collect::<Vec<_>>());
    }

    #[test]
    fn one_record_at_a_time_is_read_from_the_disk() {
        let step = Step { shard: 0, task: 0, round: 0 };
        let mut patches = ChildPatches::default();
        patches.push(step, Link { child: JobId::default(), parent: None });
        patches.reads = true;
        assert!(!patches.has_left() && patches.next(0).is_none());
        patches.reads = false;
        assert!(patches.has_left() && patches.next(0).is_some());
        assert_eq!(patches.len(), 0);
    }
}
