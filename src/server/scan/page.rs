//! A page of jobs under way: which jobs are looked for, how far the search is, and the rows so far.
//!
//! A ground type: of the server it imports ground types only.

use super::matching::Sought;
use super::row::RowForm;
use crate::api::listing::ScanCursor;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply;
use crate::server::shard_mail::envelope::Origin;
use corq_shards::queue::scan::{Found, Range, Scan};
use std::collections::VecDeque;

/// A page of jobs that is being put together.
#[derive(Debug)]
pub struct JobScan {
    pub origin: Origin,
    pub req_id: Option<Box<[u8]>>,
    pub scan: Scan,
    pub sought: Sought,
    pub form: RowForm,
    pub limit: usize,
    /// When it ends with what it has.
    pub until_ms: u64,
    /// Jobs that were found and have yet to be looked at.
    pub pending: VecDeque<Found>,
    /// How many the slice that found them had looked at, and how many of them are covered.
    pub slice_looked: u64,
    pub slice_covered: u64,
    /// Where another scan would go on: behind the last job that was looked at.
    pub resume: Range,
    /// Whether there are no more.
    pub is_done: bool,
    pub rows: Vec<Vec<u8>>,
    pub count: usize,
    pub bytes: usize,
    pub covered: Covered,
    /// Whether it is a search, which says what it has covered.
    pub is_search: bool,
}

/// The work of a search so far, as its reply reports it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Covered {
    /// Jobs in memory.
    pub jobs: u64,
    /// Records of them.
    pub records: u64,
    /// Payloads that were looked at in part.
    pub partly: u64,
    /// Records that could not be read.
    pub damaged: u64,
}

impl JobScan {
    /// Notes that so many jobs of the slice are covered: the next page starts behind them.
    pub fn cover(&mut self, looked: u64) {
        self.covered.jobs += looked - self.slice_covered;
        self.slice_covered = looked;
    }

    /// A job was looked at.
    pub fn passed(&mut self, found: Found) {
        self.cover(found.looked);
        self.resume.go_behind(found);
    }

    /// Where the next page begins; `None` if there is none. `here` is this shard, how many there are, and since when it runs.
    fn next(&self, (me, shards, started_ms): (usize, usize, u64)) -> Option<ScanCursor> {
        let range = if self.pending.is_empty() { &self.scan.range } else { &self.resume };
        let is_done = self.is_done && self.pending.is_empty();
        match range {
            Range::Queue { .. } if is_done => None,
            Range::Queue { after, .. } => after.map(ScanCursor::Behind),
            Range::All { .. } if is_done => {
                (me + 1 < shards).then_some(ScanCursor::At { shard: me + 1, from: None })
            }
            Range::All { next } => {
                Some(ScanCursor::At { shard: me, from: Some((started_ms, *next)) })
            }
        }
    }

    /// The reply, in pieces.
    pub fn framed(&mut self, here: (usize, usize, u64)) -> Vec<Vec<u8>> {
        let next = self.next(here);
        let mut head = Vec::new();
        let mut reply = reply::begin(&mut head, true, self.req_id.as_deref());
        reply.key("jobs").array(self.count);
        // The fields behind the jobs are written to a piece of their own.
        reply.count_later(1 + u16::from(self.is_search));
        drop(reply);
        let mut tail = Vec::new();
        let mut writer = Writer::new(&mut tail);
        writer.str("next");
        match next {
            Some(cursor) => writer.str(&cursor.to_string()),
            None => writer.nil(),
        }
        if self.is_search {
            writer.str("covered");
            let mut covered = writer.begin_map();
            covered.key("jobs").uint(self.covered.jobs);
            covered.key("records").uint(self.covered.records);
            covered.key("partly").uint(self.covered.partly);
            covered.key("damaged").uint(self.covered.damaged);
            covered.key("shard").uint(here.0 as u64);
            covered.key("shards").uint(here.1 as u64);
            covered.key("done").bool(next.is_none());
        }
        let mut pieces = std::mem::take(&mut self.rows);
        pieces.insert(0, head);
        pieces.push(tail);
        pieces
    }
}
