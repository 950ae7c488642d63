//! `WaitJob`: parked until its job ends, its time is over or its connection goes.

use super::pending_replies::Shape;
use crate::api::request::JobRef;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::connection::reply_writer::{Placeholder, ReplyWriter};
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::request_context::{Lookup, RequestContext};
use crate::server::shard_server::ShardServer;
use crate::server::storage::engine::{Engine, Records};
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::Command;
use corq_shards::effect::Ending;
use corq_shards::job::State;
use corq_shards::job::id::JobId;
use corq_shards::log_record::location::LogRef;

impl ShardServer {
    /// Begins to wait; a job that has ended is answered for at once.
    pub(crate) fn wait_job(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
        timeout_ms: u64,
    ) {
        let job = match self.gone_with_its_end(&ctx, job) {
            Some(job) => job,
            None => match self.id_or_forward(conns, ctx, job) {
                Some(job) => job,
                None => return,
            },
        };
        let request = self.park(ctx.origin, ctx.req_id, Shape::Ending);
        let caller = Caller { request, ..Self::caller(&ctx) };
        self.apply(conns, caller, &Command::AwaitEnd { job, timeout_ms });
    }

    /// The job of an id of which is remembered how it ended, though the job went: no name needs to be looked up for it. The
    /// queue of such a job is not known, so a client of some queues learns nothing of it.
    fn gone_with_its_end(&mut self, ctx: &RequestContext<'_>, job: JobRef<'_>) -> Option<JobId> {
        let JobRef::Id(id) = job else { return None };
        let may_know = ctx.lookup == Lookup::Fresh && ctx.origin.scope.is_none();
        (may_know && self.engine.shard.remembered_end(id).is_some()).then_some(id)
    }

    /// Answers a wait: with the job's end, or with `None` if it has not come in time.
    pub(crate) fn write_ending(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        ending: Option<Ending>,
    ) {
        self.respond(conns, origin, |engine, sink| {
            framed(sink, req_id, |sink| write_ending(sink, engine, req_id, ending));
        });
    }
}

fn write_ending(
    sink: &mut ReplyWriter<'_>,
    engine: &Engine,
    req_id: Option<&[u8]>,
    ending: Option<Ending>,
) {
    write_ending_head(sink.out, req_id, ending);
    let mut writer = Writer::new(sink.out);
    // Most endings have just been written; those that have not leave a hole, like a cold payload.
    let mut payload =
        |writer: &mut Writer<'_>, stored: LogRef| match Records::new(&engine.journal, &[])
            .payload(&stored)
        {
            Ok(payload) => writer.raw(payload),
            Err(_) => {
                let at = writer.raw_hole(stored.payload_bytes as usize);
                sink.placeholders.push(Placeholder { at, stored, tags: None });
            }
        };
    match ending {
        None => {}
        Some(Ending::Completed(stored)) if stored.payload_bytes == 0 => writer.nil(),
        Some(Ending::Completed(stored)) => payload(&mut writer, stored),
        Some(Ending::Failed(stored)) if stored == LogRef::default() => {
            writer.str("Job failed and was removed");
        }
        Some(Ending::Failed(stored)) => {
            writer.str_head(stored.payload_bytes as usize);
            payload(&mut writer, stored);
        }
        Some(Ending::Removed) => writer.str("Job removed"),
    }
}

/// Writes the answer to `WaitJob` up to its last value, if it has one.
pub(crate) fn write_ending_head(out: &mut Vec<u8>, req_id: Option<&[u8]>, ending: Option<Ending>) {
    let mut reply = reply::begin(out, true, req_id);
    reply.key("completed").bool(matches!(ending, Some(Ending::Completed(_))));
    match ending {
        None => {}
        Some(Ending::Completed(_)) => {
            reply.key("result");
        }
        Some(Ending::Failed(_) | Ending::Removed) => {
            let failed = matches!(ending, Some(Ending::Failed(_)));
            reply.key("state").str(if failed { State::Failed.name() } else { "removed" });
            reply.key("error");
        }
    }
}
