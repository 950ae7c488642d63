//! From a frame to the shard that carries it out.

use super::envelope::Origin;
use super::message::Message;
use super::request_context::{Lookup, RequestContext};
use crate::api::access::{Grant, QueuePatterns, Scope, permit};
use crate::api::commands::{Op, ReplySize};
use crate::api::error::ErrorKind;
use crate::api::request::{Body, JobRef, Refused, Request, Route};
use crate::api::version::Version;
use crate::protocol::decode::beginning::LONG_BYTES;
use crate::protocol::decode::coerce::coerced;
use crate::protocol::decode::repair::{outcome_in, repaired};
use crate::protocol::decode::{decode_frame, is_auth, needs_three};
use crate::protocol::large::FrameRef;
use crate::protocol::uuid_text;
use crate::server::multi_shard::cron::REGISTRY_SHARD;
use crate::server::overload::command_memory::ForwardedFrames;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};
use corq_shards::job::id::JobId;
use std::sync::Arc;

impl ShardServer {
    /// A frame of a connection here.
    pub(crate) fn begin(&mut self, conns: &mut Connections, conn: ConnId, frame: FrameRef<'_>) {
        let shard = self.me as u16;
        // Of one that is gone nothing is answered.
        let Some(session) = self.sessions.get(conn) else { return };
        session.affinity.note_command();
        let (trusted, is_open) = (session.trusted, session.spoken.is_open());
        let (grant, mut origin) = (session.access.grant, session.origin(shard));
        while !self.begin_as(conns, origin, frame, (trusted, grant), trusted && is_open) {
            origin.version = Version::Three;
        }
    }

    /// Begins a frame in the version of its origin. False if that `is_open`, and the frame needs version 3: then it has to
    /// be begun as such. One that is wrong in both settles nothing.
    #[inline]
    fn begin_as(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        frame: FrameRef<'_>,
        (trusted, grant): (bool, Grant),
        is_open: bool,
    ) -> bool {
        let may_need = is_open && !origin.version.is_three();
        // Looked at where it is: a request is some hundred bytes, and moving it would copy them for each job.
        match &decode_frame(frame, origin.version) {
            Ok(request) if may_need && request.needs.is_three() => return false,
            Err(_) if may_need && needs_three(frame) => return false,
            Ok(request) if trusted || request.op == Op::Auth => {
                self.begin_read(conns, origin, (frame, request), grant, is_open && !may_need);
            }
            Err(refused) if trusted => {
                self.begin_coerced(conns, origin, frame, (refused, grant), is_open);
            }
            &Ok(Request { req_id, .. }) => {
                self.refuse(conns, origin, req_id, ErrorKind::NotAuthenticated);
            }
            Err(refused) => {
                let error = if is_auth(&frame) {
                    ErrorKind::InvalidToken
                } else {
                    ErrorKind::NotAuthenticated
                };
                self.refuse(conns, origin, refused.req_id, error);
            }
        }
        true
    }

    /// Begins a frame that was read. `settles` if that tells which version its connection speaks.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "its arguments go through memory otherwise, for each command"
    )]
    fn begin_read(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        (frame, request): (FrameRef<'_>, &Request<'_>),
        grant: Grant,
        settles: bool,
    ) {
        if !grant.is_all()
            && let Err(error) = permit(grant, &request.body)
        {
            self.audit_refused(conns, origin.conn, &request.body, error.code());
            self.refuse(conns, origin, request.req_id, &error);
            return;
        }
        if settles {
            self.sessions.settle_version(origin.conn, origin.version);
        }
        self.begin_command(conns, origin.conn, origin, frame, request);
    }

    /// Begins a frame that was refused as if others of its values had been sent, if it is an outcome that is no text, or
    /// version 3 takes them for others.
    #[cold]
    fn begin_coerced(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        frame: FrameRef<'_>,
        (refused, grant): (&Refused<'_>, Grant),
        is_open: bool,
    ) {
        let is_long = frame.len() > LONG_BYTES;
        let repaired = if is_long { None } else { repaired(&frame) };
        let given = repaired.as_deref().map_or(frame, Into::into);
        let coerced = if origin.version.is_three() { coerced(given) } else { None };
        let coerced = coerced.map(Arc::new);
        let other = match (&coerced, &repaired) {
            (Some(coerced), _) => Some(FrameRef::from(coerced)),
            (None, repaired) => repaired.as_deref().map(Into::into),
        };
        let again = other.map(|frame| (frame, decode_frame(frame, origin.version)));
        let refused = match &again {
            Some((frame, Ok(request))) => {
                return self.begin_read(conns, origin, (*frame, request), grant, is_open);
            }
            Some((_, Err(refused))) => refused,
            None => refused,
        };
        match outcome_in(&frame).filter(|_| is_long) {
            Some(spec) => {
                self.begin_repair(conns, origin.conn, frame.to_vec(), (spec.op, &refused.error));
            }
            None => self.refuse(conns, origin, refused.req_id, &refused.error),
        }
    }

    fn begin_command(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        origin: Origin,
        frame: FrameRef<'_>,
        request: &Request<'_>,
    ) {
        let Request { op, req_id, body, .. } = request;
        let (req_id, spec) = (*req_id, op.spec());
        let origin = if op.is_audited() { self.audit_begin(conns, origin, body) } else { origin };
        if self.lacks_data_dir(spec.class) {
            self.refuse(conns, origin, req_id, ErrorKind::DataGone);
        } else if !self.runs_too_often(conns, origin, request) {
            self.meter_command(*op, frame.len());
            self.meter.note(request.steps());
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
            Route::Shard(shard) => {
                if shard < self.slots.shards() {
                    shard
                } else {
                    self.me
                }
            }
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
            // A wait is answered for a job that went with its end. The queue of such a job is not known, so a
            // client of some queues learns nothing of it.
            let remembers = matches!(ctx.body, Body::WaitJob { .. }) && ctx.origin.scope.is_none();
            let named = match self.directory.find(name) {
                None if self.directory.is_claimed(name) => return self.wait_for_name(ctx, name),
                None if remembers => self.directory.find_completed(name),
                named => named,
            };
            ctx.lookup = Lookup::Done(named);
        }
        let owner = match (queue, ctx.id_of(job)) {
            (Some(queue), _) => self.slots.of_queue(queue),
            (None, Some(id)) => self.slots.of_job(id),
            // No shard knows it: this one can say so.
            (None, None) => self.me,
        };
        if owner == self.me
            && let Some(queues) = ctx.origin.scope
            && ctx.id_of(job).is_some_and(|id| self.is_foreign(queues, id))
        {
            ctx.lookup = Lookup::Done(None);
        }
        self.hand_over(conns, ctx, owner);
    }

    /// Whether a job here is of a queue that there is not for a client. For that client the job does not exist, either.
    #[cold]
    pub(crate) fn is_foreign(&self, queues: &QueuePatterns, id: JobId) -> bool {
        let shard = &self.engine.shard;
        shard.find(id).is_some_and(|index| !queues.cover(shard.view(index).queue))
    }

    /// A job as a client knows it: by no id that a job bears, if its queue is none for it. Nor by that of a job that was
    /// removed, whose queue is not known, unless its result is kept with it.
    #[inline]
    pub(crate) fn as_known(&self, scope: Scope, id: JobId) -> JobId {
        match scope {
            Some(queues) if !self.is_own(queues, id) => JobId::default(),
            _ => id,
        }
    }

    #[cold]
    fn is_own(&self, queues: &QueuePatterns, id: JobId) -> bool {
        let shard = &self.engine.shard;
        match shard.find(id) {
            Some(index) => queues.cover(shard.view(index).queue),
            None => shard.queue_of_unreported(id).is_some_and(|queue| queues.cover(queue)),
        }
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
            self.forwarded_frames.note_sent(&ctx.frame);
        } else {
            self.forwarded_frames.note_passed_on();
        }
        let batch = self.outbox.immediate(dest);
        let frame = batch.keep_frame(ctx.frame);
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

    /// The job that a command is about, with its place. None if the command is answered otherwise: the job may be one by
    /// another name, or is unknown.
    pub(crate) fn known_job(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
    ) -> Option<(JobId, u32)> {
        if self.try_as_name(conns, ctx, job) {
            return None;
        }
        let found = ctx.id_of(job).and_then(|id| Some((id, self.engine.shard.find(id)?)));
        if found.is_none() {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::JobNotFound);
        }
        found
    }

    /// A command from another shard.
    pub(crate) fn requested(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        frame: FrameRef<'_>,
        lookup: Lookup,
    ) {
        // By way of the owner shard of its name a command can come back to where it was asked: there it counts
        // from the beginning, as it is answered without another message.
        self.answered(origin);
        let passed_on = self.forwarded_frames.passed_on();
        let is_own = usize::from(origin.shard) == self.me;
        if is_own {
            self.note_taken(origin, &frame);
        }
        match &decode_frame(frame, origin.version) {
            Ok(request) => {
                self.meter_command(request.op, frame.len());
                self.meter.note(request.steps());
                let Request { req_id, ref body, .. } = *request;
                self.dispatch(
                    conns,
                    RequestContext { origin, req_id, frame, body, lookup, fetched: &[] },
                );
            }
            // The sender has decoded it before; only a mistake in this program leads here.
            Err(refused) => self.refuse(conns, origin, refused.req_id, &refused.error),
        }
        // A command that goes on to yet another shard is still on its way, and counts on.
        if !is_own && passed_on == self.forwarded_frames.passed_on() {
            self.note_taken(origin, &frame);
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
