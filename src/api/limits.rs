//! Every bound of the interface, named, with its unit last.
//!
//! The figures come from the interface description where it gives one; those it leaves open are
//! marked as chosen, with the reason.

/// Shards of a server.
pub const SHARDS_MAX: u16 = 1024;

/// Largest payload, result or progress message, as serialized on the surface it came by.
pub const PAYLOAD_BYTES_MAX: u32 = 10 * 1024 * 1024;

/// A field that may hold as many bytes is large: its value is checked a slice at a time, and not read again.
pub const LARGE_BYTES_MIN: u32 = 1 << 20;

/// Longest queue name. Only ASCII is allowed in one, so characters are bytes.
pub const QUEUE_CHARS_MAX: u32 = 256;

/// Longest custom id, key, group, owner, tag, worker or schedule name, in characters.
pub const NAME_CHARS_MAX: u32 = 256;

/// Most tags of one job. Chosen: tags are labels, and a job's record stays bounded.
pub const TAGS_MAX: u32 = 100;

/// Most dependencies of one job. Chosen, for the same reason.
pub const DEPENDS_ON_MAX: u32 = 1000;

/// Most dependencies of all jobs of one batch. Chosen: each is looked up in the turn of the push.
pub const BATCH_DEPENDENCIES_MAX: usize = 10_000;

/// Most dependencies of all jobs of a flow. Chosen: all of them are checked in one turn.
pub const FLOW_DEPENDENCIES_MAX: usize = 50_000;

/// Most children of one job.
pub const CHILDREN_MAX: u32 = corq_shards::family::CHILDREN_MAX as u32;

/// Payload and children of one job together, at [`corq_shards::family::CHILD_BYTES`] per child. Chosen: it
/// always fits a record of the log.
pub const FAMILY_BYTES_MAX: usize = corq_shards::family::FAMILY_BYTES_MAX;

/// All texts and lists of one job beside its payload and its children, together. Chosen: with this a job's record
/// without its payload always fits a log block.
pub const OPTIONS_BYTES_MAX: usize = 48 * 1024;

/// Longest value that a search compares with what is at a path. Chosen: a request for a list stays short.
pub const SEARCH_VALUE_BYTES_MAX: u32 = 4096;
/// Longest time that one search goes on, and how long if nothing is said. Chosen: what is left goes on with its cursor.
pub const SEARCH_BUDGET_MAX_MS: i64 = 60_000;
pub const SEARCH_BUDGET_DEFAULT_MS: i64 = 1000;

/// Levels below its first job that a flow is shown with, and how many if nothing is said. Chosen.
pub const FLOW_DEPTH_MAX: i64 = 100;
pub const FLOW_DEPTH_DEFAULT: i64 = 10;

/// Most entries of a batch (`jobs`, `ids`), and its most bytes. Chosen: all of it is done in one turn, or nothing.
pub const BATCH_MAX: u32 = 10_000;
pub const BATCH_BYTES_MAX: usize = 16 << 20;

/// Most keys and values of a batch beside its payloads, which are checked before. Chosen: fifteen fields for each of ten
/// thousand jobs with room to spare, and no more than a turn can decode.
pub const BATCH_VALUES_MAX: usize = 600_000;

/// Most cron expressions of the jobs of a batch; one of more than 64 bytes counts as several. Chosen: each takes as long to
/// read and to search as several jobs take to come.
pub const BATCH_PATTERNS_MAX: usize = 1000;

/// Longest error text of a failed attempt. A longer one is cut, not refused: a failure must
/// never fail for being talkative.
pub const ERROR_BYTES_MAX: u32 = 64 * 1024;

/// Longest stack trace of a failed attempt. What is longer loses its last lines, for the same reason.
pub const STACK_BYTES_MAX: u32 = 64 * 1024;

/// Longest message of a job's log.
pub const LOG_BYTES_MAX: u32 = 64 * 1024;

/// Longest URL, cron expression or secret, in characters. Chosen.
pub const LINE_CHARS_MAX: u32 = 4096;

/// Most queues, names or jobs in a choice of events. Chosen: each event is compared with them.
pub const EVENT_NAMES_MAX: u32 = 100;

/// Largest number of jobs of which a subscriber hears one. Chosen.
pub const EVENT_SAMPLE_MAX: i64 = 1_000_000;

/// Most queues, capabilities or events in one list. Chosen.
pub const LIST_MAX: u32 = 1000;

/// Bounds of a job's priority, either side of zero.
pub const PRIORITY_MAX: i64 = 1_000_000;

/// Largest priority of a job in a group, where the lowest number goes first.
pub const GROUP_PRIORITY_MAX: i64 = 2_097_151;

/// A day, in milliseconds: the most for `backoff`, `timeout` and `lockTtl`.
pub const DAY_MS: i64 = 86_400_000;

/// A year, in milliseconds: the most for `delay` and `ttl`.
pub const YEAR_MS: i64 = 365 * DAY_MS;

/// Most attempts of a job.
pub const ATTEMPTS_MAX: i64 = 1000;

/// Attempts of a job that does not say.
pub const ATTEMPTS_DEFAULT: i64 = 3;

/// Backoff of a job that does not say, in milliseconds.
pub const BACKOFF_DEFAULT_MS: i64 = 1000;

/// Longest wait of PULL and PULLB.
pub const PULL_TIMEOUT_MAX_MS: i64 = 60_000;

/// Most jobs of one PULLB.
pub const PULL_COUNT_MAX: i64 = 1000;

/// Life of a lock that does not say, in milliseconds.
pub const LOCK_TTL_DEFAULT_MS: i64 = 30_000;

/// Longest wait of `WaitJob`.
pub const WAIT_TIMEOUT_MAX_MS: i64 = 600_000;

/// Wait of a `WaitJob` that does not say, in milliseconds.
pub const WAIT_TIMEOUT_DEFAULT_MS: i64 = 30_000;

/// Most jobs of one listing.
pub const LISTING_MAX: i64 = 1000;

/// Jobs of a listing that does not say.
pub const LISTING_DEFAULT: i64 = 100;

/// Most jobs of one `Clean`. Chosen: it answers with their ids, which must fit a frame.
pub const CLEAN_MAX: i64 = 1_000_000;

/// Jobs of a `Clean` that does not say.
pub const CLEAN_DEFAULT: i64 = 1000;

/// Most retries of a job in the dead-letter queue by itself. Chosen: 32 bits.
pub const AUTO_RETRIES_MAX: i64 = u32::MAX as i64;

/// Most stalls of a job before it is buried. Chosen: they are counted in a byte.
pub const STALLS_MAX: i64 = 254;

/// Largest `keepLogs` and `stackTraceLimit`. Chosen: far beyond what is kept, since clients write large
/// numbers where they mean all.
pub const LINES_MAX: i64 = 1_000_000;

/// The largest integer that every client can hold exactly, for what has no bound of its own.
pub const INTEGER_MAX: i64 = (1 << 53) - 1;

/// Largest per-queue limit (jobs per second, active jobs). Chosen: 32 bits.
pub const RATE_MAX: i64 = u32::MAX as i64;

/// Most points of `History` and `Heatmap`. Chosen: a day by the minute, and a reply of a few hundred kilobytes.
pub const POINTS_MAX: i64 = 1440;

/// Points of a `History` or `Heatmap` that does not say: an hour by steps of ten seconds.
pub const POINTS_DEFAULT: i64 = 360;

/// Shortest length of a point of these, in milliseconds.
pub const POINT_MS_MIN: i64 = corq_shards::stats::history::span::STEP_MS as i64;

/// Least and longest time between two samples of a `Watch`, in milliseconds. Chosen: a page needs no more.
pub const WATCH_MS_MIN: i64 = 1000;
/// The longest.
pub const WATCH_MS_MAX: i64 = 60_000;

/// Most queues in a sample of a `Watch`. Chosen: a sample is made and sent in one piece.
pub const WATCH_QUEUES_MAX: i64 = 100;

/// Queues in a sample of a `Watch` that does not say.
pub const WATCH_QUEUES_DEFAULT: i64 = 20;

/// Most posts of a `WebhookDeliveries`: as many as are remembered of a webhook.
pub const DELIVERIES_MAX: i64 = corq_io::webhook::DELIVERIES_MAX as i64;

/// Most runs of a `CronPreview`. Chosen: each is searched for.
pub const PREVIEW_MAX: i64 = 100;

/// Runs of a `CronPreview` that does not say.
pub const PREVIEW_DEFAULT: i64 = 5;

/// Most shards that a field can name. Chosen: 16 bits; there are as many as cores.
pub const SHARD_MAX: i64 = u16::MAX as i64;

/// Most jobs that one `Bulk` names by their ids. Chosen: what a page shows at once; more have something in common to be found by.
pub const BULK_IDS_MAX: u32 = 1000;

/// Deepest nesting of arrays and maps in one value. Chosen: JSON surfaces cannot show more, and
/// readers that recurse must not fall over it.
pub const DEPTH_MAX: u32 = 128;
