//! Reading a log back at start-up: which bytes are the log, where it ends, and whether what is wrong
//! is the torn tail of a crash or damage.
//!
//! Knows the format and the blocking half of the disk. No content of any file makes it panic.

use super::block_reader::{BlockReader, Fault};
use crate::log::LogConfig;
use crate::log::disk::Disk;
use crate::log::error::OpenError;
use crate::log::format::address::{Geometry, Position, SEGMENT_HEADER_BYTES};
use crate::log::format::block::{
    BLOCK_HEADER_BYTES, BlockHeader, FLAG_CLOSED, HeaderFault, records,
};
use crate::log::format::chain::Mark;
use crate::log::format::salt::Salt;
use crate::log::format::segment::{FileName, SegmentHeader, file_name, parse_file_name};
use crate::log::format::successor_mark::{
    Found, Missed, Own, SUCCESSOR_MARK_BYTES, SuccessorMark, learn_salts, missed,
};
use crate::log::format::synced_slots;
use crate::log::write::segment_pool::InUse;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::io;

/// Findings of a start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Records replayed.
    pub records: u64,
    /// Blocks read, those without records included.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// Segments kept.
    pub segments: u64,
    /// Where the log ended.
    pub end: Position,
    /// The log ended with the closing block of a clean shutdown.
    pub clean: bool,
    /// Tail that was cut off as torn.
    pub dropped: Option<Dropped>,
}

/// The torn tail of a crash: bytes that had been written, but never synced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// File name of the segment that holds its first byte.
    pub file: String,
    /// Where in that file it starts.
    pub offset: u64,
    /// Bytes from there to the last one written, over all segments.
    pub bytes: u64,
    /// The fault of the first block.
    pub reason: String,
}

/// The end that the log continues from.
#[derive(Clone, Debug)]
pub(crate) struct Continuation {
    pub(crate) end: Position,
    pub(crate) sequence: u64,
    pub(crate) prev: u32,
    pub(crate) oldest: Option<u64>,
    pub(crate) last: Option<u64>,
    /// A number that no file has ever had here.
    pub(crate) fresh: u64,
    /// The segments that are kept.
    pub(crate) segments: VecDeque<InUse>,
    /// Their salts.
    pub(crate) salts: BTreeMap<u64, Salt>,
    /// Work left to be done once the fresh segment is on the disk.
    pub(crate) rest: Rest,
    /// The segment that it goes on in instead of a fresh one, for want of room.
    pub(crate) resumed: Option<Resumed>,
}

/// The segment that a log goes on in.
#[derive(Clone, Debug)]
pub(crate) struct Resumed {
    pub(crate) header: SegmentHeader,
    /// Header page of the segment, as it lies there.
    pub(crate) page: Vec<u8>,
    /// Everything below is known to be on the disk by what is not overwritten.
    pub(crate) claimed: Position,
}

/// Until the log can go on elsewhere, the last file stays as one that may be the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    Nothing,
    /// The last segment of the log ends behind so many bytes.
    Cut(u64, u64),
    /// A segment has no record, like all there were.
    Remove(u64),
}

impl Rest {
    pub(crate) fn end(self, disk: &mut impl Disk) -> io::Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Cut(segment, bytes) => disk.truncate(segment, bytes),
            Self::Remove(segment) => disk.remove(segment),
        }
    }
}

/// A segment of which at least one block belongs to the log, or the first one.
pub(crate) struct Walked {
    pub(crate) number: u64,
    pub(crate) after: Mark,
    records: u64,
    fault: String,
    /// The bytes behind the last block look never written, so the next block may be elsewhere.
    ends_empty: bool,
}

impl Walked {
    fn nothing(number: u64, at: Mark, fault: HeaderFault) -> Self {
        let fault = format!("segment header: {fault}");
        Self { number, after: at, records: 0, fault, ends_empty: false }
    }
}

pub(crate) struct Recoverer<'a, D, F> {
    pub(crate) geometry: Geometry,
    pub(crate) shard: u16,
    pub(crate) log_id: u64,
    is_begun: bool,
    /// Of all files.
    pub(crate) bytes_max: u64,
    /// Of the first file of a log without records, if not all of it.
    pub(crate) first_bytes: u64,
    pub(crate) disk: &'a mut D,
    pub(crate) replay: F,
    pub(crate) reader: BlockReader,
    pub(crate) summary: Recovery,
    /// The oldest position that the log still needs, as its newest header says.
    pub(crate) oldest: Position,
    /// The highest position that an intact header says is synced.
    pub(crate) claim: Position,
}

impl<'a, D: Disk, E: Display, F: FnMut(Position, &[u8]) -> Result<(), E>> Recoverer<'a, D, F> {
    pub(crate) fn new(config: &LogConfig, disk: &'a mut D, replay: F) -> Self {
        let geometry = config.geometry();
        Self {
            geometry,
            shard: config.shard,
            log_id: config.log_id,
            is_begun: config.is_begun,
            bytes_max: config.bytes_max,
            first_bytes: config.first_bytes,
            disk,
            replay,
            reader: BlockReader::new(geometry, config.shard),
            summary: Recovery::default(),
            oldest: Position(0),
            claim: Position(0),
        }
    }

    /// Replays the log, decides where it ends, and removes what lies behind but for what must stay until
    /// the next segment is made. That one is `first_segment` if there is none yet.
    pub(crate) fn run(mut self, first_segment: u64) -> Result<(Continuation, Recovery), OpenError> {
        let (found, walked) = self.read()?;
        let resumed = self.choose_resumed(&found, &walked)?;
        let continuation = self.cut(&found, &walked, first_segment, resumed)?;
        Ok((continuation, self.summary))
    }

    /// Replays the log and decides where it ends. Changes nothing.
    pub(crate) fn look(mut self) -> Result<Recovery, OpenError> {
        let (_, walked) = self.read()?;
        let kept = kept(&walked);
        self.summary.segments = kept as u64;
        self.summary.end = walked[..kept].last().map_or(Position(0), |segment| segment.after.end);
        Ok(self.summary)
    }

    fn read(&mut self) -> Result<(Vec<Found>, Vec<Walked>), OpenError> {
        let found = self.find_segments()?;
        let walked = self.walk(&found)?;
        for segment in &found {
            self.claim = self.claim.max(segment.claim);
        }
        if let Some(last) = walked.last() {
            let rest = &found[walked.len() - 1..];
            let dropped_bytes = self.scan_headers(rest, last.after)?;
            self.judge(last, rest, dropped_bytes)?;
        }
        if self.is_begun {
            is_there(&found)?;
        }
        if let Some(first) = found.first().filter(|first| first.header.is_ok())
            && self.geometry.start_of(first.number) > self.oldest
        {
            let file = file_name(self.geometry.segment_of(self.oldest));
            return Err(OpenError::MissingSegment { file });
        }
        Ok((found, walked))
    }

    /// All segments in order, each with a header that fits its place or none at all.
    fn find_segments(&mut self) -> Result<Vec<Found>, OpenError> {
        let names = self.disk.list().map_err(|error| failed("listing the segments", error))?;
        let mut numbers = Vec::new();
        for name in names {
            match parse_file_name(&name, self.geometry.segments_max()) {
                FileName::Segment(number) => numbers.push(number),
                FileName::Foreign => return Err(OpenError::ForeignFile(name)),
                FileName::Other => {}
            }
        }
        numbers.sort_unstable();
        let mut found = Vec::with_capacity(numbers.len());
        for number in numbers {
            let (header, claim) = self.read_header(number)?;
            let file_bytes =
                self.disk.len(number).map_err(|error| failed(&file_name(number), error))?;
            let salt = match &header {
                Ok(header) => Some(header.salt),
                Err(_) => {
                    let place = self.geometry.data_start_of(number);
                    let shard = self.shard;
                    let bytes = self.bytes(number, SEGMENT_HEADER_BYTES, BLOCK_HEADER_BYTES)?;
                    Found::salt_of_first_block(bytes, shard, place)
                }
            };
            found.push(Found { number, file_bytes, header, salt, claim, next: None });
        }
        learn_salts(&mut found);
        for segment in &mut found {
            segment.next = self.read_mark(segment)?;
        }
        Ok(found)
    }

    /// The header of a segment, and the highest position that its page says is synced.
    fn read_header(
        &mut self,
        number: u64,
    ) -> Result<(Result<SegmentHeader, HeaderFault>, Position), OpenError> {
        let data_start = self.geometry.data_start_of(number);
        let page = self.bytes(number, 0, SEGMENT_HEADER_BYTES as usize)?;
        let nothing = Position(0);
        let header = match SegmentHeader::decode(page) {
            Ok(header) => header,
            Err(HeaderFault::Version(found)) => {
                return Err(OpenError::Version { file: file_name(number), found });
            }
            Err(fault) => return Ok((Err(fault), nothing)),
        };
        let claim = synced_slots::claim(page, &header).max(header.synced.min(data_start));
        let file = file_name(number);
        if header.shard != self.shard {
            let (found, expected) = (header.shard, self.shard);
            return Err(OpenError::WrongShard { file, found, expected });
        }
        let (found, configured) = (header.segment_bytes, self.geometry.segment_bytes);
        if found != configured {
            return Err(OpenError::SegmentBytes { file, found, configured });
        }
        if header.log_id != self.log_id {
            return Err(OpenError::WrongLog { file });
        }
        // A recycled file whose new header never reached the disk holds nothing of this number.
        if header.segment != number {
            return Ok((Err(HeaderFault::Segment(header.segment)), nothing));
        }
        Ok((Ok(header), claim))
    }

    fn read_mark(&mut self, segment: &Found) -> Result<Option<u64>, OpenError> {
        let Found { number, salt, .. } = *segment;
        let own = Own { shard: self.shard, segment: number, log_id: self.log_id, salt };
        let offset = self.geometry.segment_bytes - SUCCESSOR_MARK_BYTES as u64;
        let bytes = self.bytes(number, offset, SUCCESSOR_MARK_BYTES)?;
        Ok(SuccessorMark::next_of(bytes, &own))
    }

    /// Replays block after block, segment after segment, until one does not continue the last.
    fn walk(&mut self, found: &[Found]) -> Result<Vec<Walked>, OpenError> {
        let mut walked: Vec<Walked> = Vec::new();
        for segment in found {
            let number = segment.number;
            let data_start = self.geometry.data_start_of(number);
            let header = match (&segment.header, walked.last()) {
                (Ok(header), _) => header,
                (Err(_), Some(_)) => break,
                (Err(fault), None) => {
                    let nothing =
                        Mark { end: self.geometry.start_of(number), sequence: 0, prev: 0 };
                    walked.push(Walked::nothing(number, nothing, *fault));
                    break;
                }
            };
            self.oldest = self.oldest.max(header.oldest);
            let Some(last) = walked.last() else {
                let before = Mark { end: data_start, sequence: 0, prev: 0 };
                // Blocks before the first one of a log may have been reclaimed.
                let anchor = header.predecessor.is_some();
                walked.push(self.walk_segment(number, header.salt, before, anchor)?);
                continue;
            };
            if header.predecessor != Some(last.number) {
                // Blocks of this segment may belong to a log that lost the segment between.
                let missing = header.predecessor.unwrap_or(last.number + 1);
                return Err(OpenError::MissingSegment { file: file_name(missing) });
            }
            let before = last.after;
            let segment = self.walk_segment(number, header.salt, before, false)?;
            if segment.after.sequence == before.sequence {
                break; // no block of it continues the log, which ended in the segment before
            }
            walked.push(segment);
        }
        Ok(walked)
    }

    fn walk_segment(
        &mut self,
        number: u64,
        salt: Salt,
        before: Mark,
        mut anchor: bool,
    ) -> Result<Walked, OpenError> {
        let mut at = self.geometry.data_start_of(number);
        let mut mark = before;
        let mut records = 0;
        loop {
            let follows = (!anchor).then_some(mark);
            let header = match self.next_block(number, at, Some(salt), follows)? {
                Ok((header, after)) => {
                    mark = after;
                    header
                }
                Err(Fault { reason: fault, empty: ends_empty }) => {
                    return Ok(Walked { number, after: mark, records, fault, ends_empty });
                }
            };
            at = mark.end;
            anchor = false;
            records += u64::from(header.records);
            self.oldest = self.oldest.max(header.oldest);
            self.claim = self.claim.max(header.synced);
            self.summary.records += u64::from(header.records);
            self.summary.blocks += 1;
            self.summary.bytes += u64::from(header.block_bytes);
            self.summary.clean = header.flags & FLAG_CLOSED != 0;
        }
    }

    /// Checks and replays the block at `at`, or says why there is none.
    fn next_block(
        &mut self,
        number: u64,
        at: Position,
        salt: Option<Salt>,
        mark: Option<Mark>,
    ) -> Result<Result<(BlockHeader, Mark), Fault>, OpenError> {
        let block = match self.reader.block(self.disk, number, at, salt, mark)? {
            Ok(block) => block,
            Err(fault) => return Ok(Err(fault)),
        };
        for (position, body) in records(at.plus(BLOCK_HEADER_BYTES as u64), block.body) {
            (self.replay)(position, body)
                .map_err(|error| OpenError::Refused { position, reason: error.to_string() })?;
        }
        Ok(Ok((block.header, block.after)))
    }

    /// Looks at everything behind the end for what it claims; returns how many bytes were written
    /// there.
    fn scan_headers(&mut self, rest: &[Found], after: Mark) -> Result<u64, OpenError> {
        let mut dropped_bytes = 0;
        for (index, segment) in rest.iter().enumerate() {
            // Nothing was written behind a clean end; what lies there in version 1 may be anything.
            if self.summary.clean && segment.salt == Some(Salt::NONE) {
                continue;
            }
            let start = self.geometry.start_of(segment.number);
            let from = if index == 0 { after.end.0 - start.0 } else { SEGMENT_HEADER_BYTES };
            let stretch = segment.stretch(from, self.geometry, Some(after));
            let behind = self.reader.scan_headers(self.disk, stretch)?;
            self.claim = self.claim.max(behind.claim);
            dropped_bytes += behind.bytes;
        }
        Ok(dropped_bytes)
    }

    /// Torn tail or damage: nothing that had been synced may be missing.
    fn judge(
        &mut self,
        last: &Walked,
        rest: &[Found],
        dropped_bytes: u64,
    ) -> Result<(), OpenError> {
        let end = last.after.end;
        // Where the first bad block lies: here, or at the beginning of the next segment.
        let (file, offset, reason) = match rest.get(1) {
            Some(next) if last.ends_empty && !self.goes_on(rest, last.after)? => match &next.header
            {
                Ok(_) => {
                    let at = self.geometry.data_start_of(next.number);
                    let fault = self.next_block(next.number, at, next.salt, Some(last.after))?;
                    let reason = fault.err().map_or_else(String::new, |fault| fault.reason);
                    (next.number, SEGMENT_HEADER_BYTES, reason)
                }
                Err(fault) => (next.number, 0, format!("segment header: {fault}")),
            },
            _ => {
                let offset = end.0 - self.geometry.start_of(last.number).0;
                (last.number, offset, last.fault.clone())
            }
        };
        let file = file_name(file);
        if let Some(missed) = missed(rest, end, self.geometry) {
            let Missed { file, offset, reason, is_gone } = missed;
            return Err(if is_gone {
                OpenError::MissingSegment { file }
            } else {
                OpenError::Damaged { file, offset, reason }
            });
        }
        if self.claim > end {
            let reason = format!("{reason}; {WAS_SYNCED}");
            return Err(OpenError::Damaged { file, offset, reason });
        }
        if dropped_bytes > 0 {
            let bytes = dropped_bytes;
            self.summary.clean = false;
            self.summary.dropped = Some(Dropped { file, offset, bytes, reason });
        }
        Ok(())
    }

    /// Whether the segment in which the log breaks off goes on behind that place: it has blocks there, or the next one
    /// begins with a block that is whole, and does not continue what is before.
    fn goes_on(&mut self, rest: &[Found], after: Mark) -> Result<bool, OpenError> {
        let [first, next, ..] = rest else { return Ok(false) };
        if self.claim <= after.end || first.goes_on_behind(next, after.end) {
            return Ok(self.claim > after.end);
        }
        let from = after.end.0 - self.geometry.start_of(first.number).0;
        let stretch = first.stretch(from, self.geometry, Some(after));
        if self.reader.search(self.disk, stretch)?.is_some() {
            return Ok(true);
        }
        let at = self.geometry.data_start_of(next.number);
        Ok(self.reader.block(self.disk, next.number, at, next.salt, None)?.is_ok())
    }

    /// Removes what lies behind the end of the log, and makes durable what lies before it.
    fn cut(
        &mut self,
        found: &[Found],
        walked: &[Walked],
        first_segment: u64,
        resumed: Option<usize>,
    ) -> Result<Continuation, OpenError> {
        let kept = kept(walked);
        let fresh = found.last().map_or(first_segment, |last| last.number + 1);
        if fresh >= self.geometry.segments_max() {
            return Err(OpenError::Config("the log's address space is used up".into()));
        }
        let first = resumed.map_or(fresh, |place| found[place].number);
        let beginning = Mark { end: self.geometry.data_start_of(first), sequence: 0, prev: 0 };
        let mark = walked[..kept].last().map_or(beginning, |segment| segment.after);
        // Leave one file until the log can go on in the next one: a log that has been begun is never without.
        let stays = kept.max(1).max(resumed.map_or(0, |place| place + 1));
        if let Some(last) = found.get(stays - 1).filter(|_| found.len() > stays) {
            self.make_last(last).map_err(|error| failed(&file_name(last.number), error))?;
        }
        for segment in found[stays.min(found.len())..].iter().rev() {
            let number = segment.number;
            self.disk.remove(number).map_err(|error| failed(&file_name(number), error))?;
        }
        let mut segments = VecDeque::new();
        let only = found.first().filter(|_| resumed.is_none());
        let mut rest = only.map_or(Rest::Nothing, |first| Rest::Remove(first.number));
        for (index, segment) in walked[..kept].iter().enumerate() {
            let name = file_name(segment.number);
            let mut bytes = self.disk.len(segment.number).map_err(|e| failed(&name, e))?;
            if index + 1 == kept && resumed.is_none() {
                bytes = segment.after.end.0 - self.geometry.start_of(segment.number).0;
                rest = Rest::Cut(segment.number, bytes);
            }
            self.make_durable(&found[index], segment).map_err(|e| failed(&name, e))?;
            let (number, end) = (segment.number, segment.after.end);
            segments.push_back(InUse { number, file_bytes: bytes, end });
        }
        let resumed = match resumed {
            Some(place) => Some(self.resume(found, kept, place, mark)?),
            None => None,
        };
        let salts = found.iter().filter_map(|segment| Some((segment.number, segment.salt?)));
        let salts = salts.collect();
        self.summary.segments = kept as u64;
        self.summary.end = mark.end;
        let (oldest, last) = match walked[..kept] {
            [] => (None, found.first().map(|first| first.number)),
            [ref first, ..] => (Some(first.number), Some(walked[kept - 1].number)),
        };
        let Mark { end, sequence, prev } = mark;
        Ok(Continuation {
            end,
            sequence,
            prev,
            oldest,
            last,
            fresh,
            segments,
            salts,
            rest,
            resumed,
        })
    }

    /// Writes again what no claim says is on the disk, and syncs it. That it can be read proves nothing: a page whose
    /// write has failed counts as clean for the kernel, and stays as it was meant to be until the power goes.
    fn make_durable(&mut self, found: &Found, segment: &Walked) -> io::Result<()> {
        let Geometry { segment_bytes, .. } = self.geometry;
        let start = self.geometry.start_of(segment.number);
        let data_start = self.geometry.data_start_of(segment.number);
        let end = segment.after.end;
        let mut stretches = Vec::new();
        if self.claim <= data_start {
            stretches.push((0, SEGMENT_HEADER_BYTES));
        }
        if self.claim < end {
            stretches.push((self.claim.max(data_start).0 - start.0, end.0 - start.0));
        }
        // A block of the next segment is synced only once the mark is.
        if found.next.is_some_and(|next| self.claim <= self.geometry.data_start_of(next)) {
            stretches.push((segment_bytes - SUCCESSOR_MARK_BYTES as u64, segment_bytes));
        }
        if stretches.is_empty() {
            return Ok(());
        }
        for (from, to) in stretches {
            self.disk.rewrite(segment.number, from, to)?;
        }
        self.disk.settle(segment.number)
    }

    /// Nothing says any more that another segment followed this one.
    fn make_last(&mut self, segment: &Found) -> io::Result<()> {
        let number = segment.number;
        let bytes = self.geometry.segment_bytes;
        if segment.is_short(self.geometry) {
            self.disk.truncate(number, bytes)?;
        } else if segment.keeps_length() {
            // Also where no mark can be read: an attempt to erase it may have failed, and only look done.
            self.disk.erase(number, bytes - SUCCESSOR_MARK_BYTES as u64, SUCCESSOR_MARK_BYTES)?;
        }
        Ok(())
    }

    pub(super) fn bytes(
        &mut self,
        number: u64,
        offset: u64,
        bytes: usize,
    ) -> Result<&[u8], OpenError> {
        self.reader.bytes(self.disk, number, offset, bytes)
    }
}

/// Reason given for a place that must have been on the disk.
const WAS_SYNCED: &str = "the log says elsewhere that this place had been synced, so it is not the torn tail of \
                          a power loss";

/// A log that has been begun has at least a segment.
fn is_there(found: &[Found]) -> Result<(), OpenError> {
    let Some(first) = found.first() else { return Err(OpenError::Nothing) };
    match first.header {
        Err(fault) if found.iter().all(|segment| segment.header.is_err()) => {
            let (file, reason) = (file_name(first.number), format!("segment header: {fault}"));
            Err(OpenError::Damaged { file, offset: 0, reason })
        }
        _ => Ok(()),
    }
}

/// How many segments belong to the log. One at the end without a record has done its part; idle restarts
/// must not pile up.
pub(super) fn kept(walked: &[Walked]) -> usize {
    walked.iter().rposition(|segment| segment.records > 0).map_or(0, |at| at + 1)
}

pub(super) fn failed(what: &str, source: io::Error) -> OpenError {
    OpenError::Io { what: what.into(), source }
}
