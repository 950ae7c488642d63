//! Registered workers: who says it works here. A registration lives on the shard that its id hashes
//! to, so that any connection can speak for it, and ends with the connection that made it. It
//! survives no restart.
//!
//! What a worker does is counted where its jobs are, by the connection that pulled them: two workers
//! that share a connection share its numbers.

use super::worker_list::{About, SILENCE_MS_MAX, Told, Worker, write_about, write_done};
use super::worker_presence::{SLICE, WorkerPresence, each_once};
use crate::api::access::Scope;
use crate::api::error::ErrorKind;
use crate::api::request::Answer;
use crate::protocol::msgpack::Texts;
use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::shard_mail::envelope::Span;
use crate::server::shard_mail::message::{Batch, Message};
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::{ClientId, Command};
use corq_shards::query::Activity;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

/// How often a connection that speaks says so to the shards that keep its workers.
pub const SEEN_REPORT_MS: u64 = 30_000;

/// Registrations a shard keeps; beyond that the most silent one goes.
pub const WORKERS_MAX: usize = 10_000;

/// Bytes of the registrations of a shard, as they are counted; the same holds then.
pub const WORKERS_BYTES_MAX: usize = 16 << 20;

/// The same of all shards together, so that the list of all workers fits a frame.
const ALL_WORKERS_BYTES_MAX: usize = 48 << 20;

/// The workers of one shard, by id, by connection and by silence.
#[derive(Debug)]
pub struct Workers {
    by_id: BTreeMap<Box<str>, Worker>,
    by_client: BTreeSet<(u64, Box<str>)>,
    by_silence: BTreeSet<(u64, Box<str>)>,
    bytes: usize,
    bytes_max: usize,
    /// Workers let go of to make room for others.
    crowded_out: u64,
    /// Which queues they work on, and what the owners of these know of it.
    pub presence: WorkerPresence,
    /// Workers in the order of silence before this place count as gone.
    silent_before: (u64, Box<str>),
    /// Connections that are gone, whose workers go a slice at a time.
    leaving: VecDeque<ClientId>,
    /// Connections that have spoken, and when: their workers live, which is noted a slice at a time, from an id on.
    heard: VecDeque<(ClientId, u64, Box<str>)>,
    /// What was done since it was last asked.
    steps: usize,
    /// The last leap of the clock: when it came, and by how much what was seen before counts as seen later.
    leapt_at_ms: u64,
    leapt_by_ms: u64,
}

impl Workers {
    /// Those of one of so many shards.
    pub fn new(shards: usize) -> Self {
        Self {
            by_id: BTreeMap::new(),
            by_client: BTreeSet::new(),
            by_silence: BTreeSet::new(),
            bytes: 0,
            bytes_max: WORKERS_BYTES_MAX.min(ALL_WORKERS_BYTES_MAX / shards.max(1)),
            crowded_out: 0,
            presence: WorkerPresence::default(),
            silent_before: (0, Box::default()),
            leaving: VecDeque::new(),
            heard: VecDeque::new(),
            steps: 0,
            leapt_at_ms: 0,
            leapt_by_ms: 0,
        }
    }

    /// The clock has leapt by so much, which is no silence. One leap soon after another adds to it.
    pub fn put_off(&mut self, now_ms: u64, by_ms: u64) {
        let counts = now_ms.saturating_sub(by_ms) < self.leapt_at_ms + SILENCE_MS_MAX;
        self.leapt_by_ms = by_ms + if counts { self.leapt_by_ms } else { 0 };
        self.leapt_at_ms = now_ms;
    }

    /// When something was seen, by the clock as it goes since its last leap. The order of what was seen stays.
    pub fn since_leap(&self, seen_ms: u64) -> u64 {
        let before_ms = self.leapt_at_ms.saturating_sub(seen_ms);
        seen_ms + self.leapt_by_ms.min(before_ms)
    }

    /// Steps since this was last asked.
    pub fn take_steps(&mut self) -> usize {
        std::mem::take(&mut self.steps)
    }

    /// Takes in a worker, or a new registration of it. The most silent ones make room for it.
    pub fn register(&mut self, id: &str, worker: Worker) {
        self.unregister(id);
        let bytes = worker.bytes(id);
        while (self.by_id.len() >= WORKERS_MAX || self.bytes + bytes > self.bytes_max)
            && let Some((_, silent)) = self.by_silence.first()
        {
            let silent = silent.clone();
            self.unregister(&silent);
            self.crowded_out += 1;
        }
        self.bytes += bytes;
        self.by_silence.insert((worker.last_seen_ms, id.into()));
        self.by_client.insert((worker.client.0, id.into()));
        self.presence.note(&worker.queues, true);
        self.by_id.insert(id.into(), worker);
    }

    /// A worker says what it has done. False if it is not known.
    pub fn note_told(&mut self, id: &str, told: Told) -> bool {
        let Some(worker) = self.by_id.get_mut(id) else { return false };
        worker.told = told.or(worker.told);
        true
    }

    /// Whether a worker, if there is one of this id, works on no queues but those of a client.
    fn is_within(&self, id: &str, scope: Scope) -> bool {
        let Some(queues) = scope else { return true };
        let worker = self.by_id.get(id);
        worker
            .is_none_or(|worker| Texts::new(&worker.queues).iter().all(|queue| queues.cover(queue)))
    }

    /// A heartbeat. False if the worker is not known.
    pub fn seen(&mut self, id: &str, now_ms: u64) -> bool {
        let worker = self.by_id.get_mut(id);
        let Some(worker) = worker else { return false };
        let before_ms = std::mem::replace(&mut worker.last_seen_ms, now_ms);
        if !std::mem::replace(&mut worker.attends, true) {
            self.presence.note(&worker.queues, true);
        }
        let mut place = (before_ms, Box::from(id));
        self.by_silence.remove(&place);
        place.0 = now_ms;
        self.by_silence.insert(place);
        true
    }

    /// Ends a registration. False if there was none.
    pub fn unregister(&mut self, id: &str) -> bool {
        let Some((id, worker)) = self.by_id.remove_entry(id) else { return false };
        self.steps += 1;
        self.bytes -= worker.bytes(&id);
        let place = (worker.last_seen_ms, id);
        self.by_silence.remove(&place);
        self.by_client.remove(&(worker.client.0, place.1));
        if worker.attends {
            self.presence.note(&worker.queues, false);
        }
        true
    }

    /// A connection has said something: so all its workers live.
    pub fn saw(&mut self, client: ClientId, now_ms: u64) {
        self.heard.push_back((client, now_ms, Box::default()));
        self.begin();
    }

    /// Begins at once if nothing else is under way. What is has a slice in each turn, however many connections follow it.
    fn begin(&mut self) {
        if self.leaving.len() + self.heard.len() == 1 {
            self.go_on();
        }
    }

    /// Whether there is more to do of what was begun.
    pub fn has_left(&self) -> bool {
        !self.leaving.is_empty() || !self.heard.is_empty()
    }

    /// Goes on with workers of connections that are gone or have spoken, a slice of them.
    pub fn go_on(&mut self) {
        let mut left = SLICE;
        while left > 0
            && let Some(&client) = self.leaving.front()
        {
            let first = self.by_client.range((client.0, Box::default())..).next();
            match first.filter(|(one, _)| *one == client.0) {
                None => {
                    self.leaving.pop_front();
                    left -= 1;
                }
                Some((_, id)) => {
                    let id = id.clone();
                    self.unregister(&id);
                    left -= 1;
                }
            }
        }
        while left > 0
            && let Some((client, at_ms, from)) = self.heard.pop_front()
        {
            let own = self.by_client.range((client.0, from)..);
            let own = own.take_while(|(one, _)| *one == client.0).map(|(_, id)| id.clone());
            let mut own: Vec<Box<str>> = own.take(left + 1).collect();
            if own.len() > left
                && let Some(next) = own.pop()
            {
                self.heard.push_front((client, at_ms, next));
            }
            left -= own.len().max(1);
            self.steps += own.len();
            for id in own {
                if self.by_id.get(&id).is_some_and(|worker| worker.last_seen_ms < at_ms) {
                    self.seen(&id, at_ms);
                }
            }
        }
    }

    /// Counts those as gone that have been silent for too long, a slice of them. Returns when there may be more.
    pub fn end_silent(&mut self, now_ms: u64) -> u64 {
        let before_ms = (now_ms + 1).saturating_sub(SILENCE_MS_MAX);
        for _ in 0..SLICE {
            let next = self.by_silence.range(&self.silent_before..).next();
            let is_silent = |(seen_ms, _): &&(u64, _)| self.since_leap(*seen_ms) < before_ms;
            let Some((seen_ms, id)) = next.filter(is_silent) else {
                return next.map_or(u64::MAX, |(seen_ms, _)| {
                    self.since_leap(*seen_ms).saturating_add(SILENCE_MS_MAX)
                });
            };
            if let Some(worker) = self.by_id.get_mut(id)
                && std::mem::replace(&mut worker.attends, false)
            {
                self.presence.note(&worker.queues, false);
            }
            // The next place there can be.
            self.silent_before = (*seen_ms, format!("{id}\0").into());
            self.steps += 1;
        }
        now_ms
    }

    /// Workers in the order of their ids from behind `after` on, up to so many and about so many bytes, and whether
    /// there are more.
    pub fn behind(
        &self,
        after: &str,
        rows_max: usize,
        bytes_max: usize,
    ) -> (Vec<(Box<str>, Worker)>, bool) {
        let rest = (Bound::Excluded(after), Bound::Unbounded);
        let (mut some, mut bytes) = (Vec::new(), 0);
        for (id, worker) in self.by_id.range::<str, _>(rest) {
            if some.len() >= rows_max || bytes >= bytes_max {
                return (some, true);
            }
            bytes += worker.bytes(id);
            let last_seen_ms = self.since_leap(worker.last_seen_ms);
            some.push((id.clone(), Worker { last_seen_ms, ..worker.clone() }));
        }
        (some, false)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// How many of them have been heard of lately.
    pub fn attending(&self) -> usize {
        self.by_id.values().filter(|worker| worker.attends).count()
    }

    /// Bytes that they take, as they are counted.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many have been let go of to make room for others.
    pub fn crowded_out(&self) -> u64 {
        self.crowded_out
    }

    /// A connection is gone, and its workers with it.
    pub fn leave(&mut self, client: ClientId) {
        self.leaving.push_back(client);
        self.begin();
    }
}

impl ShardServer {
    /// Counts a slice of the registrations that came or went, and tells the owners of a slice of the queues that got
    /// their first worker or lost their last. True if there is more to do.
    fn announce_presence(&mut self) -> bool {
        let Self { workers: Workers { presence, .. }, outbox, slots, meter, .. } = self;
        if !presence.has_left() {
            return false;
        }
        let from = self.me as u16;
        let mut steps = presence.count(SLICE);
        for _ in 0..SLICE {
            let Some((queue, came)) = presence.next_change() else { break };
            steps += 1;
            let batch = outbox.after_commit(slots.of_queue(&queue));
            let change = (batch.keep(queue.as_bytes()), came);
            match batch.messages.last_mut() {
                Some(Message::Attend { queues, .. }) => queues.push(change),
                _ => batch.messages.push(Message::Attend { from, queues: vec![change] }),
            }
        }
        meter.note(steps);
        presence.has_left()
    }

    /// Another shard has told of workers for queues of this one.
    pub(crate) fn attend(
        &mut self,
        conns: &mut Connections,
        batch: &Batch,
        from: u16,
        queues: &[(Span, bool)],
    ) {
        let names = queues.len();
        self.meter.note(names);
        for (queue, came) in queues {
            let command = Command::Attend { queue: batch.text(queue), came: *came };
            self.apply(conns, Caller::default(), &command);
        }
        let answers = self.outbox.after_commit(usize::from(from));
        answers.messages.push(Message::Attended { names });
    }

    /// Tells the shards that may keep workers of a connection that it lives.
    pub(crate) fn send_seen(&mut self, client: ClientId) {
        for shard in 0..self.slots.shards() {
            self.outbox.immediate(shard).messages.push(Message::Seen { client });
        }
    }

    pub(crate) fn saw_client(&mut self, client: ClientId) {
        self.workers.saw(client, self.now_ms);
    }

    /// Ends the presence of silent workers, and tells the owners of queues what there is to tell. Returns when to come
    /// again.
    pub(crate) fn note_workers(&mut self) -> u64 {
        if self.workers.has_left() {
            self.workers.go_on();
        }
        let next_ms = self.workers.end_silent(self.now_ms);
        self.meter.note(self.workers.take_steps());
        let more = self.announce_presence();
        if more || self.workers.has_left() { self.now_ms } else { next_ms }
    }

    /// `RegisterWorker`. One that brings no id gets one that belongs to this shard.
    pub(crate) fn register_worker(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        name: &str,
        queues: Texts<'_>,
        id: Option<&str>,
        about: About<'_>,
    ) {
        if let Some(id) = id {
            self.register(conns, ctx, (name, queues, about), id);
            return;
        }
        // As many tries as there are shards, on average.
        let id = loop {
            let id = uuid::Uuid::new_v4().to_string();
            if self.slots.of_name(&id) == self.me {
                break id;
            }
        };
        self.register(conns, ctx, (name, queues, about), &id);
    }

    /// Answers `Heartbeat`.
    pub(crate) fn worker_heartbeat(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        id: &str,
        told: Told,
    ) {
        let uncounted = self.workers.presence.uncounted();
        let known = self.workers.is_within(id, ctx.origin.scope)
            && self.workers.note_told(id, told)
            && self.workers.seen(id, self.now_ms);
        self.answer_on_worker(conns, ctx, (known, uncounted), Answer::Alive);
    }

    /// Answers `UnregisterWorker`.
    pub(crate) fn unregister_worker(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        id: &str,
    ) {
        let uncounted = self.workers.presence.uncounted();
        let known = self.workers.is_within(id, ctx.origin.scope) && self.workers.unregister(id);
        self.answer_on_worker(conns, ctx, (known, uncounted), Answer::Flag("removed"));
    }

    fn answer_on_worker(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        (known, uncounted): (bool, usize),
        answer: Answer,
    ) {
        self.meter.note(self.workers.presence.count_excess(uncounted));
        if known {
            self.write_done(conns, ctx, answer, 1);
        } else {
            self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::WorkerNotFound);
        }
    }

    fn register(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        (name, queues, about): (&str, Texts<'_>, About<'_>),
        id: &str,
    ) {
        if !self.workers.is_within(id, ctx.origin.scope) {
            return self.refuse(conns, ctx.origin, ctx.req_id, ErrorKind::QueueForbids);
        }
        let (now_ms, uncounted) = (self.now_ms, self.workers.presence.uncounted());
        let queues = each_once(queues);
        let registration = Worker {
            // Over HTTP a connection does not represent a worker, which lives by its heartbeats alone.
            client: if ctx.origin.tokenless { ClientId::default() } else { ctx.origin.client },
            name: name.into(),
            queues,
            concurrency: about.concurrency.unwrap_or(1),
            hostname: about.hostname.unwrap_or_default().into(),
            pid: about.pid.unwrap_or(0),
            told: Told::default(),
            registered_at_ms: now_ms,
            last_seen_ms: now_ms,
            attends: true,
        };
        self.workers.register(id, registration.clone());
        self.meter.note(self.workers.presence.count_excess(uncounted));
        self.respond(conns, ctx.origin, |_, sink| {
            framed(sink, ctx.req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, ctx.req_id);
                let mut data = reply.map("data");
                data.key("workerId").str(id);
                write_about(&mut data, &registration, now_ms);
                write_done(&mut data, Activity::default());
            });
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
