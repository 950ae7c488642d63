//! `GetCountsPerPriority`: a queue may have a row for each of two million priorities, so the answer is written slice
//! by slice, a slice a turn. Priorities that come, go or change meanwhile may or may not be in it as they are.

use crate::api::limits::PRIORITY_MAX;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply::{self, Frame};
use crate::server::operations::operation::{Operation, PriorityCount, Sliced};
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::job::State;
use corq_shards::queue::Queue;
use corq_shards::queue::listing::DelayedCount;
use rmp::Marker;

/// Rows written at a time.
const SLICE_ROWS: usize = 2000;

/// Priorities that there are.
const PRIORITIES_MAX: usize = 2 * PRIORITY_MAX as usize + 1;

/// Looks at jobs, for each step.
const LOOKS_PER_STEP: usize = corq_shards::query::LOOKS_PER_STEP as usize;

/// Most bytes of a row.
const ROW_BYTES_MAX: usize = 17;

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
        let mut map = reply::begin(&mut reply, true, ctx.req_id);
        map.key("queue").str(queue);
        // Written over several turns: their number comes at the end.
        map.key("counts").raw(&[Marker::Map32.to_u8(), 0, 0, 0, 0]);
        drop(map);
        let rows_at = reply.len() - 4;
        let about = self.engine.shard.queue(queue);
        let mut most = about.map_or(0, Queue::priorities_max);
        let has_delayed = ctx.origin.version.is_three();
        if has_delayed {
            let delayed = about.map_or(0, |queue| queue.count(State::Delayed));
            most += PRIORITIES_MAX.min(delayed as usize);
        }
        let counting = PriorityCount {
            origin: ctx.origin,
            req_id: ctx.req_id.map(Into::into),
            queue: queue.into(),
            delayed: has_delayed.then(|| DelayedCount::new(queue)),
            are_delayed_counted: !has_delayed,
            after: None,
            framing,
            reply,
            rows: 0,
            rows_at,
            expected_bytes: most * ROW_BYTES_MAX,
        };
        self.begin_operation(conns, Operation::Priorities(Box::new(counting)));
    }

    /// Writes the next slice.
    pub(crate) fn count_on(
        &mut self,
        conns: &mut Connections,
        mut counting: Box<PriorityCount>,
    ) -> Sliced {
        if !counting.are_delayed_counted
            && let Some(delayed) = &mut counting.delayed
        {
            let (is_over, looks) = self.engine.shard.count_delayed(delayed);
            self.meter.note(looks / LOOKS_PER_STEP);
            counting.are_delayed_counted = is_over;
            if !is_over {
                return Sliced::More(Operation::Priorities(counting));
            }
        }
        let queue = self.engine.shard.queue(&counting.queue);
        let mut rows = queue.map_or(vec![], |queue| queue.priorities(counting.after, SLICE_ROWS));
        if let Some(delayed) = &counting.delayed {
            rows = delayed.with(rows, counting.after, SLICE_ROWS);
        }
        self.meter.note(rows.len());
        let mut writer = Writer::new(&mut counting.reply);
        for &(priority, jobs) in &rows {
            writer.str(&priority.to_string());
            writer.uint(jobs);
        }
        counting.rows += rows.len() as u32;
        if rows.len() == SLICE_ROWS {
            counting.after = rows.last().map(|&(priority, _)| priority);
            return Sliced::More(Operation::Priorities(counting));
        }
        let PriorityCount { origin, req_id, framing, mut reply, rows, rows_at, .. } = *counting;
        reply[rows_at..rows_at + 4].copy_from_slice(&rows.to_be_bytes());
        self.end_with_frame(conns, (origin, req_id.as_deref()), framing, reply)
    }
}
