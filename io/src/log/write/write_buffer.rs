//! The newest part of the log in memory: the block that is being filled, the blocks that wait for
//! their write, and the written ones that still serve reads (the payload cache).
//!
//! Knows addresses and the block format; never touches a disk. Memory is a row of chunks, each an
//! image of a stretch of the address space, so that a block is written from where it was built.

use super::aligned::{Buffer, PAGE_BYTES};
use super::staged::Staged;
use crate::log::Mode;
use crate::log::format::address::{Geometry, Position};
use crate::log::format::block::{
    BLOCK_HEADER_BYTES, BlockHeader, FLAG_SYNC, KnownTail, RECORD_HEADER_BYTES, seal_records,
    u32_at,
};
use crate::log::format::salt::Salts;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

/// An image of the log from `start` on; `used` bytes of it are blocks.
#[derive(Debug)]
struct Chunk {
    start: Position,
    used: usize,
    buffer: Buffer,
}

impl Chunk {
    fn end(&self) -> Position {
        self.start.plus(self.used as u64)
    }
}

/// State that the next block's header takes from the blocks before it.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) shard: u16,
    pub(crate) salts: Arc<Salts>,
    pub(crate) sequence: u64,
    pub(crate) prev: u32,
    pub(crate) synced: Position,
    pub(crate) oldest: Position,
}

/// A finished block that no write has been started for.
#[derive(Clone, Copy, Debug)]
struct Closed {
    start: Position,
    end: Position,
    flags: u32,
    records: u32,
    /// Position that its header says is `synced`.
    claim: Position,
}

/// Closed blocks, at least one, end to end in one chunk: what one write takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) start: Position,
    pub(crate) end: Position,
    pub(crate) blocks: u64,
    /// None means a note: no client waits for it, and it needs no flush of its own.
    pub(crate) records: u64,
    /// From the first block that must be synced to the end of the last one.
    pub(crate) barrier: Option<(Position, Position)>,
    pub(crate) claim: Position,
}

#[derive(Debug)]
pub(crate) struct WriteBuffer {
    geometry: Geometry,
    chunk_bytes: usize,
    cache_bytes: usize,
    /// The chunk that is being filled. Apart from `older`, for the hot path.
    open: Chunk,
    older: VecDeque<Chunk>,
    /// Place in `older` of the last read, or close to it: jobs that came one after the other mostly go so.
    last_read: Cell<usize>,
    /// A buffer of `chunk_bytes` set free by eviction.
    spare: Option<Buffer>,
    /// Capacity of `open` and `older` together.
    memory_bytes: usize,
    /// Offsets in `open`: where the open block starts, where its next record goes, and where it
    /// must end. `limit` is 0 while there is no open block, which sends `append` the slow way.
    block: usize,
    fill: usize,
    limit: usize,
    records: u32,
    flags: u32,
    /// Length and checksum of the end of the open block's first record, if they are known.
    tail: Option<KnownTail>,
    /// Where the next block starts, if the segment has room there.
    next: Position,
    /// The end of the last closed block.
    end: Position,
    closed: VecDeque<Closed>,
    /// Everything below has been written, so its memory may go.
    written: Position,
    /// The start of the write in flight: the kernel reads from that chunk.
    pinned: Option<Position>,
    pub(crate) chain: Chain,
    pub(crate) evictions: u64,
}

impl WriteBuffer {
    /// A buffer that continues a log ending at `end` with a block at `next`.
    pub(crate) fn new(
        geometry: Geometry,
        chunk_bytes: usize,
        cache_bytes: usize,
        end: Position,
        next: Position,
        chain: Chain,
    ) -> Self {
        Self {
            geometry,
            chunk_bytes: chunk_bytes.next_multiple_of(PAGE_BYTES),
            cache_bytes,
            open: Chunk { start: next, used: 0, buffer: Buffer::empty() },
            older: VecDeque::new(),
            last_read: Cell::new(0),
            spare: None,
            memory_bytes: 0,
            block: 0,
            fill: 0,
            limit: 0,
            records: 0,
            flags: 0,
            tail: None,
            next,
            end,
            closed: VecDeque::new(),
            written: end,
            pinned: None,
            chain,
            evictions: 0,
        }
    }

    /// Room for one record in the open block: its position and its body to fill.
    #[inline]
    pub(crate) fn append(&mut self, body_bytes: usize) -> (Position, &mut [u8]) {
        let bytes = RECORD_HEADER_BYTES + body_bytes;
        if self.fill + bytes > self.limit {
            self.make_room(bytes);
        }
        let at = self.fill;
        self.fill += bytes;
        self.records += 1;
        let record = &mut self.open.buffer[at..at + bytes];
        record[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
        (self.open.start.plus(at as u64), &mut record[RECORD_HEADER_BYTES..])
    }

    /// Appends a record whose end has been staged, in a block and memory of its own: its position and what is before
    /// that end, to fill.
    pub(crate) fn append_staged(
        &mut self,
        head_bytes: usize,
        staged: Staged,
    ) -> (Position, &mut [u8]) {
        let tail = staged.tail();
        let record_bytes = RECORD_HEADER_BYTES + head_bytes + tail.bytes;
        let front = BLOCK_HEADER_BYTES + RECORD_HEADER_BYTES + head_bytes;
        self.close_block();
        self.go_where_fits(self.geometry.align((BLOCK_HEADER_BYTES + record_bytes) as u64));
        // Writes around the page cache begin on a page.
        let aligned = self.geometry.align_bytes >= PAGE_BYTES as u64;
        let buffer = staged.into_buffer(front, aligned);
        self.begin_chunk(buffer.len());
        self.memory_bytes += buffer.len();
        self.open.buffer = buffer;
        self.begin_block();
        self.fill = self.block + BLOCK_HEADER_BYTES + record_bytes;
        assert!(self.fill <= self.limit, "what was staged has room behind it");
        (self.records, self.tail) = (1, Some(tail));
        let at = self.block + BLOCK_HEADER_BYTES;
        let record = &mut self.open.buffer[at..at + RECORD_HEADER_BYTES + head_bytes];
        record[..4].copy_from_slice(&(record_bytes as u32).to_le_bytes());
        (self.open.start.plus(at as u64), &mut record[RECORD_HEADER_BYTES..])
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The block that holds the record appended last must be synced before it is released. If that one has been closed,
    /// and maybe only written, a note behind it waits for its sync. True if there is such a note.
    pub(crate) fn require_sync(&mut self, synced: Position, mode: Mode) -> bool {
        if self.records > 0 {
            self.flags |= FLAG_SYNC;
            return false;
        }
        let notes = !mode.is_durable_when_written() && synced < self.end;
        if notes {
            self.note(FLAG_SYNC);
        }
        notes
    }

    /// After the last record; the end of the last block when none is open.
    pub(crate) fn head(&self) -> Position {
        if self.records == 0 { self.end } else { self.open.start.plus(self.fill as u64) }
    }

    /// The body of the record at `position`, if it is in memory.
    #[inline]
    pub(crate) fn read(&self, position: Position, body_bytes: usize) -> Option<&[u8]> {
        let (chunk, used) = if position >= self.open.start {
            (&self.open, self.fill.max(self.open.used))
        } else {
            let chunk = self.chunk_of(position)?;
            (chunk, chunk.used)
        };
        let at = usize::try_from(position.0 - chunk.start.0).ok()?;
        let end = at.checked_add(RECORD_HEADER_BYTES)?.checked_add(body_bytes)?;
        let record = chunk.buffer.get(at..end).filter(|_| end <= used)?;
        // A wrong length can only come from a wrong position: the cold read will say so loudly.
        (u32_at(record, 0) as usize == record.len()).then(|| &record[RECORD_HEADER_BYTES..])
    }

    /// Ends the open block, if it has records, and queues it for its write.
    pub(crate) fn close_block(&mut self) {
        if self.records > 0 {
            self.seal();
        }
    }

    /// Queues a block without records, whose header alone matters.
    pub(crate) fn note(&mut self, flags: u32) {
        assert!(self.records == 0, "a note goes between blocks");
        self.open_block(BLOCK_HEADER_BYTES);
        self.flags |= flags;
        self.seal();
    }

    /// Makes sure that a block which is not sealed yet follows: the open one, or a note.
    /// True if it was a note.
    pub(crate) fn close_or_note(&mut self) -> bool {
        let note = self.records == 0;
        if note {
            self.note(0);
        } else {
            self.seal();
        }
        note
    }

    /// Where the next write will start.
    pub(crate) fn unwritten(&self) -> Option<Position> {
        let open = (self.records > 0).then(|| self.open.start.plus(self.block as u64));
        self.closed.front().map(|block| block.start).or(open)
    }

    /// Takes the closed blocks that one write can carry.
    pub(crate) fn take_batch(&mut self) -> Option<Batch> {
        let first = *self.closed.front()?;
        let chunk_end = self.chunk_at(first.start).end();
        let mut batch = Batch {
            start: first.start,
            end: first.start,
            blocks: 0,
            records: 0,
            barrier: None,
            claim: first.claim,
        };
        while let Some(block) = self.closed.front() {
            if block.start != batch.end || block.end > chunk_end {
                break;
            }
            batch.end = block.end;
            batch.blocks += 1;
            batch.records += u64::from(block.records);
            batch.claim = block.claim;
            if block.flags & FLAG_SYNC != 0 {
                let start = batch.barrier.map_or(block.start, |(start, _)| start);
                batch.barrier = Some((start, block.end));
            }
            self.closed.pop_front();
        }
        assert!(batch.start < batch.end, "a write carries a block");
        Some(batch)
    }

    /// The bytes of a batch, or of the rest of it. They stay where they are, unchanged, until
    /// `wrote` has been told of their end.
    pub(crate) fn bytes(&self, start: Position, end: Position) -> &[u8] {
        let chunk = self.chunk_at(start);
        let at = (start.0 - chunk.start.0) as usize;
        &chunk.buffer[at..at + (end.0 - start.0) as usize]
    }

    /// The kernel reads from the chunk at `start` until `wrote`.
    pub(crate) fn pin(&mut self, start: Position) {
        self.pinned = Some(start);
    }

    /// Everything below `written` has been written.
    pub(crate) fn wrote(&mut self, written: Position) {
        assert!(self.written <= written && written <= self.end, "what is written only rises");
        self.written = written;
        self.pinned = None;
    }

    /// Capacity of all chunks, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes + self.spare.as_ref().map_or(0, |buffer| buffer.len())
    }

    fn chunk_of(&self, position: Position) -> Option<&Chunk> {
        let holds = |chunk: &&Chunk| chunk.start <= position && position < chunk.end();
        self.older.get(self.last_read.get()).filter(holds).or_else(|| {
            let after = self.older.partition_point(|chunk| chunk.start <= position);
            self.last_read.set(after.checked_sub(1)?);
            self.older.get(self.last_read.get())
        })
    }

    /// The chunk of a block that has not been written, which therefore exists.
    fn chunk_at(&self, position: Position) -> &Chunk {
        if position >= self.open.start {
            return &self.open;
        }
        let Some(chunk) = self.chunk_of(position) else {
            panic!("the log's memory at {position} was given away before it was written");
        };
        chunk
    }

    /// Makes the open block one that has room for a record of `bytes`.
    #[cold]
    fn make_room(&mut self, bytes: usize) {
        self.close_block();
        self.open_block(BLOCK_HEADER_BYTES + bytes);
        assert!(self.fill + bytes <= self.limit, "a block was opened too small");
    }

    /// Starts a block that may grow to at least `bytes`, in this chunk and segment or in new ones.
    fn open_block(&mut self, bytes: usize) {
        let bytes = self.geometry.align(bytes as u64);
        self.go_where_fits(bytes);
        let contiguous = self.open.end() == self.next;
        if !contiguous || ((self.open.buffer.len() - self.open.used) as u64) < bytes {
            self.open_chunk(bytes as usize);
        }
        self.begin_block();
    }

    /// The next block goes to the next segment if so many bytes do not fit this one.
    fn go_where_fits(&mut self, bytes: u64) {
        let segment = self.geometry.segment_of(self.next);
        if self.geometry.data_end_of(segment).0 - self.next.0 < bytes {
            self.next = self.geometry.data_start_of(segment + 1);
        }
    }

    /// Starts a block behind what is used of the open chunk.
    fn begin_block(&mut self) {
        let segment_end = self.geometry.data_end_of(self.geometry.segment_of(self.next));
        let room = (segment_end.0 - self.open.start.0).min(self.open.buffer.len() as u64);
        self.block = self.open.used;
        self.fill = self.block + BLOCK_HEADER_BYTES;
        // Staged bytes may end anywhere, and a block ends where a write may.
        self.limit = (room & !(self.geometry.align_bytes - 1)) as usize;
    }

    /// Retires the open chunk and starts one at `next` with room for `bytes`.
    fn open_chunk(&mut self, bytes: usize) {
        let bytes = self.chunk_bytes.max(bytes.next_multiple_of(PAGE_BYTES));
        self.begin_chunk(bytes);
        let spare = if bytes == self.chunk_bytes { self.spare.take() } else { None };
        self.open.buffer = spare.unwrap_or_else(|| Buffer::new(bytes));
        self.memory_bytes += bytes;
    }

    /// Retires the open chunk, and makes room for one of so many bytes at `next`.
    fn begin_chunk(&mut self, bytes: usize) {
        let fresh = Chunk { start: self.next, used: 0, buffer: Buffer::empty() };
        let filled = std::mem::replace(&mut self.open, fresh);
        if !filled.buffer.is_empty() {
            self.older.push_back(filled);
        }
        self.evict(bytes);
    }

    /// Lets the oldest chunks go until `bytes` more fit the budget, or only unwritten ones are left.
    fn evict(&mut self, bytes: usize) {
        while self.memory_bytes + bytes > self.cache_bytes {
            if self.older.front().is_none_or(|chunk| chunk.end() > self.written) {
                return;
            }
            let Some(chunk) = self.older.pop_front() else { return };
            self.memory_bytes -= chunk.buffer.len();
            self.evictions += 1;
            if chunk.buffer.len() == self.chunk_bytes && chunk.buffer.is_whole() {
                self.spare = Some(chunk.buffer);
            }
        }
    }

    /// Completes the open block: checksums, padding, header.
    fn seal(&mut self) {
        let start = self.open.start.plus(self.block as u64);
        assert!(start == self.next, "a block lies where the one before it ended");
        assert!(self.geometry.align(start.0) == start.0, "a block begins where a write may");
        let body = self.block + BLOCK_HEADER_BYTES;
        let block_bytes = self.geometry.align((self.fill - self.block) as u64);
        let end = self.block + block_bytes as usize;
        assert!(self.fill <= end && end <= self.limit, "a block ends within its chunk and segment");
        // The buffer may have held another stretch of the log before.
        self.open.buffer[self.fill..end].fill(0);
        let salt = self.chain.salts.of(self.geometry.segment_of(start));
        let header = BlockHeader {
            shard: self.chain.shard,
            salt,
            position: start,
            sequence: self.chain.sequence,
            synced: self.chain.synced,
            oldest: self.chain.oldest,
            body_bytes: (self.fill - body) as u32,
            block_bytes: block_bytes as u32,
            records: self.records,
            flags: self.flags,
            prev: self.chain.prev,
        };
        let crc = header.encode(&mut self.open.buffer[self.block..body]);
        let records = &mut self.open.buffer[body..self.fill];
        let first = start.plus(BLOCK_HEADER_BYTES as u64);
        self.chain.prev = seal_records(salt, first, records, crc, self.tail.take());
        self.chain.sequence += 1;
        self.end = start.plus(block_bytes);
        self.next = self.end;
        self.closed.push_back(Closed {
            start,
            end: self.end,
            flags: self.flags,
            records: self.records,
            claim: self.chain.synced,
        });
        self.open.used = end;
        (self.fill, self.limit, self.records, self.flags) = (0, 0, 0, 0);
    }
}

impl Drop for WriteBuffer {
    fn drop(&mut self) {
        // The kernel may still read the chunk of a write in flight; losing a megabyte at the end of
        // the process is better than writing memory that is used for something else.
        let Some(pinned) = self.pinned else { return };
        for chunk in std::mem::take(&mut self.older) {
            if chunk.start <= pinned && pinned < chunk.end() {
                std::mem::forget(chunk);
            }
        }
        if pinned >= self.open.start {
            std::mem::forget(std::mem::replace(&mut self.open.buffer, Buffer::empty()));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn buffer(cache_chunks: usize) -> WriteBuffer {
        let geometry = Geometry { segment_bytes: 1 << 16, align_bytes: 64 };
        let salts = Arc::new(Salts::new([1, 2], 0, std::collections::BTreeMap::new()));
        let (synced, oldest) = (Position(0), Position(0));
        let chain = Chain { shard: 0, salts, sequence: 0, prev: 0, synced, oldest };
        WriteBuffer::new(geometry, 8192, 8192 * cache_chunks, Position(0), Position(4096), chain)
    }

    fn put(buffer: &mut WriteBuffer, bytes: usize, byte: u8) -> Position {
        let (position, body) = buffer.append(bytes);
        body.fill(byte);
        position
    }

    fn write_all(buffer: &mut WriteBuffer) -> u64 {
        buffer.close_block();
        let mut writes = 0;
        while let Some(batch) = buffer.take_batch() {
            assert_eq!(buffer.bytes(batch.start, batch.end)[..4], *b"CQBK");
            buffer.wrote(batch.end);
            writes += 1;
        }
        writes
    }

    #[test]
    fn records_of_the_open_block_can_be_read() {
        let mut buffer = buffer(2);
        let first = put(&mut buffer, 100, 1);
        let second = put(&mut buffer, 0, 0);
        assert_eq!(first, Position(4096 + 64));
        assert_eq!(buffer.read(first, 100).unwrap(), [1; 100]);
        assert_eq!(buffer.read(second, 0).unwrap(), []);
        assert_eq!(buffer.head(), second.plus(8));
        assert_eq!(buffer.read(first, 99), None, "a wrong length finds nothing");
        assert_eq!(buffer.read(buffer.head(), 0), None, "nor does a place without a record");
        assert_eq!(buffer.read(Position(u64::MAX), usize::MAX), None);
    }

    #[test]
    fn written_chunks_go_oldest_first_within_the_budget() {
        let mut buffer = buffer(3);
        let positions: Vec<_> = (0..20)
            .map(|byte| {
                let position = put(&mut buffer, 5000, byte);
                write_all(&mut buffer);
                position
            })
            .collect();
        assert!(buffer.memory_bytes() <= 3 * 8192);
        assert_eq!(buffer.evictions, 17);
        for (byte, &position) in positions.iter().enumerate() {
            let found = buffer.read(position, 5000);
            assert_eq!(found.is_some(), byte >= 17, "record {byte}");
            assert!(found.is_none_or(|body| body.iter().all(|&b| b == byte as u8)));
        }
    }

    #[test]
    fn unwritten_chunks_are_never_given_away() {
        let mut buffer = buffer(1);
        let positions: Vec<_> = (0..9).map(|byte| put(&mut buffer, 5000, byte)).collect();
        assert_eq!(buffer.evictions, 0);
        for (byte, &position) in positions.iter().enumerate() {
            assert_eq!(buffer.read(position, 5000).unwrap()[0], byte as u8);
        }
        assert_eq!(write_all(&mut buffer), 9);
        put(&mut buffer, 5000, 99);
        assert_eq!(buffer.evictions, 9);
    }

    #[test]
    fn padding_is_zero_in_a_buffer_used_before() {
        let mut buffer = buffer(1);
        for byte in 1..9 {
            let position = put(&mut buffer, 5000 - usize::from(byte) * 100, byte);
            buffer.close_block();
            let batch = buffer.take_batch().unwrap();
            let bytes = buffer.bytes(batch.start, batch.end);
            let padding = (position.0 - batch.start.0) as usize + 5008 - usize::from(byte) * 100;
            assert!(bytes[padding..].iter().all(|&byte| byte == 0));
            buffer.wrote(batch.end);
        }
        assert!(buffer.evictions > 0);
    }

    #[test]
    fn blocks_of_one_chunk_share_a_write() {
        let mut buffer = buffer(4);
        for byte in 0..3 {
            put(&mut buffer, 100, byte);
            buffer.close_block();
        }
        assert_eq!(write_all(&mut buffer), 1);
    }

    #[test]
    fn a_large_record_gets_a_block_and_a_chunk_of_its_own() {
        let mut buffer = buffer(4);
        let small = put(&mut buffer, 10, 1);
        let large = put(&mut buffer, 40_000, 2);
        let after = put(&mut buffer, 10, 3);
        assert_eq!(large, Position(4096 + 128 + 64));
        assert!(buffer.read(large, 40_000).unwrap().iter().all(|&byte| byte == 2));
        assert_eq!(buffer.read(small, 10).unwrap(), [1; 10]);
        assert_eq!(buffer.read(after, 10).unwrap(), [3; 10]);
        assert_eq!(write_all(&mut buffer), 2);
    }

    #[test]
    fn no_block_spans_two_segments() {
        let mut buffer = buffer(4);
        for _ in 0..200 {
            put(&mut buffer, 777, 7);
            buffer.close_block();
        }
        while let Some(batch) = buffer.take_batch() {
            assert_eq!(batch.start.0 >> 16, (batch.end.0 - 1) >> 16);
            assert!(batch.start.0 & 0xffff >= 4096);
            buffer.wrote(batch.end);
        }
    }

    #[test]
    fn blocks_that_fill_a_segment_leave_room_for_its_mark_and_continue_in_the_next() {
        let mut buffer = buffer(4);
        // 60 blocks of 1024 bytes, the last of them less, fill 64 KiB without the header and the mark.
        for block in 0..60 {
            put(&mut buffer, if block < 59 { 1024 - 64 - 8 } else { 1024 - 128 - 8 }, 7);
            buffer.close_block();
        }
        assert_eq!(buffer.head(), Position((1 << 16) - 64));
        assert_eq!(put(&mut buffer, 1, 1), Position((1 << 16) + 4096 + 64));
    }
}
