//! One shard of the server without its sockets: bytes of connections in, replies of connections out,
//! mail to and from the other shards. Plain calls within a turn; nothing here waits.

use super::auth::Guard;
use super::crons::CronNames;
use super::engine::Engine;
use super::hole::{ColdReplies, Hole, Then};
use super::list::Lookings;
use super::message::{Message, Origin};
use super::metrics::Durations;
use super::moving::Leaving;
use super::names::WaitingClaim;
use super::post::Post;
use super::reclaim::Reclaim;
use super::route::Slots;
use super::session::{
    CHOKING_BYTES, IN_FLIGHT_MAX, PENDING_BYTES_MAX, STRANGER_BYTES_MAX, Session, Sessions, Speech,
    UNSENT_BYTES_MAX, UNWRITTEN_BYTES_MAX,
};
use super::task::Tasks;
use super::workers::Workers;
use crate::protocol::frame::{Split, split};
use crate::protocol::reply;
use corq_io::net::{ConnId, Connections, Counters};
use corq_shards::command::{ClientId, Command, RequestId};
use corq_shards::directory::Directory;
use corq_shards::effect::{Effects, Reply};
use corq_shards::stats::Rates;
use corq_shards::{Caller, Out};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;

/// The request whose answer is written by whoever made the call.
pub const CURRENT: RequestId = RequestId(0);

/// A command the engine will answer later.
#[derive(Debug)]
pub struct Parked {
    /// Who asked.
    pub origin: Origin,
    /// The client's name for it.
    pub req_id: Option<Box<[u8]>>,
    /// How the answer is written.
    pub shape: Shape,
}

/// How the answer to a parked command is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// PULL.
    One {
        /// With a token.
        locked: bool,
    },
    /// PULLB.
    Many {
        /// With tokens.
        locked: bool,
    },
    /// `WaitJob`.
    Ending,
    /// What came of a long command.
    Chore,
}

/// See the module.
pub struct Core {
    pub(super) me: usize,
    pub(super) now_ms: u64,
    pub(super) slots: Slots,
    pub(super) guard: Arc<Guard>,
    pub(super) engine: Engine,
    pub(super) effects: Effects,
    pub(super) directory: Directory,
    /// Pushes that wait for a name another push holds.
    pub(super) waiting_claims: VecDeque<WaitingClaim>,
    pub(super) crons: CronNames,
    pub(super) sessions: Sessions,
    pub(super) parked: Slab<Parked>,
    pub(super) tasks: Tasks,
    pub(super) cold: ColdReplies,
    pub(super) lookings: Lookings,
    pub(super) post: Post,
    pub(super) workers: Workers,
    pub(super) rates: Rates,
    pub(super) durations: Durations,
    pub(super) reclaim: Reclaim,
    /// What the reactor had done when this turn began.
    pub(super) net: Counters,
    /// Connections with new output in this turn.
    pub(super) touched: Vec<ConnId>,
    /// Connections to close once their output of this turn is released.
    pub(super) finishing: Vec<ConnId>,
    /// Connections whose waiting input may go on.
    pub(super) unblocked: Vec<ConnId>,
    /// Connections about to move to another shard.
    pub(super) leaving: Leaving,
    /// Connections that have left too much unread and are to be closed.
    pub(super) deaf: Vec<ConnId>,
    pub(super) started_at_ms: u64,
    pub(super) stopping: bool,
    /// Whether the disk is so far behind that no more commands are taken.
    pub(super) saturated: bool,
    /// Shards that have not said [`Message::Open`] yet.
    pub(super) closed_shards: usize,
    /// Whether the others know that everybody here has an answer.
    pub(super) counted_quiet: bool,
}

/// A reply being written.
pub struct Pen<'a> {
    /// The connection's output, or the batch that carries it there.
    pub out: &'a mut Vec<u8>,
    /// Payloads that are still missing in it.
    pub holes: &'a mut Vec<Hole>,
}

impl Core {
    /// A shard that has recovered and knows nobody yet.
    pub fn new(
        engine: Engine,
        post: Post,
        slots: Slots,
        guard: Arc<Guard>,
        me: usize,
        now_ms: u64,
    ) -> Self {
        Self {
            me,
            now_ms,
            closed_shards: slots.shards(),
            slots,
            guard,
            engine,
            effects: Effects::default(),
            directory: Directory::default(),
            waiting_claims: VecDeque::new(),
            crons: CronNames::default(),
            sessions: Sessions::default(),
            parked: Slab::new(),
            tasks: Tasks::default(),
            cold: ColdReplies::default(),
            lookings: Lookings::default(),
            post,
            workers: Workers::default(),
            rates: Rates::default(),
            durations: Durations::default(),
            reclaim: Reclaim::default(),
            net: Counters::default(),
            touched: Vec::new(),
            finishing: Vec::new(),
            unblocked: Vec::new(),
            leaving: Leaving::default(),
            deaf: Vec::new(),
            started_at_ms: now_ms,
            stopping: false,
            saturated: false,
            counted_quiet: false,
        }
    }

    /// Notes what has been done so far, for rates.
    pub fn note_rates(&mut self) {
        self.rates.note(self.now_ms, self.engine.shard.totals());
    }

    /// Whether this turn leaves something to do that nothing else would wake the shard for.
    pub fn has_left(&self) -> bool {
        self.post.has_left()
            || !self.touched.is_empty()
            || !self.unblocked.is_empty()
            || !self.deaf.is_empty()
            || self.saturated && !self.is_disk_behind()
    }

    fn is_disk_behind(&self) -> bool {
        self.engine.book.0.unwritten_bytes() > UNWRITTEN_BYTES_MAX
    }

    /// Looks how far the disk is behind. Once it has caught up, everybody goes on.
    pub fn note_saturation(&mut self) {
        let was = self.saturated;
        self.saturated = self.is_disk_behind();
        if was && !self.saturated {
            let blocked = self.sessions.iter().filter(|session| session.blocked);
            self.unblocked.extend(blocked.map(|session| session.conn));
        }
    }

    /// Takes no more commands; pulls that wait get their empty answer.
    pub fn begin_to_end(&mut self, conns: &mut Connections) {
        self.stopping = true;
        self.apply(conns, Caller::default(), &Command::EndWaits);
    }

    /// Whether everybody here has an answer. `sent` tells of a connection's output.
    pub fn is_quiet(&self, sent: impl Fn(ConnId) -> bool) -> bool {
        self.tasks.is_empty()
            && self.cold.is_empty()
            && self.lookings.is_empty()
            && self.parked.is_empty()
            && self.sessions.iter().all(|session| session.in_flight == 0 && sent(session.conn))
    }

    /// What still keeps [`Core::is_quiet`] from being true, for people.
    pub fn unfinished(&self) -> String {
        let unanswered: u32 = self.sessions.iter().map(|session| session.in_flight).sum();
        format!(
            "shard {} has {unanswered} commands unanswered, {} in several steps, {} with the engine",
            self.me,
            self.tasks.len(),
            self.parked.len(),
        )
    }

    /// Makes the other shards look around, by mail that says nothing.
    pub fn wake_others(&mut self) {
        for dest in (0..self.slots.shards()).filter(|&dest| dest != self.me) {
            self.post.send(dest, super::message::Batch::default());
        }
        self.post.flush();
    }

    /// A new connection.
    pub fn accepted(&mut self, conn: ConnId, speech: Speech) {
        self.sessions.open(self.me, conn, speech, !self.guard.is_on());
    }

    /// Bytes of a connection.
    pub fn received(&mut self, conns: &mut Connections, conn: ConnId, bytes: &[u8]) {
        let now_ms = self.now_ms;
        let Some(session) = self.sessions.get(conn) else { return };
        session.last_seen_ms = now_ms;
        if session.pending.is_empty() {
            let used = self.handle(conns, conn, bytes);
            self.keep_pending(conns, conn, &bytes[used..]);
            return;
        }
        session.pending.extend_from_slice(bytes);
        self.go_on(conns, conn);
    }

    /// Handles what a connection has sent before.
    pub(super) fn go_on(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        let mut pending = std::mem::take(&mut session.pending);
        let used = self.handle(conns, conn, &pending);
        if used == pending.len() {
            pending = Vec::new();
        } else if used > 0 {
            pending.drain(..used);
        }
        let Some(session) = self.sessions.get(conn) else { return };
        session.pending = pending;
        self.read_on_or_not(conns, conn);
    }

    fn keep_pending(&mut self, conns: &mut Connections, conn: ConnId, rest: &[u8]) {
        let Some(session) = self.sessions.get(conn) else { return };
        session.pending.extend_from_slice(rest);
        self.read_on_or_not(conns, conn);
    }

    /// Back-pressure: a connection whose commands wait for answers is not read beyond a limit.
    fn read_on_or_not(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        let full = session.blocked && (session.choked || session.pending.len() > PENDING_BYTES_MAX);
        if full && !session.paused {
            conns.pause_reading(conn);
        } else if !full && session.paused {
            conns.resume_reading(conn);
        }
        session.paused = full;
    }

    /// Handles whole requests at the front of `bytes`; returns how many bytes they took.
    fn handle(&mut self, conns: &mut Connections, conn: ConnId, bytes: &[u8]) -> usize {
        let Some(session) = self.sessions.get(conn) else { return bytes.len() };
        match session.speech {
            Speech::Frames => self.handle_frames(conns, conn, bytes),
            Speech::Http => self.handle_http(conns, conn, bytes),
        }
    }

    fn handle_frames(&mut self, conns: &mut Connections, conn: ConnId, bytes: &[u8]) -> usize {
        let mut left = bytes;
        loop {
            let Some(session) = self.sessions.get(conn) else { return bytes.len() };
            let busy = self.stopping || self.saturated;
            session.choked = conns.unsent(conn) > CHOKING_BYTES;
            session.blocked = session.in_flight >= IN_FLIGHT_MAX
                || session.choked
                || session.habit.is_leaving()
                || busy;
            if session.blocked {
                return bytes.len() - left.len();
            }
            match split(left) {
                Split::Complete { frame, rest } => {
                    left = rest;
                    self.begin(conns, conn, frame);
                }
                Split::Incomplete { need } if need > STRANGER_BYTES_MAX && !session.trusted => {
                    let origin = self.origin(conn);
                    self.refuse(conns, origin, None, "Not authenticated");
                    self.finish_connection(conns, conn);
                    return bytes.len();
                }
                Split::Incomplete { .. } => return bytes.len() - left.len(),
                Split::TooLarge(_) => {
                    let origin = self.origin(conn);
                    self.refuse(conns, origin, None, "Frame exceeds 64 MB");
                    self.finish_connection(conns, conn);
                    return bytes.len();
                }
            }
        }
    }

    /// Handles nothing more of a connection, and closes it once its output is sent.
    pub(super) fn finish_connection(&mut self, conns: &mut Connections, conn: ConnId) {
        self.forget_session(conns, conn);
        self.touch(conn);
        self.finishing.push(conn);
    }

    /// A peer is gone.
    pub fn ended(&mut self, conns: &mut Connections, conn: ConnId) {
        self.forget_session(conns, conn);
        conns.abort(conn);
    }

    /// A peer sends no more. What it held goes back at once, as a worker's end is no different from
    /// here; what it has asked is still answered.
    pub fn half_closed(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        session.half_closed = true;
        let seen_elsewhere = session.seen_elsewhere;
        let client = session.client;
        self.give_back(conns, client, seen_elsewhere);
        self.finish_if_answered(conns, conn);
    }

    /// Input that waits for nothing but bytes is the beginning of a request whose end will not come.
    fn finish_if_answered(&mut self, conns: &mut Connections, conn: ConnId) {
        let answered = |session: &mut Session| {
            let waits_for_turn = session.blocked && !session.pending.is_empty();
            session.half_closed && session.in_flight == 0 && !waits_for_turn
        };
        if self.sessions.get(conn).is_some_and(answered) {
            self.finish_connection(conns, conn);
        }
    }

    fn forget_session(&mut self, conns: &mut Connections, conn: ConnId) {
        if let Some(session) = self.sessions.close(conn) {
            self.give_back(conns, session.client, session.seen_elsewhere);
        }
    }

    /// What a connection holds goes back, here and elsewhere.
    fn give_back(&mut self, conns: &mut Connections, client: ClientId, seen_elsewhere: bool) {
        if self.stopping {
            // Locks outlive the stop, so that their workers can come back for their jobs.
            return;
        }
        self.leave(conns, client);
        if seen_elsewhere {
            for dest in (0..self.slots.shards()).filter(|&dest| dest != self.me) {
                self.post.ask(dest).messages.push(Message::Leave { client });
            }
        }
    }

    pub(super) fn leave(&mut self, conns: &mut Connections, client: ClientId) {
        self.workers.leave(client);
        self.apply(conns, Caller { client, request: CURRENT }, &Command::Disconnect);
    }

    pub(super) fn origin(&mut self, conn: ConnId) -> Origin {
        let client = self.sessions.get(conn).map(|session| session.client).unwrap_or_default();
        Origin { shard: self.me as u16, conn, client }
    }

    /// Carries out a command and answers everybody whom it lets answer, but not the caller: its
    /// replies are those left in `effects.replies` under [`CURRENT`].
    pub(super) fn apply(&mut self, conns: &mut Connections, caller: Caller, command: &Command<'_>) {
        self.effects.clear();
        let mut out = Out { journal: &mut self.engine.book, effects: &mut self.effects };
        self.engine.shard.apply(self.now_ms, caller, command, &mut out);
        self.answer_parked(conns);
        self.tell_names();
        self.tell_cron_ends();
        self.tell_notices();
    }

    /// Does what is due. Returns when to come again, in milliseconds since the epoch.
    pub fn tick(&mut self, conns: &mut Connections) -> u64 {
        self.effects.clear();
        let mut out = Out { journal: &mut self.engine.book, effects: &mut self.effects };
        let next_ms = self.engine.shard.tick(self.now_ms, &mut out);
        self.answer_parked(conns);
        self.tell_names();
        self.tell_cron_ends();
        self.tell_notices();
        if self.look_on_in_turn(conns) { self.now_ms } else { next_ms }
    }

    fn answer_parked(&mut self, conns: &mut Connections) {
        if self.effects.replies.iter().all(|(request, _)| *request == CURRENT) {
            return;
        }
        let replies = std::mem::take(&mut self.effects.replies);
        for (request, reply) in &replies {
            if *request == CURRENT {
                self.effects.replies.push((*request, reply.clone()));
                continue;
            }
            let Some(parked) = self.parked.try_remove(request.0 as usize - 1) else { continue };
            self.answered(parked.origin);
            if *reply != Reply::Dropped {
                self.write_parked(conns, &parked, reply);
            } else if usize::from(parked.origin.shard) != self.me {
                // Its shard still counts it as unanswered.
                let (origin, frame) = (parked.origin, 0..0);
                let tell = self.post.tell(usize::from(origin.shard));
                tell.messages.push(Message::Reply { origin, frame });
            }
        }
    }

    /// Parks a command that the engine may answer later, or at once.
    pub(super) fn park(
        &mut self,
        origin: Origin,
        req_id: Option<&[u8]>,
        shape: Shape,
    ) -> RequestId {
        let parked = Parked { origin, req_id: req_id.map(Into::into), shape };
        self.deferred(origin);
        RequestId(self.parked.insert(parked) as u64 + 1)
    }

    /// A command of a connection here waits for its answer.
    pub(super) fn deferred(&mut self, origin: Origin) {
        if usize::from(origin.shard) == self.me
            && let Some(session) = self.sessions.get(origin.conn)
        {
            session.in_flight += 1;
        }
    }

    /// A command that waited gets its answer.
    pub(super) fn answered(&mut self, origin: Origin) {
        if usize::from(origin.shard) == self.me
            && let Some(session) = self.sessions.get(origin.conn)
        {
            session.in_flight -= 1;
            if session.blocked || session.half_closed {
                self.unblocked.push(origin.conn);
            }
            if session.begins_to_leave() {
                self.note_leaving(origin.conn);
            }
        }
    }

    /// Lets connections go on whose answers have made room. True if there were any.
    pub fn go_on_unblocked(&mut self, conns: &mut Connections) -> bool {
        let unblocked = std::mem::take(&mut self.unblocked);
        for &conn in &unblocked {
            if self.sessions.get(conn).is_some_and(|session| session.blocked) {
                self.go_on(conns, conn);
            }
            self.finish_if_answered(conns, conn);
        }
        !unblocked.is_empty()
    }

    /// Writes a reply to where it belongs. With holes it waits for the disk.
    pub(super) fn respond(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        write: impl FnOnce(&Engine, &mut Pen<'_>),
    ) {
        let mut holes = Vec::new();
        let dest = usize::from(origin.shard);
        let out = if dest == self.me {
            if conns.unsent(origin.conn) > UNSENT_BYTES_MAX {
                self.deaf.push(origin.conn);
                return;
            }
            let Some(out) = conns.output(origin.conn) else { return };
            out
        } else {
            &mut self.post.tell(dest).bytes
        };
        let start = out.len();
        write(&self.engine, &mut Pen { out: &mut *out, holes: &mut holes });
        if holes.is_empty() {
            let frame = start..out.len();
            if dest == self.me {
                self.touch(origin.conn);
            } else {
                self.post.tell(dest).messages.push(Message::Reply { origin, frame });
            }
            return;
        }
        let frame = out.split_off(start);
        let records: Vec<_> = holes.iter().map(|hole| hole.stored).collect();
        for hole in &mut holes {
            hole.at -= start;
        }
        self.read_first(origin, Then::Send { frame, holes }, &records, Vec::new());
    }

    /// Notes that a connection has new output. It may be noted twice.
    fn touch(&mut self, conn: ConnId) {
        if self.touched.last() != Some(&conn) {
            self.touched.push(conn);
        }
    }

    /// Copies a finished frame to where it belongs.
    pub(super) fn send_frame(&mut self, conns: &mut Connections, origin: Origin, frame: &[u8]) {
        self.respond(conns, origin, |_, pen| pen.out.extend_from_slice(frame));
    }

    /// Answers with an error.
    pub(super) fn refuse(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        text: &str,
    ) {
        self.respond(conns, origin, |_, pen| reply::error(pen.out, req_id, text));
    }

    /// Cuts off connections that do not read what they asked for.
    pub fn cut_off_slow_readers(&mut self, conns: &mut Connections) {
        for conn in std::mem::take(&mut self.deaf) {
            self.ended(conns, conn);
        }
    }

    /// A connection has taken all its output.
    pub fn drained(&mut self, conn: ConnId) {
        if self.sessions.get(conn).is_some_and(|session| session.choked) {
            self.unblocked.push(conn);
        }
    }
}
