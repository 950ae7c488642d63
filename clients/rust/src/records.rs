//! Answers of the server about jobs, queues, schedules, workers and webhooks. Times are milliseconds since the Unix
//! epoch.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::Error;
use crate::raw::Raw;
use crate::wire::record::record;

pub use crate::job_state::JobState;

record! {
    /// A job as the server tells of it. One that was pulled has the fields up to `progress`, its group and its family; the others are
    /// known from [`JobHandle::get`](crate::JobHandle::get) and the listings.
    Job {
        /// The id: given with the push, or made by the server.
        id: String = "id",
        /// The name, if the job was given one.
        name: Option<String> = "name",
        /// The queue of the job.
        queue: String = "queue",
        /// The payload, encoded; [`Job::data`] decodes it.
        payload: Raw = "data",
        /// Higher is delivered sooner.
        priority: i64 = "priority",
        /// When it was made.
        created_at_ms: u64 = "createdAt",
        /// When it was, or is, due.
        run_at_ms: u64 = "runAt",
        /// When its last attempt began.
        started_at_ms: Option<u64> = "startedAt",
        /// Attempts that have failed.
        attempts: u64 = "attempts",
        /// Attempts that it has in all.
        max_attempts: u64 = "maxAttempts",
        /// How often its worker went silent.
        stall_count: u64 = "stallCount",
        /// How far its worker is, from 0 to 100.
        progress: f64 = "progress",
        /// Where it is in its life; [`JobState::Unknown`] for one that was pulled, which is active.
        state: JobState = "state",
        /// When it was completed.
        completed_at_ms: Option<u64> = "completedAt",
        /// Text that the worker sent with its last progress.
        progress_message: Option<String> = "progressMessage",
        /// Base of the wait between attempts, in milliseconds.
        backoff_ms: u64 = "backoff",
        /// Longest life from creation while no worker has the job, in milliseconds.
        ttl_ms: Option<u64> = "ttl",
        /// The longest time of one attempt, in milliseconds.
        timeout_ms: Option<u64> = "timeout",
        /// The deduplication key.
        unique_key: Option<String> = "uniqueKey",
        /// The id it was pushed with.
        custom_id: Option<String> = "customId",
        /// The labels of the job.
        tags: Vec<String> = "tags",
        /// The group it belongs to.
        group_id: Option<String> = "groupId",
        /// The job that it is a child of.
        parent_id: Option<String> = "parentId",
        /// The ids of the children.
        children_ids: Vec<String> = "childrenIds",
        /// The jobs that must be completed before it.
        depends_on: Vec<String> = "dependsOn",
        /// Newest first within its priority.
        lifo: bool = "lifo",
        /// Forgotten on completion.
        remove_on_complete: bool = "removeOnComplete",
        /// Forgotten instead of moved to the dead-letter queue.
        remove_on_fail: bool = "removeOnFail",
        /// Whether the push was answered only when the disk had the job.
        durable: bool = "durable",
        /// The result of the job.
        result: Option<Raw> = "returnvalue",
        /// Why it failed.
        failed_reason: Option<String> = "failedReason",
        /// When it failed for good.
        failed_at_ms: Option<u64> = "failedAt",
        /// The stack of its failure.
        stacktrace: Vec<String> = "stacktrace",
        /// The trace that it belongs to: the span it was pushed in.
        traceparent: Option<String> = "traceparent",
        /// Vendors' additions to `traceparent`.
        tracestate: Option<String> = "tracestate",
        /// How it is repeated.
        repeat: Option<RepeatState> = "repeat",
        /// When it came, when its last attempt began, when it ended.
        timeline: Vec<Step> = "timeline",
    }
}

impl Job {
    /// Decodes the payload into a value of any type. Texts and bytes may be borrowed from the job.
    ///
    /// ```no_run
    /// #[derive(serde::Deserialize)]
    /// struct Mail<'a> {
    ///     to: &'a str,
    /// }
    ///
    /// # fn example(job: &corq_client::Job) -> Result<(), corq_client::Error> {
    /// let mail: Mail = job.data()?;
    /// println!("to {}", mail.to);
    /// # Ok(())
    /// # }
    /// ```
    pub fn data<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Error> {
        self.payload.decode()
    }
}

record! {
    /// A step in the life of a job.
    Step {
        /// The state it came to.
        state: JobState = "state",
        /// The time of the event.
        timestamp_ms: u64 = "timestamp",
    }
}

record! {
    /// How a job is repeated.
    RepeatState {
        /// Distance between due times, in milliseconds.
        every_ms: u64 = "every",
        /// The total number of runs.
        limit: Option<u64> = "limit",
        /// Runs so far.
        count: u64 = "count",
    }
}

record! {
    /// How many jobs of a queue are in which state.
    JobCounts {
        /// They may be delivered.
        waiting: u64 = "waiting",
        /// They wait for their time.
        delayed: u64 = "delayed",
        /// Workers have them.
        active: u64 = "active",
        /// They are done.
        completed: u64 = "completed",
        /// They lie in the dead-letter queue.
        failed: u64 = "failed",
        /// They wait for other jobs.
        waiting_children: u64 = "waiting-children",
    }
}

record! {
    /// A line of the log of a job.
    LogLine {
        /// The text of the line.
        message: String = "message",
        /// `info`, `warn` or `error`.
        level: String = "level",
        /// When it was written.
        timestamp_ms: u64 = "timestamp",
    }
}

record! {
    /// How far a job is.
    Progress {
        /// From 0 to 100.
        progress: f64 = "progress",
        /// Text that the worker sent with the progress.
        message: Option<String> = "message",
    }
}

record! {
    /// A queue in the listing of all.
    QueueInfo {
        /// The name of the queue.
        name: String = "name",
        /// Jobs that may be delivered.
        waiting: u64 = "waiting",
        /// Jobs that wait for their time.
        delayed: u64 = "delayed",
        /// Jobs that workers have.
        active: u64 = "active",
        /// Whether it gives out no jobs.
        paused: bool = "paused",
    }
}

record! {
    /// A schedule.
    Cron {
        /// The name of the schedule.
        name: String = "name",
        /// The queue that gets its jobs.
        queue: String = "queue",
        /// The cron expression, if the schedule has one.
        schedule: Option<String> = "schedule",
        /// The interval between runs, in milliseconds, if the schedule has one.
        repeat_every_ms: Option<u64> = "repeatEvery",
        /// When it runs next; 0 if it is disabled, or its limit has ended it.
        next_run_ms: u64 = "nextRun",
        /// Whether it runs: `Some(false)` if it is disabled.
        enabled: Option<bool> = "enabled",
        /// How often it has run.
        executions: u64 = "executions",
        /// How often it runs in all.
        max_limit: Option<u64> = "maxLimit",
        /// The zone of its times.
        timezone: Option<String> = "timezone",
        /// The name of the jobs that the schedule pushes.
        job_name: Option<String> = "jobName",
    }
}

record! {
    /// A run of a schedule that is to come.
    CronRun {
        /// When it is due.
        at_ms: u64 = "at",
        /// The due time in the zone of the schedule, as `2026-03-29T03:00:00+02:00`.
        local: String = "local",
    }
}

record! {
    /// A registered worker.
    WorkerInfo {
        /// The id of the worker.
        id: String = "id",
        /// The name of the worker.
        name: String = "name",
        /// The queues it works on.
        queues: Vec<String> = "queues",
        /// When it came.
        registered_at_ms: u64 = "registeredAt",
        /// When it was last heard of.
        last_seen_ms: u64 = "lastSeen",
        /// Jobs that it has.
        active_jobs: u64 = "activeJobs",
        /// Jobs that it has completed.
        processed_jobs: u64 = "processedJobs",
        /// Attempts of its that failed.
        failed_jobs: u64 = "failedJobs",
    }
}

record! {
    /// A webhook.
    Webhook {
        /// The id of the webhook.
        id: String = "id",
        /// Where it posts to.
        url: String = "url",
        /// The events it tells of; none means all.
        events: Vec<String> = "events",
        /// The queue it tells of, if of one only.
        queue: Option<String> = "queue",
        /// When it was added.
        created_at_ms: u64 = "createdAt",
        /// When an event was last on its way.
        last_triggered_ms: Option<u64> = "lastTriggered",
        /// Events that were taken.
        success_count: u64 = "successCount",
        /// Events that were given up.
        failure_count: u64 = "failureCount",
        /// Whether it gets events.
        enabled: bool = "enabled",
    }
}

record! {
    /// An attempt to deliver an event to a webhook.
    WebhookDelivery {
        /// When it began.
        at_ms: u64 = "timestamp",
        /// The event; `webhook.test` for a sample.
        event: String = "event",
        /// The job that the event is about.
        job_id: String = "jobId",
        /// Which attempt for the event it was, from 1.
        attempt: u64 = "attempt",
        /// Whether the receiver took it.
        delivered: bool = "delivered",
        /// The status of the response, if there was one.
        status: Option<u64> = "status",
        /// Why it failed, if it did.
        error: Option<String> = "error",
        /// How long it took.
        duration_ms: u64 = "duration",
        /// Whether it is a sample that was asked for.
        test: bool = "test",
    }
}

record! {
    /// The server as a whole.
    Stats {
        /// Jobs that may be delivered.
        queued: u64 = "queued",
        /// Jobs that workers have.
        processing: u64 = "processing",
        /// Jobs that wait for their time.
        delayed: u64 = "delayed",
        /// Jobs in dead-letter queues.
        dlq: u64 = "dlq",
        /// Jobs that are done.
        completed: u64 = "completed",
        /// Jobs that wait for others.
        waiting_children: u64 = "waitingChildren",
        /// How long it has been running, in milliseconds.
        uptime_ms: u64 = "uptime",
        /// Jobs pushed in a second.
        push_per_sec: f64 = "pushPerSec",
        /// Jobs pulled in a second.
        pull_per_sec: f64 = "pullPerSec",
        /// Jobs pushed since its start.
        total_pushed: u64 = "totalPushed",
        /// Jobs pulled since its start.
        total_pulled: u64 = "totalPulled",
        /// Jobs completed since its start.
        total_completed: u64 = "totalCompleted",
        /// Attempts failed since its start.
        total_failed: u64 = "totalFailed",
    }
}

record! {
    /// The figures of the server.
    Metrics {
        /// Jobs pushed since its start.
        total_pushed: u64 = "totalPushed",
        /// Jobs pulled since its start.
        total_pulled: u64 = "totalPulled",
        /// Jobs completed since its start.
        total_completed: u64 = "totalCompleted",
        /// Attempts failed since its start.
        total_failed: u64 = "totalFailed",
        /// Mean time from when a job was due to its delivery.
        avg_latency_ms: f64 = "avgLatencyMs",
        /// Mean time from delivery to completion.
        avg_processing_ms: f64 = "avgProcessingMs",
        /// Memory of the process.
        memory_usage_mb: f64 = "memoryUsageMb",
        /// Size of the log on disk.
        log_size_mb: f64 = "sqliteSizeMb",
        /// Connections that are open.
        active_connections: u64 = "activeConnections",
    }
}

record! {
    /// The rate of a queue or a group.
    Rate {
        /// Jobs in each `duration`.
        max: u64 = "max",
        /// In milliseconds.
        duration_ms: u64 = "duration",
    }
}

record! {
    /// A group of jobs of a queue.
    GroupInfo {
        /// The id of the group within its queue.
        id: String = "id",
        /// Jobs that wait or are delayed.
        count: u64 = "count",
        /// Jobs that workers have.
        active: u64 = "active",
        /// Whether it gives out no jobs.
        paused: bool = "paused",
        /// Jobs that it gives out in a row when its turn comes.
        weight: u64 = "weight",
        /// Jobs that may be active at a time.
        concurrency: Option<u64> = "concurrency",
        /// The group's own rate limit, if it has one.
        rate: Option<Rate> = "limit",
        /// For how long it gives out none, in milliseconds.
        held_for_ms: Option<u64> = "heldFor",
    }
}

record! {
    /// Automatic retries and removals of a queue's dead letters.
    DlqRules {
        /// Whether they are tried anew.
        auto_retry: bool = "autoRetry",
        /// How long after their failure, in milliseconds.
        auto_retry_interval_ms: u64 = "autoRetryInterval",
        /// How often each.
        max_auto_retries: u64 = "maxAutoRetries",
        /// How long after their failure they are removed, in milliseconds.
        max_age_ms: Option<u64> = "maxAge",
        /// How many there may be.
        max_entries: Option<u64> = "maxEntries",
    }
}

record! {
    /// The dead letters of a queue.
    DlqStats {
        /// How many there are.
        total: u64 = "total",
        /// How many for which reason.
        by_reason: BTreeMap<String, u64> = "byReason",
        /// Dead letters that will be retried automatically.
        pending_retry: u64 = "pendingRetry",
        /// Dead letters that are older than the queue keeps them, and about to be removed.
        expired: u64 = "expired",
        /// When the first of them came.
        oldest_entry_ms: Option<u64> = "oldestEntry",
        /// When the last of them came.
        newest_entry_ms: Option<u64> = "newestEntry",
    }
}

record! {
    /// When the workers of a queue count as silent.
    StallRules {
        /// Whether silence counts.
        enabled: bool = "enabled",
        /// After how long, in milliseconds.
        stall_interval_ms: u64 = "stallInterval",
        /// How many times before a job goes to the dead-letter queue; 0 for any number.
        max_stalls: u64 = "maxStalls",
        /// For how long after a pull it does not count, in milliseconds.
        grace_period_ms: u64 = "gracePeriod",
    }
}

record! {
    /// The limits of a queue.
    QueueLimits {
        /// The rate limit, if the queue has one.
        rate: Option<Rate> = "rateLimit",
        /// How long the rate holds, or until so many jobs may leave as were asked about; -2 without a rate.
        rate_ttl_ms: i64 = "rateLimitTtl",
        /// Jobs that may be active at a time.
        concurrency: Option<u64> = "concurrencyLimit",
        /// Whether no more may be active now.
        maxed: bool = "maxed",
    }
}

record! {
    /// Something that has happened to a job, or to a queue.
    Event {
        /// The kind of the event: `pushed`, `pulled`, `completed`, `failed` and others.
        event_type: String = "eventType",
        /// In which queue.
        queue: String = "queue",
        /// To which job; empty for what concerns the queue.
        job_id: String = "jobId",
        /// The time of the event.
        timestamp_ms: u64 = "timestamp",
        /// The name of the job.
        name: Option<String> = "name",
        /// The payload, or the result.
        data: Option<Raw> = "data",
        /// Why it failed.
        error: Option<String> = "error",
        /// How far it is.
        progress: Option<f64> = "progress",
        /// The state it was in before.
        prev: Option<String> = "prev",
        /// How long it is held back, in milliseconds.
        delay_ms: Option<u64> = "delay",
        /// The id of the event, from which a client can go on after a lost connection.
        id: Option<String> = "id",
        /// Events of other jobs that a sample has passed over before it.
        passed_over: Option<u64> = "passedOver",
        /// Of what is no event: how many it is about.
        count: Option<u64> = "count",
    }
}

/// Jobs by their priority.
pub type CountsPerPriority = BTreeMap<String, u64>;

record! {
    /// Progress of a change of many jobs: from [`Client::task`](crate::Client::task).
    Task {
        /// The id of the task.
        id: String = "id",
        /// The change: `retry`, `remove` and the like.
        action: String = "action",
        /// The queue of the jobs, if they are of one.
        queue: Option<String> = "queue",
        /// Whether nothing is changed.
        dry_run: bool = "dryRun",
        /// `running`, `done`, `cancelled` or `failed`.
        state: String = "state",
        /// Whether it waits until the server takes commands again.
        paused: bool = "paused",
        /// Why it failed.
        error: Option<String> = "error",
        /// Jobs that there are to look at, as known at its beginning.
        total: u64 = "total",
        /// Jobs looked at.
        counted: u64 = "counted",
        /// Jobs that meet the conditions.
        matched: u64 = "matched",
        /// Jobs that were changed; in a dry run, that would be changed.
        changed: u64 = "changed",
        /// Matched jobs that were not changed, by reason.
        skipped: Skipped = "skipped",
        /// Payloads that were searched in part.
        partly: u64 = "partly",
        /// When it began.
        started_at_ms: u64 = "startedAt",
        /// When it ended.
        ended_at_ms: Option<u64> = "endedAt",
        /// The role of its client.
        started_by: String = "startedBy",
    }
}

record! {
    /// How many jobs a task left as they were, and why.
    Skipped {
        /// There is no job of that id.
        not_found: u64 = "notFound",
        /// A worker has it.
        active: u64 = "active",
        /// The job is in a state that the change is not for.
        state: u64 = "state",
        /// The stored record of the job cannot be read.
        damaged: u64 = "damaged",
    }
}

record! {
    /// Dead letters by their errors: from [`Queue::dead_letter_groups`](crate::Queue::dead_letter_groups).
    ErrorGroups {
        /// The largest groups.
        groups: Vec<ErrorGroup> = "groups",
        /// All dead letters.
        total: u64 = "total",
        /// Dead letters beyond the listed groups.
        others: u64 = "others",
        /// Dead letters whose error cannot be read.
        damaged: u64 = "damaged",
    }
}

record! {
    /// Dead letters that say the same but for numbers and ids.
    ErrorGroup {
        /// The text of the error, with `#` for each number and id.
        error: String = "error",
        /// How many.
        count: u64 = "count",
        /// When the first of them failed.
        oldest_ms: u64 = "oldest",
        /// When the last of them failed.
        newest_ms: u64 = "newest",
        /// The id of that.
        sample: String = "sample",
        /// And its queue.
        queue: String = "queue",
    }
}
