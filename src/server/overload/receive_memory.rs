//! The memory of requests that are not there yet, for many connections together, and those of them that are frames,
//! messages and heads. Clients that have shown no token, where there are tokens, have a bound of their own, so that
//! nothing they send makes others give way. Where there is no room left, the largest gives way: it is what the memory went to, and small
//! requests go on as if nothing had happened. The allocator keeps what large ones took, for the next; when none have
//! come for a while it gives that back.

use crate::protocol::websocket::Closing;
use crate::server::connection::session::{Backlog, Speech};
use crate::server::shard_server::Core;
use corq_io::memory;
use corq_io::net::{ConnId, Connections};
use std::collections::BTreeSet;

/// Most bytes of frames and messages on their way to one shard.
pub const FRAMES_BYTES_MAX: usize = 256 << 20;

/// The same of those who have shown no token: one frame with it is small.
pub const STRANGERS_BYTES_MAX: usize = 16 << 20;

/// More than this together leave enough behind to be given back.
const LARGE_BYTES: usize = 32 << 20;

/// Time after the last large ones until their memory is given back.
const KEPT_MS: u64 = 10_000;

const NO_ROOM: &str = "The frames of all connections are too large together";

/// What a connection has sent of what is not there yet, as it is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    bytes: usize,
    /// Whether it is counted with those who have shown no token.
    by_stranger: bool,
    /// Whether it gives way to none: what it is part of is being done.
    firm: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Partials {
    /// Most bytes together.
    bytes_max: usize,
    bytes: usize,
    by_size: BTreeSet<(usize, ConnId)>,
    /// When there were many bytes last, if their memory has not been given back.
    large_at_ms: Option<u64>,
}

impl Partials {
    /// None, of which all together may have `bytes_max`.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, by_size: BTreeSet::new(), large_at_ms: None }
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        self.bytes
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

    /// The same of memory that cannot give way.
    pub fn note_firm(&mut self, before: usize, now: usize) {
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
        // If another shard has done so just now, it was for all.
        memory::give_back();
        self.large_at_ms = None;
        u64::MAX
    }

    /// Strikes out the largest if there is no room for all; whose it is.
    pub fn crowd_out(&mut self) -> Option<ConnId> {
        if self.bytes <= self.bytes_max {
            return None;
        }
        let (bytes, conn) = self.by_size.pop_last()?;
        self.bytes -= bytes;
        Some(conn)
    }
}

impl Core {
    /// Notes what a connection holds of a frame or a message that is not there yet, and makes room if need be.
    pub(crate) fn note_partial(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        let incoming = match (session.speech, session.stream) {
            (Speech::WebSocket, Some(key)) => self.streams.incoming_bytes(key),
            // One that only listens from now on gives back what its head took.
            _ => 0,
        };
        let waits = self.lengthy.held_by(conn) + session.translating.bytes;
        let bytes = session.pending.capacity() + incoming + waits;
        let firm = self.lengthy.acts(conn);
        let held = Held { bytes, by_stranger: bytes > 0 && !session.is_known(), firm };
        if held == session.held {
            return;
        }
        let before = std::mem::replace(&mut session.held, held);
        self.uncount(conn, before);
        let pool = self.pool_of(held);
        if held.firm {
            pool.note_firm(0, held.bytes);
        } else {
            pool.note(conn, 0, held.bytes);
        }
        self.frames.give_memory_back(self.now_ms);
        while let Some(largest) = self.pool_of(held).crowd_out() {
            self.give_way(conns, largest);
        }
    }

    fn pool_of(&mut self, held: Held) -> &mut Partials {
        if held.by_stranger { &mut self.strangers } else { &mut self.frames }
    }

    fn uncount(&mut self, conn: ConnId, held: Held) {
        let pool = self.pool_of(held);
        if held.firm {
            pool.note_firm(held.bytes, 0);
        } else {
            pool.note(conn, held.bytes, 0);
        }
    }

    fn give_way(&mut self, conns: &mut Connections, conn: ConnId) {
        self.frames_crowded_out += 1;
        let Some(session) = self.sessions.get(conn) else { return };
        session.held = Held::default();
        session.pending = Backlog::default();
        let speech = session.speech;
        if self.read_no_further(conn) && speech == Speech::Http {
            self.conclude_crowded_out(conns, conn);
            return;
        }
        match speech {
            Speech::Http => self.crowd_out_head(conns, conn),
            Speech::WebSocket => self.close_websocket(conns, conn, Some(Closing::NO_ROOM)),
            _ => {
                let origin = self.origin(conn);
                self.refuse(conns, origin, None, NO_ROOM);
                self.finish_connection(conns, conn);
            }
        }
    }

    /// Forgets what a connection that goes has sent of a frame.
    pub(crate) fn drop_partial(&mut self, conn: ConnId) {
        if let Some(session) = self.sessions.get(conn) {
            let held = std::mem::take(&mut session.held);
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
        let mut partials = Partials::new(128 << 20);
        for index in 0..8 {
            partials.note(conn(index), 0, 1 << 20);
        }
        partials.note(conn(3), 1 << 20, 2 << 20);
        partials.note(conn(9), 0, (128 << 20) - (9 << 20));
        assert_eq!((partials.bytes(), partials.crowd_out()), ((128 << 20), None));
        partials.note(conn(5), 1 << 20, 2 << 20);
        assert_eq!(partials.crowd_out(), Some(conn(9)));
        assert_eq!((partials.bytes(), partials.crowd_out()), (10 << 20, None));
        partials.note_firm(0, 126 << 20);
        assert_eq!(partials.crowd_out(), Some(conn(5)), "what is firm counts, and stays");
        partials.note(conn(5), 0, 2 << 20);
        partials.note_firm(126 << 20, 0);
        for (index, bytes) in [1, 1, 1, 2, 1, 2, 1, 1].into_iter().enumerate() {
            partials.note(conn(index as u32), bytes << 20, 0);
        }
        assert_eq!((partials.bytes(), partials.by_size.len()), (0, 0));
    }
}
