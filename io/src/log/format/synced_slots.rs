//! Slots that say in a second place what had been synced: two in the header page of the segment that is being written,
//! which take turns. The blocks say it too, each about those before it; the newest ones have only this.
//!
//! Knows one page of the current segment and when it is to be written again: a second after something was
//! synced that it does not say, and at a clean end. No sync of a block waits for that, and in `written` mode the
//! next sync of the segment carries it.

use super::address::Position;
use super::block::{HeaderFault, Put, checked_header, u16_at, u32_at, u64_at};
use super::salt::Salt;
use super::segment::{SegmentHeader, file_name};
use crate::log::Mode;
use crate::log::disk::regular;
use crate::log::disk::{Disk, Started};
use crate::log::error::LogError;
use crate::log::write::aligned::{Buffer, PAGE_BYTES};
use crate::log::write::preallocate::{RETRIES_MAX, is_passing};
use crate::log::write::segment_pool::Lack;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub(crate) const TAG: u64 = 7;

const SLOT_MAGIC: [u8; 4] = *b"CQSY";
const SLOT_BYTES: usize = 64;
/// In sectors of their own, none of them that of the header: no torn write takes both, or the header.
pub(crate) const SLOTS_AT: [usize; 2] = [1024, 2048];
/// The last block is that of a clean end.
const CLEAN: u32 = 1;
/// How far behind the slots may be.
const LAG_MS: u64 = 1000;

/// Fields of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) shard: u16,
    pub(crate) segment: u64,
    /// Everything below is on the disk.
    pub(crate) synced: Position,
    pub(crate) salt: u64,
    pub(crate) clean: bool,
}

impl Slot {
    fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        let mut put = Put { out: &mut bytes, at: 0 };
        put.bytes(&SLOT_MAGIC);
        put.bytes(&Salt(Some(self.salt)).version().to_le_bytes());
        put.bytes(&self.shard.to_le_bytes());
        put.bytes(&self.segment.to_le_bytes());
        put.bytes(&self.synced.0.to_le_bytes());
        put.bytes(&self.salt.to_le_bytes());
        put.bytes(&if self.clean { CLEAN } else { 0 }.to_le_bytes());
        put.checksum();
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let (bytes, _) = checked_header(bytes, SLOT_MAGIC)?;
        Ok(Self {
            shard: u16_at(bytes, 6),
            segment: u64_at(bytes, 8),
            synced: Position(u64_at(bytes, 16)),
            salt: u64_at(bytes, 24),
            clean: u32_at(bytes, 32) & CLEAN != 0,
        })
    }
}

/// The highest position that the slots in a header page say is synced, if they are those of its segment.
pub(crate) fn claim(page: &[u8], header: &SegmentHeader) -> Position {
    let own = |slot: &Slot| {
        (slot.shard, slot.segment, Some(slot.salt)) == (header.shard, header.segment, header.salt.0)
    };
    let slots = SLOTS_AT.iter().filter_map(|&at| Slot::decode(page.get(at..)?).ok());
    slots.filter(own).map(|slot| slot.synced).max().unwrap_or(Position(0))
}

/// Takes back what the header page of a file says beside its header, durably: for a copy that ends before the log does.
pub fn clear_claims(path: &Path) -> io::Result<()> {
    let file = regular::open_to_change(path)?;
    let mut page = [0; PAGE_BYTES];
    file.read_exact_at(&mut page, 0)?;
    if SegmentHeader::decode(&page).is_ok_and(|header| header.salt != Salt::NONE) {
        clear(&mut page);
        file.write_all_at(&page, 0)?;
        file.sync_all()?;
    }
    Ok(())
}

/// Takes back what the slots of a header page say.
pub(crate) fn clear(page: &mut [u8]) {
    for at in SLOTS_AT {
        page[at..at + SLOT_BYTES].fill(0);
    }
}

#[derive(Debug)]
pub(crate) struct Slots {
    mode: Mode,
    /// The header page of the segment that was written to last.
    page: Buffer,
    segment: Option<u64>,
    /// The slot whose turn it is.
    turn: usize,
    /// Position and clean flag that were written, or are being, and the bytes on their way.
    claimed: Position,
    clean: bool,
    in_flight: Option<usize>,
    /// Written, and in `written` mode no sync has begun since.
    unsynced: bool,
    /// When more was synced than the slots say.
    behind_since_ms: Option<u64>,
    /// The last write found no room.
    no_room: bool,
}

impl Slots {
    /// Of a log in whose newest header it stands that everything below `claimed` is synced.
    pub(crate) fn new(mode: Mode, claimed: Position) -> Self {
        Self {
            mode,
            page: Buffer::new(PAGE_BYTES),
            segment: None,
            turn: 0,
            claimed,
            clean: false,
            in_flight: None,
            unsynced: false,
            behind_since_ms: None,
            no_room: false,
        }
    }

    /// Slots of a log that goes on in a segment that it has, of which this is the header page: the slot that says more
    /// stays until the other one has been written.
    pub(crate) fn of_page(mode: Mode, claimed: Position, segment: u64, page: &[u8]) -> Self {
        let mut slots = Self::new(mode, claimed);
        slots.page.copy_from_slice(page);
        slots.segment = Some(segment);
        let said = |at: usize| page.get(at..).and_then(|bytes| Slot::decode(bytes).ok());
        let [first, second] = SLOTS_AT.map(|at| said(at).map(|slot| slot.synced));
        slots.turn = usize::from(first > second);
        slots
    }

    /// Whether what was to be said last found no room.
    pub(crate) fn found_no_room(&self) -> bool {
        self.no_room
    }

    /// More has been synced. Only ends of blocks with records are worth a write.
    pub(crate) fn synced(&mut self, records_synced: Position, now_ms: u64) {
        if records_synced > self.claimed {
            self.behind_since_ms.get_or_insert(now_ms);
        }
    }

    /// When they are to be written.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        let since = self.behind_since_ms.filter(|_| self.in_flight.is_none());
        since.map(|since| since + LAG_MS)
    }

    /// Whether the end of the log, at `end`, is said, and said durably.
    pub(crate) fn has_durable_end(&self, end: Position) -> bool {
        self.clean && self.claimed == end && self.in_flight.is_none() && !self.unsynced
    }

    /// Whether the end at `end` has been written down.
    pub(crate) fn has_end(&self, end: Position) -> bool {
        self.clean && self.claimed == end
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether a write to this segment is under way: its file may not go.
    pub(crate) fn is_at(&self, segment: u64) -> bool {
        self.in_flight.is_some() && self.segment == Some(segment)
    }

    /// Whether this segment waits for a sync because of them.
    pub(crate) fn wants_sync(&self, segment: u64) -> bool {
        self.unsynced && self.segment == Some(segment)
    }

    /// A sync of this segment begins.
    pub(crate) fn syncing(&mut self, segment: u64) {
        self.unsynced &= self.segment != Some(segment);
    }

    /// Writes down that everything below `synced` is on the disk, into the page of the segment that `header` is of.
    pub(crate) fn write(
        &mut self,
        header: &SegmentHeader,
        synced: Position,
        clean: bool,
        now_ms: u64,
        disk: &mut impl Disk,
    ) -> Result<(), LogError> {
        assert!(self.in_flight.is_none(), "the page is being read by the kernel");
        let Some(salt) = header.salt.0 else { return Ok(()) };
        if self.segment != Some(header.segment) {
            self.page.copy_from_slice(&header.encode());
            (self.segment, self.turn) = (Some(header.segment), 0);
        }
        let SegmentHeader { shard, segment, .. } = *header;
        let at = SLOTS_AT[self.turn];
        let slot = Slot { shard, segment, synced, salt, clean };
        self.page[at..at + SLOT_BYTES].copy_from_slice(&slot.encode());
        self.turn = 1 - self.turn;
        // As little as the way it is written permits.
        let bytes = match self.mode {
            Mode::Written | Mode::Replicated => at..at + SLOT_BYTES,
            Mode::Synced => 0..PAGE_BYTES,
        };
        let (offset, durable) = (bytes.start as u64, self.mode.is_durable_when_written());
        for _ in 0..RETRIES_MAX {
            self.in_flight = Some(bytes.len());
            (self.claimed, self.clean, self.behind_since_ms) = (synced, clean, None);
            match disk.write(segment, offset, &self.page[bytes.clone()], durable, TAG) {
                Started::Done(result) => self.written(result, now_ms)?,
                Started::Pending => return Ok(()),
            }
            if self.claimed == synced || self.no_room {
                return Ok(());
            }
        }
        Err(LogError { operation: "write", file: file_name(segment), errno: 0 })
    }

    /// The write is over.
    pub(crate) fn written(&mut self, result: i32, now_ms: u64) -> Result<(), LogError> {
        let Some(bytes) = self.in_flight.take() else { panic!("no slot was being written") };
        self.no_room = Lack::of_write(result).is_some();
        if self.no_room {
            // Later, with whatever is synced then.
            (self.claimed, self.clean) = (Position(0), false);
            self.behind_since_ms = Some(now_ms);
            return Ok(());
        }
        if result < 0 && !is_passing(result) {
            let file = file_name(self.segment.unwrap_or_default());
            return Err(LogError { operation: "write", file, errno: -result });
        }
        if result < bytes as i32 {
            // Nothing depends on it: next time, with whatever is synced then.
            (self.claimed, self.clean) = (Position(0), false);
            self.behind_since_ms = Some(0);
        } else if !self.mode.is_durable_when_written() {
            self.unsynced = true;
        }
        Ok(())
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        if self.in_flight.is_some() {
            // The kernel may still read it.
            std::mem::forget(std::mem::replace(&mut self.page, Buffer::empty()));
        }
    }
}
