//! Receive memory: the budget of requests that are not there yet, of many connections together: frames, messages, heads and
//! bodies. Clients that have shown no token, where there are tokens, have a bound of their own, so that nothing they send
//! makes others give way. Where there is no room left, the largest gives way: it is what the memory went to, and small
//! requests go on as if nothing had happened. A request that is alone has room, whatever the bound. The allocator keeps what
//! large ones took, for the next; when none have come for a while, and no client is held up by that, it gives that back.

use crate::api::error::ErrorKind;
use crate::protocol::websocket::Closing;
use crate::server::connection::protocol::Protocol;
use crate::server::connection::session::Backlog;
use crate::server::shard_server::ShardServer;
use corq_io::memory;
use corq_io::net::{ConnId, Connections};
use std::collections::BTreeSet;

/// More than this together leave enough behind to be given back.
const LARGE_BYTES: usize = 32 << 20;

/// Time after the last large ones until their memory is given back.
const KEPT_MS: u64 = 10_000;

/// Memory of a connection's incomplete request, as it was counted last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReceivedBytes {
    bytes: usize,
    /// Whether it is counted with those who have shown no token.
    unauthenticated: bool,
}

/// The memory of requests that are not there yet, by connection and size.
#[derive(Debug)]
pub struct ReceiveMemory {
    /// Most bytes together.
    bytes_max: usize,
    bytes: usize,
    by_size: BTreeSet<(usize, ConnId)>,
    /// Requests that gave way.
    crowded_out: u64,
    /// When there were many bytes last, if their memory has not been given back.
    large_at_ms: Option<u64>,
}

impl ReceiveMemory {
    /// None, of which all together may have `bytes_max`.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, by_size: BTreeSet::new(), crowded_out: 0, large_at_ms: None }
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Requests that gave way since the start.
    pub fn crowded_out(&self) -> u64 {
        self.crowded_out
    }

    /// Notes that what a connection sends takes more or less memory than before.
    pub fn note(&mut self, conn: ConnId, before: usize, now: usize) {
        if before == now {
            return;
        }
        if before > 0 {
            self.by_size.remove(&(before, conn));
        }
        if now > 0 {
            self.by_size.insert((now, conn));
        }
        self.bytes = self.bytes - before + now;
    }

    /// Gives back what large ones have left, once they have been gone for a while. Returns when to come again.
    pub fn give_memory_back(&mut self, now_ms: u64) -> u64 {
        if self.bytes > LARGE_BYTES {
            self.large_at_ms = Some(now_ms);
        }
        let Some(at_ms) = self.large_at_ms else { return u64::MAX };
        if now_ms < at_ms + KEPT_MS {
            return at_ms + KEPT_MS;
        }
        let again_ms = memory::give_back_if_idle(now_ms);
        if again_ms == u64::MAX {
            self.large_at_ms = None;
        }
        again_ms
    }

    /// Strikes out the largest if there is no room for all and it is not alone; whose it is.
    pub fn crowd_out(&mut self) -> Option<ConnId> {
        if self.bytes <= self.bytes_max || self.by_size.len() < 2 {
            return None;
        }
        let (bytes, conn) = self.by_size.pop_last()?;
        self.bytes -= bytes;
        self.crowded_out += 1;
        Some(conn)
    }
}

impl ShardServer {
    /// Notes what a connection holds of a request that is not there yet, and makes room if need be.
    pub(crate) fn note_received(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        let incoming = match (session.protocol, session.stream) {
            (Protocol::WebSocket, Some(key)) => self.subscribers.incoming_bytes(key),
            // A stream of events only listens, and has given back what its head took.
            _ => session.http.body_bytes(),
        };
        let waits = self.large_commands.held_by(conn) + session.transcoding.bytes;
        let checked = session.checked.as_ref().map_or(0, |large| large.held_bytes());
        let bytes = session.pending.capacity() + incoming + waits + checked;
        let held = ReceivedBytes { bytes, unauthenticated: bytes > 0 && !session.is_known() };
        if held == session.received_bytes {
            return;
        }
        let before = std::mem::replace(&mut session.received_bytes, held);
        self.uncount(conn, before);
        self.pool_of(held).note(conn, 0, held.bytes);
        self.receive_memory.give_memory_back(self.now_ms);
        while let Some(largest) = self.pool_of(held).crowd_out() {
            self.give_way(conns, largest);
        }
    }

    fn pool_of(&mut self, held: ReceivedBytes) -> &mut ReceiveMemory {
        if held.unauthenticated {
            &mut self.unauthenticated_memory
        } else {
            &mut self.receive_memory
        }
    }

    fn uncount(&mut self, conn: ConnId, held: ReceivedBytes) {
        self.pool_of(held).note(conn, held.bytes, 0);
    }

    fn give_way(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        session.received_bytes = ReceivedBytes::default();
        session.pending = Backlog::default();
        let protocol = session.protocol;
        let was_read = self.cancel_transcoding(conn);
        match protocol {
            Protocol::Http => self.crowd_out_request(conns, conn, was_read),
            Protocol::WebSocket => self.close_websocket(conns, conn, Some(Closing::NO_ROOM)),
            _ => {
                let origin = self.origin(conn);
                self.refuse(conns, origin, None, ErrorKind::FramesTooLarge);
                self.finish_connection(conns, conn);
            }
        }
    }

    /// Forgets what a connection that goes has sent of a request.
    pub(crate) fn drop_received(&mut self, conn: ConnId) {
        if let Some(session) = self.sessions.get(conn) {
            let held = std::mem::take(&mut session.received_bytes);
            self.uncount(conn, held);
            self.leave_running(conn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_gives_way_once_all_together_are_too_large() {
        let conn = |index| ConnId { index, generation: 0 };
        let mut memory = ReceiveMemory::new(128 << 20);
        for index in 0..8 {
            memory.note(conn(index), 0, 1 << 20);
        }
        memory.note(conn(3), 1 << 20, 2 << 20);
        memory.note(conn(9), 0, (128 << 20) - (9 << 20));
        assert_eq!((memory.bytes(), memory.crowd_out()), ((128 << 20), None));
        memory.note(conn(5), 1 << 20, 2 << 20);
        assert_eq!(memory.crowd_out(), Some(conn(9)));
        assert_eq!((memory.bytes(), memory.crowd_out()), (10 << 20, None));
        assert_eq!(memory.crowded_out(), 1);
        for (index, bytes) in [1, 1, 1, 2, 1, 2, 1, 1].into_iter().enumerate() {
            memory.note(conn(index as u32), bytes << 20, 0);
        }
        assert_eq!((memory.bytes(), memory.by_size.len()), (0, 0));
    }

    #[test]
    fn a_request_that_is_alone_has_room_and_gives_way_to_the_next() {
        let conn = |index| ConnId { index, generation: 0 };
        let mut memory = ReceiveMemory::new(1 << 20);
        memory.note(conn(1), 0, 16 << 20);
        assert_eq!(memory.crowd_out(), None);
        memory.note(conn(2), 0, 100);
        assert_eq!((memory.crowd_out(), memory.bytes()), (Some(conn(1)), 100));
    }
}
