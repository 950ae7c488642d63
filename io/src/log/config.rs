//! How the log of a shard is kept, and what is refused of that.

use super::error::OpenError;
use super::format::address::{Geometry, SEGMENT_HEADER_BYTES};
use super::format::block::{BLOCK_HEADER_BYTES, RECORD_HEADER_BYTES};
use super::format::chain::BLOCK_ALIGN_BYTES;
use super::write::aligned::PAGE_BYTES;

/// Failures that a released record survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The end of the process, by whatever signal. A power loss costs at most what was written in
    /// the last `fsync_interval_ms` and the sync after it, except blocks with `require_sync`.
    Written,
    /// A power loss.
    Synced,
    /// The loss of the machine: a sync is the commit of the database that has a copy of the log. Files are written as in
    /// `written` mode and never brought to the disk, since all that is released can be copied back.
    Replicated,
}

impl Mode {
    /// Whether a write that is done has all the durability that the mode promises.
    pub(super) const fn is_durable_when_written(self) -> bool {
        matches!(self, Self::Synced)
    }

    pub(super) const fn align_bytes(self) -> u64 {
        match self {
            Self::Written | Self::Replicated => BLOCK_ALIGN_BYTES,
            // Alignment that O_DIRECT wants of offset, length and memory.
            Self::Synced => PAGE_BYTES as u64,
        }
    }
}

/// How one shard's log is kept.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// The shard whose log it is; a segment of another shard is refused.
    pub shard: u16,
    /// The data directory whose log it is, see [`super::DataDir::id`]; a segment of another is refused.
    pub log_id: u64,
    /// Failures that a released record survives.
    pub mode: Mode,
    /// Bytes per segment file: a power of two, fixed for the life of a data directory.
    pub segment_bytes: u64,
    /// Bytes of one record at most, its header included.
    pub record_bytes_max: usize,
    /// Where a block ends if more records follow. A larger record gets a block of its own.
    pub block_bytes: usize,
    /// Memory for the newest blocks. What has not been written yet stays whatever the budget says.
    pub cache_bytes: usize,
    /// `written` mode: the longest time before a written block is given to the disk.
    pub fsync_interval_ms: u64,
    /// Cold reads in flight at once; more of them wait.
    pub cold_reads_max: usize,
    /// Bytes of all files, beyond which no more are made.
    pub bytes_max: u64,
    /// The log is known to have been begun: one without any segment is refused.
    pub is_begun: bool,
    /// The segment that a log without any begins with.
    pub first_segment: u64,
    /// Bytes that the first file of a log without records takes of the file system before more is asked for; 0: all of
    /// it, and the reserve as well.
    pub first_bytes: u64,
    /// Room that is kept ready for records, in files made before they are needed. 0: the next segment
    /// is made when the one before is half full.
    pub reserve_bytes: u64,
}

impl LogConfig {
    /// The defaults of the server for one shard.
    pub fn new(shard: u16, mode: Mode) -> Self {
        Self {
            shard,
            log_id: 0,
            mode,
            segment_bytes: 64 << 20,
            record_bytes_max: 12 << 20,
            block_bytes: 1 << 20,
            cache_bytes: 64 << 20,
            fsync_interval_ms: 10,
            cold_reads_max: 64,
            bytes_max: u64::MAX,
            is_begun: false,
            first_segment: 0,
            first_bytes: 0,
            reserve_bytes: 0,
        }
    }

    pub(super) fn geometry(&self) -> Geometry {
        Geometry { segment_bytes: self.segment_bytes, align_bytes: self.mode.align_bytes() }
    }

    pub(super) fn check(&self) -> Result<(), OpenError> {
        let refuse = |reason: String| Err(OpenError::Config(reason));
        if !self.segment_bytes.is_power_of_two()
            || !(1 << 13..=1 << 31).contains(&self.segment_bytes)
        {
            let bytes = self.segment_bytes;
            return refuse(format!(
                "segment_bytes must be a power of two up to 2 GiB, not {bytes}"
            ));
        }
        let block = (BLOCK_HEADER_BYTES + self.record_bytes_max) as u64;
        let room = self.segment_bytes - SEGMENT_HEADER_BYTES;
        // The last unit of a segment is left to its mark.
        let align_bytes = self.mode.align_bytes();
        if block.next_multiple_of(align_bytes) + align_bytes > room {
            let (record, segment) = (self.record_bytes_max, self.segment_bytes);
            return refuse(format!(
                "a record of {record} bytes does not fit a segment of {segment}"
            ));
        }
        if self.block_bytes < BLOCK_HEADER_BYTES + RECORD_HEADER_BYTES || self.cold_reads_max == 0 {
            return refuse("block_bytes and cold_reads_max must leave room for one".into());
        }
        Ok(())
    }
}
