//! Specifications of fields that several rows of the table in [`super::commands`] take, or that are too long to stand in a
//! row.

use super::field::{FieldSpec, Kind, Preset, flag, integer, optional, required};
use super::limits::{
    BULK_IDS_MAX, DAY_MS, INTEGER_MAX, LISTING_DEFAULT, LISTING_MAX, LOCK_TTL_DEFAULT_MS,
    NAME_CHARS_MAX, POINT_MS_MIN, POINTS_DEFAULT, POINTS_MAX, PRIORITY_MAX, PULL_COUNT_MAX,
    PULL_TIMEOUT_MAX_MS, RATE_MAX, SEARCH_BUDGET_DEFAULT_MS, SEARCH_BUDGET_MAX_MS,
    SEARCH_VALUE_BYTES_MAX, YEAR_MS,
};
use super::listing::{DATA_FORMS, JOB_SHOWN, ORDERS, QUEUE_SHOWN, QUEUE_SORTS};
use super::objects::{
    ACTIONS, GROUPED_BY, JOB_FIELDS, LINE, LISTED, NAME, PAYLOAD, QUEUE, TRACEPARENT, TRACESTATE,
};
pub(super) const ID: FieldSpec = required("id", Kind::JobId);
pub(super) const TOKEN: FieldSpec = optional("token", Kind::Token);
pub(super) const WORKER_ID: FieldSpec = required("workerId", NAME);
pub(super) const STATE: FieldSpec = optional("state", Kind::Choices(LISTED));
const PULL_TIMEOUT: FieldSpec = integer("timeout", 0, PULL_TIMEOUT_MAX_MS).or(0);
const OWNER: FieldSpec = optional("owner", NAME);
const LOCK_TTL: FieldSpec = integer("lockTtl", 1, DAY_MS).or(LOCK_TTL_DEFAULT_MS);
const DETACH: FieldSpec = flag("detach");
pub(super) const LIMIT: FieldSpec = integer("limit", 1, RATE_MAX).must();
const GROUP_PULL: FieldSpec = optional("group", Kind::GroupPull).of_three();
pub(super) const GROUP: FieldSpec = required("groupId", NAME);
pub(super) const DURATION: FieldSpec = integer("duration", 1, INTEGER_MAX).must().strict();
pub(super) const IDS: FieldSpec = required("ids", Kind::JobIds);
pub(super) const TOKENS: FieldSpec = optional("tokens", Kind::Tokens);
pub(super) const COUNT: FieldSpec = integer("count", 0, INTEGER_MAX);
pub(super) const START: FieldSpec = integer("start", 0, INTEGER_MAX).or(0);
/// To the end, if it is -1.
pub(super) const END: FieldSpec = integer("end", -1, INTEGER_MAX).or(-1);
pub(super) const POINT_MS: FieldSpec = integer("step", POINT_MS_MIN, DAY_MS).or(POINT_MS_MIN);
pub(super) const POINTS: FieldSpec = integer("points", 1, POINTS_MAX).or(POINTS_DEFAULT);
pub(super) const UNTIL: FieldSpec = integer("until", 0, INTEGER_MAX);
pub(super) const FILTER: FieldSpec = optional("filter", Kind::DlqFilter).of_three();
pub(super) const KEY: FieldSpec = required("deduplicationId", NAME);

/// A push to one queue: the queue, then the job's own fields.
pub(super) const PUSH: &[FieldSpec] = &{
    let mut fields = [QUEUE; JOB_FIELDS.len() + 1];
    let mut at = 0;
    while at < JOB_FIELDS.len() {
        fields[at + 1] = JOB_FIELDS[at];
        at += 1;
    }
    fields
};
/// A push of many: the trace is that of its jobs that name none.
pub(super) const PUSH_MANY: &[FieldSpec] =
    &[QUEUE, required("jobs", Kind::Jobs), TRACEPARENT, TRACESTATE];
pub(super) const PUSH_FLOW: &[FieldSpec] = &[required("jobs", Kind::Flow), TRACEPARENT, TRACESTATE];
pub(super) const PULL: &[FieldSpec] = &[QUEUE, PULL_TIMEOUT, OWNER, LOCK_TTL, DETACH, GROUP_PULL];
pub(super) const PULL_MANY: &[FieldSpec] = &[
    QUEUE,
    integer("count", 1, PULL_COUNT_MAX).must(),
    PULL_TIMEOUT,
    OWNER,
    LOCK_TTL,
    DETACH,
    GROUP_PULL,
];
pub(super) const ACK_MANY: &[FieldSpec] = &[
    IDS,
    optional("results", Kind::Results),
    TOKENS,
    optional("removeOnCompletes", Kind::Flags).of_three(),
];
pub(super) const EXTEND_MANY: &[FieldSpec] =
    &[IDS, TOKENS, required("durations", Kind::Integers { min: 1, max: DAY_MS })];
const AFTER: FieldSpec = optional("after", LINE);
const ORDER: FieldSpec = optional("order", Kind::Choice(ORDERS));
const JOBS_LIMIT: FieldSpec = integer("limit", 0, LISTING_MAX).or(LISTING_DEFAULT);
/// Which jobs are on a page by a cursor, and what is shown of them.
const OF_PAGES: [FieldSpec; 9] = [
    AFTER,
    ORDER,
    optional("fields", Kind::Choices(JOB_SHOWN)),
    optional("data", Kind::Choice(DATA_FORMS)),
    optional("name", NAME),
    optional("tag", NAME),
    optional("group", NAME),
    integer("from", 0, INTEGER_MAX),
    integer("to", 0, INTEGER_MAX),
];

/// Fields of a command, and behind them those of pages.
const fn with_pages<const OWN: usize, const ALL: usize>(own: [FieldSpec; OWN]) -> [FieldSpec; ALL] {
    let mut fields = [QUEUE; ALL];
    let mut at = 0;
    while at < ALL {
        fields[at] = if at < OWN { own[at] } else { OF_PAGES[at - OWN] };
        at += 1;
    }
    fields
}

pub(super) const GET_JOBS: &[FieldSpec] = &with_pages::<5, 14>([
    QUEUE,
    STATE,
    JOBS_LIMIT,
    integer("offset", 0, INTEGER_MAX).or(0),
    optional("asc", Kind::Flag),
]);
pub(super) const SEARCH: &[FieldSpec] = &with_pages::<7, 16>([
    FieldSpec { required: false, ..QUEUE },
    optional("text", NAME),
    optional("path", NAME),
    optional("value", Kind::Payload { bytes_max: SEARCH_VALUE_BYTES_MAX }),
    STATE,
    JOBS_LIMIT,
    integer("budgetMs", 1, SEARCH_BUDGET_MAX_MS).or(SEARCH_BUDGET_DEFAULT_MS),
]);
pub(super) const BULK: &[FieldSpec] = &[
    required("action", Kind::Choice(ACTIONS)),
    FieldSpec { required: false, ..QUEUE },
    optional("ids", Kind::Texts { items_max: BULK_IDS_MAX, chars_max: NAME_CHARS_MAX }).digits(),
    optional("filter", Kind::BulkFilter),
    integer("delay", 0, YEAR_MS),
    integer("priority", -PRIORITY_MAX, PRIORITY_MAX),
    integer("limit", 0, INTEGER_MAX),
    flag("dryRun"),
];
pub(super) const TASK: FieldSpec = required("task", NAME);
pub(super) const GROUPED: FieldSpec =
    FieldSpec { default: Preset::Text("error"), ..optional("by", Kind::Choice(GROUPED_BY)) };
pub(super) const LIST_QUEUES: &[FieldSpec] = &[
    optional("prefix", NAME),
    optional("sort", Kind::Choice(QUEUE_SORTS)),
    ORDER,
    integer("limit", 0, LISTING_MAX),
    AFTER,
    optional("fields", Kind::Choices(QUEUE_SHOWN)),
];
pub(super) const CRON: &[FieldSpec] = &[
    required("name", NAME),
    QUEUE,
    required("data", PAYLOAD),
    optional("schedule", LINE),
    integer("repeatEvery", 1, INTEGER_MAX),
    integer("priority", -PRIORITY_MAX, PRIORITY_MAX).or(0),
    integer("maxLimit", 1, INTEGER_MAX),
    optional("timezone", NAME),
    optional("jobName", NAME).of_three(),
    optional("uniqueKey", NAME),
    optional("dedup", Kind::Dedup),
    flag("immediately"),
    flag("skipIfNoWorker"),
    optional("skipMissedOnRestart", Kind::Flag),
    flag("preventOverlap"),
    optional("jobOptions", Kind::CronJob),
];
