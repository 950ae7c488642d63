//! `GetCountsPerPriority`: a queue may have a row for each of two million priorities, so the answer is written slice
//! by slice, a slice a turn. Priorities that come, go or change meanwhile may or may not be in it as they are.

use crate::api::error::ErrorKind;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply::{self, Frame};
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::command::ClientId;
use corq_shards::queue::Queue;
use rmp::Marker;
use std::collections::VecDeque;

/// Rows written at a time.
const SLICE_ROWS: usize = 2000;

/// What a row takes, at most.
const ROW_BYTES_MAX: usize = 17;

/// An answer that is being written.
#[derive(Debug)]
pub struct PriorityCount {
    origin: Origin,
    req_id: Option<Box<[u8]>>,
    queue: Box<str>,
    /// The last priority that was written; they come from the highest on.
    after: Option<i32>,
    framing: Frame,
    reply: Vec<u8>,
    /// How many there are, and where that is to be said.
    rows: u32,
    rows_at: usize,
    /// What all of it is expected to take.
    expected_bytes: usize,
}

/// Those of a shard, each in its turn. One per command, so the connections bound their number.
pub type PriorityCounts = VecDeque<PriorityCount>;

impl ShardServer {
    /// Begins an answer; most are complete with their first slice.
    pub(crate) fn priority_counts(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
    ) {
        let mut reply = Vec::new();
        let framing = Frame::begin(&mut reply);
        let mut writer = reply::head(&mut reply, true, ctx.req_id, 2);
        writer.str("queue");
        writer.str(queue);
        writer.str("counts");
        // Their number comes at the end.
        writer.raw(&[Marker::Map32.to_u8(), 0, 0, 0, 0]);
        let rows_at = reply.len() - 4;
        let most = self.engine.shard.queue(queue).map_or(0, Queue::priorities_max);
        let counting = PriorityCount {
            origin: ctx.origin,
            req_id: ctx.req_id.map(Into::into),
            queue: queue.into(),
            after: None,
            framing,
            reply,
            rows: 0,
            rows_at,
            expected_bytes: most * ROW_BYTES_MAX,
        };
        self.large_replies.note_begun(counting.expected_bytes);
        if let Some(counting) = self.count_on(conns, counting) {
            self.deferred(ctx.origin);
            self.priority_counts.push_back(counting);
        }
    }

    /// One slice of the answer whose turn it is. True if there is more to do.
    pub(crate) fn count_in_turn(&mut self, conns: &mut Connections) -> bool {
        let Some(counting) = self.priority_counts.pop_front() else { return false };
        let origin = counting.origin;
        match self.count_on(conns, counting) {
            Some(counting) => self.priority_counts.push_back(counting),
            None => self.answered(origin),
        }
        !self.priority_counts.is_empty()
    }

    fn count_on(
        &mut self,
        conns: &mut Connections,
        mut counting: PriorityCount,
    ) -> Option<PriorityCount> {
        let queue = self.engine.shard.queue(&counting.queue);
        let rows = queue.map_or(vec![], |queue| queue.priorities(counting.after, SLICE_ROWS));
        self.meter.note(rows.len());
        let mut writer = Writer::new(&mut counting.reply);
        for &(priority, jobs) in &rows {
            writer.str(&priority.to_string());
            writer.uint(jobs);
        }
        counting.rows += rows.len() as u32;
        if rows.len() == SLICE_ROWS {
            counting.after = rows.last().map(|&(priority, _)| priority);
            return Some(counting);
        }
        let PriorityCount {
            origin, req_id, framing, mut reply, rows, rows_at, expected_bytes, ..
        } = counting;
        self.large_replies.note_shown(expected_bytes);
        reply[rows_at..rows_at + 4].copy_from_slice(&rows.to_be_bytes());
        if framing.finish(&mut reply).is_err() {
            self.refuse(conns, origin, req_id.as_deref(), ErrorKind::ReplyTooLarge);
        } else {
            self.send_whole(conns, origin, reply);
        }
        None
    }

    /// Ends the answers to a client that is gone.
    pub(crate) fn stop_counting(&mut self, client: ClientId) {
        self.priority_counts.retain(|counting| {
            let stays = counting.origin.client != client;
            if !stays {
                self.large_replies.note_shown(counting.expected_bytes);
            }
            stays
        });
    }
}
