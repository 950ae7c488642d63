//! The write-ahead log of a shard as the journal of its state machine: it takes a record only if there is space for its
//! class ([`super::space`]).
//!
//! A ground type: of the server it imports the space accounting and the payloads that are staged.

use super::space::{Room, SLICE_BYTES};
use super::staged_payloads::StagedPayloads;
use corq_io::log::{Disk, Lack, Log};
use corq_io::log_ring::Store;
use corq_shards::Shard;
use corq_shards::compaction::space_forecast::SpaceForecast;
use corq_shards::log_record::location::LogRef;
use corq_shards::log_record::{Journal, Record};

/// A log without this much room for what comes, and none to be had, is full.
const ROOM_BYTES: u64 = 1 << 20;
/// By how much the needs may rise, and the room fall, with each byte that is appended: a job of 60 bytes
/// may come to take ten times as much ([`corq_shards::compaction::space_forecast`]).
const NEEDS_PER_BYTE: u64 = 16;

/// Records up to this long are asked for as if there were one of them: most are shorter, and what is to be written is
/// not known to the byte before.
const COMMON_BYTES: u64 = 4 << 10;

/// The log, and the pressure on its space.
pub struct LogJournal<D = Store> {
    pub log: Log<D>,
    /// The pressure on its space.
    pub pressure: SpacePressure,
    /// Payloads that are in the log's memory before their records are.
    pub staged: StagedPayloads,
}

/// Effects of a lack of log space: whether commands stall, and how far behind compaction is.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpacePressure {
    /// Commands stall until compaction has brought space back.
    pub stalled: bool,
    /// Compaction is further behind what was written than it may be.
    pub behind: bool,
    /// The most that was asked for in vain since something came last.
    pub wanted_bytes: u64,
    /// Dead bytes that the last pass through the whole log could not reclaim; another pass would not, either.
    pub residue_bytes: u64,
    /// Compaction has ended for good: its reason is in the server's log.
    pub stopped: bool,
    /// There was no room to write the oldest segment again, which has been logged. Commands do not wait for that.
    pub stuck: bool,
    /// Up to this address of the head, there is room for whatever is not larger than `ample_bytes`.
    ample_until: u64,
    ample_bytes: u64,
}

impl<D: Disk> LogJournal<D> {
    /// A log that lacks nothing yet.
    pub fn new(log: Log<D>) -> Self {
        Self { log, pressure: SpacePressure::default(), staged: StagedPayloads::default() }
    }

    /// The log in numbers.
    pub fn room(&self) -> Room {
        let log = &self.log;
        Room {
            segment: log.segment_bytes(),
            free: log.room_bytes(),
            filled: log.filled_bytes(),
            unopened: log.unopened_bytes(),
            loose: log.loose_bytes(),
            block: log.block_overhead_bytes(),
            slice: SLICE_BYTES,
        }
    }

    /// Once per turn: what space there must be from now on, and how far no command need ask for it. Payloads whose
    /// records did not come go as well.
    pub fn note_needs(&mut self, space_forecast: &SpaceForecast) {
        self.staged.begin_turn();
        let room = self.room();
        let reserve = room.for_more(0, space_forecast);
        self.log.reserve(reserve);
        // Pulls without locks and ends of retention change the needs without a record; in one turn they do so by less
        // than this margin.
        let common =
            SpaceForecast { largest: space_forecast.largest.max(COMMON_BYTES), ..*space_forecast };
        let spared = room.free.saturating_sub(room.for_more(0, &common) + room.segment / 16);
        self.pressure.ample_until = self.log.head().0 + spared / NEEDS_PER_BYTE;
        self.pressure.ample_bytes = common.largest;
        if self.log.lack().is_none() {
            self.pressure.wanted_bytes = 0;
        }
    }

    /// Appends a record whose payload has been staged; nothing if it has not.
    #[cold]
    fn append_staged(&mut self, record: &Record<'_>, record_bytes: usize) -> Option<LogRef> {
        let payload_bytes = record.payload_len();
        if !self.staged.has_of(payload_bytes) {
            return None;
        }
        let mut head = vec![0; record_bytes - payload_bytes];
        let payload = record.encode_head(&mut head)?;
        let staged = self.staged.take(payload, head.len())?;
        let (position, bytes) = self.log.append_staged(head.len(), staged);
        bytes.copy_from_slice(&head);
        let (record_bytes, payload_bytes) = (record_bytes as u32, payload_bytes as u32);
        Some(LogRef { position: position.0, record_bytes, payload_bytes })
    }

    /// Whether there is plenty of room: most commands need not know how much.
    #[inline]
    fn is_ample(&self, bytes: u64) -> bool {
        let until = self.log.head().0 + bytes;
        until <= self.pressure.ample_until
            && bytes <= self.pressure.ample_bytes
            && !self.pressure.behind
    }

    /// Whether there is, or can be made, as much room as is `needed` of a log like this.
    fn makes_room(&mut self, needed: impl Fn(&Room) -> u64) -> bool {
        let room = self.room();
        // A disk that gives no more says how little it has, and with that less may be needed.
        room.free >= needed(&room)
            || self.log.make_room(needed(&room))
            || self.log.has_room(needed(&self.room()))
    }

    #[cold]
    fn finds_more(&mut self, bytes: u64, space_forecast: &SpaceForecast) -> bool {
        let finds = self.makes_room(|room| room.for_more(bytes, space_forecast));
        // For a batch without measure not all that was done is forgotten.
        let wanted = self.pressure.wanted_bytes.max(bytes.min(self.log.segment_bytes()));
        self.pressure.wanted_bytes = if finds { 0 } else { wanted };
        finds
    }

    #[cold]
    fn finds_asides(&mut self, bytes: u64, space_forecast: &SpaceForecast) -> bool {
        self.makes_room(|room| room.for_asides(bytes, space_forecast))
    }

    #[cold]
    fn finds_ends(&mut self, bytes: u64, space_forecast: &SpaceForecast) -> bool {
        if self.pressure.behind {
            return false;
        }
        if self.makes_room(|room| room.behind_ends(space_forecast) + bytes) {
            return true;
        }
        let room = self.room();
        // With nothing to be gained there is no walk that could need more than this.
        let least = room.of_segment(room.segment, space_forecast) + bytes;
        !self.has_to_gain(space_forecast) && room.free >= least
    }

    /// Whether pushes are refused for want of room: not whether a very large one was.
    pub fn is_full(&self, space_forecast: &SpaceForecast) -> bool {
        let room = self.room();
        self.log.lack().is_some() && room.free < room.for_more(ROOM_BYTES, space_forecast)
    }

    /// Whether completed jobs have to make room: nothing else is left to give way. Once they do, they
    /// make some more, so that the next job needs no other walk.
    pub fn is_crowded(&mut self, space_forecast: &SpaceForecast, already: bool) -> bool {
        // Evicting completed jobs gains nothing if compaction has stopped or if something other than space is lacking.
        if self.log.lack() != Some(Lack::Space) || self.pressure.stopped {
            return false;
        }
        let room = self.room();
        let least = ROOM_BYTES.max(self.pressure.wanted_bytes);
        let least = if already { least + room.segment / 2 } else { least };
        // Some of what is dead stays so until more is.
        let stays =
            room.free < room.for_more(least, space_forecast) && !self.has_to_gain(space_forecast);
        stays || room.left_to_come(space_forecast) < least as i64
    }

    /// Whether a walk through the log would bring back room worth the while.
    pub fn has_to_gain(&mut self, space_forecast: &SpaceForecast) -> bool {
        let room = self.room();
        let dead = room.dead(space_forecast);
        self.pressure.residue_bytes = self.pressure.residue_bytes.min(dead);
        let gain = dead > self.pressure.residue_bytes + room.segment / 8;
        gain && self.log.has_older() && !self.pressure.stopped && !self.pressure.stuck
    }

    /// Whether nothing more may be begun until there is room: what is under way still has some.
    #[inline]
    pub fn is_stalled(&mut self, shard: &Shard) -> bool {
        // A debt stays one when a file has just come back: who is let in must not be refused for it.
        self.pressure.stalled =
            self.pressure.behind || self.log.lack().is_some() && self.is_stalled_by(shard);
        self.pressure.stalled
    }

    #[cold]
    fn is_stalled_by(&mut self, shard: &Shard) -> bool {
        let space_forecast = shard.space_forecast();
        // Completed jobs that are there make room as well, which takes some turns.
        let waits_for = self.has_to_gain(&space_forecast)
            || shard.has_history() && self.is_crowded(&space_forecast, false);
        waits_for && self.room().is_stalled(&space_forecast, self.pressure.stalled)
    }
}

impl<D: Disk> Journal for LogJournal<D> {
    fn append(&mut self, record: &Record<'_>) -> LogRef {
        let record_bytes = record.encoded_len();
        if !self.staged.is_empty()
            && let Some(stored) = self.append_staged(record, record_bytes)
        {
            return stored;
        }
        self.staged.note_copied(record_bytes);
        let (position, bytes) = self.log.append(record_bytes);
        record.encode(bytes);
        LogRef {
            position: position.0,
            record_bytes: record_bytes as u32,
            payload_bytes: record.payload_len() as u32,
        }
    }

    fn require_sync(&mut self) {
        self.log.require_sync();
    }

    #[inline]
    fn can_append_new(&mut self, bytes: u64, space_forecast: impl Fn() -> SpaceForecast) -> bool {
        bytes == 0 || self.is_ample(bytes) || self.finds_more(bytes, &space_forecast())
    }

    #[inline]
    fn can_append_text(&mut self, bytes: u64, space_forecast: impl Fn() -> SpaceForecast) -> bool {
        bytes == 0 || self.is_ample(bytes) || self.finds_asides(bytes, &space_forecast())
    }

    fn can_append_spare(&mut self, bytes: u64, space_forecast: impl Fn() -> SpaceForecast) -> bool {
        // Leaves more room than the limit at which completed jobs are evicted: a record that can be spared evicts none.
        let space_forecast = space_forecast();
        self.makes_room(|room| {
            let behind = 2 * ROOM_BYTES.max(room.segment / 8);
            room.for_more(bytes + behind, &space_forecast)
        })
    }

    #[inline]
    fn can_append_completion(
        &mut self,
        bytes: u64,
        space_forecast: impl Fn() -> SpaceForecast,
    ) -> bool {
        self.is_ample(bytes) || self.finds_ends(bytes, &space_forecast())
    }
}
