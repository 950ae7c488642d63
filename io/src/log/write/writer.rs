//! Moving finished blocks to the disk, and knowing what has become durable.
//!
//! Knows the buffer as a source of blocks and the disk as a place for them. Three marks rise and never
//! fall: `synced <= written`, and `released` between them or at `written`. A write that finds no room where its blocks
//! belong, as on a file system that sets none aside, is tried again until there is some.

use super::preallocate;
use super::preallocate::{Preparation, RETRIES_MAX, is_passing};
use super::segment_pool::{Lack, Retirement, SegmentPool, TAG_ASIDE};
use super::write_buffer::{Batch, WriteBuffer};
use crate::log::disk::{Disk, Started, SyncTarget};
use crate::log::error::LogError;
use crate::log::format::address::{Geometry, Position};
use crate::log::format::block::FLAG_CLOSED;
use crate::log::format::salt::Salts;
use crate::log::format::segment::{SegmentHeader, file_name};
use crate::log::format::synced_slots;
use crate::log::format::synced_slots::Slots;
use crate::log::{Counters, Mode};
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) const TAG_WRITE: u64 = 1;
pub(crate) const TAG_SYNC: u64 = 2;
pub(crate) const TAG_RETIRED: u64 = 6;
pub(crate) const TAG_UNLINKED: u64 = 8;

/// Quiet time after which a note records what has been synced. Long enough that a busy log, whose
/// next block says it anyway, writes none.
const IDLE_MS: u64 = 1000;

/// A batch on its way to the disk.
#[derive(Debug)]
struct Write {
    batch: Batch,
    done: u64,
    retries: u32,
    /// The resource that the write lacks; it is in flight no longer, until it is tried again.
    waits: Option<Lack>,
}

/// A segment that was left before all of it was synced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub(crate) segment: u64,
    pub(crate) end: Position,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SyncInFlight {
    segment: u64,
    /// End of the bytes written when the sync started: all it can promise.
    covers: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    No,
    /// Write and sync what there is.
    Draining,
    /// The closing block has been queued. It is synced, and then the slots say so.
    Last,
    /// There is no room for the closing block.
    Unsaid,
}

/// State that the writer continues from.
#[derive(Debug)]
pub(crate) struct WriterStart {
    /// The end of the log.
    pub(crate) end: Position,
    /// The segment that the next block goes to; durable already.
    pub(crate) header: SegmentHeader,
    pub(crate) salts: Arc<Salts>,
    pub(crate) mode: Mode,
    pub(crate) fsync_interval_ms: u64,
    pub(crate) reserve_bytes: u64,
    /// Everything below is said to be on the disk by what lies there.
    pub(crate) claimed: Position,
    pub(crate) slots: Slots,
}

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) geometry: Geometry,
    pub(crate) mode: Mode,
    pub(crate) log_id: u64,
    pub(crate) salts: Arc<Salts>,
    pub(crate) oldest: Position,
    fsync_interval_ms: u64,
    /// Ends of blocks: below it the kernel has everything / the disk has everything / a header on
    /// the way to the disk says that the disk has everything.
    pub(crate) written: Position,
    pub(crate) synced: Position,
    claimed: Position,
    /// The end of the last written block that has records.
    records_end: Position,
    /// The segment that blocks go to, its header, and that of the one that is made ready.
    pub(crate) segment: u64,
    pub(crate) header: SegmentHeader,
    pub(crate) next_header: SegmentHeader,
    pub(crate) next: Option<Preparation>,
    pub(crate) slots: Slots,
    /// The newest segment that is on the disk with its name, and told of in the one before it.
    pub(crate) named: u64,
    pub(crate) pool: SegmentPool,
    /// Room that is to be had at any time.
    pub(crate) reserve_bytes: u64,
    pub(crate) retiring: Option<Retirement>,
    pub(crate) left: VecDeque<Left>,
    write: Option<Write>,
    pub(crate) sync: Option<SyncInFlight>,
    /// Written batches with blocks that must be synced: they hold back all that follows.
    barriers: VecDeque<(Position, Position)>,
    dirty_since_ms: Option<u64>,
    last_write_ms: u64,
    pub(crate) now_ms: u64,
    pub(crate) closing: Closing,
    failure: Option<LogError>,
}

impl Writer {
    pub(crate) fn new(geometry: Geometry, start: WriterStart, pool: SegmentPool) -> Self {
        Self {
            geometry,
            mode: start.mode,
            log_id: start.header.log_id,
            salts: start.salts,
            oldest: start.header.oldest,
            fsync_interval_ms: start.fsync_interval_ms,
            written: start.end,
            synced: start.end,
            claimed: start.claimed,
            records_end: start.end,
            segment: start.header.segment,
            header: start.header,
            next_header: start.header,
            next: None,
            slots: start.slots,
            named: start.header.segment,
            pool,
            reserve_bytes: start.reserve_bytes,
            retiring: None,
            left: VecDeque::new(),
            write: None,
            sync: None,
            barriers: VecDeque::new(),
            dirty_since_ms: None,
            last_write_ms: 0,
            now_ms: 0,
            closing: Closing::No,
            failure: None,
        }
    }

    pub(crate) fn written(&self) -> Position {
        self.written
    }

    pub(crate) fn synced(&self) -> Position {
        self.synced
    }

    pub(crate) fn released(&self) -> Position {
        if self.mode == Mode::Replicated {
            return self.synced;
        }
        let released = self.barriers.front().map_or(self.written, |&(start, _)| start);
        assert!(released <= self.written, "nothing is released that is not written");
        released
    }

    pub(crate) fn check(&self) -> Result<(), LogError> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn fail<T>(&mut self, error: LogError) -> Result<T, LogError> {
        self.failure = Some(error.clone());
        Err(error)
    }

    /// When `flush` has something to do although nothing was appended.
    pub(crate) fn next_deadline(&self, head: Position) -> Option<u64> {
        if self.failure.is_some() || self.is_writing() || self.sync.is_some() {
            return None;
        }
        let stuck = self.retiring.and_then(|retiring| retiring.stuck_until_ms());
        let retry = self.pool.try_again_ms().into_iter().chain(stuck).min();
        let sync = self.dirty_since_ms.map(|since| since + self.fsync_interval_ms);
        if sync.is_some() && (self.awaits_name() || self.is_mark_syncing()) {
            return retry;
        }
        let note = || self.wants_note(head).then_some(self.last_write_ms + IDLE_MS);
        let slots = self.slots.due_ms().filter(|_| self.segment <= self.named);
        let too_many = self.reserve_bytes > 0
            && self.closing == Closing::No
            && self.written == head
            && self.pool.held.is_none()
            && self.pool.has_too_many(head, self.reserve_bytes, true);
        let given_back_ms = (self.last_write_ms + IDLE_MS).max(self.pool.kept_until_ms());
        let back = too_many.then_some(given_back_ms);
        sync.or_else(note).into_iter().chain(slots).chain(retry).chain(back).min()
    }

    /// Does one turn's work: writes what has been appended, syncs what is due.
    pub(crate) fn flush(
        &mut self,
        buffer: &mut WriteBuffer,
        disk: &mut impl Disk,
        counters: &mut Counters,
        now_ms: u64,
        is_read: &dyn Fn(u64) -> bool,
    ) -> Result<(), LogError> {
        self.check()?;
        self.now_ms = now_ms;
        self.pool.now_ms = now_ms;
        let mut turn = || {
            self.retry_held(buffer, disk, counters)?;
            self.write_blocks(buffer, disk, counters)?;
            self.prepare_next(disk, counters)?;
            self.write_slots(buffer, disk)?;
            self.sync_due(buffer, disk, counters)?;
            if self.is_closing() {
                // At once, where all is done at once: no completion comes that would go on with it.
                self.write_slots(buffer, disk)?;
                self.sync_due(buffer, disk, counters)?;
            }
            self.retire_due(disk, counters, is_read)?;
            self.settle_held();
            let is_held = self.pool.held.is_some();
            if self.reserve_bytes > 0
                && self.closing == Closing::No
                && !is_held
                && self.pool.is_whole(buffer.head(), disk, counters)
            {
                self.pool.keep_room(buffer.head(), self.reserve_bytes, disk, counters);
                let is_idle =
                    self.written == buffer.head() && now_ms >= self.last_write_ms + IDLE_MS;
                let needs = (buffer.head(), self.reserve_bytes);
                self.pool.give_back(needs, is_idle, disk, counters);
            }
            if self.wants_note(buffer.head()) && now_ms >= self.last_write_ms + IDLE_MS {
                buffer.note(0);
                counters.notes += 1;
                self.write_blocks(buffer, disk, counters)?;
            }
            Ok(())
        };
        turn().or_else(|error| self.fail(error))
    }

    /// Like `flush`, towards the end: true once the closing block has been written and nothing is
    /// in flight.
    pub(crate) fn close(
        &mut self,
        buffer: &mut WriteBuffer,
        disk: &mut impl Disk,
        counters: &mut Counters,
        now_ms: u64,
        is_read: &dyn Fn(u64) -> bool,
    ) -> Result<bool, LogError> {
        if self.closing == Closing::No {
            self.closing = Closing::Draining;
        }
        self.flush(buffer, disk, counters, now_ms, is_read)?;
        if self.closing == Closing::Draining && self.synced == buffer.head() && self.is_still() {
            self.closing = Closing::Last;
            buffer.note(FLAG_CLOSED);
            self.flush(buffer, disk, counters, now_ms, is_read)?;
        }
        let told = self.slots.has_durable_end(buffer.head());
        let said = self.closing == Closing::Last && told;
        Ok((said || self.closing == Closing::Unsaid) && self.is_still())
    }

    /// Says in the header page what has been synced, when that is due. Nothing waits for it but the end.
    fn write_slots(&mut self, buffer: &WriteBuffer, disk: &mut impl Disk) -> Result<(), LogError> {
        if self.slots.is_in_flight() || self.segment > self.named {
            return Ok(());
        }
        let end = self.synced == buffer.head() && self.closing == Closing::Last;
        let due = self.slots.due_ms().is_some_and(|due| due <= self.now_ms);
        if end && !self.slots.has_end(self.synced) || due && !end {
            self.slots.write(&self.header, self.synced, end, self.now_ms, disk)?;
            self.note_unsaid_end();
        }
        Ok(())
    }

    /// At an end that found no room to be said, all there is has been synced: the next start finds that out by itself.
    fn note_unsaid_end(&mut self) {
        if self.closing == Closing::Last && self.slots.found_no_room() {
            self.closing = Closing::Unsaid;
        }
    }

    /// Whether the end has begun: nothing is started that need not be.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing != Closing::No
    }

    fn is_still(&self) -> bool {
        let preparing = self.next.as_ref().is_some_and(Preparation::is_in_flight);
        let retiring = self.retiring.is_some_and(|retiring| retiring.is_in_flight());
        let telling = self.slots.is_in_flight();
        let making = self.pool.is_making();
        !self.is_writing() && self.sync.is_none() && !preparing && !retiring && !telling && !making
    }

    /// Whether a block write is in flight.
    fn is_writing(&self) -> bool {
        self.write.as_ref().is_some_and(|write| write.waits.is_none())
    }

    /// Tries again what found no room in the place that it has, once that is due.
    fn retry_held(
        &mut self,
        buffer: &mut WriteBuffer,
        disk: &mut impl Disk,
        counters: &mut Counters,
    ) -> Result<(), LogError> {
        if self.pool.held.is_none_or(|held| self.now_ms < held.retry_ms) {
            return Ok(());
        }
        if let Some(next) = &mut self.next {
            next.try_again();
        }
        let Some(write) = self.write.as_mut().filter(|write| write.waits.is_some()) else {
            return Ok(());
        };
        write.waits = None;
        let rest = write.batch.start.plus(write.done);
        match self.write_from(rest, buffer, disk, counters) {
            Started::Done(result) => self.write_done(result, buffer, disk, counters),
            Started::Pending => Ok(()),
        }
    }

    /// Whether something waits for room in the place that it has. What is tried again may still find none.
    fn settle_held(&mut self) {
        let write = self.write.as_ref().and_then(|write| write.waits);
        let next = self.next.as_ref().and_then(Preparation::waits);
        match write.or(next) {
            Some(lack) => self.pool.hold(lack),
            None if self.is_writing() => {}
            None => self.pool.held = None,
        }
    }

    /// An operation is over.
    pub(crate) fn complete(
        &mut self,
        tag: u64,
        result: i32,
        buffer: &mut WriteBuffer,
        disk: &mut impl Disk,
        counters: &mut Counters,
    ) -> Result<(), LogError> {
        self.check()?;
        let outcome = match (tag, &mut self.next) {
            (TAG_WRITE, _) => self.write_done(result, buffer, disk, counters),
            (TAG_SYNC, _) => self.sync_done(result, buffer, disk),
            (TAG_UNLINKED, _) => self.unlinked(result, disk, counters),
            (TAG_RETIRED, _) => self.retired(result, disk),
            (TAG_ASIDE, _) => {
                let wanted = (buffer.head(), self.reserve_bytes);
                self.pool.made_one(result, wanted, disk, counters);
                Ok(())
            }
            (synced_slots::TAG, _) => {
                let written = self.slots.written(result, self.now_ms);
                self.note_unsaid_end();
                written
            }
            (preallocate::TAG, Some(next)) => next.complete(result, disk, self.sync.is_some()),
            _ => panic!("a completion with tag {tag} that nobody waits for"),
        };
        self.settle_held();
        outcome.or_else(|error| self.fail(error))
    }

    /// Starts writes until one is pending or nothing is left. While one is pending the open block
    /// stays open: that is the group commit.
    fn write_blocks(
        &mut self,
        buffer: &mut WriteBuffer,
        disk: &mut impl Disk,
        counters: &mut Counters,
    ) -> Result<(), LogError> {
        while self.write.is_none() {
            let Some(start) = buffer.unwritten() else { return Ok(()) };
            if !self.enter(self.geometry.segment_of(start), disk, counters)? {
                return Ok(());
            }
            buffer.close_block();
            let Some(batch) = buffer.take_batch() else { return Ok(()) };
            assert!(self.written <= batch.start, "what was written is not written over");
            self.write = Some(Write { batch, done: 0, retries: 0, waits: None });
            if let Started::Done(result) = self.write_from(batch.start, buffer, disk, counters) {
                self.write_done(result, buffer, disk, counters)?;
            }
        }
        Ok(())
    }

    /// Starts the write of what is left of the batch in flight.
    fn write_from(
        &mut self,
        start: Position,
        buffer: &mut WriteBuffer,
        disk: &mut impl Disk,
        counters: &mut Counters,
    ) -> Started {
        let end = self.write.as_ref().map_or(start, |write| write.batch.end);
        let offset = self.geometry.offset_of(start);
        assert!(start < end, "a write has bytes");
        assert!(self.geometry.segment_of(start) == self.segment, "a block goes into its own file");
        let durable = self.mode.is_durable_when_written();
        counters.writes += 1;
        let bytes = buffer.bytes(start, end);
        let started = disk.write(self.segment, offset, bytes, durable, TAG_WRITE);
        if started == Started::Pending {
            buffer.pin(start);
        }
        started
    }

    fn write_done(
        &mut self,
        mut result: i32,
        buffer: &mut WriteBuffer,
        disk: &mut impl Disk,
        counters: &mut Counters,
    ) -> Result<(), LogError> {
        loop {
            let Some(write) = &mut self.write else {
                panic!("a write ended that was not in flight")
            };
            // A short direct write goes on at a whole page; the same bytes again do no harm.
            let unit =
                if self.mode.is_durable_when_written() { self.geometry.align_bytes } else { 1 };
            let bytes = result.max(0) as u64 & !(unit - 1);
            write.retries = if bytes > 0 { 0 } else { write.retries + 1 };
            let hopeless = result <= 0 && !is_passing(result);
            if let Some(lack) = Lack::of_write(result) {
                // Repeat the write in its place later: these bytes may be written twice, and none behind goes before.
                write.waits = Some(lack);
                write.retries = 0;
                counters.held_writes += 1;
                if self.closing == Closing::Last {
                    self.write = None;
                    self.closing = Closing::Unsaid;
                    return Ok(());
                }
                if self.closing != Closing::Draining {
                    return Ok(());
                }
            }
            let Some(write) = &mut self.write else { return Ok(()) };
            if hopeless || write.retries > RETRIES_MAX {
                let file = file_name(self.segment);
                return Err(LogError { operation: "write", file, errno: -result.min(0) });
            }
            write.done += bytes;
            let (batch, rest) = (write.batch, write.batch.start.plus(write.done));
            if rest >= batch.end {
                self.batch_written(batch, buffer, counters);
                return Ok(());
            }
            match self.write_from(rest, buffer, disk, counters) {
                Started::Done(next) => result = next,
                Started::Pending => return Ok(()),
            }
        }
    }

    fn batch_written(&mut self, batch: Batch, buffer: &mut WriteBuffer, counters: &mut Counters) {
        self.write = None;
        counters.blocks += batch.blocks;
        counters.block_bytes += batch.end.0 - batch.start.0;
        counters.records += batch.records;
        self.written = batch.end;
        self.claimed = batch.claim;
        self.last_write_ms = self.now_ms;
        buffer.wrote(batch.end);
        if batch.records > 0 {
            self.records_end = batch.end;
        }
        if self.mode.is_durable_when_written() {
            self.set_synced(batch.end, buffer);
        } else {
            self.barriers.extend(batch.barrier);
            if batch.records > 0 {
                self.dirty_since_ms.get_or_insert(self.now_ms);
            }
        }
    }

    /// Starts syncs while one is due and none is in flight.
    fn sync_due(
        &mut self,
        buffer: &mut WriteBuffer,
        disk: &mut impl Disk,
        counters: &mut Counters,
    ) -> Result<(), LogError> {
        while self.sync.is_none() && self.wants_sync() {
            let Left { segment, end: covers } = self.unsynced();
            self.sync = Some(SyncInFlight { segment, covers });
            if covers == self.written {
                self.dirty_since_ms = None;
            }
            self.slots.syncing(segment);
            counters.syncs += 1;
            if let Started::Done(result) = disk.sync(SyncTarget::Segment(segment), TAG_SYNC) {
                self.sync_done(result, buffer, disk)?;
            }
        }
        Ok(())
    }

    /// Segment to sync next, in order, so that `synced` is one number: first what was left behind.
    fn unsynced(&self) -> Left {
        let current = Left { segment: self.segment, end: self.written };
        self.left.front().copied().unwrap_or(current)
    }

    /// While a segment's name is on its way to the disk, nothing in it can become durable; and nothing
    /// counts as such before its absence would be noticed.
    fn awaits_name(&self) -> bool {
        self.unsynced().segment > self.named
    }

    fn is_mark_syncing(&self) -> bool {
        self.next.as_ref().is_some_and(Preparation::is_syncing_mark)
    }

    fn wants_sync(&self) -> bool {
        if self.mode.is_durable_when_written() || self.awaits_name() || self.is_mark_syncing() {
            return false;
        }
        if self.slots.wants_sync(self.unsynced().segment) {
            return true;
        }
        if self.synced == self.written {
            return false;
        }
        let barrier = self.mode == Mode::Replicated || !self.barriers.is_empty();
        let since = self.dirty_since_ms;
        let due = since.is_some_and(|since| self.now_ms >= since + self.fsync_interval_ms);
        let draining = self.closing != Closing::No;
        let retiring =
            self.retiring.is_some_and(|it| it.synced_is_wanted(self.synced, self.written));
        barrier || due || draining || retiring
    }

    fn sync_done(
        &mut self,
        result: i32,
        buffer: &mut WriteBuffer,
        disk: &mut impl Disk,
    ) -> Result<(), LogError> {
        let Some(sync) = self.sync.take() else { panic!("a sync ended that was not in flight") };
        if result < 0 {
            let file = file_name(sync.segment);
            return Err(LogError { operation: "fsync", file, errno: -result });
        }
        self.set_synced(sync.covers, buffer);
        // A segment may have been left after its sync started, and be done all the same.
        while let Some(left) = self.left.pop_front_if(|left| left.end <= self.synced) {
            self.seal(left.segment, disk);
        }
        Ok(())
    }

    fn set_synced(&mut self, synced: Position, buffer: &mut WriteBuffer) {
        assert!(self.synced <= synced && synced <= self.written, "synced only rises");
        self.synced = synced;
        self.slots.synced(synced.min(self.records_end), self.now_ms);
        buffer.chain.synced = synced;
        while self.barriers.front().is_some_and(|&(_, end)| end <= synced) {
            self.barriers.pop_front();
        }
    }

    /// Whether the disk has everything, but no block says so yet.
    fn wants_note(&self, head: Position) -> bool {
        let quiet = self.written == head && self.closing == Closing::No;
        quiet && self.claimed < self.records_end && self.records_end <= self.synced
    }
}
