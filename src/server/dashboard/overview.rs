//! `DashboardOverview`: figures of the whole server, its workers and its schedules in one answer. The figures come first, from
//! all shards at once; workers and schedules follow page by page, as in their own lists.
//!
//! A ground type: of the server it imports ground types only.

use crate::protocol::msgpack::writer::{MapWriter, Writer};
use crate::server::commands::worker_list::WorkerList;
use corq_shards::stats::Census;

/// An overview that is being put together.
#[derive(Debug, Default)]
pub struct Overview {
    /// `data` as it is sent, as far as it is known.
    known: Vec<u8>,
    /// The workers.
    pub crew: WorkerList,
    /// How many workers there are, and how many pieces they take, once all of them are written.
    workers: Option<(usize, usize)>,
}

impl Overview {
    /// Begins with the entries of `data` that are known.
    pub fn begin(write: impl FnOnce(&mut MapWriter<'_>)) -> Self {
        let mut known = Vec::new();
        let mut data = MapWriter::begin(&mut known);
        write(&mut data);
        // Workers and schedules follow.
        data.count_later(2);
        drop(data);
        Self { known, ..Self::default() }
    }

    /// Whether workers are still to be listed.
    pub fn lists_workers(&self) -> bool {
        self.workers.is_none()
    }

    /// All workers are written: so many, in so many pieces.
    pub fn end_workers(&mut self, count: usize, pieces: usize) {
        self.workers = Some((count, pieces));
    }

    /// Writes what comes before the rows of workers, and puts what comes before those of so many schedules between them.
    pub fn frame(&self, writer: &mut Writer<'_>, crons: usize, pieces: &mut Vec<Vec<u8>>) {
        let (workers, worker_pieces) = self.workers.unwrap_or_default();
        writer.raw(&self.known);
        writer.str("workers");
        let mut of_workers = writer.begin_map();
        of_workers.key("total").uint(workers as u64);
        of_workers.key("active").uint(self.crew.lively());
        of_workers.key("list").array(workers);
        drop(of_workers);
        let mut between = Vec::new();
        let mut writer = Writer::new(&mut between);
        writer.str("crons");
        writer.array(crons);
        pieces.insert(worker_pieces, between);
    }
}

/// Writes what jobs there are, what is done with them and when that was counted.
pub fn write_census(data: &mut MapWriter<'_>, census: &Census, (now_ms, uptime_ms): (u64, u64)) {
    let mut stats = data.map("stats");
    for (name, count) in [
        ("waiting", census.waiting),
        ("active", census.active),
        ("delayed", census.delayed),
        ("completed", census.completed),
        ("dlq", census.failed),
        ("totalPushed", census.totals.pushed),
        ("totalPulled", census.totals.pulled),
        ("totalCompleted", census.totals.completed),
        ("totalFailed", census.totals.failed),
        ("uptime", uptime_ms),
    ] {
        stats.key(name).uint(count);
    }
    drop(stats);
    let mut rates = data.map("throughput");
    for (name, rate) in [
        ("pushPerSec", census.per_second.pushed),
        ("pullPerSec", census.per_second.pulled),
        ("completePerSec", census.per_second.completed),
        ("failPerSec", census.per_second.failed),
    ] {
        // People read two decimals.
        rates.key(name).number((rate * 100.0).round() / 100.0);
    }
    drop(rates);
    data.key("timestamp").uint(now_ms);
}
