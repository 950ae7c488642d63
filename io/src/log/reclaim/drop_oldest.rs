//! Leaving segments: one that takes no more blocks is sealed, and the oldest goes once nothing of it is needed. The
//! log says so, then the file is set aside or removed, then the directory is synced.
//!
//! Knows segments as files; what was needed of one has been written again before.

use crate::log::Counters;
use crate::log::disk::{Disk, Started, SyncTarget};
use crate::log::error::LogError;
use crate::log::format::segment::file_name;
use crate::log::write::segment_pool::{InUse, RETRY_MS, Retirement, Stuck};
use crate::log::write::write_buffer::WriteBuffer;
use crate::log::write::writer::{TAG_RETIRED, TAG_UNLINKED, Writer};

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
        let until = buffer.head();
        self.retiring = Some(Retirement { segment, until, retired: None, stuck: None });
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
        let due = match retiring.stuck {
            Some(stuck) => stuck.retry_ms.is_some_and(|retry_ms| retry_ms <= self.now_ms),
            None => retiring.retired.is_none() && retiring.until <= self.synced,
        };
        if !due || self.is_closing() || is_read(number) || self.slots.is_at(number) {
            return Ok(());
        }
        let keep = file_bytes == self.geometry.segment_bytes
            && self.pool.room_bytes(self.written) < self.pool.kept_bytes(self.reserve_bytes);
        let mut stuck = retiring.stuck.map(|stuck| Stuck { retry_ms: None, ..stuck });
        let keep = match retiring.retired {
            Some(keep) => keep,
            None => match disk.retire(number, keep) {
                Ok(keep) => {
                    counters.dropped += 1;
                    counters.dropped_bytes += file_bytes;
                    keep
                }
                Err(error) => {
                    self.is_stuck(error.raw_os_error().unwrap_or(libc::EIO), counters);
                    return Ok(());
                }
            },
        };
        if keep {
            stuck = None;
        }
        self.retiring = Some(Retirement { retired: Some(keep), stuck, ..retiring });
        let unlinking = if keep { Started::Done(0) } else { disk.unlink(number, TAG_UNLINKED) };
        match unlinking {
            Started::Done(result) => self.unlinked(result, disk, counters),
            Started::Pending => Ok(()),
        }
    }

    /// The file of the oldest segment cannot be removed, which may pass. Nothing of it is needed, so the log goes on, and tries
    /// again in a while. No other segment goes before: a start that finds it wants all that come behind it.
    fn is_stuck(&mut self, errno: i32, counters: &mut Counters) {
        counters.removal_failures += 1;
        let retry_ms = Some(self.now_ms + RETRY_MS);
        if let Some(retiring) = &mut self.retiring {
            retiring.stuck = Some(Stuck { errno, retry_ms });
        }
    }

    /// The oldest segment that could not be removed at the last attempt, and why.
    pub(crate) fn stuck(&self) -> Option<LogError> {
        let Retirement { segment, stuck, .. } = self.retiring?;
        let file = file_name(segment.number);
        stuck.map(|stuck| LogError { operation: "removal", file, errno: stuck.errno })
    }

    /// The segment's file has gone from its place.
    pub(crate) fn unlinked(
        &mut self,
        result: i32,
        disk: &mut impl Disk,
        counters: &mut Counters,
    ) -> Result<(), LogError> {
        let Some(retiring) = &mut self.retiring else { panic!("no segment was retired") };
        // An absent file was to go, and another process has removed it.
        if result < 0 && result != -libc::ENOENT {
            self.is_stuck(-result, counters);
            return Ok(());
        }
        retiring.stuck = None;
        if retiring.retired == Some(false) {
            counters.disk_bytes -= retiring.segment.file_bytes;
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
            // The mark was the last write that kept the file open.
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
