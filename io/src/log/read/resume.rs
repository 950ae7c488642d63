//! Going on in the segment in which a log has ended.
//!
//! A start goes on in a new segment, and gives the rest of the last one back. Where there is no room for another file that
//! would cost one of those that are set aside for what ends jobs, and what is given back may be taken by others: a few
//! starts on a full disk would leave nothing. So a start that gets no file for the one that it would use goes on in the
//! segment that it has. The rest of that is overwritten with zeros first: a block that lies there and never belonged to
//! the log bears the right salt.
//!
//! Knows what was found, and what the file system gives; not what is written next.

use super::recovery::{Continuation, Recoverer, Resumed, Walked, failed, kept};
use crate::log::Mode;
use crate::log::disk::Disk;
use crate::log::error::OpenError;
use crate::log::format::address::{Position, SEGMENT_HEADER_BYTES};
use crate::log::format::chain::Mark;
use crate::log::format::salt::Salt;
use crate::log::format::segment::{SegmentHeader, file_name};
use crate::log::format::successor_mark::Found;
use crate::log::format::synced_slots::{SLOTS_AT, Slots};
use crate::log::write::segment_pool::Lack;
use std::fmt::Display;
use std::io;

impl Continuation {
    /// Up to where it is said that all is on the disk, by what lies there, and the slots that are to say more.
    pub(crate) fn slots(&self, mode: Mode) -> (Position, Slots) {
        match &self.resumed {
            None => (self.end, Slots::new(mode, self.end)),
            Some(Resumed { header, page, claimed }) => {
                (*claimed, Slots::of_page(mode, *claimed, header.segment, page))
            }
        }
    }
}

impl<D: Disk, E: Display, F: FnMut(Position, &[u8]) -> Result<(), E>> Recoverer<'_, D, F> {
    /// Which of the segments the log is to go on in; none if it can have another one.
    pub(crate) fn choose_resumed(
        &mut self,
        found: &[Found],
        walked: &[Walked],
    ) -> Result<Option<usize>, OpenError> {
        let Some(place) = self.resumable(found, walked) else { return Ok(None) };
        let gives = self.gives_another(found, kept(walked) == 0);
        let gives =
            gives.map_err(|source| OpenError::Io { what: "making a segment".into(), source })?;
        Ok((!gives).then_some(place))
    }

    fn resumable(&self, found: &[Found], walked: &[Walked]) -> Option<usize> {
        let geometry = self.geometry;
        let whole = |segment: &Found| {
            let header = segment.header.ok().filter(|header| header.salt != Salt::NONE)?;
            (header.keeps_length && segment.file_bytes == geometry.segment_bytes).then_some(header)
        };
        let kept = kept(walked);
        let last = kept.checked_sub(1);
        // A segment that the last start has made, and that has no record yet, comes before that of the last record.
        if let Some(header) = found.get(kept).and_then(whole)
            && last.is_none_or(|last| header.predecessor == Some(walked[last].number))
        {
            return Some(kept);
        }
        let last = last?;
        let end = walked[last].after.end;
        let number = found.get(last).filter(|segment| whole(segment).is_some())?.number;
        // Another mode may want blocks elsewhere.
        let fits = geometry.align(end.0) == end.0 && end <= geometry.data_end_of(number);
        fits.then_some(last)
    }

    /// Whether there is a file to be had for the one that a new segment would take: less than a whole one, if the log has
    /// no records.
    fn gives_another(&mut self, found: &[Found], is_bare: bool) -> io::Result<bool> {
        let bytes = self.geometry.segment_bytes;
        let spares = self.disk.spares(bytes)?;
        let there = found.iter().map(|segment| segment.file_bytes).sum::<u64>() + spares * bytes;
        if there.saturating_add(bytes) > self.bytes_max {
            return Ok(false);
        }
        let is_small = is_bare && self.first_bytes > 0;
        let wanted = if is_small { self.first_bytes } else { bytes };
        match self.disk.set_aside(wanted) {
            Err(error) if error.raw_os_error().and_then(Lack::of).is_some() => return Ok(false),
            made => made?,
        }
        if spares == 0 || is_small {
            // A file that was never written is better made as a segment.
            self.disk.drop_spare()?;
        }
        Ok(true)
    }

    /// Makes the segment at `place` one that the log goes on in behind `mark`.
    pub(crate) fn resume(
        &mut self,
        found: &[Found],
        kept: usize,
        place: usize,
        mark: Mark,
    ) -> Result<Resumed, OpenError> {
        let segment = found[place];
        let number = segment.number;
        let in_file = |error| failed(&file_name(number), error);
        let whole = self.geometry.segment_bytes;
        if place == kept {
            // Slots of this segment may speak of blocks without records, which go.
            let (from, to) = (SLOTS_AT[0] as u64, SEGMENT_HEADER_BYTES);
            self.erase(number, from, to).map_err(in_file)?;
            self.erase(number, SEGMENT_HEADER_BYTES, whole).map_err(in_file)?;
            if let Some(before) = kept.checked_sub(1).map(|last| found[last])
                && before.file_bytes == whole
            {
                let from = self.geometry.offset_of(mark.end);
                let to = before.data_bytes(self.geometry);
                let ended = self.erase(before.number, from, to);
                ended.map_err(|error| failed(&file_name(before.number), error))?;
            }
        } else {
            self.erase(number, self.geometry.offset_of(mark.end), whole).map_err(in_file)?;
        }
        self.disk.reopen(number).map_err(in_file)?;
        self.reader.clear();
        let page = self.bytes(number, 0, SEGMENT_HEADER_BYTES as usize)?.to_vec();
        let header = SegmentHeader::decode(&page)
            .map_err(|fault| in_file(io::Error::other(fault.to_string())))?;
        let claimed = header.synced.min(mark.end);
        Ok(Resumed { header, page, claimed })
    }

    fn erase(&mut self, number: u64, from: u64, to: u64) -> io::Result<()> {
        if from >= to {
            return Ok(());
        }
        self.disk.erase(number, from, (to - from) as usize)
    }
}
