//! Objects within commands, and sets of words: their fields, kinds, bounds, defaults. Written once, read by every surface.

use super::field::{
    Coercion, FieldSpec, Kind, Preset, flag, integer, optional, required, required_of,
};
use super::limits::{
    ATTEMPTS_DEFAULT, ATTEMPTS_MAX, AUTO_RETRIES_MAX, BACKOFF_DEFAULT_MS, CHILDREN_MAX, DAY_MS,
    DEPENDS_ON_MAX, INTEGER_MAX, LINE_CHARS_MAX, LINES_MAX, NAME_CHARS_MAX, PAYLOAD_BYTES_MAX,
    RATE_MAX, SEARCH_VALUE_BYTES_MAX, STALLS_MAX, TAGS_MAX, YEAR_MS,
};
use corq_shards::dead_letter::reason::Cause;

/// Most fields of any command or object of the table.
pub const FIELDS_MAX: usize = 40;

/// The states of a job that a filter can name, in the order of their bits.
pub const STATES: &[&str] =
    &["waiting", "delayed", "active", "completed", "failed", "waiting-children"];

/// States that a listing can be asked for, in the order of their bits: the server's, and further ones that clients
/// count as states.
pub const LISTED: &[&str] = &[
    "waiting",
    "delayed",
    "active",
    "completed",
    "failed",
    "waiting-children",
    "prioritized",
    "paused",
    "wait",
];

/// Levels of a log entry.
pub const LOG_LEVELS: &[&str] = corq_shards::log_record::job_change::Level::NAMES;

/// Outcomes that a queue counts by the minute.
pub const METRICS: &[&str] = &["completed", "failed"];

/// Series of `History`, in the order of their bits.
pub const SERIES: &[&str] =
    &["pushed", "completed", "failed", "waiting", "waitP50", "waitP99", "runP50", "runP99"];

/// Parts of a sample, in the order of their bits.
pub const WATCHED: &[&str] = &["stats", "queues", "shards"];

/// The bit of queues in a mask of these.
pub const WATCHED_QUEUES: u32 = 1 << 1;

/// Changes of many jobs, in the order of [`super::bulk::Action`].
pub const ACTIONS: &[&str] =
    &["retry", "remove", "cancel", "promote", "discard", "delay", "priority"];

/// By what dead letters can be grouped.
pub const GROUPED_BY: &[&str] = &["error"];

/// Types of events, as subscribers see them.
pub const EVENT_TYPES: &[&str] = &[
    "pushed",
    "pulled",
    "completed",
    "failed",
    "progress",
    "stalled",
    "removed",
    "delayed",
    "duplicated",
    "retried",
    "waiting-children",
    "drained",
    "paused",
    "resumed",
];

/// Events that a webhook can ask for.
pub const WEBHOOK_EVENTS: &[&str] = &[
    "job.completed",
    "job.failed",
    "job.progress",
    "job.active",
    "job.waiting",
    "job.delayed",
    "job.stalled",
    "job.pushed",
    "job.started",
];

pub(super) const NAME: Kind = Kind::Text { chars_min: 1, chars_max: NAME_CHARS_MAX };
pub(super) const LINE: Kind = Kind::Text { chars_min: 1, chars_max: LINE_CHARS_MAX };
pub(super) const PAYLOAD: Kind = Kind::Payload { bytes_max: PAYLOAD_BYTES_MAX };
pub(super) const QUEUE: FieldSpec = required("queue", Kind::Queue);

/// The trace that a job belongs to.
pub(super) const TRACEPARENT: FieldSpec = optional("traceparent", Kind::Traceparent);
pub(super) const TRACESTATE: FieldSpec = optional("tracestate", Kind::Tracestate);

/// A job as pushed, by every surface. `jobId` and `customId` are two names of one thing: clients
/// use the first in PUSH and the second in PUSHB, and both are taken in both.
pub const JOB_FIELDS: &[FieldSpec] = &[
    required("data", PAYLOAD),
    optional("name", NAME).of_three(),
    FieldSpec { default: Preset::Integer(0), ..optional("priority", Kind::Priority) },
    integer("delay", 0, YEAR_MS).or(0).clamped(),
    integer("maxAttempts", 1, ATTEMPTS_MAX).or(ATTEMPTS_DEFAULT).whole().clamped(),
    FieldSpec {
        default: Preset::Integer(BACKOFF_DEFAULT_MS),
        ..optional("backoff", Kind::Backoff)
    },
    integer("ttl", 0, YEAR_MS),
    integer("timeout", 0, DAY_MS),
    optional("uniqueKey", NAME),
    optional("jobId", NAME).digits(),
    optional("customId", NAME).digits(),
    optional("tags", Kind::Texts { items_max: TAGS_MAX, chars_max: NAME_CHARS_MAX }).or_empty(),
    optional("groupId", NAME),
    flag("lifo").truth(),
    flag("removeOnComplete").truth(),
    flag("removeOnFail").truth(),
    flag("durable").truth(),
    optional("dependsOn", Kind::Texts { items_max: DEPENDS_ON_MAX, chars_max: NAME_CHARS_MAX })
        .or_empty()
        .digits(),
    optional("repeat", Kind::Repeat),
    optional("dedup", Kind::Dedup),
    integer("stallTimeout", 0, DAY_MS),
    optional("debounceId", NAME),
    integer("debounceTtl", 0, YEAR_MS),
    integer("stackTraceLimit", 0, LINES_MAX),
    integer("keepLogs", 0, LINES_MAX),
    integer("sizeLimit", 0, INTEGER_MAX),
    integer("timestamp", 0, INTEGER_MAX),
    integer("groupMaxSize", 1, INTEGER_MAX).of_three().strict(),
    optional("parentId", NAME).digits(),
    optional("childrenIds", Kind::Texts { items_max: DEPENDS_ON_MAX, chars_max: NAME_CHARS_MAX })
        .or_empty()
        .digits(),
    flag("failParentOnFailure"),
    flag("continueParentOnFailure"),
    flag("ignoreDependencyOnFailure"),
    flag("removeDependencyOnFailure"),
    TRACEPARENT,
    TRACESTATE,
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
        // In a flow version 3 is as strict as version 2, but for fractions of milliseconds.
        fields[at].on_three = match fields[at].on_three {
            Coercion::Number { is_whole: false, .. } => {
                Coercion::Number { is_whole: false, from_least: false }
            }
            _ => Coercion::None,
        };
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
    integer("delay", 0, YEAR_MS).or(0).clamped(),
    integer("maxAttempts", 1, ATTEMPTS_MAX).or(ATTEMPTS_DEFAULT).whole().clamped(),
    FieldSpec {
        default: Preset::Integer(BACKOFF_DEFAULT_MS),
        ..optional("backoff", Kind::Backoff)
    },
    integer("timeout", 0, DAY_MS),
    integer("stallTimeout", 0, DAY_MS),
    flag("removeOnComplete").truth(),
    flag("removeOnFail").truth(),
    TRACEPARENT,
    TRACESTATE,
];

/// The object `config` of `SetDlqConfig`. Null takes a bound away: see [`DLQ_CONFIG_NULLABLE`].
pub const DLQ_CONFIG_FIELDS: &[FieldSpec] = &[
    optional("autoRetry", Kind::Flag),
    integer("autoRetryInterval", 0, YEAR_MS).clamped(),
    integer("maxAutoRetries", 0, AUTO_RETRIES_MAX).clamped(),
    integer("maxAge", 0, INTEGER_MAX).clamped(),
    integer("maxEntries", 1, RATE_MAX).clamped(),
];

/// Fields of [`DLQ_CONFIG_FIELDS`] that can be null.
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

/// The object `filter` of `Bulk`.
pub const BULK_FILTER_FIELDS: &[FieldSpec] = &[
    optional("state", Kind::Choices(LISTED)),
    optional("name", NAME),
    optional("tag", NAME),
    optional("group", NAME),
    integer("from", 0, INTEGER_MAX),
    integer("to", 0, INTEGER_MAX),
    optional("text", NAME),
    optional("path", NAME),
    optional("value", Kind::Payload { bytes_max: SEARCH_VALUE_BYTES_MAX }),
    optional("error", LINE),
    optional("errorGroup", LINE),
];

/// The object `repeat`. Either `every` or `pattern` is required.
pub const REPEAT_FIELDS: &[FieldSpec] = &[
    integer("every", 1, INTEGER_MAX),
    integer("limit", 1, INTEGER_MAX),
    integer("count", 0, INTEGER_MAX).or(0),
    optional("pattern", LINE),
    optional("tz", NAME),
    flag("immediately"),
    integer("startDate", 0, INTEGER_MAX),
    integer("endDate", 0, INTEGER_MAX),
];

/// The object `group` of a pull. An `affinity` of null is another thing than none.
pub const GROUP_PULL_FIELDS: &[FieldSpec] = &[
    integer("concurrency", 1, INTEGER_MAX).strict(),
    optional("limit", Kind::GroupRate),
    optional("affinity", NAME),
];

/// The object `limit` in it.
pub const GROUP_RATE_FIELDS: &[FieldSpec] = &[
    integer("max", 1, INTEGER_MAX).must().strict(),
    integer("duration", 1, INTEGER_MAX).must().strict(),
];

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
/// The required ones of [`BULK_FILTER_FIELDS`].
pub const BULK_FILTER_REQUIRED: u64 = required_of(BULK_FILTER_FIELDS);
/// The required ones of [`REPEAT_FIELDS`].
pub const REPEAT_REQUIRED: u64 = required_of(REPEAT_FIELDS);

impl Kind {
    /// The fields of the object that a field of this kind holds, or of those in its list; none if it holds no such.
    pub const fn fields(self) -> &'static [FieldSpec] {
        match self {
            Self::Jobs => JOB_FIELDS,
            Self::Flow => FLOW_FIELDS,
            Self::FlowJob => FLOW_JOB_FIELDS,
            Self::Backoff => BACKOFF_FIELDS,
            Self::Repeat => REPEAT_FIELDS,
            Self::Dedup => DEDUP_FIELDS,
            Self::CronJob => CRON_JOB_FIELDS,
            Self::DlqConfig => DLQ_CONFIG_FIELDS,
            Self::StallConfig => STALL_CONFIG_FIELDS,
            Self::DlqFilter => DLQ_FILTER_FIELDS,
            Self::BulkFilter => BULK_FILTER_FIELDS,
            Self::GroupPull => GROUP_PULL_FIELDS,
            Self::GroupRate => GROUP_RATE_FIELDS,
            _ => &[],
        }
    }
}
