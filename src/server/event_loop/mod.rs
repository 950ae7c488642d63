//! The event loop of one shard. A turn is one iteration: events of sockets and disk, commands, messages, what is due, one
//! write of the log, release of what the log now has; then sleep.
//!
//! | file | responsibility |
//! |---|---|
//! | `durability_gate` | holds output back until the log has the records that it depends on |
//! | `ends` | connections whose peers have ended, some in a turn |
//! | `pulse` | whether all shards go through their turns |
//! | `shutdown` | the end of a shard: every command that is open gets an answer, then the log its end |
//! | `turn_meter` | how long turns are, and which command made them so |

mod durability_gate;
mod ends;
mod pulse;
pub(super) mod shutdown;
pub(super) mod turn_meter;

use super::lifecycle::listeners::{BoundListener, Port};
use super::shard_mail::inbox::MESSAGE_STEPS_MAX;
use super::shard_mail::message::Message;
use super::shard_server::{Late, ShardServer};
use corq_io::clock::Clock;
use corq_io::log::LogError;
use corq_io::log_ring::Pump;
use corq_io::net::{ConnId, Event, Reactor};
use durability_gate::DurabilityGate;
use ends::Ends;
pub use pulse::Pulse;
use shutdown::CLOSING_MS_MIN;
pub use shutdown::Ending;
use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks at a lease that is not good.
const LEASE_PAUSE: Duration = Duration::from_millis(10);

/// How often a shard that ends looks whether it may.
const ENDING_PAUSE_MS: u64 = 5;

/// Batches of messages read in one turn: what remains waits for the next, behind the sockets.
const BATCHES_PER_TURN: usize = 64;

/// Bytes of records read back that are handed on in one turn: each may be what a slice of a search or of a list has waited for.
const COLD_BYTES_PER_TURN: usize = 256 << 10;

/// An open block with more than this does not wait for more connections.
const COMPANY_BYTES_MAX: u64 = 64 << 10;

/// Why a shard ends by itself.
#[derive(Debug)]
pub enum Fatal {
    /// The log can hold nothing any more.
    Log(LogError),
    /// The ring has failed.
    Ring(io::Error),
    /// The end is wanted while the node may not speak for its logs.
    Silenced,
    /// The disk has not ended what the log asked of it, although there was so much time.
    Unclosed {
        /// How long the log was waited for.
        after_ms: u64,
    },
}

impl std::fmt::Display for Fatal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Log(error) => {
                write!(f, "the log has failed, nothing is acknowledged any more: {error}")
            }
            Self::Ring(error) => write!(f, "the ring has failed: {error}"),
            Self::Silenced => f.write_str(
                "the database of the fleet has not heard of this node for too long, so it ends without another answer",
            ),
            Self::Unclosed { after_ms } => write!(
                f,
                "the log was not closed within {after_ms} ms: the disk does not answer. All that was acknowledged \
                 is written, and what was to be synced first is, but the last of it may not be on the disk"
            ),
        }
    }
}

impl From<LogError> for Fatal {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl From<io::Error> for Fatal {
    fn from(error: io::Error) -> Self {
        Self::Ring(error)
    }
}

/// A shard's thread: its reactor, its server, and the state of the turns.
pub struct EventLoop {
    /// Goes first: what it has queued for the kernel names files and memory of the log in `server`.
    reactor: Reactor,
    server: ShardServer,
    pump: Pump,
    clock: Clock,
    events: Vec<Event>,
    ends: Ends,
    gate: DurabilityGate,
    /// Whether the disk has something that it had not before this turn.
    disk_advanced: bool,
    /// How many connections the open block waits for.
    company: Option<NonZero<u32>>,
    /// Whether this turn follows the last one without sleep.
    restless: bool,
    /// Listeners that wait until all shards have recovered.
    listeners: Vec<BoundListener>,
    ready: Option<Sender<()>>,
    ending: Arc<Ending>,
    /// The question of [`Ending::pulse`] that was answered last.
    answered: u64,
    shutdown_timeout_ms: u64,
}

/// From an earlier reading of the clock to the last.
fn micros_since(earlier: Instant, clock: &Clock) -> u64 {
    clock.instant().saturating_duration_since(earlier).as_micros() as u64
}

impl EventLoop {
    /// A loop around `server`. `ready` gets a word once connections could be taken.
    pub fn new(
        server: ShardServer,
        reactor: Reactor,
        clock: Clock,
        listeners: Vec<BoundListener>,
        ready: Sender<()>,
        ending: Arc<Ending>,
        shutdown_timeout_ms: u64,
    ) -> Self {
        Self {
            reactor,
            server,
            pump: Pump::default(),
            clock,
            events: Vec::new(),
            ends: Ends::default(),
            gate: DurabilityGate::default(),
            disk_advanced: false,
            company: None,
            restless: false,
            listeners,
            ready: Some(ready),
            ending,
            answered: 0,
            shutdown_timeout_ms,
        }
    }

    /// Runs until the end is wanted and every command has its answer.
    pub fn run(mut self) -> Result<(), Fatal> {
        self.server.send_all_names();
        self.server.send_all_crons();
        self.server.send_all_webhooks();
        self.server.resume_flows();
        self.server.renew_watches();
        for dest in 0..self.server.slots.shards() {
            self.server.outbox.after_commit(dest).messages.push(Message::Open);
        }
        let mut give_up = None;
        loop {
            self.await_lease()?;
            let next_ms = self.turn()?;
            self.ending.pulse.answer(&mut self.answered);
            if self.server.closed_shards == 0 {
                self.signal_ready();
                if self.ending.open.load(Ordering::Acquire) {
                    self.open_listeners();
                }
            }
            if self.ending.wanted.load(Ordering::Acquire) {
                let Some(give_up) = give_up else {
                    let timeout = Duration::from_millis(self.shutdown_timeout_ms);
                    give_up = Some(self.clock.instant() + timeout);
                    self.begin_to_end();
                    continue;
                };
                if self.may_end() {
                    break;
                }
                if self.clock.instant() >= give_up {
                    let sent = |conn: ConnId| self.reactor.conns.unsent(conn) == 0;
                    tracing::warn!("shutdown timeout: {}", self.server.unfinished(sent));
                    break;
                }
            }
            // Nothing else signals that output has been sent, which the end waits for.
            let ending_ms =
                if self.server.stopping { self.server.now_ms + ENDING_PAUSE_MS } else { u64::MAX };
            self.sleep(next_ms.min(ending_ms))?;
        }
        // Once, at the end: all that it needs would lie in every turn otherwise.
        let left = give_up.map(|at| at.saturating_duration_since(self.clock.instant()));
        let left_ms = left.map_or(0, |left| left.as_millis() as u64).max(CLOSING_MS_MIN);
        self.close_log(left_ms)
    }

    /// Everything that can be done without sleeping. Returns when time itself brings more, in
    /// milliseconds since the epoch; `now` if something is left already.
    fn turn(&mut self) -> Result<u64, Fatal> {
        let before = self.clock.instant();
        self.server.now_ms = self.clock.read();
        if self.clock.leap_ms() > 0 {
            self.server.engine.shard.put_off(self.clock.leap_ms());
            self.server.http.alarms.put_off(self.clock.leap_ms());
            self.server.workers.put_off(self.server.now_ms, self.clock.leap_ms());
        }
        self.server.late = Late::No;
        self.server.large_replies.begin_turn();
        self.server.fair_shares.begin_turn();
        self.server.shared_values.begin_turn();
        if self.restless {
            self.server.durations.turned(micros_since(before, &self.clock));
        }
        self.server.net = self.reactor.counters;
        self.look_around();
        self.server.follow_access(&mut self.reactor.conns);
        self.server.make_room_for_output(&self.reactor.conns);
        self.take_events()?;
        self.server.begin_fair_shares();
        self.server.note_saturation();
        self.server.read_stalled_messages(&mut self.reactor.conns);
        let mut batches_left = BATCHES_PER_TURN;
        let steps_until = self.server.steps() + MESSAGE_STEPS_MAX;
        while batches_left > 0
            && self.server.steps() < steps_until
            && self.server.read_messages(&mut self.reactor.conns, steps_until)
        {
            batches_left -= 1;
        }
        self.server.transcode_in_turn(&mut self.reactor.conns);
        self.server.go_on_with_claims();
        self.server.go_on_with_large(&mut self.reactor.conns);
        self.server.patch_children_in_turn(&mut self.reactor.conns);
        self.server.resume_deferred(&mut self.reactor.conns);
        while self.server.go_on_unblocked(&mut self.reactor.conns) {}
        self.server.move_connections(&mut self.reactor.conns);
        // After the last command of the turn: what it set a time for counts, too.
        let due_ms = self.server.tick(&mut self.reactor.conns);
        let due_ms = due_ms.min(self.server.tend(&mut self.reactor.conns));
        self.server.cut_off_slow_readers(&mut self.reactor.conns);
        self.server.outbox.send_immediate();
        let compaction_ms = self.server.compact();
        self.server.publish_files();
        self.company = self.awaited_company();
        if self.company.is_none() {
            self.flush_log()?;
        }
        // Each record that was read makes room for the next one to be.
        let mut room = COLD_BYTES_PER_TURN;
        while self.take_cold_reads(&mut room) {
            self.flush_log()?;
            self.company = None;
        }
        self.server.note_exhaustion();
        self.gate.hold_back(&mut self.server, &mut self.reactor.conns, &self.clock);
        self.gate.release(&mut self.server, &mut self.reactor.conns, &self.clock);
        let crowded = self.server.note_output(&self.reactor.conns, !self.gate.is_empty());
        let stuck = self.server.outbox.flush();
        self.server.end_turn(self.clock.since_reading_us());
        let has_left = room == 0 || self.ends.has_left() || self.server.has_left();
        if stuck || crowded || batches_left == 0 || has_left {
            return Ok(self.server.now_ms);
        }
        let flush_ms = self.server.engine.journal.log.next_deadline().unwrap_or(u64::MAX);
        Ok(due_ms.min(flush_ms).min(compaction_ms).min(self.server.migrations.next_ms()))
    }

    /// Looks at what other threads change and time ends, before the commands of a turn.
    fn look_around(&mut self) {
        let ShardServer { rates, figures, engine, now_ms, .. } = &mut self.server;
        rates.note(*now_ms, engine.shard.totals());
        figures.load.begin_turn(*now_ms);
        self.server.end_history_step();
        self.server.check_data_presence(&mut self.reactor.conns);
        if let Some(timeout_ms) = self.server.follow_settings() {
            self.shutdown_timeout_ms = timeout_ms;
        }
        self.server.follow_backups();
    }

    /// Stands still while another node may speak for the logs, or could soon: nothing is said meanwhile, and nothing is lost.
    fn await_lease(&mut self) -> Result<(), Fatal> {
        let Some(lease) = &self.ending.lease else { return Ok(()) };
        while !lease.is_good() {
            // An end would answer what has come.
            if self.ending.wanted.load(Ordering::Acquire) {
                return Err(Fatal::Silenced);
            }
            self.ending.pulse.answer(&mut self.answered);
            thread::sleep(LEASE_PAUSE);
        }
        Ok(())
    }

    fn take_events(&mut self) -> Result<(), Fatal> {
        if Pump::complete_commits(&mut self.server.engine.journal.log)? {
            self.disk_advanced = true;
        }
        for event in self.events.drain(..) {
            let Reactor { buffers, conns, .. } = &mut self.reactor;
            match event {
                Event::Received { conn, chunk } => {
                    self.server.received(conns, conn, buffers.bytes(&chunk));
                    buffers.recycle(chunk);
                }
                Event::Accepted { conn, listener } => {
                    let port = Port::of(listener);
                    self.server.accepted(conn, port);
                    if port.seats {
                        self.server.seat(conns, conn);
                    }
                }
                Event::Decrypted { conn, bytes } => {
                    self.server.received(conns, conn, &bytes);
                    conns.give_back(bytes);
                }
                Event::NotTls { conn, listener } => {
                    self.server.not_tls(conns, conn, Port::of(listener));
                }
                Event::HandshakeFailed { listener, reason } => {
                    let protocol = Port::of(listener).protocol;
                    let shard = self.server.me;
                    tracing::debug!(
                        shard,
                        "a handshake at the port for {protocol:?} failed: {reason}"
                    );
                }
                Event::Ended { conn, reason } => self.ends.push(conn, reason),
                Event::GivenAway { conn, socket } => self.server.given_away(conn, socket),
                Event::Drained { conn } => self.server.drained(conns, conn),
                Event::Closed { .. } | Event::Woken => {}
                Event::Disk { tag, result } => {
                    self.disk_advanced = true;
                    Pump::complete(&mut self.server.engine.journal.log, tag, &result)?;
                }
            }
        }
        // Behind what they have sent before.
        self.ends.handle(&mut self.server, &mut self.reactor.conns);
        Ok(())
    }

    /// How many connections get their answers now, and are likely to have more for the open block at once. It waits
    /// for them once: one sync for all instead of one for each that takes turns with the others.
    fn awaited_company(&mut self) -> Option<NonZero<u32>> {
        let advanced = std::mem::take(&mut self.disk_advanced);
        let log = &self.server.engine.journal.log;
        if !advanced || self.company.is_some() || log.unwritten_bytes() > COMPANY_BYTES_MAX {
            return None;
        }
        let released = log.released();
        let answered = NonZero::new(self.gate.outputs_up_to(released) as u32)?;
        (log.head() > released && self.reactor.expects_more_clients()).then_some(answered)
    }

    fn flush_log(&mut self) -> Result<(), Fatal> {
        let log = &mut self.server.engine.journal.log;
        log.flush(self.server.now_ms)?;
        self.pump.submit(log, &mut self.reactor);
        Ok(())
    }

    /// Hands on records that have been read back, as many as have `room`. True if there were any.
    fn take_cold_reads(&mut self, room: &mut usize) -> bool {
        let Self { server, reactor, .. } = self;
        let mut any = false;
        while *room > 0
            && let Some(read) = server.engine.journal.log.take_read()
        {
            any = true;
            let token = read.token;
            *room = room.saturating_sub(read.body.as_ref().map_or(0, |body| body.len()));
            let bytes = match read.body {
                Ok(body) => Some(body.into()),
                Err(error) => {
                    tracing::error!(shard = server.me, "{error}");
                    None
                }
            };
            server.record_arrived(&mut reactor.conns, token, bytes);
        }
        any
    }

    /// Sleeps until something happens or `until_ms`.
    fn sleep(&mut self, until_ms: u64) -> Result<(), Fatal> {
        self.restless = true;
        if until_ms <= self.server.now_ms || !self.server.outbox.prepare_to_sleep() {
            if self.company.take().is_some() {
                // The turn does not sleep, so it waits for no further connections.
                self.flush_log()?;
            }
            self.reactor.poll(&mut self.events)?;
            return Ok(());
        }
        self.restless = false;
        let woken = match self.company {
            Some(wanted) => self.reactor.wait_for_clients(wanted, &mut self.events),
            None => {
                let deadline = self.clock.sleep_until(until_ms);
                let woken = self.reactor.wait(deadline, &mut self.events);
                // A sleep that ends by itself may be late: input that came meanwhile is read before time is applied.
                if woken.is_ok() && self.events.is_empty() {
                    self.reactor.poll(&mut self.events)
                } else {
                    woken
                }
            }
        };
        self.server.outbox.awake();
        Ok(woken?)
    }

    /// Every custom id is known to its directory.
    fn signal_ready(&mut self) {
        if let Some(ready) = self.ready.take() {
            // The start may have given up waiting because another shard failed.
            let _ = ready.send(());
        }
    }

    /// Takes connections.
    fn open_listeners(&mut self) {
        for listener in self.listeners.drain(..) {
            listener.open(&mut self.reactor);
        }
    }
}
