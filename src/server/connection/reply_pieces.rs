//! Replies of many bytes on their way to the connection: in pieces, which are not copied where that is possible.

use crate::api::error::ErrorKind;
use crate::protocol::frame::FRAME_BYTES_MAX;
use crate::server::connection::protocol::Protocol;
use crate::server::connection::session::UNSENT_BYTES_MAX;
use crate::server::overload::large_replies::LARGE_BYTES;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::message::Message;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;

impl ShardServer {
    /// Sends an answer in pieces, which are not copied where that is possible.
    pub(crate) fn send_pieces(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        mut pieces: Vec<Vec<u8>>,
    ) {
        let length: usize = pieces.iter().map(Vec::len).sum();
        if length > FRAME_BYTES_MAX {
            self.refuse(conns, origin, req_id, ErrorKind::ReplyTooLarge);
            return;
        }
        pieces.insert(0, (length as u32).to_be_bytes().to_vec());
        if length < LARGE_BYTES || !self.is_sent_as_it_is(origin) {
            self.send_whole(conns, origin, pieces.concat());
        } else {
            self.append_pieces(conns, origin, pieces);
        }
    }

    /// Sends a finished frame, which is not copied if it is long.
    pub(crate) fn send_whole(&mut self, conns: &mut Connections, origin: Origin, frame: Vec<u8>) {
        let dest = usize::from(origin.shard);
        if frame.len() < LARGE_BYTES {
            self.send_frame(conns, origin, &frame);
        } else if dest != self.me {
            let bytes = frame.len();
            self.outbox.after_commit(dest).messages.push(Message::List { origin, frame });
            self.note_large_answer(dest, bytes);
        } else if self.is_sent_as_it_is(origin) {
            self.append_pieces(conns, origin, vec![frame]);
        } else {
            self.send_as_text(conns, origin, frame);
        }
    }

    /// Whether a frame for this connection, which is one of this shard, becomes nothing else.
    fn is_sent_as_it_is(&self, origin: Origin) -> bool {
        usize::from(origin.shard) == self.me
            && self.sessions.protocol(origin.conn) == Some(Protocol::Frames)
    }

    fn append_pieces(&mut self, conns: &mut Connections, origin: Origin, pieces: Vec<Vec<u8>>) {
        let conn = origin.conn;
        if conns.unsent(conn) > UNSENT_BYTES_MAX {
            self.slow_readers.push(conn);
            return;
        }
        let tally = conns.tally().clone();
        let mut bytes = 0;
        for piece in pieces {
            bytes += piece.len();
            conns.append_shared(conn, &tally.share(piece));
        }
        self.touch(conn);
        self.note_large_answer(self.me, bytes);
    }
}
