//! ACK of one job of this shard.

use crate::api::request::{Answer, JobRef};
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::command::{Ack, Command, Token};

impl ShardServer {
    pub(super) fn ack(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
        token: Option<Token>,
        result: &[u8],
        remove: bool,
    ) {
        if let Some(id) = self.id_or_forward(conns, ctx, job) {
            let token = ctx.origin.token(token);
            let acks = [Ack { job: id, token, result, remove }];
            self.apply(conns, Self::caller(&ctx), &Command::Ack { acks: &acks });
            self.answer_on_job(conns, ctx, job, Answer::Ok);
        }
    }
}
