//! A heap of jobs that wait out of order, each of which knows its place in it. In which order they are to
//! leave is not known here.

use crate::collections::chunked_vec::ChunkedVec;
use crate::collections::slab::Slab;
use crate::job::{Job, flags};
use std::marker::PhantomData;

/// An order in which jobs leave.
pub(crate) trait Order {
    /// Sorts in that order.
    type Rank: Ord;
    /// The place of a job in it.
    fn rank(job: &Job) -> Self::Rank;
}

/// A heap of jobs, each of which knows its place.
pub(crate) struct OutOfOrderHeap<O> {
    heap: ChunkedVec<u32>,
    order: PhantomData<O>,
}

impl<O> Default for OutOfOrderHeap<O> {
    fn default() -> Self {
        Self { heap: ChunkedVec::default(), order: PhantomData }
    }
}

impl<O: Order> OutOfOrderHeap<O> {
    /// The one to leave next.
    pub(crate) fn first(&self) -> Option<u32> {
        self.heap.first().copied()
    }

    /// All of them, in no order that may decide anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.heap.iter().copied()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Adds a job, which is in no list.
    pub(crate) fn insert(&mut self, jobs: &mut Slab<Job>, index: u32) {
        jobs[index].flags |= flags::OUT_OF_ORDER;
        self.heap.push(index);
        self.rise(jobs, self.heap.len() - 1);
    }

    /// Takes a job out.
    pub(crate) fn remove(&mut self, jobs: &mut Slab<Job>, index: u32) {
        let place = jobs[index].links.next as usize;
        assert_eq!(self.heap[place], index, "a stray knows its place");
        jobs[index].flags &= !flags::OUT_OF_ORDER;
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            let place = self.rise(jobs, place);
            self.sink(jobs, place);
        }
    }

    fn rise(&mut self, jobs: &mut Slab<Job>, mut place: usize) -> usize {
        let index = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if O::rank(&jobs[self.heap[parent]]) <= O::rank(&jobs[index]) {
                break;
            }
            self.put(jobs, place, self.heap[parent]);
            place = parent;
        }
        self.put(jobs, place, index);
        place
    }

    fn sink(&mut self, jobs: &mut Slab<Job>, mut place: usize) {
        let index = self.heap[place];
        loop {
            let children = place * 2 + 1..(place * 2 + 3).min(self.heap.len());
            let Some(best) = children.min_by_key(|&child| O::rank(&jobs[self.heap[child]])) else {
                break;
            };
            if O::rank(&jobs[self.heap[best]]) >= O::rank(&jobs[index]) {
                break;
            }
            self.put(jobs, place, self.heap[best]);
            place = best;
        }
        self.put(jobs, place, index);
    }

    fn put(&mut self, jobs: &mut Slab<Job>, place: usize, index: u32) {
        self.heap[place] = index;
        jobs[index].links.next = place as u32;
    }
}
