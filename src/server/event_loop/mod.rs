//! The loop of one shard: what has happened, what it means, what the log must hold before anybody
//! learns of it, and sleep.
//!
//! | file | responsibility |
//! |---|---|
//! | `shutdown` | the end of a shard: every command that is open gets an answer |
//! | `turn_meter` | how long turns are, and which command made them so |

pub(super) mod shutdown;
pub(super) mod turn_meter;

use super::lifecycle::listeners::{Entrance, Port};
use super::shard_mail::inbox::MAIL_STEPS_MAX;
use super::shard_mail::message::{Batch, Message};
use super::shard_server::{Core, Late};
use corq_io::clock::Clock;
use corq_io::log::{LogError, Position};
use corq_io::log_ring::Pump;
use corq_io::net::{ConnId, EndReason, Event, Reactor};
use corq_shards::stats::Totals;
use std::collections::VecDeque;
use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// The least that the disk has for the end of the log, however long clients took before.
const CLOSING_MS_MIN: u64 = 2000;

/// How often a shard that ends looks whether it may.
const ENDING_PAUSE_MS: u64 = 5;

/// Batches of mail read in one turn: what remains waits for the next, behind the sockets.
const BATCHES_PER_TURN: usize = 64;

/// An open block with more than this waits for nobody.
const COMPANY_BYTES_MAX: u64 = 64 << 10;

/// Why a shard ends before it is told to.
#[derive(Debug)]
pub enum Fatal {
    /// The log can hold nothing any more.
    Log(LogError),
    /// The ring has failed.
    Ring(io::Error),
    /// The disk has not ended what the log asked of it, although there was so much time.
    Unclosed {
        /// Milliseconds.
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

/// From an earlier reading of the clock to the last.
fn micros_since(earlier: Instant, clock: &Clock) -> u64 {
    clock.instant().saturating_duration_since(earlier).as_micros() as u64
}

/// How the shards of a process begin and end together.
#[derive(Debug, Default)]
pub struct Ending {
    /// All have recovered, and nobody else answers at the doors any more: connections may come.
    pub open: AtomicBool,
    /// Somebody wants it.
    pub wanted: AtomicBool,
    /// A shard has ended by itself: nobody waits for it.
    pub failed: AtomicBool,
    /// Shards that have answered all they had.
    pub quiet: AtomicUsize,
}

/// Output and mail that wait for the log.
struct Held {
    until: Position,
    outputs: Vec<(ConnId, u64)>,
    closing: Vec<ConnId>,
    batches: Vec<(usize, Batch)>,
    /// What the turn did, and when it began.
    done: Totals,
    begun: Instant,
}

/// See the module.
pub struct Turn {
    /// Goes first: what it has queued for the kernel names files and memory of the log in `core`.
    reactor: Reactor,
    core: Core,
    pump: Pump,
    clock: Clock,
    events: Vec<Event>,
    held: VecDeque<Held>,
    /// What had been done before this turn.
    done: Totals,
    /// Whether the disk has something that it had not before this turn.
    disk_advanced: bool,
    /// How many connections the open block waits for.
    company: Option<NonZero<u32>>,
    /// Whether this turn follows the last one without sleep.
    restless: bool,
    /// Listeners that wait until all shards have recovered.
    entrances: Vec<Entrance>,
    ready: Option<Sender<()>>,
    ending: Arc<Ending>,
    shutdown_timeout_ms: u64,
}

impl Turn {
    /// A loop around `core`. `ready` is told when connections could be taken.
    pub fn new(
        core: Core,
        reactor: Reactor,
        clock: Clock,
        entrances: Vec<Entrance>,
        ready: Sender<()>,
        ending: Arc<Ending>,
        shutdown_timeout_ms: u64,
    ) -> Self {
        Self {
            reactor,
            core,
            pump: Pump::default(),
            clock,
            events: Vec::new(),
            held: VecDeque::new(),
            done: Totals::default(),
            disk_advanced: false,
            company: None,
            restless: false,
            entrances,
            ready: Some(ready),
            ending,
            shutdown_timeout_ms,
        }
    }

    /// Runs until the end is wanted and everybody has an answer.
    pub async fn run(mut self) -> Result<(), Fatal> {
        self.core.tell_all_names();
        self.core.tell_all_crons();
        self.core.tell_all_webhooks();
        self.core.resume_flows();
        self.core.renew_watches();
        for dest in 0..self.core.slots.shards() {
            self.core.post.tell(dest).messages.push(Message::Open);
        }
        let mut give_up_ms = u64::MAX;
        loop {
            let next_ms = self.turn()?;
            if self.core.closed_shards == 0 {
                self.tell_ready();
                if self.ending.open.load(Ordering::Acquire) {
                    self.open_doors();
                }
            }
            if self.ending.wanted.load(Ordering::Acquire) {
                if give_up_ms == u64::MAX {
                    give_up_ms = self.core.now_ms.saturating_add(self.shutdown_timeout_ms);
                    self.begin_to_end();
                    continue;
                }
                if self.may_end() {
                    break;
                }
                if self.core.now_ms >= give_up_ms {
                    let sent = |conn: ConnId| self.reactor.conns.unsent(conn) == 0;
                    tracing::warn!("stopping although {}", self.core.unfinished(sent));
                    break;
                }
            }
            // Nothing else tells of output that has been sent, which the end waits for.
            let ending_ms =
                if self.core.stopping { self.core.now_ms + ENDING_PAUSE_MS } else { u64::MAX };
            self.sleep(next_ms.min(ending_ms)).await?;
        }
        // Once, at the end: all that it needs would lie in every turn otherwise.
        let now_ms = self.core.now_ms;
        let left_ms = give_up_ms.saturating_sub(now_ms).max(CLOSING_MS_MIN);
        Box::pin(self.close_log(left_ms)).await
    }

    /// Everything that can be done without sleeping. Returns when time itself brings more, in
    /// milliseconds since the epoch; `now` if something is left already.
    fn turn(&mut self) -> Result<u64, Fatal> {
        let before = self.clock.instant();
        self.core.now_ms = self.clock.read();
        self.core.late = Late::No;
        self.core.aside.begin_turn();
        self.core.shares.begin_turn();
        self.core.values.begin_turn();
        if self.restless {
            self.core.durations.turned(micros_since(before, &self.clock));
        }
        self.core.net = self.reactor.counters;
        self.core.note_rates();
        self.core.note_ground(&mut self.reactor.conns);
        self.core.make_room_for_output(&self.reactor.conns);
        self.take_events()?;
        self.core.give_shares();
        self.core.note_saturation();
        self.core.read_put_off(&mut self.reactor.conns);
        let mut mail_left = BATCHES_PER_TURN;
        let mail_until = self.core.steps() + MAIL_STEPS_MAX;
        while mail_left > 0
            && self.core.steps() < mail_until
            && self.core.read_mail(&mut self.reactor.conns, mail_until)
        {
            mail_left -= 1;
        }
        self.core.translate_in_turn(&mut self.reactor.conns);
        self.core.go_on_with_long(&mut self.reactor.conns);
        self.core.take_up_aside(&mut self.reactor.conns);
        while self.core.go_on_unblocked(&mut self.reactor.conns) {}
        self.core.move_connections(&mut self.reactor.conns);
        // After the last command of the turn: what it set a time for counts, too.
        let due_ms = self.core.tick(&mut self.reactor.conns);
        self.core.cut_off_slow_readers(&mut self.reactor.conns);
        self.core.post.send_asks();
        let reclaim_ms = self.core.reclaim();
        self.core.publish_files();
        self.company = self.awaited_company();
        if self.company.is_none() {
            self.flush_log()?;
        }
        // Each record that was read makes room for the next one to be.
        while self.take_cold_reads() {
            self.flush_log()?;
            self.company = None;
        }
        self.core.note_exhaustion();
        self.hold_back();
        self.release();
        let crowded = self.core.note_output(&self.reactor.conns, !self.held.is_empty());
        let stuck = self.core.post.flush();
        self.core.end_turn(self.clock.since_reading_us());
        if stuck || crowded || mail_left == 0 || self.core.has_left() {
            return Ok(self.core.now_ms);
        }
        let flush_ms = self.core.engine.book.0.next_deadline().unwrap_or(u64::MAX);
        Ok(due_ms.min(flush_ms).min(reclaim_ms).min(self.core.leaving.next_ms()))
    }

    fn take_events(&mut self) -> Result<(), Fatal> {
        for event in self.events.drain(..) {
            let Reactor { buffers, conns, .. } = &mut self.reactor;
            match event {
                Event::Received { conn, chunk } => {
                    self.core.received(conns, conn, buffers.bytes(&chunk));
                    buffers.recycle(chunk);
                }
                Event::Accepted { conn, listener } => {
                    let port = Port::of(listener);
                    self.core.accepted(conn, port);
                    if port.seats {
                        self.core.seat(conns, conn);
                    }
                }
                Event::Deciphered { conn, bytes } => {
                    self.core.received(conns, conn, &bytes);
                    conns.give_back(bytes);
                }
                Event::NotSecure { conn, listener } => {
                    self.core.not_secure(conns, conn, Port::of(listener));
                }
                Event::Unsettled { listener, reason } => {
                    let speech = Port::of(listener).speech;
                    tracing::debug!("a handshake at the port for {speech:?} failed: {reason}");
                }
                // What came is its own, and what it asked for is whole or left out.
                Event::Ended { conn, reason: EndReason::HalfClosed | EndReason::Truncated } => {
                    self.core.stays(conn);
                    self.core.half_closed(conns, conn);
                }
                Event::Ended { conn, .. } => self.core.ended(conns, conn),
                Event::GivenAway { conn, socket } => self.core.given_away(conn, socket),
                Event::Drained { conn } => self.core.drained(conns, conn),
                Event::Closed { .. } | Event::Woken => {}
                Event::Disk { tag, result } => {
                    self.disk_advanced = true;
                    Pump::complete(&mut self.core.engine.book.0, tag, &result)?;
                }
            }
        }
        Ok(())
    }

    /// How many connections get their answers now, and are likely to have more for the open block at once. It waits
    /// for them once: one sync for all instead of one for each that takes turns with the others.
    fn awaited_company(&mut self) -> Option<NonZero<u32>> {
        let advanced = std::mem::take(&mut self.disk_advanced);
        let log = &self.core.engine.book.0;
        if !advanced || self.company.is_some() || log.unwritten_bytes() > COMPANY_BYTES_MAX {
            return None;
        }
        let released = log.released();
        let free = self.held.iter().take_while(|held| held.until <= released);
        let answered: usize = free.map(|held| held.outputs.len()).sum();
        let answered = NonZero::new(answered as u32)?;
        (log.head() > released && self.reactor.expects_company()).then_some(answered)
    }

    fn flush_log(&mut self) -> Result<(), Fatal> {
        let log = &mut self.core.engine.book.0;
        log.flush(self.core.now_ms)?;
        self.pump.submit(log, &mut self.reactor);
        Ok(())
    }

    /// Hands on the records that have been read back. True if there were any.
    fn take_cold_reads(&mut self) -> bool {
        let Self { core, reactor, .. } = self;
        let mut any = false;
        while let Some(read) = core.engine.book.0.take_read() {
            any = true;
            let token = read.token;
            let bytes = match read.body {
                Ok(body) => Some(body.into()),
                Err(error) => {
                    tracing::error!("{error}");
                    None
                }
            };
            core.record_arrived(&mut reactor.conns, token, bytes);
        }
        any
    }

    /// Keeps this turn's output and news until the log has what they tell of, or lets them go at once
    /// if it has.
    fn hold_back(&mut self) {
        let core = &mut self.core;
        let conns = &mut self.reactor.conns;
        let done = core.engine.shard.totals();
        let of_turn = done - std::mem::replace(&mut self.done, done);
        let log = &core.engine.book.0;
        core.unrecorded.drain(..).for_each(|(conn, upto)| conns.allow(conn, upto));
        if self.held.is_empty() && log.released() >= log.head() {
            // Nothing to wait for, which is the rule with `written`: no need to keep anything.
            core.touched.drain(..).for_each(|conn| conns.allow(conn, conns.appended(conn)));
            core.finishing.drain(..).for_each(|conn| conns.close(conn));
            core.post.send_tells();
            core.durations.answered(of_turn, 0);
            return;
        }
        let batches = core.post.take_tells();
        if core.touched.is_empty() && core.finishing.is_empty() && batches.is_empty() {
            return;
        }
        let outputs = core.touched.drain(..).map(|conn| {
            conns.recount(conn);
            (conn, conns.appended(conn))
        });
        let outputs = outputs.collect();
        let closing = std::mem::take(&mut core.finishing);
        let until = core.engine.book.0.head();
        let begun = self.clock.instant();
        let held = Held { until, outputs, closing, batches, done: of_turn, begun };
        self.held.push_back(held);
    }

    /// Lets go, in order, what the log has.
    fn release(&mut self) {
        let released = self.core.engine.book.0.released();
        self.core.release_triggers(released);
        let conns = &mut self.reactor.conns;
        while let Some(held) = self.held.pop_front_if(|held| held.until <= released) {
            for (conn, upto) in held.outputs {
                conns.allow(conn, upto);
            }
            for conn in held.closing {
                conns.close(conn);
            }
            for (dest, batch) in held.batches {
                self.core.post.send(dest, batch);
            }
            let waited_us = micros_since(held.begun, &self.clock);
            self.core.durations.answered(held.done, waited_us);
        }
    }

    /// Sleeps until something happens or `until_ms`.
    async fn sleep(&mut self, until_ms: u64) -> Result<(), Fatal> {
        self.restless = true;
        if until_ms <= self.core.now_ms || !self.core.post.prepare_to_sleep() {
            if self.company.take().is_some() {
                // Nobody sleeps, so nobody is waited for.
                self.flush_log()?;
            }
            self.reactor.poll(&mut self.events)?;
            return Ok(());
        }
        self.restless = false;
        let woken = match self.company {
            Some(wanted) => self.reactor.wait_for_company(wanted, &mut self.events).await,
            None => {
                let deadline = self.clock.instant_of(until_ms);
                self.reactor.wait(deadline, &mut self.events).await
            }
        };
        self.core.post.awake();
        Ok(woken?)
    }

    /// Every custom id is known to its directory.
    fn tell_ready(&mut self) {
        if let Some(ready) = self.ready.take() {
            // Whoever waited for it may have given up because another shard failed.
            let _ = ready.send(());
        }
    }

    /// Takes connections.
    fn open_doors(&mut self) {
        for entrance in self.entrances.drain(..) {
            entrance.open(&mut self.reactor);
        }
    }

    fn begin_to_end(&mut self) {
        self.entrances.clear();
        self.reactor.stop_accepting();
        self.core.begin_to_end(&mut self.reactor.conns);
    }

    /// Whether all shards have answered all they had. Until then each goes on for the others' sake.
    fn may_end(&mut self) -> bool {
        let sent = |conn: ConnId| self.reactor.conns.unsent(conn) == 0;
        if !self.core.counted_quiet && self.held.is_empty() && self.core.is_quiet(sent) {
            self.core.counted_quiet = true;
            self.ending.quiet.fetch_add(1, Ordering::AcqRel);
            self.core.wake_others();
        }
        self.ending.failed.load(Ordering::Acquire)
            || self.ending.quiet.load(Ordering::Acquire) >= self.core.slots.shards()
    }

    /// Writes the end of the log, for which the disk has so much time.
    async fn close_log(mut self, limit_ms: u64) -> Result<(), Fatal> {
        let began = Instant::now();
        self.reactor.conns.say_goodbye();
        self.reactor.poll(&mut self.events)?;
        self.take_last_events()?;
        while !self.core.engine.book.0.close(self.clock.read())? {
            if began.elapsed() >= Duration::from_millis(limit_ms) {
                return Err(Fatal::Unclosed { after_ms: limit_ms });
            }
            self.pump.submit(&mut self.core.engine.book.0, &mut self.reactor);
            let soon = self.clock.instant_of(self.clock.now_ms() + 10);
            self.reactor.wait(soon, &mut self.events).await?;
            self.take_last_events()?;
        }
        Ok(())
    }

    /// Only the log is of interest by now.
    fn take_last_events(&mut self) -> Result<(), Fatal> {
        for event in self.events.drain(..) {
            match event {
                Event::Disk { tag, result } => {
                    Pump::complete(&mut self.core.engine.book.0, tag, &result)?;
                }
                Event::Received { chunk, .. } => self.reactor.buffers.recycle(chunk),
                _ => {}
            }
        }
        Ok(())
    }
}
