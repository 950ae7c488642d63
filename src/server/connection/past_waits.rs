//! Commands that pass waits: while a connection has as many commands in progress as it may, what is said about jobs that
//! its workers hold is taken from behind the commands that wait for their turn. Otherwise a job would stall, or run
//! again, because its worker waits for other jobs on the same connection.

use super::protocol::Protocol;
use super::session::{IN_FLIGHT_MAX, Passing, Session};
use super::transcode::SLICE_BYTES;
use crate::protocol::decode::beginning::{BEGINNING_BYTES_MAX, name_in_frame};
use crate::protocol::frame::{PREFIX_BYTES, Split, split};
use crate::protocol::json;
use crate::protocol::websocket::{self, Kind};
use crate::server::overload::send_memory::is_tight;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};

/// Unanswered commands of one connection that have passed others: as many as may be in progress anyway.
const PASSED_MAX: u32 = IN_FLIGHT_MAX;

/// How a command stands to those that wait for their turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rank {
    /// Passes them.
    Passes,
    /// Waits for its turn.
    Waits,
    /// Changes what the commands behind it mean or may do, so nothing passes it.
    Bars,
}

impl Rank {
    fn of(name: Option<&[u8]>) -> Self {
        match name.unwrap_or_default() {
            b"ACK" | b"ACKB" | b"FAIL" | b"Progress" | b"Heartbeat" | b"JobHeartbeat"
            | b"JobHeartbeatB" | b"ExtendLock" | b"ExtendLocks" => Self::Passes,
            b"Auth" | b"Hello" => Self::Bars,
            _ => Self::Waits,
        }
    }

    fn of_frame(frame: &[u8]) -> Self {
        Self::of(name_in_frame(&frame[..frame.len().min(BEGINNING_BYTES_MAX)]))
    }

    fn of_text(text: &[u8]) -> Self {
        Self::of(json::text_of(&text[..text.len().min(BEGINNING_BYTES_MAX)], "cmd"))
    }
}

/// The first request in `bytes`: how many of them it takes, and the request itself if it passes. `None` if nothing behind
/// this place is to be looked at, or not yet.
fn first(protocol: Protocol, bytes: &[u8]) -> Option<(usize, Option<Vec<u8>>)> {
    match protocol {
        Protocol::Frames => {
            let Split::Complete { frame, .. } = split(bytes) else { return None };
            let rank = Rank::of_frame(frame);
            // Longer frames are read in slices, in their turn.
            let passes = rank == Rank::Passes && frame.len() <= SLICE_BYTES;
            (rank != Rank::Bars)
                .then(|| (PREFIX_BYTES + frame.len(), passes.then(|| frame.to_vec())))
        }
        Protocol::WebSocket => {
            let (frame, length) = websocket::split(bytes, None).ok()??;
            match frame.kind {
                Kind::First { text: true } if frame.last && length <= SLICE_BYTES => {
                    let mut text = Vec::new();
                    frame.unmask(&mut text);
                    let rank = Rank::of_text(&text);
                    (rank != Rank::Bars).then(|| (length, (rank == Rank::Passes).then_some(text)))
                }
                Kind::Ping | Kind::Pong => Some((length, None)),
                // A message in pieces, a long one, an error, or the end.
                Kind::First { .. } | Kind::Next | Kind::Close => None,
            }
        }
        Protocol::Http | Protocol::Events => None,
    }
}

impl ShardServer {
    /// Begins the commands that pass those which wait for their turn.
    pub(super) fn pass_waits(&mut self, conns: &mut Connections, conn: ConnId) {
        loop {
            let passing = self.take_passing(conns, conn);
            if passing.is_empty() {
                return;
            }
            for request in passing {
                match self.sessions.protocol(conn) {
                    Some(Protocol::Frames) => {
                        if self.admits_frame(conns, conn, &request) {
                            self.begin(conns, conn, (&*request).into());
                        }
                    }
                    Some(Protocol::WebSocket) => {
                        self.take_message(conns, conn, true, request);
                    }
                    _ => return,
                }
            }
        }
    }

    fn take_passing(&mut self, conns: &Connections, conn: ConnId) -> Passing {
        let waits = |session: &mut Session| session.blocked && session.in_flight >= IN_FLIGHT_MAX;
        if !self.sessions.get(conn).is_some_and(waits)
            || self.must_stall()
            || self.large_commands.has(conn)
        {
            return Passing::new();
        }
        let Self { sessions, fair_shares, subscribers, .. } = self;
        let Some(session) = sessions.get(conn) else { return Passing::new() };
        let subscriber = session.stream.and_then(|key| subscribers.subscriber(key));
        // The rest of a message in pieces stands in front.
        let in_pieces = subscriber.is_some_and(|subscriber| subscriber.incoming.is_some());
        if in_pieces
            || session.note_unread(conns.untaken(conn), is_tight(conns, self.client_memory))
            || session.quota.waits()
            || session.affinity.is_migrating()
            || session.transcoding.goes_on()
        {
            return Passing::new();
        }
        let room = (IN_FLIGHT_MAX + PASSED_MAX).saturating_sub(session.in_flight);
        let protocol = session.protocol;
        let mut pending = std::mem::take(&mut session.pending);
        let passing = pending.take_passing(room as usize, |bytes| {
            let (length, request) = first(protocol, bytes)?;
            let admitted = request.is_none() || fair_shares.admit(session, length, bytes.len());
            admitted.then_some((length, request))
        });
        session.pending = pending;
        passing
    }
}
