//! PULL and PULLB: jobs on their way to a worker, at once or once there are some.

use super::job_view::write_delivery;
use super::pending_replies::Shape;
use crate::protocol::reply;
use crate::server::connection::reply_writer::{ReplyWriter, framed};
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use crate::server::storage::engine::Engine;
use corq_io::net::Connections;
use corq_shards::command::{Command, Pull};
use corq_shards::effect::{Delivery, Reply};
use std::ops::Range;

impl ShardServer {
    pub(super) fn pull(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        pull: &Pull<'_>,
        is_batch: bool,
    ) {
        let locked = pull.locked;
        let shape = if is_batch { Shape::Batch { locked } } else { Shape::Single { locked } };
        let mut caller = Self::caller(&ctx);
        // A pull that another shard sent on before it knew of the end must not hold the end up.
        let timeout_ms = if self.stopping { 0 } else { pull.timeout_ms };
        // Limits that pulls bring may have to be compared with all groups first, and then it waits.
        if timeout_ms > 0 || pull.group.is_some() || self.engine.shard.is_seeing(pull.queue) {
            caller.request = self.park(ctx.origin, ctx.req_id, shape);
        }
        let pull = Pull { timeout_ms, ..*pull };
        self.apply(conns, caller, &Command::Pull(pull));
        if let Some(Reply::Pulled(range)) = self.own_reply() {
            self.write_pulled(conns, ctx.origin, ctx.req_id, shape, range);
        }
    }

    pub(super) fn write_pulled(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        shape: Shape,
        range: Range<usize>,
    ) {
        let deliveries = std::mem::take(&mut self.effects.deliveries);
        self.respond(conns, origin, |engine, sink| {
            framed(sink, req_id, |sink| {
                write_deliveries(sink, engine, &deliveries[range], req_id, shape);
            });
        });
        self.effects.deliveries = deliveries;
    }
}

fn write_deliveries(
    sink: &mut ReplyWriter<'_>,
    engine: &Engine,
    deliveries: &[Delivery],
    req_id: Option<&[u8]>,
    shape: Shape,
) {
    let (is_batch, locked) = match shape {
        Shape::Batch { locked } => (true, locked),
        Shape::Single { locked } => (false, locked),
        Shape::Bulk | Shape::FreedKey | Shape::Ending => return,
    };
    let jobs = deliveries.len();
    let mut reply = reply::begin(sink.out, true, req_id);
    let mut writer = reply.key(if is_batch { "jobs" } else { "job" });
    if is_batch {
        writer.array(jobs);
    } else if jobs == 0 {
        writer.nil();
    }
    for one in deliveries {
        // A job that a call delivers outlives the call, see `Delivery`.
        match engine.shard.look(one.job) {
            Some(view) => write_delivery(&mut writer, engine, &view, sink.placeholders),
            None => writer.nil(),
        }
    }
    if !locked {
        return;
    }
    let mut writer = reply.key(if is_batch { "tokens" } else { "token" });
    if is_batch {
        writer.array(jobs);
    } else if jobs == 0 {
        writer.nil();
    }
    for token in deliveries.iter().filter_map(|delivery| delivery.token) {
        writer.uuid(token.0);
    }
}
