//! Connections whose token or session has changed or gone. They stay: one whose token has other rights has those from its
//! next command on, one whose token counts no longer gets no answers and no events until it shows another. A stream of
//! events cannot show one, and ends.

use super::shown::Shown;
use crate::server::connection::protocol::Protocol;
use crate::server::event_loop::turn_meter::Work;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};

/// Places for connections that are looked at in a turn.
const LOOKS_PER_TURN: usize = 1000;

/// Looks for each step.
const LOOKS_PER_STEP: usize = 32;

impl ShardServer {
    /// Looks again at what some connections have shown, if tokens or sessions have changed.
    pub(crate) fn follow_access(&mut self, conns: &mut Connections) {
        if self.access.follow() {
            self.follow_rights_of_tasks();
        }
        let Some(places) = self.access.round.take(LOOKS_PER_TURN) else { return };
        let before = self.meter_work(Work::OTHER);
        let some = self.sessions.places(places);
        let is_known = |shown| shown != Shown::Nothing;
        let known = some.iter().flatten().filter(|session| is_known(session.access.shown));
        let known: Vec<ConnId> = known.map(|session| session.conn).collect();
        self.meter.note(1 + some.len() / LOOKS_PER_STEP);
        if some.len() < LOOKS_PER_TURN {
            self.access.round.end();
        }
        for conn in known {
            self.look_again(conns, conn);
        }
        self.meter_work(before);
    }

    /// Looks again at what a connection has shown.
    pub(crate) fn look_again(&mut self, conns: &mut Connections, conn: ConnId) {
        let now_ms = self.now_ms;
        let Some(session) = self.sessions.get(conn) else { return };
        let protocol = session.protocol;
        match self.access.again(&session.access, now_ms) {
            // Each request shows what it has to show.
            _ if protocol == Protocol::Http => {}
            Some(access) => {
                session.access = access;
                self.follow_stream(conns, conn);
            }
            None if protocol == Protocol::Events => self.finish_connection(conns, conn),
            None => {
                session.access.shown = Shown::Nothing;
                self.note_trust(conn, false);
            }
        }
    }

    /// Whether the session of a connection is over that has one.
    pub(crate) fn is_session_over(&mut self, conn: ConnId) -> bool {
        let now_ms = self.now_ms;
        let shown = self.sessions.get(conn).map(|session| session.access.shown);
        matches!(shown, Some(Shown::Session { until_ms, .. }) if until_ms <= now_ms)
    }
}
