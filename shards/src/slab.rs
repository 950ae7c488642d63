//! Storage by index, and the intrusive lists threaded through it.
//!
//! A slab grows by whole chunks and never moves an entry, so growing it costs the same at ten
//! entries and at ten million. Entries link to each other by index; a list is two indices. Knows
//! nothing of what it stores.
//!
//! An index means something until its entry is removed. One that is kept beyond that reads another entry,
//! which no type prevents; so a build with debug assertions marks free entries, panics where one is read, and
//! hands indices out again late.

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
    /// Its links in that list.
    fn links(&self) -> Links;
    /// The same, to change.
    fn links_mut(&mut self) -> &mut Links;
}

/// Entries by index, reused first in last out; with debug assertions, last in first out.
pub struct Slab<T> {
    chunks: Vec<Box<[T]>>,
    free: VecDeque<u32>,
    used: u32,
    /// Whether an entry is stored at an index.
    #[cfg(debug_assertions)]
    stored: Vec<bool>,
}

/// Free indices that are not handed out again: one that is kept too long is found out as such.
const RESTING: usize = if cfg!(debug_assertions) { 64 } else { 0 };

impl<T: Default> Slab<T> {
    /// An empty slab; the first chunk comes with the first entry.
    pub fn new() -> Self {
        Self {
            chunks: Vec::new(),
            free: VecDeque::new(),
            used: 0,
            #[cfg(debug_assertions)]
            stored: Vec::new(),
        }
    }

    /// Stores `value` and returns its index.
    pub fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.next_free() {
            self.note(index, true);
            self[index] = value;
            return index;
        }
        let index = self.used;
        assert!(index < NONE, "a slab holds fewer than 2^32 entries");
        if index as usize == self.chunks.len() * CHUNK {
            self.chunks.push((0..CHUNK).map(|_| T::default()).collect());
        }
        self.used += 1;
        self.note(index, true);
        self[index] = value;
        index
    }

    fn next_free(&mut self) -> Option<u32> {
        if cfg!(debug_assertions) {
            return if self.free.len() > RESTING { self.free.pop_front() } else { None };
        }
        self.free.pop_back()
    }

    /// Marks an entry as stored or free, where that is looked at.
    #[cfg_attr(not(debug_assertions), allow(unused_variables, clippy::unused_self))]
    fn note(&mut self, index: u32, stored: bool) {
        #[cfg(debug_assertions)]
        {
            let index = index as usize;
            if index == self.stored.len() {
                self.stored.push(stored);
            }
            self.stored[index] = stored;
        }
    }

    /// Takes the entry out; the index may be handed out again.
    pub fn remove(&mut self, index: u32) -> T {
        let entry = std::mem::take(&mut self[index]);
        self.note(index, false);
        self.free.push_back(index);
        entry
    }

    /// How many entries are stored.
    pub fn len(&self) -> usize {
        self.used as usize - self.free.len()
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One past the highest index ever used; free entries below it hold their default.
    pub fn end(&self) -> u32 {
        self.used
    }
}

impl<T> Slab<T> {
    /// The entry at an index below [`Slab::end`]; the default where none is stored.
    pub fn peek(&self, index: u32) -> &T {
        &self.chunks[(index >> CHUNK_BITS) as usize][index as usize & (CHUNK - 1)]
    }

    /// The same, to change.
    pub fn peek_mut(&mut self, index: u32) -> &mut T {
        &mut self.chunks[(index >> CHUNK_BITS) as usize][index as usize & (CHUNK - 1)]
    }
}

impl<T: Default> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, index: u32) -> &T {
        #[cfg(debug_assertions)]
        assert!(self.stored[index as usize], "the entry at index {index} is gone");
        self.peek(index)
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        #[cfg(debug_assertions)]
        assert!(self.stored[index as usize], "the entry at index {index} is gone");
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

    #[test]
    fn a_freed_index_is_reused_before_the_slab_grows() {
        let mut slab: Slab<u64> = Slab::new();
        let indices: Vec<u32> = (0..3000).map(|n| slab.insert(n)).collect();
        for rested in 0..=RESTING as u32 {
            assert_eq!(slab.remove(indices[1500 + rested as usize]), u64::from(1500 + rested));
        }
        assert_eq!((slab.insert(7), slab.end()), (1500, 3000));
        assert_eq!((*slab.peek(1500), slab.len()), (7, 3000 - RESTING));
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
}
