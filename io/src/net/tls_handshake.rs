//! TLS connections in a reactor: handshakes in their turn, then records.
//!
//! A handshake costs the server far more than the client that begins it: so what has come of one waits, and a
//! turn of the shard gives all of them together [`TURN`] and no more than one step beyond it. However many
//! come, everybody else is served in between.

use std::time::{Duration, Instant};

use super::buffers::Chunk;
use super::connection::Life;
use super::reactor::Reactor;
use super::{ConnId, EndReason, Event};

const GONE: &str = "the client has gone";

/// Time for handshakes in one turn, about two of those with a key on an elliptic curve.
const TURN: Duration = Duration::from_micros(500);

impl Reactor {
    /// Bytes of a connection whose keys are being agreed on.
    pub(super) fn receive_handshake(&mut self, id: ConnId, chunk: Chunk, events: &mut Vec<Event>) {
        if let Some((conn, _)) = self.conns.get_mut(id)
            && let Some(tls) = &mut conn.tls
        {
            let listener = tls.listener;
            if !tls.receive(self.buffers.bytes(&chunk)) {
                self.counters.not_tls += 1;
                self.conns.continue_without_tls(id);
                events.push(Event::NotTls { conn: id, listener });
            } else if !std::mem::replace(&mut tls.queued, true) {
                self.handshakes.push_back(id);
            }
        }
        self.buffers.recycle(chunk);
        self.conns.note_handshake(id);
        while let Some(largest) = self.conns.handshake_over_limit() {
            self.counters.handshakes_crowded_out += 1;
            self.conns.abort(largest);
        }
    }

    /// Goes on with the handshakes whose turn it is.
    pub(super) fn run_handshakes(&mut self, events: &mut Vec<Event>) {
        let begun = Instant::now();
        while let Some(id) = self.handshakes.pop_front() {
            self.step(id, events);
            if begun.elapsed() >= TURN {
                return;
            }
        }
    }

    fn step(&mut self, id: ConnId, events: &mut Vec<Event>) {
        // The connection may have been cut while it waited for its turn.
        let Some((conn, pool)) = self.conns.get_mut(id) else { return };
        if conn.life != Life::Handshake {
            return;
        }
        let Some(tls) = &mut conn.tls else { return };
        tls.queued = false;
        let listener = tls.listener;
        let opened = tls.open(&mut [], pool);
        if let Err(error) = opened.outcome {
            self.fail_handshake(id, error.to_string(), events);
            return;
        }
        let (over, gone) = (!tls.is_handshaking(), tls.peer_closed);
        let cut = std::mem::take(&mut conn.half_closed);
        if over {
            self.counters.handshakes += 1;
            self.counters.resumptions += u64::from(tls.is_resumed());
            conn.life = Life::Open;
            events.push(Event::Accepted { conn: id, listener });
        }
        self.deliver(id, opened.plain, gone, events);
        if cut && !over {
            self.fail_handshake(id, GONE.into(), events);
        } else if cut && !gone {
            self.counters.truncated += 1;
            if let Some((conn, _)) = self.conns.get_mut(id) {
                conn.half_closed = true;
            }
            events.push(Event::Ended { conn: id, reason: EndReason::Truncated });
        }
        self.conns.touch(id);
    }

    /// A peer that will send no more, or is gone. What it has sent before may still wait for its turn.
    pub(super) fn end_handshake(&mut self, id: ConnId, reason: EndReason, events: &mut Vec<Event>) {
        let waits = reason == EndReason::Truncated
            && self.conns.get(id).is_some_and(|conn| conn.tls.as_ref().is_some_and(|it| it.queued));
        if !waits {
            self.fail_handshake(id, GONE.into(), events);
        }
    }

    /// A connection whose keys could not be agreed on.
    pub(super) fn fail_handshake(&mut self, id: ConnId, reason: String, events: &mut Vec<Event>) {
        let Some((conn, _)) = self.conns.get_mut(id) else { return };
        let Some(tls) = &conn.tls else { return };
        let listener = tls.listener;
        self.counters.handshakes_failed += 1;
        self.conns.close_failed(id);
        events.push(Event::HandshakeFailed { listener, reason });
    }

    /// Bytes of a connection whose keys have been agreed on.
    pub(super) fn open_records(&mut self, id: ConnId, chunk: Chunk, events: &mut Vec<Event>) {
        let Some((conn, pool)) = self.conns.get_mut(id) else { return self.buffers.recycle(chunk) };
        let Some(tls) = &mut conn.tls else { return self.buffers.recycle(chunk) };
        let opened = tls.open(self.buffers.bytes_mut(&chunk), pool);
        let gone = tls.peer_closed;
        self.buffers.recycle(chunk);
        self.deliver(id, opened.plain, gone, events);
        if opened.outcome.is_err() {
            self.counters.corrupt += 1;
            self.conns.close_failed(id);
            events.push(Event::Ended { conn: id, reason: EndReason::Corrupt });
        } else if self.conns.get(id).is_some_and(|conn| conn.unsent() > 0) {
            // An answer of the protocol itself.
            self.conns.touch(id);
        }
    }

    /// Hands on what a peer has said.
    fn deliver(&mut self, id: ConnId, plain: Vec<u8>, gone: bool, events: &mut Vec<Event>) {
        let Some((conn, pool)) = self.conns.get_mut(id) else { return };
        if plain.is_empty() {
            pool.give(plain);
        } else {
            events.push(Event::Decrypted { conn: id, bytes: plain });
        }
        if gone && !std::mem::replace(&mut conn.half_closed, true) {
            conn.leaving = false;
            if conn.life == Life::Open {
                events.push(Event::Ended { conn: id, reason: EndReason::HalfClosed });
            }
            self.conns.touch(id);
        }
    }
}
