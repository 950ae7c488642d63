//! The one place where replies are written: into a connection's output, into mail for the shard that
//! has the connection, or aside, where they have to become something else first.

use super::session::{Speech, UNSENT_BYTES_MAX};
use crate::protocol::reply;
use crate::server::overload::large_replies::LARGE_BYTES;
use crate::server::shard_mail::message::{Message, Origin};
use crate::server::shard_server::{Core, Pen};
use crate::server::storage::cold_reads::Then;
use crate::server::storage::engine::Engine;
use corq_io::net::{ConnId, Connections};

impl Core {
    /// Writes a reply to where it belongs. With holes it waits for the disk.
    pub(crate) fn respond(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        write: impl FnOnce(&Engine, &mut Pen<'_>),
    ) {
        let mut holes = Vec::new();
        let dest = usize::from(origin.shard);
        let speech = if dest == self.me { self.sessions.speech(origin.conn) } else { None };
        let mut scratch = Vec::new();
        let out = if dest == self.me {
            // Nobody waits at a connection that is gone, or only listens.
            let Some(speech) = speech.filter(|speech| *speech != Speech::Events) else { return };
            if conns.unsent(origin.conn) > UNSENT_BYTES_MAX {
                self.deaf.push(origin.conn);
                return;
            }
            let Some(out) = conns.output(origin.conn) else { return };
            match speech {
                Speech::Frames => out,
                Speech::Http => {
                    scratch = self.http.take_reply();
                    &mut scratch
                }
                Speech::WebSocket | Speech::Events => {
                    scratch = std::mem::take(&mut self.scratch.replies);
                    &mut scratch
                }
            }
        } else {
            &mut self.post.tell(dest).bytes
        };
        let start = out.len();
        write(&self.engine, &mut Pen { out: &mut *out, holes: &mut holes });
        if holes.is_empty() {
            let frame = start..out.len();
            let mut bytes = frame.len();
            // As text it may be several times as long.
            let becomes_text = !matches!(speech, None | Some(Speech::Frames));
            let before = if becomes_text { conns.appended(origin.conn) } else { 0 };
            match speech {
                None => self.post.tell(dest).messages.push(Message::Reply { origin, frame }),
                Some(Speech::Frames) => self.touch(origin.conn),
                Some(Speech::Http) => self.answer_http_or_begin(conns, origin, scratch),
                Some(Speech::WebSocket | Speech::Events) => {
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
        let records: Vec<_> = holes.iter().map(|hole| hole.stored).collect();
        for hole in &mut holes {
            hole.at -= start;
        }
        self.read_first(origin, Then::Send { frame, holes }, &records, Vec::new());
    }

    /// Notes that a connection has new output. It may be noted twice.
    pub(crate) fn touch(&mut self, conn: ConnId) {
        if self.touched.last() != Some(&conn) {
            self.touched.push(conn);
        }
    }

    /// Copies a finished frame to where it belongs.
    pub(crate) fn send_frame(&mut self, conns: &mut Connections, origin: Origin, frame: &[u8]) {
        self.respond(conns, origin, |_, pen| pen.out.extend_from_slice(frame));
    }

    /// Sends a long frame as what it becomes for a connection of this shard that gets no frames.
    pub(crate) fn send_as_text(&mut self, conns: &mut Connections, origin: Origin, frame: Vec<u8>) {
        if conns.unsent(origin.conn) > UNSENT_BYTES_MAX {
            self.deaf.push(origin.conn);
            return;
        }
        match self.sessions.speech(origin.conn) {
            Some(Speech::WebSocket) => self.send_as_messages(conns, origin, frame),
            Some(Speech::Http) => self.answer_http_or_begin(conns, origin, frame),
            Some(Speech::Frames | Speech::Events) | None => {}
        }
    }

    /// Answers with an error.
    pub(crate) fn refuse(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        text: &str,
    ) {
        self.respond(conns, origin, |_, pen| reply::error(pen.out, req_id, text));
    }
}
