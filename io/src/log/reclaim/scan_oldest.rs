//! Compaction of the oldest segment: its records are read once more, in order, so that the live ones can be
//! written again; then, once all that is on the disk, the segment goes.
//!
//! Knows blocks and positions; not which records are needed. Reading and letting go each go on in the
//! background, one segment at a time.

use crate::log::disk::{Disk, Started};
use crate::log::format::address::{Geometry, Position};
use crate::log::format::block::{
    BLOCK_HEADER_BYTES, BlockHeader, RECORD_HEADER_BYTES, check_records, u32_at,
};
use crate::log::format::salt::Salts;
use crate::log::format::segment::file_name;
use crate::log::write::preallocate::{RETRIES_MAX, is_passing};
use crate::log::write::segment_pool::{InUse, is_lacking};
use std::sync::Arc;
use std::{error, fmt};

pub(crate) const TAG: u64 = 5;

/// Read at once, unless a block is larger.
const READ_BYTES: usize = 256 << 10;
/// A buffer above this is given back once it is no longer needed.
const BUFFER_KEPT_BYTES: usize = 2 << 20;

/// Outcome of [`Log::scan`](crate::log::Log::scan).
#[derive(Debug)]
pub enum Scan<'a> {
    /// The next record of the oldest segment.
    Record(Position, &'a [u8]),
    /// The next record is being read.
    Reading,
    /// There are no more in this segment.
    End,
    /// The segment cannot be read now. It stays as it is; the next scan tries again.
    Failed(ScanError),
}

/// Why a segment cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanError {
    /// The segment's file name.
    pub file: String,
    /// Byte offset in that file.
    pub offset: u64,
    /// The fault at that place.
    pub reason: String,
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, reason } = self;
        write!(f, "{file} cannot be read at byte {offset}: {reason}; it is kept as it is")
    }
}

impl error::Error for ScanError {}

/// Reads one segment from its first block to its last.
#[derive(Debug)]
pub(crate) struct Scanner {
    geometry: Geometry,
    salts: Arc<Salts>,
    shard: u16,
    segment: Option<InUse>,
    /// Bytes read: `filled` of them, from `start` on.
    buffer: Vec<u8>,
    start: Position,
    filled: usize,
    /// Bytes that are wanted in it, and that must be there.
    wanted: usize,
    need: usize,
    /// The block under way: where it ends, where its next record lies, and where its records end.
    block_end: Position,
    record: Position,
    records_end: Position,
    in_flight: bool,
    /// The system lacks something for the next read, such as a descriptor: to be tried again.
    stalled: bool,
    retries: u32,
    error: Option<ScanError>,
}

impl Scanner {
    pub(crate) fn new(geometry: Geometry, salts: Arc<Salts>, shard: u16) -> Self {
        let nowhere = Position(0);
        Self {
            geometry,
            salts,
            shard,
            segment: None,
            buffer: Vec::new(),
            start: nowhere,
            filled: 0,
            wanted: 0,
            need: 0,
            block_end: nowhere,
            record: nowhere,
            records_end: nowhere,
            in_flight: false,
            stalled: false,
            retries: 0,
            error: None,
        }
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    /// Whether it is to be tried again, though nothing will say when.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Whether it is in the middle of this segment.
    fn is_at(&self, segment: u64) -> bool {
        self.segment.is_some_and(|at| at.number == segment)
    }

    /// Begins with a segment, unless it has already.
    pub(crate) fn begin(&mut self, segment: InUse) {
        if self.is_at(segment.number) || self.in_flight {
            return;
        }
        let start = self.geometry.data_start_of(segment.number);
        self.segment = Some(segment);
        (self.start, self.filled, self.wanted) = (start, 0, 0);
        (self.block_end, self.record, self.records_end) = (start, start, start);
        (self.error, self.stalled) = (None, false);
        if self.buffer.capacity() > BUFFER_KEPT_BYTES {
            self.buffer = Vec::new();
        }
    }

    /// Finds the next record, which is then at `record` in the buffer.
    fn advance(&mut self, disk: &mut impl Disk) -> Step {
        let Some(segment) = self.segment else { return Step::End };
        if std::mem::take(&mut self.stalled) {
            self.read_rest(disk);
        }
        loop {
            if self.in_flight || self.stalled {
                return Step::Reading;
            }
            if self.error.is_some() {
                return Step::Failed;
            }
            if self.record < self.records_end {
                return Step::Record;
            }
            if self.block_end >= segment.end {
                return Step::End;
            }
            self.open_block(disk);
        }
    }

    /// Looks at the block at `block_end`; what has to be read for that is read first.
    fn open_block(&mut self, disk: &mut impl Disk) {
        let at = self.block_end;
        let Some(bytes) = self.bytes(at, BLOCK_HEADER_BYTES) else {
            self.read(at, BLOCK_HEADER_BYTES, disk);
            return;
        };
        let (header, crc) = match BlockHeader::decode(bytes) {
            Ok(decoded) => decoded,
            Err(fault) => return self.fail(at, fault.to_string()),
        };
        let salt = self.salts.of(self.geometry.segment_of(at));
        if header.position != at || header.shard != self.shard || header.salt != salt {
            return self.fail(at, "the block there belongs somewhere else".into());
        }
        let all = BLOCK_HEADER_BYTES + header.body_bytes as usize;
        if all > header.block_bytes as usize
            || at.0 - self.geometry.start_of(self.geometry.segment_of(at)).0 + all as u64
                > self.geometry.segment_bytes
        {
            return self.fail(at, "the block's header contradicts itself".into());
        }
        let Some(bytes) = self.bytes(at, all) else {
            self.read(at, all, disk);
            return;
        };
        let start = at.plus(BLOCK_HEADER_BYTES as u64);
        let body = &bytes[BLOCK_HEADER_BYTES..];
        if let Err(fault) = check_records(salt, start, body, header.records, crc) {
            return self.fail(at, fault);
        }
        self.record = start;
        self.records_end = at.plus(all as u64);
        self.block_end = at.plus(u64::from(header.block_bytes));
    }

    fn bytes(&self, at: Position, count: usize) -> Option<&[u8]> {
        let from = at.0.checked_sub(self.start.0)? as usize;
        self.buffer[..self.filled].get(from..from + count)
    }

    fn fail(&mut self, at: Position, reason: String) {
        let segment = self.geometry.segment_of(at);
        let offset = self.geometry.offset_of(at);
        self.error = Some(ScanError { file: file_name(segment), offset, reason });
    }

    /// Reads from `at` on: `need` bytes, and some more if there are any.
    fn read(&mut self, at: Position, need: usize, disk: &mut impl Disk) {
        let end = self.geometry.start_of(self.geometry.segment_of(at) + 1);
        (self.start, self.filled, self.need) = (at, 0, need);
        self.wanted = need.max(READ_BYTES).min((end.0 - at.0) as usize);
        if self.buffer.len() < self.wanted {
            self.buffer.resize(self.wanted, 0);
        }
        self.read_rest(disk);
    }

    fn read_rest(&mut self, disk: &mut impl Disk) {
        loop {
            let at = self.start.plus(self.filled as u64);
            let (segment, offset) = (self.geometry.segment_of(at), self.geometry.offset_of(at));
            match disk.read(segment, offset, &mut self.buffer[self.filled..self.wanted], TAG) {
                Started::Pending => {
                    self.in_flight = true;
                    return;
                }
                Started::Done(result) if !self.progress(result) => return,
                Started::Done(_) => {}
            }
        }
    }

    pub(crate) fn complete(&mut self, result: i32, disk: &mut impl Disk) {
        assert!(self.in_flight, "a read ended that was not in flight");
        self.in_flight = false;
        if self.progress(result) {
            self.read_rest(disk);
        }
    }

    /// Takes in what a read brought; true if it has to go on.
    fn progress(&mut self, result: i32) -> bool {
        if result > 0 {
            self.filled += result as usize;
            self.retries = 0;
            return self.filled < self.wanted;
        }
        if is_passing(result) && self.retries < RETRIES_MAX {
            self.retries += 1;
            return true;
        }
        if is_lacking(result) {
            self.stalled = true;
            return false;
        }
        // The last segment of a process was cut behind its last block.
        if result == 0 && self.filled >= self.need {
            return false;
        }
        let reason = match result {
            0 => "the file ends inside a block".to_string(),
            errno => std::io::Error::from_raw_os_error(-errno).to_string(),
        };
        self.fail(self.start.plus(self.filled as u64), reason);
        false
    }

    /// The next record.
    pub(crate) fn next(&mut self, disk: &mut impl Disk) -> Scan<'_> {
        match self.advance(disk) {
            Step::End => Scan::End,
            Step::Reading => Scan::Reading,
            Step::Failed => {
                // The next one begins with a new read of what could not be read.
                (self.filled, self.retries) = (0, 0);
                match self.error.take() {
                    Some(error) => Scan::Failed(error),
                    None => Scan::End,
                }
            }
            Step::Record => {
                let position = self.record;
                let at = (position.0 - self.start.0) as usize;
                let bytes = u32_at(&self.buffer, at) as usize;
                self.record = position.plus(bytes as u64);
                Scan::Record(position, &self.buffer[at + RECORD_HEADER_BYTES..at + bytes])
            }
        }
    }
}

enum Step {
    Record,
    Reading,
    End,
    Failed,
}

impl Drop for Scanner {
    fn drop(&mut self) {
        if self.in_flight {
            // The kernel may still write into it.
            std::mem::forget(std::mem::take(&mut self.buffer));
        }
    }
}
