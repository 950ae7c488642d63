//! The one place where replies are written: into a connection's output, into a message to the shard that has the connection,
//! or into scratch memory, where they have to become JSON first.

use super::protocol::Protocol;
use super::reply_writer::ReplyWriter;
use super::session::UNSENT_BYTES_MAX;
use crate::api::error::ErrorRef;
use crate::protocol::reply;
use crate::server::overload::large_replies::LARGE_BYTES;
use crate::server::shard_mail::envelope::{Origin, Ticket};
use crate::server::shard_mail::message::Message;
use crate::server::shard_server::ShardServer;
use crate::server::storage::cold_reads::Continuation;
use crate::server::storage::engine::Engine;
use corq_io::net::{ConnId, Connections};

impl ShardServer {
    /// Writes a reply to where it belongs. With placeholders it waits for the disk.
    pub(crate) fn respond(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        write: impl FnOnce(&Engine, &mut ReplyWriter<'_>),
    ) {
        let mut placeholders = Vec::new();
        let dest = usize::from(origin.shard);
        let protocol = if dest == self.me { self.sessions.protocol(origin.conn) } else { None };
        let mut scratch = Vec::new();
        let out = if dest == self.me {
            // A connection that is gone, or only listens, waits for no reply.
            let Some(protocol) = protocol.filter(|protocol| *protocol != Protocol::Events) else {
                return self.audit_unsent(origin, write);
            };
            if conns.unsent(origin.conn) > UNSENT_BYTES_MAX {
                self.slow_readers.push(origin.conn);
                return self.audit_unsent(origin, write);
            }
            let Some(out) = conns.output(origin.conn) else {
                return self.audit_unsent(origin, write);
            };
            match protocol {
                Protocol::Frames => out,
                Protocol::Http => {
                    scratch = self.http.take_reply();
                    &mut scratch
                }
                Protocol::WebSocket | Protocol::Events => {
                    scratch = std::mem::take(&mut self.scratch.replies);
                    &mut scratch
                }
            }
        } else {
            &mut self.outbox.after_commit(dest).bytes
        };
        let start = out.len();
        write(&self.engine, &mut ReplyWriter { out: &mut *out, placeholders: &mut placeholders });
        if placeholders.is_empty() {
            let frame = start..out.len();
            let mut bytes = frame.len();
            if origin.ticket != Ticket::NONE && dest == self.me {
                let answer = out[start..].to_vec();
                self.audit_answer(origin, &answer);
            }
            // As text it may be several times as long.
            let becomes_text = !matches!(protocol, None | Some(Protocol::Frames));
            let before = if becomes_text { conns.appended(origin.conn) } else { 0 };
            match protocol {
                None => {
                    self.outbox.after_commit(dest).messages.push(Message::Reply { origin, frame });
                }
                Some(Protocol::Frames) => self.touch(origin.conn),
                Some(Protocol::Http) => self.answer_http_or_begin(conns, origin, scratch),
                Some(Protocol::WebSocket | Protocol::Events) => {
                    self.send_as_messages(conns, origin, scratch);
                }
            }
            if becomes_text {
                bytes = conns.appended(origin.conn).saturating_sub(before) as usize;
            }
            if bytes >= LARGE_BYTES {
                self.note_large_answer(dest, bytes);
            }
            return;
        }
        let frame = out.split_off(start);
        let records: Vec<_> = placeholders.iter().map(|placeholder| placeholder.stored).collect();
        for placeholder in &mut placeholders {
            placeholder.cut_off(start);
        }
        self.read_first(origin, Continuation::Send { frame, placeholders }, &records, Vec::new());
    }

    /// Notes that a connection has new output. It may be noted twice.
    pub(crate) fn touch(&mut self, conn: ConnId) {
        if self.touched.last() != Some(&conn) {
            self.touched.push(conn);
        }
    }

    /// Copies a finished frame to where it belongs.
    pub(crate) fn send_frame(&mut self, conns: &mut Connections, origin: Origin, frame: &[u8]) {
        self.respond(conns, origin, |_, sink| sink.out.extend_from_slice(frame));
    }

    /// Sends a long frame as what it becomes for a connection of this shard that gets no frames.
    pub(crate) fn send_as_text(&mut self, conns: &mut Connections, origin: Origin, frame: Vec<u8>) {
        if conns.unsent(origin.conn) > UNSENT_BYTES_MAX {
            self.slow_readers.push(origin.conn);
            return;
        }
        match self.sessions.protocol(origin.conn) {
            Some(Protocol::WebSocket) => self.send_as_messages(conns, origin, frame),
            Some(Protocol::Http) => self.answer_http_or_begin(conns, origin, frame),
            Some(Protocol::Frames | Protocol::Events) | None => {}
        }
    }

    /// Answers with an error.
    pub(crate) fn refuse<'e>(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        error: impl Into<ErrorRef<'e>>,
    ) {
        let error = error.into();
        let Origin { shard: home, conn, .. } = origin;
        tracing::debug!(
            shard = self.me,
            command = self.meter.current().name(),
            code = error.code.name(),
            conn = %format_args!("{home}/{}.{}", conn.index, conn.generation),
            "refused: {}",
            error.text
        );
        self.respond(conns, origin, |_, sink| reply::error(sink.out, req_id, error));
    }
}
