//! Damages of a log, and what it takes to repair them.

use crate::log::format::address::Position;
use crate::log::format::block::BlockHeader;
use crate::log::format::chain::Mark;
use crate::log::format::salt::Salt;
use crate::log::format::segment::file_name;
use std::fmt;

/// A fault at one place.
#[derive(Clone, Debug)]
pub struct Damage {
    /// The file; empty if it is the directory.
    pub file: String,
    /// Byte offset in the file.
    pub offset: u64,
    /// The fault at that place.
    pub reason: String,
    /// Blocks that are lost there, if that can be told.
    pub blocks: Option<u64>,
    pub(crate) kind: Kind,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, reason, .. } = self;
        match self.kind {
            Kind::Nothing if file.is_empty() => f.write_str(reason),
            Kind::Misnamed { .. } => write!(f, "{file} {reason}"),
            _ => write!(f, "{file} at byte {offset}: {reason}"),
        }
    }
}

impl Damage {
    /// Whether nothing of the log is left, so that it can only begin anew.
    pub fn is_all_lost(&self) -> bool {
        matches!(self.kind, Kind::Nothing)
    }

    /// Whether it is the end of the log that is missing.
    pub fn is_end(&self) -> bool {
        matches!(self.kind, Kind::End { .. })
    }

    /// Whether the file has another segment's name, and needs no more than its own.
    pub fn is_misnamed(&self) -> bool {
        matches!(self.kind, Kind::Misnamed { .. })
    }

    /// Whether all that was written is there still: a file needs no more than its name or its header again.
    pub fn loses_nothing(&self) -> bool {
        matches!(self.kind, Kind::Misnamed { .. } | Kind::Header { salt: Some(_), .. })
    }

    /// Whether something is not there, rather than wrong.
    pub fn is_missing(&self) -> bool {
        matches!(self.kind, Kind::Missing { .. } | Kind::End { .. } | Kind::Nothing)
    }
}

/// Kind of a damage, with the facts that a repair needs.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// Blocks are missing between two that are there.
    Gap(Gap),
    /// The end of the log is missing.
    End { end: Position, segment: u64 },
    /// The header of a segment, whose blocks bear this salt, if that is known.
    Header { number: u64, predecessor: Option<u64>, salt: Option<Salt> },
    /// A file has the name of another segment.
    Misnamed { number: u64, belongs: u64 },
    /// A whole file.
    Missing { number: u64, predecessor: Option<u64> },
    /// All of the log.
    Nothing,
    /// A file that is not of this log, or of a newer version: nothing to be mended.
    Foreign,
}

/// Blocks that are missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    /// Mark that the first of them must continue; none if nobody knows.
    pub(crate) before: Option<Mark>,
    /// The segment in which they begin, and where.
    pub(crate) segment: u64,
    pub(crate) from: Position,
    /// The segment of the next block there is, and that block.
    pub(crate) next_segment: u64,
    pub(crate) next: BlockHeader,
}

/// A file that has the name of one segment and is another.
pub(crate) fn misnamed(&(number, belongs): &(u64, u64)) -> Damage {
    Damage {
        file: file_name(number),
        offset: 0,
        reason: format!("belongs at segment {belongs}: its name should be {}", file_name(belongs)),
        blocks: None,
        kind: Kind::Misnamed { number, belongs },
    }
}

/// A file that another one speaks of.
pub(crate) fn missing(number: u64, predecessor: Option<u64>) -> Damage {
    Damage {
        file: file_name(number),
        offset: 0,
        reason: "the file is missing".to_owned(),
        blocks: None,
        kind: Kind::Missing { number, predecessor },
    }
}
