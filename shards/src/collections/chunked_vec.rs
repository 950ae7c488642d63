//! A vector that clients can make long: it grows by whole chunks, moves none of them when it grows, and
//! gives them back as it shrinks.
//!
//! The first chunk is an ordinary vector up to its full length, so that a short one costs no more than
//! that. What moves at once is at most a chunk, or the pointers to all of them: 24 bytes per 1024 entries.

/// Entries in one chunk, as a power of two.
const CHUNK_BITS: u32 = 10;
/// Entries in one chunk.
pub(crate) const CHUNK: usize = 1 << CHUNK_BITS;
/// Room for fewer entries than this is not given back.
const KEPT: usize = 16;

/// A vector that grows by a chunk at a time.
pub(crate) struct ChunkedVec<T> {
    /// All but the last one with entries are full. There is at most one without behind it.
    chunks: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for ChunkedVec<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<T> ChunkedVec<T> {
    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first entry.
    pub(crate) fn first(&self) -> Option<&T> {
        self.chunks.first()?.first()
    }

    /// Adds an entry behind all others.
    pub(crate) fn push(&mut self, value: T) {
        let at = self.len >> CHUNK_BITS;
        if at == self.chunks.len() {
            // The first one grows with what is in it.
            self.chunks.push(if at == 0 { Vec::new() } else { Vec::with_capacity(CHUNK) });
        }
        self.chunks[at].push(value);
        self.len += 1;
    }

    /// Takes out the last entry.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let last = self.len.checked_sub(1)?;
        let value = self.chunks[last >> CHUNK_BITS].pop();
        self.len = last;
        self.give_back();
        value
    }

    /// Takes out the entry at `place`, and puts the last one there.
    pub(crate) fn swap_remove(&mut self, place: usize) -> Option<T> {
        assert!(place < self.len, "what is taken out is there");
        let last = self.pop()?;
        if place == self.len { Some(last) } else { Some(std::mem::replace(&mut self[place], last)) }
    }

    /// Not at the border where the next entry would need it again.
    fn give_back(&mut self) {
        let before_last = self.chunks.len() - 1;
        if before_last > 0 {
            if self.len + CHUNK / 2 <= before_last * CHUNK {
                self.chunks.pop();
            }
            let room = self.chunks.capacity();
            if room > KEPT && self.chunks.len() * 4 < room {
                self.chunks.shrink_to(room / 2);
            }
        } else if self.chunks[0].capacity() > KEPT && self.len * 4 < self.chunks[0].capacity() {
            self.chunks[0].shrink_to(KEPT.max(self.len * 2));
        }
    }

    /// All entries, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// Entries for which there is room.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.chunks.iter().map(Vec::capacity).sum()
    }
}

impl<T> std::ops::Index<usize> for ChunkedVec<T> {
    type Output = T;
    fn index(&self, place: usize) -> &T {
        &self.chunks[place >> CHUNK_BITS][place & (CHUNK - 1)]
    }
}

impl<T> std::ops::IndexMut<usize> for ChunkedVec<T> {
    fn index_mut(&mut self, place: usize) -> &mut T {
        &mut self.chunks[place >> CHUNK_BITS][place & (CHUNK - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::id::Chance;

    #[test]
    fn it_is_a_vector_whatever_comes_and_goes() {
        for seed in 0..20 {
            let mut chance = Chance::new(seed);
            let (mut chunked, mut model) = (ChunkedVec::default(), Vec::new());
            let mut growing = true;
            for _ in 0..20_000 {
                if chance.draw().is_multiple_of(4000) {
                    growing = !growing;
                }
                let dice = chance.draw();
                if (dice % 8 < 6) == growing {
                    chunked.push(dice);
                    model.push(dice);
                } else if dice.is_multiple_of(3) && !model.is_empty() {
                    let place = chance.draw() as usize % model.len();
                    assert_eq!(chunked.swap_remove(place), Some(model.swap_remove(place)));
                } else {
                    assert_eq!(chunked.pop(), model.pop());
                }
                assert_eq!((chunked.len(), chunked.first()), (model.len(), model.first()));
                assert!(chunked.capacity() <= KEPT.max(4 * model.len()) + 2 * CHUNK);
            }
            assert!(chunked.iter().eq(&model));
            assert!((0..model.len()).all(|place| chunked[place] == model[place]));
        }
    }

    #[test]
    fn what_it_had_at_its_peak_is_given_back() {
        let mut chunked = ChunkedVec::default();
        (0..100 * CHUNK).for_each(|n| chunked.push(n));
        assert!(chunked.capacity() <= 101 * CHUNK, "no more than one chunk ahead");
        (0..100 * CHUNK - 3).for_each(|_| _ = chunked.pop());
        assert!(chunked.capacity() <= KEPT && chunked.chunks.capacity() <= KEPT);
    }

    #[test]
    fn a_border_that_is_crossed_again_and_again_costs_no_chunk_each_time() {
        let mut chunked = ChunkedVec::default();
        (0..=2 * CHUNK).for_each(|n| chunked.push(n));
        for _ in 0..10 {
            chunked.pop();
            assert_eq!(chunked.chunks.len(), 3);
            chunked.push(0);
        }
    }
}
