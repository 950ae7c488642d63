//! An allocator that counts how often it is asked for memory, for the tests of what takes none.
#![allow(unsafe_code)] // Allocators are unsafe by their interface.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// How often memory was asked for, or a piece of it was to grow, by all threads; 0 in a program with another allocator.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// The allocator of the system, counted.
#[derive(Debug)]
pub struct CountingAllocator;

fn note() {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

// SAFETY: each call goes to the allocator of the system as it came, and that keeps what the interface promises. Counting is an
// addition to a number that is there from the beginning: it takes no memory and cannot panic.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller promises what the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above; the place came from the system's allocator.
        unsafe { System.dealloc(place, layout) };
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note();
        // SAFETY: as above.
        unsafe { System.realloc(place, layout, bytes) }
    }
}
