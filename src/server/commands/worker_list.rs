//! A registered worker, and the list of the workers of all shards, as it is put together from their pages: what each shard
//! has registered, when their connections last said something, and what those have done.
//!
//! A ground type: of the server it imports ground types only.

use crate::protocol::msgpack::Texts;
use crate::protocol::msgpack::writer::Writer;
use crate::server::multi_shard::messages::{PAGE_BYTES, PAGE_ROWS};
use corq_shards::command::ClientId;
use corq_shards::query::Activity;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Silence after which a worker counts as gone (`docs/protocol.md`, "Workers, webhooks, the server").
pub const SILENCE_MS_MAX: u64 = 90_000;

/// What a registration takes beside its texts: more than what is written of it beside them.
const WORKER_BYTES: usize = 256;

/// What a queue that it names takes beside its name, where the queues of all are counted.
const QUEUE_BYTES: usize = 128;

/// One registration.
#[derive(Clone, Debug)]
pub struct Worker {
    /// The connection that made it.
    pub client: ClientId,
    pub name: Box<str>,
    /// The queues it works on, each once: a MessagePack array of strings.
    pub queues: Arc<[u8]>,
    /// When it was made.
    pub registered_at_ms: u64,
    /// Its last heartbeat.
    pub last_seen_ms: u64,
    /// It counts as one that is there.
    pub attends: bool,
}

impl Worker {
    pub(super) fn bytes(&self, id: &str) -> usize {
        let queues = Texts::new(&self.queues).len() * QUEUE_BYTES + self.queues.len();
        WORKER_BYTES + id.len() + self.name.len() + queues
    }
}

/// Workers of all shards, as they are put together for a list.
#[derive(Debug, Default)]
pub struct WorkerList {
    /// When connections last said something, of those that have workers.
    seen: BTreeMap<u64, u64>,
    /// Those that are still to be written.
    workers: BTreeMap<Box<str>, Worker>,
    /// Those whose connections all shards have been asked about, and what is known of these so far.
    asked: Vec<(Box<str>, Worker)>,
    done: Vec<Activity>,
    /// Connections that count in the sum.
    counted: BTreeSet<u64>,
    sum: Activity,
    /// Workers that have a job.
    active: u64,
}

impl WorkerList {
    /// Adds when connections last said something.
    pub fn add_seen(&mut self, seen: &[(ClientId, u64)]) {
        self.seen.extend(seen.iter().map(|(client, at_ms)| (client.0, *at_ms)));
    }

    /// Adds workers.
    pub fn add_workers(&mut self, workers: &[(Box<str>, Worker)]) {
        self.workers.extend(workers.iter().cloned());
    }

    /// Adds what the connections that were asked about have done on one shard.
    pub fn add_activity(&mut self, done: &[Activity]) {
        for (sum, done) in self.done.iter_mut().zip(done) {
            *sum += *done;
        }
    }

    /// The connections of the next workers, about which all shards are to be asked. None if there are no more.
    pub fn next(&mut self, now_ms: u64) -> Option<Arc<[ClientId]>> {
        let (mut looks, mut bytes) = (0, 0);
        while looks < PAGE_ROWS && bytes < PAGE_BYTES {
            let Some((id, mut worker)) = self.workers.pop_first() else { break };
            looks += 1;
            let heard_ms = self.seen.get(&worker.client.0).copied().unwrap_or(0);
            worker.last_seen_ms = worker.last_seen_ms.max(heard_ms);
            if worker.last_seen_ms + SILENCE_MS_MAX > now_ms {
                bytes += worker.bytes(&id);
                self.asked.push((id, worker));
            }
        }
        self.done = vec![Activity::default(); self.asked.len()];
        (looks > 0).then(|| self.asked.iter().map(|(_, worker)| worker.client).collect())
    }

    /// Writes those that were asked about. Returns how many they are.
    pub fn write(&mut self, writer: &mut Writer<'_>) -> usize {
        let asked = std::mem::take(&mut self.asked);
        for ((id, worker), done) in asked.iter().zip(&self.done) {
            write_worker(writer, id, worker, *done);
            self.active += u64::from(done.active > 0);
            if self.counted.insert(worker.client.0) {
                self.sum += *done;
            }
        }
        asked.len()
    }

    /// Writes what follows them in `data` of `ListWorkers`.
    pub fn write_stats(&self, writer: &mut Writer<'_>, total: usize) {
        writer.str("stats");
        let stats = [
            ("total", total as u64),
            ("active", self.active),
            ("activeJobs", self.sum.active),
            ("totalProcessed", self.sum.processed),
            ("totalFailed", self.sum.failed),
        ];
        writer.map(stats.len());
        for (name, number) in stats {
            writer.str(name);
            writer.uint(number);
        }
    }
}

pub(super) fn write_worker(writer: &mut Writer<'_>, id: &str, worker: &Worker, done: Activity) {
    writer.map(8);
    writer.str("id");
    writer.str(id);
    writer.str("name");
    writer.str(&worker.name);
    writer.str("queues");
    writer.raw(&worker.queues);
    let numbers = [
        ("registeredAt", worker.registered_at_ms),
        ("lastSeen", worker.last_seen_ms),
        ("activeJobs", done.active),
        ("processedJobs", done.processed),
        ("failedJobs", done.failed),
    ];
    for (name, number) in numbers {
        writer.str(name);
        writer.uint(number);
    }
}
