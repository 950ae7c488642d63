//! What `top` asks the server for, once per interval, and what follows from two of those.

use std::collections::HashMap;
use std::time::Instant;

use crate::api::commands::Op;
use crate::cli::client::Client;
use crate::cli::context::fetch;
use crate::cli::failure::Failure;
use crate::cli::prometheus::{self, Histogram};
use crate::cli::show;
use crate::cli::value::Value;

/// One queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queue {
    pub name: String,
    /// Jobs waiting, active, delayed, completed, failed for good.
    pub counts: [u64; 5],
    /// Whether it gives out no jobs.
    pub paused: bool,
}

/// One worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    pub name: String,
    pub queues: String,
    /// Jobs active, completed and failed.
    pub jobs: [u64; 3],
    /// When it was last heard of.
    pub last_seen_ms: Option<i64>,
}

/// The durations whose 99th percentile is shown: family and name for people.
pub const TIMES: [(&str, &str); 4] = [
    ("corq_push_duration_ms", "push answered"),
    ("corq_ack_duration_ms", "ack answered"),
    ("corq_job_waiting_ms", "job waiting"),
    ("corq_job_processing_ms", "job processing"),
];

/// What happens to jobs, by the total's name and the name for people.
pub const RATES: [(&str, &str); 4] = [
    ("totalPushed", "pushed"),
    ("totalPulled", "pulled"),
    ("totalCompleted", "completed"),
    ("totalFailed", "failed"),
];

/// The server at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When the answers were there.
    pub at: Instant,
    /// How long the server has been up.
    pub uptime_ms: i64,
    /// Jobs since its start, as [`RATES`].
    pub totals: [u64; RATES.len()],
    /// Waiting, active, delayed, completed, failed for good, over all queues.
    pub jobs: [u64; 5],
    /// Every queue.
    pub queues: Vec<Queue>,
    /// Every worker.
    pub workers: Vec<Worker>,
    /// As [`TIMES`].
    pub times: [Histogram; TIMES.len()],
    /// Open connections.
    pub connections: f64,
    /// Resident memory.
    pub memory_bytes: f64,
    /// Size of the log.
    pub log_bytes: f64,
}

impl Sample {
    /// Asks for all of it.
    pub fn take(client: &mut Client) -> Result<Self, Failure> {
        let stats = fetch(client, Op::Stats)?;
        let queues = fetch(client, Op::ListQueues)?;
        let workers = fetch(client, Op::ListWorkers)?;
        let metrics = fetch(client, Op::Prometheus)?;
        let stats = stats.value().get("stats");
        let text = metrics.value().get("data").get("metrics").text().unwrap_or_default();
        let gauge = |family: &str| prometheus::number(text, family).unwrap_or(0.0);
        let job_counts = ["queued", "processing", "delayed", "completed", "dlq"];
        Ok(Self {
            at: Instant::now(),
            uptime_ms: stats.get("uptime").integer().unwrap_or(0),
            totals: RATES.map(|(total, _)| stats.get(total).count()),
            jobs: job_counts.map(|state| stats.get(state).count()),
            queues: queue_rows(queues.value().get("queues"), text),
            workers: worker_rows(workers.value().get("data").get("workers")),
            times: TIMES.map(|(family, _)| Histogram::of(text, family)),
            connections: gauge("corq_connections"),
            memory_bytes: gauge("corq_memory_bytes"),
            log_bytes: gauge("corq_log_disk_bytes"),
        })
    }

    /// Jobs per second since an earlier sample, as [`RATES`].
    pub fn rates(&self, earlier: &Self) -> [f64; RATES.len()] {
        let seconds = self.at.saturating_duration_since(earlier.at).as_secs_f64().max(0.001);
        // After a restart the totals begin anew.
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now) as f64 / seconds;
        std::array::from_fn(|place| since(self.totals[place], earlier.totals[place]))
    }

    /// 99th percentiles of what happened since an earlier sample, as [`TIMES`]; milliseconds.
    pub fn p99s_ms(&self, earlier: &Self) -> [Option<f64>; TIMES.len()] {
        std::array::from_fn(|place| self.times[place].since(&earlier.times[place]).quantile(0.99))
    }
}

fn queue_rows(listed: Value<'_>, metrics: &str) -> Vec<Queue> {
    let ended =
        |family: &str| -> HashMap<&str, f64> { prometheus::by_queue(metrics, family).collect() };
    let (completed, failed) = (ended("corq_queue_jobs_completed"), ended("corq_queue_jobs_dlq"));
    let rows = listed.items().map(|queue| {
        let name = queue.get("name").text().unwrap_or_default();
        let ended = |counts: &HashMap<&str, f64>| counts.get(name).map_or(0, |count| *count as u64);
        let count = |state: &str| queue.get(state).count();
        Queue {
            name: name.to_owned(),
            counts: [
                count("waiting"),
                count("active"),
                count("delayed"),
                ended(&completed),
                ended(&failed),
            ],
            paused: queue.get("paused").is_true(),
        }
    });
    rows.collect()
}

fn worker_rows(listed: Value<'_>) -> Vec<Worker> {
    let rows = listed.items().map(|worker| Worker {
        name: worker.get("name").text().unwrap_or_default().to_owned(),
        queues: show::texts(worker.get("queues")),
        jobs: ["activeJobs", "processedJobs", "failedJobs"].map(|it| worker.get(it).count()),
        last_seen_ms: worker.get("lastSeen").integer(),
    });
    rows.collect()
}
