//! The bytes of blocks and records: encoding, decoding, checksums. `docs/log-format.md` draws them.
//!
//! Knows bytes only: no files, no memory management, no idea what a record means to the shard.
//!
//! Recipe for a change of these bytes, or of a segment's header: bytes that are zero now can be given a
//! meaning, if zero goes on meaning what it did and older builds may overlook it. Anything else is a new
//! [`FORMAT_VERSION`]; the headers of older ones are still decoded, into the same structs, with what they
//! do not say filled in. Both end on the page, and in a log for `tests/compat` that has it. For what
//! records say, see `shards/src/record.rs`.

use super::position::Position;
use std::fmt;

/// Bytes of the header in front of every block.
pub const BLOCK_HEADER_BYTES: usize = 64;
/// Bytes of the header in front of every record's body.
pub const RECORD_HEADER_BYTES: usize = 8;
/// The version of the format this build writes, and the newest it reads.
pub const FORMAT_VERSION: u16 = 1;

const BLOCK_MAGIC: [u8; 4] = *b"CQBK";
/// The magic and the checksum sit here in every version, so that a newer version can be told from
/// damage.
const CRC_AT: usize = BLOCK_HEADER_BYTES - 4;

/// The block's records must be synced before they count as released.
pub(super) const FLAG_SYNC: u32 = 1;
/// The last block of a clean shutdown.
pub(super) const FLAG_CLOSED: u32 = 2;

/// What the 64 bytes in front of a block say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHeader {
    pub(super) shard: u16,
    /// Where the block claims to be; a header read elsewhere is stale.
    pub(super) position: Position,
    /// Rises by one from block to block.
    pub(super) sequence: u64,
    /// Everything below was known to be on the disk when this block was written.
    pub(super) synced: Position,
    /// Where the log began when this block was written; what lies before has been reclaimed.
    pub(super) oldest: Position,
    /// Bytes of the records, headers included.
    pub(super) body_bytes: u32,
    /// Bytes from this block's start to the next one's: header, body and padding.
    pub(super) block_bytes: u32,
    pub(super) records: u32,
    pub(super) flags: u32,
    /// Checksum of the previous block, header and records: a block follows exactly one other.
    pub(super) prev: u32,
}

/// Why some bytes are not the block header that should be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderFault {
    Short,
    NoMagic,
    Checksum,
    /// Intact, but of a version this build does not read.
    Version(u16),
}

impl fmt::Display for HeaderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the file ends inside a header"),
            Self::NoMagic => f.write_str("no header there"),
            Self::Checksum => f.write_str("the header's checksum is wrong"),
            Self::Version(version) => write!(f, "the header has format version {version}"),
        }
    }
}

impl BlockHeader {
    /// Writes the header and returns its checksum.
    pub(super) fn encode(&self, out: &mut [u8]) -> u32 {
        let mut put = Put { out: &mut out[..BLOCK_HEADER_BYTES], at: 0 };
        put.bytes(&BLOCK_MAGIC);
        put.bytes(&FORMAT_VERSION.to_le_bytes());
        put.bytes(&self.shard.to_le_bytes());
        put.bytes(&self.position.0.to_le_bytes());
        put.bytes(&self.sequence.to_le_bytes());
        put.bytes(&self.synced.0.to_le_bytes());
        put.bytes(&self.oldest.0.to_le_bytes());
        put.bytes(&self.body_bytes.to_le_bytes());
        put.bytes(&self.block_bytes.to_le_bytes());
        put.bytes(&self.records.to_le_bytes());
        put.bytes(&self.flags.to_le_bytes());
        put.bytes(&self.prev.to_le_bytes());
        put.checksum()
    }

    /// The header in the first bytes of `bytes`, and its checksum.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Self, u32), HeaderFault> {
        let bytes = checked_header(bytes, BLOCK_MAGIC)?;
        let header = Self {
            shard: u16_at(bytes, 6),
            position: Position(u64_at(bytes, 8)),
            sequence: u64_at(bytes, 16),
            synced: Position(u64_at(bytes, 24)),
            oldest: Position(u64_at(bytes, 32)),
            body_bytes: u32_at(bytes, 40),
            block_bytes: u32_at(bytes, 44),
            records: u32_at(bytes, 48),
            flags: u32_at(bytes, 52),
            prev: u32_at(bytes, 56),
        };
        Ok((header, u32_at(bytes, CRC_AT)))
    }
}

/// Fills a 64 byte header from left to right.
pub(super) struct Put<'a> {
    pub(super) out: &'a mut [u8],
    pub(super) at: usize,
}

impl Put<'_> {
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// Zeroes what is left, puts the checksum into the last four bytes and returns it.
    pub(super) fn checksum(self) -> u32 {
        self.out[self.at..].fill(0);
        let crc = crc32c::crc32c(&self.out[..CRC_AT]);
        self.out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        crc
    }
}

/// The 64 bytes of an intact header with this magic and a version that this build reads.
pub(super) fn checked_header(bytes: &[u8], magic: [u8; 4]) -> Result<&[u8], HeaderFault> {
    let bytes = bytes.get(..BLOCK_HEADER_BYTES).ok_or(HeaderFault::Short)?;
    if bytes[..4] != magic {
        return Err(HeaderFault::NoMagic);
    }
    if crc32c::crc32c(&bytes[..CRC_AT]) != u32_at(bytes, CRC_AT) {
        return Err(HeaderFault::Checksum);
    }
    match u16_at(bytes, 4) {
        FORMAT_VERSION => Ok(bytes),
        version => Err(HeaderFault::Version(version)),
    }
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// The checksum of a record: seeded with its position, so that the same bytes verify at no other
/// place; over its length and its body.
fn record_crc(position: Position, record: &[u8]) -> u32 {
    let mut seed = [0; 12];
    seed[..8].copy_from_slice(&position.0.to_le_bytes());
    seed[8..].copy_from_slice(&record[..4]);
    crc32c::crc32c_append(crc32c::crc32c(&seed), &record[RECORD_HEADER_BYTES..])
}

/// Whether `record` (header and body) is exactly the record written at `position`.
pub(super) fn record_is_intact(position: Position, record: &[u8]) -> bool {
    record.len() >= RECORD_HEADER_BYTES
        && u32_at(record, 0) as usize == record.len()
        && u32_at(record, 4) == record_crc(position, record)
}

/// What the next block's `prev` must be: the header's checksum and those of all records in one, so
/// that a block follows the content before it and not only a block of that shape.
const fn link(chained: u32, record_crc: u32) -> u32 {
    chained.rotate_left(1) ^ record_crc
}

/// Puts the checksum into every record of a body whose lengths are in place. Takes the header's
/// checksum and returns the next block's `prev`.
pub(super) fn seal_records(start: Position, body: &mut [u8], header_crc: u32) -> u32 {
    let mut chained = header_crc;
    let mut at = 0;
    while at < body.len() {
        let end = at + u32_at(body, at) as usize;
        let crc = record_crc(start.plus(at as u64), &body[at..end]);
        body[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
        chained = link(chained, crc);
        at = end;
    }
    chained
}

/// Checks that `body` is exactly `count` intact records end to end. Takes the header's checksum and
/// returns the next block's `prev`.
pub(super) fn check_records(
    start: Position,
    body: &[u8],
    count: u32,
    header_crc: u32,
) -> Result<u32, String> {
    let mut chained = header_crc;
    let mut at = 0;
    let mut found = 0;
    while at < body.len() {
        let rest = &body[at..];
        let bytes = if rest.len() < RECORD_HEADER_BYTES { 0 } else { u32_at(rest, 0) as usize };
        if !(RECORD_HEADER_BYTES..=rest.len()).contains(&bytes) {
            return Err(format!("record {found} of the block has an impossible length"));
        }
        if !record_is_intact(start.plus(at as u64), &rest[..bytes]) {
            return Err(format!("record {found} of the block has a wrong checksum"));
        }
        chained = link(chained, u32_at(rest, 4));
        at += bytes;
        found += 1;
    }
    if found != count {
        return Err(format!("the block holds {found} records, its header says {count}"));
    }
    Ok(chained)
}

/// The records of a body that `check_records` accepted: position and body of each.
pub(super) fn records(start: Position, body: &[u8]) -> impl Iterator<Item = (Position, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == body.len() {
            return None;
        }
        let bytes = u32_at(body, at) as usize;
        let record = (start.plus(at as u64), &body[at + RECORD_HEADER_BYTES..at + bytes]);
        at += bytes;
        Some(record)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn header() -> BlockHeader {
        BlockHeader {
            shard: 3,
            position: Position(0x1_0000_1000),
            sequence: 9,
            synced: Position(0x1_0000_0800),
            oldest: Position(0x1000),
            body_bytes: 100,
            block_bytes: 192,
            records: 2,
            flags: FLAG_SYNC,
            prev: 0xdead_beef,
        }
    }

    #[test]
    fn header_comes_back_as_it_went() {
        let mut bytes = [0xff; BLOCK_HEADER_BYTES];
        let crc = header().encode(&mut bytes);
        assert_eq!(BlockHeader::decode(&bytes), Ok((header(), crc)));
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_seen() {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        header().encode(&mut bytes);
        for bit in 0..BLOCK_HEADER_BYTES * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(BlockHeader::decode(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_record_verifies_at_its_own_position_only() {
        let mut body = vec![0; 28];
        body[0] = 8; // an empty record
        body[8] = 20;
        body[16..].fill(0x5a);
        let chained = seal_records(Position(4096), &mut body, 5);
        assert_eq!(check_records(Position(4096), &body, 2, 5), Ok(chained));
        assert!(check_records(Position(4096), &body, 1, 5).is_err());
        for other in [0, 4095, 4097, 4096 + (1 << 26), 4096 + (1 << 32)] {
            assert!(check_records(Position(other), &body, 2, 5).is_err(), "{other}");
        }
        let found: Vec<_> = records(Position(4096), &body).collect();
        assert_eq!(found, [(Position(4096), &[][..]), (Position(4104), &[0x5a; 12][..])]);
    }

    #[test]
    fn impossible_lengths_are_errors_not_panics() {
        for length in [0_u32, 1, 7, 9, 17, u32::MAX] {
            let mut body = vec![0; 16];
            body[..4].copy_from_slice(&length.to_le_bytes());
            assert!(check_records(Position(0), &body, 1, 5).is_err());
        }
        assert!(check_records(Position(0), &[1, 2, 3], 1, 5).is_err());
    }
}
