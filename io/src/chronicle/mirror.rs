//! How far the segments of a log have been written, and how far that has been given to the scribe of its rows: what is
//! written since is a row with the next sync, and the sync is done when the database has committed it.

use super::scribe::{Calls, Order, Scribe, Wire};
use crate::log::{Started, SyncTarget, TAG_WRITE};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

/// The tag of what no sync waits for.
const NOBODYS_TAG: u64 = u64::MAX;

/// Offsets in the file of a segment.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    written: u64,
    given: u64,
}

/// The rows of a log that lies in local files.
#[derive(Debug)]
pub struct Mirror {
    wire: Wire,
    spans: BTreeMap<u64, Span>,
    /// The write of blocks that the ring does: its segment, and where it ends.
    writing: Option<(u64, u64)>,
    /// Orders that are not committed yet.
    ordered: usize,
    /// Tags of syncs that were committed while something else was waited for.
    early: VecDeque<u64>,
}

impl Mirror {
    /// The rows that this scribe writes.
    pub fn new(scribe: Scribe, calls: Calls) -> io::Result<Self> {
        let spans =
            scribe.ends().map(|(segment, end)| (segment, Span { written: end, given: end }));
        let spans = spans.collect();
        let (wire, early) = (scribe.start(calls)?, VecDeque::new());
        Ok(Self { wire, spans, writing: None, ordered: 0, early })
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

    /// Whether all that was given is committed, which is waited for so long.
    pub fn is_committed(&mut self, limit: Duration) -> bool {
        while self.ordered > 0 {
            let Ok(done) = self.wire.done.recv_timeout(limit) else { return false };
            self.ordered -= 1;
            self.early.extend(Some(done).filter(|&done| done != NOBODYS_TAG));
        }
        true
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

    /// A write to a segment has begun, or is done.
    pub(crate) fn wrote(
        &mut self,
        segment: u64,
        offset: u64,
        bytes: usize,
        tag: u64,
        how: Started,
    ) {
        // Marks of the file itself have other tags: they are no part of the log.
        if tag != TAG_WRITE {
            return;
        }
        let end = match how {
            Started::Done(done) => offset + done.max(0) as u64,
            Started::Pending => {
                self.writing = Some((segment, offset + bytes as u64));
                offset
            }
        };
        self.note_written(segment, end);
    }

    /// An operation of the ring is over.
    pub(crate) fn ended(&mut self, tag: u64) {
        if tag == TAG_WRITE
            && let Some((segment, end)) = self.writing.take()
        {
            // A write that was short goes on at once, where it stopped.
            self.note_written(segment, end);
        }
    }

    /// A sync, which is done with the commit.
    pub(crate) fn sync(&mut self, target: SyncTarget, tag: u64) -> Started {
        match target {
            SyncTarget::Segment(last) if self.give(last, tag) => Started::Pending,
            // Names of files are no part of the log.
            SyncTarget::Segment(_) | SyncTarget::Directory => Started::Done(0),
        }
    }

    /// A segment is needed no more.
    pub(crate) fn forget(&mut self, segment: u64) {
        if self.spans.remove(&segment).is_some() {
            self.order(Order::Trim { segment });
        }
    }

    /// The tag of a sync that has been committed.
    pub(crate) fn take_done(&mut self) -> Option<u64> {
        if let Some(done) = self.early.pop_front() {
            return Some(done);
        }
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
