//! Reading blocks back from segments, one after the other: is there one, is it intact, does it follow
//! the one before it?
//!
//! Knows the format and how to read ahead. What it means that a block is not there is for others to
//! judge. No content of any file makes it panic.

use crate::log::disk::Disk;
use crate::log::error::OpenError;
use crate::log::format::address::{Geometry, Position, SEGMENT_HEADER_BYTES};
use crate::log::format::block::{BLOCK_HEADER_BYTES, BlockHeader, check_records};
use crate::log::format::chain::{BLOCK_ALIGN_BYTES, Mark, Stretch};
use crate::log::format::salt::Salt;
use crate::log::format::segment::file_name;
use crate::log::format::successor_mark::SUCCESSOR_MAGIC;
use std::io;

const EMPTY: [u8; BLOCK_ALIGN_BYTES as usize] = [0; BLOCK_ALIGN_BYTES as usize];
/// Read from the disk at once.
const READ_BYTES: usize = 4 << 20;

/// Where segments are read from.
pub(crate) trait Source {
    /// Reads; fewer bytes than asked for mean the end of the segment.
    fn read_at(&mut self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<usize>;
}

impl<D: Disk> Source for D {
    fn read_at(&mut self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        Disk::read_at(self, segment, offset, into)
    }
}

/// A block that is whole.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    pub(crate) header: BlockHeader,
    /// The log up to its end.
    pub(crate) after: Mark,
    /// Records of the block, which are intact.
    pub(crate) body: &'a [u8],
}

/// Why there is no block at some place that continues the log.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) reason: String,
    /// The bytes look never written, so the next block may be elsewhere.
    pub(crate) empty: bool,
}

impl Fault {
    fn new(reason: impl Into<String>, empty: bool) -> Self {
        Self { reason: reason.into(), empty }
    }
}

/// Headers behind some place, whether they belong to the log or not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeaderScan {
    /// The highest position that an intact header there says is synced.
    pub(crate) claim: Position,
    /// Bytes from the place to the last one written.
    pub(crate) bytes: u64,
}

/// Reads the blocks of one shard.
#[derive(Debug)]
pub(crate) struct BlockReader {
    pub(crate) geometry: Geometry,
    pub(crate) shard: u16,
    window: Window,
}

impl BlockReader {
    pub(crate) fn new(geometry: Geometry, shard: u16) -> Self {
        Self { geometry, shard, window: Window::new(geometry.segment_bytes) }
    }

    /// `bytes` from `offset` on; fewer at the end of the file.
    pub(crate) fn bytes(
        &mut self,
        source: &mut impl Source,
        number: u64,
        offset: u64,
        bytes: usize,
    ) -> Result<&[u8], OpenError> {
        self.window.bytes(source, number, offset, bytes)
    }

    /// Forgets the bytes that were read ahead: they may have been written since.
    pub(crate) fn clear(&mut self) {
        self.window.filled = 0;
    }

    /// Looks at everything in a stretch. In a segment with a salt a header that bears it is believed, since nobody else
    /// could write it; in one without, a whole block, as far as that tells it from what a client has chosen.
    pub(crate) fn scan_headers(
        &mut self,
        source: &mut impl Source,
        stretch: Stretch,
    ) -> Result<HeaderScan, OpenError> {
        let Stretch { number, from, to, salt, stale, .. } = stretch;
        let start = self.geometry.start_of(number);
        let mut claim = Position(0);
        let mut used = from;
        let mut at = from;
        let mut doubt = Doubt::new(self.geometry);
        while at < to {
            let bytes = self.window.bytes(source, number, at, BLOCK_ALIGN_BYTES as usize)?;
            if bytes.is_empty() {
                break;
            }
            let here = at;
            at += BLOCK_ALIGN_BYTES;
            if *bytes == EMPTY[..bytes.len()] {
                continue; // nearly all there is to see in a preallocated segment
            }
            let last = bytes.iter().rposition(|&byte| byte != 0).filter(|_| !stale);
            used = last.map_or(used, |last| here + last as u64 + 1);
            let place = start.plus(here);
            let Some(header) = Self::candidate(self.shard, bytes, place, stretch) else { continue };
            if salt == Some(Salt::NONE) {
                if !doubt.permits(&header)
                    || self.block(source, number, place, salt, None)?.is_err()
                {
                    continue;
                }
                at = here + u64::from(header.block_bytes);
            }
            claim = claim.max(header.synced.min(header.position));
            used = used.max(here + u64::from(header.block_bytes));
        }
        Ok(HeaderScan { claim, bytes: used.min(to.max(from)) - from })
    }

    /// The first whole block in a stretch that can come after what it comes after.
    pub(crate) fn search(
        &mut self,
        source: &mut impl Source,
        stretch: Stretch,
    ) -> Result<Option<BlockHeader>, OpenError> {
        let Stretch { number, from, to, salt, .. } = stretch;
        let start = self.geometry.start_of(number);
        let mut doubt = Doubt::new(self.geometry);
        for at in (from..to).step_by(BLOCK_ALIGN_BYTES as usize) {
            let bytes = self.window.bytes(source, number, at, BLOCK_HEADER_BYTES)?;
            if bytes.is_empty() {
                break;
            }
            let place = start.plus(at);
            let Some(header) = Self::candidate(self.shard, bytes, place, stretch) else { continue };
            if stretch.after.is_some_and(|mark| header.sequence == mark.sequence) {
                continue; // nothing is missing before it, and it does not continue what is there
            }
            let doubted = salt == Some(Salt::NONE) && !doubt.permits(&header);
            if !doubted && self.block(source, number, place, salt, None)?.is_ok() {
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    /// The header in `bytes`, if it names its place and bears what it must.
    fn candidate(
        shard: u16,
        bytes: &[u8],
        place: Position,
        stretch: Stretch,
    ) -> Option<BlockHeader> {
        let (header, _) = BlockHeader::decode(bytes).ok()?;
        let own =
            header.position == place && header.shard == shard && Some(header.salt) == stretch.salt;
        let later = stretch.after.is_none_or(|mark| mark.can_precede(&header));
        (own && later).then_some(header)
    }

    /// The block at `at` in segment `number`, or why there is none. It must bear the salt of the segment, and
    /// continue `mark`, if one is given.
    pub(crate) fn block(
        &mut self,
        source: &mut impl Source,
        number: u64,
        at: Position,
        salt: Option<Salt>,
        mark: Option<Mark>,
    ) -> Result<Result<Block<'_>, Fault>, OpenError> {
        let offset = at.0 - self.geometry.start_of(number).0;
        let room = self.geometry.segment_bytes - offset;
        if room < BLOCK_HEADER_BYTES as u64 {
            return Ok(Err(Fault::new("the segment is full", true)));
        }
        let bytes = self.window.bytes(source, number, offset, BLOCK_HEADER_BYTES)?;
        if bytes.starts_with(&SUCCESSOR_MAGIC) {
            return Ok(Err(Fault::new("the segment is full", true)));
        }
        let empty = bytes.iter().all(|&byte| byte == 0);
        let (header, crc) = match BlockHeader::decode(bytes) {
            Ok(decoded) => decoded,
            // Of another version, too: a segment is written in that of its header, which has been looked at.
            Err(fault) => return Ok(Err(Fault::new(fault.to_string(), empty))),
        };
        if header.position != at {
            let reason = format!("a stale block, written for {}", header.position);
            return Ok(Err(Fault::new(reason, true)));
        }
        if header.shard != self.shard || Some(header.salt) != salt {
            return Ok(Err(Fault::new("a block that was not written for this segment", true)));
        }
        if mark.is_some_and(|mark| (header.sequence, header.prev) != (mark.sequence, mark.prev)) {
            return Ok(Err(Fault::new("the block does not continue the one before it", false)));
        }
        if !fits(&header, room) {
            return Ok(Err(Fault::new("the block's header contradicts itself", false)));
        }
        let all = BLOCK_HEADER_BYTES + header.body_bytes as usize;
        let bytes = self.window.bytes(source, number, offset, all)?;
        let Some(body) = bytes.get(BLOCK_HEADER_BYTES..all) else {
            return Ok(Err(Fault::new("the file ends inside the block", false)));
        };
        let start = at.plus(BLOCK_HEADER_BYTES as u64);
        match check_records(header.salt, start, body, header.records, crc) {
            Ok(prev) => {
                let end = at.plus(u64::from(header.block_bytes));
                let after = Mark { end, sequence: header.sequence + 1, prev };
                Ok(Ok(Block { header, after, body }))
            }
            Err(reason) => Ok(Err(Fault::new(reason, false))),
        }
    }
}

/// Bounds what is read again and again for headers that come without a block: a client who knows the format
/// of version 1 can write very many of them.
struct Doubt {
    bytes_left: u64,
}

impl Doubt {
    fn new(geometry: Geometry) -> Self {
        Self { bytes_left: 4 * geometry.segment_bytes }
    }

    fn permits(&mut self, header: &BlockHeader) -> bool {
        let left = self.bytes_left.checked_sub(u64::from(header.body_bytes));
        self.bytes_left = left.unwrap_or(self.bytes_left);
        left.is_some()
    }
}

fn fits(header: &BlockHeader, room: u64) -> bool {
    let block = u64::from(header.block_bytes);
    header.synced <= header.position
        && header.oldest <= header.position
        && BLOCK_HEADER_BYTES as u64 + u64::from(header.body_bytes) <= block
        && block.is_multiple_of(BLOCK_ALIGN_BYTES)
        && block <= room
        && header.sequence < u64::MAX
}

/// Large sequential reads, seen through a window that moves forward.
#[derive(Debug)]
struct Window {
    read_bytes: usize,
    segment: u64,
    offset: u64,
    filled: usize,
    buffer: Vec<u8>,
}

impl Window {
    fn new(segment_bytes: u64) -> Self {
        let read_bytes = READ_BYTES.min(segment_bytes as usize);
        Self { read_bytes, segment: 0, offset: 0, filled: 0, buffer: Vec::new() }
    }

    /// `bytes` from `offset` on; fewer at the end of the file.
    fn bytes(
        &mut self,
        source: &mut impl Source,
        segment: u64,
        offset: u64,
        bytes: usize,
    ) -> Result<&[u8], OpenError> {
        let end = self.offset + self.filled as u64;
        let inside = segment == self.segment && offset >= self.offset;
        if !inside || offset + bytes as u64 > end {
            // Headers are looked at one by one; reading far ahead pays when blocks follow.
            let ahead = if offset == 0 { SEGMENT_HEADER_BYTES as usize } else { self.read_bytes };
            let wanted = bytes.max(ahead);
            if self.buffer.len() < wanted {
                self.buffer.resize(wanted, 0);
            }
            (self.segment, self.offset, self.filled) = (segment, offset, 0);
            self.filled =
                source.read_at(segment, offset, &mut self.buffer[..wanted]).map_err(|source| {
                    OpenError::Io { what: format!("reading {}", file_name(segment)), source }
                })?;
        }
        let at = (offset - self.offset) as usize;
        Ok(&self.buffer[at..(at + bytes).min(self.filled).max(at)])
    }
}
