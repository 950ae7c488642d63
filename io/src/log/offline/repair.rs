//! Putting the copy of a damaged log right, so that a start takes it: what is missing is bridged, all that is
//! whole stays where it is, byte for byte, and so do the addresses that records know each other by.
//!
//! A bridge is made of blocks without records in the place of those that are lost, as many of them, so
//! that the numbers go on. The last one must have the checksum that the next whole block names as its
//! predecessor's; its flags, which mean nothing in a block without records, are chosen so. The
//! result is a log of the same format version: a bridge bears what the blocks around it bear.
//!
//! It works on a copy of the log, whose files may be those of the log itself by a second name: what is written to gets
//! bytes of its own first. What lost records told is lost.

use super::damage::{Damage, Gap, Kind};
use super::inspection::{Inspection, Subject};
use crate::log::data_dir::identity::new_id;
use crate::log::disk::regular;
use crate::log::format::address::{Geometry, Position, SEGMENT_HEADER_BYTES};
use crate::log::format::block::{BLOCK_HEADER_BYTES, BlockHeader};
use crate::log::format::chain::{BLOCK_ALIGN_BYTES, Mark};
use crate::log::format::salt::Salt;
use crate::log::format::segment::{SegmentHeader, file_name};
use crate::log::format::synced_slots;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const HEADER: u64 = BLOCK_HEADER_BYTES as u64;

/// A repair that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The file it was done to.
    pub file: String,
    /// Where in it.
    pub offset: u64,
    /// The repair, in words.
    pub what: String,
}

/// Puts right what `inspection` has found wrong with a copy of a log. What is then still wrong shows in the
/// next look: a file that was lost whole is found to have held blocks only once it is there again, and all else once
/// each file has its own name.
pub fn repair(subject: Subject<'_>, inspection: &Inspection) -> io::Result<Vec<Repaired>> {
    let geometry =
        Geometry { segment_bytes: inspection.segment_bytes, align_bytes: BLOCK_ALIGN_BYTES };
    let mut mender = Repairer { subject, geometry, done: Vec::new() };
    if let Some(foreign) = inspection.damages.iter().find(|it| matches!(it.kind, Kind::Foreign)) {
        return Err(hopeless(foreign));
    }
    if inspection.damages.iter().any(Damage::is_misnamed) {
        mender.rename(inspection)?;
        return Ok(mender.done);
    }
    for damage in &inspection.damages {
        match &damage.kind {
            // Both are seen to before.
            Kind::Foreign | Kind::Misnamed { .. } => {}
            Kind::Header { number, predecessor, salt } => {
                mender.write_segment_header(*number, *predecessor, *salt)?;
            }
            Kind::Missing { number, predecessor } => {
                mender.write_segment_header(*number, *predecessor, None)?;
            }
            Kind::Gap(gap) => mender.bridge(gap, damage)?,
            Kind::End { end, segment } => mender.cut(*end, *segment)?,
            Kind::Nothing => mender.begin_anew()?,
        }
    }
    File::open(subject.directory)?.sync_all()?;
    Ok(mender.done)
}

/// Gives a file that has a second name bytes of its own, durably: what it shares with others must not change.
pub fn unshare(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.nlink() < 2 {
        return Ok(());
    }
    let copy = path.with_extension("tmp");
    fs::copy(path, &copy)?;
    File::open(&copy)?.sync_all()?;
    fs::rename(&copy, path)
}

fn hopeless(damage: &Damage) -> io::Error {
    let Damage { file, offset, reason, .. } = damage;
    io::Error::other(format!("{file} at byte {offset} cannot be mended: {reason}"))
}

/// A stretch of one segment in which blocks are missing.
struct Stretch {
    segment: u64,
    from: u64,
    to: u64,
    /// Whether the next block follows at its end, so that it must be filled.
    filled: bool,
    blocks: u64,
}

impl Stretch {
    fn room(&self) -> u64 {
        (self.to - self.from) / HEADER - self.blocks
    }
}

struct Repairer<'a> {
    subject: Subject<'a>,
    geometry: Geometry,
    done: Vec<Repaired>,
}

impl Repairer<'_> {
    fn path(&self, segment: u64) -> PathBuf {
        self.subject.directory.join(file_name(segment))
    }

    /// A segment to write to, made if it is not there. One that is linked to from elsewhere, as from a
    /// backup, is copied first: what is there must not change.
    fn open(&self, segment: u64) -> io::Result<File> {
        let path = self.path(segment);
        if path.exists() {
            unshare(&path)?;
        }
        let mut options = OpenOptions::new();
        regular::open_with(&path, options.read(true).write(true).create(true).truncate(false))
    }

    /// Gives files the names of the segments that they are.
    fn rename(&mut self, inspection: &Inspection) -> io::Result<()> {
        let aside = |number| self.path(number).with_extension("renaming");
        let kinds = inspection.damages.iter().map(|damage| &damage.kind);
        let pairs: Vec<(u64, u64)> = kinds
            .filter_map(|kind| match kind {
                Kind::Misnamed { number, belongs } => Some((*number, *belongs)),
                _ => None,
            })
            .collect();
        // All of them first: one may have the name that another one needs.
        for &(number, belongs) in &pairs {
            fs::rename(self.path(number), aside(belongs))?;
        }
        for &(_, belongs) in &pairs {
            let place = self.path(belongs);
            if place.exists() {
                // The file has this name without a header of that segment: remove it.
                fs::remove_file(&place)?;
            }
            fs::rename(aside(belongs), place)?;
        }
        for (number, belongs) in pairs {
            self.note(number, 0, format!("renamed to {}", file_name(belongs)));
        }
        File::open(self.subject.directory)?.sync_all()
    }

    fn note(&mut self, segment: u64, offset: u64, what: String) {
        self.done.push(Repaired { file: file_name(segment), offset, what });
    }

    /// A header that claims nothing, or what it has claimed before. Without a known predecessor it is
    /// the first of a log whose beginning has gone. Its blocks bear `salt`; if nobody knows that, none of those there
    /// is one of the log's, and those to come get a fresh one.
    fn write_segment_header(
        &mut self,
        number: u64,
        predecessor: Option<u64>,
        salt: Option<Salt>,
    ) -> io::Result<()> {
        let made = !self.path(number).exists();
        let file = self.open(number)?;
        let known = header_of(&file, number)?;
        let salt = match salt {
            Some(salt) => salt,
            None => Salt(Some(new_id()?)),
        };
        let header = known.map_or(
            SegmentHeader {
                shard: self.subject.shard,
                segment: number,
                segment_bytes: self.geometry.segment_bytes,
                predecessor,
                synced: Position(0),
                oldest: Position(0),
                recycled: true,
                keeps_length: false,
                log_id: self.subject.log_id,
                salt,
                before: None,
            },
            |(_, header)| header,
        );
        let predecessor = predecessor.or(Some(number.saturating_sub(1)));
        let header = SegmentHeader { predecessor, ..header };
        file.write_all_at(&header.encode(), 0)?;
        file.sync_all()?;
        let what = if made { "made the missing file" } else { "wrote its header again" };
        self.note(number, 0, what.to_owned());
        Ok(())
    }

    /// Salt that the blocks of a segment bear. A segment without a header gets one.
    fn salt(&mut self, file: &File, number: u64, before: Option<u64>) -> io::Result<Salt> {
        if header_of(file, number)?.is_none() {
            self.write_segment_header(number, before, None)?;
        }
        let header = header_of(file, number)?;
        header.map(|(_, header)| header.salt).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Bridges missing blocks.
    fn bridge(&mut self, gap: &Gap, damage: &Damage) -> io::Result<()> {
        let mut stretches = self.stretches(gap);
        // Where nobody knows what was before, as few as can be: the first of a log has any number.
        let fewest = stretches.iter().map(|stretch| stretch.blocks).sum::<u64>().max(1);
        let blocks = gap.before.map_or(fewest, |before| gap.next.sequence - before.sequence);
        if !deal_out(&mut stretches, blocks) || gap.next.sequence < blocks {
            return Err(hopeless(damage));
        }
        let mut mark = gap.before.unwrap_or(Mark {
            end: gap.from,
            sequence: gap.next.sequence - blocks,
            prev: 0,
        });
        let mut segment_before = None;
        for stretch in stretches.iter().filter(|stretch| stretch.blocks > 0) {
            let start = self.geometry.start_of(stretch.segment);
            let file = self.open(stretch.segment)?;
            let salt = self.salt(&file, stretch.segment, segment_before)?;
            segment_before = Some(stretch.segment);
            let mut at = stretch.from;
            for left in (0..stretch.blocks).rev() {
                let whole = left == 0 && stretch.filled;
                let block_bytes = if whole { stretch.to - at } else { HEADER };
                let header = BlockHeader {
                    shard: self.subject.shard,
                    salt,
                    position: start.plus(at),
                    sequence: mark.sequence,
                    synced: Position(0),
                    oldest: Position(0),
                    body_bytes: 0,
                    block_bytes: block_bytes as u32,
                    records: 0,
                    flags: 0,
                    prev: mark.prev,
                };
                let last = mark.sequence + 1 == gap.next.sequence;
                let (bytes, crc) = if last { forge(header, gap.next.prev) } else { plain(header) };
                file.write_all_at(&bytes, at)?;
                mark = Mark {
                    end: start.plus(at + block_bytes),
                    sequence: mark.sequence + 1,
                    prev: crc,
                };
                at += block_bytes;
            }
            file.sync_all()?;
            let what = format!("bridged {} lost blocks", stretch.blocks);
            self.note(stretch.segment, stretch.from, what);
        }
        Ok(())
    }

    /// The stretches that a gap goes over.
    fn stretches(&self, gap: &Gap) -> Vec<Stretch> {
        let start = |segment| self.geometry.start_of(segment).0;
        let (first, last) = (gap.segment, gap.next_segment);
        let from = gap.from.0 - start(first);
        let to = gap.next.position.0 - start(last);
        let stretch = |segment, from, to, filled| Stretch { segment, from, to, filled, blocks: 0 };
        if first == last {
            return vec![stretch(first, from, to, true)];
        }
        let whole = self.geometry.segment_bytes;
        let mut all = vec![stretch(first, from.min(whole), whole, false)];
        let between = (first + 1..last).filter(|&segment| self.path(segment).exists());
        all.extend(between.map(|segment| stretch(segment, SEGMENT_HEADER_BYTES, whole, false)));
        all.push(stretch(last, SEGMENT_HEADER_BYTES, to, true));
        // A segment without a block would end the log.
        let first = usize::from(gap.before.is_some());
        let end = all.len() - 1;
        for stretch in &mut all[first..end] {
            stretch.blocks = 1;
        }
        all[end].blocks = u64::from(to > SEGMENT_HEADER_BYTES);
        all
    }

    /// Takes away what is left of a log without a segment, so that the next start makes one.
    fn begin_anew(&mut self) -> io::Result<()> {
        let directory = self.subject.directory;
        if directory.is_dir() {
            fs::remove_dir_all(directory)?;
        }
        fs::create_dir(directory)?;
        if let Some(above) = directory.parent() {
            File::open(above)?.sync_all()?;
        }
        let what = "made its directory anew, without any job".to_owned();
        self.done.push(Repaired { file: String::new(), offset: 0, what });
        Ok(())
    }

    /// Takes away all from the end on.
    fn cut(&mut self, end: Position, segment: u64) -> io::Result<()> {
        let mut later = Vec::new();
        for entry in fs::read_dir(self.subject.directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let number = name.strip_suffix(".seg").and_then(|it| u64::from_str_radix(it, 16).ok());
            later.extend(number.filter(|&number| number > segment));
        }
        later.sort_unstable();
        // From behind: whenever this is interrupted, what is left is a log with a shorter end.
        for number in later.into_iter().rev() {
            fs::remove_file(self.path(number))?;
            self.note(number, 0, "took it away: nothing in it is whole".to_owned());
        }
        let at = end.0 - self.geometry.start_of(segment).0;
        let file = self.open(segment)?;
        if file.metadata()?.len() > at {
            file.set_len(at)?;
        }
        // A last file has its full length. What is behind the end takes no room.
        file.set_len(self.geometry.segment_bytes)?;
        file.sync_all()?;
        self.note(segment, at, "cut the log here: nothing behind is whole".to_owned());
        self.take_claims_back(&file, segment, end)
    }

    /// Zeroes the slots of a header page that say of something behind `end` that it had been synced. Those of the
    /// segments before say nothing about this one.
    fn take_claims_back(&mut self, file: &File, number: u64, end: Position) -> io::Result<()> {
        let Some((mut page, header)) = header_of(file, number)? else { return Ok(()) };
        if synced_slots::claim(&page, &header) <= end {
            return Ok(());
        }
        synced_slots::clear(&mut page);
        file.write_all_at(&page, 0)?;
        file.sync_all()?;
        self.note(number, 0, "took back what it said had been synced".to_owned());
        Ok(())
    }
}

/// The header page of a segment as it is, and what it says, if it is that segment's.
fn header_of(file: &File, number: u64) -> io::Result<Option<(Vec<u8>, SegmentHeader)>> {
    let mut page = vec![0; SEGMENT_HEADER_BYTES as usize];
    match file.read_exact_at(&mut page, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let header = SegmentHeader::decode(&page).ok().filter(|header| header.segment == number);
    Ok(header.map(|header| (page, header)))
}

/// Deals `blocks` out to the stretches, which have the fewest already. False if they do not fit.
fn deal_out(stretches: &mut [Stretch], blocks: u64) -> bool {
    let dealt: u64 = stretches.iter().map(|stretch| stretch.blocks).sum();
    let Some(mut left) = blocks.checked_sub(dealt) else { return false };
    for stretch in stretches {
        let more = stretch.room().min(left);
        // Stretches to be filled need a block each, and take more only as far as they have room.
        stretch.blocks += more;
        left -= more;
    }
    left == 0
}

fn plain(header: BlockHeader) -> ([u8; BLOCK_HEADER_BYTES], u32) {
    let mut bytes = [0; BLOCK_HEADER_BYTES];
    let crc = header.encode(&mut bytes);
    (bytes, crc)
}

/// A header whose checksum is `wanted`, by its flags. A checksum is linear: each bit of the flags turns the
/// same bits of it, whatever the rest. 32 bits of the one reach all of the other.
fn forge(header: BlockHeader, wanted: u32) -> ([u8; BLOCK_HEADER_BYTES], u32) {
    let of = |flags: u32| plain(BlockHeader { flags, ..header }).1;
    let none = of(0);
    // Rows of a basis, each with the flags that make it, by their highest bit.
    let mut basis = [(0_u32, 0_u32); 32];
    for bit in 0..32 {
        let (mut turned, mut flags) = (of(1 << bit) ^ none, 1_u32 << bit);
        while turned != 0 {
            let high = 31 - turned.leading_zeros() as usize;
            if basis[high].0 == 0 {
                basis[high] = (turned, flags);
                break;
            }
            turned ^= basis[high].0;
            flags ^= basis[high].1;
        }
    }
    let (mut left, mut flags) = (wanted ^ none, 0);
    while left != 0 {
        let (turned, made_by) = basis[31 - left.leading_zeros() as usize];
        assert!(turned != 0, "the flags of a header reach every checksum");
        left ^= turned;
        flags ^= made_by;
    }
    plain(BlockHeader { flags, ..header })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_can_have_any_checksum() {
        for (at, wanted) in [0, 1, 0xdead_beef, u32::MAX, 0x8000_0000].into_iter().enumerate() {
            let header = BlockHeader {
                shard: at as u16,
                salt: if at % 2 == 0 { Salt::NONE } else { Salt(Some(at as u64)) },
                position: Position(0x1_0000_1040 + at as u64),
                sequence: 77,
                synced: Position(0),
                oldest: Position(0),
                body_bytes: 0,
                block_bytes: 64,
                records: 0,
                flags: 0,
                prev: 12345,
            };
            let (bytes, crc) = forge(header, wanted);
            assert_eq!(crc, wanted);
            let Ok((decoded, crc)) = BlockHeader::decode(&bytes) else { panic!("not a header") };
            assert_eq!((decoded.prev, decoded.sequence, crc), (12345, 77, wanted));
        }
    }

    #[test]
    fn lost_blocks_are_dealt_out_to_where_they_can_have_been() {
        let stretch = |from, to, filled, blocks| Stretch { segment: 0, from, to, filled, blocks };
        let dealt = |stretches: &mut [Stretch], blocks| {
            let fits = deal_out(stretches, blocks);
            (fits, stretches.iter().map(|it| it.blocks).collect::<Vec<_>>())
        };
        assert_eq!(dealt(&mut [stretch(0, 64, true, 0)], 1), (true, vec![1]));
        assert!(!dealt(&mut [stretch(0, 64, true, 0)], 2).0);
        let mut three =
            [stretch(0, 128, false, 0), stretch(0, 640, false, 1), stretch(0, 64, true, 1)];
        assert_eq!(dealt(&mut three, 5), (true, vec![2, 2, 1]));
        let mut three =
            [stretch(0, 0, false, 0), stretch(0, 640, false, 1), stretch(0, 64, true, 1)];
        assert!(!dealt(&mut three, 1).0, "fewer are lost than there are files without one");
    }
}
