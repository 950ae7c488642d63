//! The memory of what has come of handshakes that are not over, for all connections of a shard together: their clients
//! have shown nothing yet. Each has a bound of its own, and a time; thousands must not add up to gigabytes within that.
//! Where there is no room left, the largest gives way: the first words of a client that means to go on are short.

use std::collections::BTreeSet;

use super::ConnId;
use super::connection::{Connection, Life};

/// Handshakes with what has come of each.
pub(super) struct HandshakeMemory {
    /// Most bytes together.
    bytes_max: usize,
    bytes: usize,
    by_size: BTreeSet<(usize, ConnId)>,
}

impl HandshakeMemory {
    /// None, of which all together may have `bytes_max`.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, by_size: BTreeSet::new() }
    }

    /// Memory of all.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Looks again how much a connection holds of a handshake that is not over.
    pub(super) fn note(&mut self, id: ConnId, conn: &mut Connection) {
        let tls = conn.tls.as_ref().filter(|_| conn.life == Life::Handshake);
        let now = tls.map_or(0, |tls| tls.incoming_bytes());
        let before = std::mem::replace(&mut conn.handshake_bytes, now);
        if before != now {
            self.count(id, before, now);
        }
    }

    fn count(&mut self, id: ConnId, before: usize, now: usize) {
        if before > 0 {
            self.by_size.remove(&(before, id));
        }
        if now > 0 {
            self.by_size.insert((now, id));
        }
        self.bytes = self.bytes - before + now;
    }

    /// The one that has to go, if there is no room for all.
    pub(super) fn over_limit(&self) -> Option<ConnId> {
        let (_, id) = self.by_size.last().filter(|_| self.bytes > self.bytes_max)?;
        Some(*id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_has_to_go_once_there_is_no_room_for_all() {
        let id = |index| ConnId { index, generation: 0 };
        let mut handshake_memory = HandshakeMemory::new(16 << 20);
        for index in 0..16 {
            handshake_memory.count(id(index), 0, 1 << 20);
        }
        assert_eq!(handshake_memory.over_limit(), None);
        handshake_memory.count(id(7), 1 << 20, (1 << 20) + 1);
        assert_eq!(handshake_memory.over_limit(), Some(id(7)));
        handshake_memory.count(id(7), (1 << 20) + 1, 0);
        assert_eq!((handshake_memory.bytes(), handshake_memory.over_limit()), (15 << 20, None));
        for index in 0..16 {
            let before = if index == 7 { 0 } else { 1 << 20 };
            handshake_memory.count(id(index), before, 0);
        }
        assert_eq!((handshake_memory.bytes(), handshake_memory.by_size.len()), (0, 0));
    }
}
