//! Making the next segment before the log reaches it, step by step and never stalling a turn.
//!
//! Knows one segment that is being made ready; not what will be written to it. Once it is on the disk, the
//! segment before it is given the mark that says so: in that order, so that a mark whose next segment
//! is not there means a loss, whenever the power went.

use super::aligned::{Buffer, PAGE_BYTES};
use super::segment_pool::Lack;
use crate::log::Mode;
use crate::log::disk::{Disk, Started, SyncTarget};
use crate::log::error::LogError;
use crate::log::format::address::SEGMENT_HEADER_BYTES;
use crate::log::format::segment::file_name;
use crate::log::format::successor_mark::{SUCCESSOR_MARK_BYTES, SuccessorMark};

/// Zeros per write while a segment is filled ahead.
const ZERO_BYTES: u64 = 256 << 10;
/// Interrupted or refused attempts in a row before an operation counts as failed.
pub(crate) const RETRIES_MAX: u32 = 100;

pub(crate) const TAG: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Zeroed up to this offset. A block that lands on written bytes changes no file metadata,
    /// which is what makes a durable write one disk operation.
    Zeroing(u64),
    SyncingFile,
    SyncingDirectory,
    Marking,
    SyncingMark,
    Done,
}

/// A segment that exists but may not be ready for blocks yet.
#[derive(Debug)]
pub(crate) struct Preparation {
    pub(crate) segment: u64,
    segment_bytes: u64,
    step: Step,
    mode: Mode,
    /// The log waits for this segment: leave the rest of it unwritten.
    hurried: bool,
    in_flight: bool,
    retries: u32,
    /// The step found no room for this reason, and is not tried again before that is asked for.
    waits: Option<Lack>,
    again: bool,
    zeros: Buffer,
    /// The segment before it, and the last page of that one, which is zeros and the mark.
    pub(crate) before: u64,
    mark: Buffer,
}

impl Preparation {
    /// Goes on with a segment just created, of which `mark` tells.
    /// A `recycled` one has been written before, to its end.
    pub(crate) fn new(mark: SuccessorMark, segment_bytes: u64, mode: Mode, recycled: bool) -> Self {
        let (before, segment) = (mark.segment, mark.next);
        let step = match mode {
            Mode::Synced if !recycled => Step::Zeroing(SEGMENT_HEADER_BYTES),
            Mode::Written | Mode::Synced | Mode::Replicated => Step::SyncingFile,
        };
        let mut page = Buffer::new(PAGE_BYTES);
        page[PAGE_BYTES - SUCCESSOR_MARK_BYTES..].copy_from_slice(&mark.encode());
        let zeros = match step {
            Step::Zeroing(_) => Buffer::new(ZERO_BYTES as usize),
            _ => Buffer::empty(),
        };
        let (hurried, in_flight, retries, again) = (false, false, 0, false);
        Self {
            segment,
            segment_bytes,
            step,
            mode,
            hurried,
            in_flight,
            retries,
            waits: None,
            again,
            zeros,
            before,
            mark: page,
        }
    }

    /// Whether blocks may be written to the segment.
    pub(crate) fn is_writable(&self) -> bool {
        // In `written` mode the syncs that count a block as durable wait for the directory.
        !self.mode.is_durable_when_written() || self.step == Step::Done
    }

    pub(crate) fn is_done(&self) -> bool {
        self.step == Step::Done
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    /// Why it does not go on, if it found no room.
    pub(crate) fn waits(&self) -> Option<Lack> {
        self.waits.filter(|_| !self.in_flight)
    }

    /// The step found no room, and has not been done since; it may be under way again.
    pub(crate) fn lacks_room(&self) -> bool {
        self.waits.is_some()
    }

    /// The step that found no room is tried once more.
    pub(crate) fn try_again(&mut self) {
        self.again = true;
    }

    /// The log waits for it.
    pub(crate) fn hurry(&mut self) {
        self.hurried = true;
    }

    /// Whether a sync of the segment before is under way.
    pub(crate) fn is_syncing_mark(&self) -> bool {
        self.in_flight && self.step == Step::SyncingMark
    }

    /// Starts steps until one is pending or all are done. Of two syncs of one file at a time only one would be told of
    /// a failure: that of the mark waits while blocks beside it are being synced.
    pub(crate) fn drive(&mut self, disk: &mut impl Disk, syncs: bool) -> Result<(), LogError> {
        while !self.in_flight {
            if self.step == Step::SyncingMark && syncs {
                return Ok(());
            }
            if self.hurried && matches!(self.step, Step::Zeroing(_)) {
                self.step = Step::SyncingFile;
                self.waits = None;
            }
            if self.waits.is_some() && !std::mem::take(&mut self.again) {
                return Ok(());
            }
            let started = match self.step {
                Step::Zeroing(offset) => {
                    let bytes = (self.segment_bytes - offset).min(ZERO_BYTES) as usize;
                    disk.write(self.segment, offset, &self.zeros[..bytes], false, TAG)
                }
                Step::SyncingFile => disk.sync(SyncTarget::Segment(self.segment), TAG),
                Step::SyncingDirectory => disk.sync(SyncTarget::Directory, TAG),
                Step::Marking => {
                    let mark = &self.mark[PAGE_BYTES - self.mark_bytes()..];
                    let offset = self.segment_bytes - mark.len() as u64;
                    disk.write(self.before, offset, mark, self.mode.is_durable_when_written(), TAG)
                }
                Step::SyncingMark => disk.sync(SyncTarget::Segment(self.before), TAG),
                Step::Done => return Ok(()),
            };
            match started {
                Started::Done(result) => self.step_done(result)?,
                Started::Pending => self.in_flight = true,
            }
        }
        Ok(())
    }

    /// The pending step is over.
    pub(crate) fn complete(
        &mut self,
        result: i32,
        disk: &mut impl Disk,
        syncs: bool,
    ) -> Result<(), LogError> {
        assert!(self.in_flight, "a completion that nobody waits for");
        self.in_flight = false;
        self.step_done(result)?;
        self.drive(disk, syncs)
    }

    fn step_done(&mut self, result: i32) -> Result<(), LogError> {
        let is_write = matches!(self.step, Step::Zeroing(_) | Step::Marking);
        self.waits = Lack::of_write(result).filter(|_| is_write);
        if self.waits.is_some() {
            return Ok(());
        }
        let failed =
            |operation, errno| LogError { operation, file: file_name(self.segment), errno };
        let before = || file_name(self.before);
        self.step = match self.step {
            Step::Zeroing(offset) => {
                self.retries += 1;
                let bytes = result.max(0) as u64 & !(PAGE_BYTES as u64 - 1);
                if bytes > 0 {
                    self.retries = 0;
                } else if result <= 0 && !is_passing(result) || self.retries > RETRIES_MAX {
                    return Err(failed("zeroing", -result.min(0)));
                }
                let offset = offset + bytes;
                if offset == self.segment_bytes { Step::SyncingFile } else { Step::Zeroing(offset) }
            }
            Step::SyncingFile if result < 0 => return Err(failed("fsync", -result)),
            Step::SyncingDirectory if result < 0 => {
                return Err(failed("fsync of the directory", -result));
            }
            Step::SyncingFile => Step::SyncingDirectory,
            Step::SyncingDirectory => {
                self.retries = 0;
                Step::Marking
            }
            Step::Marking => {
                self.retries += 1;
                if result == self.mark_bytes() as i32 {
                    self.after_mark()
                } else if result < 0 && !is_passing(result) || self.retries > RETRIES_MAX {
                    let errno = -result.min(0);
                    return Err(LogError { operation: "marking", file: before(), errno });
                } else {
                    Step::Marking
                }
            }
            Step::SyncingMark if result < 0 => {
                return Err(LogError { operation: "fsync", file: before(), errno: -result });
            }
            Step::SyncingMark | Step::Done => Step::Done,
        };
        Ok(())
    }

    /// Bytes of the last page to write: as few as the mode permits.
    fn mark_bytes(&self) -> usize {
        match self.mode {
            Mode::Written | Mode::Replicated => SUCCESSOR_MARK_BYTES,
            Mode::Synced => PAGE_BYTES,
        }
    }

    fn after_mark(&self) -> Step {
        match self.mode {
            Mode::Written | Mode::Replicated => Step::SyncingMark,
            // The write was durable.
            Mode::Synced => Step::Done,
        }
    }
}

impl Drop for Preparation {
    fn drop(&mut self) {
        if self.in_flight {
            // The kernel may still read them.
            for buffer in [&mut self.zeros, &mut self.mark] {
                std::mem::forget(std::mem::replace(buffer, Buffer::empty()));
            }
        }
    }
}

/// Whether an operation that ended like this did nothing and may simply be tried again. Holds for
/// reads and writes; a sync that failed is never tried again, because the kernel may have forgotten
/// which pages it could not write.
pub(crate) fn is_passing(result: i32) -> bool {
    result == -libc::EINTR || result == -libc::EAGAIN
}
