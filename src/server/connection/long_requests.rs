//! Long requests are judged by their beginning: one for a command that cannot be as long is refused before it has come,
//! and what still comes of it is dropped as it comes. See [`crate::protocol::decode::beginning`].

use crate::protocol::decode::beginning::{BEGINNING_BYTES_MAX, Face, LONG_BYTES, judge};
use crate::protocol::decode::find_req_id;
use crate::protocol::websocket::{self, Closing};
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};

/// Bytes of a message that are looked at first: nearly all messages name their command there.
const FRONT_BYTES: usize = 512;

/// Judgement of a message of which more is to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judged {
    /// The message is not long, or its command is not known yet.
    NotYet,
    /// The command may be as long as the message is.
    MayBe,
    /// The command may not be as long, and the connection is closed.
    Refused,
}

impl ShardServer {
    /// Drops what comes of a frame that was refused; how many bytes of `bytes` that is.
    #[inline]
    pub(crate) fn drop_refused(&mut self, conn: ConnId, bytes: usize) -> usize {
        let Some(session) = self.sessions.get(conn) else { return 0 };
        let dropped = session.refused_bytes.min(bytes);
        session.refused_bytes -= dropped;
        dropped
    }

    /// Whether a frame of which this has come is refused for its length. Then it has been answered.
    #[inline]
    pub(crate) fn refuses_long_frame(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        beginning: &[u8],
        frame_bytes: usize,
    ) -> bool {
        frame_bytes > LONG_BYTES && self.judge_frame(conns, conn, beginning, frame_bytes)
    }

    #[cold]
    fn judge_frame(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        beginning: &[u8],
        frame_bytes: usize,
    ) -> bool {
        let (come, is_whole) = (beginning.len(), beginning.len() == frame_bytes);
        let Some(session) = self.sessions.get(conn) else { return false };
        let verdict = std::mem::take(&mut session.front_verdict);
        if !is_whole && !verdict.is_due(come) {
            session.front_verdict = verdict;
            return false;
        }
        let judged = judge(beginning, frame_bytes, Face::Frame);
        if !is_whole {
            session.front_verdict.note(come, judged.as_ref());
        }
        let Some(Err(error)) = judged else { return false };
        if !self.sessions.get(conn).is_some_and(|session| session.trusted) {
            // Nothing but its token is of interest.
            return false;
        }
        self.long_refused += 1;
        let req_id = find_req_id(beginning[..beginning.len().min(BEGINNING_BYTES_MAX)].into());
        if frame_bytes == beginning.len() || self.admits_frame(conns, conn, beginning) {
            let origin = self.origin(conn);
            self.refuse(conns, origin, req_id, &error);
        }
        if let Some(session) = self.sessions.get(conn) {
            session.refused_bytes = frame_bytes - beginning.len();
        }
        true
    }

    /// Judges a message whose frame at the front of `bytes` is not there yet: `open` is what has come of it before. The
    /// connection of one that is refused is closed.
    pub(crate) fn judge_message(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        bytes: &[u8],
        open: Option<usize>,
    ) -> Judged {
        let announced = websocket::announced(bytes) as usize + open.unwrap_or(0);
        if announced <= LONG_BYTES {
            return Judged::NotYet;
        }
        let mut front = Vec::new();
        for most in [FRONT_BYTES, BEGINNING_BYTES_MAX] {
            front.clear();
            if open.is_some() {
                let key = self.sessions.get(conn).and_then(|session| session.stream);
                let listener = key.and_then(|key| self.subscribers.subscriber(key));
                let Some(incoming) = listener.and_then(|one| one.incoming.as_ref()) else {
                    return Judged::NotYet;
                };
                front.extend_from_slice(&incoming.bytes[..incoming.bytes.len().min(most)]);
            }
            websocket::unmask_begun(bytes, most - front.len(), &mut front);
            match judge(&front, announced, Face::Text) {
                None => {}
                Some(Ok(_)) => return Judged::MayBe,
                Some(Err(_)) => {
                    self.long_refused += 1;
                    self.close_websocket(conns, conn, Some(Closing::TOO_LONG));
                    return Judged::Refused;
                }
            }
        }
        Judged::NotYet
    }
}
