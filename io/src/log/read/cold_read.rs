//! Reading records that are no longer in memory.
//!
//! Knows positions and lengths of single records, a bounded number of them at a time; checks each
//! before anybody sees it.

use crate::log::Log;
use crate::log::disk::{Disk, Started};
use crate::log::format::address::{Geometry, Position};
use crate::log::format::block::{RECORD_HEADER_BYTES, record_is_intact};
use crate::log::format::salt::Salts;
use crate::log::write::preallocate::{RETRIES_MAX, is_passing};
use crate::log::write::segment_pool::is_lacking;
use std::collections::VecDeque;
use std::sync::Arc;
use std::{error, fmt, io};

/// The low byte of a read's tag; the slot is above it.
pub(crate) const TAG: u64 = 4;
/// Until a read is tried again for which the system lacked something.
const STALL_MS: u64 = 50;
/// A slot's buffer above this is given back when its next record is smaller.
const BUFFER_KEPT_BYTES: usize = 256 << 10;

/// A cold read that is over.
#[derive(Debug)]
pub struct ReadDone<'a> {
    /// Token that `read_cold` was given.
    pub token: u64,
    /// The record's body, checked.
    pub body: Result<&'a [u8], ReadError>,
}

/// Why a record could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// Bytes at that position are not the record written there.
    Damaged(Position),
    /// The disk failed.
    Io {
        /// The record's position.
        position: Position,
        /// How it failed; 0 when the kernel made no progress without an error.
        errno: i32,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(position) => write!(f, "the record at {position} is damaged on the disk"),
            Self::Io { position, errno } => {
                let error = io::Error::from_raw_os_error(*errno);
                write!(f, "reading the record at {position} failed: {error}")
            }
        }
    }
}

impl error::Error for ReadError {}

#[derive(Clone, Copy, Debug)]
struct Request {
    position: Position,
    body_bytes: usize,
    token: u64,
}

#[derive(Debug)]
struct Slot {
    request: Request,
    buffer: Vec<u8>,
    done: usize,
    retries: u32,
    in_flight: bool,
    /// The system lacks something for it, such as a descriptor: to be tried again.
    stalled: bool,
    error: Option<ReadError>,
}

#[derive(Debug)]
pub(crate) struct ColdReads {
    geometry: Geometry,
    salts: Arc<Salts>,
    slots_max: usize,
    slots: Vec<Slot>,
    free: Vec<usize>,
    finished: VecDeque<usize>,
    waiting: VecDeque<Request>,
    /// How many slots are stalled.
    stalled: usize,
}

impl ColdReads {
    pub(crate) fn new(geometry: Geometry, salts: Arc<Salts>, slots_max: usize) -> Self {
        Self {
            geometry,
            salts,
            slots_max,
            slots: Vec::new(),
            free: Vec::new(),
            finished: VecDeque::new(),
            waiting: VecDeque::new(),
            stalled: 0,
        }
    }

    pub(crate) fn request(&mut self, position: Position, body_bytes: usize, token: u64) {
        self.waiting.push_back(Request { position, body_bytes, token });
    }

    /// Requests that no result has been taken for.
    pub(crate) fn pending(&self) -> usize {
        self.waiting.len() + self.slots.len() - self.free.len()
    }

    /// Whether a read from a segment has been asked for and is not over.
    pub(crate) fn reads_from(&self, segment: u64) -> bool {
        let there = |request: &Request| self.geometry.segment_of(request.position) == segment;
        self.waiting.iter().any(there)
            || self.slots.iter().any(|it| (it.in_flight || it.stalled) && there(&it.request))
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        self.slots.iter().any(|slot| slot.in_flight)
    }

    /// Whether some are to be tried again, though nothing will say when.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled > 0
    }

    /// Starts waiting requests while slots are free, and those again that lacked something.
    pub(crate) fn start(&mut self, disk: &mut impl Disk) {
        if self.stalled > 0 {
            for index in 0..self.slots.len() {
                if std::mem::take(&mut self.slots[index].stalled) {
                    self.stalled -= 1;
                    self.read_rest(index, disk);
                }
            }
        }
        while let Some(&request) = self.waiting.front() {
            let Some(index) = self.free_slot(request) else { return };
            self.waiting.pop_front();
            self.prepare(index, request);
            self.read_rest(index, disk);
        }
    }

    /// The operation with this tag is over.
    pub(crate) fn complete(&mut self, tag: u64, result: i32, disk: &mut impl Disk) {
        let index = (tag >> 8) as usize;
        let in_flight = self.slots.get_mut(index).filter(|slot| slot.in_flight);
        let Some(slot) = in_flight else { panic!("a read ended that was not in flight") };
        slot.in_flight = false;
        if self.progress(index, result) {
            self.read_rest(index, disk);
        }
    }

    /// The next result. Its slot is free again: the borrow keeps the bytes until it ends.
    pub(crate) fn take(&mut self) -> Option<ReadDone<'_>> {
        let index = self.finished.pop_front()?;
        self.free.push(index);
        let slot = &self.slots[index];
        let salt = self.salts.of(self.geometry.segment_of(slot.request.position));
        let body = match slot.error {
            Some(error) => Err(error),
            None if record_is_intact(salt, slot.request.position, &slot.buffer) => {
                Ok(&slot.buffer[RECORD_HEADER_BYTES..])
            }
            None => Err(ReadError::Damaged(slot.request.position)),
        };
        Some(ReadDone { token: slot.request.token, body })
    }

    fn free_slot(&mut self, request: Request) -> Option<usize> {
        if self.free.is_empty() && self.slots.len() < self.slots_max {
            self.free.push(self.slots.len());
            self.slots.push(Slot {
                request,
                buffer: Vec::new(),
                done: 0,
                retries: 0,
                in_flight: false,
                stalled: false,
                error: None,
            });
        }
        self.free.pop()
    }

    fn prepare(&mut self, index: usize, request: Request) {
        let slot = &mut self.slots[index];
        let bytes = RECORD_HEADER_BYTES + request.body_bytes;
        if slot.buffer.capacity() > BUFFER_KEPT_BYTES && bytes <= BUFFER_KEPT_BYTES {
            slot.buffer = Vec::new();
        }
        slot.buffer.resize(bytes, 0);
        slot.request = request;
        (slot.done, slot.retries, slot.error) = (0, 0, None);
    }

    fn read_rest(&mut self, index: usize, disk: &mut impl Disk) {
        loop {
            let slot = &mut self.slots[index];
            let segment = self.geometry.segment_of(slot.request.position);
            let offset = self.geometry.offset_of(slot.request.position) + slot.done as u64;
            let tag = TAG | (index as u64) << 8;
            match disk.read(segment, offset, &mut slot.buffer[slot.done..], tag) {
                Started::Pending => {
                    slot.in_flight = true;
                    return;
                }
                Started::Done(result) if !self.progress(index, result) => return,
                Started::Done(_) => {}
            }
        }
    }

    /// Takes in what a read brought; true if it has to go on.
    fn progress(&mut self, index: usize, result: i32) -> bool {
        let slot = &mut self.slots[index];
        let position = slot.request.position;
        if result > 0 {
            slot.done += result as usize;
            slot.retries = 0;
            if slot.done < slot.buffer.len() {
                return true;
            }
        } else if is_passing(result) && slot.retries < RETRIES_MAX {
            slot.retries += 1;
            return true;
        } else if is_lacking(result) {
            slot.stalled = true;
            self.stalled += 1;
            return false;
        } else if result == 0 {
            // The file ends inside the record.
            slot.error = Some(ReadError::Damaged(position));
        } else {
            slot.error = Some(ReadError::Io { position, errno: -result });
        }
        self.finished.push_back(index);
        false
    }
}

impl Drop for ColdReads {
    fn drop(&mut self) {
        // The kernel may still write into the buffer of a read in flight.
        for slot in self.slots.drain(..).filter(|slot| slot.in_flight) {
            std::mem::forget(slot.buffer);
        }
    }
}

impl<D: Disk> Log<D> {
    /// When to call `flush` at the latest, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<u64> {
        let stalled = self.cold_reads.is_stalled() || self.scanner.is_stalled();
        let again = stalled.then_some(self.writer.now_ms + STALL_MS);
        self.writer.next_deadline(self.buffer.head()).into_iter().chain(again).min()
    }
}
