//! Findings of a look at a log: its segments, its ends, and what is wrong with it.

use super::damage::{Damage, Kind, misnamed};
use crate::log::error::OpenError;
use crate::log::format::address::Position;
use crate::log::format::segment::file_name;
use crate::log::read::recovery::Dropped;
use std::ops::Range;
use std::path::Path;
use std::{error, fmt, io};

/// The log to look at.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The shard's directory.
    pub directory: &'a Path,
    /// The shard.
    pub shard: u16,
    /// Of the data directory, see [`DataDir::id`](crate::log::DataDir::id).
    pub log_id: u64,
    /// Whether the log is known to have been begun, see [`DataDir::is_begun`](crate::log::DataDir::is_begun).
    pub is_begun: bool,
    /// Where to end, though the log may go on: the end of a block.
    pub until: Option<Position>,
}

/// A block or a record met on the way.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// A block without fault, of so many bytes. Its records follow.
    Block(u64),
    /// A record without fault.
    Record {
        /// Position of the record.
        position: Position,
        /// The segment that it lies in.
        segment: u64,
        /// Where in that segment's file.
        offset: u64,
        /// Body of the record.
        body: &'a [u8],
    },
}

/// A segment that belongs to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Number of the segment.
    pub number: u64,
    /// Length of its file.
    pub file_bytes: u64,
    /// Blocks without fault.
    pub blocks: u64,
    /// Their records.
    pub records: u64,
    /// Their bytes.
    pub block_bytes: u64,
    /// Where the last of them ends.
    pub end: Position,
}

impl Segment {
    /// The name of its file.
    pub fn file(&self) -> String {
        file_name(self.number)
    }
}

/// Findings of a look at a log.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// Bytes per segment, as the segments say; 0 if there are none.
    pub segment_bytes: u64,
    /// The segments of the log, oldest first.
    pub segments: Vec<Segment>,
    /// Files set aside for later segments.
    pub spares: u64,
    /// Their bytes.
    pub spare_bytes: u64,
    /// Blocks without records among those found.
    pub notes: u64,
    /// Where the log begins, as its newest block says.
    pub oldest: Position,
    /// Where it ends.
    pub end: Position,
    /// Everything below had been synced, as some block says.
    pub synced: Position,
    /// Whether the log ends with the closing block of a clean stop.
    pub clean: bool,
    /// Faults, in the order of the log.
    pub damages: Vec<Damage>,
    /// Tail that a start would cut off as torn by a crash; of a log that is being written, bytes on their way.
    pub tail: Option<Dropped>,
    /// Files that bear another number than their names, and those numbers.
    pub(crate) misnamed: Vec<(u64, u64)>,
}

impl Inspection {
    /// Blocks without fault.
    pub fn blocks(&self) -> u64 {
        self.segments.iter().map(|segment| segment.blocks).sum()
    }

    /// Their records.
    pub fn records(&self) -> u64 {
        self.segments.iter().map(|segment| segment.records).sum()
    }

    /// The number of the segment in which the log begins, as its newest block says.
    pub fn first_segment(&self) -> u64 {
        self.oldest.0 >> self.segment_bytes.max(1).trailing_zeros()
    }

    /// Where blocks are missing, as far as it is known.
    pub fn lost(&self) -> impl Iterator<Item = Range<Position>> {
        self.damages.iter().filter_map(|damage| match &damage.kind {
            Kind::Gap(gap) => Some(gap.from..gap.next.position),
            Kind::End { end, .. } => Some(*end..Position(u64::MAX)),
            _ => None,
        })
    }

    /// A log with files under wrong names is judged by them once they have their own. A file that was given up, and
    /// has got a new name before its new header, bears a number before the log begins.
    pub(super) fn name_misnamed(&mut self) {
        let first = self.first_segment();
        let due: Vec<Damage> =
            self.misnamed.iter().filter(|(_, belongs)| *belongs >= first).map(misnamed).collect();
        if !self.damages.is_empty() && !due.is_empty() {
            self.damages.retain(|damage| matches!(damage.kind, Kind::Foreign));
            self.damages.extend(due);
        }
    }

    /// Whether the record at this place is among what is missing.
    pub fn is_lost(&self, position: Position) -> bool {
        self.lost().any(|lost| lost.contains(&position))
    }
}

/// Why a look could not be ended.
#[derive(Debug)]
pub enum InspectError {
    /// The files cannot be read.
    Failed(OpenError),
    /// The server gave up a segment that was being looked at: begin again.
    Moved,
}

impl fmt::Display for InspectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Moved => f.write_str("a part of the log was given up while it was being read"),
        }
    }
}

impl error::Error for InspectError {}

impl From<OpenError> for InspectError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => Self::Moved,
            error => Self::Failed(error),
        }
    }
}
