//! How much memory the process has, and giving back what it does not use.
#![allow(unsafe_code)] // The allocator's figures and its trimming are C functions.

use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The memory of the process, in bytes. 0 stands for what the system does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What the allocator has given out.
    pub heap_used: u64,
    /// What the allocator has from the system.
    pub heap_total: u64,
    /// What the process has in memory.
    pub resident: u64,
    /// What of that is of files or shared: the program itself, and rings shared with the kernel.
    pub shared: u64,
}

/// Least time between two returns of memory: each costs the server some milliseconds.
const TRIM_PAUSE: Duration = Duration::from_secs(1);

/// Looks at all of it: some microseconds.
pub fn measure() -> Memory {
    let (heap_used, heap_total) = heap();
    // In pages: all that is mapped, resident, shared, and more.
    let sizes = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut sizes = sizes.split_ascii_whitespace().skip(1);
    let mut bytes =
        || sizes.next().and_then(|pages| pages.parse().ok()).unwrap_or(0) * page_bytes();
    Memory { heap_used, heap_total, resident: bytes(), shared: bytes() }
}

/// Resident memory of the process in bytes; 0 if the kernel does not say.
pub fn resident_bytes() -> u64 {
    measure().resident
}

/// Gives back to the system what the allocator keeps for later. Once a second at most, since it holds
/// up everybody who needs memory meanwhile; false if it has just been done.
pub fn give_back() -> bool {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let now = Instant::now();
    // A time cannot be left half written, so what a panicking thread left is as good as any.
    let mut last = LAST.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if last.is_some_and(|last| now.duration_since(last) < TRIM_PAUSE) {
        return false;
    }
    *last = Some(now);
    trim();
    true
}

fn page_bytes() -> u64 {
    // SAFETY: asks for a constant; touches no memory of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// What the allocator has given out, and what it has.
#[cfg(target_env = "gnu")]
fn heap() -> (u64, u64) {
    // SAFETY: fills a plain struct of numbers, under the allocator's own locks.
    let info = unsafe { libc::mallinfo2() };
    // Large blocks are mapped one by one and counted apart.
    ((info.uordblks + info.hblkhd) as u64, (info.arena + info.hblkhd) as u64)
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: the allocator may do this at any time; no pointer in use is touched.
    unsafe { libc::malloc_trim(0) };
}

/// Other C libraries tell nothing.
#[cfg(not(target_env = "gnu"))]
fn heap() -> (u64, u64) {
    (0, 0)
}

/// Other C libraries give back by themselves, or not at all.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// What one of these tests gives back would be missing in the figures of another.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn the_process_knows_its_memory() {
        let _alone = alone();
        let before = measure();
        let held = std::hint::black_box(vec![1_u8; 32 << 20]);
        let after = measure();
        assert!(before.resident > 1 << 20, "{before:?}");
        assert!(after.resident > before.resident + (16 << 20), "{before:?} then {after:?}");
        assert!(after.heap_used > before.heap_used + (16 << 20), "{before:?} then {after:?}");
        assert!(after.heap_total >= after.heap_used, "{after:?}");
        drop(held);
    }

    /// Guards against an allocator that keeps what many small objects have left.
    #[test]
    fn memory_that_is_given_back_is_no_longer_resident() {
        let _alone = alone();
        let many: Vec<Box<[u8]>> = (0..200_000).map(|_| vec![1_u8; 200].into()).collect();
        // The last one stays, so that what is before it is a hole in the heap.
        let last = many.into_iter().next_back();
        let before = measure().resident;
        assert!(give_back());
        let after = measure().resident;
        assert!(after + (8 << 20) < before, "{before} then {after}");
        assert!(!give_back(), "once a second at most");
        drop(last);
    }
}
