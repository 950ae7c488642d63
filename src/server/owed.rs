//! Answers that are long and the same for many: the end of a job that any number of clients wait for. The value is held
//! once and sent from where it is; what a client gets of its own is the beginning, with its `reqId`.
//!
//! A connection is given the next of them when it has taken what it had: until then it counts as unanswered, and is
//! a few bytes. So what one command sets free for many takes the memory of one, however they read.

use super::core::Core;
use super::engine::Records;
use super::message::{Message, Origin};
use super::parked::Parked;
use super::session::Speech;
use super::wait::write_ending_head;
use super::websocket::write_too_large;
use crate::protocol::frame::PREFIX_BYTES;
use crate::protocol::json;
use crate::protocol::reply;
use crate::protocol::websocket::{Head, MESSAGE_BYTES_MAX};
use crate::protocol::write::Writer;
use corq_io::net::{ConnId, Connections, Shared, Tally};
use corq_shards::effect::Ending;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

/// A value from which it is not copied for each who gets it. A shorter one goes with the rest of the answer.
pub const SHARED_BYTES_MIN: usize = 16 << 10;

/// A connection with more than this unsent is given no other for now.
const UNSENT_BYTES_MAX: usize = 64 << 10;

/// A value that many are answered with, in the forms in which it goes out.
#[derive(Debug)]
struct Value {
    bytes: Shared,
    /// As JSON, with the end of the answer behind it. None if no message has room for it.
    text: OnceLock<Option<Shared>>,
}

impl Value {
    fn text(&self, tally: &Tally) -> Option<&Shared> {
        let print = || {
            let mut text = Vec::new();
            json::from_msgpack_within(self.bytes.bytes(), &mut text, MESSAGE_BYTES_MAX).ok()?;
            text.push(b'}');
            Some(tally.share(text))
        };
        self.text.get_or_init(print).as_ref()
    }
}

/// An answer that waits for its connection.
#[derive(Debug)]
pub struct Owed {
    origin: Origin,
    /// The reply up to its last value.
    head: Box<[u8]>,
    value: Arc<Value>,
}

/// What a connection is owed, in order; without memory while that is nothing.
pub type Debts = Option<Box<VecDeque<Owed>>>;

/// The value that was asked for last: those who wait for it are answered one after the other.
#[derive(Debug, Default)]
pub struct LastValue {
    /// Where its record is, if it is one of this shard.
    position: Option<u64>,
    bytes: Option<Arc<[u8]>>,
    value: Option<Arc<Value>>,
    used: bool,
}

impl LastValue {
    /// A turn begins: what the last one had no use for goes.
    pub fn begin_turn(&mut self) {
        if !std::mem::take(&mut self.used) {
            *self = Self::default();
        }
    }

    /// Whether there is one to be let go of.
    pub fn is_held(&self) -> bool {
        self.bytes.is_some()
    }

    fn hold(&mut self, position: Option<u64>, bytes: Arc<[u8]>) {
        *self = Self { position, bytes: Some(bytes), value: None, used: true };
    }

    /// The same bytes, as this shard sends them.
    fn value_of(&mut self, bytes: &Arc<[u8]>, tally: &Tally) -> Arc<Value> {
        if !self.bytes.as_ref().is_some_and(|held| Arc::ptr_eq(held, bytes)) {
            self.hold(None, bytes.clone());
        }
        self.used = true;
        let new = || {
            let bytes = tally.share(bytes.clone());
            Arc::new(Value { bytes, text: OnceLock::new() })
        };
        self.value.get_or_insert_with(new).clone()
    }
}

impl Core {
    /// Answers a wait if its job has ended with a long value that is at hand. False if it has not.
    pub(super) fn owe_ending(
        &mut self,
        conns: &mut Connections,
        parked: &Parked,
        ending: Ending,
    ) -> bool {
        let Some(value) = self.value_of_ending(ending) else { return false };
        let mut head = Vec::new();
        write_ending_head(&mut head, parked.req_id.as_deref(), Some(ending));
        self.owe(conns, parked.origin, &head, value);
        true
    }

    fn value_of_ending(&mut self, ending: Ending) -> Option<Arc<[u8]>> {
        let (stored, is_text) = match ending {
            Ending::Completed(stored) => (stored, false),
            Ending::Failed(stored) => (stored, true),
            Ending::Removed => return None,
        };
        if (stored.payload_bytes as usize) < SHARED_BYTES_MIN {
            return None;
        }
        let last = &mut self.last_value;
        if last.position == Some(stored.position) {
            last.used = true;
            return last.bytes.clone();
        }
        let payload = Records::new(&self.engine.book, &[]).payload(&stored).ok()?;
        let bytes: Arc<[u8]> = if is_text {
            let mut text = Vec::with_capacity(payload.len() + 5);
            Writer::new(&mut text).str_head(payload.len());
            text.extend_from_slice(payload);
            text.into()
        } else {
            payload.into()
        };
        last.hold(Some(stored.position), bytes.clone());
        Some(bytes)
    }

    /// Answers with `head` and a value that others get as well, as soon as the connection has room.
    pub(super) fn owe(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        head: &[u8],
        value: Arc<[u8]>,
    ) {
        let dest = usize::from(origin.shard);
        if dest != self.me {
            let batch = self.post.tell(dest);
            let head = batch.keep(head);
            batch.messages.push(Message::Owed { origin, head, value });
            return;
        }
        let value = self.last_value.value_of(&value, conns.tally());
        let Some(session) = self.sessions.get(origin.conn) else { return };
        let owed = Owed { origin, head: head.into(), value };
        if session.debts.is_none() && conns.unsent(origin.conn) <= UNSENT_BYTES_MAX {
            self.pay(conns, &owed);
            return;
        }
        session.debts.get_or_insert_default().push_back(owed);
        conns.tell_when_drained(origin.conn);
    }

    /// A connection has taken its output: what it is owed comes next.
    pub(super) fn pay_next(&mut self, conns: &mut Connections, conn: ConnId) {
        loop {
            let unsent = conns.unsent(conn);
            let Some(session) = self.sessions.get(conn) else { return };
            let Some(debts) = &mut session.debts else { return };
            if unsent > UNSENT_BYTES_MAX {
                conns.tell_when_drained(conn);
                return;
            }
            let Some(owed) = debts.pop_front() else {
                session.debts = None;
                return;
            };
            self.pay(conns, &owed);
        }
    }

    fn pay(&mut self, conns: &mut Connections, owed: &Owed) {
        let Owed { origin, head, value } = owed;
        self.answered(*origin);
        let conn = origin.conn;
        match self.sessions.speech(conn) {
            Some(Speech::Frames) => {
                let Some(out) = conns.output(conn) else { return };
                let length = (head.len() + value.bytes.bytes().len()) as u32;
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(head);
                conns.append_shared(conn, &value.bytes);
            }
            Some(Speech::WebSocket) => {
                let tally = conns.tally().clone();
                let Some(out) = conns.output(conn) else { return };
                let Some(text) = value.text(&tally) else {
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
            Some(Speech::Http | Speech::Events) | None => return,
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
    // It was written here, and the name that the client gave was checked when it came.
    let shown = json::from_reply(&head_frame(head)[PREFIX_BYTES..], &mut text);
    debug_assert!(shown.is_ok(), "a reply is a value");
    text.truncate(text.len().saturating_sub(b"null}".len()));
    text
}
