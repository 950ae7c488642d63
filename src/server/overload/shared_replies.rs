//! Answers that are long and the same for many: the end of a job that any number of clients wait for. The value is held
//! once and sent from where it is; what a client gets of its own is the beginning, with its `reqId`.
//!
//! A connection is given the next of them when it has taken what it had: until then it counts as unanswered, and is
//! a few bytes. So what one command sets free for many takes the memory of one, however they read.

use super::shared_values::Value;
use crate::protocol::frame::PREFIX_BYTES;
use crate::protocol::json;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply;
use crate::protocol::websocket::{Head, MESSAGE_BYTES_MAX};
use crate::server::commands::wait_job::write_ending_head;
use crate::server::connection::protocol::Protocol;
use crate::server::connection::websocket::write_too_large;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::message::Message;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};
use corq_shards::effect::Ending;
use std::collections::VecDeque;
use std::sync::Arc;

/// A connection with more than this unsent is given no other for now.
const UNSENT_BYTES_MAX: usize = 64 << 10;

/// An answer that waits for its connection.
#[derive(Debug)]
pub struct SharedReply {
    origin: Origin,
    /// The reply up to its last value.
    head: Box<[u8]>,
    value: Arc<Value>,
    /// Whether its text is being made.
    asked: bool,
}

/// Replies that wait for one connection, in order; without memory while there are none.
#[derive(Debug, Default)]
pub struct SharedReplies(Option<Box<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    owed: VecDeque<SharedReply>,
    /// Of all its values together, each as often as it is owed.
    bytes: usize,
}

impl SharedReplies {
    /// Bytes of all that is owed, a value that is owed twice counted twice.
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| queue.bytes)
    }

    fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn push(&mut self, owed: SharedReply) {
        let queue = self.0.get_or_insert_default();
        queue.bytes += owed.value.bytes().bytes().len();
        queue.owed.push_back(owed);
    }

    fn first(&mut self) -> Option<&mut SharedReply> {
        self.0.as_mut()?.owed.front_mut()
    }

    fn pop(&mut self) -> Option<SharedReply> {
        let queue = self.0.as_mut()?;
        let owed = queue.owed.pop_front()?;
        queue.bytes -= owed.value.bytes().bytes().len();
        if queue.owed.is_empty() {
            self.0 = None;
        }
        Some(owed)
    }
}

impl ShardServer {
    /// Answers with an ending whose value others get as well, as soon as the connection has room.
    pub(crate) fn send_shared_reply(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        (req_id, ending): (Option<&[u8]>, Ending),
        value: Arc<Vec<u8>>,
    ) {
        let mut head = Vec::new();
        write_ending_head(&mut head, req_id, Some(ending));
        let dest = usize::from(origin.shard);
        if dest != self.me {
            let batch = self.outbox.after_commit(dest);
            let head = batch.keep(&head);
            batch.messages.push(Message::SharedReply { origin, head, value });
            return;
        }
        self.queue_shared_reply(conns, origin, &head, &value);
    }

    /// Answers a connection of this shard with `head` and a value that others get as well.
    pub(crate) fn queue_shared_reply(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        head: &[u8],
        value: &Arc<Vec<u8>>,
    ) {
        let value = self.shared_values.value_of(value, conns);
        let Some(session) = self.sessions.get(origin.conn) else { return };
        let owed = SharedReply { origin, head: head.into(), value, asked: false };
        let waits = !session.shared_replies.is_empty();
        session.shared_replies.push(owed);
        conns.note_owed(origin.conn, session.shared_replies.bytes());
        if !waits {
            self.send_next_shared(conns, origin.conn);
        }
    }

    /// A connection has taken its output: what it is owed comes next.
    pub(crate) fn send_next_shared(&mut self, conns: &mut Connections, conn: ConnId) {
        loop {
            let unsent = conns.unsent(conn);
            let Some(session) = self.sessions.get(conn) else { return };
            let Some(owed) = session.shared_replies.first() else { return };
            if unsent > UNSENT_BYTES_MAX {
                conns.notify_when_drained(conn);
                return;
            }
            let tally = self.shared_values.tally(conns);
            if session.protocol == Protocol::WebSocket && !owed.value.has_text(&tally) {
                if !std::mem::replace(&mut owed.asked, true) {
                    let value = owed.value.clone();
                    self.write_value_in_slices(conns, conn, &value, MESSAGE_BYTES_MAX);
                }
                return;
            }
            let Some(owed) = session.shared_replies.pop() else { return };
            conns.note_owed(conn, session.shared_replies.bytes());
            self.send_queued(conns, &owed);
        }
    }

    fn send_queued(&mut self, conns: &mut Connections, owed: &SharedReply) {
        let SharedReply { origin, head, value, .. } = owed;
        self.answered(*origin);
        let conn = origin.conn;
        match self.sessions.protocol(conn) {
            Some(Protocol::Frames) => {
                let Some(out) = conns.output(conn) else { return };
                let length = (head.len() + value.bytes().bytes().len()) as u32;
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(head);
                conns.append_shared(conn, value.bytes());
            }
            Some(Protocol::WebSocket) => {
                let Some(out) = conns.output(conn) else { return };
                let Some(text) = value.text() else {
                    let mut refusal = Vec::new();
                    write_too_large(
                        head_frame(head).get(PREFIX_BYTES..).unwrap_or_default(),
                        &mut refusal,
                    );
                    out.extend_from_slice(Head::of_text(refusal.len()).bytes());
                    out.extend_from_slice(&refusal);
                    self.touch(conn);
                    return;
                };
                let begun = text_head(head);
                out.extend_from_slice(Head::of_text(begun.len() + text.bytes().len()).bytes());
                out.extend_from_slice(&begun);
                conns.append_shared(conn, text);
            }
            // No command of these waits for a job.
            Some(Protocol::Http | Protocol::Events) | None => return,
        }
        self.touch(conn);
    }
}

/// The frame that a head would be with nothing for its value.
fn head_frame(head: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let framing = reply::Frame::begin(&mut frame);
    frame.extend_from_slice(head);
    Writer::new(&mut frame).nil();
    // A head has a few kilobytes at most.
    let _ = framing.finish(&mut frame);
    frame
}

/// A head as JSON, up to where its value goes.
fn text_head(head: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    // The head was written by this server, and the client's name in it was checked when it came.
    let shown = json::from_reply(&head_frame(head)[PREFIX_BYTES..], &mut text);
    debug_assert!(shown.is_ok(), "a reply is a value");
    text.truncate(text.len().saturating_sub(b"null}".len()));
    text
}
