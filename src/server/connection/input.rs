//! The input of connections: bytes to whole frames, frames to commands, and what the end of a connection gives back.
//!
//! Bytes are handled in order. What cannot be handled yet (its end is missing, its turn has not come, an answer must go
//! first) stays in the session until a turn goes on with it.

use super::protocol::Protocol;
use super::session::{IN_FLIGHT_MAX, Session, UNAUTHENTICATED_FRAME_BYTES_MAX};
use crate::api::error::ErrorKind;
use crate::protocol::decode::beginning::{BEGINNING_BYTES_MAX, Verdict};
use crate::protocol::decode::find_req_id;
use crate::protocol::frame::{PREFIX_BYTES, Split, split};
use crate::server::commands::pending_replies::CURRENT;
use crate::server::commands::worker::SEEN_REPORT_MS;
use crate::server::event_loop::turn_meter::Work;
use crate::server::http::{Phase, Rule};
use crate::server::lifecycle::certificate;
use crate::server::lifecycle::listeners::Port;
use crate::server::overload::send_memory::is_tight;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::message::Message;
use crate::server::shard_server::ShardServer;
use corq_io::memory;
use corq_io::net::{ConnId, Connections};
use corq_shards::Caller;
use corq_shards::command::{ClientId, Command};

impl ShardServer {
    /// A new connection.
    pub fn accepted(&mut self, conn: ConnId, port: Port) {
        let protocol = port.protocol;
        // Over HTTP each request shows a token of its own.
        let trusted = protocol == Protocol::Http || !self.access.is_on();
        self.sessions.open(self.me, conn, protocol, trusted);
        if let Some(session) = self.sessions.get(conn) {
            session.through_path = port.is_path;
            session.http.has_shown = !self.access.is_on();
        }
        if protocol == Protocol::Http {
            self.await_conn(conn, Phase::Fresh);
        } else if !trusted {
            self.note_trust(conn, false);
        }
    }

    /// A client speaks in the clear at a port for TLS.
    pub fn not_tls(&mut self, conns: &mut Connections, conn: ConnId, port: Port) {
        if let Some(out) = conns.output(conn) {
            let (manners, date) = self.http.standing_at(self.now_ms);
            certificate::refuse_plain(out, port, manners, date);
        }
        conns.allow(conn, conns.appended(conn));
        conns.close(conn);
    }

    /// Bytes of a connection.
    pub fn received(&mut self, conns: &mut Connections, conn: ConnId, bytes: &[u8]) {
        let now_ms = self.now_ms;
        memory::note_heard(now_ms);
        let Some(session) = self.sessions.get(conn) else { return };
        session.last_seen_ms = now_ms;
        let is_first = session.pending.is_empty();
        if !is_first {
            session.pending.extend(bytes);
        }
        if session.has_worker && session.seen_reported_ms + SEEN_REPORT_MS <= now_ms {
            session.seen_reported_ms = now_ms;
            let client = session.client;
            self.send_seen(client);
        }
        if is_first {
            let used = self.handle(conns, conn, bytes);
            let Some(session) = self.sessions.get(conn) else { return };
            session.pending.extend(&bytes[used..]);
            self.take_whole(conns);
            self.pass_waits(conns, conn);
            self.note_rest(conn, used > 0);
            self.read_on_or_not(conns, conn);
        } else {
            self.go_on(conns, conn);
        }
    }

    /// Handles what a connection has sent before.
    pub(crate) fn go_on(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        if session.quota.waits() {
            self.read_on_or_not(conns, conn);
            return;
        }
        let mut pending = std::mem::take(&mut session.pending);
        let used = self.handle(conns, conn, pending.bytes());
        pending.consume(used);
        let Some(session) = self.sessions.get(conn) else { return };
        session.pending = pending;
        self.take_whole(conns);
        self.pass_waits(conns, conn);
        self.note_rest(conn, used > 0);
        self.read_on_or_not(conns, conn);
    }

    /// Handles whole requests at the front of `bytes`; returns how many bytes they took.
    fn handle(&mut self, conns: &mut Connections, conn: ConnId, bytes: &[u8]) -> usize {
        let mut used = 0;
        loop {
            let Some(session) = self.sessions.get(conn) else { return bytes.len() };
            let protocol = session.protocol;
            used += match protocol {
                Protocol::Frames => self.handle_frames(conns, conn, bytes),
                Protocol::Http => self.handle_http(conns, conn, bytes),
                Protocol::WebSocket => self.handle_websocket(conns, conn, &bytes[used..]),
                // A client of a stream has nothing more to say.
                Protocol::Events => return bytes.len(),
            };
            // A request may change what the connection speaks from there on.
            if self.sessions.get(conn).is_none_or(|session| session.protocol == protocol) {
                return used;
            }
        }
    }

    fn handle_frames(&mut self, conns: &mut Connections, conn: ConnId, bytes: &[u8]) -> usize {
        let mut left = bytes;
        loop {
            left = &left[self.drop_refused(conn, left.len())..];
            let busy = self.must_stall();
            let Some(session) = self.sessions.get(conn) else { return bytes.len() };
            session.blocked = session
                .note_unread(conns.untaken(conn), is_tight(conns, self.client_memory))
                || session.in_flight >= IN_FLIGHT_MAX
                || session.affinity.is_migrating()
                || busy;
            if session.blocked {
                return bytes.len() - left.len();
            }
            if let Some(large) = session.checked.take() {
                if !self.engine.journal.staged.admits(&large) {
                    session.checked = Some(large);
                    self.fair_shares.wait(session);
                    return bytes.len() - left.len();
                }
                self.begin(conns, conn, (&large).into());
                continue;
            }
            let lists = session.lists > 0;
            match split(left) {
                Split::Complete { frame, rest } => {
                    session.front_verdict = Verdict::default();
                    if !self.fair_shares.admit(session, frame.len(), left.len())
                        || lists && self.waits_for_list(conn, frame)
                    {
                        return bytes.len() - left.len();
                    }
                    let admitted = self.admits_frame(conns, conn, frame)
                        && !self.refuses_long_frame(conns, conn, frame, frame.len());
                    if admitted && self.is_taken_whole(conn, frame) {
                        return bytes.len() - left.len();
                    }
                    left = rest;
                    if admitted {
                        self.begin(conns, conn, frame.into());
                    }
                }
                Split::Incomplete { need }
                    if need > UNAUTHENTICATED_FRAME_BYTES_MAX && !session.trusted =>
                {
                    let origin = self.origin(conn);
                    self.refuse(conns, origin, None, ErrorKind::NotAuthenticated);
                    self.finish_connection(conns, conn);
                    return bytes.len();
                }
                Split::Incomplete { need } => {
                    let begun = left.get(PREFIX_BYTES..).unwrap_or_default();
                    if self.refuses_long_frame(conns, conn, begun, need - PREFIX_BYTES) {
                        return bytes.len();
                    }
                    return bytes.len() - left.len();
                }
                Split::TooLarge(_) => {
                    let origin = self.origin(conn);
                    let knocks = certificate::is_handshake(left);
                    self.http.counters.handshakes += u64::from(knocks);
                    let error =
                        if knocks { ErrorKind::TlsNotSpoken } else { ErrorKind::FrameTooLarge };
                    self.refuse(conns, origin, None, error);
                    self.finish_connection(conns, conn);
                    return bytes.len();
                }
            }
        }
    }

    /// Counts a frame where that is limited; one too many is refused.
    #[inline]
    pub(crate) fn admits_frame(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        frame: &[u8],
    ) -> bool {
        if self.counts_frame(conn, self.http.settings.frame_rule) {
            return true;
        }
        let origin = self.origin(conn);
        // No further than where a command has to be named.
        let beginning = &frame[..frame.len().min(BEGINNING_BYTES_MAX)];
        self.refuse(conns, origin, find_req_id(beginning.into()), ErrorKind::TooOften);
        false
    }

    /// Counts a frame or message of a connection by `rule`. False if it is one too many.
    #[inline]
    pub(crate) fn counts_frame(&mut self, conn: ConnId, rule: Option<Rule>) -> bool {
        let Some(rule) = rule else { return true };
        let Some(session) = self.sessions.get(conn) else { return true };
        let admitted = session.window.admit(self.now_ms, rule).is_ok();
        self.http.counters.limited += u64::from(!admitted);
        admitted
    }

    /// Handles nothing more of a connection, and closes it once its output is sent.
    pub(crate) fn finish_connection(&mut self, conns: &mut Connections, conn: ConnId) {
        self.forget_session(conns, conn);
        self.touch(conn);
        self.finishing.push(conn);
    }

    /// A peer is gone.
    pub fn ended(&mut self, conns: &mut Connections, conn: ConnId) {
        self.forget_session(conns, conn);
        conns.abort(conn);
    }

    /// A peer sends no more. What it held goes back, as a worker's end is no different from here; what it has asked is
    /// still answered.
    pub fn half_closed(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        (session.half_closed, session.owes_leave) = (true, true);
        self.finish_if_answered(conns, conn);
    }

    /// Input that waits for nothing but bytes is the beginning of a request whose end will not come.
    fn finish_if_answered(&mut self, conns: &mut Connections, conn: ConnId) {
        self.leave_if_due(conns, conn);
        // Answer commands that were given up when the client stopped sending, before the connection ends.
        if self.sessions.get(conn).is_some_and(|session| session.half_closed) {
            self.answer_dropped(conns, conn);
        }
        let answered = |session: &mut Session| {
            let waits_for_turn = session.blocked && session.has_input_left();
            session.half_closed && session.in_flight == 0 && !waits_for_turn
        };
        if self.sessions.get(conn).is_some_and(answered) {
            self.finish_connection(conns, conn);
        }
    }

    /// Has a peer that sends no more give back what it held, unless that is what its last requests are about: a large
    /// command that is being checked, or what it has sent and has to wait for its turn.
    fn leave_if_due(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn).filter(|session| session.owes_leave) else {
            return;
        };
        let waits = session.blocked && session.in_flight == 0 && session.has_input_left();
        if waits || self.large_commands.completes(conn) {
            return;
        }
        session.owes_leave = false;
        let Session { client, seen_elsewhere, .. } = *session;
        self.give_back(conns, (client, seen_elsewhere), false);
    }

    fn forget_session(&mut self, conns: &mut Connections, conn: ConnId) {
        self.drop_received(conn);
        self.forget_viewers(conn);
        if let Some(session) = self.sessions.close(conn) {
            if let Some(key) = session.stream {
                self.close_stream(key);
            }
            let Session { client, seen_elsewhere, .. } = session;
            self.give_back(conns, (client, seen_elsewhere), true);
        }
    }

    /// Gives back what a client holds here, and elsewhere if other shards have seen it: one that is gone, or sends no more.
    fn give_back(
        &mut self,
        conns: &mut Connections,
        (client, seen_elsewhere): (ClientId, bool),
        gone: bool,
    ) {
        // Locks outlive the stop, so that their workers can come back for their jobs.
        if self.stopping {
            return;
        }
        self.leave(conns, client, gone);
        if seen_elsewhere {
            for dest in (0..self.slots.shards()).filter(|&dest| dest != self.me) {
                self.outbox.immediate(dest).messages.push(Message::Leave { client, gone });
            }
        }
    }

    pub(crate) fn leave(&mut self, conns: &mut Connections, client: ClientId, gone: bool) {
        let before = self.meter_work(Work::DISCONNECT);
        self.meter.note(1);
        self.forget_deferred(client, gone);
        self.workers.leave(client);
        self.apply(conns, Caller { client, request: CURRENT }, &Command::Disconnect);
        self.meter_work(before);
    }

    pub(crate) fn origin(&mut self, conn: ConnId) -> Origin {
        let shard = self.me as u16;
        match self.sessions.get(conn) {
            Some(session) => session.origin(shard),
            None => Origin::of_none(shard, conn),
        }
    }

    /// A command of a connection here waits for its answer.
    pub(crate) fn deferred(&mut self, origin: Origin) {
        if usize::from(origin.shard) == self.me
            && let Some(session) = self.sessions.get(origin.conn)
        {
            session.in_flight += 1;
            session.lists += u32::from(origin.lists);
        }
    }

    /// A command that waited gets its answer.
    pub(crate) fn answered(&mut self, origin: Origin) {
        if usize::from(origin.shard) == self.me
            && let Some(session) = self.sessions.get(origin.conn)
        {
            session.in_flight -= 1;
            session.lists -= u32::from(origin.lists);
            let says_goodbye = self.stopping && session.stream.is_some();
            if session.blocked || session.half_closed || says_goodbye {
                self.unblocked.push(origin.conn);
            }
            if session.begins_to_migrate() {
                self.note_migration(origin.conn);
            }
        }
    }

    /// Lets connections go on whose answers have made room. True if there were any.
    pub fn go_on_unblocked(&mut self, conns: &mut Connections) -> bool {
        let unblocked = std::mem::take(&mut self.unblocked);
        for &conn in &unblocked {
            self.finish_if_over(conns, conn);
            if self.sessions.get(conn).is_some_and(|session| session.blocked) {
                self.go_on(conns, conn);
            }
            self.finish_if_answered(conns, conn);
            if self.stopping {
                self.say_goodbye_if_answered(conns, conn);
            }
        }
        !unblocked.is_empty()
    }

    /// Cuts off connections that do not read what they asked for.
    pub fn cut_off_slow_readers(&mut self, conns: &mut Connections) {
        for conn in std::mem::take(&mut self.slow_readers) {
            self.ended(conns, conn);
        }
    }

    /// A connection has taken all its output.
    pub fn drained(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        let stream = session.stream;
        if session.choked {
            self.unblocked.push(conn);
        }
        if let Some(key) = stream {
            self.feed_drained(key);
        }
        self.send_next_shared(conns, conn);
    }
}
