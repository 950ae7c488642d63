//! The table of commands: a row says all that the server has to know of one. Written once, read by every surface.
//!
//! A row is a name in Rust, the name on the wire, the fields in `{}`, and behind `=>` four columns; a row that lacks one
//! does not compile.
//!
//! | column | read by |
//! |---|---|
//! | fields: `name: Type = specification` | the decoder, [`super::request::Body`], the documents, the command line |
//! | what it does to what the server keeps: [`Class`] | long batches, a data directory that is gone, requests that wait |
//! | how large its reply may be: [`ReplySize`] | `server/overload/large_replies.rs` |
//! | which shard it belongs to: [`super::request::Route`], from its fields | `server/shard_mail/dispatch.rs` |
//! | the call that carries it out, from its fields: a method of the server that takes the connections and the request first | `server/commands/mod.rs` |
//!
//! Who may send a command is a line of [`super::access`], which does not compile without one for each.
//!
//! The fields are decoded in the order of the row, each by its type; a type that cannot hold what its specification
//! lets through does not compile. A command of another shape names in `[]` the function of the decoder that puts
//! it together, and the specifications it takes; the fields then have none.

pub use super::class::{Batched, Class, PerJob, ReplySize};
pub use super::field::{Coercion, FieldSpec, Kind, Preset, required_of};
use super::field::{flag, integer, optional, required};
use super::limits::{
    ATTEMPTS_MAX, CLEAN_DEFAULT, CLEAN_MAX, DAY_MS, DELIVERIES_MAX, ERROR_BYTES_MAX,
    EVENT_NAMES_MAX, EVENT_SAMPLE_MAX, FLOW_DEPTH_DEFAULT, FLOW_DEPTH_MAX, INTEGER_MAX,
    LINE_CHARS_MAX, LINES_MAX, LIST_MAX, LISTING_DEFAULT, LISTING_MAX, LOG_BYTES_MAX,
    NAME_CHARS_MAX, PAYLOAD_BYTES_MAX, PREVIEW_DEFAULT, PREVIEW_MAX, PRIORITY_MAX, QUEUE_CHARS_MAX,
    RATE_MAX, SHARD_MAX, STACK_BYTES_MAX, WAIT_TIMEOUT_DEFAULT_MS, WAIT_TIMEOUT_MAX_MS,
    WATCH_MS_MAX, WATCH_MS_MIN, WATCH_QUEUES_DEFAULT, WATCH_QUEUES_MAX, YEAR_MS,
};
pub use super::objects::*;
use super::size::bytes_max;
use super::specs::{
    ACK_MANY, BULK, COUNT, CRON, DURATION, END, EXTEND_MANY, FILTER, GET_JOBS, GROUP, GROUPED, ID,
    IDS, KEY, LIMIT, LIST_QUEUES, POINT_MS, POINTS, PULL, PULL_MANY, PUSH, PUSH_FLOW, PUSH_MANY,
    SEARCH, START, STATE, TASK, TOKEN, TOKENS, UNTIL, WORKER_ID,
};
use super::version::Version;
use corq_shards::dead_letter::reason::Cause;

/// A row of the table of commands.
#[derive(Clone, Copy, Debug)]
pub struct CommandSpec {
    /// The name in `cmd`.
    pub name: &'static str,
    /// The command, for a `match`.
    pub op: Op,
    /// Fields beside `cmd` and `reqId`.
    pub fields: &'static [FieldSpec],
    /// Fields without which the command is refused, as bits that [`required_of`] computes.
    pub required: u64,
    /// Most bytes that it can need, as [`bytes_max`] tells.
    pub bytes_max: usize,
    /// Effect on what the server stores.
    pub class: Class,
    /// Size of the reply.
    pub reply: ReplySize,
    /// The version of the protocol that introduced the command.
    pub since: Version,
}

/// Hands all rows to a macro. The busiest come first, since a name is found by walking down the table.
macro_rules! command_table {
    ($reader:ident) => {
        $reader! {
Push "PUSH" [take_push, PUSH] { queue: &'a str, job: NewJob<'a> }
    => Write, Short, push_route(queue, std::slice::from_ref(job)), push(queue, std::slice::from_ref(job), false);
Ack "ACK" {
    job: JobRef<'a> = ID,
    result: &'a [u8] = optional("result", PAYLOAD),
    token: Option<Token> = TOKEN,
    remove: bool = flag("removeOnComplete").of_three(),
} => Write, Short, Job(*job), ack(*job, *token, result, *remove);
Pull "PULL" [take_pull_one, PULL] { pull: Pull<'a> }
    => Pull, Pulled, Queue(pull.queue), pull(&pull.command(), false);
PushBatch "PUSHB" [take_push_many, PUSH_MANY] { queue: &'a str, jobs: Vec<NewJob<'a>> }
    => Batch(Batched::Push), Short, push_route(queue, jobs), push(queue, jobs, true);
PullBatch "PULLB" [take_pull_many, PULL_MANY] { pull: Pull<'a> }
    => Pull, Jobs, Queue(pull.queue), pull(&pull.command(), true);
AckBatch "ACKB" [take_acks, ACK_MANY] { batch: Batch<'a> }
    => Batch(Batched::Held(PerJob::Ack)), Short, Here, dispatch_jobs(batch, PerJob::Ack);
Fail "FAIL" {
    job: JobRef<'a> = ID,
    error: &'a str = optional("error", Kind::LongText { bytes_max: ERROR_BYTES_MAX, cut: true }),
    token: Option<Token> = TOKEN,
    unrecoverable: bool = flag("unrecoverable"),
    stack: Stack<'a> = optional("stack", Kind::Stack { bytes_max: STACK_BYTES_MAX }),
    remove: bool = flag("removeOnFail").of_three(),
} => Write, Short, Job(*job), on_job(*job, Answer::Ok, |job, by| Command::Fail(Fail {
    job, token: by.token(*token), error, unrecoverable: *unrecoverable, stack: *stack, remove: *remove,
}));
JobHeartbeat "JobHeartbeat" { job: JobRef<'a> = ID, token: Option<Token> = TOKEN }
    => Write, Short, Job(*job), on_job(*job, Answer::Alive, |job, _| Command::Heartbeat(Beat {
        job, token: *token, ttl_ms: None,
    }));
JobHeartbeatBatch "JobHeartbeatB" [take_heartbeats, &[IDS, TOKENS]] { batch: Batch<'a> }
    => Batch(Batched::Held(PerJob::Renew)), Short, Here, dispatch_jobs(batch, PerJob::Renew);
Progress "Progress" {
    job: JobRef<'a> = ID,
    progress: f64 = required("progress", Kind::Number { min: 0, max: 100 }),
    message: Option<&'a [u8]> =
        optional("message", Kind::LongText { bytes_max: PAYLOAD_BYTES_MAX, cut: false }),
} => Write, Short, Job(*job), change(*job, Answer::Ok, Change::Progress { progress: *progress, message: *message });
AddLog "AddLog" {
    job: JobRef<'a> = ID,
    message: &'a str = required("message", Kind::LongText { bytes_max: LOG_BYTES_MAX, cut: false }),
    level: Level = FieldSpec {
        default: Preset::Text("info"),
        ..optional("level", Kind::Choice(LOG_LEVELS))
    },
} => Write, Short, Job(*job), change(*job, Answer::Flag("added"), Change::Log { level: *level, message });
Ping "Ping" {} => Local, Short, Here, ping();
Heartbeat "Heartbeat" {
    worker_id: &'a str = required("id", NAME),
    active: Option<u64> = integer("activeJobs", 0, INTEGER_MAX),
    processed: Option<u64> = integer("processed", 0, INTEGER_MAX),
    failed: Option<u64> = integer("failed", 0, INTEGER_MAX),
} => Local, Short, Name(worker_id), worker_heartbeat(worker_id, Told::of(*active, *processed, *failed));
WaitJob "WaitJob" {
    job: JobRef<'a> = ID,
    timeout_ms: u64 = integer("timeout", 0, WAIT_TIMEOUT_MAX_MS).or(WAIT_TIMEOUT_DEFAULT_MS),
} => Read, Jobs, Job(*job), wait_job(*job, *timeout_ms);
GetJob "GetJob" { job: JobRef<'a> = ID } => Read, Jobs, Job(*job), get_job(*job);
GetState "GetState" { job: JobRef<'a> = ID } => Read, Short, Job(*job), get_state(*job);
GetResult "GetResult" { job: JobRef<'a> = ID } => Read, Jobs, Job(*job), get_result(*job);
Explain "Explain" { job: JobRef<'a> = ID } => Read, Short, Job(*job), explain(*job);
GetJobDetail "GetJobDetail" { job: JobRef<'a> = ID } => Read, List, Job(*job), get_job_detail(*job);
GetFlow "GetFlow" {
    job: JobRef<'a> = ID,
    depth: u32 = integer("depth", 0, FLOW_DEPTH_MAX).or(FLOW_DEPTH_DEFAULT),
    limit: u32 = integer("limit", 1, LISTING_MAX).or(LISTING_DEFAULT),
} => Read, List, Job(*job), get_flow(*job, (*depth, *limit));
GetProgress "GetProgress" { job: JobRef<'a> = ID } => Read, Jobs, Job(*job), get_progress(*job);
GetLogs "GetLogs" { job: JobRef<'a> = ID, start: u64 = START, end: Option<u64> = END }
    => Read, List, Job(*job), get_logs(*job, *start, *end);
GetJobByCustomId "GetJobByCustomId" { name: &'a str = required("customId", NAME).digits() }
    => Read, Jobs, Job(JobRef::Custom(name)), get_job(JobRef::Custom(name));
GetJobs "GetJobs" [take_get_jobs, GET_JOBS] {
    queue: &'a str,
    states: Option<StateFilter>,
    limit: u32,
    offset: u64,
    oldest_first: Option<bool>,
    page: Option<Box<JobPage<'a>>>,
} => Read, List, Queue(queue), list_jobs((queue, *states), (*offset, *limit), *oldest_first, page.as_deref());
Search "Search" [take_search, SEARCH] { search: Box<Search<'a>> }
    => Read, List, search_route(search), search(search);
GetJobCounts "GetJobCounts" { queue: &'a str = QUEUE } => Read, Short, Queue(queue), job_counts(queue);
GetCountsPerPriority "GetCountsPerPriority" { queue: &'a str = QUEUE }
    => Read, List, Queue(queue), priority_counts(queue);
Count "Count" { queue: &'a str = QUEUE } => Read, Short, Queue(queue), count_jobs(queue);
Cancel "Cancel" { job: JobRef<'a> = ID } => Write, Short, Job(*job), change(*job, Answer::Ok, Change::Cancel);
Update "Update" { job: JobRef<'a> = ID, data: &'a [u8] = required("data", PAYLOAD) }
    => Write, Short, Job(*job), update(*job, data);
ChangePriority "ChangePriority" {
    job: JobRef<'a> = ID,
    priority: i32 = integer("priority", -PRIORITY_MAX, PRIORITY_MAX).must(),
    lifo: Option<bool> = optional("lifo", Kind::Flag).truth(),
} => Write, Short, Job(*job), change(*job, Answer::Ok, Change::Prioritize { priority: *priority, lifo: *lifo });
Promote "Promote" { job: JobRef<'a> = ID } => Write, Short, Job(*job), change(*job, Answer::Ok, Change::Promote);
MoveToDelayed "MoveToDelayed" {
    job: JobRef<'a> = ID,
    delay_ms: u64 = integer("delay", 0, YEAR_MS).must().clamped(),
    token: Option<Token> = TOKEN,
} => Write, Short, Job(*job), change(*job, Answer::Ok, Change::PutOff { delay_ms: *delay_ms, token: *token });
Discard "Discard" {
    job: JobRef<'a> = ID,
    token: Option<Token> = TOKEN,
    error: &'a str = optional("error", Kind::LongText { bytes_max: ERROR_BYTES_MAX, cut: true }),
    cause: Cause = FieldSpec {
        default: Preset::Text("unknown"),
        ..optional("reason", Kind::Choice(Cause::NAMES))
    },
    attempts: Option<u64> = integer("attempts", 0, ATTEMPTS_MAX),
} => Write, Short, Job(*job), change(*job, Answer::Ok, Change::discard(*token, (*cause, error), *attempts));
ExtendLock "ExtendLock" {
    job: JobRef<'a> = ID,
    token: Option<Token> = TOKEN,
    ttl_ms: u32 = integer("duration", 1, DAY_MS).must(),
} => Write, Short, Job(*job), on_job(*job, Answer::Ok, |job, _| Command::Heartbeat(Beat {
    job, token: *token, ttl_ms: Some(*ttl_ms),
}));
ExtendLocks "ExtendLocks" [take_extensions, EXTEND_MANY] { batch: Batch<'a> }
    => Batch(Batched::Held(PerJob::Extend)), Short, Here, dispatch_jobs(batch, PerJob::Extend);
MoveToWait "MoveToWait" { job: JobRef<'a> = ID, token: Option<Token> = TOKEN }
    => Write, Short, Job(*job), change(*job, Answer::Ok, Change::ToWait { token: *token });
ChangeDelay "ChangeDelay" {
    job: JobRef<'a> = ID,
    delay_ms: u64 = integer("delay", 0, YEAR_MS).must().clamped(),
    token: Option<Token> = TOKEN,
} => Write, Short, Job(*job), change(*job, Answer::Ok, Change::Delay { delay_ms: *delay_ms, token: *token });
PushFlow "PUSHF" [take_push_flow, PUSH_FLOW] { jobs: Vec<FlowJob<'a>> }
    => Batch(Batched::Flow), Short, Here, dispatch_flow(jobs);
GetChildrenValues "GetChildrenValues" { job: JobRef<'a> = ID }
    => Read, List, Job(*job), children_values(*job, How::Completed);
GetFailedChildrenValues "GetFailedChildrenValues" { job: JobRef<'a> = ID }
    => Read, List, Job(*job), children_values(*job, How::Failed);
GetIgnoredChildrenFailures "GetIgnoredChildrenFailures" { job: JobRef<'a> = ID }
    => Read, List, Job(*job), children_values(*job, How::Ignored);
UpdateParent "UpdateParent" {
    child: JobRef<'a> = required("childId", Kind::JobId),
    parent: JobRef<'a> = required("parentId", Kind::JobId),
} => Write, Short, Here, begin_parent_link(*child, Some(*parent));
RemoveChildDependency "RemoveChildDependency" { job: JobRef<'a> = ID } => Write, Short, Here, begin_parent_link(*job, None);
RemoveUnprocessedChildren "RemoveUnprocessedChildren" { job: JobRef<'a> = ID }
    => Write, Short, Job(*job), abandon_children(*job);
MoveToWaitingChildren "MoveToWaitingChildren" { job: JobRef<'a> = ID, token: Option<Token> = TOKEN }
    => Write, Short, Job(*job), change(*job, Answer::Moved, Change::Block { token: *token });
ClearLogs "ClearLogs" { job: JobRef<'a> = ID, keep: u32 = integer("keepLogs", 0, LINES_MAX).or(0) }
    => Write, Short, Job(*job), change(*job, Answer::Ok, Change::CutLog(*keep));
RemoveJobDeduplicationKey "RemoveJobDeduplicationKey" { job: JobRef<'a> = ID }
    => Write, Short, Job(*job), change(*job, Answer::Flag("removed"), Change::FreeKey);
GetDeduplicationJobId "GetDeduplicationJobId" { queue: &'a str = QUEUE, key: &'a str = KEY }
    => Read, Short, Queue(queue), holder_of_key(queue, key);
RemoveDeduplicationKey "RemoveDeduplicationKey" { queue: &'a str = QUEUE, key: &'a str = KEY }
    => Write, Short, Queue(queue), free_key(queue, key);
PromoteJobs "PromoteJobs" { queue: &'a str = QUEUE, count: Option<u64> = COUNT }
    => Bulk, Short, Queue(queue), begin_bulk(&Command::PromoteAll { queue, count: unlimited(*count) });
Pause "Pause" { queue: &'a str = QUEUE }
    => Write, Short, Queue(queue), set(&Command::Pause { queue, paused: true });
Resume "Resume" { queue: &'a str = QUEUE }
    => Write, Short, Queue(queue), set(&Command::Pause { queue, paused: false });
IsPaused "IsPaused" { queue: &'a str = QUEUE } => Read, Short, Queue(queue), is_paused(queue);
Drain "Drain" { queue: &'a str = QUEUE, delayed: Option<bool> = optional("delayed", Kind::Flag) }
    => Bulk, Short, Queue(queue), drain(queue, *delayed);
Obliterate "Obliterate" { queue: &'a str = QUEUE } => Bulk, Short, Queue(queue), begin_bulk(&Command::Obliterate { queue });
Clean "Clean" {
    queue: &'a str = QUEUE,
    grace_ms: u64 = integer("grace", 0, INTEGER_MAX).must(),
    states: Option<StateFilter> = STATE,
    limit: u32 = integer("limit", 0, CLEAN_MAX).or(CLEAN_DEFAULT),
} => Bulk, List, Queue(queue), clean(queue, *grace_ms, *states, *limit);
ListQueues "ListQueues" [take_list_queues, LIST_QUEUES] { page: Option<Box<QueuePage<'a>>> }
    => Scatter, List, All, list_queues(page.as_deref());
Dlq "Dlq" [take_dlq, &[QUEUE, integer("count", 0, LISTING_MAX).or(LISTING_DEFAULT), FILTER]] {
    queue: &'a str,
    count: u32,
    filter: Option<DlqFilter>,
} => Read, List, Queue(queue), dead_letters(queue, *count, *filter);
RetryDlq "RetryDlq" [take_retry_dlq, &[QUEUE, optional("jobId", Kind::JobId), COUNT, FILTER]] {
    queue: &'a str,
    job: Option<JobRef<'a>>,
    count: Option<u64>,
    filter: Option<DlqFilter>,
} => Bulk, Short, job_in_queue(queue, *job), retry_dlq(queue, *job, *count, *filter);
PurgeDlq "PurgeDlq" { queue: &'a str = QUEUE } => Bulk, Short, Queue(queue), begin_bulk(&Command::PurgeFailed { queue });
DlqGroups "DlqGroups" {
    queue: Option<&'a str> = FieldSpec { required: false, ..QUEUE },
    by: Grouping = GROUPED,
    limit: u32 = integer("limit", 1, LISTING_MAX).or(LISTING_DEFAULT),
} => Read, List, queue.map_or(Route::Shard(0), Queue), group_dead_letters(*queue, *by, *limit);
Bulk "Bulk" [take_bulk, BULK] { bulk: Box<Bulk<'a>> } => Bulk, Short, bulk_route(bulk), begin_bulk_task(bulk);
GetTask "GetTask" { task: &'a str = TASK } => Read, Short, Route::Shard(shard_of_task(task)), get_task(task);
ListTasks "ListTasks" {} => Scatter, List, All, list_tasks();
CancelTask "CancelTask" { task: &'a str = TASK }
    => Local, Short, Route::Shard(shard_of_task(task)), cancel_task(task);
GetDlqStats "GetDlqStats" { queue: &'a str = QUEUE } => Read, Short, Queue(queue), dlq_stats(queue);
SetDlqConfig "SetDlqConfig" { queue: &'a str = QUEUE, config: DlqPatch = required("config", Kind::DlqConfig) }
    => Write, Short, Queue(queue), begin_bulk(&Command::Rule { queue, patch: RulePatch::Dlq(*config) });
GetDlqConfig "GetDlqConfig" { queue: &'a str = QUEUE } => Read, Short, Queue(queue), dlq_config(queue);
SetStallConfig "SetStallConfig" { queue: &'a str = QUEUE, config: StallPatch = required("config", Kind::StallConfig) }
    => Write, Short, Queue(queue), begin_bulk(&Command::Rule { queue, patch: RulePatch::Stall(*config) });
GetStallConfig "GetStallConfig" { queue: &'a str = QUEUE } => Read, Short, Queue(queue), stall_config(queue);
RetryCompleted "RetryCompleted" {
    queue: &'a str = QUEUE,
    job: Option<JobRef<'a>> = optional("id", Kind::JobId),
    count: Option<u64> = COUNT,
    until_ms: Option<u64> = integer("timestamp", 0, INTEGER_MAX),
} => Bulk, Short, job_in_queue(queue, *job), retry_completed(queue, *job, *count, *until_ms);
RemoveDlqJob "RemoveDlqJob" { queue: &'a str = QUEUE, job: JobRef<'a> = required("jobId", Kind::JobId) }
    => Write, Short, JobInQueue(queue, *job), change(*job, Answer::Flag("removed"), Change::Bin { queue });
Cron "Cron" [take_cron, CRON] { cron: Cron<'a> } => Write, Short, Registry, begin_cron(cron.name);
CronDelete "CronDelete" { name: &'a str = required("name", NAME) } => Write, Short, Registry, begin_cron(name);
CronGet "CronGet" { name: &'a str = required("name", NAME) } => Read, Jobs, Registry, begin_cron(name);
CronTrigger "CronTrigger" { name: &'a str = required("name", NAME) } => Write, Short, Registry, begin_cron(name);
SetCronEnabled "SetCronEnabled" {
    name: &'a str = required("name", NAME),
    enabled: bool = required("enabled", Kind::Flag),
} => Write, Short, Registry, begin_cron(name);
CronPreview "CronPreview" {
    name: Option<&'a str> = optional("name", NAME),
    schedule: Option<&'a str> = optional("schedule", LINE),
    every_ms: Option<u64> = integer("repeatEvery", 1, INTEGER_MAX),
    timezone: Option<&'a str> = optional("timezone", NAME),
    count: u32 = integer("count", 1, PREVIEW_MAX).or(PREVIEW_DEFAULT),
    from_ms: Option<u64> = integer("from", 0, INTEGER_MAX),
} => Read, List, name.map_or(Here, |_| Registry), preview_cron(*name);
CronList "CronList" {} => Scatter, List, All, list_rows(Rows::Crons);
Stats "Stats" {} => Scatter, Short, All, scatter(ScatterQuery::Stats);
Metrics "Metrics" {
    queue: Option<&'a str> = optional("queue", Kind::Queue),
    of: Finished = FieldSpec { default: Preset::Text("completed"), ..optional("type", Kind::Choice(METRICS)) },
    start: u64 = START,
    end: Option<u64> = END,
} => Scatter, List, queue.map_or(All, Queue), metrics(*queue, *of, (*start, *end));
History "History" {
    queue: Option<&'a str> = optional("queue", Kind::Queue),
    series: Option<StateFilter> = optional("series", Kind::Choices(SERIES)),
    point_ms: u64 = POINT_MS,
    points: u32 = POINTS,
    until_ms: Option<u64> = UNTIL,
} => Scatter, List, queue.map_or(All, Queue), history(*queue, *series, (*point_ms, *points, *until_ms));
Heatmap "Heatmap" {
    queue: Option<&'a str> = optional("queue", Kind::Queue),
    shard: Option<u64> = integer("shard", 0, SHARD_MAX),
    point_ms: u64 = POINT_MS,
    points: u32 = POINTS,
    until_ms: Option<u64> = UNTIL,
} => Scatter, List, queue.map_or(All, Queue), heatmap(*queue, *shard, (*point_ms, *points, *until_ms));
Shards "Shards" {} => Scatter, Short, All, shards();
Watch "Watch" {
    what: Option<StateFilter> = optional("what", Kind::Choices(WATCHED)),
    every_ms: u64 = integer("every", WATCH_MS_MIN, WATCH_MS_MAX).or(WATCH_MS_MIN),
    top: u32 = integer("top", 1, WATCH_QUEUES_MAX).or(WATCH_QUEUES_DEFAULT),
} => Local, Short, Here, watch(*what, *every_ms, *top);
Unwatch "Unwatch" {} => Local, Short, Here, unwatch();
Prometheus "Prometheus" { queues: Option<&'a str> = optional("queues", LINE) }
    => Scatter, List, All, prometheus(*queues);
StorageStatus "StorageStatus" {} => Scatter, Short, All, scatter(ScatterQuery::Storage);
CompactMemory "CompactMemory" {} => Local, Short, Here, compact_memory();
Doctor "Doctor" {} => Scatter, List, All, scatter(ScatterQuery::Doctor);
GetSettings "GetSettings" {} => Local, Short, Here, get_settings();
DashboardOverview "DashboardOverview" {} => Scatter, List, All, scatter(ScatterQuery::Overview);
DashboardQueues "DashboardQueues" {} => Scatter, List, All, list_rows(Rows::Dashboard);
DashboardQueue "DashboardQueue" {
    queue: &'a str = QUEUE,
    with_jobs: bool = flag("includeJobs"),
    limit: u32 = integer("jobsLimit", 0, LISTING_MAX).or(10),
} => Read, List, Queue(queue), dashboard_queue(queue, *with_jobs, *limit);
BackupPoint "BackupPoint" {} => Write, Short, Here, ask_backup_point();
RegisterWorker "RegisterWorker" {
    name: &'a str = required("name", NAME),
    queues: Texts<'a> = required("queues", Kind::Queues { items_max: LIST_MAX }),
    worker_id: Option<&'a str> = FieldSpec { required: false, ..WORKER_ID },
    concurrency: Option<u64> = integer("concurrency", 0, INTEGER_MAX),
    hostname: Option<&'a str> =
        optional("hostname", Kind::Text { chars_min: 0, chars_max: NAME_CHARS_MAX }),
    pid: Option<u64> = integer("pid", 0, INTEGER_MAX),
} => Local, Short, worker_id.map_or(Here, Name),
    register_worker(name, *queues, *worker_id, About { concurrency: *concurrency, hostname: *hostname, pid: *pid });
UnregisterWorker "UnregisterWorker" { worker_id: &'a str = WORKER_ID }
    => Local, Short, Name(worker_id), unregister_worker(worker_id);
ListWorkers "ListWorkers" {
    queue: Option<&'a str> = FieldSpec { required: false, ..QUEUE },
    after: Option<&'a str> = optional("after", NAME),
    limit: Option<u64> = integer("limit", 1, LISTING_MAX),
} => Scatter, List, All, list_workers(*queue, *after, *limit);
AddWebhook "AddWebhook" {
    url: &'a str = required("url", LINE),
    events: Texts<'a> = required("events", Kind::TextsOf(WEBHOOK_EVENTS)),
    queue: Option<&'a str> = FieldSpec { required: false, ..QUEUE },
    secret: Option<&'a str> = optional("secret", LINE),
} => Write, Short, Registry, add_webhook(url, *events, (*queue, *secret));
RemoveWebhook "RemoveWebhook" { id: &'a str = required("webhookId", NAME) }
    => Write, Short, Registry, remove_webhook(id);
SetWebhookEnabled "SetWebhookEnabled" {
    id: &'a str = required("id", NAME),
    enabled: bool = required("enabled", Kind::Flag),
} => Write, Short, Registry, enable_webhook(id, *enabled);
TestWebhook "TestWebhook" { id: &'a str = required("id", NAME) } => Local, Short, Registry, test_webhook(id);
WebhookDeliveries "WebhookDeliveries" {
    id: &'a str = required("id", NAME),
    limit: u32 = integer("limit", 1, DELIVERIES_MAX).or(DELIVERIES_MAX),
} => Read, Jobs, Registry, webhook_deliveries(id, *limit);
ListWebhooks "ListWebhooks" {} => Read, List, Registry, list_webhooks();
RateLimit "RateLimit" {
    queue: &'a str = QUEUE,
    limit: u32 = LIMIT,
    span_ms: u32 = integer("duration", 1, DAY_MS).or(1000).absent_below(),
    ttl_ms: Option<u64> = integer("ttl", 1, YEAR_MS).absent_below(),
} => Write, Short, Queue(queue), rate_limit(queue, (*limit, *span_ms), *ttl_ms);
RateLimitClear "RateLimitClear" { queue: &'a str = QUEUE }
    => Write, Short, Queue(queue), set(&Command::Limit { queue, limit: Limit::Rate(None) });
SetConcurrency "SetConcurrency" { queue: &'a str = QUEUE, limit: u32 = LIMIT }
    => Write, Short, Queue(queue), set(&Command::Limit { queue, limit: Limit::Active(Some(*limit)) });
ClearConcurrency "ClearConcurrency" { queue: &'a str = QUEUE }
    => Write, Short, Queue(queue), set(&Command::Limit { queue, limit: Limit::Active(None) });
GetQueueLimits "GetQueueLimits" { queue: &'a str = QUEUE, jobs: u64 = integer("maxJobs", 1, RATE_MAX).or(1) }
    => Read, Short, Queue(queue), queue_limits(queue, *jobs);
GetGroupsJobsCount "GetGroupsJobsCount" { queue: &'a str = QUEUE }
    => Read, Short, Queue(queue), jobs_in_groups(queue);
GetGroupJobsCount "GetGroupJobsCount" { queue: &'a str = QUEUE, group: &'a str = GROUP }
    => Read, Short, Queue(queue), ask_group((queue, group), GroupAsk::JobsCount);
GetGroupActiveCount "GetGroupActiveCount" { queue: &'a str = QUEUE, group: &'a str = GROUP }
    => Read, Short, Queue(queue), ask_group((queue, group), GroupAsk::ActiveCount);
GetGroups "GetGroups" {
    queue: &'a str = QUEUE,
    limit: u32 = integer("limit", 0, LISTING_MAX).or(LISTING_DEFAULT),
    after: Option<&'a str> = optional("after", NAME),
} => Read, List, Queue(queue), list_groups(queue, *limit, *after);
SetGroupRateLimit "SetGroupRateLimit" {
    queue: &'a str = QUEUE,
    group: &'a str = GROUP,
    jobs: u64 = integer("max", 1, INTEGER_MAX).must().strict(),
    span_ms: u64 = DURATION,
} => Write, Short, Queue(queue),
    set_for_group((queue, group), Answer::Ok, GroupLimit::Rate(Some(GroupRate { jobs: *jobs, span_ms: *span_ms })));
GetGroupRateLimit "GetGroupRateLimit" { queue: &'a str = QUEUE, group: &'a str = GROUP }
    => Read, Short, Queue(queue), ask_group((queue, group), GroupAsk::RateLimit);
RemoveGroupRateLimit "RemoveGroupRateLimit" { queue: &'a str = QUEUE, group: &'a str = GROUP }
    => Write, Short, Queue(queue), set_for_group((queue, group), Answer::Count("removed"), GroupLimit::Rate(None));
GetGroupRateLimitTtl "GetGroupRateLimitTtl" {
    queue: &'a str = QUEUE,
    group: &'a str = GROUP,
    jobs: Option<u64> = integer("maxJobs", 0, INTEGER_MAX),
} => Read, Short, Queue(queue), ask_group((queue, group), GroupAsk::RateLimitTtl { jobs: *jobs });
SetGroupConcurrency "SetGroupConcurrency" {
    queue: &'a str = QUEUE,
    group: &'a str = GROUP,
    most: u64 = integer("concurrency", 1, INTEGER_MAX).must().strict(),
} => Write, Short, Queue(queue), set_for_group((queue, group), Answer::Ok, GroupLimit::Active(Some(*most)));
GetGroupConcurrency "GetGroupConcurrency" { queue: &'a str = QUEUE, group: &'a str = GROUP }
    => Read, Short, Queue(queue), ask_group((queue, group), GroupAsk::Concurrency);
RemoveGroupConcurrency "RemoveGroupConcurrency" { queue: &'a str = QUEUE, group: &'a str = GROUP }
    => Write, Short, Queue(queue), set_for_group((queue, group), Answer::Count("removed"), GroupLimit::Active(None));
SetGroupWeight "SetGroupWeight" {
    queue: &'a str = QUEUE,
    group: &'a str = GROUP,
    weight: u32 = integer("weight", 1, corq_shards::WEIGHT_MAX as i64).must(),
} => Write, Short, Queue(queue), set_for_group((queue, group), Answer::Ok, GroupLimit::Weight(*weight));
GetGroupWeight "GetGroupWeight" { queue: &'a str = QUEUE, group: &'a str = GROUP }
    => Read, Short, Queue(queue), ask_group((queue, group), GroupAsk::Weight);
PauseGroup "PauseGroup" { queue: &'a str = QUEUE, group: &'a str = GROUP }
    => Write, Short, Queue(queue), set_for_group((queue, group), Answer::Flag("changed"), GroupLimit::Paused(true));
ResumeGroup "ResumeGroup" { queue: &'a str = QUEUE, group: &'a str = GROUP }
    => Write, Short, Queue(queue), set_for_group((queue, group), Answer::Flag("changed"), GroupLimit::Paused(false));
IsGroupPaused "IsGroupPaused" { queue: &'a str = QUEUE, group: &'a str = GROUP }
    => Read, Short, Queue(queue), ask_group((queue, group), GroupAsk::IsPaused);
RateLimitGroup "RateLimitGroup" { queue: &'a str = QUEUE, group: &'a str = GROUP, hold_ms: u64 = DURATION }
    => Write, Short, Queue(queue), set_for_group((queue, group), Answer::Ok, GroupLimit::Hold(*hold_ms));
TrimEvents "TrimEvents" { queue: &'a str = QUEUE, length: u64 = integer("maxLength", 0, INTEGER_MAX).must() }
    => Write, Short, Queue(queue), trim_events();
SubscribeEvents "SubscribeEvents" { queue: &'a str = QUEUE } => Local, Short, Here, subscribe(queue);
UnsubscribeEvents "UnsubscribeEvents" {} => Local, Short, Here, unsubscribe();
Subscribe "Subscribe" {
    queues: Texts<'a> = optional("queues", Kind::Texts { items_max: EVENT_NAMES_MAX, chars_max: QUEUE_CHARS_MAX }),
    types: Option<StateFilter> = optional("types", Kind::Choices(EVENT_TYPES)),
    events: Texts<'a> = optional("events", Kind::Texts { items_max: EVENT_NAMES_MAX, chars_max: NAME_CHARS_MAX }),
    jobs: Texts<'a> = optional("jobs", Kind::Texts { items_max: EVENT_NAMES_MAX, chars_max: NAME_CHARS_MAX }),
    sample: u32 = integer("sample", 1, EVENT_SAMPLE_MAX).or(1),
    data: Option<bool> = optional("data", Kind::Flag),
    named: bool = flag("named"),
    ids: bool = flag("ids"),
    last_id: Option<&'a str> = optional("lastEventId", LINE),
} => Local, Short, Here, subscribe_by_choice();
Unsubscribe "Unsubscribe" {
    events: Texts<'a> = optional("events", Kind::Texts { items_max: EVENT_NAMES_MAX, chars_max: NAME_CHARS_MAX }),
} => Local, Short, Here, unsubscribe_from(*events);
Hello "Hello" {
    protocol_version: u64 = integer("protocolVersion", 1, INTEGER_MAX).must(),
    capabilities: Texts<'a> =
        optional("capabilities", Kind::Texts { items_max: LIST_MAX, chars_max: NAME_CHARS_MAX }).or_empty(),
} => Local, Short, Here, hello(*protocol_version);
Auth "Auth" { token: &'a str = required("token", Kind::Text { chars_min: 0, chars_max: LINE_CHARS_MAX }) }
    => Local, Short, Here, authenticate(token);
Whoami "Whoami" {} => Local, Short, Here, whoami();
AuditLog "AuditLog" {
    limit: u32 = integer("limit", 1, LISTING_MAX).or(LISTING_DEFAULT),
    before: Option<u64> = integer("before", 1, INTEGER_MAX),
} => Read, List, Here, audit_log(*limit, *before);
        }
    };
}
pub(crate) use command_table;

/// The fields of a row: as its function takes them, or as they are written.
macro_rules! fields_of {
    ([$specs:expr] $($_:tt)*) => { $specs };
    ({ $($spec:expr,)* }) => { &[$($spec),*] };
}

macro_rules! commands {
    ($($op:ident $name:literal $([$take:ident, $specs:expr])? {
        $($field:ident: $type:ty $(= $spec:expr)?),* $(,)?
    } => $class:expr, $reply:expr, $route:expr, $run:ident($($argument:expr),* $(,)?);)*) => {
        /// Which command, without its fields.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum Op { $($op),* }

        /// Every command, in the order of [`Op`].
        pub const COMMANDS: &[CommandSpec] = &{
            use Class::{Batch, Bulk, Local, Pull, Read, Scatter, Write};
            use ReplySize::{Jobs, List, Pulled, Short};
            [$(CommandSpec {
                name: $name,
                op: Op::$op,
                fields: fields_of!($([$specs])? { $($($spec,)?)* }),
                required: required_of(fields_of!($([$specs])? { $($($spec,)?)* })),
                bytes_max: bytes_max(fields_of!($([$specs])? { $($($spec,)?)* })),
                class: $class,
                reply: $reply,
                since: since(Op::$op),
            }),*]
        };
    };
}

command_table!(commands);

/// The version that a command came with. Those that no release of either version has tell nothing of their client.
const fn since(op: Op) -> Version {
    use Op::{
        GetDeduplicationJobId, GetDlqStats, GetGroupActiveCount, GetGroupConcurrency,
        GetGroupJobsCount, GetGroupRateLimit, GetGroupRateLimitTtl, GetGroupsJobsCount,
        GetQueueLimits, IsGroupPaused, MoveToWaitingChildren, PauseGroup, PushFlow, RateLimitGroup,
        RemoveDeduplicationKey, RemoveDlqJob, RemoveGroupConcurrency, RemoveGroupRateLimit,
        RemoveJobDeduplicationKey, ResumeGroup, SetGroupConcurrency, SetGroupRateLimit,
        SubscribeEvents, TrimEvents, UnsubscribeEvents,
    };
    match op {
        GetDeduplicationJobId
        | GetDlqStats
        | GetGroupActiveCount
        | GetGroupConcurrency
        | GetGroupJobsCount
        | GetGroupRateLimit
        | GetGroupRateLimitTtl
        | GetGroupsJobsCount
        | GetQueueLimits
        | IsGroupPaused
        | MoveToWaitingChildren
        | PauseGroup
        | PushFlow
        | RateLimitGroup
        | RemoveDeduplicationKey
        | RemoveDlqJob
        | RemoveGroupConcurrency
        | RemoveGroupRateLimit
        | RemoveJobDeduplicationKey
        | ResumeGroup
        | SetGroupConcurrency
        | SetGroupRateLimit
        | SubscribeEvents
        | TrimEvents
        | UnsubscribeEvents => Version::Three,
        _ => Version::Two,
    }
}

/// Whether the versions differ in what a command does or answers, other than that version 3 is more lenient with fields.
pub const fn differs(op: Op) -> bool {
    matches!(
        op,
        Op::ListQueues
            | Op::GetJobCounts
            | Op::Count
            | Op::GetCountsPerPriority
            | Op::GetResult
            | Op::GetChildrenValues
            | Op::Drain
            | Op::MoveToDelayed
            | Op::MoveToWait
            | Op::Discard
            | Op::ChangeDelay
    )
}

impl Op {
    #[inline]
    pub fn spec(self) -> &'static CommandSpec {
        &COMMANDS[self as usize]
    }
}

impl CommandSpec {
    /// The command of this name.
    pub fn find(name: &[u8]) -> Option<&'static Self> {
        COMMANDS.iter().find(|command| command.name.as_bytes() == name)
    }

    /// Whether a field that the command does not have is refused, where others pass over it: what is lost may have been a
    /// condition, without which the command means more jobs, more events or more shards.
    pub fn is_closed(&self) -> bool {
        self.class == Class::Bulk || matches!(self.op, Op::Subscribe | Op::History)
    }
}
