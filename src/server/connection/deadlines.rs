//! Deadlines of connections of frames or messages: until a client has shown its token, where there are tokens, and until
//! the rest of a frame has come. An idle connection without a partial frame has no deadline.
//!
//! Connections are few, and a partial frame takes memory: a client that sends half of something holds neither for
//! ever. The rest of a frame gets no more time with each piece of it, a message in pieces none with each of
//! those. Time in which the server does not take what has come does not count. The alarms are those of HTTP connections.
//!
//! Wrong tokens, over whatever protocol, are refused here, at once or later (`src/server/access/slowed.rs`).

use super::protocol::Protocol;
use crate::api::error::ErrorKind;
use crate::protocol::websocket::Closing;
use crate::server::access::slowed::{RefusalTime, RefusedBy};
use crate::server::http::Phase;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};

/// Connections that were given up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadlines {
    /// Without a token.
    pub tokens: u64,
    /// In the middle of a frame or message.
    pub frames: u64,
}

/// Refusals of tokens that are sent in a turn.
const REFUSALS_PER_TURN: usize = 500;

/// Counts a wrong token, and says when it is refused: the command or request counts as unanswered until then.
pub(crate) fn refuse_token(
    server: &mut ShardServer,
    conns: &mut Connections,
    origin: Origin,
    refused: RefusedBy,
) -> RefusalTime {
    let steady_ms = server.http.alarms.steady_ms(server.now_ms);
    let time = server.access.slowed.judge(steady_ms, conns.peer(origin.conn).ok(), origin, refused);
    match time {
        RefusalTime::Now => {}
        RefusalTime::Later => server.deferred(origin),
        RefusalTime::Never => server.finish_connection(conns, origin.conn),
    }
    time
}

/// Sends refusals that are due, a slice of them; at the end of the server all are. Returns when to come again.
pub(crate) fn send_refusals(server: &mut ShardServer, conns: &mut Connections) -> u64 {
    let steady_ms = server.http.alarms.steady_ms(server.now_ms);
    for _ in 0..REFUSALS_PER_TURN {
        let Some(at_ms) = server.access.slowed.next_ms() else { return u64::MAX };
        if at_ms > steady_ms && !server.stopping {
            return server.now_ms + (at_ms - steady_ms);
        }
        let Some((origin, refused)) = server.access.slowed.pop() else { return u64::MAX };
        server.meter.note(1);
        server.answered(origin);
        match refused {
            RefusedBy::Auth(req_id) => {
                server.refuse(conns, origin, req_id.as_deref(), ErrorKind::InvalidToken);
            }
            RefusedBy::Login => server.conclude_error(conns, origin.conn, ErrorKind::InvalidToken),
            RefusedBy::Request => server.refuse_request(origin.conn),
        }
    }
    server.now_ms
}

impl ShardServer {
    /// When a connection that begins to show its token now is late.
    fn known_by_ms(&self) -> u64 {
        self.http.alarms.steady_ms(self.now_ms) + self.http.settings.auth_timeout_ms
    }

    /// Notes whether a connection may give commands. One that has just lost that, or never had it, has so long to
    /// show a token; asking again brings no more time.
    pub(crate) fn note_trust(&mut self, conn: ConnId, trusted: bool) {
        let known_by_ms = self.known_by_ms();
        let Some(session) = self.sessions.get(conn) else { return };
        session.trusted = trusted;
        let patience = &mut session.http.patience;
        patience.known_by_ms =
            if trusted { u64::MAX } else { patience.known_by_ms.min(known_by_ms) };
        self.set_alarm(conn);
    }

    /// Notes what a connection has begun to send and not ended, after all that is there has been looked at. `heard` if
    /// something of it has been handled since the last time.
    pub(crate) fn note_rest(&mut self, conn: ConnId, heard: bool) {
        let Some(session) = self.sessions.get(conn) else { return };
        let since_ms = match (session.protocol, session.stream) {
            (Protocol::Frames, _) => None,
            (Protocol::WebSocket, Some(key)) => self.subscribers.incoming_since_ms(key),
            _ => return,
        };
        let begun = !session.blocked && (since_ms.is_some() || !session.pending.is_empty());
        let timeout_ms = self.http.settings.frame_timeout_ms;
        let (phase, due_ms) = session.http.patience.what();
        match (phase, begun, since_ms) {
            (Phase::Answering, false, _) => {}
            (_, false, _) => self.await_until(conn, Phase::Answering, u64::MAX),
            (Phase::Reading, true, Some(since_ms)) => {
                let due_ms = due_ms.max(since_ms.saturating_add(timeout_ms));
                self.await_until(conn, Phase::Reading, due_ms);
            }
            (Phase::Reading, true, None) if !heard => {}
            (_, true, _) => {
                let steady_ms = self.http.alarms.steady_ms(self.now_ms);
                self.await_until(conn, Phase::Reading, steady_ms + timeout_ms);
            }
        }
    }

    /// The server reads on. A stranger whose token it may have had in hand all along has the whole time from here:
    /// what it said has its turn only after all that others have said.
    pub(crate) fn restart_auth_deadlines(&mut self) {
        let known_by_ms = self.known_by_ms();
        for session in self.sessions.iter_mut().filter(|session| session.says_what_is_not_read()) {
            // The alarm that is set rings before, and is set again then.
            session.http.patience.known_by_ms = known_by_ms;
        }
    }

    /// A connection of frames or messages has been waited for long enough.
    pub(crate) fn give_up_frames(&mut self, conns: &mut Connections, conn: ConnId) {
        let (steady_ms, busy) = (self.http.alarms.steady_ms(self.now_ms), self.must_stall());
        let known_by_ms = self.known_by_ms();
        let Some(session) = self.sessions.get(conn) else { return };
        let (_, due_ms) = session.http.patience.what();
        if busy && session.says_what_is_not_read() && due_ms > steady_ms {
            session.http.patience.known_by_ms = known_by_ms;
            self.set_alarm(conn);
            return;
        }
        let is_stranger = !session.trusted;
        let Deadlines { tokens, frames } = &mut self.deadlines;
        let (count, error, closing) = if is_stranger {
            (tokens, ErrorKind::NotAuthenticated, Closing::STRANGER)
        } else {
            (frames, ErrorKind::FrameTooSlow, Closing::TOO_SLOW)
        };
        *count += 1;
        if session.protocol == Protocol::WebSocket {
            self.close_websocket(conns, conn, Some(closing));
        } else {
            let origin = self.origin(conn);
            self.refuse(conns, origin, None, error);
            self.finish_connection(conns, conn);
        }
    }
}
