//! The memory of bodies that are not there yet, for all HTTP connections of a shard together. One body has a limit of
//! its own; a hundred clients that each send most of one and stop must not add up to a gigabyte.

use super::connection::{HttpError, Reading};
use crate::api::error::ErrorKind;
use crate::protocol::http1::answer::Manner;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};

/// Most bytes of bodies on their way to one shard.
pub const BODIES_BYTES_MAX: usize = 128 << 20;

impl ShardServer {
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
                session.http.reading = None;
            }
            let extra = "Retry-After: 1\r\n".to_owned();
            let error = HttpError { extra, ..HttpError::new(ErrorKind::BodiesTooLarge) };
            let manner = Manner { bodiless: false, stay: false, origin: 0 };
            self.object(conns, largest, &error, manner);
        }
    }

    /// Ends a connection whose unfinished head takes memory that others need.
    pub(crate) fn crowd_out_head(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        if session.http.exchange.is_some() {
            // An answer is due first that is still to come.
            self.ended(conns, conn);
            return;
        }
        let extra = "Retry-After: 1\r\n".to_owned();
        let error = HttpError { extra, ..HttpError::new(ErrorKind::BodiesTooLarge) };
        let manner = Manner { bodiless: false, stay: false, origin: 0 };
        self.object(conns, conn, &error, manner);
    }

    /// Forgets what has come of a body.
    pub(crate) fn drop_body(&mut self, conn: ConnId) -> Option<Box<Reading>> {
        let reading = self.sessions.get(conn)?.http.reading.take()?;
        self.http.bodies.note(conn, reading.body.held_bytes(), 0);
        Some(reading)
    }
}
