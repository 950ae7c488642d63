//! `SubscribeEvents` and `UnsubscribeEvents`: a connection of frames that listens to the events of one queue beside
//! what it asks. How events come to it is not known here.

use super::shared_buffer::Form;
use crate::protocol::reply;
use crate::server::connection::session::Speech;
use crate::server::shard_mail::dispatch::Asked;
use crate::server::shard_server::Core;
use corq_io::net::{ConnId, Connections};

/// What a client is told that subscribes on a connection of another kind.
const NOT_FRAMES: &str = "Subscriptions are for connections over TCP";

impl Core {
    /// `SubscribeEvents`: the answer comes once all that happens from then on is told. One queue per
    /// connection: another subscription ends the one before.
    pub(crate) fn subscribe(&mut self, conns: &mut Connections, asked: Asked<'_>, queue: &str) {
        let conn = asked.origin.conn;
        if self.sessions.speech(conn) != Some(Speech::Frames) {
            self.refuse(conns, asked.origin, asked.req_id, NOT_FRAMES);
            return;
        }
        self.end_subscription(conns, conn);
        self.deferred(asked.origin);
        let mut hello = Vec::new();
        reply::ok(&mut hello, asked.req_id);
        self.open_stream(conns, conn, Form::Frames, Some(queue), hello);
    }

    /// Answers `UnsubscribeEvents`.
    pub(crate) fn unsubscribe(&mut self, conns: &mut Connections, asked: Asked<'_>) {
        if self.sessions.speech(asked.origin.conn) != Some(Speech::Frames) {
            self.refuse(conns, asked.origin, asked.req_id, NOT_FRAMES);
            return;
        }
        self.end_subscription(conns, asked.origin.conn);
        self.respond(conns, asked.origin, |_, pen| reply::ok(pen.out, asked.req_id));
    }

    fn end_subscription(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(key) = self.sessions.get(conn).and_then(|session| session.stream.take()) else {
            return;
        };
        if let Some(hello) = self.streams.end_opening(key) {
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
