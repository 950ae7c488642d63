//! A phase of a run: which request follows which reply.
//!
//! A closed loop keeps a fixed number of requests in flight: a reply is answered by the next
//! request. Workers of a phase without producers know what lies in the queues, and ask only for
//! that (`Waiting::Stocked`), so that no empty pull and no long poll blurs the figure; workers
//! beside producers wait at the server for what will come (`Waiting::LongPoll`).

use crate::engine::Ledger;
use crate::pipeline::{Kind, Pipeline, Slot};
use crate::reply::{Answer, Reply};
use crate::tally::Tally;

/// After so many errors there is nothing left to learn.
const ERRORS_MAX: u64 = 10_000;

/// The text of a missed rate.
pub(crate) fn missed_rate(reached: f64, rate: f64, behind_s: f64) -> String {
    format!(
        "the server reached {reached:.0} of {rate:.0} jobs/s: {behind_s:.1} s of jobs wait; lower \
         --rate"
    )
}

/// Where a worker's pull waits when there is nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    Stocked,
    LongPoll { timeout_ms: u32 },
}

/// Settings of a phase.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    /// Connections below this push; those from `first_worker` on pull.
    pub(crate) producers: usize,
    pub(crate) first_worker: usize,
    pub(crate) window: u32,
    pub(crate) batch: Option<u32>,
    pub(crate) waiting: Waiting,
    pub(crate) owner: bool,
    pub(crate) jobs_to_push: u64,
    pub(crate) jobs_to_take: u64,
    pub(crate) stop_after_ns: Option<u64>,
    /// Jobs per second of an open loop.
    pub(crate) rate: Option<f64>,
    /// Whether jobs wait for a delay of their own.
    pub(crate) delayed: bool,
    /// How long the workers of an open loop wait before the first push.
    pub(crate) settle_ns: u64,
    pub(crate) patience_ns: u64,
}

/// A phase under way.
pub(crate) struct Phase<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) tally: Tally,
    pub(crate) start_ns: u64,
    pub(crate) progressed_ns: u64,
    stopping: bool,
    pushes_left: u64,
    takes_left: u64,
    pushes_in_flight: u64,
    requests_in_flight: u64,
    /// Open loop: the number of the next job that will be due.
    next_due: u64,
}

impl<'p> Phase<'p> {
    pub(crate) fn new(plan: &'p Plan, now: u64) -> Self {
        Self {
            plan,
            tally: Tally::new(),
            start_ns: now,
            progressed_ns: now,
            stopping: false,
            pushes_left: plan.jobs_to_push,
            takes_left: plan.jobs_to_take,
            pushes_in_flight: 0,
            requests_in_flight: 0,
            next_due: 0,
        }
    }

    /// Gives a connection its share and fills its window.
    pub(crate) fn begin(
        &mut self,
        index: usize,
        pipeline: &mut Pipeline,
        ledger: &mut Ledger,
        now: u64,
    ) {
        pipeline.pushes_left = 0;
        if index < self.plan.producers && self.plan.rate.is_none() {
            let (all, share) = (self.plan.jobs_to_push, self.plan.producers as u64);
            pipeline.pushes_left = all / share + u64::from((index as u64) < all % share);
            for _ in 0..self.plan.window {
                self.push(pipeline, ledger, now);
            }
        }
        if index >= self.plan.first_worker {
            for _ in 0..self.plan.window {
                self.pull(pipeline, ledger, now);
            }
        }
    }

    /// All connections have begun: an open loop pushes from here on. Whatever it took to get here is no
    /// delay of a push.
    pub(crate) fn all_have_begun(&mut self, now: u64) {
        if self.plan.rate.is_some() {
            self.start_ns = now + self.plan.settle_ns;
            self.progressed_ns = self.start_ns;
        }
    }

    pub(crate) fn finish(mut self) -> Tally {
        self.tally.span_ns = self.progressed_ns.saturating_sub(self.start_ns).max(1);
        self.tally
    }

    /// Whether all is done; looks at the clock on the way.
    pub(crate) fn is_over(&mut self, now: u64) -> bool {
        if self.plan.stop_after_ns.is_some_and(|limit| now.saturating_sub(self.start_ns) >= limit) {
            self.stopping = true;
        }
        if self.tally.errors > ERRORS_MAX {
            return true;
        }
        match self.plan.waiting {
            Waiting::Stocked => self.requests_in_flight == 0,
            Waiting::LongPoll { .. } => {
                (self.stopping || self.pushes_left == 0)
                    && self.pushes_in_flight == 0
                    && self.tally.acked >= self.tally.pushed
            }
        }
    }

    pub(crate) fn lost_patience(&self, now: u64) -> bool {
        now.saturating_sub(self.progressed_ns) > self.plan.patience_ns
    }

    pub(crate) fn describe_wait(&self) -> String {
        format!(
            "no progress for {:.0} s with {} requests in flight ({} pushed, {} received, {} \
             acknowledged)",
            self.plan.patience_ns as f64 / 1e9,
            self.requests_in_flight,
            self.tally.pushed,
            self.tally.received,
            self.tally.acked
        )
    }

    /// The command that requests of a kind are sent as.
    pub(crate) fn command(&self, kind: Kind) -> &'static str {
        match (kind, self.plan.batch.is_some()) {
            (Kind::Push, false) => "PUSH",
            (Kind::Push, true) => "PUSHB",
            (Kind::Pull, false) => "PULL",
            (Kind::Pull, true) => "PULLB",
            (Kind::Ack, false) => "ACK",
            (Kind::Ack, true) => "ACKB",
        }
    }

    // Open loop.

    /// Jobs of an open loop that were due and are not done.
    fn behind(&self) -> u64 {
        let done = if self.plan.delayed { self.tally.pushed } else { self.tally.acked };
        self.next_due.saturating_sub(done)
    }

    /// How many seconds of jobs of an open loop wait.
    pub(crate) fn behind_s(&self) -> f64 {
        self.plan.rate.map_or(0.0, |rate| self.behind() as f64 / rate)
    }

    /// Gives up an open loop; answers why.
    pub(crate) fn give_up_rate(&mut self, now: u64) -> String {
        self.tally.rate_missed = true;
        let elapsed_s = now.saturating_sub(self.start_ns).max(1) as f64 / 1e9;
        let reached = (self.next_due - self.behind()) as f64 / elapsed_s;
        missed_rate(reached, self.plan.rate.unwrap_or_default(), self.behind_s())
    }

    fn due_ns(&self, number: u64, rate: f64) -> u64 {
        self.start_ns + (number as f64 * 1e9 / rate) as u64
    }

    /// Jobs of the next push.
    fn next_count(&self) -> u64 {
        u64::from(self.plan.batch.unwrap_or(1)).min(self.pushes_left)
    }

    /// When the next push is due: with the last of its jobs.
    fn next_push_ns(&self, rate: f64) -> u64 {
        self.due_ns(self.next_due + self.next_count().saturating_sub(1), rate)
    }

    /// The connection, the number of jobs and the due time of the next push, if it is due.
    pub(crate) fn take_due(&mut self, now: u64) -> Option<(usize, u64, u64)> {
        let (due, count) = (self.next_push_ns(self.plan.rate?), self.next_count());
        if self.stopping || count == 0 || due > now {
            return None;
        }
        let push = self.next_due / u64::from(self.plan.batch.unwrap_or(1));
        self.next_due += count;
        Some(((push % self.plan.producers as u64) as usize, count, due))
    }

    pub(crate) fn next_due_ns(&self, now: u64) -> u64 {
        match self.plan.rate {
            Some(rate) if self.pushes_left > 0 && !self.stopping => {
                self.next_push_ns(rate).saturating_sub(now)
            }
            _ => u64::MAX,
        }
    }

    pub(crate) fn push_due(
        &mut self,
        pipeline: &mut Pipeline,
        ledger: &mut Ledger,
        (count, due): (u64, u64),
        now: u64,
    ) {
        self.tally.send_lag.saturating_record(now - due);
        self.write_push(pipeline, ledger, self.plan.batch, count as u32, due, now);
    }

    // Requests.

    fn push(&mut self, pipeline: &mut Pipeline, ledger: &mut Ledger, now: u64) {
        if self.stopping || pipeline.pushes_left == 0 || self.plan.rate.is_some() {
            return;
        }
        let batch = self.plan.batch;
        let count = u64::from(batch.unwrap_or(1)).min(pipeline.pushes_left);
        pipeline.pushes_left -= count;
        self.write_push(pipeline, ledger, batch, count as u32, now, now);
    }

    fn write_push(
        &mut self,
        pipeline: &mut Pipeline,
        ledger: &mut Ledger,
        batch: Option<u32>,
        count: u32,
        intended: u64,
        now: u64,
    ) {
        let queue = pipeline.next_queue();
        let request = pipeline.open(Kind::Push, queue, count, now);
        let sequence = ledger.next_sequence;
        ledger.next_sequence += count;
        self.pushes_left -= u64::from(count);
        self.pushes_in_flight += 1;
        self.requests_in_flight += 1;
        // Microseconds in a float: a number that every client and server carries unchanged.
        let sent = intended as f64 / 1e3;
        let (out, queue) = (&mut pipeline.out, usize::from(queue));
        match batch {
            Some(_) => ledger.templates.push_batch(out, queue, request, sequence, count, sent),
            None => ledger.templates.push(out, queue, request, sequence, sent),
        }
    }

    fn pull(&mut self, pipeline: &mut Pipeline, ledger: &mut Ledger, now: u64) {
        let batch = self.plan.batch;
        let wanted = u64::from(batch.unwrap_or(1)).min(self.takes_left);
        let claim = match self.plan.waiting {
            Waiting::LongPoll { timeout_ms } => Some((pipeline.next_queue(), wanted, timeout_ms)),
            Waiting::Stocked if self.stopping || wanted == 0 => None,
            Waiting::Stocked => claim(pipeline, &mut ledger.stock, wanted).map(|(q, n)| (q, n, 0)),
        };
        let Some((queue, count, timeout_ms)) = claim else { return };
        if self.plan.waiting == Waiting::Stocked {
            self.takes_left -= count;
        }
        let request = pipeline.open(Kind::Pull, queue, count as u32, now);
        self.requests_in_flight += 1;
        let batch = batch.map(|_| count as u32);
        ledger.templates.pull(&mut pipeline.out, usize::from(queue), request, batch, timeout_ms);
    }

    // Replies.

    pub(crate) fn on_reply(
        &mut self,
        pipeline: &mut Pipeline,
        ledger: &mut Ledger,
        answer: Answer,
        now: u64,
    ) -> Result<(), String> {
        let reply = answer.reply;
        let Some(slot) = reply.request.and_then(|request| pipeline.close(request)) else {
            return Err(format!("a reply to no request in flight: {}", answer.error()));
        };
        self.requests_in_flight -= 1;
        self.tally.trip(slot.kind, now - slot.sent_ns);
        if !reply.ok {
            self.tally.fail(|| answer.error());
        }
        match slot.kind {
            Kind::Push => self.on_push(slot, pipeline, ledger, reply, now),
            Kind::Pull if reply.ok => self.on_pull(slot, pipeline, ledger, answer, now),
            // A pull that is refused would be refused again: its place in the window stays empty.
            Kind::Pull => {}
            Kind::Ack => {
                if reply.ok {
                    self.tally.acked += u64::from(slot.jobs);
                    self.progressed_ns = now;
                }
                self.pull(pipeline, ledger, now);
            }
        }
        Ok(())
    }

    fn on_push(
        &mut self,
        slot: Slot,
        pipeline: &mut Pipeline,
        ledger: &mut Ledger,
        reply: &Reply,
        now: u64,
    ) {
        self.pushes_in_flight -= 1;
        if reply.ok {
            if reply.ids != slot.jobs as usize {
                self.tally.fail(|| format!("{} ids for {} jobs", reply.ids, slot.jobs));
            }
            self.tally.pushed += u64::from(slot.jobs);
            ledger.stock[usize::from(slot.queue)] += u64::from(slot.jobs);
            self.progressed_ns = now;
        }
        self.push(pipeline, ledger, now);
    }

    fn on_pull(
        &mut self,
        slot: Slot,
        pipeline: &mut Pipeline,
        ledger: &mut Ledger,
        answer: Answer,
        now: u64,
    ) {
        let jobs = answer.jobs;
        if self.plan.waiting == Waiting::Stocked {
            let missing = u64::from(slot.jobs).saturating_sub(jobs.len() as u64);
            self.takes_left += missing;
            ledger.stock[usize::from(slot.queue)] += missing;
        }
        if jobs.is_empty() {
            self.tally.empty_pulls += 1;
            self.pull(pipeline, ledger, now);
            return;
        }
        self.progressed_ns = now;
        self.tally.received += jobs.len() as u64;
        for job in jobs {
            ledger.seen.note(job.sequence, ledger.next_sequence);
            let took = now.saturating_sub((job.sent * 1e3) as u64);
            if self.plan.rate.is_some() {
                self.tally.push_to_receipt.saturating_record(took);
            }
        }
        self.ack(slot.queue, pipeline, ledger, answer, now);
    }

    fn ack(
        &mut self,
        queue: u16,
        pipeline: &mut Pipeline,
        ledger: &mut Ledger,
        answer: Answer,
        now: u64,
    ) {
        let Answer { reply, jobs, body } = answer;
        let token = reply.token.clone().filter(|_| self.plan.owner).map(|range| &body[range]);
        let tokens = reply.tokens.clone().filter(|_| self.plan.owner);
        let got = if self.plan.batch.is_some() {
            tokens.as_ref().map_or(0, |tokens| tokens.1)
        } else {
            usize::from(token.is_some())
        };
        if self.plan.owner && got != jobs.len() {
            self.tally.fail(|| format!("{got} tokens for {} jobs pulled with owner", jobs.len()));
            return;
        }
        let request = pipeline.open(Kind::Ack, queue, jobs.len() as u32, now);
        self.requests_in_flight += 1;
        if self.plan.batch.is_some() {
            let ids = jobs.iter().map(|job| &body[job.id.clone()]);
            let tokens = tokens.map(|(range, _)| &body[range]);
            ledger.templates.ack_batch(&mut pipeline.out, request, ids, tokens);
        } else {
            ledger.templates.ack(&mut pipeline.out, request, &body[jobs[0].id.clone()], token);
        }
    }
}

/// Takes up to `wanted` jobs of one of the connection's queues off the stock.
fn claim(pipeline: &mut Pipeline, stock: &mut [u64], wanted: u64) -> Option<(u16, u64)> {
    for _ in 0..pipeline.queues.len() {
        let queue = pipeline.next_queue();
        let there = &mut stock[usize::from(queue)];
        if *there > 0 {
            let count = wanted.min(*there);
            *there -= count;
            return Some((queue, count));
        }
    }
    None
}
