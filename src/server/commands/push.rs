//! PUSH and PUSHB: new jobs of a queue of this shard.

use super::job_view::write_pushed;
use super::refusal::group_full;
use crate::api::request::JobRef;
use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::multi_shard::custom_ids::{known_of, write_known};
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::command::Command;
use corq_shards::effect::{Refusal, Reply};
use corq_shards::job::new_job::NewJob;

impl ShardServer {
    pub(super) fn push(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
        jobs: &[NewJob<'_>],
        is_batch: bool,
    ) {
        self.apply(conns, Self::caller(&ctx), &Command::Push { queue, jobs });
        let pushed = match self.own_reply() {
            Some(Reply::Pushed(pushed)) => pushed,
            Some(Reply::Refused { place, refusal: Refusal::GroupFull }) => {
                let error = group_full(jobs.get(place), is_batch.then_some(place));
                self.refuse(conns, ctx.origin, ctx.req_id, &error);
                return;
            }
            Some(Reply::Refused { refusal, .. }) => {
                self.refuse_push(conns, ctx.origin, ctx.req_id, refusal, jobs.len());
                return;
            }
            _ => return,
        };
        // Take one of the ten lists of effects: to move all of them costs more than the reply.
        let made = std::mem::take(&mut self.effects.pushed);
        let jobs = &made[pushed];
        self.respond(conns, ctx.origin, |_, sink| {
            if is_batch {
                framed(sink, ctx.req_id, |sink| {
                    let mut reply = reply::begin(sink.out, true, ctx.req_id);
                    let mut ids = reply.key("ids");
                    ids.array(jobs.len());
                    for job in jobs {
                        write_pushed(&mut ids, job);
                    }
                    write_known(&mut reply, known_of(&[], jobs));
                });
            } else {
                framed(sink, ctx.req_id, |sink| {
                    let mut reply = reply::begin(sink.out, true, ctx.req_id);
                    let mut id = reply.key("id");
                    for job in jobs {
                        write_pushed(&mut id, job);
                    }
                });
            }
        });
        self.effects.pushed = made;
    }

    /// The log has no room for a push.
    pub(crate) fn refuse_push(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        refusal: Refusal,
        jobs: usize,
    ) {
        self.compaction.refused_pushes += jobs as u64;
        let error = self.refusal_error(refusal, JobRef::Custom(""));
        self.refuse(conns, origin, req_id, &error);
    }
}
