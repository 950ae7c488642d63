//! Pages of queues, jobs and workers, and what a search found.

use crate::raw::Raw;
use crate::records::{JobState, Rate};
use crate::wire::record::record;

record! {
    /// A queue as a row of a list. What was not asked for is empty.
    QueueRow {
        /// The name of the queue.
        name: String = "name",
        /// Jobs that may be delivered.
        waiting: u64 = "waiting",
        /// Jobs that wait for their time.
        delayed: u64 = "delayed",
        /// Jobs that workers have.
        active: u64 = "active",
        /// Jobs that are done.
        completed: u64 = "completed",
        /// Jobs in its dead-letter queue.
        failed: u64 = "failed",
        /// Jobs that wait for others.
        waiting_children: u64 = "waiting-children",
        /// Jobs in whatever state.
        total: u64 = "total",
        /// Whether it gives out no jobs.
        paused: bool = "paused",
        /// Jobs completed in a minute, of the last five minutes.
        completed_per_minute: f64 = "completedPerMinute",
        /// Attempts failed in a minute, of the last five minutes.
        failed_per_minute: f64 = "failedPerMinute",
        /// Since when the job is due that waits for longest.
        oldest_waiting_ms: Option<u64> = "oldestWaiting",
        /// 99 of 100 jobs waited no longer than this, in milliseconds.
        wait_p99_ms: Option<u64> = "waitP99",
        /// The rate limit, if the queue has one.
        rate: Option<Rate> = "rateLimit",
        /// Jobs that may be active at a time.
        concurrency: Option<u64> = "concurrencyLimit",
        /// How many groups it has.
        groups: u64 = "groups",
    }
}

record! {
    /// A page of queues.
    QueuePage {
        /// The queues.
        queues: Vec<QueueRow> = "queues",
        /// Where the next page begins, if there is one.
        next: Option<String> = "next",
    }
}

record! {
    /// A job as a row of a list. What was not asked for, or what the job does not have, is empty.
    JobRow {
        /// The id of the job.
        id: String = "id",
        /// The queue it is in.
        queue: String = "queue",
        /// The name of the job.
        name: Option<String> = "name",
        /// Where it is in its life.
        state: JobState = "state",
        /// Higher is delivered sooner.
        priority: i64 = "priority",
        /// When it was made.
        created_at_ms: u64 = "createdAt",
        /// When it was, or is, due.
        run_at_ms: u64 = "runAt",
        /// When its last attempt began.
        started_at_ms: Option<u64> = "startedAt",
        /// When it ended.
        finished_at_ms: Option<u64> = "finishedAt",
        /// Attempts that have failed.
        attempts: u64 = "attempts",
        /// Attempts that it has in all.
        max_attempts: u64 = "maxAttempts",
        /// How often its worker went silent.
        stall_count: u64 = "stallCount",
        /// How far its worker is, from 0 to 100.
        progress: f64 = "progress",
        /// The group it belongs to.
        group_id: Option<String> = "groupId",
        /// The job that it is a child of.
        parent_id: Option<String> = "parentId",
        /// The deduplication key.
        unique_key: Option<String> = "uniqueKey",
        /// Newest first within its priority.
        lifo: bool = "lifo",
        /// How many children it has.
        children: u64 = "children",
        /// How many of them are done.
        children_completed: u64 = "childrenCompleted",
        /// The size of its payload.
        data_bytes: u64 = "dataBytes",
        /// The labels of the job.
        tags: Vec<String> = "tags",
        /// Why it failed.
        failed_reason: Option<String> = "failedReason",
        /// The whole payload, if that was asked for.
        payload: Option<Raw> = "data",
        /// The beginning of its payload as JSON, if that was asked for.
        preview: Option<String> = "dataPreview",
        /// Whether the preview is not all of it.
        preview_cut: bool = "dataCut",
        /// Whether the stored record of the job cannot be read.
        damaged: bool = "damaged",
    }
}

record! {
    /// A page of jobs.
    JobPage {
        /// The jobs; there may be fewer than asked for, or none, before the last page.
        jobs: Vec<JobRow> = "jobs",
        /// Where the next page begins, if there is one.
        next: Option<String> = "next",
    }
}

record! {
    /// Records and payloads that a search has looked at.
    Covered {
        /// Jobs that were looked at.
        jobs: u64 = "jobs",
        /// Records that were read for them.
        records: u64 = "records",
        /// Payloads of which only the beginning was searched.
        partly: u64 = "partly",
        /// Records that could not be read.
        damaged: u64 = "damaged",
        /// The shard that was searched.
        shard: u64 = "shard",
        /// How many shards there are.
        shards: u64 = "shards",
        /// Whether nothing is left to search.
        done: bool = "done",
    }
}

record! {
    /// A page of jobs that a search found.
    Found {
        /// The jobs.
        jobs: Vec<JobRow> = "jobs",
        /// Where the search goes on, if it is not over.
        next: Option<String> = "next",
        /// Records and payloads looked at for this page.
        covered: Covered = "covered",
    }
}

record! {
    /// A job that a worker has.
    HeldJob {
        /// The id of the job.
        id: String = "id",
        /// The queue it is in.
        queue: String = "queue",
    }
}

record! {
    /// A worker as a row of a list.
    WorkerRow {
        /// The id of the worker.
        id: String = "id",
        /// The name of the worker.
        name: String = "name",
        /// The queues it works on.
        queues: Vec<String> = "queues",
        /// How many jobs it works on at a time.
        concurrency: u64 = "concurrency",
        /// The machine it runs on.
        hostname: String = "hostname",
        /// The process id of the worker.
        pid: u64 = "pid",
        /// `active`, or `stale` if it has been silent.
        status: String = "status",
        /// When it came.
        registered_at_ms: u64 = "registeredAt",
        /// When it was last heard of.
        last_seen_ms: u64 = "lastSeen",
        /// How long ago it came, in milliseconds.
        uptime_ms: u64 = "uptime",
        /// How many jobs it has.
        active_jobs: u64 = "activeJobs",
        /// Jobs that it has completed.
        processed_jobs: u64 = "processedJobs",
        /// Attempts of its that failed.
        failed_jobs: u64 = "failedJobs",
        /// Whether it works for queues as well that are none of the token's: then its numbers are not known.
        partial: bool = "partial",
        /// Some of the jobs that its connection has.
        jobs: Vec<HeldJob> = "jobs",
    }
}

record! {
    /// A page of workers.
    WorkerPage {
        /// The workers.
        workers: Vec<WorkerRow> = "workers",
        /// Where the next page begins, if there is one.
        next: Option<String> = "next",
    }
}
