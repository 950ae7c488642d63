//! Registered workers: who says it works here. A registration lives on the shard that its id hashes
//! to, so that any connection can speak for it, and ends with the connection that made it. It
//! survives no restart.
//!
//! What a worker does is counted where its jobs are, by the connection that pulled them: two workers
//! that share a connection share its numbers.

use super::worker_list::{About, SILENCE_MS_MAX, Told, Worker, write_about, write_done};
use crate::api::access::Scope;
use crate::api::error::ErrorKind;
use crate::api::request::Answer;
use crate::protocol::msgpack::Texts;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::event_loop::turn_meter::Meter;
use crate::server::shard_mail::message::Message;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::command::ClientId;
use corq_shards::query::Activity;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// Workers of a connection that are looked at in a turn, if it is gone or has spoken.
const SLICE: usize = 500;

/// How often a connection that speaks says so to the shards that keep its workers.
pub const SEEN_REPORT_MS: u64 = 30_000;

/// Registrations a shard keeps; beyond that the most silent one goes.
pub const WORKERS_MAX: usize = 10_000;

/// Bytes of the registrations of a shard, as they are counted; the same holds then.
pub const WORKERS_BYTES_MAX: usize = 16 << 20;

/// Most bytes of the registrations of all shards together, so that the list of all workers fits a frame.
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
    /// Connections that are gone, whose workers go a slice at a time.
    leaving: VecDeque<ClientId>,
    /// Connections that have spoken, and when: their workers live, which is noted a slice at a time, from an id on.
    heard: VecDeque<(ClientId, u64, Box<str>)>,
    /// Steps since [`Workers::take_steps`] was last called.
    steps: usize,
    /// The last leap of the clock: when it came, and by how much what was seen before counts as seen later.
    leapt_at_ms: u64,
    leapt_by_ms: u64,
}

impl Workers {
    /// No workers, on one of `shards` shards.
    pub fn new(shards: usize) -> Self {
        Self {
            by_id: BTreeMap::new(),
            by_client: BTreeSet::new(),
            by_silence: BTreeSet::new(),
            bytes: 0,
            bytes_max: WORKERS_BYTES_MAX.min(ALL_WORKERS_BYTES_MAX / shards.max(1)),
            crowded_out: 0,
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

    /// Goes on if there is more to do, and counts what was done. Returns when to come again, in milliseconds since the epoch.
    pub fn tend(&mut self, now_ms: u64, meter: &mut Meter) -> u64 {
        if self.has_left() {
            self.go_on();
        }
        meter.note(self.take_steps());
        if self.has_left() { now_ms } else { u64::MAX }
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
    pub fn attending(&self, now_ms: u64) -> usize {
        let is_there =
            |worker: &&Worker| self.since_leap(worker.last_seen_ms) + SILENCE_MS_MAX > now_ms;
        self.by_id.values().filter(is_there).count()
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
    /// Tells the shards that may keep workers of a connection that it lives.
    pub(crate) fn send_seen(&mut self, client: ClientId) {
        for shard in 0..self.slots.shards() {
            self.outbox.immediate(shard).messages.push(Message::Seen { client });
        }
    }

    pub(crate) fn saw_client(&mut self, client: ClientId) {
        self.workers.saw(client, self.now_ms);
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
        let known = self.workers.is_within(id, ctx.origin.scope)
            && self.workers.note_told(id, told)
            && self.workers.seen(id, self.now_ms);
        self.answer_on_worker(conns, ctx, known, Answer::Alive);
    }

    /// Answers `UnregisterWorker`.
    pub(crate) fn unregister_worker(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        id: &str,
    ) {
        let known = self.workers.is_within(id, ctx.origin.scope) && self.workers.unregister(id);
        self.answer_on_worker(conns, ctx, known, Answer::Flag("removed"));
    }

    fn answer_on_worker(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        known: bool,
        answer: Answer,
    ) {
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
        let now_ms = self.now_ms;
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
        };
        self.workers.register(id, registration.clone());
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

/// The names of an array of strings in their order, each once.
fn each_once(names: Texts<'_>) -> Arc<[u8]> {
    let mut seen = BTreeSet::new();
    let kept: Vec<&str> = names.iter().filter(|name| seen.insert(*name)).collect();
    if kept.len() == names.len() {
        return names.raw().into();
    }
    let mut bytes = Vec::with_capacity(names.raw().len());
    let mut writer = Writer::new(&mut bytes);
    writer.array(kept.len());
    for name in kept {
        writer.str(name);
    }
    bytes.into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
