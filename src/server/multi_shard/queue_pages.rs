//! `ListQueues` with fields: a sorted page of the queues of all shards. Each shard looks at some of its queues a message, so no
//! number of queues holds a turn.

use super::messages::LIST_RESERVE_BYTES;
use super::queue_rows::{QueueMessage, QueueRows, QueueSpec, QueueTask, RowKey};
use super::row_lists::Kind as Rows;
use super::task::Task;
use crate::api::error::ErrorKind;
use crate::api::listing::QueuePage;
use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::shard_mail::envelope::Step;
use crate::server::shard_mail::message::Message;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use std::sync::Arc;

/// Queues that are looked at for one message. Some twenty to fifty microseconds, as each may be cold and have its oldest job
/// looked up: a page of 10,000 queues then takes many short turns, and requests that come meanwhile wait for one.
const PAGE_LOOKS: usize = 250;

impl ShardServer {
    /// Answers `ListQueues`.
    pub(crate) fn list_queues(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        page: Option<&QueuePage<'_>>,
    ) {
        let Some(page) = page else {
            self.list_rows(conns, ctx, Rows::Queues);
            return;
        };
        if page.after.is_some() && page.behind().is_none() {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::UnknownCursor);
            return;
        }
        self.deferred(ctx.origin);
        let (spec, shards) = (Arc::new(QueueSpec::of(page, ctx.origin.scope)), self.slots.shards());
        let (origin, req_id) = (ctx.origin, ctx.req_id.map(Into::into));
        let (left, rows) = (shards, QueueRows::default());
        let task = QueueTask { origin, req_id, spec: Arc::clone(&spec), left, rows };
        self.large_replies.reserve(LIST_RESERVE_BYTES);
        let step = self.tasks.start(self.me, Task::Queues(task));
        for dest in 0..shards {
            self.ask_queues(step, dest, &spec, (0, None));
        }
    }

    fn ask_queues(
        &mut self,
        step: Step,
        dest: usize,
        spec: &Arc<QueueSpec>,
        (from, below): (u32, Option<RowKey>),
    ) {
        let (spec, below) = (Arc::clone(spec), below.map(Box::new));
        let message = QueueMessage::Ask { step, spec, from, below };
        self.outbox.immediate(dest).messages.push(Message::Queues(message));
    }

    /// Messages about it.
    pub(crate) fn read_queue_message(&mut self, conns: &mut Connections, message: &QueueMessage) {
        match message {
            QueueMessage::Ask { step, spec, from, below } => {
                let mut rows = QueueRows::before(below.as_deref().cloned());
                let (mut looks, mut next) = (0, None);
                let shard = &self.engine.shard;
                for (index, queue) in shard.queues_from(*from) {
                    if looks == PAGE_LOOKS {
                        next = Some(index);
                        break;
                    }
                    looks += 1;
                    if let Some(queue) = queue {
                        spec.add(shard, queue, self.now_ms, &mut rows);
                    }
                }
                self.meter.note(1 + looks + rows.count());
                let (from, rows) = (self.me as u16, rows.into_rows().collect());
                let message = QueueMessage::Page { step: *step, from, rows, next };
                let dest = usize::from(step.shard);
                self.outbox.after_commit(dest).messages.push(Message::Queues(message));
            }
            QueueMessage::Page { step, from, rows, next } => {
                self.meter.note(rows.len());
                let Some(Task::Queues(task)) = self.tasks.get(*step) else { return };
                for (key, row) in rows {
                    task.rows.add(key.clone(), row.clone(), task.spec.limit + 1);
                }
                if let Some(next) = next {
                    let spec = Arc::clone(&task.spec);
                    let below = task.rows.full_from(spec.limit + 1);
                    self.ask_queues(*step, usize::from(*from), &spec, (*next, below));
                    return;
                }
                task.left -= 1;
                if task.left == 0 {
                    self.send_queues(conns, *step);
                }
            }
        }
    }

    fn send_queues(&mut self, conns: &mut Connections, step: Step) {
        let Some(Task::Queues(mut task)) = self.tasks.end(step) else { return };
        self.large_replies.release(LIST_RESERVE_BYTES);
        let (origin, req_id) = (task.origin, task.req_id.take());
        self.answered(origin);
        self.respond(conns, origin, |_, sink| {
            framed(sink, req_id.as_deref(), |sink| {
                task.write(&mut reply::begin(sink.out, true, req_id.as_deref()));
            });
        });
    }
}
