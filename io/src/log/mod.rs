//! The log of one shard: records in, in order, kept.
//!
//! A byte address space ([`Position`]) cut into segment files, filled with blocks of records. It
//! carries opaque bytes: what a record means, and which kinds and versions there are, is the
//! caller's. It never touches a ring, a clock or a thread: the server's loop moves operations
//! between [`FileDisk`] and its ring and says what time it is.
//!
//! The map, from the bytes up:
//!
//! | folder | responsibility |
//! |---|---|
//! | `format` | addresses, blocks, segments, checksums, salts: every byte |
//! | `disk` | what the log needs of a disk, and the disks there are |
//! | `write` | the write buffer, the writer, the next segment |
//! | `read` | records that have left memory; recovery: replay, torn tail or damage |
//! | `reclaim` | the oldest segment, read once more and dropped |
//! | `data_dir` | who owns the data directory, its manifest, and why it is refused |
//! | `offline` | a log that no server has open: verify, copy, repair, replace |
//! | `config` | how a log is kept |
//! | `error` | what can go wrong with the log |
//!
//! One turn of the server's loop:
//!
//! ```text
//! completions -> log.complete(tag, result)         log.take_read() until None
//! commands    -> log.append(..), log.require_sync()
//! turn's end  -> log.flush(now_ms); submit what log.disk_mut().take_ops(..) gives;
//!                let go all that waits for positions below log.released()
//! ```

mod config;
mod data_dir;
mod disk;
mod error;
mod format;
mod offline;
mod read;
mod reclaim;
mod write;

pub use config::{LogConfig, Mode};
pub use data_dir::claim::KeptOut;
pub use data_dir::durable::make_directory;
pub use data_dir::identity::Identity;
pub use data_dir::layout::{BACKUP_MARKER, shard_path};
pub use data_dir::manifest::About;
pub use data_dir::next_shards::Next;
pub use data_dir::refusal::{LockError, repair_of};
pub use data_dir::watch::{Change, Presence, Watch};
pub use data_dir::{DataDir, Leftover, user_of, user_of_shards};
pub use disk::blocking::BlockingDisk;
pub(crate) use disk::directory::Directory;
pub use disk::faulty::{Faults, FaultyDisk};
pub use disk::file::FileDisk;
pub use disk::memory::MemoryDisk;
pub use disk::{Disk, DiskOp, DiskOpKind, Started, SyncTarget};
pub use error::{LogError, OpenError};
pub use format::address::{Position, SEGMENT_HEADER_BYTES};
pub use format::block::{BLOCK_HEADER_BYTES, FORMAT_VERSION, RECORD_HEADER_BYTES};
pub use format::segment::file_name as segment_file;
pub use format::synced_slots::clear_claims;
pub use offline::damage::Damage;
pub use offline::filling::{
    Filling, Standing, UNFINISHED, discard, discard_pins, left_in, standing,
};
pub use offline::inspection::{InspectError, Inspection, Seen, Segment, Subject};
pub use offline::new_id::give_id;
pub use offline::repair::{Repaired, repair, unshare};
pub use offline::replace_shards::Moving;
pub use offline::verify::inspect;
pub use read::cold_read::{ReadDone, ReadError};
pub use read::recovery::{Dropped, Recovery};
pub use reclaim::scan_oldest::{Scan, ScanError};
pub use write::segment_pool::Lack;
pub use write::staged::Staged;
pub(crate) use write::writer::TAG_WRITE;

use format::address::Geometry;
use format::chain::BLOCK_ALIGN_BYTES;
use format::salt::Salts;
use format::segment::{FileName, SegmentHeader, parse_file_name};
use read::cold_read::ColdReads;
use read::recovery::Recoverer;
use reclaim::scan_oldest::Scanner;
use std::fmt::Display;
use std::io;
use std::sync::Arc;
use write::segment_pool::{InUse, SegmentPool};
use write::write_buffer::{Chain, WriteBuffer};
use write::writer::{Writer, WriterStart};

/// Work that a log has done since it was opened; only ever rising, except `disk_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records written.
    pub records: u64,
    /// Blocks written.
    pub blocks: u64,
    /// Their bytes, headers and padding included.
    pub block_bytes: u64,
    /// Write operations; one may carry several blocks.
    pub writes: u64,
    /// Syncs of segments started (`written` mode; in `synced` mode the writes are durable).
    pub syncs: u64,
    /// Blocks without records that only say what has been synced.
    pub notes: u64,
    /// Segments made.
    pub segments: u64,
    /// Segments made of files that had been others before.
    pub recycled: u64,
    /// Segments given up.
    pub dropped: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Failed attempts to get room for another segment: the disk is full, or nearly.
    pub segment_failures: u64,
    /// Failed attempts to remove a file, which are made again.
    pub removal_failures: u64,
    /// Block writes that found no room in the place that they have, and are tried again.
    pub held_writes: u64,
    /// Records asked for that were no longer in memory.
    pub cold_reads: u64,
    /// Bytes of all files, those that are set aside included.
    pub disk_bytes: u64,
}

/// The log of one shard.
///
/// Drop it only after the ring has completed or cancelled its operations; what is in flight then is
/// leaked, never reused.
#[derive(Debug)]
pub struct Log<D> {
    record_bytes_max: usize,
    buffer: WriteBuffer,
    writer: Writer,
    cold_reads: ColdReads,
    scanner: Scanner,
    disk: D,
    counters: Counters,
}

impl<D: Disk> Log<D> {
    /// Replays all records in order through `replay` (position and body), cuts off a torn tail, and
    /// continues in a fresh segment; or in the last one, where that would leave fewer files set aside. Blocking;
    /// meant for the start of the server.
    pub fn open<E: Display>(
        config: &LogConfig,
        mut disk: D,
        replay: impl FnMut(Position, &[u8]) -> Result<(), E>,
    ) -> Result<(Self, Recovery), OpenError> {
        config.check()?;
        let geometry = config.geometry();
        let recoverer = Recoverer::new(config, &mut disk, replay);
        let (from, recovery) = recoverer.run(config.first_segment)?;
        let current = from.resumed.as_ref().map_or(from.fresh, |resumed| resumed.header.segment);
        let oldest = geometry.start_of(from.oldest.unwrap_or(current));
        let key = disk.secret();
        let key = key.map_err(|source| OpenError::Io { what: "drawing a salt".into(), source })?;
        let (claimed, slots) = from.slots(config.mode);
        let salts = Arc::new(Salts::new(key, from.fresh, from.salts));
        let header = SegmentHeader {
            shard: config.shard,
            segment: from.fresh,
            segment_bytes: config.segment_bytes,
            predecessor: from.last,
            // Where nothing is kept, there is no end of a block.
            synced: if from.segments.is_empty() { Position(0) } else { from.end },
            oldest,
            recycled: false,
            keeps_length: true,
            log_id: config.log_id,
            salt: salts.of(from.fresh),
            before: from.last.map(|last| salts.of(last)),
        };
        let making = |source: std::io::Error| match source.raw_os_error() {
            Some(errno) if Lack::of(errno) == Some(Lack::Space) => {
                OpenError::NoRoom { bytes: config.segment_bytes, source }
            }
            _ => OpenError::Io { what: "making a segment".into(), source },
        };
        let mut spares = disk.spares(config.segment_bytes).map_err(making)?;
        // A log without records has nothing that they would be for.
        let is_bare = config.first_bytes > 0 && from.segments.is_empty();
        while is_bare && spares > 0 {
            disk.drop_spare().map_err(making)?;
            spares -= 1;
        }
        // Use files that were set aside first: there may be no other room.
        let recycled = from.resumed.is_none() && spares > 0;
        let fresh = SegmentHeader { recycled, ..header };
        let header = from.resumed.as_ref().map_or(fresh, |resumed| resumed.header);
        if from.resumed.is_none() {
            let (bytes, header) = (config.segment_bytes, header.encode());
            let made = if is_bare {
                disk.begin(from.fresh, bytes, config.first_bytes, &header)
            } else {
                disk.create(from.fresh, bytes, &header, recycled)
            };
            made.and_then(|()| disk.settle(from.fresh)).map_err(making)?;
        }
        let taken = match &from.resumed {
            None => is_bare.then(|| geometry.start_of(current).plus(config.first_bytes)),
            // Take the rest of the room, which the segment may lack: on failure, none behind the end is sure.
            Some(_) => disk.take_room(current, config.segment_bytes).is_err().then_some(from.end),
        };
        let ending = |source| OpenError::Io { what: "retiring the last segment".into(), source };
        from.rest.end(&mut disk).map_err(ending)?;
        let mut segments = from.segments;
        let ends_here = segments.back().is_some_and(|last| last.number == current);
        if !ends_here {
            let file_bytes = config.segment_bytes;
            segments.push_back(InUse { number: current, file_bytes, end: from.end });
        }
        let mut pool = SegmentPool::new(geometry, segments, config.bytes_max);
        // A fresh one was one of them, or has been made beside them.
        pool.spares = spares - u64::from(recycled);
        pool.taken = taken;
        let disk_bytes =
            pool.used_bytes + pool.spares * config.segment_bytes - pool.untaken_bytes();

        let chain = Chain {
            shard: config.shard,
            salts: Arc::clone(&salts),
            sequence: from.sequence,
            prev: from.prev,
            synced: from.end,
            oldest,
        };
        let next = if ends_here { from.end } else { geometry.data_start_of(current) };
        let chunk_bytes = config.block_bytes;
        let start = WriterStart {
            end: from.end,
            header,
            salts: Arc::clone(&salts),
            mode: config.mode,
            fsync_interval_ms: config.fsync_interval_ms,
            reserve_bytes: config.reserve_bytes,
            claimed,
            slots,
        };
        let log = Self {
            record_bytes_max: config.record_bytes_max,
            buffer: WriteBuffer::new(
                geometry,
                chunk_bytes,
                config.cache_bytes,
                from.end,
                next,
                chain,
            ),
            writer: Writer::new(geometry, start, pool),
            scanner: Scanner::new(geometry, Arc::clone(&salts), config.shard),
            cold_reads: ColdReads::new(geometry, salts, config.cold_reads_max),
            disk,
            counters: Counters {
                segments: u64::from(from.resumed.is_none()),
                recycled: u64::from(recycled),
                disk_bytes,
                ..Counters::default()
            },
        };
        Ok((log, recovery))
    }

    /// Shows all records in order to `replay`, up to where [`Log::open`] would go on, and changes nothing.
    /// Blocking.
    pub fn replay<E: Display>(
        config: &LogConfig,
        disk: &mut D,
        replay: impl FnMut(Position, &[u8]) -> Result<(), E>,
    ) -> Result<Recovery, OpenError> {
        config.check()?;
        Recoverer::new(config, disk, replay).look()
    }

    /// The number of a segment behind all that are there, whatever is in them.
    pub fn next_segment(disk: &mut D, segment_bytes: u64) -> io::Result<u64> {
        let segments_max =
            Geometry { segment_bytes, align_bytes: BLOCK_ALIGN_BYTES }.segments_max();
        let names = disk.list()?;
        let numbers = names.iter().filter_map(|name| match parse_file_name(name, segments_max) {
            FileName::Segment(number) => Some(number + 1),
            _ => None,
        });
        Ok(numbers.max().unwrap_or(0))
    }

    /// Room for one record at the head: its position, and its body to fill completely (it holds
    /// arbitrary bytes). It can be read at once, and is written by the next `flush`.
    ///
    /// # Panics
    /// When the record is larger than `record_bytes_max`.
    #[inline]
    pub fn append(&mut self, body_bytes: usize) -> (Position, &mut [u8]) {
        assert!(
            body_bytes <= self.record_bytes_max - RECORD_HEADER_BYTES,
            "a record of {body_bytes} bytes is over the limit"
        );
        self.buffer.append(body_bytes)
    }

    /// Appends a record whose end has been staged, in a block of its own: its position, and its first `head_bytes` to
    /// fill completely.
    ///
    /// # Panics
    /// When the record is larger than `record_bytes_max`, or its head longer than what was staged takes.
    pub fn append_staged(&mut self, head_bytes: usize, staged: Staged) -> (Position, &mut [u8]) {
        let body_bytes = head_bytes + staged.len();
        assert!(
            body_bytes <= self.record_bytes_max - RECORD_HEADER_BYTES && staged.takes(head_bytes),
            "a record of {body_bytes} bytes is over the limit"
        );
        self.buffer.append_staged(head_bytes, staged)
    }

    /// All that was appended must be on the disk before what comes counts as released, and before the record appended
    /// last does. In `synced` mode that is so anyway. Everything behind it waits, too.
    pub fn require_sync(&mut self) {
        let (synced, mode) = (self.writer.synced(), self.writer.mode);
        if self.buffer.require_sync(synced, mode) {
            self.counters.notes += 1;
        }
    }

    /// Ends the block that is being filled: what was appended before lies in other blocks than what
    /// comes. Answers where they meet.
    pub fn cut(&mut self) -> Position {
        self.buffer.close_block();
        self.buffer.head()
    }

    /// The data directory whose log it is.
    pub fn id(&self) -> u64 {
        self.writer.log_id
    }

    /// Where the log ends for now. What was appended before this call is released once
    /// `released() >= head`.
    #[inline]
    pub fn head(&self) -> Position {
        self.buffer.head()
    }

    /// Everything below has the durability that its block promises.
    #[inline]
    pub fn released(&self) -> Position {
        self.writer.released()
    }

    /// Everything below is on the disk.
    pub fn synced(&self) -> Position {
        self.writer.synced()
    }

    /// Bytes appended and not yet written: what the server must bound when the disk is slow.
    pub fn unwritten_bytes(&self) -> u64 {
        self.head().0 - self.writer.written().0
    }

    /// The end of a turn: starts the writes and syncs that are due. To be called once per turn, also
    /// when nothing was appended; a turn may leave it to the next if that comes within microseconds.
    pub fn flush(&mut self, now_ms: u64) -> Result<(), LogError> {
        let Self { buffer, writer, cold_reads, scanner, disk, counters, .. } = self;
        let is_read = |segment| cold_reads.reads_from(segment) || scanner.is_in_flight();
        writer.flush(buffer, disk, counters, now_ms, &is_read)?;
        cold_reads.start(disk);
        Ok(())
    }

    /// The operation with this tag has completed: bytes done or a negative errno. A `flush` in the
    /// same turn starts what that made possible.
    ///
    /// # Panics
    /// When no such operation is in flight.
    pub fn complete(&mut self, tag: u64, result: i32) -> Result<(), LogError> {
        let Self { buffer, writer, cold_reads, scanner, disk, counters, .. } = self;
        disk.ended(tag);
        match tag & 0xff {
            read::cold_read::TAG => cold_reads.complete(tag, result, disk),
            reclaim::scan_oldest::TAG => scanner.complete(result, disk),
            _ => return writer.complete(tag, result, buffer, disk, counters),
        }
        writer.check()
    }

    /// The next record of the oldest segment, so that compaction can write again what is needed of it. The
    /// segment that is being written, and one that is not yet on the disk, end at once.
    pub fn scan(&mut self) -> Scan<'_> {
        let Some(oldest) = self.writer.oldest() else { return Scan::End };
        self.scanner.begin(oldest);
        self.scanner.next(&mut self.disk)
    }

    /// The addresses of the oldest segment, if it can be given up: it is not being written, it is on
    /// the disk, and none is on its way out.
    pub fn oldest(&self) -> Option<std::ops::Range<Position>> {
        let oldest = self.writer.oldest()?;
        let start = self.buffer.geometry().start_of(oldest.number);
        Some(start..oldest.end)
    }

    /// Whether there is a segment besides the one that is being written, be it on its way out, and segments can go.
    pub fn has_older(&self) -> bool {
        let is_stuck = self.writer.stuck().is_some();
        !is_stuck && (self.writer.pool.segments.len() > 1 || self.writer.retiring.is_some())
    }

    /// The oldest segment that could not be removed at the last attempt, and why. It is tried again, and none goes before it.
    pub fn stuck_removal(&self) -> Option<LogError> {
        self.writer.stuck()
    }

    /// Nothing of the oldest segment is needed any more but what has been appended since. It goes once
    /// all that is on the disk and nobody reads from it; its file is set aside, or removed.
    ///
    /// # Panics
    /// When [`Log::oldest`] says that none can go.
    pub fn drop_oldest(&mut self) {
        self.writer.drop_oldest(&mut self.buffer, &mut self.counters);
    }

    /// Bytes of the segments in use: what was written, and how much of it is needed, is the caller's
    /// to know.
    pub fn used_bytes(&self) -> u64 {
        self.writer.pool.used_bytes
    }

    /// How many segments are in use, and how many files are set aside.
    pub fn segments(&self) -> (u64, u64) {
        (self.writer.pool.segments.len() as u64, self.writer.pool.spares)
    }

    /// The segments in use, and where what is written of each ends in its file.
    pub fn segment_ends(&self) -> impl Iterator<Item = (u64, u64)> {
        let (geometry, current) = (self.buffer.geometry(), self.writer.segment);
        let written = self.writer.written().max(geometry.data_start_of(current));
        self.writer.pool.segments.iter().map(move |segment| {
            let end = if segment.number == current { written } else { segment.end };
            (segment.number, end.0 - geometry.start_of(segment.number).0)
        })
    }

    /// Bytes per segment file.
    pub fn segment_bytes(&self) -> u64 {
        self.buffer.geometry().segment_bytes
    }

    /// Room that is kept ready: see [`LogConfig::reserve_bytes`].
    pub fn reserve_bytes(&self) -> u64 {
        self.writer.reserve_bytes
    }

    /// From now on this much room is kept ready.
    pub fn reserve(&mut self, bytes: u64) {
        self.writer.reserve_bytes = bytes;
    }

    /// Makes sure that `bytes` can be appended although the file system gives no more; false if that is
    /// not to be had now, and while what was appended finds no room in its place.
    pub fn make_room(&mut self, bytes: u64) -> bool {
        let Self { buffer, writer, disk, counters, .. } = self;
        writer.pool.held.is_none() && writer.pool.make_room(buffer.head(), bytes, disk, counters)
    }

    /// Whether `bytes` can be appended although the file system gives no more. Asks it for nothing.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.writer.pool.sure_bytes(self.head()) >= bytes
    }

    /// Bytes that can be appended although the file system gives no more.
    pub fn room_bytes(&self) -> u64 {
        self.writer.pool.sure_bytes(self.head())
    }

    /// Bytes of all files that are no room: what is needed, and what is not.
    pub fn filled_bytes(&self) -> u64 {
        self.counters.disk_bytes.saturating_sub(self.writer.pool.room_bytes(self.head()))
    }

    /// Bytes of files that are set aside and, for want of descriptors or memory, cannot be opened.
    pub fn unopened_bytes(&self) -> u64 {
        self.writer.pool.unopened_bytes()
    }

    /// Bytes that the file system, or the bound, still had when it gave no more room: too few for a
    /// segment.
    pub fn loose_bytes(&self) -> u64 {
        self.writer.pool.loose_bytes
    }

    /// Bytes that a block may take besides its records.
    pub fn block_overhead_bytes(&self) -> u64 {
        BLOCK_HEADER_BYTES as u64 + self.buffer.geometry().align_bytes
    }

    /// Resource that was lacking when more room was asked for last.
    pub fn lack(&self) -> Option<Lack> {
        self.writer.pool.lacks()
    }

    /// The body of the record at `position`, if it is still in memory.
    #[inline]
    pub fn read(&self, position: Position, body_bytes: usize) -> Option<&[u8]> {
        self.buffer.read(position, body_bytes)
    }

    /// Starts reading a record that `read` did not find. Its result comes, with `token`, from
    /// `take_read`, in any order.
    pub fn read_cold(&mut self, position: Position, body_bytes: usize, token: u64) {
        self.counters.cold_reads += 1;
        self.cold_reads.request(position, body_bytes, token);
        self.cold_reads.start(&mut self.disk);
    }

    /// A cold read that is over, if there is one.
    pub fn take_read(&mut self) -> Option<ReadDone<'_>> {
        self.cold_reads.take()
    }

    /// Cold reads whose result has not been taken.
    pub fn cold_reads_pending(&self) -> usize {
        self.cold_reads.pending()
    }

    /// A clean end: called instead of `flush`, once per turn, until it says true. Then everything is
    /// on the disk, the closing block is written, and nothing is in flight.
    pub fn close(&mut self, now_ms: u64) -> Result<bool, LogError> {
        let Self { buffer, writer, cold_reads, scanner, disk, counters, .. } = self;
        let is_read = |segment| cold_reads.reads_from(segment) || scanner.is_in_flight();
        let closed = writer.close(buffer, disk, counters, now_ms, &is_read)?;
        Ok(closed && !cold_reads.is_in_flight() && !scanner.is_in_flight())
    }

    /// Why the log has stopped, if it has.
    pub fn failure(&self) -> Option<LogError> {
        self.writer.check().err()
    }

    /// The disk, to move its operations to a ring.
    pub fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }

    /// The disk alone, whatever is in flight: for tests that end the process here.
    pub fn into_disk(self) -> D {
        self.disk
    }

    /// Memory of the newest blocks, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.buffer.memory_bytes()
    }

    /// Counts of the log's work.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Chunks of memory given up for newer ones.
    pub fn evictions(&self) -> u64 {
        self.buffer.evictions
    }
}
