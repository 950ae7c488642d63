//! Timeouts of HTTP connections: until the first request, until the rest of one that has begun, and, longer, between
//! requests. No timeout runs while the client waits for an answer.
//!
//! They last as long as time passes, whatever the clock of the machine is set to: their times are those that the clock of the
//! shard would show if it had never leapt.
//!
//! A connection has at most a few alarms, whatever it does: one that rings early looks at the time
//! that counts by now and is set again. So neither a request nor a turn looks at other connections. The alarms ring for
//! connections of frames as well: see [`crate::server::connection::deadlines`].

use crate::api::error::ErrorKind;
use crate::server::connection::protocol::Protocol;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Alarms of a shard by time.
#[derive(Default)]
pub struct Alarms {
    heap: BinaryHeap<Reverse<(u64, ConnId)>>,
    /// By how much the clock has leapt.
    leapt_ms: u64,
}

impl Alarms {
    /// The clock has leapt by so much: patience with connections ends so much later by it.
    pub(crate) fn put_off(&mut self, by_ms: u64) {
        self.leapt_ms += by_ms;
    }

    /// The time that the clock would show if it had never leapt.
    pub(crate) fn steady_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.leapt_ms)
    }

    /// A connection goes to another shard, whose clock has leapt in its own way.
    pub(crate) fn send(&self, patience: &mut Patience) {
        patience.convert(|at_ms| at_ms + self.leapt_ms);
    }
}

/// Steps after which a turn lets no further alarm ring, and those of a connection that is given up.
const STEPS_MAX: u64 = 1000;
const STEPS_PER_END: usize = 2;

/// Event that a connection is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// None: the client waits for the server.
    #[default]
    Answering,
    /// The first request of all.
    Fresh,
    /// The rest of a request.
    Reading,
    /// The next request, or that it reads its answers.
    Idle,
}

/// The patience with one connection.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    phase: Phase,
    /// When it ends.
    due_ms: u64,
    /// When a connection of frames must have shown a token, if it must.
    pub(crate) known_by_ms: u64,
    /// The alarm that counts; others that ring are stale.
    alarm_ms: u64,
    /// Bytes that were unsent when the time was over last.
    unsent: usize,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            phase: Phase::Answering,
            due_ms: u64::MAX,
            known_by_ms: u64::MAX,
            alarm_ms: u64::MAX,
            unsent: usize::MAX,
        }
    }
}

impl Patience {
    /// The event that is waited for, and until when.
    pub(crate) fn what(&self) -> (Phase, u64) {
        (self.phase, self.due_ms)
    }

    /// When the first of what is waited for is late.
    fn ends_ms(&self) -> u64 {
        self.due_ms.min(self.known_by_ms)
    }

    fn convert(&mut self, by: impl Fn(u64) -> u64) {
        for at_ms in [&mut self.due_ms, &mut self.known_by_ms] {
            if *at_ms < u64::MAX {
                *at_ms = by(*at_ms);
            }
        }
    }
}

impl ShardServer {
    /// Notes what a connection is waited for after its input has been looked at. `begun` if some of it
    /// is left.
    pub(super) fn note_phase(&mut self, conn: ConnId, begun: bool) {
        let Some(session) = self.sessions.get(conn) else { return };
        if session.http.over || session.protocol != Protocol::Http {
            return;
        }
        let unread = session.choked && session.http.exchange.is_none();
        let phase = if session.blocked && !unread {
            Phase::Answering
        } else if !unread && (begun || session.http.reading.is_some()) {
            Phase::Reading
        } else {
            Phase::Idle
        };
        self.await_conn(conn, phase);
    }

    /// Begins to wait. A request that comes in pieces gets no more time with each.
    pub(crate) fn await_conn(&mut self, conn: ConnId, phase: Phase) {
        let Some(session) = self.sessions.get(conn) else { return };
        if session.http.patience.phase == Phase::Reading && phase == Phase::Reading {
            return;
        }
        let (settings, steady_ms) = (&self.http.settings, self.http.alarms.steady_ms(self.now_ms));
        let due_ms = match phase {
            Phase::Answering => u64::MAX,
            Phase::Fresh | Phase::Reading => steady_ms + settings.request_timeout_ms,
            Phase::Idle => steady_ms + settings.idle_timeout_ms,
        };
        self.await_until(conn, phase, due_ms);
    }

    /// Whether a request is waited for of which nothing has come.
    pub(super) fn waits_for_request(&mut self, conn: ConnId) -> bool {
        let phase = self.sessions.get(conn).map(|session| session.http.patience.phase);
        matches!(phase, Some(Phase::Fresh | Phase::Idle))
    }

    /// Begins to wait until then.
    pub(crate) fn await_until(&mut self, conn: ConnId, phase: Phase, due_ms: u64) {
        let Some(session) = self.sessions.get(conn) else { return };
        let patience = &mut session.http.patience;
        (patience.phase, patience.due_ms) = (phase, due_ms);
        self.set_alarm(conn);
    }

    /// Sees to it that an alarm rings no later than what is waited for is late.
    pub(crate) fn set_alarm(&mut self, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        let patience = &mut session.http.patience;
        if patience.ends_ms() < patience.alarm_ms {
            patience.alarm_ms = patience.ends_ms();
            self.http.alarms.heap.push(Reverse((patience.alarm_ms, conn)));
        }
    }

    /// A connection has come from another shard, where its alarms were left behind.
    pub(crate) fn set_alarm_again(&mut self, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        let patience = &mut session.http.patience;
        patience.convert(|at_ms| self.http.alarms.steady_ms(at_ms));
        patience.alarm_ms = u64::MAX;
        self.set_alarm(conn);
    }

    /// Ends what has lasted too long. Returns when to come again.
    pub(crate) fn end_patience(&mut self, conns: &mut Connections) -> u64 {
        let until = self.steps() + STEPS_MAX;
        let steady_ms = self.http.alarms.steady_ms(self.now_ms);
        while let Some(&Reverse((at_ms, conn))) = self.http.alarms.heap.peek() {
            if at_ms > steady_ms {
                return at_ms.saturating_add(self.http.alarms.leapt_ms);
            }
            if self.steps() >= until {
                return self.now_ms;
            }
            self.http.alarms.heap.pop();
            self.meter.note(1);
            let Some(session) = self.sessions.get(conn) else { continue };
            let patience = &mut session.http.patience;
            if patience.alarm_ms != at_ms {
                continue;
            }
            patience.alarm_ms = u64::MAX;
            if patience.ends_ms() <= steady_ms {
                self.lose_patience(conns, conn);
            } else {
                self.set_alarm(conn);
            }
        }
        u64::MAX
    }

    fn lose_patience(&mut self, conns: &mut Connections, conn: ConnId) {
        let Some(session) = self.sessions.get(conn) else { return };
        // An error is written, and the connection closes.
        self.meter.note(STEPS_PER_END);
        if session.protocol != Protocol::Http {
            self.give_up_frames(conns, conn);
            return;
        }
        let unsent = conns.unsent(conn);
        let patience = &mut session.http.patience;
        if patience.phase == Phase::Reading {
            self.http.counters.timeouts += 1;
            self.give_up(conns, conn, ErrorKind::RequestTooSlow);
        } else if unsent == 0 {
            self.finish_connection(conns, conn);
        } else if unsent < patience.unsent {
            // Slowly, but it reads.
            patience.unsent = unsent;
            self.await_conn(conn, Phase::Idle);
        } else {
            self.http.counters.timeouts += 1;
            self.ended(conns, conn);
        }
    }
}
