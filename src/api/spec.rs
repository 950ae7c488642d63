//! The table of commands: names, fields, kinds, bounds, defaults. Written once, read by every surface.
//!
//! The order of a command's fields is the order in which the decoder hands them to
//! [`crate::api::request`]; debug builds check the names on the way.

pub use super::field::{FieldSpec, Kind, Preset, required_of};
use super::field::{flag, integer, optional, required};
use super::limits::{
    ATTEMPTS_DEFAULT, ATTEMPTS_MAX, AUTO_RETRIES_MAX, BACKOFF_DEFAULT_MS, CHILDREN_MAX,
    CLEAN_DEFAULT, CLEAN_MAX, DAY_MS, DEPENDS_ON_MAX, ERROR_BYTES_MAX, INTEGER_MAX, LINE_CHARS_MAX,
    LINES_MAX, LIST_MAX, LISTING_DEFAULT, LISTING_MAX, LOCK_TTL_DEFAULT_MS, LOG_BYTES_MAX,
    NAME_CHARS_MAX, PAYLOAD_BYTES_MAX, PRIORITY_MAX, PULL_COUNT_MAX, PULL_TIMEOUT_MAX_MS, RATE_MAX,
    STACK_BYTES_MAX, STALLS_MAX, TAGS_MAX, WAIT_TIMEOUT_DEFAULT_MS, WAIT_TIMEOUT_MAX_MS, YEAR_MS,
};

use super::size::bytes_max;
use corq_shards::dead_letter::reason::Cause;

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
}

/// Most fields of any command or object of the table.
pub const FIELDS_MAX: usize = 40;

/// The states of a job that a filter can name, in the order of their bits.
pub const STATES: &[&str] =
    &["waiting", "delayed", "active", "completed", "failed", "waiting-children"];

/// What a listing can be asked for, in the order of their bits: states, and what clients count as states of
/// their own.
pub const LISTED: &[&str] = &[
    "waiting",
    "delayed",
    "active",
    "completed",
    "failed",
    "waiting-children",
    "prioritized",
    "paused",
];

/// Levels of a log entry.
pub const LOG_LEVELS: &[&str] = corq_shards::log_record::job_change::Level::NAMES;

/// What a queue counts by the minute.
pub const METRICS: &[&str] = &["completed", "failed"];

/// Events that a webhook can ask for.
pub const WEBHOOK_EVENTS: &[&str] = &[
    "job.completed",
    "job.failed",
    "job.progress",
    "job.active",
    "job.waiting",
    "job.delayed",
    "job.stalled",
];

const NAME: Kind = Kind::Text { chars_min: 1, chars_max: NAME_CHARS_MAX };
const LINE: Kind = Kind::Text { chars_min: 1, chars_max: LINE_CHARS_MAX };
const PAYLOAD: Kind = Kind::Payload { bytes_max: PAYLOAD_BYTES_MAX };

/// A job as pushed, by every surface. `jobId` and `customId` are two names of one thing: clients
/// use the first in PUSH and the second in PUSHB, and both are taken in both.
pub const JOB_FIELDS: &[FieldSpec] = &[
    required("data", PAYLOAD),
    optional("name", NAME),
    FieldSpec { default: Preset::Integer(0), ..optional("priority", Kind::Priority) },
    integer("delay", 0, YEAR_MS).or(0),
    integer("maxAttempts", 1, ATTEMPTS_MAX).or(ATTEMPTS_DEFAULT),
    FieldSpec {
        default: Preset::Integer(BACKOFF_DEFAULT_MS),
        ..optional("backoff", Kind::Backoff)
    },
    integer("ttl", 0, YEAR_MS),
    integer("timeout", 0, DAY_MS),
    optional("uniqueKey", NAME),
    optional("jobId", NAME),
    optional("customId", NAME),
    optional("tags", Kind::Texts { items_max: TAGS_MAX, chars_max: NAME_CHARS_MAX }).or_empty(),
    optional("groupId", NAME),
    flag("lifo"),
    flag("removeOnComplete"),
    flag("removeOnFail"),
    flag("durable"),
    optional("dependsOn", Kind::Texts { items_max: DEPENDS_ON_MAX, chars_max: NAME_CHARS_MAX })
        .or_empty(),
    optional("repeat", Kind::Repeat),
    optional("dedup", Kind::Dedup),
    integer("stallTimeout", 0, DAY_MS),
    optional("debounceId", NAME),
    integer("debounceTtl", 0, YEAR_MS),
    integer("stackTraceLimit", 0, LINES_MAX),
    integer("keepLogs", 0, LINES_MAX),
    integer("sizeLimit", 0, INTEGER_MAX),
    integer("timestamp", 0, INTEGER_MAX),
    integer("groupMaxSize", 1, INTEGER_MAX),
    optional("parentId", NAME),
    optional("childrenIds", Kind::Texts { items_max: DEPENDS_ON_MAX, chars_max: NAME_CHARS_MAX })
        .or_empty(),
    flag("failParentOnFailure"),
    flag("continueParentOnFailure"),
    flag("ignoreDependencyOnFailure"),
    flag("removeDependencyOnFailure"),
];

/// A job of a flow: it may name as many others as there may be in one.
pub const FLOW_JOB_FIELDS: &[FieldSpec] = &{
    let mut fields = [QUEUE; JOB_FIELDS.len()];
    let mut at = 0;
    while at < JOB_FIELDS.len() {
        fields[at] = JOB_FIELDS[at];
        if let Kind::Texts { items_max: DEPENDS_ON_MAX, chars_max } = fields[at].kind {
            fields[at].kind = Kind::Texts { items_max: CHILDREN_MAX, chars_max };
        }
        at += 1;
    }
    fields
};

/// An entry of a flow.
pub const FLOW_FIELDS: &[FieldSpec] =
    &[required("id", NAME), QUEUE, required("input", Kind::FlowJob)];

/// The required ones of [`FLOW_FIELDS`].
pub const FLOW_REQUIRED: u64 = required_of(FLOW_FIELDS);

/// How the wait between attempts grows, in the order of [`corq_shards::job::overrides::Growth`].
pub const GROWTHS: &[&str] = &["exponential", "fixed"];

/// The object form of `backoff`.
pub const BACKOFF_FIELDS: &[FieldSpec] = &[
    integer("delay", 0, DAY_MS).or(BACKOFF_DEFAULT_MS),
    FieldSpec { default: Preset::Text("exponential"), ..optional("type", Kind::Choice(GROWTHS)) },
    integer("maxDelay", 0, DAY_MS),
];

/// The object `dedup`.
pub const DEDUP_FIELDS: &[FieldSpec] =
    &[integer("ttl", 0, YEAR_MS), flag("extend"), flag("replace")];

/// The object `jobOptions` of a schedule.
pub const CRON_JOB_FIELDS: &[FieldSpec] = &[
    integer("delay", 0, YEAR_MS).or(0),
    integer("maxAttempts", 1, ATTEMPTS_MAX).or(ATTEMPTS_DEFAULT),
    FieldSpec {
        default: Preset::Integer(BACKOFF_DEFAULT_MS),
        ..optional("backoff", Kind::Backoff)
    },
    integer("timeout", 0, DAY_MS),
    integer("stallTimeout", 0, DAY_MS),
    flag("removeOnComplete"),
    flag("removeOnFail"),
];

/// The object `config` of `SetDlqConfig`. Null takes a bound away: see [`DLQ_CONFIG_NULLABLE`].
pub const DLQ_CONFIG_FIELDS: &[FieldSpec] = &[
    optional("autoRetry", Kind::Flag),
    integer("autoRetryInterval", 0, YEAR_MS),
    integer("maxAutoRetries", 0, AUTO_RETRIES_MAX),
    integer("maxAge", 0, INTEGER_MAX),
    integer("maxEntries", 1, RATE_MAX),
];

/// Those of [`DLQ_CONFIG_FIELDS`] that can be null.
pub const DLQ_CONFIG_NULLABLE: [&str; 2] = ["maxAge", "maxEntries"];

/// The object `config` of `SetStallConfig`.
pub const STALL_CONFIG_FIELDS: &[FieldSpec] = &[
    optional("enabled", Kind::Flag),
    integer("stallInterval", 1, DAY_MS),
    integer("maxStalls", 0, STALLS_MAX),
    integer("gracePeriod", 0, DAY_MS),
];

/// The object `filter` of `Dlq` and `RetryDlq`.
pub const DLQ_FILTER_FIELDS: &[FieldSpec] = &[
    optional("reason", Kind::Choice(Cause::NAMES)),
    integer("olderThan", 0, INTEGER_MAX),
    integer("newerThan", 0, INTEGER_MAX),
    flag("retriable"),
    flag("expired"),
    integer("limit", 0, INTEGER_MAX),
    integer("offset", 0, INTEGER_MAX).or(0),
];

/// The object `repeat`.
pub const REPEAT_FIELDS: &[FieldSpec] = &[
    integer("every", 1, INTEGER_MAX).must(),
    integer("limit", 1, INTEGER_MAX),
    integer("count", 0, INTEGER_MAX).or(0),
];

/// The object `group` of a pull. An `affinity` of null is another thing than none.
pub const GROUP_PULL_FIELDS: &[FieldSpec] = &[
    integer("concurrency", 1, INTEGER_MAX),
    optional("limit", Kind::GroupRate),
    optional("affinity", NAME),
];

/// The object `limit` in it.
pub const GROUP_RATE_FIELDS: &[FieldSpec] =
    &[integer("max", 1, INTEGER_MAX).must(), integer("duration", 1, INTEGER_MAX).must()];

/// The required ones of [`GROUP_PULL_FIELDS`].
pub const GROUP_PULL_REQUIRED: u64 = required_of(GROUP_PULL_FIELDS);
/// The required ones of [`GROUP_RATE_FIELDS`].
pub const GROUP_RATE_REQUIRED: u64 = required_of(GROUP_RATE_FIELDS);

/// The required ones of [`JOB_FIELDS`].
pub const JOB_REQUIRED: u64 = required_of(JOB_FIELDS);
/// The required ones of [`BACKOFF_FIELDS`].
pub const BACKOFF_REQUIRED: u64 = required_of(BACKOFF_FIELDS);
/// The required ones of [`DEDUP_FIELDS`].
pub const DEDUP_REQUIRED: u64 = required_of(DEDUP_FIELDS);
/// The required ones of [`CRON_JOB_FIELDS`].
pub const CRON_JOB_REQUIRED: u64 = required_of(CRON_JOB_FIELDS);
/// The required ones of [`DLQ_CONFIG_FIELDS`].
pub const DLQ_CONFIG_REQUIRED: u64 = required_of(DLQ_CONFIG_FIELDS);
/// The required ones of [`STALL_CONFIG_FIELDS`].
pub const STALL_CONFIG_REQUIRED: u64 = required_of(STALL_CONFIG_FIELDS);
/// The required ones of [`DLQ_FILTER_FIELDS`].
pub const DLQ_FILTER_REQUIRED: u64 = required_of(DLQ_FILTER_FIELDS);
/// The required ones of [`REPEAT_FIELDS`].
pub const REPEAT_REQUIRED: u64 = required_of(REPEAT_FIELDS);

const QUEUE: FieldSpec = required("queue", Kind::Queue);
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

/// A push to one queue: the queue, then the job's own fields.
const PUSH_FIELDS: &[FieldSpec] = &{
    let mut fields = [QUEUE; JOB_FIELDS.len() + 1];
    let mut at = 0;
    while at < JOB_FIELDS.len() {
        fields[at + 1] = JOB_FIELDS[at];
        at += 1;
    }
    fields
};

macro_rules! commands {
    ($($op:ident $name:literal $fields:expr;)*) => {
        /// Which command, without its fields.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[allow(missing_docs, reason = "the names are those of the protocol, described in its table")]
        pub enum Op { $($op),* }

        /// Every command. The busiest come first, since a name is found by walking down the table.
        pub const COMMANDS: &[CommandSpec] =
            &[$(CommandSpec {
                name: $name,
                op: Op::$op,
                fields: $fields,
                required: required_of($fields),
                bytes_max: bytes_max($fields),
            }),*];
    };
}

commands! {
    Push "PUSH" PUSH_FIELDS;
    Ack "ACK" &[ID, optional("result", PAYLOAD), TOKEN, flag("removeOnComplete")];
    Pull "PULL" &[QUEUE, PULL_TIMEOUT, OWNER, LOCK_TTL, DETACH, GROUP_PULL];
    PushBatch "PUSHB" &[QUEUE, required("jobs", Kind::Jobs)];
    PullBatch "PULLB" &[
        QUEUE,
        integer("count", 1, PULL_COUNT_MAX).must(),
        PULL_TIMEOUT,
        OWNER,
        LOCK_TTL,
        DETACH,
        GROUP_PULL,
    ];
    AckBatch "ACKB" &[
        required("ids", Kind::JobIds),
        optional("results", Kind::Results),
        optional("tokens", Kind::Tokens),
        optional("removeOnCompletes", Kind::Flags),
    ];
    Fail "FAIL" &[
        ID,
        optional("error", Kind::LongText { bytes_max: ERROR_BYTES_MAX, cut: true }),
        TOKEN,
        flag("unrecoverable"),
        optional("stack", Kind::Stack { bytes_max: STACK_BYTES_MAX }),
        flag("removeOnFail"),
    ];
    JobHeartbeat "JobHeartbeat" &[ID, TOKEN];
    JobHeartbeatBatch "JobHeartbeatB"
        &[required("ids", Kind::JobIds), optional("tokens", Kind::Tokens)];
    Progress "Progress" &[
        ID,
        required("progress", Kind::Number { min: 0, max: 100 }),
        optional("message", Kind::LongText { bytes_max: PAYLOAD_BYTES_MAX, cut: false }),
    ];
    AddLog "AddLog" &[
        ID,
        required("message", Kind::LongText { bytes_max: LOG_BYTES_MAX, cut: false }),
        FieldSpec {
            default: Preset::Text("info"),
            ..optional("level", Kind::Choice(LOG_LEVELS))
        },
    ];
    Ping "Ping" &[];
    Heartbeat "Heartbeat" &[required("id", NAME)];
    WaitJob "WaitJob"
        &[ID, integer("timeout", 0, WAIT_TIMEOUT_MAX_MS).or(WAIT_TIMEOUT_DEFAULT_MS)];
    GetJob "GetJob" &[ID];
    GetState "GetState" &[ID];
    GetResult "GetResult" &[ID];
    GetProgress "GetProgress" &[ID];
    GetLogs "GetLogs"
        &[ID, integer("start", 0, INTEGER_MAX).or(0), integer("end", -1, INTEGER_MAX).or(-1)];
    GetJobByCustomId "GetJobByCustomId" &[required("customId", NAME)];
    GetJobs "GetJobs" &[
        QUEUE,
        optional("state", Kind::Choices(LISTED)),
        integer("limit", 0, LISTING_MAX).or(LISTING_DEFAULT),
        integer("offset", 0, INTEGER_MAX).or(0),
        optional("asc", Kind::Flag),
    ];
    GetJobCounts "GetJobCounts" &[QUEUE];
    GetCountsPerPriority "GetCountsPerPriority" &[QUEUE];
    Count "Count" &[QUEUE];
    Cancel "Cancel" &[ID];
    Update "Update" &[ID, required("data", PAYLOAD)];
    ChangePriority "ChangePriority"
        &[ID, integer("priority", -PRIORITY_MAX, PRIORITY_MAX).must(), optional("lifo", Kind::Flag)];
    Promote "Promote" &[ID];
    MoveToDelayed "MoveToDelayed" &[ID, integer("delay", 0, YEAR_MS).must(), TOKEN];
    Discard "Discard" &[ID, TOKEN];
    ExtendLock "ExtendLock" &[ID, TOKEN, integer("duration", 1, DAY_MS).must()];
    ExtendLocks "ExtendLocks" &[
        required("ids", Kind::JobIds),
        optional("tokens", Kind::Tokens),
        required("durations", Kind::Integers { min: 1, max: DAY_MS }),
    ];
    MoveToWait "MoveToWait" &[ID, TOKEN];
    ChangeDelay "ChangeDelay" &[ID, integer("delay", 0, YEAR_MS).must(), TOKEN];
    PushFlow "PUSHF" &[required("jobs", Kind::Flow)];
    GetChildrenValues "GetChildrenValues" &[ID];
    GetFailedChildrenValues "GetFailedChildrenValues" &[ID];
    GetIgnoredChildrenFailures "GetIgnoredChildrenFailures" &[ID];
    UpdateParent "UpdateParent"
        &[required("childId", Kind::JobId), required("parentId", Kind::JobId)];
    RemoveChildDependency "RemoveChildDependency" &[ID];
    RemoveUnprocessedChildren "RemoveUnprocessedChildren" &[ID];
    MoveToWaitingChildren "MoveToWaitingChildren" &[ID, TOKEN];
    ClearLogs "ClearLogs" &[ID, integer("keepLogs", 0, LINES_MAX).or(0)];
    RemoveJobDeduplicationKey "RemoveJobDeduplicationKey" &[ID];
    GetDeduplicationJobId "GetDeduplicationJobId" &[QUEUE, required("deduplicationId", NAME)];
    RemoveDeduplicationKey "RemoveDeduplicationKey" &[QUEUE, required("deduplicationId", NAME)];
    PromoteJobs "PromoteJobs" &[QUEUE, integer("count", 0, INTEGER_MAX)];
    Pause "Pause" &[QUEUE];
    Resume "Resume" &[QUEUE];
    IsPaused "IsPaused" &[QUEUE];
    Drain "Drain" &[QUEUE];
    Obliterate "Obliterate" &[QUEUE];
    Clean "Clean" &[
        QUEUE,
        integer("grace", 0, INTEGER_MAX).must(),
        STATE,
        integer("limit", 0, CLEAN_MAX).or(CLEAN_DEFAULT),
    ];
    ListQueues "ListQueues" &[];
    Dlq "Dlq" &[
        QUEUE,
        integer("count", 0, LISTING_MAX).or(LISTING_DEFAULT),
        optional("filter", Kind::DlqFilter),
    ];
    RetryDlq "RetryDlq" &[
        QUEUE,
        optional("jobId", Kind::JobId),
        integer("count", 0, INTEGER_MAX),
        optional("filter", Kind::DlqFilter),
    ];
    PurgeDlq "PurgeDlq" &[QUEUE];
    GetDlqStats "GetDlqStats" &[QUEUE];
    SetDlqConfig "SetDlqConfig" &[QUEUE, required("config", Kind::DlqConfig)];
    GetDlqConfig "GetDlqConfig" &[QUEUE];
    SetStallConfig "SetStallConfig" &[QUEUE, required("config", Kind::StallConfig)];
    GetStallConfig "GetStallConfig" &[QUEUE];
    RetryCompleted "RetryCompleted" &[
        QUEUE,
        optional("id", Kind::JobId),
        integer("count", 0, INTEGER_MAX),
        integer("timestamp", 0, INTEGER_MAX),
    ];
    RemoveDlqJob "RemoveDlqJob" &[QUEUE, required("jobId", Kind::JobId)];
    Cron "Cron" &[
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
    CronDelete "CronDelete" &[required("name", NAME)];
    CronGet "CronGet" &[required("name", NAME)];
    CronList "CronList" &[];
    Stats "Stats" &[];
    Metrics "Metrics" &[
        optional("queue", Kind::Queue),
        FieldSpec {
            default: Preset::Text("completed"),
            ..optional("type", Kind::Choice(METRICS))
        },
        integer("start", 0, INTEGER_MAX).or(0),
        integer("end", -1, INTEGER_MAX).or(-1),
    ];
    Prometheus "Prometheus" &[];
    BackupPoint "BackupPoint" &[];
    RegisterWorker "RegisterWorker" &[
        required("name", NAME),
        required("queues", Kind::Queues { items_max: LIST_MAX }),
        FieldSpec { required: false, ..WORKER_ID },
    ];
    UnregisterWorker "UnregisterWorker" &[WORKER_ID];
    ListWorkers "ListWorkers" &[];
    AddWebhook "AddWebhook" &[
        required("url", LINE),
        required("events", Kind::TextsOf(WEBHOOK_EVENTS)),
        FieldSpec { required: false, ..QUEUE },
        optional("secret", LINE),
    ];
    RemoveWebhook "RemoveWebhook" &[required("webhookId", NAME)];
    SetWebhookEnabled "SetWebhookEnabled" &[required("id", NAME), required("enabled", Kind::Flag)];
    ListWebhooks "ListWebhooks" &[];
    RateLimit "RateLimit"
        &[QUEUE, LIMIT, integer("duration", 1, DAY_MS).or(1000), integer("ttl", 1, YEAR_MS)];
    RateLimitClear "RateLimitClear" &[QUEUE];
    SetConcurrency "SetConcurrency" &[QUEUE, LIMIT];
    ClearConcurrency "ClearConcurrency" &[QUEUE];
    GetQueueLimits "GetQueueLimits" &[QUEUE, integer("maxJobs", 1, RATE_MAX).or(1)];
    GetGroupsJobsCount "GetGroupsJobsCount" &[QUEUE];
    GetGroupJobsCount "GetGroupJobsCount" &[QUEUE, GROUP];
    GetGroupActiveCount "GetGroupActiveCount" &[QUEUE, GROUP];
    GetGroups "GetGroups" &[
        QUEUE,
        integer("limit", 0, LISTING_MAX).or(LISTING_DEFAULT),
        optional("after", NAME),
    ];
    SetGroupRateLimit "SetGroupRateLimit"
        &[QUEUE, GROUP, integer("max", 1, INTEGER_MAX).must(), DURATION];
    GetGroupRateLimit "GetGroupRateLimit" &[QUEUE, GROUP];
    RemoveGroupRateLimit "RemoveGroupRateLimit" &[QUEUE, GROUP];
    GetGroupRateLimitTtl "GetGroupRateLimitTtl"
        &[QUEUE, GROUP, integer("maxJobs", 0, INTEGER_MAX)];
    SetGroupConcurrency "SetGroupConcurrency"
        &[QUEUE, GROUP, integer("concurrency", 1, INTEGER_MAX).must()];
    GetGroupConcurrency "GetGroupConcurrency" &[QUEUE, GROUP];
    RemoveGroupConcurrency "RemoveGroupConcurrency" &[QUEUE, GROUP];
    SetGroupWeight "SetGroupWeight"
        &[QUEUE, GROUP, integer("weight", 1, corq_shards::WEIGHT_MAX as i64).must()];
    GetGroupWeight "GetGroupWeight" &[QUEUE, GROUP];
    PauseGroup "PauseGroup" &[QUEUE, GROUP];
    ResumeGroup "ResumeGroup" &[QUEUE, GROUP];
    IsGroupPaused "IsGroupPaused" &[QUEUE, GROUP];
    RateLimitGroup "RateLimitGroup" &[QUEUE, GROUP, DURATION];
    TrimEvents "TrimEvents" &[QUEUE, integer("maxLength", 0, INTEGER_MAX).must()];
    SubscribeEvents "SubscribeEvents" &[QUEUE];
    UnsubscribeEvents "UnsubscribeEvents" &[];
    Hello "Hello" &[
        integer("protocolVersion", 1, INTEGER_MAX).must(),
        optional("capabilities", Kind::Texts { items_max: LIST_MAX, chars_max: NAME_CHARS_MAX })
            .or_empty(),
    ];
    Auth "Auth" &[required("token", Kind::Text { chars_min: 0, chars_max: LINE_CHARS_MAX })];
}

impl CommandSpec {
    /// The command of this name.
    pub fn find(name: &[u8]) -> Option<&'static Self> {
        COMMANDS.iter().find(|command| command.name.as_bytes() == name)
    }
}
