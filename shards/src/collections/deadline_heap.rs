//! Deadlines: a four-ary heap that tells each owner where its deadline stands, so that it can be
//! taken out again in O(log n). Knows no clock and no jobs.

use crate::collections::chunked_vec::ChunkedVec;
use crate::collections::slab::NONE;

/// A collection whose entries have deadlines; each entry remembers its place in the heap (`NONE` if it has none).
pub trait Timed {
    /// Records the place of `key`'s deadline.
    fn place(&mut self, key: u32, place: u32);
}

#[derive(Clone, Copy)]
struct Timer {
    at_ms: u64,
    key: u32,
}

/// Deadlines by time. Equal times come in no promised order.
#[derive(Default)]
pub struct Timers {
    /// With the times at which they were due if none had ever been put off.
    heap: ChunkedVec<Timer>,
    put_off_ms: u64,
}

const ARITY: usize = 4;

impl Timers {
    /// The earliest deadline.
    pub fn next_ms(&self) -> Option<u64> {
        self.heap.first().map(|timer| timer.at_ms.saturating_add(self.put_off_ms))
    }

    /// Puts off all deadlines that stand, whatever their number.
    pub fn put_off(&mut self, by_ms: u64) {
        self.put_off_ms = self.put_off_ms.saturating_add(by_ms);
    }

    /// By how much those have been put off that have stood from the beginning.
    pub fn put_off_ms(&self) -> u64 {
        self.put_off_ms
    }

    /// How many deadlines stand.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// The owner whose deadline is at or before `now_ms`, if any. It stays until taken out.
    pub fn due(&self, now_ms: u64) -> Option<u32> {
        let first = self.heap.first()?;
        (first.at_ms.saturating_add(self.put_off_ms) <= now_ms).then_some(first.key)
    }

    /// Sets a deadline for `key`, which has none.
    pub fn insert(&mut self, at_ms: u64, key: u32, owners: &mut impl Timed) {
        self.heap.push(Timer { at_ms: at_ms.saturating_sub(self.put_off_ms), key });
        self.rise(self.heap.len() - 1, owners);
    }

    /// Takes out the deadline at `place`.
    pub fn remove(&mut self, place: u32, owners: &mut impl Timed) {
        let place = place as usize;
        owners.place(self.heap[place].key, NONE);
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            let place = self.rise(place, owners);
            self.sink(place, owners);
        }
    }

    fn rise(&mut self, mut place: usize, owners: &mut impl Timed) -> usize {
        let timer = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.heap[parent].at_ms <= timer.at_ms {
                break;
            }
            self.put(place, self.heap[parent], owners);
            place = parent;
        }
        self.put(place, timer, owners);
        place
    }

    fn sink(&mut self, mut place: usize, owners: &mut impl Timed) {
        let timer = self.heap[place];
        loop {
            let first = place * ARITY + 1;
            let last = (first + ARITY).min(self.heap.len());
            let Some(least) = (first..last).min_by_key(|&child| self.heap[child].at_ms) else {
                break;
            };
            if self.heap[least].at_ms >= timer.at_ms {
                break;
            }
            self.put(place, self.heap[least], owners);
            place = least;
        }
        self.put(place, timer, owners);
    }

    fn put(&mut self, place: usize, timer: Timer, owners: &mut impl Timed) {
        self.heap[place] = timer;
        owners.place(timer.key, place as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::id::Chance;

    struct Places(Vec<u32>);
    impl Timed for Places {
        fn place(&mut self, key: u32, place: u32) {
            self.0[key as usize] = place;
        }
    }

    #[test]
    fn deadlines_that_are_put_off_come_later_than_they_were_to_and_later_ones_as_they_are() {
        let mut places = Places(vec![NONE; 3]);
        let mut timers = Timers::default();
        timers.insert(1000, 0, &mut places);
        timers.insert(u64::MAX, 2, &mut places);
        timers.put_off(500);
        timers.insert(1200, 1, &mut places);
        assert_eq!((timers.next_ms(), timers.due(1199)), (Some(1200), None));
        assert_eq!(timers.due(1200), Some(1));
        timers.remove(places.0[1], &mut places);
        assert_eq!(
            (timers.next_ms(), timers.due(1499), timers.due(1500)),
            (Some(1500), None, Some(0))
        );
        timers.remove(places.0[0], &mut places);
        assert_eq!(timers.next_ms(), Some(u64::MAX));
    }

    #[test]
    fn deadlines_come_in_order_whatever_was_taken_out() {
        let mut chance = Chance::new(11);
        let mut places = Places(vec![NONE; 500]);
        let mut times = vec![0; 500];
        let mut timers = Timers::default();
        for key in 0..500 {
            times[key as usize] = chance.draw() % 1000;
            timers.insert(times[key as usize], key, &mut places);
        }
        let mut left: Vec<u64> = Vec::new();
        for key in 0..500_u32 {
            if chance.draw().is_multiple_of(3) {
                timers.remove(places.0[key as usize], &mut places);
                assert_eq!(places.0[key as usize], NONE);
            } else {
                left.push(times[key as usize]);
            }
        }
        left.sort_unstable();
        let mut seen = Vec::new();
        while let Some(key) = timers.due(u64::MAX) {
            seen.push(times[key as usize]);
            timers.remove(places.0[key as usize], &mut places);
        }
        assert_eq!(seen, left);
    }
}
