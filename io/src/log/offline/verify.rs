//! Looking at the log of one shard as it lies: every block and every record of it is checked, nothing
//! is changed, and nothing that is wrong ends the look: it goes on behind it.
//!
//! Works on a directory that nobody has open, on one that a server is writing to, and on a copy. Where
//! recovery asks whether a start is safe, this asks what all is wrong; both read with `block_reader` and
//! apply the same rule: what had been synced may not be missing, what had not is a torn tail.

use super::damage::{Damage, Gap, Kind, missing};
use super::find_segments::{Files, find, geometry};
use super::inspection::{InspectError, Inspection, Seen, Segment, Subject};
use crate::log::format::address::{Position, SEGMENT_HEADER_BYTES};
use crate::log::format::block::{BLOCK_HEADER_BYTES, BlockHeader, FLAG_CLOSED, records};
use crate::log::format::chain::{BLOCK_ALIGN_BYTES, Mark};
use crate::log::format::salt::Salt;
use crate::log::format::segment::file_name;
use crate::log::format::successor_mark::{Found, Missed, missed};
use crate::log::read::block_reader::{BlockReader, Fault};
use crate::log::read::recovery::Dropped;
use std::ops::ControlFlow;

/// Looks at a log, and shows all that is whole in it to `visit`, in order. It ends where the log does, or
/// where `visit` breaks it off: behind that nothing is known then.
pub fn inspect(
    subject: Subject<'_>,
    visit: impl FnMut(Seen<'_>) -> ControlFlow<()>,
) -> Result<Inspection, InspectError> {
    let mut files = Files::of(subject.directory);
    let mut out = Inspection::default();
    let found = find(subject, &mut files, &mut out)?;
    let geometry = geometry(&out);
    let Some(first) = found.first() else {
        out.name_misnamed();
        return Ok(out);
    };
    let start = geometry.data_start_of(first.number);
    // Blocks before the first one of a log may have been given up.
    let whole = matches!(&first.header, Ok(header) if header.predecessor.is_none());
    let walk = Walk {
        until: subject.until.unwrap_or(Position(u64::MAX)),
        subject,
        reader: BlockReader::new(geometry, subject.shard),
        mark: whole.then_some(Mark { end: start, sequence: 0, prev: 0 }),
        at: start,
        found,
        index: 0,
        fresh: false,
        behind: None,
        jumps: false,
        files,
        out,
        visit,
    };
    walk.run()
}

struct Walk<'a, F> {
    until: Position,
    subject: Subject<'a>,
    files: Files,
    reader: BlockReader,
    found: Vec<Found>,
    visit: F,
    out: Inspection,
    /// Where the next block should be, and what it must continue, if that is known.
    index: usize,
    at: Position,
    mark: Option<Mark>,
    /// Bytes that were read ahead have been read again for this block.
    fresh: bool,
    /// Position below which all is claimed to be synced, found behind the first gap, once there was one.
    behind: Option<Position>,
    /// Blocks are missing before the one that is being taken in.
    jumps: bool,
}

enum Step {
    On,
    End,
}

impl<F: FnMut(Seen<'_>) -> ControlFlow<()>> Walk<'_, F> {
    fn run(mut self) -> Result<Inspection, InspectError> {
        while let Step::On = self.step()? {}
        let last = self.found[self.index].number;
        if !self.files.has(last) {
            return Err(InspectError::Moved);
        }
        self.out.end = self.mark.map_or(self.at, |mark| mark.end);
        self.find_missing_beginning();
        self.out.name_misnamed();
        Ok(self.out)
    }

    fn number(&self) -> u64 {
        self.found[self.index].number
    }

    fn step(&mut self) -> Result<Step, InspectError> {
        if self.at >= self.until {
            return Ok(Step::End);
        }
        let Some(fault) = self.take(self.index, self.at)? else { return Ok(Step::On) };
        if let Some(next) = self.found.get(self.index + 1) {
            let start = self.reader.geometry.data_start_of(next.number);
            if self.mark.is_some() && self.take(self.index + 1, start)?.is_none() {
                return Ok(Step::On);
            }
        }
        if !self.fresh {
            // The server may have written on meanwhile.
            self.fresh = true;
            self.reader.clear();
            return Ok(Step::On);
        }
        self.gap(&fault)
    }

    /// Takes in the block at a place, if there is one that continues the log; else says why not.
    fn take(&mut self, index: usize, at: Position) -> Result<Option<Fault>, InspectError> {
        let number = self.found[index].number;
        let mark = self.mark;
        let start = self.reader.geometry.start_of(number);
        let salt = self.found[index].salt;
        let block = match self.reader.block(&mut self.files, number, at, salt, mark)? {
            Ok(block) => block,
            Err(fault) => return Ok(Some(fault)),
        };
        let (header, after) = (block.header, block.after);
        let mut going = (self.visit)(Seen::Block(u64::from(header.block_bytes)));
        for (position, body) in records(at.plus(BLOCK_HEADER_BYTES as u64), block.body) {
            if going.is_break() {
                break;
            }
            let offset = position.0 - start.0;
            going = (self.visit)(Seen::Record { position, segment: number, offset, body });
        }
        if going.is_break() {
            self.until = at;
        }
        self.enter(index)?;
        (self.at, self.mark, self.fresh) = (after.end, Some(after), false);
        self.account(&header);
        Ok(None)
    }

    fn account(&mut self, header: &BlockHeader) {
        let out = &mut self.out;
        out.oldest = out.oldest.max(header.oldest);
        out.synced = out.synced.max(header.synced);
        out.clean = header.flags & FLAG_CLOSED != 0;
        out.notes += u64::from(header.records == 0);
        if let Some(segment) = out.segments.last_mut() {
            segment.blocks += 1;
            segment.records += u64::from(header.records);
            segment.block_bytes += u64::from(header.block_bytes);
            segment.end = self.at;
        }
    }

    /// The log goes on in this segment.
    fn enter(&mut self, index: usize) -> Result<(), InspectError> {
        let Found { number, file_bytes, header, salt, .. } = &self.found[index];
        let known = self.out.segments.last().map(|segment| segment.number);
        if known == Some(*number) {
            return Ok(());
        }
        if index != self.index && !self.files.has(self.number()) {
            return Err(InspectError::Moved);
        }
        let damage = match header {
            Err(fault) => Some(Damage {
                file: file_name(*number),
                offset: 0,
                reason: format!("segment header: {fault}"),
                blocks: None,
                kind: Kind::Header { number: *number, predecessor: known, salt: *salt },
            }),
            Ok(header) => {
                self.out.oldest = self.out.oldest.max(header.oldest);
                let before = header.predecessor.filter(|_| known.is_some());
                match before.filter(|before| Some(*before) != known) {
                    Some(before) if self.jumps => Some(missing(before, known)),
                    Some(before) => Some(Damage {
                        file: file_name(*number),
                        offset: 0,
                        reason: format!("it follows {}, which is missing", file_name(before)),
                        blocks: None,
                        kind: Kind::Header { number: *number, predecessor: known, salt: *salt },
                    }),
                    None => None,
                }
            }
        };
        self.out.damages.extend(damage);
        let (number, file_bytes) = (*number, *file_bytes);
        let end = self.reader.geometry.data_start_of(number);
        self.out.segments.push(Segment {
            number,
            file_bytes,
            blocks: 0,
            records: 0,
            block_bytes: 0,
            end,
        });
        self.index = index;
        Ok(())
    }

    /// Nothing continues the log here. It ends, or blocks are missing.
    fn gap(&mut self, fault: &Fault) -> Result<Step, InspectError> {
        let end = self.mark.map_or(self.at, |mark| mark.end);
        let claim = match self.behind {
            Some(claim) => claim,
            None => {
                let (claim, tail_bytes) = self.scan_headers()?;
                if claim <= end && tail_bytes > 0 && self.until.0 == u64::MAX {
                    let (file, offset, reason) = self.place(fault, self.found.get(self.index + 1));
                    self.out.clean = false;
                    self.out.tail = Some(Dropped { file, offset, bytes: tail_bytes, reason });
                }
                self.behind = Some(claim);
                claim
            }
        };
        let number = self.number();
        if claim <= end {
            // Nothing says that there was more, but for a file that followed another one.
            let next = self.found.get(self.index + 1).and_then(|next| next.header.as_ref().ok());
            let before = next.and_then(|next| next.predecessor).filter(|&before| before != number);
            self.out.damages.extend(before.map(|before| missing(before, Some(number))));
            self.find_missing_end(end)?;
            return Ok(Step::End);
        }
        let Some((index, at, header)) = self.search()? else {
            // A file that is cut or gone is named first, as a start does.
            let missed = missed(&self.found[self.index..], end, self.reader.geometry);
            let missed = missed.map(|it| (it.file, it.offset, it.reason));
            let (file, offset, reason) =
                missed.unwrap_or_else(|| self.place(fault, self.found.get(self.index + 1)));
            let kind = Kind::End { end, segment: number };
            self.out.damages.push(Damage { file, offset, reason, blocks: None, kind });
            return Ok(Step::End);
        };
        let next_segment = self.found[index].number;
        let gap =
            Gap { before: self.mark, segment: number, from: self.at, next_segment, next: header };
        let next = self.found.get(self.index + 1);
        // A segment that begins with a whole block has lost none.
        let next = next.filter(|next| {
            next_segment != number && at != self.reader.geometry.data_start_of(next.number)
        });
        let (file, offset, reason) = self.place(fault, next);
        let blocks = self.mark.map(|mark| header.sequence - mark.sequence);
        let damage = Damage { file, offset, reason, blocks, kind: Kind::Gap(gap) };
        self.mark = Some(Mark { end: at, sequence: header.sequence, prev: header.prev });
        // A file that was lost whole is reported before the blocks that were lost with it.
        let (before, told) = (self.out.segments.len(), self.out.damages.len());
        self.jumps = true;
        if self.take(index, at)?.is_some() {
            return Err(InspectError::Moved);
        }
        self.jumps = false;
        let at = if self.out.segments.len() > before { self.out.damages.len() } else { told };
        self.out.damages.insert(at, damage);
        Ok(Step::On)
    }

    /// Where people should look for what is wrong: here, or at the beginning of the next segment.
    fn place(&self, fault: &Fault, next: Option<&Found>) -> (String, u64, String) {
        match next {
            Some(next) if fault.empty && !self.goes_on_before(next) => {
                let (offset, reason) = match &next.header {
                    Ok(_) => (SEGMENT_HEADER_BYTES, "no block there continues the log".to_owned()),
                    Err(fault) => (0, format!("segment header: {fault}")),
                };
                (file_name(next.number), offset, reason)
            }
            _ => {
                let offset = self.at.0 - self.reader.geometry.start_of(self.number()).0;
                (file_name(self.number()), offset, fault.reason.clone())
            }
        }
    }

    fn goes_on_before(&self, next: &Found) -> bool {
        let end = self.mark.map_or(self.at, |mark| mark.end);
        let here = &self.found[self.index];
        here.goes_on_behind(next, end) || here.is_cut_wrongly(next, end, self.reader.geometry)
    }

    /// The highest position that is said to be synced from here on, and how much was written.
    fn scan_headers(&mut self) -> Result<(Position, u64), InspectError> {
        let said = self.found.iter().map(|segment| segment.claim).max();
        let (mut claim, mut bytes) = (said.unwrap_or(Position(0)), 0);
        let geometry = self.reader.geometry;
        for (place, segment) in self.found[self.index..].iter().enumerate() {
            // Nothing was written behind a clean end; what lies there in version 1 may be anything.
            if self.out.clean && segment.salt == Some(Salt::NONE) {
                continue;
            }
            let start = geometry.start_of(segment.number);
            let from = if place == 0 { self.at.0 - start.0 } else { SEGMENT_HEADER_BYTES };
            let stretch = segment.stretch(from, geometry, self.mark);
            let behind = self.reader.scan_headers(&mut self.files, stretch)?;
            claim = claim.max(behind.claim);
            bytes += behind.bytes;
        }
        Ok((claim.max(self.out.synced), bytes))
    }

    /// The next block that is whole and later than what is missing.
    fn search(&mut self) -> Result<Option<(usize, Position, BlockHeader)>, InspectError> {
        let geometry = self.reader.geometry;
        for index in self.index..self.found.len() {
            let start = geometry.start_of(self.found[index].number);
            let from = if index == self.index {
                self.at.0 - start.0 + BLOCK_ALIGN_BYTES
            } else {
                SEGMENT_HEADER_BYTES
            };
            let stretch = self.found[index].stretch(from, geometry, self.mark);
            if let Some(header) = self.reader.search(&mut self.files, stretch)? {
                return Ok(Some((index, header.position, header)));
            }
        }
        Ok(None)
    }

    /// The files say that there is more than there is.
    fn find_missing_end(&mut self, end: Position) -> Result<(), InspectError> {
        let known = self.out.damages.last().is_some_and(Damage::is_missing);
        if self.subject.until.is_some() || known {
            return Ok(());
        }
        let (number, geometry) = (self.number(), self.reader.geometry);
        let all_lost = self.found.iter().all(|segment| segment.header.is_err());
        if let (true, true, Err(fault)) = (self.subject.is_begun, all_lost, self.found[0].header) {
            let (file, reason) =
                (file_name(self.found[0].number), format!("segment header: {fault}"));
            let kind = Kind::Nothing;
            self.out.damages.push(Damage { file, offset: 0, reason, blocks: None, kind });
            return Ok(());
        }
        if missed(&self.found[self.index..], end, geometry).is_none() {
            return Ok(());
        }
        // A server may have gone on while this look began.
        let now = find(self.subject, &mut self.files, &mut Inspection::default())?;
        let rest = now.iter().position(|segment| segment.number == number).map(|at| &now[at..]);
        let Some(missed) = rest.and_then(|rest| missed(rest, end, geometry)) else {
            return Err(InspectError::Moved);
        };
        let Missed { file, offset, reason, .. } = missed;
        self.out.tail = None;
        let kind = Kind::End { end, segment: number };
        self.out.damages.push(Damage { file, offset, reason, blocks: None, kind });
        Ok(())
    }

    /// The log says that it begins before the first segment there is.
    fn find_missing_beginning(&mut self) {
        let geometry = self.reader.geometry;
        let first = self.out.segments.first().map(|segment| geometry.start_of(segment.number));
        if first.is_some_and(|first| first > self.out.oldest) {
            let damage = missing(geometry.segment_of(self.out.oldest), None);
            self.out.damages.insert(0, damage);
        }
    }
}
