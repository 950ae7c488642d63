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
//! The fields are decoded in the order of the row, each by its type; a type that cannot hold what its specification
//! lets through does not compile. A command of another shape names in `[]` the function of the decoder that puts
//! it together, and the specifications it takes; the fields then have none.

pub use super::field::{FieldSpec, Kind, Preset, required_of};
use super::field::{flag, integer, optional, required};
use super::limits::{
    CLEAN_DEFAULT, CLEAN_MAX, DAY_MS, ERROR_BYTES_MAX, INTEGER_MAX, LINE_CHARS_MAX, LINES_MAX,
    LIST_MAX, LISTING_DEFAULT, LISTING_MAX, LOCK_TTL_DEFAULT_MS, LOG_BYTES_MAX, NAME_CHARS_MAX,
    PAYLOAD_BYTES_MAX, PRIORITY_MAX, PULL_COUNT_MAX, PULL_TIMEOUT_MAX_MS, RATE_MAX,
    STACK_BYTES_MAX, WAIT_TIMEOUT_DEFAULT_MS, WAIT_TIMEOUT_MAX_MS, YEAR_MS,
};
pub use super::objects::*;
use super::size::bytes_max;

/// One command.
#[derive(Clone, Copy, Debug)]
pub struct CommandSpec {
    /// The name in `cmd`.
    pub name: &'static str,
    /// The command, for a `match`.
    pub op: Op,
    /// Its fields, beside `cmd` and `reqId`.
    pub fields: &'static [FieldSpec],
    /// Those without which it is refused, as [`required_of`] tells.
    pub required: u64,
    /// Most bytes that it can need, as [`bytes_max`] tells.
    pub bytes_max: usize,
    /// What it does to what the server keeps.
    pub class: Class,
    /// How much it may be answered with.
    pub reply: ReplySize,
}

/// What a command does to what the server keeps, and with that what it needs.
///
/// While the log has no room for what ends jobs, commands of every class wait: `server/overload/write_stall.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// It leaves everything as it is. One shard answers.
    Read,
    /// The same, but every shard answers its part.
    Scatter,
    /// It is about connections and workers, which no record tells of.
    Local,
    /// It is recorded.
    Write,
    /// It takes jobs for its client, which must be there for them, and is recorded.
    Pull,
    /// It goes over jobs of a queue in slices, and is recorded.
    Bulk,
    /// It is about as many jobs as its lists have items, is recorded, and is cut into pieces where it is long.
    Batch(Batched),
}

/// What is done with the jobs of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Batched {
    /// They are pushed to a queue.
    Push,
    /// They are pushed together, each to its queue.
    Flow,
    /// Each is held by a worker, which has done something with it.
    Held(PerJob),
}

/// What is done with each job that a worker holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PerJob {
    /// It is completed: all of them or none.
    Ack,
    /// Its lock is renewed.
    Renew,
    /// Its lock is renewed for a time of its own.
    Extend,
}

impl Class {
    /// Whether a record tells of it, so that it needs the files of the log.
    pub const fn is_recorded(self) -> bool {
        match self {
            Self::Read | Self::Scatter | Self::Local => false,
            Self::Write | Self::Pull | Self::Bulk | Self::Batch(_) => true,
        }
    }
}

/// How much a command may be answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplySize {
    /// Little, or what must not wait.
    Short,
    /// At most one job, which a pull gets.
    Pulled,
    /// A job or a value, or several jobs.
    Jobs,
    /// A list, up to a whole frame.
    List,
}

const ID: FieldSpec = required("id", Kind::JobId);
const TOKEN: FieldSpec = optional("token", Kind::Token);
const WORKER_ID: FieldSpec = required("workerId", NAME);
const STATE: FieldSpec = optional("state", Kind::Choices(STATES));
const PULL_TIMEOUT: FieldSpec = integer("timeout", 0, PULL_TIMEOUT_MAX_MS).or(0);
const OWNER: FieldSpec = optional("owner", NAME);
const LOCK_TTL: FieldSpec = integer("lockTtl", 1, DAY_MS).or(LOCK_TTL_DEFAULT_MS);
const DETACH: FieldSpec = flag("detach");
const LIMIT: FieldSpec = integer("limit", 1, RATE_MAX).must();
const GROUP_PULL: FieldSpec = optional("group", Kind::GroupPull);
const GROUP: FieldSpec = required("groupId", NAME);
const DURATION: FieldSpec = integer("duration", 1, INTEGER_MAX).must();
const IDS: FieldSpec = required("ids", Kind::JobIds);
const TOKENS: FieldSpec = optional("tokens", Kind::Tokens);
const COUNT: FieldSpec = integer("count", 0, INTEGER_MAX);
const START: FieldSpec = integer("start", 0, INTEGER_MAX).or(0);
/// To the end, if it is -1.
const END: FieldSpec = integer("end", -1, INTEGER_MAX).or(-1);
const FILTER: FieldSpec = optional("filter", Kind::DlqFilter);
const KEY: FieldSpec = required("deduplicationId", NAME);

/// A push to one queue: the queue, then the job's own fields.
const PUSH: &[FieldSpec] = &{
    let mut fields = [QUEUE; JOB_FIELDS.len() + 1];
    let mut at = 0;
    while at < JOB_FIELDS.len() {
        fields[at + 1] = JOB_FIELDS[at];
        at += 1;
    }
    fields
};
const PULL: &[FieldSpec] = &[QUEUE, PULL_TIMEOUT, OWNER, LOCK_TTL, DETACH, GROUP_PULL];
const PULL_MANY: &[FieldSpec] = &[
    QUEUE,
    integer("count", 1, PULL_COUNT_MAX).must(),
    PULL_TIMEOUT,
    OWNER,
    LOCK_TTL,
    DETACH,
    GROUP_PULL,
];
const ACK_MANY: &[FieldSpec] =
    &[IDS, optional("results", Kind::Results), TOKENS, optional("removeOnCompletes", Kind::Flags)];
const EXTEND_MANY: &[FieldSpec] =
    &[IDS, TOKENS, required("durations", Kind::Integers { min: 1, max: DAY_MS })];
const CRON: &[FieldSpec] = &[
    required("name", NAME),
    QUEUE,
    required("data", PAYLOAD),
    optional("schedule", LINE),
    integer("repeatEvery", 1, INTEGER_MAX),
    integer("priority", -PRIORITY_MAX, PRIORITY_MAX).or(0),
    integer("maxLimit", 1, INTEGER_MAX),
    optional("timezone", NAME),
    optional("jobName", NAME),
    optional("uniqueKey", NAME),
    optional("dedup", Kind::Dedup),
    flag("immediately"),
    flag("skipIfNoWorker"),
    optional("skipMissedOnRestart", Kind::Flag),
    flag("preventOverlap"),
    optional("jobOptions", Kind::CronJob),
];

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
    remove: bool = flag("removeOnComplete"),
} => Write, Short, Job(*job), ack(*job, *token, result, *remove);
Pull "PULL" [take_pull_one, PULL] { pull: Pull<'a> }
    => Pull, Pulled, Queue(pull.queue), pull(&pull.command(), false);
PushBatch "PUSHB" { queue: &'a str = QUEUE, jobs: Vec<NewJob<'a>> = required("jobs", Kind::Jobs) }
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
    remove: bool = flag("removeOnFail"),
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
    message: Option<&'a str> =
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
Heartbeat "Heartbeat" { worker_id: &'a str = required("id", NAME) }
    => Local, Short, Name(worker_id), worker_heartbeat(worker_id);
WaitJob "WaitJob" {
    job: JobRef<'a> = ID,
    timeout_ms: u64 = integer("timeout", 0, WAIT_TIMEOUT_MAX_MS).or(WAIT_TIMEOUT_DEFAULT_MS),
} => Read, Jobs, Job(*job), wait_job(*job, *timeout_ms);
GetJob "GetJob" { job: JobRef<'a> = ID } => Read, Jobs, Job(*job), get_job(*job);
GetState "GetState" { job: JobRef<'a> = ID } => Read, Short, Job(*job), get_state(*job);
GetResult "GetResult" { job: JobRef<'a> = ID } => Read, Jobs, Job(*job), get_result(*job);
GetProgress "GetProgress" { job: JobRef<'a> = ID } => Read, Jobs, Job(*job), get_progress(*job);
GetLogs "GetLogs" { job: JobRef<'a> = ID, start: u64 = START, end: Option<u64> = END }
    => Read, List, Job(*job), get_logs(*job, *start, *end);
GetJobByCustomId "GetJobByCustomId" { name: &'a str = required("customId", NAME) }
    => Read, Jobs, Job(JobRef::Custom(name)), get_job(JobRef::Custom(name));
GetJobs "GetJobs" {
    queue: &'a str = QUEUE,
    states: Option<StateFilter> = optional("state", Kind::Choices(LISTED)),
    limit: u32 = integer("limit", 0, LISTING_MAX).or(LISTING_DEFAULT),
    offset: u64 = integer("offset", 0, INTEGER_MAX).or(0),
    oldest_first: Option<bool> = optional("asc", Kind::Flag),
} => Read, List, Queue(queue), get_jobs(listing_of(queue, *states, (*offset, *limit), *oldest_first));
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
    lifo: Option<bool> = optional("lifo", Kind::Flag),
} => Write, Short, Job(*job), change(*job, Answer::Ok, Change::Prioritize { priority: *priority, lifo: *lifo });
Promote "Promote" { job: JobRef<'a> = ID } => Write, Short, Job(*job), change(*job, Answer::Ok, Change::Promote);
MoveToDelayed "MoveToDelayed" {
    job: JobRef<'a> = ID,
    delay_ms: u64 = integer("delay", 0, YEAR_MS).must(),
    token: Option<Token> = TOKEN,
} => Write, Short, Job(*job), change(*job, Answer::Ok, Change::PutOff { delay_ms: *delay_ms, token: *token });
Discard "Discard" { job: JobRef<'a> = ID, token: Option<Token> = TOKEN }
    => Write, Short, Job(*job), change(*job, Answer::Ok, Change::Discard { token: *token });
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
    delay_ms: u64 = integer("delay", 0, YEAR_MS).must(),
    token: Option<Token> = TOKEN,
} => Write, Short, Job(*job), change(*job, Answer::Ok, Change::Delay { delay_ms: *delay_ms, token: *token });
PushFlow "PUSHF" { jobs: Vec<FlowJob<'a>> = required("jobs", Kind::Flow) }
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
    => Write, Short, Job(*job), change(*job, Answer::Flag("moved"), Change::Block { token: *token });
ClearLogs "ClearLogs" { job: JobRef<'a> = ID, keep: u32 = integer("keepLogs", 0, LINES_MAX).or(0) }
    => Write, Short, Job(*job), change(*job, Answer::Ok, Change::CutLog(*keep));
RemoveJobDeduplicationKey "RemoveJobDeduplicationKey" { job: JobRef<'a> = ID }
    => Write, Short, Job(*job), change(*job, Answer::Flag("removed"), Change::FreeKey);
GetDeduplicationJobId "GetDeduplicationJobId" { queue: &'a str = QUEUE, key: &'a str = KEY }
    => Read, Short, Queue(queue), holder_of_key(queue, key);
RemoveDeduplicationKey "RemoveDeduplicationKey" { queue: &'a str = QUEUE, key: &'a str = KEY }
    => Write, Short, Queue(queue), free_key(queue, key);
PromoteJobs "PromoteJobs" { queue: &'a str = QUEUE, count: Option<u64> = COUNT }
    => Bulk, Short, Queue(queue), begin_bulk(&Command::PromoteAll { queue, count: count.unwrap_or(u64::MAX) });
Pause "Pause" { queue: &'a str = QUEUE }
    => Write, Short, Queue(queue), set(&Command::Pause { queue, paused: true });
Resume "Resume" { queue: &'a str = QUEUE }
    => Write, Short, Queue(queue), set(&Command::Pause { queue, paused: false });
IsPaused "IsPaused" { queue: &'a str = QUEUE } => Read, Short, Queue(queue), is_paused(queue);
Drain "Drain" { queue: &'a str = QUEUE } => Bulk, Short, Queue(queue), begin_bulk(&Command::Drain { queue });
Obliterate "Obliterate" { queue: &'a str = QUEUE } => Bulk, Short, Queue(queue), begin_bulk(&Command::Obliterate { queue });
Clean "Clean" {
    queue: &'a str = QUEUE,
    grace_ms: u64 = integer("grace", 0, INTEGER_MAX).must(),
    states: Option<StateFilter> = STATE,
    limit: u32 = integer("limit", 0, CLEAN_MAX).or(CLEAN_DEFAULT),
} => Bulk, List, Queue(queue), clean(queue, *grace_ms, *states, *limit);
ListQueues "ListQueues" {} => Scatter, List, All, list_rows(Rows::Queues);
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
CronList "CronList" {} => Scatter, List, All, list_rows(Rows::Crons);
Stats "Stats" {} => Scatter, Short, All, scatter(ScatterQuery::Stats);
Metrics "Metrics" {
    queue: Option<&'a str> = optional("queue", Kind::Queue),
    of: Finished = FieldSpec { default: Preset::Text("completed"), ..optional("type", Kind::Choice(METRICS)) },
    start: u64 = START,
    end: Option<u64> = END,
} => Scatter, Short, queue.map_or(All, Queue), metrics(*queue, *of, (*start, *end));
Prometheus "Prometheus" {} => Scatter, List, All, scatter(ScatterQuery::Prometheus);
BackupPoint "BackupPoint" {} => Write, Short, Here, ask_backup_point();
RegisterWorker "RegisterWorker" {
    name: &'a str = required("name", NAME),
    queues: Texts<'a> = required("queues", Kind::Queues { items_max: LIST_MAX }),
    worker_id: Option<&'a str> = FieldSpec { required: false, ..WORKER_ID },
} => Local, Short, worker_id.map_or(Here, Name), register_worker(name, *queues, *worker_id);
UnregisterWorker "UnregisterWorker" { worker_id: &'a str = WORKER_ID }
    => Local, Short, Name(worker_id), unregister_worker(worker_id);
ListWorkers "ListWorkers" {} => Scatter, List, All, list_rows(Rows::Workers);
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
ListWebhooks "ListWebhooks" {} => Read, List, Registry, list_webhooks();
RateLimit "RateLimit" {
    queue: &'a str = QUEUE,
    limit: u32 = LIMIT,
    span_ms: u32 = integer("duration", 1, DAY_MS).or(1000),
    ttl_ms: Option<u64> = integer("ttl", 1, YEAR_MS),
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
    jobs: u64 = integer("max", 1, INTEGER_MAX).must(),
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
    most: u64 = integer("concurrency", 1, INTEGER_MAX).must(),
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
Hello "Hello" {
    protocol_version: u64 = integer("protocolVersion", 1, INTEGER_MAX).must(),
    capabilities: Texts<'a> =
        optional("capabilities", Kind::Texts { items_max: LIST_MAX, chars_max: NAME_CHARS_MAX }).or_empty(),
} => Local, Short, Here, hello(*protocol_version);
Auth "Auth" { token: &'a str = required("token", Kind::Text { chars_min: 0, chars_max: LINE_CHARS_MAX }) }
    => Local, Short, Here, authenticate(token);
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
            }),*]
        };
    };
}

command_table!(commands);

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
}
