//! Groups of dead letters by their errors: `DlqGroups`. The dead letters of a queue, or of one shard after the other, are
//! looked at in slices, one a turn, the first as well. A shard hands on what it has counted, so that the shards need not be
//! merged. Where it begins there is room reserved for it as for a list, until it is answered or given up: so few are under
//! way at a time, and others wait in their frames.

use super::error_groups::{GroupScan, Groups};
use super::messages::BulkMessage;
use crate::api::request::Grouping;
use crate::protocol::reply;
use crate::server::commands::job_view::buried_of;
use crate::server::connection::reply_writer::framed;
use crate::server::multi_shard::messages::LIST_RESERVE_BYTES;
use crate::server::operations::operation::{Operation, Sliced};
use crate::server::scan::turns::{SLICE_JOBS, SLICE_LOOKS};
use crate::server::shard_mail::message::Message;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use crate::server::storage::engine::{Engine, Fetched, Records};
use corq_io::net::Connections;
use corq_shards::job::State;
use corq_shards::query::LOOKS_PER_STEP;
use corq_shards::queue::listing::States;
use corq_shards::queue::scan::{Found, Range, Scan, Wanted};
use std::collections::VecDeque;

impl ShardServer {
    /// Answers `DlqGroups`.
    pub(crate) fn group_dead_letters(
        &mut self,
        _: &mut Connections,
        ctx: RequestContext<'_>,
        queue: Option<&str>,
        by: Grouping,
        limit: u32,
    ) {
        let Grouping::Error = by;
        let range = match queue {
            Some(name) => Range::Queue { name: name.into(), newest_first: false, after: None },
            None => Range::All { next: 0 },
        };
        let states = States::from_iter([State::Failed]);
        let scan = GroupScan {
            origin: ctx.origin,
            req_id: ctx.req_id.map(Into::into),
            scan: Scan { wanted: Wanted { states, ..Wanted::default() }, range },
            pending: VecDeque::new(),
            is_done: false,
            groups: Groups::default(),
            limit: limit as usize,
            begun_at: self.me as u16,
        };
        self.large_replies.reserve(LIST_RESERVE_BYTES);
        self.queue_operation(Operation::Groups(Box::new(scan)));
    }

    /// Groups that began at a shard are answered, or given up: what was reserved for them there is free.
    pub(crate) fn release_groups(&mut self, begun_at: u16) {
        if usize::from(begun_at) == self.me {
            self.large_replies.release(LIST_RESERVE_BYTES);
        } else {
            let message = Message::Bulk(BulkMessage::GroupsEnded);
            self.outbox.after_commit(usize::from(begun_at)).messages.push(message);
        }
    }

    /// Goes on with groups. `fetched` holds records that had to be read for it first.
    pub(crate) fn group_on(
        &mut self,
        conns: &mut Connections,
        mut scan: Box<GroupScan>,
        fetched: Vec<Fetched>,
    ) -> Sliced {
        if scan.pending.is_empty() && !scan.is_done {
            let slice = self.engine.shard.scan_jobs(&mut scan.scan, SLICE_JOBS, SLICE_LOOKS);
            self.meter.note((slice.looked / LOOKS_PER_STEP) as usize + slice.found.len());
            scan.is_done = slice.is_done;
            scan.pending = slice.found.into();
        }
        let (jobs, missing) = self.next_at_hand(&scan.pending, &fetched, |view, needs| {
            needs.extend(view.outcome.map(|end| end.stored));
        });
        if !missing.is_empty() {
            return Sliced::Reads(Operation::Groups(scan), missing, fetched);
        }
        for found in jobs {
            scan.pending.pop_front();
            count_in_group(&self.engine, &mut scan, found, &fetched);
        }
        if !scan.is_done || !scan.pending.is_empty() {
            return Sliced::More(Operation::Groups(scan));
        }
        let next = self.me + 1;
        if matches!(scan.scan.range, Range::All { .. }) && next < self.slots.shards() {
            (scan.scan.range, scan.is_done) = (Range::All { next: 0 }, false);
            self.deferred(scan.origin);
            let message = Message::Bulk(BulkMessage::Groups(scan));
            self.outbox.after_commit(next).messages.push(message);
            return Sliced::Done;
        }
        self.show_groups(conns, &scan);
        self.release_groups(scan.begun_at);
        Sliced::Done
    }

    fn show_groups(&mut self, conns: &mut Connections, scan: &GroupScan) {
        let (largest, others) = scan.groups.largest(scan.limit);
        self.meter.note(scan.groups.by_text.len());
        let bytes = largest.iter().map(|(text, group)| text.len() + group.queue.len()).sum();
        self.note_large_answer(usize::from(scan.origin.shard), bytes);
        let req_id = scan.req_id.as_deref();
        self.respond(conns, scan.origin, |_, sink| {
            framed(sink, req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, req_id);
                let mut list = reply.key("groups");
                list.array(largest.len());
                for (text, group) in &largest {
                    let mut entry = list.begin_map();
                    entry.key("error").str(text);
                    entry.key("count").uint(group.count);
                    entry.key("oldest").uint(group.oldest_ms);
                    entry.key("newest").uint(group.newest_ms);
                    entry.key("sample").uuid(group.sample.0);
                    entry.key("queue").str(&group.queue);
                }
                reply.key("total").uint(scan.groups.total);
                reply.key("others").uint(others);
                reply.key("damaged").uint(scan.groups.damaged);
            });
        });
    }
}

fn count_in_group(engine: &Engine, scan: &mut GroupScan, found: Found, fetched: &[Fetched]) {
    let shard = &engine.shard;
    let is_there = shard.is_still_wanted(found, &scan.scan.wanted);
    let Some(index) = shard.find(found.id).filter(|_| is_there) else { return };
    let view = shard.view(index);
    let Some(end) = view.outcome else { return };
    let records = Records::new(&engine.journal, fetched);
    scan.groups.total += 1;
    match records.record(&end.stored).and_then(buried_of) {
        Ok(buried) => {
            scan.groups.add(buried.error, end.finished_at_ms, found.id, view.queue);
        }
        Err(_) => scan.groups.damaged += 1,
    }
}
