//! Data that `top` gets from the server: samples, one after the other on one stream, and now and then its workers.

use crate::cli::show;
use crate::cli::value::Value;

/// A queue in a sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queue {
    pub name: String,
    /// Jobs waiting, active, delayed, failed for good.
    pub counts: [u64; 4],
    /// Jobs pushed and completed in a second.
    pub rates: [f64; 2],
    /// 99th percentiles of how long its jobs waited and ran lately.
    pub p99s_ms: [Option<f64>; 2],
    /// Whether it gives out no jobs.
    pub paused: bool,
}

/// A core, which is a shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Core {
    pub shard: u64,
    /// The share of its time in which it was busy.
    pub load: f64,
    /// The longest turn of the last minute, and what it was.
    pub longest_turn_ms: f64,
    pub longest_turn: String,
}

/// A worker in the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    pub name: String,
    pub queues: String,
    /// Jobs active, completed and failed.
    pub jobs: [u64; 3],
    /// When it was last heard of.
    pub last_seen_ms: Option<i64>,
}

/// Rates of jobs, by the total's name and the name for people.
pub const RATES: [(&str, &str); 4] = [
    ("totalPushed", "pushed"),
    ("totalPulled", "pulled"),
    ("totalCompleted", "completed"),
    ("totalFailed", "failed"),
];

/// The server at one moment.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// When it was taken, by the server's clock.
    pub at_ms: u64,
    /// How long the server has been up.
    pub uptime_ms: i64,
    /// Jobs since its start, as [`RATES`].
    pub totals: [u64; RATES.len()],
    /// Waiting, active, delayed, completed, failed for good, over all queues.
    pub jobs: [u64; 5],
    /// The busiest queues.
    pub queues: Vec<Queue>,
    /// How many queues there are.
    pub queues_total: u64,
    /// Every core, the busiest first.
    pub cores: Vec<Core>,
    /// Open connections.
    pub connections: u64,
    /// Size of the log.
    pub log_bytes: u64,
}

impl Sample {
    /// That of a message.
    pub fn of(told: Value<'_>) -> Self {
        let stats = told.get("stats");
        let shards = || told.get("shards").items();
        let sum = |field: fn(Value<'_>) -> u64| shards().map(field).sum();
        let mut cores: Vec<Core> = shards().map(core).collect();
        cores.sort_by(|one, other| other.load.total_cmp(&one.load));
        let states = ["waiting", "active", "delayed", "completed", "failed"];
        Self {
            at_ms: told.get("at").count(),
            uptime_ms: stats.get("uptime").integer().unwrap_or(0),
            totals: RATES.map(|(total, _)| stats.get(total).count()),
            jobs: states.map(|state| stats.get(state).count()),
            queues: told.get("queues").items().map(queue).collect(),
            queues_total: sum(|shard| shard.get("queues").count()),
            cores,
            connections: sum(|shard| shard.get("connections").count()),
            log_bytes: sum(|shard| shard.get("log").get("diskBytes").count()),
        }
    }

    /// Jobs per second since an earlier sample, as [`RATES`].
    pub fn rates(&self, earlier: &Self) -> [f64; RATES.len()] {
        let seconds = (self.at_ms.saturating_sub(earlier.at_ms) as f64 / 1000.0).max(0.001);
        // After a restart the totals begin anew.
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now) as f64 / seconds;
        std::array::from_fn(|place| since(self.totals[place], earlier.totals[place]))
    }
}

fn core(shard: Value<'_>) -> Core {
    let turn = shard.get("longestTurn");
    Core {
        shard: shard.get("shard").count(),
        load: shard.get("load").number().unwrap_or(0.0),
        longest_turn_ms: turn.get("ms").number().unwrap_or(0.0),
        longest_turn: turn.get("command").text().unwrap_or_default().to_owned(),
    }
}

fn queue(told: Value<'_>) -> Queue {
    Queue {
        name: told.get("name").text().unwrap_or_default().to_owned(),
        counts: ["waiting", "active", "delayed", "failed"].map(|state| told.get(state).count()),
        rates: ["pushPerSec", "completePerSec"].map(|it| told.get(it).number().unwrap_or(0.0)),
        p99s_ms: ["waitP99", "runP99"].map(|it| told.get(it).number()),
        paused: told.get("paused").is_true(),
    }
}

/// Workers of a reply.
pub fn workers(listed: Value<'_>) -> Vec<Worker> {
    let rows = listed.items().map(|worker| Worker {
        name: worker.get("name").text().unwrap_or_default().to_owned(),
        queues: show::texts(worker.get("queues")),
        jobs: ["activeJobs", "processedJobs", "failedJobs"].map(|it| worker.get(it).count()),
        last_seen_ms: worker.get("lastSeen").integer(),
    });
    rows.collect()
}
