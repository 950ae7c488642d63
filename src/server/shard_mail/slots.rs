//! Which shard a command belongs to. Knows names and ids, nothing of what the command does.

use crate::api::flow::FlowJob;
use crate::api::request::{Body, JobRef, RegisterWorker};
use corq_shards::job::id::{JobId, SLOTS, Slot, fnv1a};
use corq_shards::job::new_job::NewJob;

/// Slots to shards, and names to the shards that keep them.
#[derive(Clone, Debug)]
pub struct Slots {
    table: Box<[u16]>,
    shards: usize,
}

impl Slots {
    /// Deals the slots out to `shards` shards in turn.
    pub fn new(shards: usize) -> Self {
        let table = (0..usize::from(SLOTS)).map(|slot| (slot % shards) as u16).collect();
        Self { table, shards }
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// The shard that owns a queue.
    pub fn of_queue(&self, queue: &str) -> usize {
        self.of_slot(Slot::of_name(queue))
    }

    /// The shard that owns a job.
    pub fn of_job(&self, id: JobId) -> usize {
        self.of_slot(id.slot())
    }

    /// The shard whose directory holds a custom id. One of the form that the server gives out is held where
    /// a job of that id would be, so that this shard can tell whether there is one.
    pub fn of_name(&self, name: &str) -> usize {
        match JobRef::of(name) {
            JobRef::Id(id) => self.of_job(id),
            JobRef::Custom(name) => self.of_bytes(name.as_bytes()),
        }
    }

    /// The shard that keeps what goes by a name of any kind.
    #[allow(clippy::disallowed_methods)] // Decides where the name lives.
    pub fn of_bytes(&self, name: &[u8]) -> usize {
        (fnv1a(name) >> 17) as usize % self.shards
    }

    /// The shard that owns the queues of a slot.
    pub fn of_slot(&self, slot: Slot) -> usize {
        usize::from(self.table[slot.index()])
    }
}

/// Where a command has to go.
pub enum Route<'a> {
    /// Any shard can answer.
    Here,
    /// The owner of a queue.
    Queue(&'a str),
    /// The owner of a job.
    Job(JobRef<'a>),
    /// The owner of a queue, once the job's name is known.
    JobInQueue(&'a str, JobRef<'a>),
    /// The owner of a queue, once the dependencies are found and the custom ids claimed.
    Prepared,
    /// The owners of the queues of a flow.
    Flow(&'a [FlowJob<'a>]),
    /// The owners of several jobs.
    Jobs(&'a [JobRef<'a>]),
    /// The owners of a parent and a child.
    ParentLink(JobRef<'a>, Option<JobRef<'a>>),
    /// The shard that keeps a worker's registration.
    Worker(&'a str),
    /// The shard that keeps the names of schedules, and webhooks.
    Registry,
    /// Every shard.
    All,
}

/// Whether other shards have to be asked before the job is pushed.
fn names_jobs(job: &NewJob<'_>) -> bool {
    job.custom_id.is_some() || !job.depends_on.is_empty()
}

/// Where `body` has to go.
pub fn route<'a>(body: &'a Body<'_>) -> Route<'a> {
    match body {
        Body::Hello { .. }
        | Body::Auth { .. }
        | Body::Ping
        | Body::SubscribeEvents(_)
        | Body::UnsubscribeEvents
        | Body::RegisterWorker(RegisterWorker { worker_id: None, .. }) => Route::Here,
        Body::RegisterWorker(RegisterWorker { worker_id: Some(id), .. })
        | Body::UnregisterWorker(id)
        | Body::Heartbeat { worker_id: id } => Route::Worker(id),
        Body::PushFlow(jobs) => Route::Flow(jobs),
        Body::Push { job, .. } if names_jobs(job) => Route::Prepared,
        Body::PushBatch { jobs, .. } if jobs.iter().any(names_jobs) => Route::Prepared,
        Body::Push { queue, .. }
        | Body::PushBatch { queue, .. }
        | Body::Dlq { queue, .. }
        | Body::RetryDlq { queue, job: None, .. }
        | Body::PromoteJobs { queue, .. }
        | Body::GetDeduplicationJobId { queue, .. }
        | Body::RemoveDeduplicationKey { queue, .. }
        | Body::GetJobs { queue, .. }
        | Body::RetryCompleted { queue, job: None, .. }
        | Body::GetQueueLimits { queue, .. }
        | Body::Group { queue, .. }
        | Body::GetGroups { queue, .. }
        | Body::GetGroupsJobsCount(queue)
        | Body::TrimEvents(queue)
        | Body::QueueMetrics { queue, .. }
        | Body::RateLimit { queue, .. }
        | Body::RateLimitClear(queue)
        | Body::SetConcurrency { queue, .. }
        | Body::ClearConcurrency(queue)
        | Body::PurgeDlq(queue)
        | Body::GetDlqStats(queue)
        | Body::SetRule { queue, .. }
        | Body::GetDlqConfig(queue)
        | Body::GetStallConfig(queue)
        | Body::Drain(queue)
        | Body::Clean { queue, .. }
        | Body::Obliterate(queue)
        | Body::GetJobCounts(queue)
        | Body::GetCountsPerPriority(queue)
        | Body::Count(queue)
        | Body::Pause(queue)
        | Body::Resume(queue)
        | Body::IsPaused(queue) => Route::Queue(queue),
        Body::Pull(pull) | Body::PullBatch(pull) => Route::Queue(pull.queue),
        Body::RetryDlq { queue, job: Some(job), .. }
        | Body::RemoveDlqJob { queue, job }
        | Body::RetryCompleted { queue, job: Some(job), .. } => Route::JobInQueue(queue, *job),
        Body::Ack(ack) => Route::Job(ack.job),
        Body::Fail(fail) => Route::Job(fail.job),
        Body::JobHeartbeat { job, .. }
        | Body::GetJob(job)
        | Body::GetState(job)
        | Body::GetResult(job)
        | Body::GetProgress(job)
        | Body::GetLogs { job, .. }
        | Body::ExtendLock { job, .. }
        | Body::MoveToWait { job, .. }
        | Body::ChangeDelay { job, .. }
        | Body::ClearLogs { job, .. }
        | Body::RemoveJobDeduplicationKey(job)
        | Body::GetChildrenValues(job)
        | Body::RemoveUnprocessedChildren(job)
        | Body::MoveToWaitingChildren { job, .. }
        | Body::GetFailedChildrenValues(job)
        | Body::GetIgnoredChildrenFailures(job)
        | Body::Cancel(job)
        | Body::Update { job, .. }
        | Body::ChangePriority { job, .. }
        | Body::Promote(job)
        | Body::MoveToDelayed { job, .. }
        | Body::Discard { job, .. }
        | Body::Progress { job, .. }
        | Body::AddLog { job, .. }
        | Body::WaitJob { job, .. } => Route::Job(*job),
        Body::UpdateParent { child, parent } => Route::ParentLink(*child, Some(*parent)),
        Body::RemoveChildDependency(child) => Route::ParentLink(*child, None),
        Body::GetJobByCustomId(name) => Route::Job(JobRef::Custom(name)),
        Body::AckBatch(batch) | Body::JobHeartbeatBatch(batch) | Body::ExtendLocks(batch) => {
            Route::Jobs(&batch.ids)
        }
        Body::Cron(_)
        | Body::CronDelete(_)
        | Body::CronGet(_)
        | Body::SetWebhookEnabled { .. }
        | Body::AddWebhook(_)
        | Body::RemoveWebhook(_)
        | Body::ListWebhooks => Route::Registry,
        Body::ListQueues
        | Body::Stats
        | Body::CronList
        | Body::ListWorkers
        | Body::Metrics
        | Body::Prometheus
        | Body::BackupPoint => Route::All,
    }
}
