//! `SubscribeEvents` and `UnsubscribeEvents`: a connection of frames that listens to the events of one queue beside
//! what it asks. How events come to it is not known here.

use super::shared_buffer::Form;
use crate::api::error::ErrorKind;
use crate::protocol::reply;
use crate::server::connection::protocol::Protocol;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};

/// Refuses a subscription on a connection of another kind.
impl ShardServer {
    /// `SubscribeEvents`: the answer comes once every later event will reach the client. One queue per connection: another
    /// subscription ends the one before.
    pub(crate) fn subscribe(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: &str,
    ) {
        let conn = ctx.origin.conn;
        if self.sessions.protocol(conn) != Some(Protocol::Frames) {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::SubscribeOverTcp);
            return;
        }
        self.end_subscription(conns, conn);
        self.deferred(ctx.origin);
        let mut hello = Vec::new();
        reply::ok(&mut hello, ctx.req_id);
        self.open_stream(conns, conn, Form::Frames, Some(queue), hello);
    }

    /// Answers `UnsubscribeEvents`.
    pub(crate) fn unsubscribe(&mut self, conns: &mut Connections, ctx: RequestContext<'_>) {
        if self.sessions.protocol(ctx.origin.conn) != Some(Protocol::Frames) {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::SubscribeOverTcp);
            return;
        }
        self.end_subscription(conns, ctx.origin.conn);
        self.respond(conns, ctx.origin, |_, sink| reply::ok(sink.out, ctx.req_id));
    }

    fn end_subscription(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(key) = self.sessions.get(conn).and_then(|session| session.stream.take()) else {
            return;
        };
        if let Some(hello) = self.subscribers.end_opening(key) {
            // It did not wait for the answer, and gets it all the same.
            if let Some(out) = conns.output(conn) {
                out.extend_from_slice(&hello);
                self.touch(conn);
            }
            let origin = self.origin(conn);
            self.answered(origin);
        }
        self.close_stream(key);
    }
}
