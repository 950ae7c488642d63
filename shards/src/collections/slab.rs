//! Storage by index, and the intrusive lists threaded through it.
//!
//! A slab grows by whole chunks and never moves an entry, so growing it costs the same at ten
//! entries and at ten million. A chunk without entries is given back; the lowest free index is used first, so
//! that the high chunks become empty. Entries link to each other by index; a list is two indices. Knows
//! nothing of what it stores.
//!
//! An index means something until its entry is removed. One that is kept beyond that reads another entry,
//! which no type prevents; so a build with debug assertions marks what is stored, panics where anything else is
//! read, and hands indices out again late.

use crate::collections::chunked_vec::ChunkedVec;
use crate::collections::count::Count;
#[cfg(debug_assertions)]
use std::collections::VecDeque;
use std::marker::PhantomData;

/// The index that names nothing.
pub const NONE: u32 = u32::MAX;

const CHUNK_BITS: u32 = 10;
const CHUNK: usize = 1 << CHUNK_BITS;

/// The neighbours of an entry in one list, or the next free entry of its slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Links {
    /// Towards the tail.
    pub next: u32,
    /// Towards the head.
    pub prev: u32,
}

impl Default for Links {
    fn default() -> Self {
        Self { next: NONE, prev: NONE }
    }
}

/// An entry that can be in a list of kind `L`.
pub trait Linked<L> {
    /// Links of the entry in lists of kind `L`.
    fn links(&self) -> Links;
    /// Links of the entry in lists of kind `L`, to be changed by the list.
    fn links_mut(&mut self) -> &mut Links;
}

/// Entries by index, the lowest free index first.
pub struct Slab<T> {
    /// `None` where a chunk was given back. The last one is there.
    chunks: Vec<Option<Box<[T; CHUNK]>>>,
    /// Used and free entries of each chunk.
    marks: ChunkedVec<Marks>,
    /// Chunks that are there and have room.
    open: Bits,
    /// Chunks that were given back.
    gaps: Bits,
    /// A chunk that is there and has no entry, or `NONE`: one at most, so that it is not given back and made
    /// anew again and again.
    spare: usize,
    len: usize,
    /// The entry that `peek` returns where none is stored.
    vacant: T,
    /// The last indices that were freed, which are not handed out again yet.
    #[cfg(debug_assertions)]
    resting: VecDeque<u32>,
}

/// How many those are: an index that is kept too long is found out as such.
#[cfg(debug_assertions)]
const RESTING: usize = 64;

/// Used and free entries of a chunk.
struct Marks {
    /// A bit for each free entry.
    free: [u64; WORDS],
    /// A bit for each word that has one.
    words: u16,
    used: u16,
    /// A bit for each stored entry.
    #[cfg(debug_assertions)]
    stored: [u64; WORDS],
}

const WORDS: usize = CHUNK / 64;

impl Marks {
    fn new() -> Self {
        Self {
            free: [u64::MAX; WORDS],
            words: u16::MAX,
            used: 0,
            #[cfg(debug_assertions)]
            stored: [0; WORDS],
        }
    }

    /// Uses the lowest free entry. There is one.
    fn take(&mut self) -> usize {
        let word = self.words.trailing_zeros() as usize;
        let bit = self.free[word].trailing_zeros() as usize;
        self.free[word] &= self.free[word] - 1;
        if self.free[word] == 0 {
            self.words &= self.words - 1;
        }
        self.used += 1;
        #[cfg(debug_assertions)]
        {
            self.stored[word] |= 1 << bit;
        }
        word * 64 + bit
    }

    fn free(&mut self, place: usize) {
        let (word, bit) = (place / 64, 1 << (place % 64));
        assert!(self.free[word] & bit == 0, "an entry is freed once");
        self.free[word] |= bit;
        self.words |= 1 << word;
        self.used.take_out(1);
    }
}

/// A set of small numbers that gives its lowest one.
#[derive(Default)]
struct Bits {
    words: Vec<u64>,
    /// No word before this one has a bit.
    from: usize,
}

impl Bits {
    fn set(&mut self, number: usize) {
        let word = number / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (number % 64);
        self.from = self.from.min(word);
    }

    fn clear(&mut self, number: usize) {
        if let Some(word) = self.words.get_mut(number / 64) {
            *word &= !(1 << (number % 64));
        }
    }

    /// A step per 64 numbers that are not in it.
    fn lowest(&mut self) -> Option<usize> {
        while let Some(0) = self.words.get(self.from) {
            self.from += 1;
        }
        let word = self.words.get(self.from)?;
        Some(self.from * 64 + word.trailing_zeros() as usize)
    }
}

impl<T: Default> Slab<T> {
    /// An empty slab; the first chunk comes with the first entry.
    pub fn new() -> Self {
        Self {
            chunks: Vec::new(),
            marks: ChunkedVec::default(),
            open: Bits::default(),
            gaps: Bits::default(),
            spare: NONE as usize,
            len: 0,
            vacant: T::default(),
            #[cfg(debug_assertions)]
            resting: VecDeque::new(),
        }
    }

    /// Stores `value` and returns its index.
    pub fn insert(&mut self, value: T) -> u32 {
        let chunk = match self.open.lowest() {
            Some(chunk) => chunk,
            None => self.add_chunk(),
        };
        if self.spare == chunk {
            self.spare = NONE as usize;
        }
        let marks = &mut self.marks[chunk];
        let place = marks.take();
        if marks.words == 0 {
            self.open.clear(chunk);
        }
        self.len += 1;
        let index = (chunk << CHUNK_BITS | place) as u32;
        self[index] = value;
        index
    }

    #[cold]
    fn add_chunk(&mut self) -> usize {
        let entries: Box<[T]> = (0..CHUNK).map(|_| T::default()).collect();
        let entries = entries.try_into().ok();
        let chunk = self.gaps.lowest().unwrap_or(self.chunks.len());
        assert!(chunk < NONE as usize >> CHUNK_BITS, "a slab holds fewer than 2^32 entries");
        if chunk == self.chunks.len() {
            self.chunks.push(entries);
            self.marks.push(Marks::new());
        } else {
            self.gaps.clear(chunk);
            self.chunks[chunk] = entries;
        }
        self.open.set(chunk);
        chunk
    }

    /// Takes the entry out; the index may be handed out again.
    pub fn remove(&mut self, index: u32) -> T {
        let value = std::mem::take(&mut self[index]);
        self.len.take_out(1);
        if let Some(index) = self.rested(index) {
            self.free(index);
        }
        value
    }

    /// The index that is free now that this one is not used any more.
    #[cfg(not(debug_assertions))]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps)]
    fn rested(&mut self, index: u32) -> Option<u32> {
        Some(index)
    }

    /// The index that is free now: the one removed `RESTING` removals ago, so that use of a stale index is found out.
    #[cfg(debug_assertions)]
    fn rested(&mut self, index: u32) -> Option<u32> {
        let (chunk, place) = ((index >> CHUNK_BITS) as usize, index as usize & (CHUNK - 1));
        self.marks[chunk].stored[place / 64] &= !(1 << (place % 64));
        self.resting.push_back(index);
        if self.resting.len() > RESTING { self.resting.pop_front() } else { None }
    }

    fn free(&mut self, index: u32) {
        let chunk = (index >> CHUNK_BITS) as usize;
        let marks = &mut self.marks[chunk];
        marks.free(index as usize & (CHUNK - 1));
        self.open.set(chunk);
        if marks.used == 0 {
            self.give_back(chunk);
        }
    }

    /// A chunk has no entry any more: of two such chunks the higher one goes.
    #[cold]
    fn give_back(&mut self, chunk: usize) {
        let (stays, goes) = (chunk.min(self.spare), chunk.max(self.spare));
        self.spare = stays;
        if goes == NONE as usize {
            return;
        }
        self.chunks[goes] = None;
        self.open.clear(goes);
        self.gaps.set(goes);
        while let Some(None) = self.chunks.last() {
            self.chunks.pop();
            self.marks.pop();
            self.gaps.clear(self.chunks.len());
        }
        if self.chunks.len() * 4 < self.chunks.capacity() {
            self.chunks.shrink_to(self.chunks.len() * 2);
        }
    }

    /// How many entries are stored.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// No index in use is at or above this one; what is free below it reads as the default.
    pub fn end(&self) -> u32 {
        (self.chunks.len() << CHUNK_BITS) as u32
    }

    /// Entries for which there is room.
    pub fn capacity(&self) -> usize {
        self.chunks.iter().flatten().count() * CHUNK
    }
}

impl<T: Default> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slab<T> {
    /// The entry at an index below [`Slab::end`]; the default where none is stored.
    pub fn peek(&self, index: u32) -> &T {
        match &self.chunks[(index >> CHUNK_BITS) as usize] {
            Some(chunk) => &chunk[index as usize & (CHUNK - 1)],
            None => &self.vacant,
        }
    }

    /// The stored entry at an index, to be changed; panics if its chunk is not there.
    pub fn peek_mut(&mut self, index: u32) -> &mut T {
        let chunk = self.chunks[(index >> CHUNK_BITS) as usize].as_mut();
        &mut chunk.expect("an entry that is stored")[index as usize & (CHUNK - 1)]
    }

    #[cfg(debug_assertions)]
    fn assert_stored(&self, index: u32) {
        let (chunk, place) = ((index >> CHUNK_BITS) as usize, index as usize & (CHUNK - 1));
        let is_stored = chunk < self.marks.len()
            && self.marks[chunk].stored[place / 64] >> (place % 64) & 1 == 1;
        assert!(is_stored, "the entry at index {index} is gone");
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, index: u32) -> &T {
        #[cfg(debug_assertions)]
        self.assert_stored(index);
        self.peek(index)
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        #[cfg(debug_assertions)]
        self.assert_stored(index);
        self.peek_mut(index)
    }
}

/// A doubly linked list through the entries of a slab.
pub struct List<L> {
    head: u32,
    tail: u32,
    kind: PhantomData<L>,
}

impl<L> Clone for List<L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for List<L> {}

impl<L> Default for List<L> {
    fn default() -> Self {
        Self { head: NONE, tail: NONE, kind: PhantomData }
    }
}

impl<L> List<L> {
    /// The first entry, or `None`.
    pub fn front(self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    /// The last entry, or `None`.
    pub fn back(self) -> Option<u32> {
        (self.tail != NONE).then_some(self.tail)
    }

    /// Whether the list has no entry.
    pub fn is_empty(self) -> bool {
        self.head == NONE
    }

    /// Makes `index` the last entry. It must be in no list of this kind.
    pub fn push_back<T: Linked<L>>(&mut self, slab: &mut Slab<T>, index: u32) {
        *slab[index].links_mut() = Links { next: NONE, prev: self.tail };
        match self.tail {
            NONE => self.head = index,
            tail => slab[tail].links_mut().next = index,
        }
        self.tail = index;
    }

    /// Makes `index` the first entry. It must be in no list of this kind.
    pub fn push_front<T: Linked<L>>(&mut self, slab: &mut Slab<T>, index: u32) {
        *slab[index].links_mut() = Links { next: self.head, prev: NONE };
        match self.head {
            NONE => self.tail = index,
            head => slab[head].links_mut().prev = index,
        }
        self.head = index;
    }

    /// Takes `index` out from wherever it stands in this list.
    pub fn remove<T: Linked<L>>(&mut self, slab: &mut Slab<T>, index: u32) {
        let Links { next, prev } = slab[index].links();
        match prev {
            NONE => {
                assert_eq!(self.head, index, "an entry leaves the list it is in");
                self.head = next;
            }
            prev => slab[prev].links_mut().next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => slab[next].links_mut().prev = prev,
        }
        *slab[index].links_mut() = Links::default();
    }

    /// The entry behind `index`.
    pub fn after<T: Linked<L>>(slab: &Slab<T>, index: u32) -> Option<u32> {
        let next = slab[index].links().next;
        (next != NONE).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::id::Chance;
    use std::collections::BTreeMap;

    #[derive(Default)]
    struct Entry(Links);
    struct Only;
    impl Linked<Only> for Entry {
        fn links(&self) -> Links {
            self.0
        }
        fn links_mut(&mut self) -> &mut Links {
            &mut self.0
        }
    }

    fn walk(list: List<Only>, slab: &Slab<Entry>) -> Vec<u32> {
        std::iter::successors(list.front(), |&at| List::after(slab, at)).collect()
    }

    #[test]
    fn entries_leave_from_the_middle_and_both_ends() {
        let mut slab = Slab::new();
        let mut list = List::default();
        for _ in 0..5 {
            let index = slab.insert(Entry::default());
            list.push_back(&mut slab, index);
        }
        for (gone, left) in
            [(2, vec![0, 1, 3, 4]), (0, vec![1, 3, 4]), (4, vec![1, 3]), (1, vec![3]), (3, vec![])]
        {
            list.remove(&mut slab, gone);
            assert_eq!(walk(list, &slab), left);
        }
        list.push_front(&mut slab, 2);
        list.push_front(&mut slab, 1);
        assert_eq!((walk(list, &slab), list.back()), (vec![1, 2], Some(2)));
    }

    /// Frees what rests, if anything does.
    fn wake<T: Default>(slab: &mut Slab<T>) {
        #[cfg(debug_assertions)]
        while let Some(index) = slab.resting.pop_front() {
            slab.free(index);
        }
        _ = slab.len();
    }

    #[test]
    fn a_freed_index_is_reused_before_the_slab_grows() {
        let mut slab: Slab<u64> = Slab::new();
        let indices: Vec<u32> = (0..3000).map(|n| slab.insert(n)).collect();
        assert_eq!(slab.remove(indices[1500]), 1500);
        assert_eq!(slab.remove(indices[1400]), 1400);
        wake(&mut slab);
        assert_eq!((slab.insert(7), slab.insert(8), slab.insert(9)), (1400, 1500, 3000));
        assert_eq!((slab.len(), slab.end(), *slab.peek(1500)), (3001, 3 << CHUNK_BITS, 8));
    }

    /// Guards against memory that a peak leaves behind.
    #[test]
    fn chunks_without_entries_are_given_back() {
        let mut slab: Slab<u64> = Slab::new();
        let all = 100 * CHUNK as u32;
        (0..all).for_each(|n| _ = slab.insert(u64::from(n)));
        // With one entry left in each chunk, most of the new entries fill the lowest chunks.
        (0..all).filter(|n| n % CHUNK as u32 != 7).for_each(|n| _ = slab.remove(n));
        wake(&mut slab);
        assert_eq!((slab.len(), slab.capacity()), (100, 100 * CHUNK));
        (1..CHUNK).for_each(|_| assert!(slab.insert(0) < CHUNK as u32));
        (1..100).for_each(|chunk| _ = slab.remove(chunk * CHUNK as u32 + 7));
        wake(&mut slab);
        assert_eq!((slab.len(), slab.capacity()), (CHUNK, 2 * CHUNK));
        assert!(slab.end() <= 2 << CHUNK_BITS && slab.chunks.capacity() <= 16);
    }

    #[test]
    fn a_chunk_at_the_border_is_not_made_again_and_again() {
        let mut slab: Slab<u64> = Slab::new();
        (0..CHUNK).for_each(|_| _ = slab.insert(1));
        for _ in 0..10 {
            let over = slab.insert(2);
            assert_eq!((over, slab.remove(over)), (CHUNK as u32, 2));
            wake(&mut slab);
            assert_eq!(slab.capacity(), 2 * CHUNK);
        }
    }

    /// The canary of all that keeps indices.
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "the entry at index 1 is gone")]
    fn an_index_that_is_kept_too_long_is_found_out() {
        let mut slab: Slab<u64> = Slab::new();
        let kept = [slab.insert(1), slab.insert(2)];
        slab.remove(kept[1]);
        slab.insert(3);
        slab[kept[1]] += 1;
    }

    #[test]
    fn it_holds_what_a_map_holds() {
        for seed in 0..10 {
            let mut chance = Chance::new(seed);
            let (mut slab, mut model) = (Slab::new(), BTreeMap::new());
            let mut growing = true;
            for step in 1..40_000_u64 {
                if chance.draw().is_multiple_of(8000) {
                    growing = !growing;
                }
                if (chance.draw() % 8 < 6) == growing {
                    let index = slab.insert(step);
                    assert_eq!(model.insert(index, step), None, "an index is given once");
                } else {
                    let about = chance.draw() as u32 % slab.end().max(1);
                    let Some((&index, &value)) = model.range(about..).next() else { continue };
                    assert_eq!((model.remove(&index), slab.remove(index)), (Some(value), value));
                }
                assert_eq!(slab.len(), model.len());
            }
            let read = |index: u32| Some(*slab.peek(index)).filter(|&value| value > 0);
            let all = (0..slab.end()).filter_map(|index| Some((index, read(index)?)));
            assert!(all.eq(model), "seed {seed}");
        }
    }
}
