//! The event loop: one thread, every connection, one read and one write per connection and turn.
//!
//! One thread is enough, because a job costs the generator less than it costs any server; and it
//! keeps the second core of a small machine free for the server.

use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::time::Timespec;

use crate::phase::{Phase, Plan};
use crate::pipeline::{Connection, IN_FLIGHT_MAX};
use crate::reply::{self, Answer, Scratch};
use crate::seen::Seen;
use crate::tally::Tally;
use crate::wire::Templates;

/// Requests waiting for replies beyond which an open loop has lost its server.
const OPEN_LOOP_BACKLOG_MAX: usize = IN_FLIGHT_MAX - 1;
/// Seconds of jobs that may wait in an open loop before it is given up.
const BEHIND_S_MAX: f64 = 5.0;
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// How long a turn may wait when nothing is due: deadlines and patience are looked at then.
const TURN_NS_MAX: u64 = 50_000_000;

/// The connections, and what all phases of a run share.
pub(crate) struct Engine {
    pub(crate) connections: Vec<Connection>,
    epoll: OwnedFd,
    pub(crate) ledger: Ledger,
    born: Instant,
    progress: bool,
}

/// State that lasts over all phases: request templates, received jobs, and the stock of the queues.
pub(crate) struct Ledger {
    pub(crate) templates: Templates,
    pub(crate) seen: Seen,
    pub(crate) next_sequence: u32,
    /// Jobs that wait in each queue and that no pull has been sent for.
    pub(crate) stock: Vec<u64>,
}

impl Engine {
    pub(crate) fn new(
        connections: Vec<Connection>,
        templates: Templates,
        queues: usize,
        progress: bool,
    ) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (index, connection) in connections.iter().enumerate() {
            let token = EventData::new_u64(index as u64);
            epoll::add(&epoll, &connection.socket, token, EventFlags::IN)?;
        }
        let ledger =
            Ledger { templates, seen: Seen::default(), next_sequence: 0, stock: vec![0; queues] };
        Ok(Self { connections, epoll, ledger, born: Instant::now(), progress })
    }

    fn now(&self) -> u64 {
        self.born.elapsed().as_nanos() as u64
    }

    /// Runs one phase to its end. What went wrong on the way is in the tally.
    pub(crate) fn run(&mut self, plan: &Plan) -> Tally {
        let mut shown = self.now();
        let mut phase = Phase::new(plan, shown);
        let outcome = self.drive(&mut phase, &mut shown);
        phase.tally.cut_short = outcome.err();
        self.show(&phase, &mut shown, phase.progressed_ns, true);
        phase.finish()
    }

    fn drive(&mut self, phase: &mut Phase, shown: &mut u64) -> Result<(), String> {
        let born = *shown;
        for index in 0..self.connections.len() {
            let pipeline = &mut self.connections[index].pipeline;
            phase.begin(index, pipeline, &mut self.ledger, born);
            self.flush(index, phase)?;
        }
        phase.all_have_begun(self.now());
        let mut events = Vec::with_capacity(self.connections.len().max(16));
        let mut scratch = Scratch::default();
        loop {
            let now = self.now();
            self.release_due_pushes(phase, now)?;
            if phase.is_over(now) {
                return Ok(());
            }
            if phase.lost_patience(now) {
                let stuck = phase.describe_wait();
                phase.tally.fail(|| stuck);
                return Ok(());
            }
            self.show(phase, shown, now, false);
            self.turn(phase, &mut events, &mut scratch)?;
        }
    }

    fn turn(
        &mut self,
        phase: &mut Phase,
        events: &mut Vec<epoll::Event>,
        scratch: &mut Scratch,
    ) -> Result<(), String> {
        let wait_ns = phase.next_due_ns(self.now()).min(TURN_NS_MAX);
        let timeout = Timespec {
            tv_sec: (wait_ns / 1_000_000_000) as i64,
            tv_nsec: (wait_ns % 1_000_000_000) as i64,
        };
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("epoll: {error}")),
        }
        for event in events.iter() {
            let index = event.data.u64() as usize;
            let flags = event.flags;
            if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                self.receive(index, phase, scratch)?;
            }
            self.flush(index, phase)?;
        }
        Ok(())
    }

    /// Reads a connection once and answers every whole reply with the request that follows it.
    fn receive(
        &mut self,
        index: usize,
        phase: &mut Phase,
        scratch: &mut Scratch,
    ) -> Result<(), String> {
        loop {
            let received = self.connections[index].receive();
            received.map_err(|text| self.locate(index, phase, text))?;
            let now = self.now();
            let connection = &mut self.connections[index];
            while let Some((begin, end)) = connection.input.next_frame()? {
                let body = &connection.input.bytes()[begin..end];
                let reply =
                    reply::parse(body, scratch).map_err(|malformed| malformed.0.to_owned())?;
                let answer = Answer { reply: &reply, jobs: &scratch.jobs, body };
                phase.on_reply(&mut connection.pipeline, &mut self.ledger, answer, now)?;
            }
            if !connection.socket.holds_input() {
                return Ok(());
            }
        }
    }

    /// Adds to the text of a connection that is gone which command it left unanswered.
    fn locate(&self, index: usize, phase: &Phase, text: String) -> String {
        match self.connections[index].pipeline.oldest() {
            Some(kind) => format!("{text} at {}", phase.command(kind)),
            None => text,
        }
    }

    fn flush(&mut self, index: usize, phase: &Phase) -> Result<(), String> {
        let sent = self.connections[index].send();
        let left = sent.map_err(|text| self.locate(index, phase, text))?;
        let connection = &mut self.connections[index];
        if left != connection.wants_write {
            connection.wants_write = left;
            let flags = if left { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            let token = EventData::new_u64(index as u64);
            epoll::modify(&self.epoll, &connection.socket, token, flags)
                .map_err(|error| format!("epoll: {error}"))?;
        }
        Ok(())
    }

    /// Open loop: sends what is due by now, whatever the server is doing.
    fn release_due_pushes(&mut self, phase: &mut Phase, now: u64) -> Result<(), String> {
        if phase.behind_s() >= BEHIND_S_MAX {
            return Err(phase.give_up_rate(now));
        }
        // A turn that is late owes each connection many pushes; all of one go out together.
        let mut touched = (0, 0);
        while let Some((index, count, due)) = phase.take_due(now) {
            let pipeline = &mut self.connections[index].pipeline;
            if pipeline.in_flight() >= OPEN_LOOP_BACKLOG_MAX {
                return Err(phase.give_up_rate(now));
            }
            phase.push_due(pipeline, &mut self.ledger, (count, due), now);
            touched = (touched.0 + 1, index + 1);
        }
        // They take turns: the last ones before the next in turn are those that were touched.
        let producers = phase.plan.producers;
        let (count, end) = (touched.0.min(producers), touched.1);
        (end + producers - count..end + producers)
            .try_for_each(|index| self.flush(index % producers, phase))
    }

    fn show(&self, phase: &Phase, shown: &mut u64, now: u64, last: bool) {
        if !self.progress
            || (!last && now.saturating_sub(*shown) < PROGRESS_EVERY.as_nanos() as u64)
        {
            return;
        }
        *shown = now;
        let (jobs, seconds) =
            (phase.tally.done(), now.saturating_sub(phase.start_ns).max(1) as f64 / 1e9);
        let end = if last { "\n" } else { "" };
        eprint!("\r{} {jobs} jobs, {:.0}/s {end}", phase.plan.name, jobs as f64 / seconds);
    }
}
