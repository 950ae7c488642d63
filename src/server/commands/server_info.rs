//! Commands that any shard can answer.

use crate::api::access::Role;
use crate::api::error::ErrorKind;
use crate::api::version::Version;
use crate::protocol::reply;
use crate::server::access::shown::{Access, Shown};
use crate::server::access::slowed::{RefusalTime, RefusedBy};
use crate::server::connection::deadlines::refuse_token;
use crate::server::connection::reply_writer::framed;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::memory;
use corq_io::net::Connections;

impl ShardServer {
    /// `Auth`, which any connection may send.
    pub(crate) fn authenticate(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        token: &str,
    ) {
        let access = self.access.by_token(token);
        self.access.failures += u64::from(access.is_none());
        self.audit_auth(conns, ctx.origin.conn, access);
        // Without tokens one says nothing: what a connection may do stays as it is.
        if self.access.is_on()
            && let Some(session) = self.sessions.get(ctx.origin.conn)
        {
            session.access = access.unwrap_or_default();
        }
        self.note_trust(ctx.origin.conn, access.is_some());
        if access.is_some() {
            self.follow_stream(conns, ctx.origin.conn);
        }
        if access.is_some() {
            self.respond(conns, ctx.origin, |_, sink| reply::ok(sink.out, ctx.req_id));
            return;
        }
        let RequestContext { origin, req_id, .. } = ctx;
        let refused = RefusedBy::Auth(req_id.map(Into::into));
        if refuse_token(self, conns, origin, refused) == RefusalTime::Now {
            self.refuse(conns, origin, req_id, ErrorKind::InvalidToken);
        }
    }

    /// Answers `Whoami`: what the client may do, and by what it is known.
    pub(crate) fn whoami(&mut self, conns: &mut Connections, ctx: RequestContext<'_>) {
        let session = self.sessions.get(ctx.origin.conn);
        let Access { grant, shown } = session.map(|session| session.access).unwrap_or_default();
        let name = self.access.name_of(shown, self.now_ms);
        self.respond(conns, ctx.origin, |_, sink| {
            framed(sink, ctx.req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, ctx.req_id);
                let mut data = reply.map("data");
                data.key("role").str(grant.role.name());
                data.key("readOnly").bool(grant.looks_on || grant.role == Role::Read);
                match shown {
                    Shown::Nothing => data.key("by").str("nothing"),
                    Shown::Token(_) => data.key("by").str("token"),
                    Shown::Session { until_ms, .. } => {
                        data.key("by").str("session");
                        data.key("expiresAt").uint(until_ms);
                    }
                }
                if let Some(name) = name {
                    data.key("tokenName").str(name.as_str());
                }
                if let Some(queues) = grant.queues {
                    let queues: Vec<&str> = queues.iter().collect();
                    data.key("queues").strs(&queues);
                }
            });
        });
    }

    /// `Hello`, which settles what its connection speaks from the next command on.
    pub(crate) fn hello(&mut self, conns: &mut Connections, ctx: RequestContext<'_>, asked: u64) {
        let version = Version::answering(asked);
        self.sessions.settle_version(ctx.origin.conn, version);
        let capabilities: &[&str] = match version {
            Version::Two => &["pipelining"],
            Version::Three => &["pipelining", "separate-job-name"],
        };
        self.respond(conns, ctx.origin, |_, sink| {
            framed(sink, ctx.req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, ctx.req_id);
                reply.key("protocolVersion").uint(version.number());
                reply.key("capabilities").strs(capabilities);
                reply.key("server").str("corq");
                reply.key("version").str(env!("CARGO_PKG_VERSION"));
            });
        });
    }

    /// `CompactMemory`: gives memory that is not used back to the system, as `POST /gc` does.
    pub(crate) fn compact_memory(&mut self, conns: &mut Connections, ctx: RequestContext<'_>) {
        memory::give_back();
        self.respond(conns, ctx.origin, |_, sink| reply::ok(sink.out, ctx.req_id));
    }

    /// Answers `Ping`.
    pub(crate) fn ping(&mut self, conns: &mut Connections, ctx: RequestContext<'_>) {
        let now_ms = self.now_ms;
        self.respond(conns, ctx.origin, |_, sink| {
            framed(sink, ctx.req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, ctx.req_id);
                let mut data = reply.map("data");
                data.key("pong").bool(true);
                data.key("time").uint(now_ms);
            });
        });
    }
}
