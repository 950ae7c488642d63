//! Queues where pulls wait until all groups have been looked at, in the order in which they are looked at further. There may
//! be as many as clients like, so whether one is among them costs no look at the others.

use std::collections::{BTreeSet, VecDeque};

/// The line of these queues, each of which stands in it once.
#[derive(Default)]
pub(crate) struct Seeing {
    line: VecDeque<u32>,
    in_line: BTreeSet<u32>,
}

impl Seeing {
    /// Lines a queue up, unless it is in line already.
    pub(crate) fn push(&mut self, queue: u32) {
        if self.in_line.insert(queue) {
            self.line.push_back(queue);
        }
    }

    /// The queue whose turn it is, which leaves the line.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let queue = self.line.pop_front()?;
        self.in_line.remove(&queue);
        Some(queue)
    }

    pub(crate) fn contains(&self, queue: u32) -> bool {
        self.in_line.contains(&queue)
    }

    pub(crate) fn len(&self) -> usize {
        self.line.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_stands_in_line_once_and_may_come_again() {
        let mut seeing = Seeing::default();
        for queue in [3, 1, 3, 2, 1] {
            seeing.push(queue);
        }
        assert_eq!((seeing.len(), seeing.pop(), seeing.contains(3)), (3, Some(3), false));
        seeing.push(3);
        let rest: Vec<u32> = std::iter::from_fn(|| seeing.pop()).collect();
        assert_eq!((rest, seeing.is_empty(), seeing.contains(1)), (vec![1, 2, 3], true, false));
    }
}
