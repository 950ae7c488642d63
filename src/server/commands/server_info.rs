//! Commands that any shard can answer.

use crate::api::error::ErrorKind;
use crate::api::{PROTOCOL_VERSION, PROTOCOL_VERSION_MIN};
use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;

impl ShardServer {
    /// `Auth`, which any connection may send.
    pub(crate) fn authenticate(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        token: &str,
    ) {
        let accepted = self.guard.accepts(token);
        self.note_trust(ctx.origin.conn, accepted);
        if accepted {
            self.respond(conns, ctx.origin, |_, sink| reply::ok(sink.out, ctx.req_id));
        } else {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::InvalidToken);
        }
    }

    /// Both versions are spoken at once: which one is answered only tells the client what it may expect.
    pub(crate) fn hello(&mut self, conns: &mut Connections, ctx: RequestContext<'_>, version: u64) {
        let version = version.clamp(PROTOCOL_VERSION_MIN, PROTOCOL_VERSION);
        let capabilities: &[&str] = match version {
            PROTOCOL_VERSION_MIN => &["pipelining"],
            _ => &["pipelining", "separate-job-name"],
        };
        self.respond(conns, ctx.origin, |_, sink| {
            framed(sink, ctx.req_id, |sink| {
                let mut writer = reply::head(sink.out, true, ctx.req_id, 4);
                writer.str("protocolVersion");
                writer.uint(version);
                writer.str("capabilities");
                writer.array(capabilities.len());
                for capability in capabilities {
                    writer.str(capability);
                }
                writer.str("server");
                writer.str("corq");
                writer.str("version");
                writer.str(env!("CARGO_PKG_VERSION"));
            });
        });
    }

    /// Answers `Ping`.
    pub(crate) fn ping(&mut self, conns: &mut Connections, ctx: RequestContext<'_>) {
        let now_ms = self.now_ms;
        self.respond(conns, ctx.origin, |_, sink| {
            framed(sink, ctx.req_id, |sink| {
                let mut writer = reply::head(sink.out, true, ctx.req_id, 1);
                writer.str("data");
                writer.map(2);
                writer.str("pong");
                writer.bool(true);
                writer.str("time");
                writer.uint(now_ms);
            });
        });
    }
}
