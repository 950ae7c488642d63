//! Segments as files: their names and their headers.
//!
//! Knows names and 128 bytes; what a segment holds is the blocks' business.

use super::address::{Position, SEGMENT_HEADER_BYTES};
use super::block::{HeaderFault, Put, checked_header, u16_at, u32_at, u64_at};
use super::salt::Salt;

const SEGMENT_MAGIC: [u8; 4] = *b"CQSG";
/// Since version 2: the first 64 bytes are what they were, with a checksum of their own, so that an older build
/// sees the version.
pub(crate) const LONG_HEADER_BYTES: usize = 128;
/// All that there is of it in version 1.
pub(crate) const HEADER_BYTES: usize = 64;
const LONG_CRC_AT: usize = LONG_HEADER_BYTES - 4;
const RECYCLED: u8 = 1;
const KEEPS_LENGTH: u8 = 2;
const BEFORE_IS_SALTED: u8 = 4;
pub(crate) const EXTENSION: &str = ".seg";

/// The name of a segment's file: `0000000000000003.seg`.
pub fn file_name(segment: u64) -> String {
    format!("{segment:016x}{EXTENSION}")
}

/// Meaning of a file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileName {
    Segment(u64),
    /// Ends like a segment, but is none of ours: nobody can say what to do with it.
    Foreign,
    /// Not the log's business.
    Other,
}

pub(crate) fn parse_file_name(name: &str, segments_max: u64) -> FileName {
    let Some(stem) = name.strip_suffix(EXTENSION) else { return FileName::Other };
    match u64::from_str_radix(stem, 16) {
        Ok(segment) if segment < segments_max && file_name(segment) == name => {
            FileName::Segment(segment)
        }
        _ => FileName::Foreign,
    }
}

/// Fields of the first bytes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) shard: u16,
    pub(crate) segment: u64,
    pub(crate) segment_bytes: u64,
    /// The segment before this one. Numbers may skip; this chain may not.
    pub(crate) predecessor: Option<u64>,
    /// Everything below was known to be on the disk when this segment was made.
    pub(crate) synced: Position,
    /// Where the log began when this segment was made.
    pub(crate) oldest: Position,
    /// The file was another segment before: behind the blocks of this one lie those of that.
    pub(crate) recycled: bool,
    /// The file is cut only once another one follows it on the disk, and its end is left to its mark.
    /// Earlier builds did not know of either.
    pub(crate) keeps_length: bool,
    /// The data directory that it was made for.
    pub(crate) log_id: u64,
    /// Salt that the segment's blocks bear.
    pub(crate) salt: Salt,
    /// Salt of the segment before this one, should its header be lost; none if that is not said.
    pub(crate) before: Option<Salt>,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES as usize] {
        let mut page = [0; SEGMENT_HEADER_BYTES as usize];
        let mut put = Put { out: &mut page[..HEADER_BYTES], at: 0 };
        put.bytes(&SEGMENT_MAGIC);
        put.bytes(&self.salt.version().to_le_bytes());
        put.bytes(&self.shard.to_le_bytes());
        put.bytes(&self.segment.to_le_bytes());
        put.bytes(&self.segment_bytes.to_le_bytes());
        put.bytes(&self.predecessor.unwrap_or(u64::MAX).to_le_bytes());
        put.bytes(&self.synced.0.to_le_bytes());
        put.bytes(&self.oldest.0.to_le_bytes());
        let before = self.before.and_then(|before| before.0);
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = flag(self.recycled, RECYCLED)
            | flag(self.keeps_length, KEEPS_LENGTH)
            | flag(before.is_some(), BEFORE_IS_SALTED);
        put.bytes(&[flags, 0, 0, 0]);
        put.bytes(&self.log_id.to_le_bytes());
        put.checksum();
        if let Some(salt) = self.salt.0 {
            let mut put = Put { out: &mut page[..LONG_HEADER_BYTES], at: HEADER_BYTES };
            put.bytes(&salt.to_le_bytes());
            put.bytes(&before.unwrap_or_default().to_le_bytes());
            put.checksum();
        }
        page
    }

    pub(crate) fn decode(page: &[u8]) -> Result<Self, HeaderFault> {
        let (bytes, version) = checked_header(page, SEGMENT_MAGIC)?;
        let (salt, before) = if version == 1 { (Salt::NONE, None) } else { salts(page)? };
        Ok(Self {
            shard: u16_at(bytes, 6),
            segment: u64_at(bytes, 8),
            segment_bytes: u64_at(bytes, 16),
            predecessor: Some(u64_at(bytes, 24)).filter(|&segment| segment != u64::MAX),
            synced: Position(u64_at(bytes, 32)),
            oldest: Position(u64_at(bytes, 40)),
            recycled: bytes[48] & RECYCLED != 0,
            keeps_length: bytes[48] & KEEPS_LENGTH != 0,
            log_id: u64_at(bytes, 52),
            salt,
            before,
        })
    }
}

/// The salts in the second part of a header: its own, and that of the segment before.
fn salts(page: &[u8]) -> Result<(Salt, Option<Salt>), HeaderFault> {
    let bytes = page.get(..LONG_HEADER_BYTES).ok_or(HeaderFault::Short)?;
    if crc32c::crc32c(&bytes[..LONG_CRC_AT]) != u32_at(bytes, LONG_CRC_AT) {
        return Err(HeaderFault::Checksum);
    }
    let before = (bytes[48] & BEFORE_IS_SALTED != 0).then(|| u64_at(bytes, 72));
    Ok((Salt(Some(u64_at(bytes, 64))), Some(Salt(before))))
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
            for salt in [Salt::NONE, Salt(Some(0)), Salt(Some(u64::MAX))] {
                let before = predecessor.and(salt.0);
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
                    salt,
                    before: salt.0.map(|_| Salt(before)),
                };
                let mut page = header.encode();
                assert_eq!(SegmentHeader::decode(&page), Ok(header));
                let bytes = if salt == Salt::NONE { 64 } else { LONG_HEADER_BYTES };
                assert!(SegmentHeader::decode(&page[..bytes - 1]).is_err());
                for at in 0..bytes {
                    page[at] ^= 1;
                    assert!(SegmentHeader::decode(&page).is_err(), "byte {at}");
                    page[at] ^= 1;
                }
            }
        }
    }
}
