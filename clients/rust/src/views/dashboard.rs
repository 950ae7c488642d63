//! Dashboards: the whole server and one queue, and what the client's token allows.

use std::collections::BTreeMap;

use crate::raw::Raw;
use crate::records::{Cron, WorkerInfo};
use crate::views::figures::ServerStats;
use crate::wire::record::record;

record! {
    /// Something that was looked at on a server or its machine.
    Finding {
        /// The subject of the finding.
        check: String = "check",
        /// `ok`, `warning` or `wrong`.
        verdict: String = "verdict",
        /// The state that was found, in words.
        found: String = "found",
        /// Advice what to change; empty if nothing.
        advice: String = "advice",
    }
}

record! {
    /// A setting of a server.
    Setting {
        /// The name of its variable.
        name: String = "name",
        /// The value in force; `(hidden)` for a secret that is set.
        value: Option<String> = "value",
        /// Where the value comes from: `flag`, `environment`, `file` or `default`.
        source: String = "source",
        /// The flag, the variable, or the file with its line.
        place: Option<String> = "place",
        /// The value in force if the setting is not given.
        default: Option<String> = "default",
        /// The unit of the value.
        unit: Option<String> = "unit",
    }
}

record! {
    /// Whether the disk takes what comes.
    StorageStatus {
        /// Whether pushes are refused.
        disk_full: bool = "diskFull",
        /// Text for what is lacking: space on the disk, something else, or the data directory.
        error: Option<String> = "error",
        /// When the log first lacked something.
        since_ms: Option<u64> = "since",
    }
}

record! {
    /// Jobs in a second, over the last seconds.
    Throughput {
        /// Jobs pushed.
        push_per_sec: f64 = "pushPerSec",
        /// Jobs pulled.
        pull_per_sec: f64 = "pullPerSec",
        /// Jobs completed.
        complete_per_sec: f64 = "completePerSec",
        /// Attempts that failed.
        fail_per_sec: f64 = "failPerSec",
    }
}

record! {
    /// Quantiles in milliseconds; zero without a sample.
    Quantiles {
        /// Half of them took no longer.
        p50_ms: f64 = "p50",
        /// 95 of 100.
        p95_ms: f64 = "p95",
        /// 99 of 100.
        p99_ms: f64 = "p99",
    }
}

record! {
    /// How long answers waited for the log.
    Latency {
        /// Means in milliseconds, by `pushMs`, `pullMs`, `ackMs`.
        averages: BTreeMap<String, f64> = "averages",
        /// By `push`, `pull`, `ack`.
        percentiles: BTreeMap<String, Quantiles> = "percentiles",
    }
}

record! {
    /// Memory of the server, in megabytes.
    Memory {
        /// Memory in use, in megabytes.
        heap_used_mb: f64 = "heapUsed",
        /// Memory that the allocator holds, in megabytes.
        heap_total_mb: f64 = "heapTotal",
        /// Resident memory of the process, in megabytes.
        rss_mb: f64 = "rss",
    }
}

record! {
    /// The workers on a dashboard.
    WorkerOverview {
        /// How many there are.
        total: u64 = "total",
        /// Workers that have not gone silent.
        active: u64 = "active",
        /// All of them.
        list: Vec<WorkerInfo> = "list",
    }
}

record! {
    /// The whole server for a dashboard.
    Overview {
        /// Jobs of the server.
        stats: ServerStats = "stats",
        /// Jobs per second.
        throughput: Throughput = "throughput",
        /// How long answers waited.
        latency: Latency = "latency",
        /// Memory of the server.
        memory: Memory = "memory",
        /// How many things it holds, by kind.
        collections: BTreeMap<String, u64> = "collections",
        /// Workers that are registered.
        workers: WorkerOverview = "workers",
        /// Schedules of the server.
        crons: Vec<Cron> = "crons",
        /// State of the disk.
        storage: StorageStatus = "storage",
        /// When this was said.
        timestamp_ms: u64 = "timestamp",
    }
}

record! {
    /// A queue on a dashboard. Each waiting job counts once: as prioritized if its priority is above 0.
    QueueTile {
        /// The name of the queue.
        name: String = "name",
        /// Jobs that may be delivered, without a priority.
        waiting: u64 = "waiting",
        /// Jobs that may be delivered, with a priority above 0.
        prioritized: u64 = "prioritized",
        /// Jobs that wait for their time.
        delayed: u64 = "delayed",
        /// Jobs that workers have.
        active: u64 = "active",
        /// Jobs in its dead-letter queue.
        dlq: u64 = "dlq",
        /// Whether it gives out no jobs.
        paused: bool = "paused",
    }
}

record! {
    /// A dead letter on a dashboard.
    LetterPreview {
        /// The id of the job.
        id: String = "id",
        /// The payload, unless it is large.
        payload: Option<Raw> = "data",
        /// Attempts that have failed.
        attempts: u64 = "attempts",
        /// When it was made.
        created_at_ms: u64 = "createdAt",
    }
}

record! {
    /// A job on a dashboard.
    JobTile {
        /// The id of the job.
        id: String = "id",
        /// Higher is delivered sooner.
        priority: i64 = "priority",
        /// When it was made.
        created_at_ms: u64 = "createdAt",
        /// When it was, or is, due.
        run_at_ms: u64 = "runAt",
        /// Attempts that have failed.
        attempts: u64 = "attempts",
        /// How far its worker is, from 0 to 100.
        progress: f64 = "progress",
    }
}

record! {
    /// A queue in detail, for a dashboard.
    QueueBoard {
        /// The name of the queue.
        name: String = "name",
        /// How many jobs are in which state. Each counts once.
        counts: BTreeMap<String, u64> = "counts",
        /// Whether it gives out no jobs.
        paused: bool = "paused",
        /// Waiting jobs by priority, of the highest.
        priority_counts: BTreeMap<String, u64> = "priorityCounts",
        /// The oldest dead letters.
        dead_letters: Vec<LetterPreview> = "dlqPreview",
        /// The oldest jobs by state, if they were asked for.
        jobs: BTreeMap<String, Vec<JobTile>> = "jobs",
        /// When this was said.
        timestamp_ms: u64 = "timestamp",
    }
}

record! {
    /// Rights of the client's token.
    Whoami {
        /// `admin`, `read`, `push` or `work`.
        role: String = "role",
        /// Whether nothing may be changed.
        read_only: bool = "readOnly",
        /// By what it is known: `nothing`, `token` or `session`.
        by: String = "by",
        /// When its session ends.
        expires_at_ms: Option<u64> = "expiresAt",
        /// The queues that it is limited to; none means all.
        queues: Vec<String> = "queues",
        /// The short name of its token in the audit log.
        token_name: Option<String> = "tokenName",
    }
}
