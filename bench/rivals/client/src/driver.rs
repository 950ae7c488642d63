//! The event loop: one thread and every connection, as the load generator of corq does it, so that
//! the client costs less than any server and leaves the second core of a small machine to it.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::time::Timespec;

use crate::connection::Connection;
use crate::payload;
use crate::protocol::{Event, Job, Take};
use crate::seen::Seen;

const PATIENCE: Duration = Duration::from_mins(1);
const TURN_NS_MAX: u64 = 50_000_000;

/// The work of the lanes: lane `i` pushes to its queue and takes from it.
#[derive(Clone, Copy)]
pub struct Plan {
    pub batch: u32,
    pub window: u32,
    /// Jobs per second of an open loop, by lanes of their own; workers wait for jobs.
    pub rate: Option<f64>,
}

/// Work of one connection in the present phase.
#[derive(Default)]
struct Share {
    pushes_left: u64,
    unconfirmed: u64,
    takes_left: u64,
    takes_in_flight: u32,
    delivered: Vec<Job>,
    left: Option<u64>,
    ready: bool,
    ended: bool,
}

/// Counts and times of a phase.
pub struct Outcome {
    pub pushed: u64,
    pub received: u64,
    pub acked: u64,
    pub seconds: f64,
    /// Open loop: from the time a push was due until a worker had the job, in nanoseconds.
    pub receipt: Histogram<u64>,
}

pub struct Driver {
    connections: Vec<Connection>,
    shares: Vec<Share>,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    payload_bytes: usize,
    born: Instant,
    progressed: Instant,
    outcome: Outcome,
    plan: Plan,
    payloads: Vec<u8>,
}

impl Driver {
    pub fn new(payload_bytes: usize, born: Instant) -> Result<Self, String> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| error.to_string())?;
        Ok(Self {
            connections: Vec::new(),
            shares: Vec::new(),
            epoll,
            events: Vec::with_capacity(64),
            payload_bytes,
            born,
            progressed: born,
            outcome: Outcome::new(),
            plan: Plan { batch: 1, window: 1, rate: None },
            payloads: Vec::new(),
        })
    }

    /// Adds a connection and sets it up: the next one may find what it made.
    pub fn add(&mut self, mut connection: Connection, seen: &mut Seen) -> Result<(), String> {
        let index = self.connections.len();
        let token = EventData::new_u64(index as u64);
        epoll::add(&self.epoll, &connection.socket, token, EventFlags::IN)
            .map_err(|error| error.to_string())?;
        connection.protocol.greet(&mut connection.wire);
        self.connections.push(connection);
        self.shares.push(Share::default());
        self.flush(index)?;
        self.until(seen, |driver| driver.shares[index].ready)
    }

    /// Pushes `jobs` in all, `plan.window` requests of `plan.batch` in flight per connection.
    pub fn push(&mut self, jobs: u64, plan: Plan, seen: &mut Seen) -> Result<Outcome, String> {
        self.begin(plan);
        let start = Instant::now();
        for index in 0..self.connections.len() {
            self.shares[index].pushes_left = share(jobs, index, self.connections.len());
            self.fill_pushes(index, seen)?;
            self.flush(index)?;
        }
        self.until(seen, |driver| driver.outcome.pushed >= jobs)?;
        Ok(self.finish(start))
    }

    /// Takes and acknowledges `jobs` in all, which must be there.
    pub fn take(&mut self, jobs: u64, plan: Plan, seen: &mut Seen) -> Result<Outcome, String> {
        self.begin(plan);
        let start = Instant::now();
        for index in 0..self.connections.len() {
            let total = share(jobs, index, self.connections.len());
            self.begin_takes(index, total);
            self.flush(index)?;
        }
        self.until(seen, |driver| driver.outcome.acked >= jobs)?;
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            connection.protocol.end(&mut connection.wire);
            self.dispatch(index, seen)?;
            self.flush(index)?;
        }
        self.until(seen, |driver| driver.shares.iter().all(|share| share.ended))?;
        Ok(self.finish(start))
    }

    /// Pushes `jobs` at a fixed rate over the first half of the connections; the others wait for
    /// them. Connection `i` works on the queue of connection `i + half`.
    pub fn open(&mut self, jobs: u64, plan: Plan, seen: &mut Seen) -> Result<Outcome, String> {
        self.begin(plan);
        let (half, rate) = (self.connections.len() / 2, plan.rate.ok_or("a rate is needed")?);
        for index in half..self.connections.len() {
            self.begin_takes(index, u64::MAX);
            self.flush(index)?;
        }
        let (start, start_ns) = (Instant::now(), self.now());
        let due = |number: u64| start_ns + (number as f64 * 1e9 / rate) as u64;
        let mut next = 0;
        while self.outcome.acked < jobs {
            let now = self.now();
            while next < jobs && due(next) <= now {
                let index = next as usize % half;
                self.shares[index].pushes_left += 1;
                self.write_push(index, 1, due(next), seen)?;
                next += 1;
            }
            (0..half).try_for_each(|index| self.flush(index))?;
            let wait = if next < jobs { due(next).saturating_sub(self.now()) } else { u64::MAX };
            self.turn(wait, seen)?;
        }
        Ok(self.finish(start))
    }

    /// How many jobs the queues hold.
    pub fn left(&mut self, seen: &mut Seen) -> Result<u64, String> {
        for index in 0..self.connections.len() {
            self.shares[index].left = None;
            let connection = &mut self.connections[index];
            connection.protocol.left(&mut connection.wire);
            self.flush(index)?;
        }
        self.until(seen, |driver| driver.shares.iter().all(|share| share.left.is_some()))?;
        Ok(self.shares.iter().filter_map(|share| share.left).sum())
    }

    fn now(&self) -> u64 {
        self.born.elapsed().as_nanos() as u64
    }

    fn begin(&mut self, plan: Plan) {
        self.plan = plan;
        self.progressed = Instant::now();
        self.outcome = Outcome::new();
        for share in &mut self.shares {
            share.ended = false;
        }
    }

    fn begin_takes(&mut self, index: usize, total: u64) {
        let connection = &mut self.connections[index];
        if self.plan.rate.is_some() {
            self.plan.window = connection.protocol.waiting_takes_max();
        }
        let Plan { batch, window, .. } = self.plan;
        connection.protocol.begin(&mut connection.wire, Take { batch, window, total });
        self.shares[index].takes_left = total;
        self.fill_takes(index);
    }

    fn finish(&mut self, start: Instant) -> Outcome {
        let mut outcome = std::mem::replace(&mut self.outcome, Outcome::new());
        outcome.seconds = start.elapsed().as_secs_f64();
        outcome
    }

    fn until(&mut self, seen: &mut Seen, done: impl Fn(&Self) -> bool) -> Result<(), String> {
        self.progressed = Instant::now();
        while !done(self) {
            self.turn(u64::MAX, seen)?;
        }
        Ok(())
    }

    fn turn(&mut self, wait_ns: u64, seen: &mut Seen) -> Result<(), String> {
        if self.progressed.elapsed() > PATIENCE {
            let Outcome { pushed, received, acked, .. } = self.outcome;
            return Err(format!(
                "no progress for {} s ({pushed} pushed, {received} received, {acked} acknowledged)",
                PATIENCE.as_secs()
            ));
        }
        let wait_ns = wait_ns.min(TURN_NS_MAX) as i64;
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait_ns };
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("epoll: {error}")),
        }
        for event in &events {
            let index = event.data.u64() as usize;
            let flags = event.flags;
            if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                self.connections[index].receive()?;
                self.dispatch(index, seen)?;
            }
            self.flush(index)?;
        }
        self.events = events;
        Ok(())
    }

    /// Answers what has come of a connection with the requests that follow.
    fn dispatch(&mut self, index: usize, seen: &mut Seen) -> Result<(), String> {
        let now = self.now();
        loop {
            let events = std::mem::take(&mut self.connections[index].wire.events);
            if events.is_empty() {
                return Ok(());
            }
            self.progressed = Instant::now();
            for event in events {
                self.on_event(index, event, now, seen)?;
            }
        }
    }

    fn on_event(
        &mut self,
        index: usize,
        event: Event,
        now: u64,
        seen: &mut Seen,
    ) -> Result<(), String> {
        let share = &mut self.shares[index];
        match event {
            Event::Ready => share.ready = true,
            Event::Ended => share.ended = true,
            Event::Left(count) => share.left = Some(count),
            Event::Pushed(count) => {
                let count = u64::from(count);
                let left = share.unconfirmed.checked_sub(count);
                share.unconfirmed = left.ok_or("more pushes were confirmed than made")?;
                self.outcome.pushed += count;
                self.fill_pushes(index, seen)?;
            }
            Event::Delivered(job) => {
                seen.note(job.sequence);
                self.outcome.received += 1;
                if self.plan.rate.is_some() {
                    self.outcome.receipt.saturating_record(now.saturating_sub(job.sent_ns));
                }
                share.delivered.push(job);
            }
            Event::TakeDone => {
                let connection = &mut self.connections[index];
                connection.protocol.ack(&mut connection.wire, &share.delivered);
                share.delivered.clear();
            }
            Event::Acked(count) => {
                self.outcome.acked += u64::from(count);
                let left = share.takes_in_flight.checked_sub(1);
                share.takes_in_flight = left.ok_or("more was acknowledged than taken")?;
                self.fill_takes(index);
            }
        }
        Ok(())
    }

    fn fill_pushes(&mut self, index: usize, seen: &mut Seen) -> Result<(), String> {
        let Plan { batch, window, rate } = self.plan;
        let (batch, window) = (u64::from(batch), u64::from(window));
        while rate.is_none() {
            let share = &self.shares[index];
            let count = batch.min(share.pushes_left);
            if count == 0 || share.unconfirmed + batch > window * batch {
                break;
            }
            let now = self.now();
            self.write_push(index, count, now, seen)?;
        }
        Ok(())
    }

    fn write_push(
        &mut self,
        index: usize,
        count: u64,
        sent_ns: u64,
        seen: &mut Seen,
    ) -> Result<(), String> {
        self.payloads.clear();
        for _ in 0..count {
            payload::write(&mut self.payloads, seen.next(), sent_ns, self.payload_bytes);
        }
        self.shares[index].pushes_left -= count;
        self.shares[index].unconfirmed += count;
        let connection = &mut self.connections[index];
        connection.protocol.push(&mut connection.wire, &self.payloads, self.payload_bytes)
    }

    fn fill_takes(&mut self, index: usize) {
        let Plan { batch, window, rate } = self.plan;
        let (share, connection) = (&mut self.shares[index], &mut self.connections[index]);
        while share.takes_in_flight < window && share.takes_left > 0 {
            let count = u64::from(batch).min(share.takes_left);
            connection.protocol.take(&mut connection.wire, count as u32, rate.is_some());
            share.takes_left -= count;
            share.takes_in_flight += 1;
        }
    }

    fn flush(&mut self, index: usize) -> Result<(), String> {
        let connection = &mut self.connections[index];
        let left = connection.send()?;
        if left != connection.wants_write {
            connection.wants_write = left;
            let flags = if left { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            let token = EventData::new_u64(index as u64);
            epoll::modify(&self.epoll, &connection.socket, token, flags)
                .map_err(|error| format!("epoll: {error}"))?;
        }
        Ok(())
    }
}

impl Outcome {
    fn new() -> Self {
        // The bounds are constants within what the histogram allows.
        let receipt =
            Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("the bounds are in order");
        Self { pushed: 0, received: 0, acked: 0, seconds: 0.0, receipt }
    }
}

/// Jobs that connection `index` of `connections` has of `jobs`.
pub fn share(jobs: u64, index: usize, connections: usize) -> u64 {
    let (index, connections) = (index as u64, connections as u64);
    jobs / connections + u64::from(index < jobs % connections)
}

#[cfg(test)]
mod tests {
    #[test]
    fn shares_add_up() {
        for jobs in [0, 1, 7, 100, 101] {
            assert_eq!((0..4).map(|index| super::share(jobs, index, 4)).sum::<u64>(), jobs);
        }
    }
}
