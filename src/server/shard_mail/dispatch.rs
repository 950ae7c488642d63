//! From a frame to the shard that carries it out.

use super::message::{Message, Origin};
use super::slots::{Route, route};
use crate::api::request::{Body, JobRef, Request};
use crate::api::spec::Op;
use crate::protocol::decode::{decode, is_auth};
use crate::protocol::{reply, uuid_text};
use crate::server::multi_shard::cron::KEEPER;
use crate::server::multi_shard::long_batch::is_long;
use crate::server::overload::large_replies::{Answer, answer_of};
use crate::server::shard_server::Core;
use crate::server::storage::data_presence::GONE;
use corq_io::net::{ConnId, Connections};
use corq_shards::job::id::JobId;

/// A command on its way: who asked, under which name, and the bytes it came in.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// Who asked.
    pub origin: Origin,
    /// The client's name for the request.
    pub req_id: Option<&'a [u8]>,
    /// The frame, for those who have to pass it on.
    pub frame: &'a [u8],
    /// What the directory knows of the job it names.
    pub lookup: Lookup,
}

/// How far the name of a job has been looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// Not yet.
    Fresh,
    /// The owner of the id does not know it: the directory has to be asked for it as a name.
    AsName,
    /// The directory has answered.
    Done(Option<JobId>),
}

impl Asked<'_> {
    /// The id that `job` stands for; `None` if no job bears it.
    pub fn id_of(&self, job: JobRef<'_>) -> Option<JobId> {
        match (self.lookup, job) {
            (Lookup::Done(named), _) => named,
            (_, JobRef::Id(id)) => Some(id),
            (_, JobRef::Custom(_)) => None,
        }
    }
}

impl Core {
    /// A frame of a connection here.
    pub(crate) fn begin(&mut self, conns: &mut Connections, conn: ConnId, frame: &[u8]) {
        let origin = self.origin(conn);
        let trusted = self.sessions.get(conn).is_some_and(|session| {
            session.habit.note_command();
            session.trusted
        });
        // Looked at where it is: a request is some hundred bytes, and moving it would copy them for each job.
        match &decode(frame) {
            &Ok(Request { req_id, body: Body::Auth { token }, .. }) => {
                self.meter_command(Op::Auth, frame.len());
                let accepted = self.guard.accepts(token);
                self.note_trust(conn, accepted);
                if accepted {
                    self.respond(conns, origin, |_, pen| reply::ok(pen.out, req_id));
                } else {
                    self.refuse(conns, origin, req_id, "Invalid token");
                }
            }
            Ok(request) if trusted && is_long(&request.body) => {
                self.begin_long(conns, conn, (frame.to_vec(), 0), request.op);
            }
            Ok(request) if trusted && self.has_no_ground(&request.body) => {
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
                let asked = Asked { origin, req_id, frame, lookup: Lookup::Fresh };
                self.dispatch(conns, asked, &request.body);
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
    pub(crate) fn dispatch(&mut self, conns: &mut Connections, asked: Asked<'_>, body: &Body<'_>) {
        match route(body) {
            Route::Here => self.answer_here(conns, asked, body),
            Route::Queue(queue) => {
                let owner = self.slots.of_queue(queue);
                self.hand_over(conns, asked, body, owner);
            }
            Route::Job(job) => self.dispatch_job(conns, asked, body, job, None),
            Route::JobInQueue(queue, job) => {
                self.dispatch_job(conns, asked, body, job, Some(queue));
            }
            Route::Prepared => self.begin_push(conns, asked, body),
            Route::Flow(jobs) => self.dispatch_flow(conns, asked, jobs),
            Route::Kin(child, parent) => self.begin_kin(conns, asked, child, parent),
            Route::Jobs(jobs) => self.dispatch_jobs(conns, asked, body, jobs),
            Route::Worker(id) => self.hand_over(conns, asked, body, self.slots.of_name(id)),
            Route::Keeper => self.hand_over(conns, asked, body, KEEPER),
            Route::All if matches!(body, Body::BackupPoint) => self.ask_backup_point(conns, asked),
            Route::All if self.has_to_wait(asked.origin, body) => {
                self.set_aside(conns, asked, body);
            }
            Route::All => self.ask_all(asked, body),
        }
    }

    fn dispatch_job(
        &mut self,
        conns: &mut Connections,
        mut asked: Asked<'_>,
        body: &Body<'_>,
        job: JobRef<'_>,
        queue: Option<&str>,
    ) {
        let text;
        let name = match (asked.lookup, job) {
            (Lookup::Fresh | Lookup::AsName, JobRef::Custom(name)) => Some(name),
            (Lookup::AsName, JobRef::Id(id)) => {
                text = uuid_text::format(id.0);
                // The text of a UUID is ASCII.
                std::str::from_utf8(&text).ok()
            }
            _ => None,
        };
        if let Some(name) = name {
            let keeper = self.slots.of_name(name);
            if keeper != self.me {
                self.forward(asked, keeper);
                return;
            }
            asked.lookup = Lookup::Done(self.directory.find(name));
        }
        let owner = match (queue, asked.id_of(job)) {
            (Some(queue), _) => self.slots.of_queue(queue),
            (None, Some(id)) => self.slots.of_job(id),
            // Nobody knows it: this shard can say so.
            (None, None) => self.me,
        };
        self.hand_over(conns, asked, body, owner);
    }

    fn hand_over(
        &mut self,
        conns: &mut Connections,
        asked: Asked<'_>,
        body: &Body<'_>,
        owner: usize,
    ) {
        if owner != self.me {
            self.forward(asked, owner);
        } else if self.has_to_wait(asked.origin, body) {
            self.set_aside(conns, asked, body);
        } else {
            self.execute(conns, asked, body);
        }
    }

    /// Passes a command on as it came.
    pub(crate) fn forward(&mut self, asked: Asked<'_>, dest: usize) {
        if usize::from(asked.origin.shard) == self.me {
            self.deferred(asked.origin);
            if let Some(session) = self.sessions.get(asked.origin.conn) {
                session.seen_elsewhere = true;
                session.habit.note_abroad(dest);
            }
        }
        let batch = self.post.ask(dest);
        let frame = batch.keep(asked.frame);
        let Asked { origin, lookup, .. } = asked;
        batch.messages.push(Message::Request { origin, frame, lookup });
    }

    /// A client may have chosen a text of the server's own form as its custom id: an id that this
    /// shard does not know is looked up as a name before it counts as unknown. True if that is going on.
    pub(crate) fn try_as_name(
        &mut self,
        conns: &mut Connections,
        asked: Asked<'_>,
        body: &Body<'_>,
        job: JobRef<'_>,
    ) -> bool {
        let JobRef::Id(id) = job else { return false };
        if asked.lookup != Lookup::Fresh || self.engine.shard.find(id).is_some() {
            return false;
        }
        let asked = Asked { lookup: Lookup::AsName, ..asked };
        self.dispatch_job(conns, asked, body, job, None);
        true
    }

    /// A command from another shard.
    pub(crate) fn requested(&mut self, conns: &mut Connections, asked: Asked<'_>) {
        // By way of its name's keeper a command can come back to where it was asked: there it counts
        // from the beginning, as it is answered without another message.
        self.answered(asked.origin);
        match &decode(asked.frame) {
            Ok(request) => {
                self.meter_command(request.op, asked.frame.len());
                let asked = Asked { req_id: request.req_id, ..asked };
                self.dispatch(conns, asked, &request.body);
            }
            // The sender has decoded it before; only a mistake in this program leads here.
            Err(refused) => self.refuse(conns, asked.origin, refused.req_id, &refused.error),
        }
    }
}
