//! Going on to the next segment: made ahead of the need, of a file that was set aside or a new one, and entered once it is
//! ready. Without room the log waits where it is.
//!
//! Knows what the writer knows; not what is in a block.

use super::preallocate::Preparation;
use super::segment_pool::Lack;
use super::writer::{Closing, Left, Writer};
use crate::log::Counters;
use crate::log::disk::Disk;
use crate::log::disk::directory::is_absent;
use crate::log::error::LogError;
use crate::log::format::segment::{SegmentHeader, file_name};
use crate::log::format::successor_mark::SuccessorMark;

impl Writer {
    /// Makes `segment` the one that blocks go to; false if it is not ready yet.
    pub(crate) fn enter(
        &mut self,
        segment: u64,
        disk: &mut impl Disk,
        counters: &mut Counters,
    ) -> Result<bool, LogError> {
        if segment == self.segment {
            return self.may_go_on();
        }
        self.drop_prepared(disk);
        if self.next.is_none() && !self.create_next(disk, counters)? {
            return self.without_room(segment);
        }
        let Some(next) = &mut self.next else { return Ok(false) };
        if next.segment == segment {
            next.hurry();
        }
        next.drive(disk, self.sync.is_some())?;
        if next.segment != segment || !next.is_writable() {
            let waits = next.waits().is_some();
            return if waits { self.without_room(segment) } else { Ok(false) };
        }
        let left = std::mem::replace(&mut self.segment, segment);
        assert!(segment == left + 1, "segments follow each other");
        assert!(self.next_header.segment == segment, "a segment has the header of its own file");
        self.header = self.next_header;
        counters.disk_bytes += self.pool.untaken_bytes();
        self.pool.entered(segment, self.written);
        if self.synced < self.written {
            self.left.push_back(Left { segment: left, end: self.written });
        } else {
            self.seal(left, disk);
        }
        self.drop_prepared(disk);
        Ok(true)
    }

    /// Whether more blocks go to the segment that they go to now. Nothing in it is synced before the mark that tells of it:
    /// while that finds no room, what would be acknowledged could not be made durable.
    fn may_go_on(&mut self) -> Result<bool, LogError> {
        let of_this = self.next.as_ref().filter(|next| next.segment == self.segment);
        match of_this.filter(|next| next.lacks_room()) {
            None => Ok(true),
            Some(next) if next.is_in_flight() => Ok(false),
            Some(_) => self.without_room(self.segment),
        }
    }

    /// Lets blocks wait until there is room: false. Fails with `ENOSPC` while the log drains to its end.
    fn without_room(&mut self, segment: u64) -> Result<bool, LogError> {
        match self.closing {
            Closing::No => Ok(false),
            Closing::Draining => {
                let (operation, file) = ("creation", file_name(segment));
                Err(LogError { operation, file, errno: libc::ENOSPC })
            }
            // All there is has been synced: the next start finds that out by itself.
            Closing::Last | Closing::Unsaid => {
                self.closing = Closing::Unsaid;
                Ok(false)
            }
        }
    }

    /// From the middle of a segment on, gets the next one ready.
    pub(crate) fn prepare_next(
        &mut self,
        disk: &mut impl Disk,
        counters: &mut Counters,
    ) -> Result<(), LogError> {
        self.drop_prepared(disk);
        let used = self.written.0.saturating_sub(self.geometry.start_of(self.segment).0);
        let due = used > self.geometry.segment_bytes / 2;
        if self.next.is_none() && due && self.closing == Closing::No {
            self.create_next(disk, counters)?;
        }
        let Some(next) = &mut self.next else { return Ok(()) };
        next.drive(disk, self.sync.is_some())?;
        self.drop_prepared(disk);
        Ok(())
    }

    /// Makes the next segment, of a file that was set aside if there is one. False if there is no room
    /// for it now: it may come back.
    fn create_next(
        &mut self,
        disk: &mut impl Disk,
        counters: &mut Counters,
    ) -> Result<bool, LogError> {
        let spare = self.pool.spares > 0;
        if self.now_ms < self.pool.retry_ms && (!spare || self.pool.lacks_opening()) {
            return Ok(false);
        }
        let segment = self.segment + 1;
        let header = SegmentHeader {
            segment,
            predecessor: Some(self.segment),
            synced: self.synced,
            oldest: self.oldest,
            recycled: spare,
            salt: self.salts.of(segment),
            before: Some(self.header.salt),
            ..self.header
        };
        let bytes = self.geometry.segment_bytes;
        let permitted = if spare { Ok(()) } else { self.pool.permit(counters) };
        match permitted.and_then(|()| disk.create(segment, bytes, &header.encode(), spare)) {
            Ok(()) if spare => self.pool.used_spare(disk),
            Ok(()) => self.pool.got_room(counters),
            Err(error) if spare && is_absent(&error) => {
                self.pool.lost_spare(disk, counters);
                return self.create_next(disk, counters);
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                if let Some(lack) = Lack::of(errno) {
                    self.pool.got_none(lack, disk, counters);
                    return Ok(false);
                }
                return Err(LogError { operation: "creation", file: file_name(segment), errno });
            }
        }
        counters.segments += 1;
        counters.recycled += u64::from(spare);
        self.pool.prepared = Some(segment);
        self.next_header = header;
        let SegmentHeader { shard, salt, log_id, .. } = self.header;
        let mark = SuccessorMark { shard, segment: self.segment, next: segment, log_id, salt };
        self.next = Some(Preparation::new(mark, bytes, self.mode, spare));
        Ok(true)
    }
}
