//! Segments as files: their names and their headers.
//!
//! Knows names and 64 bytes; what a segment holds is the blocks' business.

use super::block::{FORMAT_VERSION, HeaderFault, Put, checked_header, u16_at, u64_at};
use super::position::{Position, SEGMENT_HEADER_BYTES};

const SEGMENT_MAGIC: [u8; 4] = *b"CQSG";
pub(super) const EXTENSION: &str = ".seg";

/// The name of a segment's file: `0000000000000003.seg`.
pub fn file_name(segment: u64) -> String {
    format!("{segment:016x}{EXTENSION}")
}

/// What a file's name says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileName {
    Segment(u64),
    /// Ends like a segment, but is none of ours: nobody can say what to do with it.
    Foreign,
    /// Not the log's business.
    Other,
}

pub(super) fn parse_file_name(name: &str, segments_max: u64) -> FileName {
    let Some(stem) = name.strip_suffix(EXTENSION) else { return FileName::Other };
    match u64::from_str_radix(stem, 16) {
        Ok(segment) if segment < segments_max && file_name(segment) == name => {
            FileName::Segment(segment)
        }
        _ => FileName::Foreign,
    }
}

/// What the first bytes of a segment say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) shard: u16,
    pub(super) segment: u64,
    pub(super) segment_bytes: u64,
    /// The segment before this one. Numbers may skip; this chain may not.
    pub(super) predecessor: Option<u64>,
    /// Everything below was known to be on the disk when this segment was made.
    pub(super) synced: Position,
    /// Where the log began when this segment was made.
    pub(super) oldest: Position,
    /// The file was another segment before: behind the blocks of this one lie those of that.
    pub(super) recycled: bool,
    /// The file is cut only once another one follows it on the disk, and its end is left to its mark.
    /// Earlier builds did not know of either.
    pub(super) keeps_length: bool,
    /// The data directory that it was made for.
    pub(super) log_id: u64,
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES as usize] {
        let mut page = [0; SEGMENT_HEADER_BYTES as usize];
        let mut put = Put { out: &mut page[..64], at: 0 };
        put.bytes(&SEGMENT_MAGIC);
        put.bytes(&FORMAT_VERSION.to_le_bytes());
        put.bytes(&self.shard.to_le_bytes());
        put.bytes(&self.segment.to_le_bytes());
        put.bytes(&self.segment_bytes.to_le_bytes());
        put.bytes(&self.predecessor.unwrap_or(u64::MAX).to_le_bytes());
        put.bytes(&self.synced.0.to_le_bytes());
        put.bytes(&self.oldest.0.to_le_bytes());
        put.bytes(&[u8::from(self.recycled) | u8::from(self.keeps_length) << 1, 0, 0, 0]);
        put.bytes(&self.log_id.to_le_bytes());
        put.checksum();
        page
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let bytes = checked_header(bytes, SEGMENT_MAGIC)?;
        Ok(Self {
            shard: u16_at(bytes, 6),
            segment: u64_at(bytes, 8),
            segment_bytes: u64_at(bytes, 16),
            predecessor: Some(u64_at(bytes, 24)).filter(|&segment| segment != u64::MAX),
            synced: Position(u64_at(bytes, 32)),
            oldest: Position(u64_at(bytes, 40)),
            recycled: bytes[48] & 1 != 0,
            keeps_length: bytes[48] & 2 != 0,
            log_id: u64_at(bytes, 52),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_to_their_number_and_nothing_else_does() {
        let parse = |name: &str| parse_file_name(name, 1 << 30);
        assert_eq!(parse(&file_name(0x1f)), FileName::Segment(0x1f));
        assert_eq!(parse("000000000000001F.seg"), FileName::Foreign);
        assert_eq!(parse("1f.seg"), FileName::Foreign);
        assert_eq!(parse("+00000000000001f.seg"), FileName::Foreign);
        assert_eq!(parse("ffffffffffffffff.seg"), FileName::Foreign);
        assert_eq!(parse("notes.txt"), FileName::Other);
    }

    #[test]
    fn header_comes_back_as_it_went() {
        for predecessor in [None, Some(0), Some(6)] {
            let header = SegmentHeader {
                shard: 2,
                segment: 7,
                segment_bytes: 1 << 26,
                predecessor,
                synced: Position(12345),
                oldest: Position(678),
                recycled: predecessor.is_some(),
                keeps_length: predecessor != Some(0),
                log_id: 0x0123_4567_89ab_cdef,
            };
            assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
        }
    }
}
