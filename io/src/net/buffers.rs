//! The receive buffers of a shard, provided to the kernel, which fills one per received piece.
//!
//! Knows memory and the shared ring of free buffers; does not know whose bytes they hold. An idle
//! connection holds no buffer, and memory that no piece has reached yet is not there at all.
#![allow(unsafe_code)] // The kernel writes this memory.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

use crate::ring::Ring;

/// The group that receives name. A ring has only this one.
pub(super) const GROUP: u16 = 0;
const PAGE_BYTES: usize = 4096;

/// Received bytes: a buffer that the kernel has filled and handed over. Not to be dropped, since a
/// lost chunk is a lost buffer: give it to [`Buffers::recycle`].
#[derive(Debug)]
#[must_use = "a chunk must be recycled, or its buffer is lost"]
pub struct Chunk {
    buffer: u16,
    len: u32,
}

impl Chunk {
    /// Bytes in it.
    #[expect(clippy::len_without_is_empty, reason = "a chunk is never empty")]
    pub fn len(&self) -> usize {
        self.len as usize
    }
}

/// The buffers of a shard.
pub struct Buffers {
    /// A mapping of the ring of free buffers, padded to whole pages, and behind it the buffers.
    memory: NonNull<u8>,
    memory_bytes: usize,
    ring_bytes: usize,
    buffer_bytes: u32,
    count: u16,
    tail: u16,
    /// Which buffers are with the shard, one flag each.
    handed_over: Vec<bool>,
    handed_over_count: u16,
}

impl Buffers {
    pub(super) fn new(ring: &Ring, count: u16, buffer_bytes: u32) -> io::Result<Self> {
        assert!(count.is_power_of_two() && count <= 1 << 15, "{count} is no number of buffers");
        assert!(buffer_bytes > 0, "a buffer without bytes");
        let entry_bytes = size_of::<BufRingEntry>();
        let ring_bytes = (usize::from(count) * entry_bytes).next_multiple_of(PAGE_BYTES);
        let memory_bytes = ring_bytes + usize::from(count) * buffer_bytes as usize;
        // SAFETY: a new anonymous mapping, which concerns no other memory.
        let memory = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), memory_bytes, access, kind, -1, 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Huge pages would make the first byte of a buffer cost two megabytes. Advice may be refused.
        // SAFETY: the mapping just made.
        unsafe { libc::madvise(memory, memory_bytes, libc::MADV_NOHUGEPAGE) };
        let mut buffers = Self {
            memory: NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            memory_bytes,
            ring_bytes,
            buffer_bytes,
            count,
            tail: 0,
            handed_over: vec![true; usize::from(count)],
            handed_over_count: count,
        };
        // SAFETY: the ring is page-aligned, zeroed, `count` entries long, and unmapped only by the
        // drop of `buffers`, before which its owner lets the ring finish (`Reactor::drop`).
        unsafe {
            let address = buffers.memory.as_ptr() as u64;
            ring.submitter().register_buf_ring_with_flags(address, count, GROUP, 0)?;
        }
        for buffer in 0..count {
            buffers.recycle(Chunk { buffer, len: 0 });
        }
        Ok(buffers)
    }

    /// The bytes of a chunk.
    ///
    /// # Panics
    ///
    /// If the chunk is of another reactor.
    pub fn bytes(&self, chunk: &Chunk) -> &[u8] {
        assert!(self.handed_over[usize::from(chunk.buffer)], "a chunk of another reactor");
        // SAFETY: the buffer is ours until it is recycled, which takes the chunk and `&mut self`;
        // the kernel has written `len` bytes of it, at most its size.
        unsafe { std::slice::from_raw_parts(self.address_of(chunk.buffer), chunk.len()) }
    }

    /// The bytes of a chunk, to be changed where they are.
    pub(super) fn bytes_mut(&mut self, chunk: &Chunk) -> &mut [u8] {
        assert!(self.handed_over[usize::from(chunk.buffer)], "a chunk of another reactor");
        // SAFETY: as above; `&mut self` keeps all other slices away.
        unsafe { std::slice::from_raw_parts_mut(self.address_of(chunk.buffer), chunk.len()) }
    }

    /// Gives a chunk's buffer back to the kernel.
    ///
    /// # Panics
    ///
    /// If the chunk is of another reactor.
    #[expect(clippy::needless_pass_by_value, reason = "whoever recycles a chunk must lose it")]
    pub fn recycle(&mut self, chunk: Chunk) {
        let Chunk { buffer, .. } = chunk;
        let place = &mut self.handed_over[usize::from(buffer)];
        assert!(std::mem::take(place), "buffer {buffer} is with the kernel already");
        self.handed_over_count -= 1;
        let address = self.address_of(buffer) as u64;
        #[expect(clippy::cast_ptr_alignment, reason = "a mapping begins at a page")]
        let ring = self.memory.as_ptr().cast::<BufRingEntry>();
        let slot = usize::from(self.tail & (self.count - 1));
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the slot is within the ring and free: there are as many slots as buffers, and the
        // kernel has taken this buffer out. The setters do not touch the tail, which lies within the
        // first entry; it is written with release order, so that the kernel sees the entry first.
        unsafe {
            let entry = &mut *ring.add(slot);
            entry.set_addr(address);
            entry.set_len(self.buffer_bytes);
            entry.set_bid(buffer);
            let tail = BufRingEntry::tail(ring).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }

    /// Takes over a buffer that a completion names.
    pub(super) fn take(&mut self, buffer: u16, len: u32) -> Chunk {
        assert!(len <= self.buffer_bytes, "{len} bytes in a buffer of {}", self.buffer_bytes);
        let place = &mut self.handed_over[usize::from(buffer)];
        assert!(!std::mem::replace(place, true), "buffer {buffer} came twice");
        self.handed_over_count += 1;
        Chunk { buffer, len }
    }

    /// Chunks that have not been recycled.
    pub fn outstanding(&self) -> u16 {
        self.handed_over_count
    }

    /// False if the kernel has no buffer left to fill.
    pub(super) fn any_free(&self) -> bool {
        self.handed_over_count < self.count
    }

    fn address_of(&self, buffer: u16) -> *mut u8 {
        let offset = self.ring_bytes + usize::from(buffer) * self.buffer_bytes as usize;
        assert!(offset + self.buffer_bytes as usize <= self.memory_bytes, "no buffer {buffer}");
        // SAFETY: within the mapping, as just checked.
        unsafe { self.memory.as_ptr().add(offset) }
    }

    /// Leaves the memory mapped for ever: the kernel may still write it.
    pub(super) fn leak(&mut self) {
        self.memory_bytes = 0;
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if self.memory_bytes > 0 {
            // SAFETY: the mapping made in `new`; nobody holds a slice of it, and the kernel is done.
            unsafe { libc::munmap(self.memory.as_ptr().cast(), self.memory_bytes) };
        }
    }
}
