//! The log's errors, each readable by an operator.

use super::format::address::Position;
use super::format::block::FORMAT_VERSION;
use std::{error, fmt, io};

/// Why a log could not be opened. Nothing has been changed on the disk when the error is one of
/// content.
#[derive(Debug)]
pub enum OpenError {
    /// The configuration contradicts itself.
    Config(String),
    /// The disk failed.
    Io {
        /// The step that failed, in words.
        what: String,
        /// How it failed.
        source: io::Error,
    },
    /// There is no room to go on with.
    NoRoom {
        /// Bytes that are needed at least.
        bytes: u64,
        /// The error of the file system.
        source: io::Error,
    },
    /// Bytes that had been synced are not what was written, or are not there.
    Damaged {
        /// The segment's file name.
        file: String,
        /// Byte offset in that file.
        offset: u64,
        /// The fault at that place.
        reason: String,
    },
    /// A segment is gone of which another one tells.
    MissingSegment {
        /// The file name of the missing segment.
        file: String,
    },
    /// No segment is there, though the log has been begun.
    Nothing,
    /// A file is named like a segment but cannot be one.
    ForeignFile(String),
    /// The segment belongs to another shard.
    WrongShard {
        /// The segment's file name.
        file: String,
        /// The shard it names.
        found: u16,
        /// The shard whose directory it lies in.
        expected: u16,
    },
    /// The segment was made for another data directory.
    WrongLog {
        /// The segment's file name.
        file: String,
    },
    /// Written by a newer build.
    Version {
        /// The segment's file name.
        file: String,
        /// The version found.
        found: u16,
    },
    /// Written with another segment size.
    SegmentBytes {
        /// The segment's file name.
        file: String,
        /// The size it was written with, in bytes.
        found: u64,
        /// The size asked for, in bytes.
        configured: u64,
    },
    /// An intact record that its reader did not accept.
    Refused {
        /// Where the record lies.
        position: Position,
        /// The reason that the reader gave.
        reason: String,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(reason) => write!(f, "log configuration: {reason}"),
            Self::Io { what, source } => write!(f, "{what}: {source}"),
            Self::NoRoom { bytes, source } => write!(
                f,
                "the disk is full: a start needs room for a file of {} MB: {source}",
                bytes >> 20
            ),
            Self::Damaged { file, offset, reason } => {
                write!(f, "{file} is damaged at byte {offset}: {reason}")
            }
            Self::MissingSegment { file } => write!(f, "segment {file} is missing"),
            Self::Nothing => f.write_str("all segments of the log are missing"),
            Self::ForeignFile(name) => {
                write!(
                    f,
                    "{name} is named like a segment of the log but cannot be one; move it away"
                )
            }
            Self::WrongShard { file, found, expected } => {
                write!(f, "{file} belongs to shard {found} but lies with shard {expected}")
            }
            Self::WrongLog { file } => write!(
                f,
                "{file} was made for another data directory: it was copied here, or the MANIFEST is not \
                 that of this log"
            ),
            Self::Version { file, found } => write!(
                f,
                "{file} has log format version {found}; this build reads version {FORMAT_VERSION}"
            ),
            Self::SegmentBytes { file, found, configured } => {
                write!(f, "{file} was written with segments of {found} bytes, not {configured}")
            }
            Self::Refused { position, reason } => {
                write!(f, "the record at {position} cannot be replayed: {reason}")
            }
        }
    }
}

impl error::Error for OpenError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::NoRoom { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Why a running log stopped for good. After it nothing is written, synced or released any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogError {
    /// The operation that failed, such as `fsync`.
    pub operation: &'static str,
    /// The segment's file name, or the directory.
    pub file: String,
    /// How it failed; 0 when the kernel made no progress without an error.
    pub errno: i32,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, file, errno } = self;
        write!(f, "the log has stopped: {operation} of {file} failed: ")?;
        match errno {
            0 => f.write_str("no progress"),
            errno => write!(f, "{}", io::Error::from_raw_os_error(*errno)),
        }
    }
}

impl error::Error for LogError {}
