//! The bytes of blocks and records: encoding, decoding, checksums. `docs/log-format.md` draws them.
//!
//! Knows bytes only: no files, no memory management, no idea what a record means to the shard.
//!
//! Recipe for a change of these bytes, or of a segment's header: bytes that are zero now can be given a
//! meaning, if zero goes on meaning what it did and older builds may overlook it. Anything else is a new
//! [`FORMAT_VERSION`]; the headers of older ones are still decoded, into the same structs, with what they
//! do not say filled in, and a segment is written in one version from its beginning to its end. Both end on the page, and in a log for `tests/compat` that has it. For what
//! records say, see `shards/src/log_record/mod.rs`.

use super::address::Position;
use super::salt::Salt;
use std::fmt;

/// Bytes of the header in front of every block.
pub const BLOCK_HEADER_BYTES: usize = 64;
/// Bytes of the header in front of every record's body.
pub const RECORD_HEADER_BYTES: usize = 8;
/// The version of the format this build writes, and the newest it reads.
pub const FORMAT_VERSION: u16 = 2;

const BLOCK_MAGIC: [u8; 4] = *b"CQBK";
/// The magic and the checksum sit here in every version, so that a newer version can be told from
/// damage.
const CRC_AT: usize = BLOCK_HEADER_BYTES - 4;

/// The block's records must be synced before they count as released.
pub(crate) const FLAG_SYNC: u32 = 1;
/// The last block of a clean shutdown.
pub(crate) const FLAG_CLOSED: u32 = 2;

/// In what a block says how far before it something lies.
const SYNCED_UNIT_BYTES: u64 = 64;
const OLDEST_UNIT_BYTES: u64 = 4096;

/// Fields of the 64 bytes in front of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub(crate) shard: u16,
    /// That of the segment it was written to; a header with another one is stale, or none of the log's.
    pub(crate) salt: Salt,
    /// Where the block claims to be; a header read elsewhere is stale.
    pub(crate) position: Position,
    /// Rises by one from block to block.
    pub(crate) sequence: u64,
    /// Everything below was known to be on the disk when this block was written.
    pub(crate) synced: Position,
    /// Where the log began when this block was written; what lies before has been reclaimed.
    pub(crate) oldest: Position,
    /// Bytes of the records, headers included.
    pub(crate) body_bytes: u32,
    /// Bytes from this block's start to the next one's: header, body and padding.
    pub(crate) block_bytes: u32,
    pub(crate) records: u32,
    pub(crate) flags: u32,
    /// Checksum of the previous block, header and records: a block follows exactly one other.
    pub(crate) prev: u32,
}

/// Why some bytes are not the block header that should be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    Short,
    NoMagic,
    Checksum,
    /// Intact, but of a version this build does not read.
    Version(u16),
    /// Intact, but another segment's: that of a file that has another's name, or has not got its new header yet.
    Segment(u64),
}

impl fmt::Display for HeaderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the file ends inside a header"),
            Self::NoMagic => f.write_str("no header there"),
            Self::Checksum => f.write_str("the header's checksum is wrong"),
            Self::Version(version) => write!(f, "the header has format version {version}"),
            Self::Segment(number) => write!(f, "it belongs at segment {number}"),
        }
    }
}

impl BlockHeader {
    /// Writes the header and returns its checksum.
    pub(crate) fn encode(&self, out: &mut [u8]) -> u32 {
        let mut put = Put { out: &mut out[..BLOCK_HEADER_BYTES], at: 0 };
        put.bytes(&BLOCK_MAGIC);
        put.bytes(&self.salt.version().to_le_bytes());
        put.bytes(&self.shard.to_le_bytes());
        put.bytes(&self.position.0.to_le_bytes());
        put.bytes(&self.sequence.to_le_bytes());
        if let Some(salt) = self.salt.0 {
            put.bytes(&salt.to_le_bytes());
            put.bytes(&units_back(self.position, self.synced, SYNCED_UNIT_BYTES).to_le_bytes());
            put.bytes(&units_back(self.position, self.oldest, OLDEST_UNIT_BYTES).to_le_bytes());
        } else {
            put.bytes(&self.synced.0.to_le_bytes());
            put.bytes(&self.oldest.0.to_le_bytes());
        }
        put.bytes(&self.body_bytes.to_le_bytes());
        put.bytes(&self.block_bytes.to_le_bytes());
        put.bytes(&self.records.to_le_bytes());
        put.bytes(&self.flags.to_le_bytes());
        put.bytes(&self.prev.to_le_bytes());
        put.checksum()
    }

    /// The header in the first bytes of `bytes`, and its checksum.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, u32), HeaderFault> {
        let (bytes, version) = checked_header(bytes, BLOCK_MAGIC)?;
        let position = Position(u64_at(bytes, 8));
        let (salt, synced, oldest) = match version {
            1 => (Salt::NONE, Position(u64_at(bytes, 24)), Position(u64_at(bytes, 32))),
            _ => (
                Salt(Some(u64_at(bytes, 24))),
                before(position, u32_at(bytes, 32), SYNCED_UNIT_BYTES),
                before(position, u32_at(bytes, 36), OLDEST_UNIT_BYTES),
            ),
        };
        let header = Self {
            shard: u16_at(bytes, 6),
            salt,
            position,
            sequence: u64_at(bytes, 16),
            synced,
            oldest,
            body_bytes: u32_at(bytes, 40),
            block_bytes: u32_at(bytes, 44),
            records: u32_at(bytes, 48),
            flags: u32_at(bytes, 52),
            prev: u32_at(bytes, 56),
        };
        Ok((header, u32_at(bytes, CRC_AT)))
    }
}

/// How far before the block at `position` something lies. What is further away than can be said is not said.
fn units_back(position: Position, there: Position, unit_bytes: u64) -> u32 {
    let units = (position.0 & !(unit_bytes - 1)).saturating_sub(there.0) / unit_bytes;
    u32::try_from(units).unwrap_or(u32::MAX)
}

/// Inverts `units_back`. An unknown or impossible distance gives the beginning of all addresses.
fn before(position: Position, units: u32, unit_bytes: u64) -> Position {
    let there = (position.0 & !(unit_bytes - 1)).checked_sub(u64::from(units) * unit_bytes);
    Position(there.filter(|_| units < u32::MAX).unwrap_or(0))
}

/// Fills a header from left to right.
pub(crate) struct Put<'a> {
    pub(crate) out: &'a mut [u8],
    pub(crate) at: usize,
}

impl Put<'_> {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// Zeroes what is left, puts the checksum into the last four bytes and returns it.
    pub(crate) fn checksum(self) -> u32 {
        self.out[self.at..].fill(0);
        let crc_at = self.out.len() - 4;
        let crc = crc32c::crc32c(&self.out[..crc_at]);
        self.out[crc_at..].copy_from_slice(&crc.to_le_bytes());
        crc
    }
}

/// The 64 bytes of an intact header with this magic and a version that this build reads, and that version.
pub(crate) fn checked_header(bytes: &[u8], magic: [u8; 4]) -> Result<(&[u8], u16), HeaderFault> {
    let bytes = bytes.get(..BLOCK_HEADER_BYTES).ok_or(HeaderFault::Short)?;
    if bytes[..4] != magic {
        return Err(HeaderFault::NoMagic);
    }
    if crc32c::crc32c(&bytes[..CRC_AT]) != u32_at(bytes, CRC_AT) {
        return Err(HeaderFault::Checksum);
    }
    match u16_at(bytes, 4) {
        version @ 1..=FORMAT_VERSION => Ok((bytes, version)),
        version => Err(HeaderFault::Version(version)),
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// The checksum of a record: seeded with its segment's salt and its position, so that the same bytes verify
/// at no other place, and none that a client has chosen; over its length and its body.
fn record_crc(salt: Salt, position: Position, record: &[u8]) -> u32 {
    let mut seed = [0; 20];
    seed[..8].copy_from_slice(&salt.0.unwrap_or_default().to_le_bytes());
    seed[8..16].copy_from_slice(&position.0.to_le_bytes());
    seed[16..].copy_from_slice(&record[..4]);
    let seed = if salt == Salt::NONE { &seed[8..] } else { &seed[..] };
    crc32c::crc32c_append(crc32c::crc32c(seed), &record[RECORD_HEADER_BYTES..])
}

/// Whether `record` (header and body) is exactly the record written at `position`.
pub(crate) fn record_is_intact(salt: Salt, position: Position, record: &[u8]) -> bool {
    record.len() >= RECORD_HEADER_BYTES
        && u32_at(record, 0) as usize == record.len()
        && u32_at(record, 4) == record_crc(salt, position, record)
}

/// Value that the next block's `prev` must have: the header's checksum and those of all records in one, so that a block
/// follows the content before it and not only a block of that shape.
const fn link(chained: u32, record_crc: u32) -> u32 {
    chained.rotate_left(1) ^ record_crc
}

/// The end of a record whose checksum is known: of these bytes, by themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownTail {
    pub(crate) bytes: usize,
    pub(crate) crc: u32,
}

/// The checksum of a record, of which only what is before its known tail is gone over.
fn record_crc_before(salt: Salt, position: Position, record: &[u8], tail: KnownTail) -> u32 {
    let front = record_crc(salt, position, &record[..record.len() - tail.bytes]);
    crc32c::crc32c_combine(front, tail.crc, tail.bytes)
}

/// Puts the checksum into every record of a body whose lengths are in place, the first of which may have a tail that is
/// known. Takes the header's checksum and returns the next block's `prev`.
pub(crate) fn seal_records(
    salt: Salt,
    start: Position,
    body: &mut [u8],
    header_crc: u32,
    mut tail: Option<KnownTail>,
) -> u32 {
    let mut chained = header_crc;
    let mut at = 0;
    while at < body.len() {
        let end = at + u32_at(body, at) as usize;
        let (record, position) = (&body[at..end], start.plus(at as u64));
        let crc = match tail.take() {
            Some(tail) => record_crc_before(salt, position, record, tail),
            None => record_crc(salt, position, record),
        };
        debug_assert_eq!(crc, record_crc(salt, position, record), "a known tail is what it was");
        body[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
        chained = link(chained, crc);
        at = end;
    }
    chained
}

/// Checks that `body` is exactly `count` intact records end to end. Takes the header's checksum and
/// returns the next block's `prev`.
pub(crate) fn check_records(
    salt: Salt,
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
        if !record_is_intact(salt, start.plus(at as u64), &rest[..bytes]) {
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
pub(crate) fn records(start: Position, body: &[u8]) -> impl Iterator<Item = (Position, &[u8])> {
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

    fn header(salt: Salt) -> BlockHeader {
        BlockHeader {
            shard: 3,
            salt,
            position: Position(0x1_0000_1000),
            sequence: 9,
            synced: Position(0x1_0000_0800),
            oldest: Position(0x2000),
            body_bytes: 100,
            block_bytes: 192,
            records: 2,
            flags: FLAG_SYNC,
            prev: 0xdead_beef,
        }
    }

    #[test]
    fn header_comes_back_as_it_went() {
        for salt in [Salt::NONE, Salt(Some(0)), Salt(Some(0x0123_4567_89ab_cdef))] {
            for (synced, oldest) in
                [(0x1_0000_0800, 0x2000), (0x1_0000_1000, 0), (0, 0x1_0000_0000)]
            {
                let (synced, oldest) = (Position(synced), Position(oldest));
                let header = BlockHeader { synced, oldest, ..header(salt) };
                let mut bytes = [0xff; BLOCK_HEADER_BYTES];
                let crc = header.encode(&mut bytes);
                assert_eq!(BlockHeader::decode(&bytes), Ok((header, crc)));
                assert_eq!(bytes[4], salt.version() as u8);
            }
        }
    }

    #[test]
    fn what_is_too_far_away_to_be_said_is_claimed_too_low_and_never_too_high() {
        let position = Position(1 << 60);
        for there in [0, 1 << 20, (1 << 60) - (1 << 45), (1 << 60) - (1 << 39), 1 << 60] {
            for unit in [SYNCED_UNIT_BYTES, OLDEST_UNIT_BYTES] {
                let there = Position(there);
                let said = before(position, units_back(position, there, unit), unit);
                assert!(said == there || said == Position(0), "{there} {said}");
            }
        }
        assert_eq!(before(Position(64), 7, 64), Position(0));
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_seen() {
        for salt in [Salt::NONE, Salt(Some(7))] {
            let mut bytes = [0; BLOCK_HEADER_BYTES];
            header(salt).encode(&mut bytes);
            for bit in 0..BLOCK_HEADER_BYTES * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(BlockHeader::decode(&bytes).is_err(), "bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn a_record_verifies_at_its_own_position_and_with_its_own_salt_only() {
        let mut body = vec![0; 28];
        body[0] = 8; // an empty record
        body[8] = 20;
        body[16..].fill(0x5a);
        let salts = [Salt::NONE, Salt(Some(0)), Salt(Some(1))];
        for salt in salts {
            let here = Position(4096);
            let chained = seal_records(salt, here, &mut body, 5, None);
            assert_eq!(check_records(salt, here, &body, 2, 5), Ok(chained));
            assert!(check_records(salt, here, &body, 1, 5).is_err());
            for other in [0, 4095, 4097, 4096 + (1 << 26), 4096 + (1 << 32)] {
                assert!(check_records(salt, Position(other), &body, 2, 5).is_err(), "{other}");
            }
            for other in salts.into_iter().filter(|&other| other != salt) {
                assert!(check_records(other, here, &body, 2, 5).is_err());
            }
        }
        let found: Vec<_> = records(Position(4096), &body).collect();
        assert_eq!(found, [(Position(4096), &[][..]), (Position(4104), &[0x5a; 12][..])]);
    }

    #[test]
    fn a_record_whose_tail_was_summed_up_before_has_the_checksum_that_it_would_have() {
        for (head, tail) in [(8, 0), (8, 1), (30, 70_000)] {
            let mut body = vec![0; head + tail];
            body[..4].copy_from_slice(&((head + tail) as u32).to_le_bytes());
            body[head..].fill(0x5a);
            let known = KnownTail { bytes: tail, crc: crc32c::crc32c(&body[head..]) };
            let mut plain = body.clone();
            for salt in [Salt::NONE, Salt(Some(3))] {
                let here = Position(4096);
                let chained = seal_records(salt, here, &mut body, 5, Some(known));
                assert_eq!(chained, seal_records(salt, here, &mut plain, 5, None));
                assert!(body == plain && check_records(salt, here, &body, 1, 5) == Ok(chained));
            }
        }
    }

    #[test]
    fn impossible_lengths_are_errors_not_panics() {
        for length in [0_u32, 1, 7, 9, 17, u32::MAX] {
            let mut body = vec![0; 16];
            body[..4].copy_from_slice(&length.to_le_bytes());
            assert!(check_records(Salt::NONE, Position(0), &body, 1, 5).is_err());
        }
        assert!(check_records(Salt::NONE, Position(0), &[1, 2, 3], 1, 5).is_err());
    }
}
