//! Replays events to a client that came back: first they are looked for among all that the shards have kept, then they
//! are written. Both go on in slices, whose bounds are those of a turn and of all such clients of a shard together.
//!
//! A ground type: it knows choices and kept events.

use super::choice::{Choice, Verdict};
use super::kept::Kept;
use super::position::Position;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::vec;

/// Kept events of a client, each with how many were passed over before it, and with its shard.
pub(super) type Found = VecDeque<(u64, u16, Arc<Kept>)>;

/// Kept events among which those of a client are looked for.
#[derive(Debug, Default)]
pub(super) struct Owed {
    kept: BTreeMap<u16, vec::IntoIter<Arc<Kept>>>,
    found: Found,
    bytes: usize,
    passed_over: u64,
}

impl Owed {
    /// Takes in what a shard has kept.
    pub(super) fn take(&mut self, shard: u16, events: Vec<Arc<Kept>>) {
        self.kept.insert(shard, events.into_iter());
    }

    /// Looks through some of them, while there are looks left. An event takes one for itself and one for each comparison.
    pub(super) fn look(&mut self, choice: &Choice, epoch: u64, looks_left: &mut usize) {
        while *looks_left > 0
            && let Some(mut first) = self.kept.first_entry()
        {
            let shard = *first.key();
            let Some(kept) = first.get_mut().next() else {
                first.remove();
                continue;
            };
            *looks_left = looks_left.saturating_sub(1 + choice.comparisons());
            match choice.judge(&kept.event().about(&kept.queue), epoch) {
                Verdict::Other => {}
                Verdict::PassedOver => self.passed_over += 1,
                Verdict::Wanted => {
                    self.bytes += kept.bytes();
                    let passed_over = std::mem::take(&mut self.passed_over);
                    self.found.push_back((passed_over, shard, kept));
                }
            }
        }
    }

    /// Whether all of them have been looked at.
    pub(super) fn is_done(&self) -> bool {
        self.kept.is_empty()
    }

    /// The events of the client, and their bytes.
    pub(super) fn into_found(self) -> (Found, usize) {
        (self.found, self.bytes)
    }
}

/// Most bytes of kept events that clients have yet to get that came back, counted for each of them.
const OWED_BYTES_MAX: usize = 64 << 20;

/// How long clients wait for others to take what they are owed, and how long if none of those takes anything.
const WAIT_MS: u64 = 30_000;
const STALLED_MS: u64 = 2_000;

/// Bytes that all clients of a shard that came back have yet to get. When these are many, the next client waits until
/// some are taken: its own would not find room, and be left out. Clients that do not read hold it up for a bounded
/// time.
#[derive(Debug, Default)]
pub(super) struct OwedBytes {
    bytes: usize,
    taken_at_ms: u64,
}

impl OwedBytes {
    /// Whether there is room for so many more, which are owed from now on.
    pub(super) fn owe(&mut self, bytes: usize) -> bool {
        let fits = self.bytes + bytes <= OWED_BYTES_MAX;
        self.bytes += if fits { bytes } else { 0 };
        fits
    }

    /// A client has got all that it was owed, or has gone.
    pub(super) fn forgive(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }

    /// A client has been sent some of what it is owed.
    pub(super) fn note_taken(&mut self, now_ms: u64) {
        self.taken_at_ms = now_ms;
    }

    /// Until when a client waits that has been heard since then. `is_sending` says that some can be sent more at once.
    pub(super) fn wait_until_ms(&self, since_ms: u64, is_sending: bool) -> u64 {
        if self.bytes <= OWED_BYTES_MAX / 4 {
            0
        } else if is_sending {
            u64::MAX
        } else {
            (since_ms + WAIT_MS).min(self.taken_at_ms + STALLED_MS)
        }
    }
}

/// Kept events that a client has yet to get, with where it is in those of all shards.
#[derive(Debug)]
pub(super) struct Replaying {
    pub(super) events: Found,
    pub(super) position: Position,
    pub(super) bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::super::kept::KeptEvents;
    use super::super::text::{EventText, Layout};
    use super::*;

    #[test]
    fn who_comes_back_waits_for_those_who_take_what_they_are_owed_and_not_for_ever() {
        let mut owed = OwedBytes::default();
        assert!(owed.owe(OWED_BYTES_MAX / 4));
        assert_eq!(owed.wait_until_ms(1000, false), 0);
        assert!(owed.owe(1) && !owed.owe(OWED_BYTES_MAX));
        owed.note_taken(1500);
        assert_eq!(owed.wait_until_ms(1000, true), u64::MAX);
        assert_eq!(owed.wait_until_ms(1000, false), 1500 + STALLED_MS);
        // They go on reading, a little at a time.
        owed.note_taken(1000 + WAIT_MS);
        assert_eq!(owed.wait_until_ms(1000, false), 1000 + WAIT_MS);
        owed.forgive(1);
        assert_eq!(owed.wait_until_ms(1000, true), 0);
    }

    #[test]
    fn what_is_owed_is_found_in_slices_in_the_order_of_shards_and_numbers() {
        let mut owed = Owed::default();
        for shard in [1, 0] {
            let mut kept = KeptEvents::default();
            for number in 0..100 {
                let queue = ["mine", "other"][number % 2];
                let event = EventText { text: b"{}", layout: Layout::default() };
                kept.push(queue, &event, 1000);
            }
            owed.take(shard, kept.between(10, 90));
        }
        // A slice costs the same whatever it finds: a look and a comparison with each of two patterns.
        let choice = Choice::all().of_queues(["m*", "x*"].into_iter());
        let of_one = 1 + choice.comparisons();
        let mut slices = 0;
        while !owed.is_done() {
            let mut looks_left = 20 * of_one;
            owed.look(&choice, 0, &mut looks_left);
            slices += 1;
        }
        // The last sees that nothing is left.
        assert_eq!(slices, 160 / 20 + 1);
        let (found, bytes) = owed.into_found();
        let numbers = |of: u16| {
            let own = found.iter().filter(|(_, shard, _)| *shard == of);
            own.map(|(_, _, kept)| kept.number).collect::<Vec<_>>()
        };
        let expected: Vec<u64> = (11..=90).filter(|number| number % 2 == 1).collect();
        assert_eq!((numbers(0), numbers(1)), (expected.clone(), expected));
        assert!(found.iter().map(|(_, shard, _)| shard).is_sorted());
        assert_eq!(bytes, found.iter().map(|(_, _, kept)| kept.bytes()).sum::<usize>());
    }
}
