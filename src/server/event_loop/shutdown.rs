//! The end of a shard: it takes no more commands, answers those under way, and writes the end of its log. The shards end
//! together: each goes on until all have answered.

use super::pulse::Pulse;
use super::{EventLoop, Fatal};
use crate::server::shard_mail::message::Batch;
use crate::server::shard_server::ShardServer;
use corq_io::chronicle::Lease;
use corq_io::log_ring::Pump;
use corq_io::net::{ConnId, Connections, Event};
use corq_shards::Caller;
use corq_shards::command::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The least that the disk has for the end of the log, however long clients took before.
pub(super) const CLOSING_MS_MIN: u64 = 2000;

/// How the shards of a process begin, live and end together.
#[derive(Debug, Default)]
pub struct Ending {
    /// All have recovered, and the start-up answers of `lifecycle` have ended: connections may come.
    pub open: AtomicBool,
    /// A signal or a failure asks for the end.
    pub wanted: AtomicBool,
    /// A shard has ended by itself: the others do not wait for it.
    pub failed: AtomicBool,
    /// Shards that have answered all they had.
    pub quiet: AtomicUsize,
    /// Whether all of them go through their turns.
    pub pulse: Pulse,
    /// How long this node may speak for the logs, if it is one of a fleet.
    pub lease: Option<Arc<Lease>>,
}

impl EventLoop {
    pub(super) fn begin_to_end(&mut self) {
        self.listeners.clear();
        self.reactor.stop_accepting();
        self.server.begin_to_end(&mut self.reactor.conns);
    }

    /// Whether all shards have answered all they had. Until then each goes on for the others' sake.
    pub(super) fn may_end(&mut self) -> bool {
        let sent = |conn: ConnId| self.reactor.conns.unsent(conn) == 0;
        if !self.server.counted_quiet && self.gate.is_empty() && self.server.is_quiet(sent) {
            self.server.counted_quiet = true;
            self.ending.quiet.fetch_add(1, Ordering::AcqRel);
            self.server.wake_others();
        }
        self.ending.failed.load(Ordering::Acquire)
            || self.ending.quiet.load(Ordering::Acquire) >= self.server.slots.shards()
    }

    /// Writes the end of the log, for which the disk has so much time.
    pub(super) fn close_log(mut self, limit_ms: u64) -> Result<(), Fatal> {
        let began = Instant::now();
        self.reactor.conns.close_tls();
        self.reactor.poll(&mut self.events)?;
        self.take_last_events()?;
        while !self.server.engine.journal.log.close(self.clock.read())? {
            if began.elapsed() >= Duration::from_millis(limit_ms) {
                return Err(Fatal::Unclosed { after_ms: limit_ms });
            }
            self.pump.submit(&mut self.server.engine.journal.log, &mut self.reactor);
            let soon = self.clock.instant_of(self.clock.now_ms() + 10);
            self.reactor.wait(soon, &mut self.events)?;
            self.take_last_events()?;
        }
        Ok(())
    }

    /// Only the log is of interest by now.
    fn take_last_events(&mut self) -> Result<(), Fatal> {
        Pump::complete_commits(&mut self.server.engine.journal.log)?;
        for event in self.events.drain(..) {
            match event {
                Event::Disk { tag, result } => {
                    Pump::complete(&mut self.server.engine.journal.log, tag, &result)?;
                }
                Event::Received { chunk, .. } => self.reactor.buffers.recycle(chunk),
                _ => {}
            }
        }
        Ok(())
    }
}

impl ShardServer {
    /// Takes no more commands; pulls that wait get their empty answer.
    pub fn begin_to_end(&mut self, conns: &mut Connections) {
        self.stopping = true;
        self.apply(conns, Caller::default(), &Command::EndWaits);
        self.end_streams(conns);
        self.end_watches(conns);
    }

    /// Whether every client here has its answer. `sent` says whether a connection's output is sent.
    pub fn is_quiet(&self, sent: impl Fn(ConnId) -> bool) -> bool {
        self.tasks.is_empty()
            && self.cold.is_empty()
            && self.large_replies.is_empty()
            && self.webhooks.outbox.is_empty()
            && self.spans.is_empty()
            && self.parked.is_empty()
            && self.unread.is_none()
            && self.sessions.iter().all(|session| session.in_flight == 0 && sent(session.conn))
    }

    /// Describes for people the work that a shutdown at its timeout drops. `sent` as in [`ShardServer::is_quiet`].
    pub fn unfinished(&self, sent: impl Fn(ConnId) -> bool) -> String {
        let unanswered: u32 = self.sessions.iter().map(|session| session.in_flight).sum();
        let unread = self.sessions.iter().filter(|session| !sent(session.conn)).count();
        let log = &self.engine.journal.log;
        format!(
            "shard {} drops {unanswered} unanswered commands ({} multi-shard, {} waiting in the engine, {} cold reads, {} lists \
             under way, {} deferred), {} bytes of the log on their way to the disk, and output that {unread} connections have \
             not read",
            self.me,
            self.tasks.len(),
            self.parked.len(),
            self.cold.len(),
            self.operations.len(),
            self.large_replies.len(),
            log.head().0 - log.released().0,
        )
    }

    /// Makes the other shards look around, by an empty batch.
    pub fn wake_others(&mut self) {
        for dest in (0..self.slots.shards()).filter(|&dest| dest != self.me) {
            self.outbox.send(dest, Batch::default());
        }
        self.outbox.flush();
    }
}
