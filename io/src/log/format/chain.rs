//! Blocks as a chain: what the next one must continue, and where one is looked for.
//!
//! Knows positions, sequence numbers and checksums; reads nothing.

use super::address::Position;
use super::block::{BLOCK_HEADER_BYTES, BlockHeader};
use super::salt::Salt;

/// Blocks start at multiples of this in every mode.
pub(crate) const BLOCK_ALIGN_BYTES: u64 = 64;

/// The log up to some block: what the next one must continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) end: Position,
    pub(crate) sequence: u64,
    pub(crate) prev: u32,
}

impl Mark {
    /// Whether a block with this header can come after it, with others between. Each of them has its header.
    pub(crate) fn can_precede(&self, header: &BlockHeader) -> bool {
        let bytes = header.position.0.saturating_sub(self.end.0);
        let between = header.sequence.checked_sub(self.sequence);
        between.is_some_and(|between| between <= bytes / BLOCK_HEADER_BYTES as u64)
    }
}

/// A stretch of a segment behind the end of a log, or behind a gap in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) number: u64,
    /// Offsets in the file.
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Salt that the segment's blocks bear. Where nobody knows, none of them is believed.
    pub(crate) salt: Option<Salt>,
    /// Only blocks tell what was written: all else may have been there before.
    pub(crate) stale: bool,
    /// Mark that the blocks come after, if that is known.
    pub(crate) after: Option<Mark>,
}
