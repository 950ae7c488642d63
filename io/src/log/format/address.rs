//! Addresses in the log of one shard, and how they fall into segments.
//!
//! Knows arithmetic only: no files, no memory, no format beyond the room a segment header takes.

use std::fmt;

/// Bytes at the start of every segment that belong to its header, padded so that the first block is
/// aligned for `O_DIRECT`.
pub const SEGMENT_HEADER_BYTES: u64 = 4096;

/// A byte address in the log of one shard. It grows for ever and is never used twice, not even
/// after a recovery dropped a torn tail; that is what makes stale bytes recognisable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// The address `bytes` further on.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// How the address space is cut: segment `n` holds `[n * segment_bytes, (n + 1) * segment_bytes)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// A power of two, so that both divisions below are shifts and masks.
    pub(crate) segment_bytes: u64,
    /// Every block starts at a multiple of this; a power of two.
    pub(crate) align_bytes: u64,
}

impl Geometry {
    pub(crate) const fn segment_of(&self, position: Position) -> u64 {
        position.0 >> self.segment_bytes.trailing_zeros()
    }

    /// Where `position` lies in its segment's file.
    pub(crate) const fn offset_of(&self, position: Position) -> u64 {
        position.0 & (self.segment_bytes - 1)
    }

    pub(crate) const fn start_of(&self, segment: u64) -> Position {
        Position(segment << self.segment_bytes.trailing_zeros())
    }

    /// Where the first block of a segment lies.
    pub(crate) const fn data_start_of(&self, segment: u64) -> Position {
        self.start_of(segment).plus(SEGMENT_HEADER_BYTES)
    }

    /// Where the blocks of a segment end at the latest: behind them is room for its mark.
    pub(crate) const fn data_end_of(&self, segment: u64) -> Position {
        Position(self.start_of(segment + 1).0 - self.align_bytes)
    }

    /// Segment numbers stay below this, so that no position overflows.
    pub(crate) const fn segments_max(&self) -> u64 {
        1 << (63 - self.segment_bytes.trailing_zeros())
    }

    pub(crate) const fn align(&self, bytes: u64) -> u64 {
        (bytes + self.align_bytes - 1) & !(self.align_bytes - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_fall_into_segments_and_back() {
        let geometry = Geometry { segment_bytes: 1 << 16, align_bytes: 64 };
        let position = Position(3 * (1 << 16) + 77);
        assert_eq!(geometry.segment_of(position), 3);
        assert_eq!(geometry.offset_of(position), 77);
        assert_eq!(geometry.start_of(3).plus(77), position);
        assert_eq!(geometry.align(65), 128);
        assert_eq!(geometry.align(64), 64);
        let last = geometry.start_of(geometry.segments_max() - 1);
        assert_eq!(geometry.segment_of(last), geometry.segments_max() - 1);
    }
}
