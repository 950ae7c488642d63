//! Registered workers: who says it works here. A registration lives on the shard that its id hashes
//! to, so that any connection can speak for it, and ends with the connection that made it. It
//! survives no restart.
//!
//! What a worker does is counted where its jobs are, by the connection that pulled them: two workers
//! that share a connection share its numbers.

use super::worker_list::{SILENCE_MS_MAX, Worker};
use super::worker_presence::{SLICE, WorkerPresence, each_once};
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
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// How often a connection that speaks says so to the shards that keep its workers.
pub const SEEN_TOLD_MS: u64 = 30_000;

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
    /// A worker that was silent since before then counts as gone.
    silent_before_ms: u64,
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
            silent_before_ms: 0,
        }
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
        let own = self.by_client.range((client.0, Box::default())..);
        let own = own.take_while(|(one, _)| *one == client.0).map(|(_, id)| id.clone());
        for id in own.collect::<Vec<_>>() {
            self.seen(&id, now_ms);
        }
    }

    /// Counts those as gone that have been silent for too long. Returns when there may be more.
    pub fn end_silent(&mut self, now_ms: u64) -> u64 {
        let before_ms = (now_ms + 1).saturating_sub(SILENCE_MS_MAX);
        let place = |at_ms: u64| (at_ms, Box::<str>::default());
        if before_ms > self.silent_before_ms {
            let silent = self.by_silence.range(place(self.silent_before_ms)..place(before_ms));
            for (_, id) in silent {
                let Some(worker) = self.by_id.get_mut(id) else { continue };
                if std::mem::replace(&mut worker.attends, false) {
                    self.presence.note(&worker.queues, false);
                }
            }
            self.silent_before_ms = before_ms;
        }
        let next = self.by_silence.range(place(self.silent_before_ms)..).next();
        next.map_or(u64::MAX, |(seen_ms, _)| seen_ms.saturating_add(SILENCE_MS_MAX))
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
            some.push((id.clone(), worker.clone()));
        }
        (some, false)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
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
        while let Some((_, id)) = self.by_client.range((client.0, Box::default())..).next()
            && self.by_id.get(id).is_some_and(|worker| worker.client == client)
        {
            let id = id.clone();
            self.unregister(&id);
        }
    }
}

impl ShardServer {
    /// Counts a slice of the registrations that came or went, and tells the owners of a slice of the queues that got
    /// their first worker or lost their last. True if there is more to do.
    fn tell_worker_presence(&mut self) -> bool {
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
        let next_ms = self.workers.end_silent(self.now_ms);
        if self.tell_worker_presence() { self.now_ms } else { next_ms }
    }

    /// `RegisterWorker`. One that brings no id gets one that belongs to this shard.
    pub(crate) fn register_worker(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        name: &str,
        queues: Texts<'_>,
        id: Option<&str>,
    ) {
        if let Some(id) = id {
            self.register(conns, ctx, (name, queues), id);
            return;
        }
        // As many tries as there are shards, on average.
        let id = loop {
            let id = uuid::Uuid::new_v4().to_string();
            if self.slots.of_name(&id) == self.me {
                break id;
            }
        };
        self.register(conns, ctx, (name, queues), &id);
    }

    /// Answers `Heartbeat`.
    pub(crate) fn worker_heartbeat(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        id: &str,
    ) {
        let uncounted = self.workers.presence.uncounted();
        let known = self.workers.seen(id, self.now_ms);
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
        let known = self.workers.unregister(id);
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
        (name, queues): (&str, Texts<'_>),
        id: &str,
    ) {
        let (now_ms, uncounted) = (self.now_ms, self.workers.presence.uncounted());
        let queues = each_once(queues);
        let registration = Worker {
            client: ctx.origin.client,
            name: name.into(),
            queues: queues.clone(),
            registered_at_ms: now_ms,
            last_seen_ms: now_ms,
            attends: true,
        };
        self.workers.register(id, registration);
        self.meter.note(self.workers.presence.count_excess(uncounted));
        self.respond(conns, ctx.origin, |_, sink| {
            framed(sink, ctx.req_id, |sink| {
                let mut writer = reply::head(sink.out, true, ctx.req_id, 1);
                writer.str("data");
                writer.map(4);
                writer.str("workerId");
                writer.str(id);
                writer.str("name");
                writer.str(name);
                writer.str("queues");
                writer.raw(&queues);
                writer.str("registeredAt");
                writer.uint(now_ms);
            });
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::worker_list::{WorkerList, write_worker};
    use super::*;
    use crate::protocol::frame::FRAME_BYTES_MAX;
    use crate::protocol::msgpack::writer::Writer;
    use corq_shards::query::Activity;
    use std::sync::Arc;

    fn worker(client: u64, last_seen_ms: u64) -> Worker {
        Worker {
            client: ClientId(client),
            name: "w".into(),
            queues: [0x91, 0xa1, b'a' + client as u8 % 26].into(),
            registered_at_ms: 0,
            last_seen_ms,
            attends: true,
        }
    }

    #[test]
    fn workers_go_with_their_connection_and_with_no_other() {
        let mut workers = Workers::new(1);
        for (id, client) in [("a", 1), ("b", 2), ("c", 1), ("d", 3)] {
            workers.register(id, worker(client, 0));
        }
        workers.register("d", worker(1, 0));
        workers.leave(ClientId(3));
        assert!(workers.seen("d", 5), "it came again by another connection");
        workers.leave(ClientId(1));
        assert_eq!(workers.by_id.keys().map(|id| &**id).collect::<Vec<_>>(), ["b"]);
        assert_eq!(workers.by_client.len(), 1);
    }

    /// Schedules may want a worker: one that is silent is none, until it is heard of again.
    #[test]
    fn a_silent_worker_counts_as_gone_until_it_or_its_connection_speaks() {
        let mut workers = Workers::new(1);
        let moves = |workers: &mut Workers| -> Vec<bool> {
            workers.presence.tell_all().into_iter().map(|(_, came)| came).collect()
        };
        workers.register("a", worker(1, 1000));
        workers.register("b", worker(2, 2000));
        assert_eq!(moves(&mut workers), [true, true]);
        assert_eq!(workers.end_silent(1000 + SILENCE_MS_MAX - 1), 1000 + SILENCE_MS_MAX);
        assert!(moves(&mut workers).is_empty());
        assert_eq!(workers.end_silent(1000 + SILENCE_MS_MAX), 2000 + SILENCE_MS_MAX);
        assert_eq!(moves(&mut workers), [false]);
        assert_eq!(workers.end_silent(1500 + SILENCE_MS_MAX), 2000 + SILENCE_MS_MAX);
        assert!(moves(&mut workers).is_empty(), "once");
        let now_ms = 1600 + SILENCE_MS_MAX;
        workers.saw(ClientId(2), now_ms);
        assert!(workers.seen("a", now_ms));
        assert_eq!(moves(&mut workers), [true]);
        assert_eq!(workers.end_silent(now_ms + SILENCE_MS_MAX), u64::MAX);
        assert_eq!(moves(&mut workers), [false, false]);
        workers.leave(ClientId(1));
        assert!(moves(&mut workers).is_empty(), "it was gone before");
        workers.register("b", worker(2, now_ms + SILENCE_MS_MAX));
        assert_eq!(moves(&mut workers), [true]);
    }

    #[test]
    fn registrations_have_a_limit_and_the_most_silent_goes() {
        let mut workers = Workers::new(1);
        for n in 0..=WORKERS_MAX {
            workers.register(&n.to_string(), worker(1, 1000 - (n as u64 % 1000)));
        }
        assert_eq!((workers.by_id.len(), workers.by_client.len()), (WORKERS_MAX, WORKERS_MAX));
        let silent = (0..WORKERS_MAX).filter(|n| n % 1000 == 999).map(|n| n.to_string());
        let gone = silent.filter(|id| !workers.seen(id, 0)).count();
        assert!(gone == 1 && workers.seen("0", 0), "{gone}");
        assert_eq!((workers.by_silence.len(), workers.crowded_out()), (WORKERS_MAX, 1));
    }

    #[test]
    fn registrations_have_a_limit_in_bytes_and_all_of_them_fit_a_frame() {
        let queues: Arc<[u8]> = vec![0xc0; 258_000].into();
        for shards in [1, 2, 3, 16, 64] {
            let mut workers = Workers::new(shards);
            for n in 0..500 {
                let mut one = worker(n, n);
                one.queues = queues.clone();
                workers.register(&n.to_string(), one);
            }
            assert!(workers.bytes() <= WORKERS_BYTES_MAX);
            assert!(workers.bytes() * shards < FRAME_BYTES_MAX, "{shards} shards");
            assert!(workers.seen("499", 500) && !workers.seen("0", 500));
            assert_eq!(workers.crowded_out() as usize + workers.len(), 500);
            (0..500).for_each(|n| workers.leave(ClientId(n)));
            assert_eq!((workers.len(), workers.bytes(), workers.by_silence.len()), (0, 0, 0));
        }
    }

    /// What the bound in bytes stands on.
    #[test]
    fn a_worker_is_counted_with_more_than_what_the_list_has_of_it() {
        let one = Worker {
            client: ClientId(1),
            name: "n".repeat(256).into(),
            queues: [0x90].into(),
            registered_at_ms: u64::MAX,
            last_seen_ms: u64::MAX,
            attends: true,
        };
        let done = Activity { active: u64::MAX, processed: u64::MAX, failed: u64::MAX };
        let mut bytes = Vec::new();
        write_worker(&mut Writer::new(&mut bytes), &"i".repeat(256), &one, done);
        assert!(bytes.len() <= one.bytes(&"i".repeat(256)), "{}", bytes.len());
    }

    #[test]
    fn a_worker_that_is_silent_for_long_is_gone_unless_its_connection_speaks() {
        let now_ms = 1_000_000;
        let silent = now_ms - SILENCE_MS_MAX;
        let mut crew = WorkerList::default();
        crew.add_workers(&[
            ("gone".into(), worker(1, silent)),
            ("here".into(), worker(2, silent + 1)),
            ("speaks".into(), worker(3, silent)),
        ]);
        crew.add_seen(&[(ClientId(3), now_ms)]);
        assert_eq!(crew.next(now_ms).unwrap()[..], [ClientId(2), ClientId(3)]);
        let done = Activity { active: 1, processed: 2, failed: 3 };
        crew.add_activity(&[done, Activity::default()]);
        crew.add_activity(&[Activity { processed: 5, ..Activity::default() }; 2]);
        let mut rows = Vec::new();
        assert_eq!(crew.write(&mut Writer::new(&mut rows)), 2);
        assert!(crew.next(now_ms).is_none());
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.map(2);
        writer.str("workers");
        writer.array(2);
        writer.raw(&rows);
        crew.write_stats(&mut writer, 2);
        let data = rmpv::decode::read_value(&mut &bytes[..]).unwrap().to_string();
        assert!(data.contains(r#""id": "here""#) && data.contains(r#""id": "speaks""#), "{data}");
        assert!(!data.contains("gone"), "{data}");
        let stats = r#""stats": {"total": 2, "active": 1, "activeJobs": 1, "totalProcessed": 12, "totalFailed": 3}"#;
        assert!(data.contains(stats), "{data}");
    }
}
