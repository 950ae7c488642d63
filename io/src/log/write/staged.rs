//! The end of a record that is copied into memory of the log before the record is: a slice at a time, with its checksum. What
//! is left to be done with the record costs no more than a short one.
//!
//! Knows memory and sums; nothing of positions. What stands before the end, and how long that is, is known with the record.

use super::aligned::{Buffer, PAGE_BYTES};
use crate::log::format::block::KnownTail;

/// Room in front, for the head of the block and of the record.
const FRONT_BYTES: usize = 64 << 10;

/// Bytes that a record takes beside its head and its end, at most.
const HEADERS_BYTES: usize = 128;

/// The end of a record that will be.
#[derive(Debug)]
pub struct Staged {
    buffer: Buffer,
    bytes: usize,
    filled: usize,
    crc: u32,
}

impl Staged {
    /// Room for so many bytes, none of which is there yet. Takes no memory until it is filled.
    pub fn new(bytes: usize) -> Self {
        // A block ends behind its last record, at most a page.
        let buffer = Buffer::new(FRONT_BYTES + bytes + PAGE_BYTES);
        Self { buffer, bytes, filled: 0, crc: 0 }
    }

    /// Whether the record may have a head of so many bytes.
    pub fn takes(&self, head_bytes: usize) -> bool {
        self.filled == self.bytes && head_bytes <= FRONT_BYTES - HEADERS_BYTES
    }

    /// How many bytes it is made for.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it is made for none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// How many of them are there.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Takes in the next bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.bytes - self.filled, "no more is staged than was said");
        let at = FRONT_BYTES + self.filled;
        self.buffer[at..at + bytes.len()].copy_from_slice(bytes);
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.filled += bytes.len();
    }

    /// Length and checksum of the staged bytes.
    pub(crate) fn tail(&self) -> KnownTail {
        assert!(self.filled == self.bytes, "all of it is there");
        KnownTail { bytes: self.bytes, crc: self.crc }
    }

    /// Memory in which its bytes stand behind so many others. If that is to begin on a page, they are moved there.
    pub(crate) fn into_buffer(mut self, front_bytes: usize, aligned: bool) -> Buffer {
        assert!(front_bytes <= FRONT_BYTES, "a head has room in front");
        if aligned {
            self.buffer.copy_within(FRONT_BYTES..FRONT_BYTES + self.bytes, front_bytes);
            self.buffer
        } else {
            self.buffer.without_front(FRONT_BYTES - front_bytes)
        }
    }
}
