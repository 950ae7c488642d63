//! The files of a log: the segments that are in use, in order, and the files that are set aside for
//! the next ones. How much may still be written before the file system has to give more.
//!
//! Knows numbers and lengths; not what is in a file, nor when it goes.

use crate::log::Counters;
use crate::log::disk::Disk;
use crate::log::format::address::{Geometry, Position, SEGMENT_HEADER_BYTES};
use std::collections::VecDeque;
use std::io;

/// Between two attempts to get room from a file system that had none.
const RETRY_MS: u64 = 1000;

/// A segment that is in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InUse {
    pub(crate) number: u64,
    /// Length of its file.
    pub(crate) file_bytes: u64,
    /// Where its last block ends. Not known yet for the one that is being written.
    pub(crate) end: Position,
}

/// A segment on its way out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retirement {
    pub(crate) segment: InUse,
    /// It may go once all below is on the disk.
    pub(crate) until: Position,
    /// Its file is gone, and the directory is being synced; whether the file was set aside.
    pub(crate) retired: Option<bool>,
}

impl Retirement {
    /// Whether it waits for a sync of what has been written.
    pub(crate) fn synced_is_wanted(&self, synced: Position, written: Position) -> bool {
        synced < self.until && self.until <= written
    }
}

/// Whether an operation that ended like this lacks something that the system may have again in a while.
pub(crate) fn is_lacking(result: i32) -> bool {
    result < 0 && matches!(Lack::of(-result), Some(Lack::Descriptors | Lack::Memory))
}

#[derive(Debug)]
pub(crate) struct SegmentPool {
    geometry: Geometry,
    /// In order; the last one is being written.
    pub(crate) segments: VecDeque<InUse>,
    /// Bytes of their files.
    pub(crate) used_bytes: u64,
    /// Files set aside that may be used.
    pub(crate) spares: u64,
    /// How many of them can be, while descriptors or memory are lacking.
    ready: u64,
    /// A segment that has been made and is not written yet.
    pub(crate) prepared: Option<u64>,
    bytes_max: u64,
    /// Bytes that there were when a file could not be made for them.
    pub(crate) loose_bytes: u64,
    /// Room was asked for in vain, for want of this, and none has come since.
    pub(crate) lack: Option<Lack>,
    pub(crate) retry_ms: u64,
    /// What is being written found no room in a file that is there.
    pub(crate) held: Option<Held>,
    pub(crate) now_ms: u64,
}

/// A write that waits for room in the place that it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    lack: Lack,
    /// When it is tried again.
    pub(crate) retry_ms: u64,
}

/// What there is too little of for another file. All of it may come back, so the log waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// Room on the file system, or within the bound.
    Space,
    /// Descriptors, of the process or of the machine.
    Descriptors,
    /// Memory of the kernel.
    Memory,
    /// Something else stands in the way, such as a file system that has become read-only.
    Other,
}

impl Lack {
    /// What is lacking by an error; none if the error means something else.
    pub(crate) fn of(errno: i32) -> Option<Self> {
        match errno {
            libc::ENOSPC | libc::EDQUOT => Some(Self::Space),
            libc::EMFILE | libc::ENFILE => Some(Self::Descriptors),
            libc::ENOMEM => Some(Self::Memory),
            // The directory was removed. Whether it comes back is for those to see who look after it.
            libc::ENOENT => Some(Self::Other),
            _ => None,
        }
    }
}

impl Lack {
    /// What a write lacks that ended like this, and that may come back.
    pub(crate) fn of_write(result: i32) -> Option<Self> {
        Self::of(result.checked_neg().filter(|_| result < 0)?).filter(|lack| *lack != Self::Other)
    }
}

impl SegmentPool {
    pub(crate) fn new(geometry: Geometry, segments: VecDeque<InUse>, bytes_max: u64) -> Self {
        let used_bytes = segments.iter().map(|segment| segment.file_bytes).sum();
        Self {
            geometry,
            segments,
            used_bytes,
            spares: 0,
            ready: 0,
            prepared: None,
            bytes_max,
            loose_bytes: 0,
            lack: None,
            retry_ms: 0,
            held: None,
            now_ms: 0,
        }
    }

    /// A write found no room in its place.
    pub(crate) fn hold(&mut self, lack: Lack) {
        let due = self.held.is_none_or(|held| self.now_ms >= held.retry_ms);
        let retry_ms = self.held.filter(|_| !due).map_or(self.now_ms + RETRY_MS, |it| it.retry_ms);
        self.held = Some(Held { lack, retry_ms });
    }

    /// What is lacking, for what is written or for another file.
    pub(crate) fn lacks(&self) -> Option<Lack> {
        self.held.map(|held| held.lack).or(self.lack)
    }

    /// When room is asked for again.
    pub(crate) fn try_again_ms(&self) -> Option<u64> {
        let held = self.held.map(|held| held.retry_ms);
        let another = self.lack.map(|_| self.retry_ms).filter(|_| held.is_none());
        held.or(another)
    }

    /// What can be appended behind `head`, as far as it is known: while a write finds no room in its place, nothing.
    pub(crate) fn sure_bytes(&self, head: Position) -> u64 {
        if self.held.is_some() { 0 } else { self.room_bytes(head) }
    }

    /// The segment that is being written.
    fn current(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.number)
    }

    /// Bytes that can be appended behind `head` without more room from the file system. Ends of
    /// segments that are too small for a large record are not told apart.
    pub(crate) fn room_bytes(&self, head: Position) -> u64 {
        let last = self.prepared.unwrap_or(self.current());
        let end = self.geometry.data_end_of(last);
        let each = self.geometry.data_end_of(0).0 - SEGMENT_HEADER_BYTES;
        let spares = if self.lacks_opening() { self.spares.min(self.ready) } else { self.spares };
        (end.0 + spares * each).saturating_sub(head.0)
    }

    /// Whether files that are there may not be to be had, since the system opens no more.
    pub(crate) fn lacks_opening(&self) -> bool {
        matches!(self.lack, Some(Lack::Descriptors | Lack::Memory))
    }

    /// A file that was set aside is gone: it was removed by hand.
    pub(crate) fn lost_spare(&mut self, disk: &mut impl Disk, counters: &mut Counters) {
        self.spares -= 1;
        self.ready = disk.ready();
        counters.disk_bytes -= self.geometry.segment_bytes;
    }

    /// A file that was set aside has become a segment.
    pub(crate) fn used_spare(&mut self, disk: &mut impl Disk) {
        self.spares -= 1;
        self.ready = disk.ready();
    }

    /// Makes room for `bytes` behind `head`; false if there is none to be had.
    pub(crate) fn make_room(
        &mut self,
        head: Position,
        bytes: u64,
        disk: &mut impl Disk,
        counters: &mut Counters,
    ) -> bool {
        while self.room_bytes(head) < bytes {
            if self.now_ms < self.retry_ms || !self.add_one(disk, counters) {
                self.lack.get_or_insert(Lack::Space);
                return false;
            }
        }
        true
    }

    /// Tries again for room that was asked for in vain.
    pub(crate) fn try_again(&mut self, disk: &mut impl Disk, counters: &mut Counters) {
        let Some(lack) = self.lack.filter(|_| self.now_ms >= self.retry_ms) else { return };
        if !self.lacks_opening() || self.spares == 0 {
            self.add_one(disk, counters);
            return;
        }
        self.ready = disk.ready();
        if self.ready < self.spares {
            self.got_none(lack, disk, counters);
        } else {
            self.lack = None;
        }
    }

    /// Removes a file that was set aside for needs that have gone since: more than a segment beyond what
    /// is kept when one retires, so that none is removed only to be made again.
    pub(crate) fn give_back(
        &mut self,
        head: Position,
        reserve_bytes: u64,
        disk: &mut impl Disk,
        counters: &mut Counters,
    ) -> io::Result<()> {
        let bytes = self.geometry.segment_bytes;
        if self.spares == 0 || self.room_bytes(head) < reserve_bytes + 2 * bytes {
            return Ok(());
        }
        disk.drop_spare()?;
        self.spares -= 1;
        counters.disk_bytes -= bytes;
        self.retry_ms = 0;
        Ok(())
    }

    /// Sets one more file aside, if there is room for it.
    fn add_one(&mut self, disk: &mut impl Disk, counters: &mut Counters) -> bool {
        let bytes = self.geometry.segment_bytes;
        // Whatever the reason for a failure, nothing is lost by it: what is written has its room.
        match self.permit(counters).and_then(|()| disk.set_aside(bytes)) {
            Ok(()) => {
                self.spares += 1;
                self.got_room(counters);
                true
            }
            Err(error) => {
                let lack = error.raw_os_error().and_then(Lack::of);
                self.got_none(lack.unwrap_or(Lack::Other), disk, counters);
                false
            }
        }
    }

    /// Whether one more file is within the bound.
    pub(crate) fn permit(&self, counters: &Counters) -> io::Result<()> {
        if counters.disk_bytes + self.geometry.segment_bytes > self.bytes_max {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        Ok(())
    }

    /// A file more.
    pub(crate) fn got_room(&mut self, counters: &mut Counters) {
        self.lack = None;
        self.loose_bytes = 0;
        counters.disk_bytes += self.geometry.segment_bytes;
    }

    /// No file more, for now.
    pub(crate) fn got_none(&mut self, lack: Lack, disk: &mut impl Disk, counters: &mut Counters) {
        self.lack = Some(lack);
        self.ready = disk.ready();
        let permitted = self.bytes_max.saturating_sub(counters.disk_bytes);
        let loose = permitted.min(disk.free_bytes());
        // As much would have been enough: whatever stands in the way, it is not known.
        self.loose_bytes = if loose < self.geometry.segment_bytes { loose } else { 0 };
        self.retry_ms = self.now_ms + RETRY_MS;
        counters.segment_failures += 1;
    }

    /// The oldest segment is in use no longer. There is another one.
    pub(crate) fn take_oldest(&mut self) -> Option<InUse> {
        let oldest = self.segments.pop_front()?;
        self.used_bytes -= oldest.file_bytes;
        Some(oldest)
    }

    /// The writer has gone on to `segment`, and left the one before at `end`.
    pub(crate) fn entered(&mut self, segment: u64, end: Position) {
        if let Some(last) = self.segments.back_mut() {
            last.end = end;
        }
        let file_bytes = self.geometry.segment_bytes;
        self.segments.push_back(InUse { number: segment, file_bytes, end });
        self.used_bytes += file_bytes;
        if self.prepared == Some(segment) {
            self.prepared = None;
        }
    }
}
