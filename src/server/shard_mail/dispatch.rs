//! From a frame to the shard that carries it out.

use super::envelope::Origin;
use super::message::Message;
use super::request_context::{Lookup, RequestContext};
use super::slots::{Route, route};
use crate::api::request::{Body, JobRef, Request};
use crate::api::spec::Op;
use crate::protocol::decode::{decode, is_auth};
use crate::protocol::{reply, uuid_text};
use crate::server::multi_shard::cron::REGISTRY_SHARD;
use crate::server::multi_shard::long_batch::is_long;
use crate::server::overload::large_replies::{Answer, answer_of};
use crate::server::shard_server::ShardServer;
use crate::server::storage::data_presence::GONE;
use corq_io::net::{ConnId, Connections};

impl ShardServer {
    /// A frame of a connection here.
    pub(crate) fn begin(&mut self, conns: &mut Connections, conn: ConnId, frame: &[u8]) {
        let origin = self.origin(conn);
        let trusted = self.sessions.get(conn).is_some_and(|session| {
            session.affinity.note_command();
            session.trusted
        });
        // Looked at where it is: a request is some hundred bytes, and moving it would copy them for each job.
        match &decode(frame) {
            &Ok(Request { req_id, body: Body::Auth { token }, .. }) => {
                self.meter_command(Op::Auth, frame.len());
                let accepted = self.guard.accepts(token);
                self.note_trust(conn, accepted);
                if accepted {
                    self.respond(conns, origin, |_, sink| reply::ok(sink.out, req_id));
                } else {
                    self.refuse(conns, origin, req_id, "Invalid token");
                }
            }
            Ok(request) if trusted && is_long(&request.body) => {
                self.begin_long(conns, conn, (frame.to_vec(), 0), request.op);
            }
            Ok(request) if trusted && self.lacks_data_dir(&request.body) => {
                self.refuse(conns, origin, request.req_id, GONE);
            }
            Ok(request) if trusted && self.runs_too_often(conns, origin, request) => {}
            Ok(request) if trusted => {
                self.meter_command(request.op, frame.len());
                if matches!(request.body, Body::RegisterWorker(_))
                    && let Some(session) = self.sessions.get(conn)
                {
                    session.has_worker = true;
                }
                let req_id = request.req_id;
                let lists = answer_of(&request.body) == Answer::List;
                let origin = Origin { lists, ..origin };
                let ctx = RequestContext { origin, req_id, frame, lookup: Lookup::Fresh };
                self.dispatch(conns, ctx, &request.body);
            }
            Err(refused) if trusted => self.refuse(conns, origin, refused.req_id, &refused.error),
            &Ok(Request { req_id, .. }) => self.refuse(conns, origin, req_id, "Not authenticated"),
            Err(refused) => {
                let text = if is_auth(frame) { "Invalid token" } else { "Not authenticated" };
                self.refuse(conns, origin, refused.req_id, text);
            }
        }
    }

    /// Finds the shard a command belongs to, and carries it out if it is this one.
    pub(crate) fn dispatch(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        body: &Body<'_>,
    ) {
        match route(body) {
            Route::Here => self.answer_here(conns, ctx, body),
            Route::Queue(queue) => {
                let owner = self.slots.of_queue(queue);
                self.hand_over(conns, ctx, body, owner);
            }
            Route::Job(job) => self.dispatch_job(conns, ctx, body, job, None),
            Route::JobInQueue(queue, job) => {
                self.dispatch_job(conns, ctx, body, job, Some(queue));
            }
            Route::Prepared => self.begin_push(conns, ctx, body),
            Route::Flow(jobs) => self.dispatch_flow(conns, ctx, jobs),
            Route::ParentLink(child, parent) => self.begin_parent_link(conns, ctx, child, parent),
            Route::Jobs(jobs) => self.dispatch_jobs(conns, ctx, body, jobs),
            Route::Worker(id) => self.hand_over(conns, ctx, body, self.slots.of_name(id)),
            Route::Registry => self.hand_over(conns, ctx, body, REGISTRY_SHARD),
            Route::All if matches!(body, Body::BackupPoint) => self.ask_backup_point(conns, ctx),
            Route::All if self.must_defer(ctx.origin, body) => {
                self.defer_large(conns, ctx, body);
            }
            Route::All => self.scatter(ctx, body),
        }
    }

    fn dispatch_job(
        &mut self,
        conns: &mut Connections,
        mut ctx: RequestContext<'_>,
        body: &Body<'_>,
        job: JobRef<'_>,
        queue: Option<&str>,
    ) {
        let text;
        let name = match (ctx.lookup, job) {
            (Lookup::Fresh | Lookup::AsName, JobRef::Custom(name)) => Some(name),
            (Lookup::AsName, JobRef::Id(id)) => {
                text = uuid_text::format(id.0);
                // The text of a UUID is ASCII.
                std::str::from_utf8(&text).ok()
            }
            _ => None,
        };
        if let Some(name) = name {
            let name_owner = self.slots.of_name(name);
            if name_owner != self.me {
                self.forward(ctx, name_owner);
                return;
            }
            ctx.lookup = Lookup::Done(self.directory.find(name));
        }
        let owner = match (queue, ctx.id_of(job)) {
            (Some(queue), _) => self.slots.of_queue(queue),
            (None, Some(id)) => self.slots.of_job(id),
            // No shard knows it: this one can say so.
            (None, None) => self.me,
        };
        self.hand_over(conns, ctx, body, owner);
    }

    fn hand_over(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        body: &Body<'_>,
        owner: usize,
    ) {
        if owner != self.me {
            self.forward(ctx, owner);
        } else if self.must_defer(ctx.origin, body) {
            self.defer_large(conns, ctx, body);
        } else {
            self.execute(conns, ctx, body);
        }
    }

    /// Passes a command on as it came.
    pub(crate) fn forward(&mut self, ctx: RequestContext<'_>, dest: usize) {
        if usize::from(ctx.origin.shard) == self.me {
            self.deferred(ctx.origin);
            if let Some(session) = self.sessions.get(ctx.origin.conn) {
                session.seen_elsewhere = true;
                session.affinity.note_forwarded(dest);
            }
        }
        let batch = self.outbox.immediate(dest);
        let frame = batch.keep(ctx.frame);
        let RequestContext { origin, lookup, .. } = ctx;
        batch.messages.push(Message::Request { origin, frame, lookup });
    }

    /// A client may have chosen a text of the server's own form as its custom id: an id that this
    /// shard does not know is looked up as a name before it counts as unknown. True if that is going on.
    pub(crate) fn try_as_name(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        body: &Body<'_>,
        job: JobRef<'_>,
    ) -> bool {
        let JobRef::Id(id) = job else { return false };
        if ctx.lookup != Lookup::Fresh || self.engine.shard.find(id).is_some() {
            return false;
        }
        let ctx = RequestContext { lookup: Lookup::AsName, ..ctx };
        self.dispatch_job(conns, ctx, body, job, None);
        true
    }

    /// A command from another shard.
    pub(crate) fn requested(&mut self, conns: &mut Connections, ctx: RequestContext<'_>) {
        // By way of the owner shard of its name a command can come back to where it was asked: there it counts
        // from the beginning, as it is answered without another message.
        self.answered(ctx.origin);
        match &decode(ctx.frame) {
            Ok(request) => {
                self.meter_command(request.op, ctx.frame.len());
                let ctx = RequestContext { req_id: request.req_id, ..ctx };
                self.dispatch(conns, ctx, &request.body);
            }
            // The sender has decoded it before; only a mistake in this program leads here.
            Err(refused) => self.refuse(conns, ctx.origin, refused.req_id, &refused.error),
        }
    }
}
