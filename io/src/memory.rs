//! How much memory the process has, and giving back what it does not use.
#![allow(unsafe_code)] // The allocator's figures and its trimming are C functions.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The memory of the process, in bytes. 0 stands for what the system does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes that the allocator has given out.
    pub heap_used: u64,
    /// Bytes that the allocator has from the system.
    pub heap_total: u64,
    /// Bytes that the process has in memory.
    pub resident: u64,
    /// Resident bytes that are of files or shared: the program itself, and rings shared with the kernel.
    pub shared: u64,
}

/// Without requests for so long, the server is idle: whatever holds it up holds up no client.
pub const IDLE_MS: u64 = 500;

/// When a client was heard last, in milliseconds since the epoch. Nothing else hangs on its order.
static HEARD_MS: AtomicU64 = AtomicU64::new(0);

/// Least time between two returns of memory: each costs the server some milliseconds.
const TRIM_PAUSE: Duration = Duration::from_secs(1);

/// A look at the heap, or a return of memory, is done again once so many times as long has passed: clients that need no token may
/// ask for both, and all shards wait for memory meanwhile.
const PAUSE_PARTS: u32 = 100;

/// A look that takes no longer is done again after memory has been given back.
const SHORT_LOOK: Duration = Duration::from_millis(1);

/// The last look at the heap.
struct HeapLook {
    ended: Instant,
    took: Duration,
    heap: (u64, u64),
}

static LAST_LOOK: Mutex<Option<HeapLook>> = Mutex::new(None);

/// Looks at all of it: some microseconds. A look at the heap takes longer the more pieces of it are free, so what that was
/// lately stands for what it is.
pub fn measure() -> Memory {
    let (heap_used, heap_total) = lately(&LAST_LOOK, Instant::now(), heap);
    let (resident, shared) = of_kernel();
    Memory { heap_used, heap_total, resident, shared }
}

fn lately(
    last: &Mutex<Option<HeapLook>>,
    now: Instant,
    look: impl FnOnce() -> (u64, u64),
) -> (u64, u64) {
    // A look is written whole.
    let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(look) = &*last
        && now.saturating_duration_since(look.ended) < look.took * PAUSE_PARTS
    {
        return look.heap;
    }
    let began = Instant::now();
    let heap = look();
    let ended = Instant::now();
    *last = Some(HeapLook { ended, took: ended - began, heap });
    heap
}

/// Resident memory of the process, and what of that is shared. 0 for what the kernel does not say.
fn of_kernel() -> (u64, u64) {
    // In pages: all that is mapped, resident, shared, and more.
    let sizes = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut sizes = sizes.split_ascii_whitespace().skip(1);
    let mut bytes =
        || sizes.next().and_then(|pages| pages.parse().ok()).unwrap_or(0) * page_bytes();
    (bytes(), bytes())
}

/// Resident memory of the process in bytes; 0 if the kernel does not say.
pub fn resident_bytes() -> u64 {
    of_kernel().0
}

/// A client has sent something.
pub fn note_heard(now_ms: u64) {
    // Nearly all calls only look.
    if HEARD_MS.load(Ordering::Relaxed) + IDLE_MS / 8 < now_ms {
        HEARD_MS.store(now_ms, Ordering::Relaxed);
    }
}

/// As [`give_back`], once no shard has heard of a client for a while: with many small objects it takes tens of milliseconds, in
/// which all shards wait for memory. Returns when to come again: never, once it has been done.
pub fn give_back_if_idle(now_ms: u64) -> u64 {
    let idle_ms = HEARD_MS.load(Ordering::Relaxed) + IDLE_MS;
    if now_ms < idle_ms {
        return idle_ms;
    }
    // If another shard has done so just now, it was for all.
    give_back();
    u64::MAX
}

/// Gives back to the system what the allocator keeps for later. Once a second at most, and for a hundredth of the time, since it
/// holds up everybody who needs memory meanwhile; false if it has been done lately.
pub fn give_back() -> bool {
    static LAST: Mutex<Option<(Instant, Duration)>> = Mutex::new(None);
    let now = Instant::now();
    // A time cannot be left half written, so what a panicking thread left is as good as any.
    let mut last = LAST.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let is_late = |(ended, took): &(Instant, Duration)| {
        now.saturating_duration_since(*ended) < TRIM_PAUSE.max(*took * PAUSE_PARTS)
    };
    if last.as_ref().is_some_and(is_late) {
        return false;
    }
    trim();
    let ended = Instant::now();
    *last = Some((ended, ended.saturating_duration_since(now)));
    let mut look = LAST_LOOK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let _ = look.take_if(|look| look.took < SHORT_LOOK);
    true
}

/// Less than this is not worth a return of memory.
const SPARE_BYTES: u64 = 64 << 20;

/// Between two looks at what is resident and not in use.
const SPARE_PAUSE: Duration = Duration::from_secs(5);

/// Returns what a peak has left, also while clients go on: once much is resident that was not in use at two looks in a row.
/// What a return cannot free, such as pieces of pages, does not bring the next one.
#[derive(Debug, Default)]
pub struct SpareMemory {
    looked: Option<Instant>,
    was_much: bool,
    /// Resident and not in use after the last return, or the least since.
    kept: u64,
}

impl SpareMemory {
    /// Looks if it is time.
    pub fn look(&mut self, now: Instant) {
        self.judge(now, measure, give_back);
    }

    fn judge(
        &mut self,
        now: Instant,
        measure: impl Fn() -> Memory,
        give_back: impl FnOnce() -> bool,
    ) {
        if self.looked.is_some_and(|at| now.saturating_duration_since(at) < SPARE_PAUSE) {
            return;
        }
        self.looked = Some(now);
        let spare = || {
            let Memory { heap_used, resident, shared, .. } = measure();
            resident.saturating_sub(shared).saturating_sub(heap_used)
        };
        let now_spare = spare();
        self.kept = self.kept.min(now_spare);
        let is_much = now_spare - self.kept > SPARE_BYTES;
        if is_much && self.was_much && give_back() {
            self.kept = spare();
        }
        self.was_much = is_much;
    }
}

fn page_bytes() -> u64 {
    // SAFETY: asks for a constant; touches no memory of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// Bytes that the allocator has given out, and bytes that it has.
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

    /// Keeps these tests apart: memory that one of them gives back would be missing in the figures of another.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn the_process_knows_its_memory() {
        let _alone = alone();
        let before = measure();
        LAST_LOOK.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Several times what the other tests of this process take and give back meanwhile.
        let held = std::hint::black_box(vec![1_u8; 256 << 20]);
        let after = measure();
        assert!(before.resident > 1 << 20, "{before:?}");
        assert!(after.resident > before.resident + (128 << 20), "{before:?} then {after:?}");
        assert!(after.heap_used > before.heap_used + (128 << 20), "{before:?} then {after:?}");
        assert!(after.heap_total >= after.heap_used, "{after:?}");
        drop(held);
    }

    /// Guards against clients that hold up all shards by asking for the figures of a heap with many free pieces.
    #[test]
    fn a_look_that_takes_long_is_not_done_again_at_once() {
        let last = Mutex::new(None);
        let slow = || {
            std::thread::sleep(Duration::from_millis(20));
            (1, 2)
        };
        let began = Instant::now();
        assert_eq!(lately(&last, began, slow), (1, 2));
        assert_eq!(lately(&last, began, || (3, 4)), (1, 2), "that of a moment ago");
        let later = Instant::now() + Duration::from_hours(1);
        assert_eq!(lately(&last, later, || (3, 4)), (3, 4));
    }

    #[test]
    fn what_a_peak_has_left_is_given_back_once_and_what_cannot_be_freed_is_let_be() {
        let began = Instant::now();
        let (mut spare, mut seconds, mut returns) = (SpareMemory::default(), 0, 0);
        let mut looks = |resident_mb: u64, left_mb: u64| {
            let resident = std::cell::Cell::new(resident_mb << 20);
            let measured = || Memory { resident: resident.get(), ..Memory::default() };
            seconds += 5;
            spare.judge(began + Duration::from_secs(seconds), measured, || {
                resident.set(left_mb << 20);
                returns += 1;
                true
            });
            returns
        };
        assert_eq!(looks(600, 300), 0, "a peak that is there still");
        assert_eq!(looks(60, 50), 0);
        assert_eq!(looks(600, 300), 0);
        assert_eq!(looks(600, 300), 1);
        assert_eq!([looks(300, 300), looks(300, 300), looks(360, 300)], [1; 3]);
        assert_eq!(looks(100, 100), 1, "more has become free by itself");
        assert_eq!([looks(300, 100), looks(300, 100)], [1, 2]);
    }

    #[test]
    fn memory_is_given_back_when_no_client_is_held_up_by_that() {
        let _alone = alone();
        note_heard(10_000);
        note_heard(10_001);
        assert_eq!(give_back_if_idle(10_000 + IDLE_MS / 2), 10_000 + IDLE_MS);
        note_heard(10_000 + IDLE_MS / 2);
        assert_eq!(give_back_if_idle(10_000 + IDLE_MS), 10_000 + IDLE_MS / 2 + IDLE_MS);
        HEARD_MS.store(0, Ordering::Relaxed);
    }

    /// Guards against an allocator that keeps what many small objects have left.
    #[test]
    fn memory_that_is_given_back_is_no_longer_resident() {
        let _alone = alone();
        let many: Vec<Box<[u8]>> = (0..200_000).map(|_| vec![1_u8; 200].into()).collect();
        // The last one stays, so that what is before it is a hole in the heap.
        let last = many.into_iter().next_back();
        let before = measure().resident;
        assert_eq!(give_back_if_idle(IDLE_MS), u64::MAX);
        let after = measure().resident;
        assert!(after + (8 << 20) < before, "{before} then {after}");
        assert!(!give_back(), "once a second at most");
        drop(last);
    }
}
