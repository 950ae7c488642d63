//! The files of a log: the segments that are in use, in order, and the files that are set aside for
//! the next ones. How much may still be written before the file system has to give more.
//!
//! Knows numbers and lengths; not what is in a file, nor when it goes.

use crate::log::Counters;
use crate::log::disk::{Disk, Started};
use crate::log::format::address::{Geometry, Position, SEGMENT_HEADER_BYTES};
use std::collections::VecDeque;
use std::io;

pub(crate) const TAG_ASIDE: u64 = 9;

/// Bytes that may be written to a log without anything having asked for room.
const UNASKED_BYTES: u64 = 256 << 10;

/// Between two attempts to get room from a file system that had none.
pub(crate) const RETRY_MS: u64 = 1000;

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
    /// Position below which all must be on the disk before the segment may go.
    pub(crate) until: Position,
    /// Whether the file is set aside, or removed, with the directory synced after; none before either has begun.
    pub(crate) retired: Option<bool>,
    /// Errno and next attempt, if the file could not be removed.
    pub(crate) stuck: Option<Stuck>,
}

/// A file that cannot be removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stuck {
    pub(crate) errno: i32,
    /// When it is tried again; none while it is.
    pub(crate) retry_ms: Option<u64>,
}

impl Retirement {
    /// Whether an operation on it is in flight.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.retired.is_some() && self.stuck_until_ms().is_none()
    }

    /// When its file is tried again that could not be removed.
    pub(crate) fn stuck_until_ms(&self) -> Option<u64> {
        self.stuck?.retry_ms
    }

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
    making: Making,
    /// No file is made ahead of the need before.
    ahead_ms: u64,
    /// A segment that has been made and is not written yet.
    pub(crate) prepared: Option<u64>,
    bytes_max: u64,
    /// Up to where the file that is being written has its room, if not to its end: nothing was asked for yet, or there is
    /// no more.
    pub(crate) taken: Option<Position>,
    /// Bytes that there were when a file could not be made for them.
    pub(crate) loose_bytes: u64,
    /// Room was asked for in vain, for want of this, and none has come since.
    pub(crate) lack: Option<Lack>,
    pub(crate) retry_ms: u64,
    /// No file that is set aside is removed before.
    kept_until_ms: u64,
    /// The write that found no room in a file that is there.
    pub(crate) held: Option<Held>,
    pub(crate) now_ms: u64,
}

/// Whether the disk makes a file beside the turns of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Making {
    No,
    /// The disk makes a file, and what comes of it is room.
    Underway,
    /// The disk makes a file, and what comes of it is known already.
    Known,
}

/// A write that waits for room in the place that it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    lack: Lack,
    /// When it is tried again.
    pub(crate) retry_ms: u64,
}

/// Resource that is too scarce for another file. All of it may come back, so the log waits for it.
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
    /// Resource that is lacking by an errno; none if the error means something else.
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
    /// Resource that a write lacks that ended with `result`, and that may come back.
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
            making: Making::No,
            ahead_ms: 0,
            prepared: None,
            bytes_max,
            taken: None,
            loose_bytes: 0,
            lack: None,
            retry_ms: 0,
            kept_until_ms: 0,
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

    /// Resource that is lacking, for what is written or for another file.
    pub(crate) fn lacks(&self) -> Option<Lack> {
        self.held.map(|held| held.lack).or(self.lack)
    }

    /// When room is asked for again.
    pub(crate) fn try_again_ms(&self) -> Option<u64> {
        let held = self.held.map(|held| held.retry_ms);
        let another = self.lack.map(|_| self.retry_ms).filter(|_| held.is_none());
        held.or(another)
    }

    /// Bytes that can be appended behind `head`, as far as is known: while a write finds no room in its place, none.
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
        if let Some(taken) = self.taken {
            return taken.0.saturating_sub(head.0);
        }
        let last = self.prepared.unwrap_or(self.current());
        let end = self.geometry.data_end_of(last);
        let spares = self.spares - self.unopened();
        (end.0 + spares * self.data_bytes()).saturating_sub(head.0)
    }

    /// Bytes of files that are set aside and cannot be opened for now.
    pub(crate) fn unopened_bytes(&self) -> u64 {
        self.unopened() * self.data_bytes()
    }

    fn unopened(&self) -> u64 {
        if self.lacks_opening() { self.spares.saturating_sub(self.ready) } else { 0 }
    }

    /// Bytes of a file that blocks can take.
    fn data_bytes(&self) -> u64 {
        self.geometry.data_end_of(0).0 - SEGMENT_HEADER_BYTES
    }

    /// Once per turn: whether the file that is being written has all of its room. If something has asked for room, it takes
    /// what it lacks. Until then it stays as it is, and the log keeps no reserve: there is no job that it would be for.
    pub(crate) fn is_whole(
        &mut self,
        head: Position,
        disk: &mut impl Disk,
        counters: &mut Counters,
    ) -> bool {
        let Some(taken) = self.taken else { return true };
        let is_idle = self.lack.is_none() && head.0 + UNASKED_BYTES <= taken.0;
        !is_idle && self.now_ms >= self.retry_ms && self.add_one(disk, counters)
    }

    /// Bytes of the file that is being written whose room is not taken.
    pub(crate) fn untaken_bytes(&self) -> u64 {
        let end = self.geometry.start_of(self.current() + 1);
        self.taken.map_or(0, |taken| end.0 - taken.0)
    }

    /// Takes the rest of the room of the file that is being written.
    fn take_rest(&mut self, disk: &mut impl Disk, counters: &Counters) -> io::Result<()> {
        let rest = self.untaken_bytes();
        if counters.disk_bytes + rest > self.bytes_max {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        disk.take_room(self.current(), self.geometry.segment_bytes)
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

    /// Whether the disk makes a file.
    pub(crate) fn is_making(&self) -> bool {
        self.making != Making::No
    }

    /// Once per turn: has files made beside the turns until there is room for half a segment more than `reserve_bytes`, so
    /// that those who ask for room need not wait for the file system. Tries again for room that was asked for in vain.
    pub(crate) fn keep_room(
        &mut self,
        head: Position,
        reserve_bytes: u64,
        disk: &mut impl Disk,
        counters: &mut Counters,
    ) {
        while !self.is_making() {
            let room = self.room_bytes(head);
            let due = self.now_ms >= self.retry_ms;
            if room < reserve_bytes && !due {
                self.lack.get_or_insert(Lack::Space);
            }
            let again = self.lack.filter(|_| due);
            if let Some(lack) = again.filter(|_| self.lacks_opening() && self.spares > 0) {
                self.ready = disk.ready();
                if self.ready < self.spares {
                    self.got_none(lack, disk, counters);
                    return;
                }
                self.lack = None;
                continue;
            }
            let is_wanted = room < reserve_bytes || again.is_some();
            let is_ahead = room < reserve_bytes + self.ahead_bytes(reserve_bytes)
                && self.now_ms >= self.ahead_ms;
            if !due || !is_wanted && !is_ahead {
                return;
            }
            if !self.begin_one(is_wanted, disk, counters) {
                return;
            }
        }
    }

    /// Room beyond the reserve below which a file is made ahead of the need. Without a reserve none is.
    fn ahead_bytes(&self, reserve_bytes: u64) -> u64 {
        if reserve_bytes > 0 { self.geometry.segment_bytes / 2 } else { 0 }
    }

    /// With less room a segment that retires is set aside. A file that was made ahead leaves that much, so that none is
    /// removed only to be made anew.
    pub(crate) fn kept_bytes(&self, reserve_bytes: u64) -> u64 {
        reserve_bytes + self.ahead_bytes(reserve_bytes) + self.geometry.segment_bytes
    }

    /// Has one more file made. False if it failed at once.
    fn begin_one(
        &mut self,
        is_wanted: bool,
        disk: &mut impl Disk,
        counters: &mut Counters,
    ) -> bool {
        let begun = match self.permit(counters) {
            Ok(()) => disk.begin_aside(self.geometry.segment_bytes, TAG_ASIDE),
            Err(error) => Started::Done(-error.raw_os_error().unwrap_or(libc::EIO)),
        };
        match begun {
            Started::Pending => self.making = Making::Underway,
            Started::Done(result) if result < 0 => {
                self.made_none(-result, is_wanted, disk, counters);
                return false;
            }
            Started::Done(_) => {
                self.spares += 1;
                self.got_room(counters);
            }
        }
        true
    }

    /// The file that was being made is there, or failed.
    pub(crate) fn made_one(
        &mut self,
        result: i32,
        (head, reserve_bytes): (Position, u64),
        disk: &mut impl Disk,
        counters: &mut Counters,
    ) {
        assert!(self.is_making(), "a file was made that was not asked for");
        self.making = Making::No;
        match disk.end_aside(result) {
            Ok(true) => {
                self.spares += 1;
                self.got_room(counters);
            }
            Ok(false) => {}
            Err(error) => {
                let is_wanted = self.room_bytes(head) < reserve_bytes || self.lack.is_some();
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                self.made_none(errno, is_wanted, disk, counters);
            }
        }
    }

    /// No file could be made. As long as nothing wants it, nothing lacks it.
    fn made_none(
        &mut self,
        errno: i32,
        is_wanted: bool,
        disk: &mut impl Disk,
        counters: &mut Counters,
    ) {
        if is_wanted {
            self.got_none(Lack::of(errno).unwrap_or(Lack::Other), disk, counters);
        } else {
            self.ahead_ms = self.now_ms + RETRY_MS;
        }
    }

    /// Whether there is a file too many for needs that have gone since: more than a segment beyond what is kept when one
    /// retires, so that none is removed only to be made again; without that segment where nothing is written.
    pub(crate) fn has_too_many(&self, head: Position, reserve_bytes: u64, is_idle: bool) -> bool {
        let margin = if is_idle { 0 } else { self.geometry.segment_bytes };
        self.spares > 0 && self.room_bytes(head) >= self.kept_bytes(reserve_bytes) + margin
    }

    /// Not before this is a file removed that was set aside.
    pub(crate) fn kept_until_ms(&self) -> u64 {
        self.kept_until_ms
    }

    /// Removes such a file.
    pub(crate) fn give_back(
        &mut self,
        (head, reserve_bytes): (Position, u64),
        is_idle: bool,
        disk: &mut impl Disk,
        counters: &mut Counters,
    ) {
        let bytes = self.geometry.segment_bytes;
        if !self.has_too_many(head, reserve_bytes, is_idle) || self.now_ms < self.kept_until_ms {
            return;
        }
        if disk.drop_spare().is_err() {
            // The file that was not removed is room as before.
            counters.removal_failures += 1;
            self.kept_until_ms = self.now_ms + RETRY_MS;
            return;
        }
        self.spares -= 1;
        counters.disk_bytes -= bytes;
        self.retry_ms = 0;
    }

    /// Takes the room of the file that is being written, or sets one more aside at once, if there is room for it: the one
    /// that is being made, if there is one.
    fn add_one(&mut self, disk: &mut impl Disk, counters: &mut Counters) -> bool {
        let bytes = self.geometry.segment_bytes;
        if self.making == Making::Underway {
            self.making = Making::Known;
        }
        // Whatever the reason for a failure, nothing is lost by it: what is written has its room.
        let got = if self.taken.is_some() {
            self.take_rest(disk, counters)
        } else {
            self.permit(counters).and_then(|()| disk.set_aside(bytes))
        };
        match got {
            Ok(()) if self.taken.is_some() => {
                counters.disk_bytes += self.untaken_bytes();
                (self.taken, self.lack, self.loose_bytes) = (None, None, 0);
                true
            }
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
        let making = if self.making == Making::Underway { self.geometry.segment_bytes } else { 0 };
        if counters.disk_bytes + making + self.geometry.segment_bytes > self.bytes_max {
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
        self.taken = None;
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
