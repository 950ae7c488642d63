//! From a frame to the shard that carries it out.

use super::envelope::Origin;
use super::message::Message;
use super::request_context::{Lookup, RequestContext};
use crate::api::commands::{Op, ReplySize};
use crate::api::error::ErrorKind;
use crate::api::request::{JobRef, Request, Route};
use crate::protocol::decode::{decode, is_auth};
use crate::protocol::uuid_text;
use crate::server::multi_shard::cron::REGISTRY_SHARD;
use crate::server::multi_shard::long_batch::is_long;
use crate::server::overload::command_memory::ForwardedFrames;
use crate::server::shard_server::ShardServer;
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
            Ok(request) if trusted || request.op == Op::Auth => {
                self.begin_command(conns, conn, origin, frame, request);
            }
            Err(refused) if trusted => self.refuse(conns, origin, refused.req_id, &refused.error),
            &Ok(Request { req_id, .. }) => {
                self.refuse(conns, origin, req_id, ErrorKind::NotAuthenticated);
            }
            Err(refused) => {
                let error = if is_auth(frame) {
                    ErrorKind::InvalidToken
                } else {
                    ErrorKind::NotAuthenticated
                };
                self.refuse(conns, origin, refused.req_id, error);
            }
        }
    }

    fn begin_command(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        origin: Origin,
        frame: &[u8],
        request: &Request<'_>,
    ) {
        let Request { op, req_id, body } = request;
        let (req_id, spec) = (*req_id, op.spec());
        if is_long(body) {
            self.begin_long(conns, conn, (frame.to_vec(), 0), *op);
        } else if self.lacks_data_dir(spec.class) {
            self.refuse(conns, origin, req_id, ErrorKind::DataGone);
        } else if !self.runs_too_often(conns, origin, request) {
            self.meter_command(*op, frame.len());
            if *op == Op::RegisterWorker
                && let Some(session) = self.sessions.get(conn)
            {
                session.has_worker = true;
            }
            let origin = Origin { lists: spec.reply == ReplySize::List, ..origin };
            let lookup = Lookup::Fresh;
            self.dispatch(
                conns,
                RequestContext { origin, req_id, frame, body, lookup, fetched: &[] },
            );
        }
    }

    /// Finds the shard a command belongs to, and carries it out if it is this one.
    pub(crate) fn dispatch(&mut self, conns: &mut Connections, ctx: RequestContext<'_>) {
        let owner = match ctx.body.route() {
            Route::Here | Route::All => self.me,
            Route::Queue(queue) => self.slots.of_queue(queue),
            Route::Name(name) => self.slots.of_name(name),
            Route::Registry => REGISTRY_SHARD,
            Route::Job(job) => return self.dispatch_job(conns, ctx, job, None),
            Route::JobInQueue(queue, job) => {
                return self.dispatch_job(conns, ctx, job, Some(queue));
            }
            Route::Prepared => return self.begin_push(conns, ctx),
        };
        self.hand_over(conns, ctx, owner);
    }

    fn dispatch_job(
        &mut self,
        conns: &mut Connections,
        mut ctx: RequestContext<'_>,
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
        self.hand_over(conns, ctx, owner);
    }

    fn hand_over(&mut self, conns: &mut Connections, ctx: RequestContext<'_>, owner: usize) {
        if owner != self.me {
            self.forward(ctx, owner);
        } else if self.must_defer(&ctx) {
            self.defer_large(conns, ctx);
        } else {
            self.execute(conns, ctx);
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
            self.forwarded_frames.note_sent(ctx.frame);
        } else {
            self.forwarded_frames.note_passed_on();
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
        job: JobRef<'_>,
    ) -> bool {
        let JobRef::Id(id) = job else { return false };
        if ctx.lookup != Lookup::Fresh || self.engine.shard.find(id).is_some() {
            return false;
        }
        let ctx = RequestContext { lookup: Lookup::AsName, ..ctx };
        self.dispatch_job(conns, ctx, job, None);
        true
    }

    /// A command from another shard.
    pub(crate) fn requested(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        frame: &[u8],
        lookup: Lookup,
    ) {
        // By way of the owner shard of its name a command can come back to where it was asked: there it counts
        // from the beginning, as it is answered without another message.
        self.answered(origin);
        let passed_on = self.forwarded_frames.passed_on();
        let is_own = usize::from(origin.shard) == self.me;
        if is_own {
            self.note_taken(origin, frame);
        }
        match &decode(frame) {
            Ok(request) => {
                self.meter_command(request.op, frame.len());
                let Request { req_id, ref body, .. } = *request;
                self.dispatch(
                    conns,
                    RequestContext { origin, req_id, frame, body, lookup, fetched: &[] },
                );
            }
            // The sender has decoded it before; only a mistake in this program leads here.
            Err(refused) => self.refuse(conns, origin, refused.req_id, &refused.error),
        }
        // One that goes on to yet another shard is still on its way.
        if !is_own && passed_on == self.forwarded_frames.passed_on() {
            self.note_taken(origin, frame);
        }
    }

    /// A frame is where its command is carried out: the shard of its connection counts it no longer.
    pub(crate) fn note_taken(&mut self, origin: Origin, frame: &[u8]) {
        let (bytes, shard) = (ForwardedFrames::counted(frame), usize::from(origin.shard));
        if shard == self.me {
            self.forwarded_frames.note_taken(bytes);
        } else if bytes > 0 {
            self.outbox.immediate(shard).messages.push(Message::FrameTaken { bytes });
        }
    }
}
