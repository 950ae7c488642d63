//! Signs by which a file tells of those behind it, so that one that is missing, or cut short, is missed.
//!
//! Two things say that a segment is not the last one. The *mark* at its end, written once the next segment is on
//! the disk. And its length: a segment has its full length until a start cuts it behind its last block, which
//! it does once the segment that it goes on in is on the disk.
//!
//! Knows headers, marks and lengths; not the blocks.

use super::address::{Geometry, Position};
use super::block::{BLOCK_HEADER_BYTES, BlockHeader, HeaderFault, Put, checked_header};
use super::block::{u16_at, u64_at};
use super::chain::{Mark, Stretch};
use super::salt::Salt;
use super::segment::{SegmentHeader, file_name};

pub(crate) const SUCCESSOR_MAGIC: [u8; 4] = *b"CQGO";
/// Bytes of a mark: the last ones of its segment.
pub(crate) const SUCCESSOR_MARK_BYTES: usize = BLOCK_HEADER_BYTES;

/// The mark of a segment that another one has been made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SuccessorMark {
    pub(crate) shard: u16,
    pub(crate) segment: u64,
    pub(crate) next: u64,
    pub(crate) log_id: u64,
    /// That of the segment it ends.
    pub(crate) salt: Salt,
}

impl SuccessorMark {
    pub(crate) fn encode(&self) -> [u8; SUCCESSOR_MARK_BYTES] {
        let mut bytes = [0; SUCCESSOR_MARK_BYTES];
        let mut put = Put { out: &mut bytes, at: 0 };
        put.bytes(&SUCCESSOR_MAGIC);
        put.bytes(&self.salt.version().to_le_bytes());
        put.bytes(&self.shard.to_le_bytes());
        put.bytes(&self.segment.to_le_bytes());
        put.bytes(&self.next.to_le_bytes());
        put.bytes(&self.log_id.to_le_bytes());
        put.bytes(&self.salt.0.unwrap_or_default().to_le_bytes());
        put.checksum();
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let (bytes, version) = checked_header(bytes, SUCCESSOR_MAGIC)?;
        Ok(Self {
            shard: u16_at(bytes, 6),
            segment: u64_at(bytes, 8),
            next: u64_at(bytes, 16),
            log_id: u64_at(bytes, 24),
            salt: if version == 1 { Salt::NONE } else { Salt(Some(u64_at(bytes, 32))) },
        })
    }

    /// The segment that follows the one that `own` is of, if these bytes are its mark: a file that was another
    /// segment before may still have that one's.
    pub(crate) fn next_of(bytes: &[u8], own: &Own) -> Option<u64> {
        let mark = Self::decode(bytes).ok()?;
        let Own { shard, segment, log_id, salt } = *own;
        // Without a header to tell its salt by, the number of the directory has to do.
        let salt = salt.unwrap_or(mark.salt);
        let Self { next, .. } = mark;
        (mark == Self { shard, segment, next, log_id, salt }).then_some(next)
    }
}

/// Fields that a mark must have to be a segment's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) shard: u16,
    pub(crate) segment: u64,
    pub(crate) log_id: u64,
    pub(crate) salt: Option<Salt>,
}

/// The file of a segment as it lies there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) number: u64,
    pub(crate) file_bytes: u64,
    pub(crate) header: Result<SegmentHeader, HeaderFault>,
    /// Salt of its blocks: as its header says, or what is left of it; none if nobody knows.
    pub(crate) salt: Option<Salt>,
    /// Everything below had been synced, as its header page says.
    pub(crate) claim: Position,
    /// Number of the next segment, from the mark.
    pub(crate) next: Option<u64>,
}

impl Found {
    /// Whether the file was never cut, or is followed by another one.
    pub(crate) fn keeps_length(&self) -> bool {
        self.header.is_ok_and(|header| header.keeps_length)
    }

    pub(crate) fn is_short(&self, geometry: Geometry) -> bool {
        self.keeps_length() && self.file_bytes < geometry.segment_bytes
    }

    /// Whether it has another length than the start has given it that made the next one. What is wrong before both
    /// lengths, where the log ends at `end`, comes first.
    pub(crate) fn is_cut_wrongly(&self, next: &Self, end: Position, geometry: Geometry) -> bool {
        let Ok(header) = next.header else { return false };
        let cut = geometry.start_of(self.number).plus(self.file_bytes);
        // Who cut it made the next one before, and knew where it would be cut.
        let told = header.synced == cut || end < cut.min(header.synced);
        self.is_short(geometry) && header.keeps_length && !told
    }

    /// Whether the next one says that a block of this one had been synced that lies behind `end`.
    pub(crate) fn goes_on_behind(&self, next: &Self, end: Position) -> bool {
        let follows = |header: &SegmentHeader| header.predecessor == Some(self.number);
        next.header.is_ok_and(|header| follows(&header) && header.synced > end)
    }

    /// The salt that the bytes where its first block lies give away, should its header be lost. In every life of a
    /// file a block's header has stood there, and never what a client has chosen.
    pub(crate) fn salt_of_first_block(bytes: &[u8], shard: u16, place: Position) -> Option<Salt> {
        let (header, _) = BlockHeader::decode(bytes).ok()?;
        (header.position == place && header.shard == shard).then_some(header.salt)
    }

    /// Whether what was another segment before may lie behind its blocks.
    pub(crate) fn is_stale(&self) -> bool {
        self.header.map_or(true, |header| header.recycled)
    }

    /// The rest of the segment from an offset on, to be looked at.
    pub(crate) fn stretch(&self, from: u64, geometry: Geometry, after: Option<Mark>) -> Stretch {
        let Self { number, salt, .. } = *self;
        let (to, stale) = (self.data_bytes(geometry), self.is_stale());
        Stretch { number, from, to, salt, stale, after }
    }

    /// Where in the file its blocks end at the latest.
    pub(crate) fn data_bytes(&self, geometry: Geometry) -> u64 {
        let mark = if self.keeps_length() { SUCCESSOR_MARK_BYTES as u64 } else { 0 };
        geometry.segment_bytes - mark
    }
}

/// Takes the salts of segments that have lost their headers from the headers of those behind them.
pub(crate) fn learn_salts(found: &mut [Found]) {
    for index in 1..found.len() {
        let (before, next) = (found[index - 1], found[index]);
        if let (None, Ok(header)) = (before.salt, next.header)
            && header.predecessor == Some(before.number)
        {
            found[index - 1].salt = header.before;
        }
    }
}

/// Something that must be there, and is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missed {
    pub(crate) file: String,
    pub(crate) offset: u64,
    pub(crate) reason: String,
    /// The whole file.
    pub(crate) is_gone: bool,
}

/// Whether all the files are there that those from the end of the log on speak of: `rest`, the first of
/// which has the log's last block, which ends at `end`.
pub(crate) fn missed(rest: &[Found], end: Position, geometry: Geometry) -> Option<Missed> {
    for segment in rest {
        let Some(number) = segment.next else { continue };
        let file = file_name(number);
        let (offset, is_gone) = (0, false);
        match rest.iter().find(|other| other.number == number).map(|next| next.header) {
            Some(Ok(_)) => {}
            Some(Err(fault)) => {
                let reason = format!("segment header: {fault}");
                return Some(Missed { file, offset, reason, is_gone });
            }
            None => {
                let marked = file_name(segment.number);
                let reason = format!("the file is missing: {marked} says that it was there");
                return Some(Missed { file, offset, reason, is_gone: true });
            }
        }
    }
    let (first, last) = (rest.first()?, rest.last()?);
    let ends = |segment: &Found, reason: &str| {
        let bytes = geometry.segment_bytes;
        let reason = format!("the file ends here, before its {bytes} bytes, {reason}");
        let (file, offset) = (file_name(segment.number), segment.file_bytes);
        Some(Missed { file, offset, reason, is_gone: false })
    };
    if last.is_short(geometry) {
        return ends(last, "and no other one goes on: it was cut, or the one behind it is missing");
    }
    let next = rest.get(1)?;
    match next.header {
        Err(fault) if first.is_short(geometry) => {
            let (file, reason) = (file_name(next.number), format!("segment header: {fault}"));
            Some(Missed { file, offset: 0, reason, is_gone: false })
        }
        _ if first.is_cut_wrongly(next, end, geometry) => {
            ends(first, "and not where a start has cut it")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const GEOMETRY: Geometry = Geometry { segment_bytes: 1 << 16, align_bytes: 64 };

    fn found(number: u64, synced: Position) -> Found {
        let header = SegmentHeader {
            shard: 1,
            segment: number,
            segment_bytes: 1 << 16,
            predecessor: number.checked_sub(1),
            synced,
            oldest: Position(0),
            recycled: false,
            keeps_length: true,
            log_id: 9,
            salt: Salt(Some(5)),
            before: None,
        };
        let (salt, claim) = (Some(header.salt), Position(0));
        Found { number, file_bytes: 1 << 16, header: Ok(header), salt, claim, next: None }
    }

    #[test]
    fn a_mark_is_that_of_its_own_segment_only() {
        for salt in [Salt::NONE, Salt(Some(0)), Salt(Some(77))] {
            let mark = SuccessorMark { shard: 1, segment: 5, next: 6, log_id: 9, salt };
            let bytes = mark.encode();
            let own = Own { shard: 1, segment: 5, log_id: 9, salt: Some(salt) };
            assert_eq!(SuccessorMark::next_of(&bytes, &own), Some(6));
            assert_eq!(SuccessorMark::next_of(&bytes, &Own { salt: None, ..own }), Some(6));
            assert_eq!(SuccessorMark::next_of(&bytes, &Own { shard: 2, ..own }), None);
            assert_eq!(SuccessorMark::next_of(&bytes, &Own { log_id: 8, ..own }), None);
            assert_eq!(SuccessorMark::next_of(&bytes, &Own { segment: 4, ..own }), None);
            assert_eq!(
                SuccessorMark::next_of(&bytes, &Own { salt: Some(Salt(Some(78))), ..own }),
                None
            );
            for at in 0..SUCCESSOR_MARK_BYTES {
                let mut bytes = bytes;
                bytes[at] ^= 1;
                assert_eq!(SuccessorMark::next_of(&bytes, &own), None, "byte {at}");
            }
        }
    }

    #[test]
    fn what_is_marked_must_be_followed() {
        let end = Position(20_000);
        let marked = Found { next: Some(1), ..found(0, Position(0)) };
        let next = found(1, Position(0));
        assert_eq!(missed(&[found(0, Position(0))], end, GEOMETRY), None);
        assert_eq!(missed(&[marked, next], end, GEOMETRY), None);
        let gone = missed(&[marked], end, GEOMETRY).unwrap();
        assert!(gone.is_gone && gone.file == file_name(1), "{gone:?}");
        let other = missed(&[marked, found(2, Position(0))], end, GEOMETRY).unwrap();
        assert!(other.is_gone && other.file == file_name(1), "{other:?}");
        let broken = Found { header: Err(HeaderFault::NoMagic), ..next };
        let broken = missed(&[marked, broken], end, GEOMETRY).unwrap();
        assert!(!broken.is_gone && broken.file == file_name(1), "{broken:?}");
        let further = Found { next: Some(2), ..next };
        let further = missed(&[marked, further], end, GEOMETRY).unwrap();
        assert!(further.is_gone && further.file == file_name(2), "{further:?}");
    }

    #[test]
    fn what_is_short_was_cut_by_the_start_that_made_the_next_one() {
        let end = Position(20_000);
        let short = Found { file_bytes: 20_000, ..found(0, Position(0)) };
        assert_eq!(missed(&[short, found(1, end)], end, GEOMETRY), None);
        let told = missed(&[short], end, GEOMETRY).unwrap();
        assert_eq!((told.file, told.offset), (file_name(0), 20_000));
        assert!(missed(&[short, found(1, Position(9000))], end, GEOMETRY).is_some());
        assert!(
            missed(&[Found { file_bytes: 19_968, ..short }, found(1, end)], end, GEOMETRY)
                .is_some()
        );
        // Something is wrong before: the next one says that it had been synced.
        assert_eq!(missed(&[short, found(1, end)], Position(19_000), GEOMETRY), None);
        let lost = Found { header: Err(HeaderFault::Checksum), ..found(1, end) };
        assert_eq!(missed(&[short, lost], end, GEOMETRY).unwrap().file, file_name(1));
        // Segments of earlier builds say nothing by their length.
        let header = short.header.map(|header| SegmentHeader { keeps_length: false, ..header });
        assert_eq!(missed(&[Found { header, ..short }], end, GEOMETRY), None);
    }
}
