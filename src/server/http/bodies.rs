//! The memory of bodies that are not there yet, for all connections of a shard together. One body has a limit of
//! its own; a hundred clients that each send most of one and stop must not add up to a gigabyte.
//!
//! Where there is no room left, the largest of them gives way: it is what the memory went to, and small requests
//! go on as if nothing had happened. The allocator keeps what large bodies took, for the next ones; when none have
//! come for a while it gives that back.

use super::super::core::Core;
use super::{Connections, Objection, Reading, memory};
use crate::protocol::http1::answer::Manner;
use corq_io::net::ConnId;
use std::collections::BTreeSet;

/// Most bytes of bodies on their way to one shard.
pub const BODIES_BYTES_MAX: usize = 128 << 20;

/// Bodies that take more than this leave enough behind to be given back.
const LARGE_BYTES: usize = 32 << 20;

/// Time after the last large bodies until their memory is given back.
const KEPT_MS: u64 = 10_000;

const NO_ROOM: &str = "The bodies of all requests are too large together";

/// See the module.
#[derive(Debug, Default)]
pub struct Bodies {
    bytes: usize,
    by_size: BTreeSet<(usize, ConnId)>,
    /// When there were large bodies last, if their memory has not been given back.
    large_at_ms: Option<u64>,
}

impl Bodies {
    /// Memory held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Notes that the body of a connection takes more or less memory than before.
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

    /// Gives back what large bodies have left, once they have been gone for a while. Returns when to come again.
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

    /// Strikes out the largest body if there is no room for all; whose it is.
    fn crowd_out(&mut self) -> Option<ConnId> {
        if self.bytes <= BODIES_BYTES_MAX {
            return None;
        }
        let (bytes, conn) = self.by_size.pop_last()?;
        self.bytes -= bytes;
        Some(conn)
    }
}

impl Core {
    /// Notes what the body that a connection sends takes in memory, and makes room if need be.
    pub(super) fn note_body(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        before: usize,
        now: usize,
    ) {
        self.http.bodies.note(conn, before, now);
        self.http.bodies.give_memory_back(self.now_ms);
        while let Some(largest) = self.http.bodies.crowd_out() {
            self.http.counters.crowded_out += 1;
            if let Some(session) = self.sessions.get(largest) {
                session.dialogue.reading = None;
            }
            let extra = "Retry-After: 1\r\n".to_owned();
            let objection = Objection { status: 503, text: NO_ROOM, extra };
            self.object(conns, largest, &objection, Manner { bodiless: false, stay: false });
        }
    }

    /// Forgets what has come of a body.
    pub(in super::super) fn drop_body(&mut self, conn: ConnId) -> Option<Box<Reading>> {
        let reading = self.sessions.get(conn)?.dialogue.reading.take()?;
        self.http.bodies.note(conn, reading.body.held_bytes(), 0);
        Some(reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_body_gives_way_once_all_together_are_too_large() {
        let conn = |index| ConnId { index, generation: 0 };
        let mut bodies = Bodies::default();
        for index in 0..8 {
            bodies.note(conn(index), 0, 1 << 20);
        }
        bodies.note(conn(3), 1 << 20, 2 << 20);
        bodies.note(conn(9), 0, BODIES_BYTES_MAX - (9 << 20));
        assert_eq!((bodies.bytes(), bodies.crowd_out()), (BODIES_BYTES_MAX, None));
        bodies.note(conn(5), 1 << 20, 2 << 20);
        assert_eq!(bodies.crowd_out(), Some(conn(9)));
        assert_eq!((bodies.bytes(), bodies.crowd_out()), (10 << 20, None));
        for (index, bytes) in [1, 1, 1, 2, 1, 2, 1, 1].into_iter().enumerate() {
            bodies.note(conn(index as u32), bytes << 20, 0);
        }
        assert_eq!((bodies.bytes(), bodies.by_size.len()), (0, 0));
    }
}
