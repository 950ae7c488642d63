//! The disk of a log whose syncs are commits of a database. All else is the local files'.

use super::scribe::{Calls, Order, Scribe, Wire};
use crate::log::{Disk, DiskOp, FileDisk, Started, SyncTarget, TAG_WRITE};
use std::collections::BTreeMap;
use std::io;

/// The tag of what no sync waits for.
const NOBODYS_TAG: u64 = u64::MAX;

/// How far a segment has been written, and how far that has been given to the scribe; offsets in the file.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    written: u64,
    given: u64,
}

/// Local files, and the scribe of their rows.
#[derive(Debug)]
pub struct MirrorDisk {
    files: FileDisk,
    wire: Wire,
    spans: BTreeMap<u64, Span>,
    /// The write of blocks that the ring does: its segment, and where it ends.
    writing: Option<(u64, u64)>,
    /// Orders that are not committed yet.
    ordered: usize,
}

impl MirrorDisk {
    /// The disk of a log with these local files.
    pub fn new(files: FileDisk, scribe: Scribe, calls: Calls) -> io::Result<Self> {
        let spans =
            scribe.ends().map(|(segment, end)| (segment, Span { written: end, given: end }));
        let spans = spans.collect();
        Ok(Self { files, wire: scribe.start(calls)?, spans, writing: None, ordered: 0 })
    }

    /// Gives what the segments have beyond the rows to the scribe, up to these ends: all of a log that had no rows, or what
    /// this node had written last.
    pub fn give_existing(&mut self, segments: impl Iterator<Item = (u64, u64)>) {
        for (segment, end) in segments {
            let span = self.spans.entry(segment).or_default();
            span.written = span.written.max(end);
        }
        self.give(u64::MAX, NOBODYS_TAG);
    }

    /// Gives what was written up to a segment to the scribe. False if all of it is committed already.
    fn give(&mut self, last: u64, tag: u64) -> bool {
        let mut parts = Vec::new();
        for (&segment, span) in self.spans.range_mut(..=last) {
            if span.given < span.written {
                parts.push((segment, span.given..span.written));
                span.given = span.written;
            }
        }
        // An order without parts waits for those before it: their bytes are not committed yet.
        let gives = !parts.is_empty() || self.ordered > 0;
        if gives {
            self.ordered += 1;
            self.order(Order::Append { parts, tag });
        }
        gives
    }

    /// Moves the operations for the ring to `into`.
    pub fn take_ops(&mut self, into: &mut Vec<DiskOp>) {
        self.files.take_ops(into);
    }

    /// The tag of a sync that has been committed.
    pub fn take_done(&mut self) -> Option<u64> {
        loop {
            let done = self.wire.done.try_recv().ok()?;
            self.ordered -= 1;
            if done != NOBODYS_TAG {
                return Some(done);
            }
        }
    }

    fn note_written(&mut self, segment: u64, end: u64) {
        self.spans.entry(segment).or_default().written = end;
    }

    fn order(&self, order: Order) {
        // A scribe that has ended has said why.
        let _ = self.wire.orders.send(order);
    }
}

impl Disk for MirrorDisk {
    fn list(&mut self) -> io::Result<Vec<String>> {
        self.files.list()
    }
    fn create(&mut self, segment: u64, bytes: u64, header: &[u8], spare: bool) -> io::Result<()> {
        self.files.create(segment, bytes, header, spare)
    }
    fn begin(&mut self, segment: u64, bytes: u64, taken: u64, header: &[u8]) -> io::Result<()> {
        self.files.begin(segment, bytes, taken, header)
    }
    fn take_room(&mut self, segment: u64, bytes: u64) -> io::Result<()> {
        self.files.take_room(segment, bytes)
    }
    fn spares(&mut self, bytes: u64) -> io::Result<u64> {
        self.files.spares(bytes)
    }
    fn set_aside(&mut self, bytes: u64) -> io::Result<()> {
        self.files.set_aside(bytes)
    }
    fn begin_aside(&mut self, bytes: u64, tag: u64) -> Started {
        self.files.begin_aside(bytes, tag)
    }
    fn end_aside(&mut self, result: i32) -> io::Result<bool> {
        self.files.end_aside(result)
    }
    fn drop_spare(&mut self) -> io::Result<()> {
        self.files.drop_spare()
    }
    fn ready(&mut self) -> u64 {
        self.files.ready()
    }
    fn free_bytes(&mut self) -> u64 {
        self.files.free_bytes()
    }
    fn retire(&mut self, segment: u64, keep: bool) -> io::Result<bool> {
        let retired = self.files.retire(segment, keep)?;
        if self.spans.remove(&segment).is_some() {
            self.order(Order::Trim { segment });
        }
        Ok(retired)
    }
    fn unlink(&mut self, segment: u64, tag: u64) -> Started {
        self.files.unlink(segment, tag)
    }
    fn retired(&mut self) {
        self.files.retired();
    }
    fn ended(&mut self, tag: u64) {
        self.files.ended(tag);
        if tag == TAG_WRITE
            && let Some((segment, end)) = self.writing.take()
        {
            // A write that was short goes on at once, where it stopped.
            self.note_written(segment, end);
        }
    }
    fn len(&mut self, segment: u64) -> io::Result<u64> {
        self.files.len(segment)
    }
    fn read_at(&mut self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.files.read_at(segment, offset, into)
    }
    fn settle(&mut self, segment: u64) -> io::Result<()> {
        self.files.settle(segment)
    }
    fn truncate(&mut self, segment: u64, bytes: u64) -> io::Result<()> {
        self.files.truncate(segment, bytes)
    }
    fn rewrite(&mut self, segment: u64, from: u64, to: u64) -> io::Result<()> {
        self.files.rewrite(segment, from, to)
    }
    fn secret(&mut self) -> io::Result<[u64; 2]> {
        self.files.secret()
    }
    fn erase(&mut self, segment: u64, offset: u64, bytes: usize) -> io::Result<()> {
        self.files.erase(segment, offset, bytes)
    }
    fn reopen(&mut self, segment: u64) -> io::Result<()> {
        self.files.reopen(segment)
    }
    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.files.remove(segment)?;
        if self.spans.remove(&segment).is_some() {
            self.order(Order::Trim { segment });
        }
        Ok(())
    }
    fn write(
        &mut self,
        segment: u64,
        offset: u64,
        bytes: &[u8],
        durable: bool,
        tag: u64,
    ) -> Started {
        let started = self.files.write(segment, offset, bytes, durable, tag);
        if tag == TAG_WRITE {
            self.note_written(segment, offset);
            match started {
                Started::Done(bytes) if bytes > 0 => {
                    self.note_written(segment, offset + bytes as u64);
                }
                Started::Done(_) => {}
                Started::Pending => self.writing = Some((segment, offset + bytes.len() as u64)),
            }
        }
        started
    }
    fn sync(&mut self, target: SyncTarget, tag: u64) -> Started {
        let SyncTarget::Segment(last) = target else { return Started::Done(0) };
        if self.give(last, tag) { Started::Pending } else { Started::Done(0) }
    }
    fn read(&mut self, segment: u64, offset: u64, into: &mut [u8], tag: u64) -> Started {
        self.files.read(segment, offset, into, tag)
    }
    fn seal(&mut self, segment: u64) {
        self.files.seal(segment);
    }
}
