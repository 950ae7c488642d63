//! Page-aligned memory that the kernel may write from while the log goes on filling it.
//!
//! Knows memory only: nothing of blocks, positions or files.
#![allow(unsafe_code)] // Page-aligned, zeroed, lazily touched memory comes only from mmap.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of every buffer, and the unit its size is rounded up to.
pub(crate) const PAGE_BYTES: usize = 4096;

/// An owned anonymous mapping. Reads as zeros and takes no memory until touched, so a shard that
/// idles costs nothing. Its address never changes.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// The mapping.
    start: NonNull<u8>,
    bytes: usize,
    /// Bytes of the front of the mapping that are not part of the buffer.
    skipped: usize,
}

impl Buffer {
    /// A buffer of no bytes: a placeholder that costs nothing.
    pub(crate) const fn empty() -> Self {
        Self { start: NonNull::dangling(), bytes: 0, skipped: 0 }
    }

    /// At least `bytes`, rounded up to whole pages.
    ///
    /// # Panics
    /// When the kernel refuses the memory: like every allocation, it ends the process.
    pub(crate) fn new(bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(PAGE_BYTES).max(PAGE_BYTES);
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no
        // memory that exists already; all arguments are valid for it.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let start = (start != libc::MAP_FAILED).then(|| NonNull::new(start.cast())).flatten();
        match start {
            Some(start) => Self { start, bytes, skipped: 0 },
            None => panic!("no memory for {bytes} bytes of log: {}", io::Error::last_os_error()),
        }
    }

    /// Leaves out so many bytes of the front, wherever the rest then begins.
    pub(crate) fn without_front(mut self, bytes: usize) -> Self {
        assert!(bytes <= self.len(), "only what is there is left out");
        self.skipped += bytes;
        self
    }

    /// Whether it begins on a page.
    pub(crate) fn is_whole(&self) -> bool {
        self.skipped == 0
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is readable, initialised (the kernel zeroes it), `bytes` long, and
        // lives as long as `self`, and no more than that is left out of its front; an empty buffer is a dangling
        // pointer with length 0.
        unsafe {
            let front = self.start.as_ptr().add(self.skipped);
            std::slice::from_raw_parts(front, self.bytes - self.skipped)
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only slice in the program. The
        // kernel may read parts of it for a write in flight; those parts are not changed (see WriteBuffer).
        unsafe {
            let front = self.start.as_ptr().add(self.skipped);
            std::slice::from_raw_parts_mut(front, self.bytes - self.skipped)
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: `start` and `bytes` are those of a mapping this value owns, unmapped once.
            // The result can only tell of wrong arguments.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_page_aligned_zeroed_and_writable() {
        let mut buffer = Buffer::new(5000);
        assert_eq!(buffer.len(), 2 * PAGE_BYTES);
        assert_eq!(buffer.as_ptr() as usize % PAGE_BYTES, 0);
        assert!(buffer.iter().all(|&byte| byte == 0));
        buffer[8191] = 7;
        assert_eq!(buffer[8191], 7);
        assert!(Buffer::empty().is_empty());
        let mut rest = buffer.without_front(8190);
        assert_eq!((rest.len(), rest[1], rest.is_whole()), (2, 7, false));
        rest[0] = 9;
        assert_eq!(rest[..], [9, 7]);
    }
}
