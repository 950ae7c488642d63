//! A frame becomes a request: one pass over the map, borrowed from the receive buffer.
//!
//! What a field must look like stands in [`crate::api::spec`]; here the fields are put together.
//! Keys may come in any order, `cmd` included. A field named twice is refused, since two readers
//! could take it for two different commands; unknown fields are checked for form and ignored.
//!
//! | file | responsibility |
//! |---|---|
//! | `beginning` | which command a long request is, by its beginning |
//! | `choices` | words of a fixed set |
//! | `fields` | the fields of one map, in one pass |
//! | `job` | the fields of a job that is pushed |
//! | `objects` | fields that are objects: `backoff`, `repeat`, `jobs` |
//! | `pieces` | long batches, cut into frames of their own |
//! | `settings` | settings of queues and schedules, and filters |
//! | `stack_trace` | the lines of a stack trace |
//! | `value` | one value of a field |

pub mod beginning;
pub(super) mod choices;
pub(crate) mod fields;
pub(crate) mod job;
pub(super) mod objects;
pub mod pieces;
pub(super) mod settings;
pub(super) mod stack_trace;
pub(crate) mod value;

use corq_shards::command::GroupLimit;
use corq_shards::group::GroupRate;
use corq_shards::job::new_job::NewJob;
use corq_shards::job::overrides::Dedup;
use corq_shards::log_record::cron::CronRules;
use corq_shards::log_record::job_change::Level;

use crate::api::UNKNOWN_COMMAND;
use crate::api::request::{
    Ack, AddWebhook, Answer, Batch, Body, Cadence, Cron, Fail, GroupAsk, Pull, Refused,
    RegisterWorker, Request, StateFilter,
};
use crate::api::spec::{CommandSpec, Op};

use super::decode::fields::{Aside, Complaint, Fields};
use super::decode::job::take_job;
use super::decode::value::cut;
use super::msgpack::{Malformed, Reader, Texts};

/// Most bytes of an encoded `reqId`: it is kept while its command waits, and stands in every answer.
const REQ_ID_BYTES_MAX: usize = 4096;

pub(super) const RESULTS_LENGTH: &str = "results must have the same length as ids";
pub(super) const REMOVES_LENGTH: &str = "removeOnCompletes must have the same length as ids";
pub(super) const DURATIONS_LENGTH: &str = "durations must have the same length as ids";
pub(super) const TOKENS_LENGTH: &str = "tokens must not be longer than ids";

const REQ_ID_TOO_LONG: &str = "reqId must have at most 4096 bytes";

/// Decodes the payload of one frame.
pub fn decode(frame: &[u8]) -> Result<Request<'_>, Refused<'_>> {
    decode_map(frame).map_err(|error| Refused { req_id: find_req_id(frame), error })
}

/// How far a request has been decoded whose lists come in pieces, each in a frame of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// The place of the first item of the next piece.
    pub place: usize,
    /// Bytes of fields that are not known, in the pieces before it.
    pub ignored_bytes: usize,
}

/// Decodes a frame that brings a piece of a longer request: errors name the place in that request.
pub fn decode_piece<'a>(frame: &'a [u8], progress: &mut Progress) -> Result<Request<'a>, Box<str>> {
    let Progress { place: base, ignored_bytes } = *progress;
    decode_into(frame, Aside { ignored_bytes, base, ..Aside::default() }, |aside| {
        progress.ignored_bytes = aside.ignored_bytes;
    })
}

/// Whether a frame that was refused is an attempt to authenticate.
pub fn is_auth(frame: &[u8]) -> bool {
    let mut reader = Reader::new(frame);
    let Ok(Some(entries)) = reader.map() else { return false };
    find_command(reader, entries).is_ok_and(|spec| spec.op == Op::Auth)
}

#[inline]
fn decode_map(frame: &[u8]) -> Result<Request<'_>, Complaint> {
    decode_into(frame, Aside::default(), |_| {})
}

/// `done` looks at what has been put aside before it becomes a command.
#[inline]
fn decode_into<'a>(
    frame: &'a [u8],
    mut aside: Aside<'a>,
    done: impl FnOnce(&Aside<'_>),
) -> Result<Request<'a>, Complaint> {
    let mut reader = Reader::new(frame);
    let Some(entries) = reader.map()? else {
        return Err("Invalid frame: it is not a map".into());
    };
    // Clients put `cmd` first; for those that do not, it is looked for and the map read again.
    let mut ahead = reader;
    let first = if entries > 0 { ahead.text_bytes()? } else { None };
    let spec = if first == Some(b"cmd") { command(&mut ahead)? } else { None };
    let (spec, cmd_is_first) = match spec {
        Some(spec) => (spec, true),
        None => (find_command(reader, entries)?, false),
    };
    let mut cmd_seen = cmd_is_first;
    let mut left = entries;
    if cmd_is_first {
        reader = ahead;
        left -= 1;
    }

    let mut fields = Fields::new(spec.fields, spec.required);
    let mut req_id = None;
    while left > 0 {
        left -= 1;
        let key = reader.key()?;
        if key == b"reqId" {
            if !reader.absent()? {
                let Some(value) = reader.skip_within(REQ_ID_BYTES_MAX)? else {
                    return Err(REQ_ID_TOO_LONG.into());
                };
                if req_id.replace(value).is_some() {
                    return Err(repeated("reqId"));
                }
            }
        } else if key == b"cmd" {
            if !reader.absent()? {
                reader.skip()?;
                if std::mem::replace(&mut cmd_seen, true) {
                    return Err(repeated("cmd"));
                }
            }
        } else {
            fields.read(key, &mut reader, &mut aside)?;
        }
    }
    if !reader.rest().is_empty() {
        return Err("Invalid frame: bytes follow the command".into());
    }
    fields.complete()?;
    done(&aside);
    Ok(Request { op: spec.op, req_id, body: body(spec.op, &mut fields, aside)? })
}

#[cold]
fn repeated(name: &str) -> Complaint {
    format!("{name} {}", crate::api::FIELD_REPEATED).into()
}

/// Reads the value of `cmd`; `None` if it counts as absent.
#[inline]
fn command(reader: &mut Reader<'_>) -> Result<Option<&'static CommandSpec>, Complaint> {
    if reader.absent()? {
        return Ok(None);
    }
    let Some(name) = reader.text_bytes()? else { return Err("cmd must be a string".into()) };
    CommandSpec::find(name).map(Some).ok_or_else(|| unknown(name))
}

#[cold]
fn unknown(name: &[u8]) -> Complaint {
    /// A name is shown, not a payload: enough to recognise it.
    const SHOWN_BYTES_MAX: usize = 64;
    match std::str::from_utf8(name) {
        Ok(name) => {
            let shown = cut(name, SHOWN_BYTES_MAX);
            format!("{UNKNOWN_COMMAND}{shown}").into()
        }
        Err(_) => Malformed::NotUtf8.into(),
    }
}

/// Looks for `cmd` anywhere in the map. What else is wrong is found when the map is read.
#[cold]
fn find_command(mut reader: Reader<'_>, entries: usize) -> Result<&'static CommandSpec, Complaint> {
    for _ in 0..entries {
        if reader.pass_key()? != b"cmd" {
            reader.pass()?;
        } else if let Some(spec) = command(&mut reader)? {
            return Ok(spec);
        }
    }
    Err("cmd is required".into())
}

/// The `reqId` of a frame that is refused, if it stands before whatever makes it unreadable, or has not come, and is no
/// longer than it may be.
#[cold]
pub fn find_req_id(frame: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(frame);
    let entries = reader.map_begun().ok()??;
    for _ in 0..entries {
        if reader.pass_key().ok()? != b"reqId" {
            reader.pass().ok()?;
        } else if !reader.absent().ok()? {
            return reader.skip_within(REQ_ID_BYTES_MAX).ok()?;
        }
    }
    None
}

/// Puts a command together from its fields, taken in the order of the table.
fn body<'a>(op: Op, f: &mut Fields<'a>, mut aside: Aside<'a>) -> Result<Body<'a>, Complaint> {
    Ok(match op {
        Op::Push => Body::Push { queue: f.text("queue"), job: take_job(f, &mut aside, false)? },
        Op::Ack => {
            let (job, result, token) = (f.job("id"), f.raw("result"), f.token("token"));
            Body::Ack(Ack { job, token, result, remove: f.flag("removeOnComplete") })
        }
        Op::Pull => {
            let queue = f.text("queue");
            Body::Pull(take_pull(f, &mut aside, queue, 1))
        }
        Op::PushBatch => Body::PushBatch { queue: f.text("queue"), jobs: aside.jobs },
        Op::PushFlow => Body::PushFlow(aside.flow),
        Op::PullBatch => {
            let (queue, count) = (f.text("queue"), f.integer("count"));
            Body::PullBatch(take_pull(f, &mut aside, queue, count as u32))
        }
        Op::AckBatch => {
            f.aside("ids");
            if f.aside("results") && aside.results.len() != aside.ids.len() {
                return Err(RESULTS_LENGTH.into());
            }
            f.aside("tokens");
            if f.aside("removeOnCompletes") && aside.flags.len() != aside.ids.len() {
                return Err(REMOVES_LENGTH.into());
            }
            Body::AckBatch(take_batch(aside)?)
        }
        Op::Fail => {
            let (job, error, token) = (f.job("id"), f.text("error"), f.token("token"));
            let unrecoverable = f.flag("unrecoverable");
            f.aside("stack");
            let (stack, remove) = (aside.stack, f.flag("removeOnFail"));
            Body::Fail(Fail { job, token, error, unrecoverable, stack, remove })
        }
        Op::JobHeartbeat => Body::JobHeartbeat { job: f.job("id"), token: f.token("token") },
        Op::JobHeartbeatBatch => Body::JobHeartbeatBatch(take_batch(aside)?),
        Op::Progress => Body::Progress {
            job: f.job("id"),
            progress: f.float("progress"),
            message: f.text_or_none("message"),
        },
        Op::AddLog => Body::AddLog {
            job: f.job("id"),
            message: f.text("message"),
            level: match f.choice("level") {
                0 => Level::Info,
                1 => Level::Warn,
                _ => Level::Error,
            },
        },
        Op::Ping => Body::Ping,
        Op::SubscribeEvents => Body::SubscribeEvents(f.text("queue")),
        Op::UnsubscribeEvents => Body::UnsubscribeEvents,
        Op::Heartbeat => Body::Heartbeat { worker_id: f.text("id") },
        Op::WaitJob => Body::WaitJob { job: f.job("id"), timeout_ms: f.integer("timeout") as u64 },
        Op::GetJob => Body::GetJob(f.job("id")),
        Op::GetState => Body::GetState(f.job("id")),
        Op::GetResult => Body::GetResult(f.job("id")),
        Op::GetProgress => Body::GetProgress(f.job("id")),
        Op::GetLogs => Body::GetLogs {
            job: f.job("id"),
            start: f.integer("start") as u64,
            end: u64::try_from(f.integer("end")).ok(),
        },
        Op::GetJobByCustomId => Body::GetJobByCustomId(f.text("customId")),
        Op::GetJobs => Body::GetJobs {
            queue: f.text("queue"),
            states: f.mask("state").map(StateFilter),
            limit: f.integer("limit") as u32,
            offset: f.integer("offset") as u64,
            newest_first: f.flag_or_none("asc") == Some(false),
        },
        Op::GetJobCounts => Body::GetJobCounts(f.text("queue")),
        Op::GetCountsPerPriority => Body::GetCountsPerPriority(f.text("queue")),
        Op::Count => Body::Count(f.text("queue")),
        Op::Cancel => Body::Cancel(f.job("id")),
        Op::Update => Body::Update { job: f.job("id"), data: f.raw("data") },
        Op::ChangePriority => {
            let (job, priority) = (f.job("id"), f.integer("priority") as i32);
            Body::ChangePriority { job, priority, lifo: f.flag_or_none("lifo") }
        }
        Op::Promote => Body::Promote(f.job("id")),
        Op::MoveToDelayed => {
            let (job, delay_ms) = (f.job("id"), f.integer("delay") as u64);
            Body::MoveToDelayed { job, delay_ms, token: f.token("token") }
        }
        Op::Discard => Body::Discard { job: f.job("id"), token: f.token("token") },
        Op::ExtendLock => {
            let (job, token) = (f.job("id"), f.token("token"));
            Body::ExtendLock { job, token, ttl_ms: f.integer("duration") as u32 }
        }
        Op::ExtendLocks => {
            if aside.integers.len() != aside.ids.len() {
                return Err(DURATIONS_LENGTH.into());
            }
            Body::ExtendLocks(take_batch(aside)?)
        }
        Op::MoveToWait => Body::MoveToWait { job: f.job("id"), token: f.token("token") },
        Op::ChangeDelay => {
            let (job, delay_ms) = (f.job("id"), f.integer("delay") as u64);
            Body::ChangeDelay { job, delay_ms, token: f.token("token") }
        }
        Op::ClearLogs => Body::ClearLogs { job: f.job("id"), keep: f.integer("keepLogs") as u32 },
        Op::GetChildrenValues => Body::GetChildrenValues(f.job("id")),
        Op::GetFailedChildrenValues => Body::GetFailedChildrenValues(f.job("id")),
        Op::GetIgnoredChildrenFailures => Body::GetIgnoredChildrenFailures(f.job("id")),
        Op::RemoveChildDependency => Body::RemoveChildDependency(f.job("id")),
        Op::RemoveUnprocessedChildren => Body::RemoveUnprocessedChildren(f.job("id")),
        Op::MoveToWaitingChildren => {
            Body::MoveToWaitingChildren { job: f.job("id"), token: f.token("token") }
        }
        Op::UpdateParent => {
            Body::UpdateParent { child: f.job("childId"), parent: f.job("parentId") }
        }
        Op::RemoveJobDeduplicationKey => Body::RemoveJobDeduplicationKey(f.job("id")),
        Op::GetDeduplicationJobId => {
            Body::GetDeduplicationJobId { queue: f.text("queue"), key: f.text("deduplicationId") }
        }
        Op::RemoveDeduplicationKey => {
            Body::RemoveDeduplicationKey { queue: f.text("queue"), key: f.text("deduplicationId") }
        }
        Op::PromoteJobs => {
            Body::PromoteJobs { queue: f.text("queue"), count: f.integer_or_none("count") }
        }
        Op::Pause => Body::Pause(f.text("queue")),
        Op::Resume => Body::Resume(f.text("queue")),
        Op::IsPaused => Body::IsPaused(f.text("queue")),
        Op::Drain => Body::Drain(f.text("queue")),
        Op::Obliterate => Body::Obliterate(f.text("queue")),
        Op::Clean => Body::Clean {
            queue: f.text("queue"),
            grace_ms: f.integer("grace") as u64,
            states: f.mask("state").map(StateFilter),
            limit: f.integer("limit") as u32,
        },
        Op::ListQueues => Body::ListQueues,
        Op::Dlq => {
            let (queue, count) = (f.text("queue"), f.integer("count") as u32);
            let named = aside.rare.filter(|rare| rare.filter_is_named);
            let filter = named.map(|rare| rare.filter.unwrap_or_default());
            Body::Dlq { queue, count, filter }
        }
        Op::RetryDlq => {
            let (queue, job) = (f.text("queue"), f.job_or_none("jobId"));
            let filter = aside.rare.and_then(|rare| rare.filter);
            if job.is_some() && filter.is_some() {
                return Err("jobId and filter must not both be given".into());
            }
            Body::RetryDlq { queue, job, count: f.integer_or_none("count"), filter }
        }
        Op::PurgeDlq => Body::PurgeDlq(f.text("queue")),
        Op::GetDlqStats => Body::GetDlqStats(f.text("queue")),
        Op::GetDlqConfig => Body::GetDlqConfig(f.text("queue")),
        Op::GetStallConfig => Body::GetStallConfig(f.text("queue")),
        Op::SetDlqConfig | Op::SetStallConfig => {
            let patch = aside.rare.and_then(|rare| rare.patch);
            Body::SetRule { queue: f.text("queue"), patch: patch.ok_or("config is required")? }
        }
        Op::RetryCompleted => {
            let (queue, job) = (f.text("queue"), f.job_or_none("id"));
            let (count, until_ms) = (f.integer_or_none("count"), f.integer_or_none("timestamp"));
            Body::RetryCompleted { queue, job, count, until_ms }
        }
        Op::RemoveDlqJob => Body::RemoveDlqJob { queue: f.text("queue"), job: f.job("jobId") },
        Op::Cron => Body::Cron(take_cron(f, &mut aside)?),
        Op::CronDelete => Body::CronDelete(f.text("name")),
        Op::CronGet => Body::CronGet(f.text("name")),
        Op::CronList => Body::CronList,
        Op::Stats => Body::Stats,
        Op::Metrics => match f.text_or_none("queue") {
            None => Body::Metrics,
            Some(queue) => Body::QueueMetrics {
                queue,
                failed: f.choice("type") == 1,
                start: f.integer("start") as u64,
                end: u64::try_from(f.integer("end")).ok(),
            },
        },
        Op::Prometheus => Body::Prometheus,
        Op::BackupPoint => Body::BackupPoint,
        Op::RegisterWorker => Body::RegisterWorker(RegisterWorker {
            name: f.text("name"),
            queues: Texts::new(f.raw("queues")),
            worker_id: f.text_or_none("workerId"),
        }),
        Op::UnregisterWorker => Body::UnregisterWorker(f.text("workerId")),
        Op::ListWorkers => Body::ListWorkers,
        Op::AddWebhook => Body::AddWebhook(AddWebhook {
            url: f.text("url"),
            events: Texts::new(f.raw("events")),
            queue: f.text_or_none("queue"),
            secret: f.text_or_none("secret"),
        }),
        Op::RemoveWebhook => Body::RemoveWebhook(f.text("webhookId")),
        Op::SetWebhookEnabled => {
            Body::SetWebhookEnabled { id: f.text("id"), enabled: f.flag("enabled") }
        }
        Op::ListWebhooks => Body::ListWebhooks,
        Op::RateLimit => {
            let (queue, limit) = (f.text("queue"), f.integer("limit") as u32);
            let span_ms = f.integer("duration") as u32;
            Body::RateLimit { queue, limit, span_ms, ttl_ms: f.integer_or_none("ttl") }
        }
        Op::GetQueueLimits => {
            Body::GetQueueLimits { queue: f.text("queue"), jobs: f.integer("maxJobs") as u64 }
        }
        Op::GetGroupsJobsCount => Body::GetGroupsJobsCount(f.text("queue")),
        Op::GetGroups => Body::GetGroups {
            queue: f.text("queue"),
            limit: f.integer("limit") as u32,
            after: f.text_or_none("after"),
        },
        Op::GetGroupJobsCount => take_group(f, |_| GroupAsk::JobsCount),
        Op::GetGroupActiveCount => take_group(f, |_| GroupAsk::ActiveCount),
        Op::GetGroupRateLimit => take_group(f, |_| GroupAsk::RateLimit),
        Op::GetGroupRateLimitTtl => {
            take_group(f, |f| GroupAsk::RateLimitTtl { jobs: f.integer_or_none("maxJobs") })
        }
        Op::GetGroupConcurrency => take_group(f, |_| GroupAsk::Concurrency),
        Op::GetGroupWeight => take_group(f, |_| GroupAsk::Weight),
        Op::IsGroupPaused => take_group(f, |_| GroupAsk::IsPaused),
        Op::SetGroupRateLimit => take_group(f, |f| {
            let (jobs, span_ms) = (f.integer("max") as u64, f.integer("duration") as u64);
            set(GroupLimit::Rate(Some(GroupRate { jobs, span_ms })), Answer::Ok)
        }),
        Op::RemoveGroupRateLimit => take_group(f, |_| set(GroupLimit::Rate(None), Answer::Removed)),
        Op::SetGroupConcurrency => take_group(f, |f| {
            set(GroupLimit::Active(Some(f.integer("concurrency") as u64)), Answer::Ok)
        }),
        Op::RemoveGroupConcurrency => {
            take_group(f, |_| set(GroupLimit::Active(None), Answer::Removed))
        }
        Op::SetGroupWeight => {
            take_group(f, |f| set(GroupLimit::Weight(f.integer("weight") as u32), Answer::Ok))
        }
        Op::PauseGroup => take_group(f, |_| set(GroupLimit::Paused(true), Answer::Changed)),
        Op::ResumeGroup => take_group(f, |_| set(GroupLimit::Paused(false), Answer::Changed)),
        Op::RateLimitGroup => {
            take_group(f, |f| set(GroupLimit::Hold(f.integer("duration") as u64), Answer::Ok))
        }
        Op::TrimEvents => Body::TrimEvents(f.text("queue")),
        Op::RateLimitClear => Body::RateLimitClear(f.text("queue")),
        Op::SetConcurrency => {
            Body::SetConcurrency { queue: f.text("queue"), limit: f.integer("limit") as u32 }
        }
        Op::ClearConcurrency => Body::ClearConcurrency(f.text("queue")),
        Op::Hello => Body::Hello {
            protocol_version: f.integer("protocolVersion") as u64,
            capabilities: Texts::new(f.raw("capabilities")),
        },
        Op::Auth => Body::Auth { token: f.text("token") },
    })
}

fn take_pull<'a>(
    f: &mut Fields<'a>,
    aside: &mut Aside<'a>,
    queue: &'a str,
    count: u32,
) -> Pull<'a> {
    Pull {
        queue,
        count,
        timeout_ms: f.integer("timeout") as u64,
        owner: f.text_or_none("owner"),
        lock_ttl_ms: f.integer("lockTtl") as u32,
        detach: f.flag("detach"),
        group: if f.aside("group") { aside.group.take() } else { None },
    }
}

/// A command on one group.
fn take_group<'a>(f: &mut Fields<'a>, ask: impl FnOnce(&mut Fields<'a>) -> GroupAsk) -> Body<'a> {
    let (queue, group) = (f.text("queue"), f.text("groupId"));
    Body::Group { queue, group, ask: ask(f) }
}

fn set(limit: GroupLimit, answer: Answer) -> GroupAsk {
    GroupAsk::Set { limit, answer }
}

fn take_batch(aside: Aside<'_>) -> Result<Batch<'_>, Complaint> {
    if aside.tokens.len() > aside.ids.len() {
        return Err(TOKENS_LENGTH.into());
    }
    let Aside { ids, tokens, results, flags, integers, .. } = aside;
    Ok(Batch::new(ids, tokens, results).with(flags, integers))
}

fn take_cron<'a>(f: &mut Fields<'a>, aside: &mut Aside<'a>) -> Result<Cron<'a>, Complaint> {
    let (name, queue, data) = (f.text("name"), f.text("queue"), f.raw("data"));
    let every = match (f.text_or_none("schedule"), f.integer_or_none("repeatEvery")) {
        (Some(expression), None) => Cadence::Expression(expression),
        (None, Some(interval_ms)) => Cadence::Interval(interval_ms),
        (None, None) => return Err("schedule or repeatEvery is required".into()),
        (Some(_), Some(_)) => {
            return Err("schedule and repeatEvery must not both be given".into());
        }
    };
    let (priority, runs_max) = (f.integer("priority") as i32, f.integer_or_none("maxLimit"));
    let (timezone, job_name) = (f.text_or_none("timezone"), f.text_or_none("jobName"));
    let unique_key = f.text_or_none("uniqueKey");
    let dedup = if f.aside("dedup") { aside.dedup.take() } else { None };
    let dedup = dedup.filter(|dedup| *dedup != Dedup::default());
    let rules = CronRules {
        immediately: f.flag("immediately"),
        skip_if_no_worker: f.flag("skipIfNoWorker"),
        catch_up: f.flag_or_none("skipMissedOnRestart") == Some(false),
        prevent_overlap: f.flag("preventOverlap"),
    };
    let job = aside.rare.as_deref_mut().and_then(|rare| rare.job.take());
    // Without a key there is nothing that the other fields could be about.
    let dedup = dedup.filter(|_| unique_key.is_some() || rules.prevent_overlap);
    let plain = job_name.is_none() && unique_key.is_none() && dedup.is_none();
    let job = (job.is_some() || !plain).then(|| {
        let mut job = NewJob { name: job_name, unique_key, ..job.unwrap_or_default() };
        if dedup.is_some() {
            job.extras.get_or_insert_default().dedup = dedup;
        }
        Box::new(job)
    });
    Ok(Cron { name, queue, data, every, priority, runs_max, timezone, job, rules })
}
