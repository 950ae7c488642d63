//! Leaving segments: one that takes no more blocks is sealed, and the oldest goes once nothing of it is needed. The
//! log says so, then the file is set aside or removed, then the directory is synced.
//!
//! Knows segments as files; what was needed of one has been written again before.

use crate::log::Counters;
use crate::log::disk::{Disk, Started, SyncTarget};
use crate::log::error::LogError;
use crate::log::format::segment::file_name;
use crate::log::write::segment_pool::{InUse, Retirement};
use crate::log::write::write_buffer::WriteBuffer;
use crate::log::write::writer::{TAG_RETIRED, Writer};

impl Writer {
    /// The oldest segment, if it is complete and on the disk.
    pub(crate) fn oldest(&self) -> Option<InUse> {
        let sealed = self.pool.segments.len() > 1 && self.retiring.is_none();
        let first = self.pool.segments.front().filter(|_| sealed)?;
        (first.end <= self.synced).then_some(*first)
    }

    /// Nobody needs the oldest segment any more, now that the head is where it is.
    pub(crate) fn drop_oldest(&mut self, buffer: &mut WriteBuffer, counters: &mut Counters) {
        let oldest = self.oldest().and_then(|_| self.pool.take_oldest());
        let Some(segment) = oldest else { panic!("the segment to be forgotten is in use") };
        if let Some(first) = self.pool.segments.front() {
            self.oldest = self.geometry.start_of(first.number);
            buffer.chain.oldest = self.oldest;
        }
        // The log must say so before the file goes, or its absence would look like a loss.
        counters.notes += u64::from(buffer.close_or_note());
        self.retiring = Some(Retirement { segment, until: buffer.head(), retired: None });
    }

    /// Lets a segment go once all that was to be kept of it is on the disk.
    pub(crate) fn retire_due(
        &mut self,
        disk: &mut impl Disk,
        counters: &mut Counters,
        is_read: &dyn Fn(u64) -> bool,
    ) -> Result<(), LogError> {
        let Some(retiring) = self.retiring else { return Ok(()) };
        let InUse { number, file_bytes, .. } = retiring.segment;
        let due = retiring.retired.is_none() && retiring.until <= self.synced;
        if !due || self.is_closing() || is_read(number) || self.slots.is_at(number) {
            return Ok(());
        }
        let room_max = self.reserve_bytes + self.geometry.segment_bytes;
        let keep = file_bytes == self.geometry.segment_bytes
            && self.pool.room_bytes(self.written) < room_max;
        let keep = disk.retire(number, keep).map_err(|error| LogError {
            operation: "retirement",
            file: file_name(number),
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        })?;
        self.retiring = Some(Retirement { retired: Some(keep), ..retiring });
        counters.dropped += 1;
        counters.dropped_bytes += file_bytes;
        if !keep {
            counters.disk_bytes -= file_bytes;
        }
        if let Started::Done(result) = disk.sync(SyncTarget::Directory, TAG_RETIRED) {
            self.retired(result, disk)?;
        }
        Ok(())
    }

    pub(crate) fn retired(&mut self, result: i32, disk: &mut impl Disk) -> Result<(), LogError> {
        let Some(retiring) = self.retiring.take() else { panic!("nothing was retired") };
        if result < 0 {
            let (operation, file) = ("fsync of the directory", file_name(retiring.segment.number));
            return Err(LogError { operation, file, errno: -result });
        }
        // Only now: before, a power loss could have brought the segment back under its name.
        disk.retired();
        if retiring.retired == Some(true) {
            self.pool.spares += 1;
            self.pool.lack = None;
        } else {
            // The file system has room again.
            self.pool.retry_ms = 0;
        }
        Ok(())
    }

    /// The preparation has done its part once its segment is ready and in use.
    pub(crate) fn drop_prepared(&mut self, disk: &mut impl Disk) {
        let Some(next) = self.next.take_if(|next| next.is_done()) else { return };
        self.named = self.named.max(next.segment);
        if next.segment != self.segment {
            self.next = Some(next);
        } else if self.left.iter().all(|left| left.segment != next.before) {
            // Its mark was the last that it was open for.
            disk.seal(next.before);
        }
    }

    /// A segment takes no more blocks, and none of it has to be synced.
    pub(crate) fn seal(&self, segment: u64, disk: &mut impl Disk) {
        if self.next.as_ref().is_none_or(|next| next.before != segment) {
            disk.seal(segment);
        }
    }
}
