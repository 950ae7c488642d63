//! A registered worker, and the list of the workers of all shards, as it is put together from their pages: what each shard
//! has registered, when their connections last said something, and what those have done.
//!
//! A ground type: of the server it imports ground types only.

use crate::api::access::{QueuePatterns, Scope};
use crate::protocol::msgpack::Texts;
use crate::protocol::msgpack::writer::{MapWriter, Writer};
use crate::server::multi_shard::messages::{PAGE_BYTES, PAGE_ROWS};
use corq_shards::Shard;
use corq_shards::command::ClientId;
use corq_shards::query::Activity;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Silence after which a worker counts as gone (`docs/protocol.md`, "Workers, webhooks, the server").
pub const SILENCE_MS_MAX: u64 = 90_000;

/// Bytes that a registration counts as beside its texts: more than the list of workers has of it beside them.
const WORKER_BYTES: usize = 384;

/// Silence after which a worker is shown as stale.
const STALE_MS: u64 = 30_000;

/// Bytes that a queue of a registration counts as beside its name, where the queues of all workers are counted.
const QUEUE_BYTES: usize = 128;

/// Figures that a worker gives of its work in heartbeats. The worker may pull by other connections than the one that
/// registered it, of which the server does not know that they are its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Told {
    active: Option<u64>,
    processed: Option<u64>,
    failed: Option<u64>,
}

impl Told {
    /// The figures of a heartbeat.
    pub fn of(active: Option<u64>, processed: Option<u64>, failed: Option<u64>) -> Self {
        Self { active, processed, failed }
    }

    /// Adds the figures of earlier heartbeats, where this one gives none.
    #[must_use]
    pub fn or(self, before: Self) -> Self {
        Self {
            active: self.active.or(before.active),
            processed: self.processed.or(before.processed),
            failed: self.failed.or(before.failed),
        }
    }

    /// Figures shown of a worker whose connection has done `done`.
    fn over(self, done: Activity) -> Activity {
        Activity {
            active: self.active.unwrap_or(done.active),
            processed: self.processed.unwrap_or(done.processed),
            failed: self.failed.unwrap_or(done.failed),
        }
    }
}

/// Facts that a registration gives beside the name and the queues.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    pub concurrency: Option<u64>,
    pub hostname: Option<&'a str>,
    pub pid: Option<u64>,
}

/// A registration.
#[derive(Clone, Debug)]
pub struct Worker {
    /// The connection that made it.
    pub client: ClientId,
    pub name: Box<str>,
    /// The queues it works on, each once: a MessagePack array of strings.
    pub queues: Arc<[u8]>,
    /// How many jobs it works on at a time, and where it runs, as far as it says.
    pub concurrency: u64,
    pub hostname: Box<str>,
    pub pid: u64,
    /// Figures that its heartbeats gave.
    pub told: Told,
    /// When it was made.
    pub registered_at_ms: u64,
    /// Time of the last heartbeat.
    pub last_seen_ms: u64,
}

impl Worker {
    pub(super) fn bytes(&self, id: &str) -> usize {
        let queues = Texts::new(&self.queues).len() * QUEUE_BYTES + self.queues.len();
        WORKER_BYTES + id.len() + self.name.len() + self.hostname.len() + queues
    }
}

/// Jobs that a connection has here, of these queues, with the names of these.
pub fn held_jobs(shard: &Shard, client: ClientId, scope: Scope) -> Vec<HeldJob> {
    let held =
        shard.jobs_of(client).take(if scope.is_some() { JOBS_LOOKED_AT } else { JOBS_SHOWN });
    let held = held.map(|index| shard.view(index));
    let own = held.filter(|view| scope.is_none_or(|own| own.cover(view.queue)));
    let held = own.take(JOBS_SHOWN).map(|view| {
        let custom_id = view.options.and_then(|options| options.custom_id.as_deref());
        let id = custom_id.map_or_else(|| view.job.id.to_string().into(), Into::into);
        (id, view.queue.into())
    });
    held.collect()
}

/// Workers of all shards, as they are put together for a list.
#[derive(Debug, Default)]
pub struct WorkerList {
    /// When connections last said something, of those that have workers.
    seen: BTreeMap<u64, u64>,
    /// Workers that are still to be written.
    workers: BTreeMap<Box<str>, Worker>,
    /// Workers whose connections all shards have been asked about; `done` and `jobs` hold the answers so far.
    asked: Vec<(Box<str>, Worker)>,
    /// Of the workers asked about, those that work on queues other than the client's as well.
    partial: BTreeSet<Box<str>>,
    done: Vec<Activity>,
    /// Connections that count in the sum.
    counted: BTreeSet<u64>,
    sum: Activity,
    /// Workers that have a job.
    active: u64,
    page: Option<WorkerPage>,
    /// How many have been written, and the last of them.
    written: usize,
    last: Option<Box<str>>,
    /// Jobs of those that were asked about.
    jobs: Vec<Vec<HeldJob>>,
    /// Workers that are not stale; `slots` is how many jobs they work on at a time.
    lively: u64,
    slots: u64,
}

/// Which workers a page has.
#[derive(Clone, Debug)]
pub struct WorkerPage {
    /// Only workers that work on this queue.
    pub queue: Option<Box<str>>,
    /// Behind this id.
    pub after: Option<Box<str>>,
    pub limit: usize,
}

/// A job that a worker has: its id, and its queue.
pub type HeldJob = (Box<str>, Box<str>);

/// Jobs of a worker that are shown.
const JOBS_SHOWN: usize = 20;

/// Jobs of a connection that are looked at for those of some queues.
const JOBS_LOOKED_AT: usize = 500;

impl WorkerPage {
    fn has(&self, id: &str, worker: &Worker) -> bool {
        let works_on = |queue: &str| Texts::new(&worker.queues).iter().any(|one| one == queue);
        self.after.as_deref().is_none_or(|after| id > after)
            && self.queue.as_deref().is_none_or(works_on)
    }
}

impl WorkerList {
    /// The workers of a page, with their jobs.
    pub fn of(page: WorkerPage) -> Self {
        Self { page: Some(page), ..Self::default() }
    }

    /// Whether the jobs of workers are shown.
    pub fn shows_jobs(&self) -> bool {
        self.page.is_some()
    }

    /// Adds when connections last said something.
    pub fn add_seen(&mut self, seen: &[(ClientId, u64)]) {
        self.seen.extend(seen.iter().map(|(client, at_ms)| (client.0, *at_ms)));
    }

    /// Adds workers.
    pub fn add_workers(&mut self, workers: &[(Box<str>, Worker)]) {
        self.workers.extend(workers.iter().cloned());
    }

    /// Adds what the connections that were asked about have done on one shard.
    pub fn add_activity(&mut self, done: &[Activity], jobs: &[Vec<HeldJob>]) {
        for (sum, done) in self.done.iter_mut().zip(done) {
            *sum += *done;
        }
        for (all, some) in self.jobs.iter_mut().zip(jobs) {
            let room = JOBS_SHOWN - all.len();
            all.extend(some.iter().take(room).cloned());
        }
    }

    /// The connections of the next workers that a client of these queues sees, about which all shards are to be asked. None if
    /// there are no more.
    pub fn next(&mut self, now_ms: u64, scope: Scope) -> Option<Arc<[ClientId]>> {
        let (mut looks, mut bytes) = (0, 0);
        let limit = self.page.as_ref().map_or(usize::MAX, |page| page.limit);
        // A worker beyond the page shows that there is another page.
        let most = limit.saturating_add(1).saturating_sub(self.written);
        while looks < PAGE_ROWS && bytes < PAGE_BYTES && self.asked.len() < most {
            let Some((id, mut worker)) = self.workers.pop_first() else { break };
            looks += 1;
            if let Some(own) = scope {
                let before = Texts::new(&worker.queues).len();
                worker.queues = queues_within(&worker.queues, own);
                match Texts::new(&worker.queues).len() {
                    0 => continue,
                    left if left < before => {
                        self.partial.insert(id.clone());
                    }
                    _ => {}
                }
            }
            if self.page.as_ref().is_some_and(|page| !page.has(&id, &worker)) {
                continue;
            }
            let heard_ms = self.seen.get(&worker.client.0).copied().unwrap_or(0);
            worker.last_seen_ms = worker.last_seen_ms.max(heard_ms);
            if worker.last_seen_ms + SILENCE_MS_MAX > now_ms {
                bytes += worker.bytes(&id);
                self.asked.push((id, worker));
            }
        }
        self.done = vec![Activity::default(); self.asked.len()];
        self.jobs = vec![Vec::new(); self.asked.len()];
        (looks > 0).then(|| self.asked.iter().map(|(_, worker)| worker.client).collect())
    }

    /// Writes those that were asked about. Returns how many they are.
    pub fn write(&mut self, writer: &mut Writer<'_>, now_ms: u64) -> usize {
        let asked = std::mem::take(&mut self.asked);
        let limit = self.page.as_ref().map_or(usize::MAX, |page| page.limit);
        let before = self.written;
        for (((id, worker), done), jobs) in asked.iter().zip(&self.done).zip(&self.jobs) {
            self.written += 1;
            if self.written > limit {
                break;
            }
            let jobs = self.page.is_some().then_some(&jobs[..]);
            let shown = worker.told.over(*done);
            // The figures of a worker also count its work for queues that the client may not see.
            let is_partial = self.partial.remove(id);
            write_worker(writer, id, worker, (!is_partial).then_some(shown), now_ms, jobs);
            self.last = Some(id.clone());
            if is_partial {
                continue;
            }
            self.active += u64::from(shown.active > 0);
            if !worker.is_stale(now_ms) {
                self.lively += 1;
                self.slots = self.slots.saturating_add(worker.concurrency);
            }
            // Workers that give no figures share those of their connection, which count once.
            if worker.told != Told::default() || self.counted.insert(worker.client.0) {
                self.sum.active = self.sum.active.saturating_add(shown.active);
                self.sum.processed = self.sum.processed.saturating_add(shown.processed);
                self.sum.failed = self.sum.failed.saturating_add(shown.failed);
            }
        }
        self.written.min(limit) - before.min(limit)
    }

    /// How many entries of `data` [`Self::write_stats`] writes.
    pub fn tail_entries(&self) -> u16 {
        1 + u16::from(self.page.is_some())
    }

    /// How many workers are not stale.
    pub fn lively(&self) -> u64 {
        self.lively
    }

    /// Writes what follows them in `data` of `ListWorkers`.
    pub fn write_stats(&self, writer: &mut Writer<'_>, total: usize) {
        let numbers = [
            ("total", total as u64),
            ("active", self.active),
            ("activeJobs", self.sum.active),
            ("totalProcessed", self.sum.processed),
            ("totalFailed", self.sum.failed),
            ("concurrencySlots", self.slots),
        ];
        writer.str("stats");
        let mut stats = writer.begin_map();
        for (name, number) in numbers {
            stats.key(name).uint(number);
        }
        drop(stats);
        if let Some(page) = &self.page {
            let more = self.written > page.limit;
            writer.str("next");
            writer.str_or_nil(self.last.as_deref().filter(|_| more));
        }
    }
}

impl Worker {
    /// Whether nothing has been heard of it for a while.
    fn is_stale(&self, now_ms: u64) -> bool {
        self.last_seen_ms + STALE_MS <= now_ms
    }
}

/// The queues of a worker that the client may see.
fn queues_within(queues: &[u8], own: &QueuePatterns) -> Arc<[u8]> {
    let kept: Vec<&str> = Texts::new(queues).iter().filter(|queue| own.cover(queue)).collect();
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    writer.array(kept.len());
    for queue in kept {
        writer.str(queue);
    }
    bytes.into()
}

/// Without `done` it works on other queues as well, for which its numbers would stand too.
pub(super) fn write_worker(
    writer: &mut Writer<'_>,
    id: &str,
    worker: &Worker,
    done: Option<Activity>,
    now_ms: u64,
    jobs: Option<&[HeldJob]>,
) {
    let mut map = writer.begin_map();
    map.key("id").str(id);
    write_about(&mut map, worker, now_ms);
    match done {
        Some(done) => write_done(&mut map, done),
        None => map.key("partial").bool(true),
    }
    map.key("uptime").uint(now_ms.saturating_sub(worker.registered_at_ms));
    let Some(jobs) = jobs else { return };
    let mut list = map.key("jobs");
    list.array(jobs.len());
    for (id, queue) in jobs {
        let mut job = list.begin_map();
        job.key("id").str(id);
        job.key("queue").str(queue);
    }
}

/// Writes the figures of a worker.
pub(super) fn write_done(map: &mut MapWriter<'_>, done: Activity) {
    map.key("activeJobs").uint(done.active);
    map.key("processedJobs").uint(done.processed);
    map.key("failedJobs").uint(done.failed);
}

/// Writes a worker without its id and its figures.
pub(super) fn write_about(map: &mut MapWriter<'_>, worker: &Worker, now_ms: u64) {
    map.key("name").str(&worker.name);
    map.key("queues").raw(&worker.queues);
    map.key("concurrency").uint(worker.concurrency);
    map.key("hostname").str(&worker.hostname);
    map.key("pid").uint(worker.pid);
    map.key("status").str(if worker.is_stale(now_ms) { "stale" } else { "active" });
    map.key("registeredAt").uint(worker.registered_at_ms);
    map.key("lastSeen").uint(worker.last_seen_ms);
}
