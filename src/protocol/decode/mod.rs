//! A frame becomes a request: one pass over the map, borrowed from the receive buffer.
//!
//! What a field must look like stands in [`crate::api::commands`]; here the fields are put together.
//! Keys may come in any order, `cmd` included. A field named twice is refused, since two readers
//! could take it for two different commands; unknown fields are checked for form and ignored,
//! but refused where a lost one would make the rest mean more.
//!
//! | file | responsibility |
//! |---|---|
//! | `beginning` | which command a long request is, by its beginning |
//! | `choices` | words of a fixed set |
//! | `coerce` | what version 3 takes for a value that version 2 refuses |
//! | `fields` | the fields of one map, in one pass |
//! | `job` | the fields of a job that is pushed |
//! | `objects` | fields that are objects: `backoff`, `repeat`, `jobs` |
//! | `repair` | outcomes in any form |
//! | `req_id_search` | the `reqId` of a long frame that is refused |
//! | `settings` | settings of queues and schedules, and filters |
//! | `stack_trace` | the lines of a stack trace |
//! | `take` | the types of fields, from their values |
//! | `value` | one value of a field |

pub mod beginning;
pub(super) mod choices;
pub mod coerce;
pub(crate) mod fields;
pub(crate) mod job;
pub(super) mod objects;
pub mod repair;
pub mod req_id_search;
pub(super) mod settings;
pub(super) mod stack_trace;
mod take;
pub(crate) mod value;

use corq_shards::job::new_job::NewJob;
use corq_shards::job::overrides::Dedup;
use corq_shards::log_record::cron::CronRules;

use crate::api::bulk::Bulk;
use crate::api::commands::{CommandSpec, FieldSpec, JOB_FIELDS, Kind, Op, command_table};
use crate::api::error::{Error, ErrorKind};
use crate::api::limits::LISTING_DEFAULT;
use crate::api::listing::{DataForm, JobPage, QueuePage, QueueSort, Search};
use crate::api::request::{Batch, Body, Cadence, Cron, Pull, Refused, Request, StateFilter};
use crate::api::size::ENTRIES_MAX;
use crate::api::version::Version;

use super::decode::fields::{Aside, Fields};
use super::decode::job::{join_trace, take_job};
use super::decode::take::Take;
use super::decode::value::cut;
use super::large::FrameRef;
use super::msgpack::{Malformed, Reader, Texts};

/// Most bytes of an encoded `reqId`: it is kept while its command waits, and stands in every answer.
pub(crate) const REQ_ID_BYTES_MAX: usize = 4096;

/// Decodes the payload of one frame, as one of version 2 of the protocol.
pub fn decode(frame: &[u8]) -> Result<Request<'_>, Refused<'_>> {
    decode_as(frame, Version::Two)
}

/// Decodes the payload of one frame, as one of this version of the protocol.
pub fn decode_as(frame: &[u8], version: Version) -> Result<Request<'_>, Refused<'_>> {
    decode_frame(frame.into(), version)
}

/// Decodes a frame as [`decode_as`] does, one that has been checked before without going through its payload.
#[inline]
pub fn decode_frame(frame: FrameRef<'_>, version: Version) -> Result<Request<'_>, Refused<'_>> {
    let mut aside = Aside { version, known: frame.known(), ..Aside::default() };
    let (mut op, mut req_id) = (Op::Ping, None);
    // The body is the large part of a request, and goes to its place at once.
    match read_body(frame.bytes(), &mut aside, (&mut op, &mut req_id)) {
        Ok(body) => {
            let needs = if aside.has_of_three { Version::Three } else { op.spec().since };
            Ok(Request { op, req_id, body, needs, patterns: aside.patterns })
        }
        Err(error) => Err(Refused { req_id: find_req_id(frame), error }),
    }
}

/// Whether a frame, however wrong it is otherwise, has a command or a field that only version 3 has.
#[cold]
pub fn needs_three(frame: FrameRef<'_>) -> bool {
    let mut reader = Reader::new(&frame);
    let Ok(Some(entries)) = reader.map() else { return false };
    if entries > ENTRIES_MAX {
        return false;
    }
    find_command(reader, entries).is_ok_and(|spec| {
        spec.since.is_three()
            || has_field_of_three(frame, &mut reader, entries, spec.fields).is_ok_and(|has| has)
    })
}

/// As [`needs_three`], for the fields of a map and of the jobs in it.
fn has_field_of_three(
    frame: FrameRef<'_>,
    reader: &mut Reader<'_>,
    entries: usize,
    fields: &[FieldSpec],
) -> Result<bool, Malformed> {
    for _ in 0..entries {
        let key = reader.pass_key()?;
        let field = fields.iter().find(|field| field.name.as_bytes() == key);
        let is_filter = field.is_some_and(|field| field.kind == Kind::DlqFilter);
        if reader.absent()? {
            if is_filter {
                return Ok(true);
            }
            continue;
        }
        match field {
            Some(field) if field.is_of_three => return Ok(true),
            Some(FieldSpec { kind: Kind::Jobs, .. }) => {
                for _ in 0..reader.array()?.unwrap_or_default() {
                    let Some(entries) = reader.map()? else { return Ok(false) };
                    if has_field_of_three(frame, reader, entries, JOB_FIELDS)? {
                        return Ok(true);
                    }
                }
            }
            _ => frame.pass(reader)?,
        }
    }
    Ok(false)
}

/// Whether a frame that was refused is an attempt to authenticate.
pub fn is_auth(frame: &[u8]) -> bool {
    let mut reader = Reader::new(frame);
    let Ok(Some(entries)) = reader.map() else { return false };
    find_command(reader, entries).is_ok_and(|spec| spec.op == Op::Auth)
}

/// Reads the map of a frame: the body of its request, with its command and its `reqId`.
#[inline]
fn read_body<'a>(
    frame: &'a [u8],
    aside: &mut Aside<'a>,
    (op, req_id): (&mut Op, &mut Option<&'a [u8]>),
) -> Result<Body<'a>, Error> {
    let mut reader = Reader::new(frame);
    let Some(entries) = reader.map()? else {
        return Err(ErrorKind::FrameNotMap.into());
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

    let fields = Fields::new(spec.fields, spec.required);
    let mut fields = fields.closed(spec.is_closed()).strict(spec.op == Op::Bulk);
    while left > 0 {
        left -= 1;
        let key = reader.key()?;
        if key == b"reqId" {
            if !reader.absent()? {
                let Some(value) = reader.skip_within(REQ_ID_BYTES_MAX)? else {
                    return Err(ErrorKind::ReqIdTooLong.into());
                };
                if req_id.replace(value).is_some() {
                    return Err(Error::given_twice("reqId"));
                }
            }
        } else if key == b"cmd" {
            if !reader.absent()? {
                reader.skip()?;
                if std::mem::replace(&mut cmd_seen, true) {
                    return Err(Error::given_twice("cmd"));
                }
            }
        } else {
            fields.read(key, &mut reader, aside)?;
        }
    }
    if !reader.rest().is_empty() {
        return Err(ErrorKind::FrameGoesOn.into());
    }
    fields.complete(aside.version)?;
    *op = spec.op;
    body(spec.op, &mut fields, aside)
}

/// Reads the value of `cmd`; `None` if it counts as absent.
#[inline]
fn command(reader: &mut Reader<'_>) -> Result<Option<&'static CommandSpec>, Error> {
    if reader.absent()? {
        return Ok(None);
    }
    let Some(name) = reader.text_bytes()? else { return Err(ErrorKind::CmdNotText.into()) };
    CommandSpec::find(name).map(Some).ok_or_else(|| unknown(name))
}

#[cold]
fn unknown(name: &[u8]) -> Error {
    /// A name is shown, not a payload: enough to recognise it.
    const SHOWN_BYTES_MAX: usize = 64;
    match std::str::from_utf8(name) {
        Ok(name) => Error::unknown_command(cut(name, SHOWN_BYTES_MAX)),
        Err(_) => Malformed::NotUtf8.into(),
    }
}

/// Looks for `cmd` anywhere in the map. What else is wrong is found when the map is read.
#[cold]
fn find_command(mut reader: Reader<'_>, entries: usize) -> Result<&'static CommandSpec, Error> {
    for _ in 0..entries {
        if reader.pass_key()? != b"cmd" {
            reader.pass()?;
        } else if let Some(spec) = command(&mut reader)? {
            return Ok(spec);
        }
    }
    Err(ErrorKind::CmdRequired.into())
}

/// The `reqId` of a frame that is refused, if it stands before whatever makes it unreadable, or has not come, and is no
/// longer than it may be.
#[cold]
pub fn find_req_id(frame: FrameRef<'_>) -> Option<&[u8]> {
    let mut reader = Reader::new(frame.bytes());
    let entries = reader.map_begun().ok()??;
    for _ in 0..entries {
        if reader.pass_key().ok()? != b"reqId" {
            frame.pass(&mut reader).ok()?;
        } else if !reader.absent().ok()? {
            return reader.skip_within(REQ_ID_BYTES_MAX).ok()?;
        }
    }
    None
}

/// Decodes the row of a command: by the types of its fields, or by its own function.
macro_rules! row {
    ([$take:ident] $op:ident $fields:tt, $f:ident, $aside:ident) => {
        $take($f, $aside)?
    };
    ($op:ident { $($field:ident,)* }, $f:ident, $aside:ident) => {
        Body::$op { $($field: Take::take($f, $aside)),* }
    };
}

macro_rules! decoder {
    ($($op:ident $name:literal $([$take:ident, $specs:expr])? {
        $($field:ident: $type:ty $(= $spec:expr)?),* $(,)?
    } => $class:expr, $reply:expr, $route:expr, $run:ident($($argument:expr),* $(,)?);)*) => {
        /// Puts a command together from its fields, taken in the order of the table.
        fn body<'a>(op: Op, f: &mut Fields<'a>, aside: &mut Aside<'a>) -> Result<Body<'a>, Error> {
            Ok(match op {
                $(Op::$op => row!($([$take])? $op { $($field,)* }, f, aside)),*
            })
        }
    };
}

command_table!(decoder);

#[inline]
fn take_push<'a>(f: &mut Fields<'a>, aside: &mut Aside<'a>) -> Result<Body<'a>, Error> {
    Ok(Body::Push { queue: f.text("queue"), job: take_job(f, aside, false)? })
}

fn take_push_many<'a>(f: &mut Fields<'a>, aside: &mut Aside<'a>) -> Result<Body<'a>, Error> {
    let queue = f.text("queue");
    f.aside("jobs");
    let mut jobs = std::mem::take(&mut aside.jobs);
    join_trace(f, jobs.iter_mut())?;
    Ok(Body::PushBatch { queue, jobs })
}

fn take_push_flow<'a>(f: &mut Fields<'a>, aside: &mut Aside<'a>) -> Result<Body<'a>, Error> {
    f.aside("jobs");
    let mut jobs = std::mem::take(&mut aside.flow);
    join_trace(f, jobs.iter_mut().map(|one| &mut one.job))?;
    Ok(Body::PushFlow { jobs })
}

#[inline]
#[allow(clippy::unnecessary_wraps, reason = "some rows can be refused")]
fn take_pull_one<'a>(f: &mut Fields<'a>, aside: &mut Aside<'a>) -> Result<Body<'a>, Error> {
    let queue = f.text("queue");
    Ok(Body::Pull { pull: take_pull(f, aside, queue, 1) })
}

#[allow(clippy::unnecessary_wraps, reason = "some rows can be refused")]
fn take_pull_many<'a>(f: &mut Fields<'a>, aside: &mut Aside<'a>) -> Result<Body<'a>, Error> {
    let (queue, count) = (f.text("queue"), f.integer("count"));
    Ok(Body::PullBatch { pull: take_pull(f, aside, queue, count as u32) })
}

fn take_acks<'a>(f: &mut Fields<'a>, aside: &mut Aside<'a>) -> Result<Body<'a>, Error> {
    f.aside("ids");
    if f.aside("results") && aside.results.len() != aside.ids.len() {
        return Err(ErrorKind::ResultsLength.into());
    }
    f.aside("tokens");
    if f.aside("removeOnCompletes") && aside.flags.len() != aside.ids.len() {
        return Err(ErrorKind::RemovesLength.into());
    }
    Ok(Body::AckBatch { batch: batch(aside)? })
}

fn take_heartbeats<'a>(_: &mut Fields<'a>, aside: &mut Aside<'a>) -> Result<Body<'a>, Error> {
    Ok(Body::JobHeartbeatBatch { batch: batch(aside)? })
}

fn take_extensions<'a>(_: &mut Fields<'a>, aside: &mut Aside<'a>) -> Result<Body<'a>, Error> {
    if aside.integers.len() != aside.ids.len() {
        return Err(ErrorKind::DurationsLength.into());
    }
    Ok(Body::ExtendLocks { batch: batch(aside)? })
}

#[allow(clippy::unnecessary_wraps, reason = "some rows can be refused")]
fn take_dlq<'a>(f: &mut Fields<'a>, aside: &mut Aside<'a>) -> Result<Body<'a>, Error> {
    let (queue, count) = (f.text("queue"), f.integer("count") as u32);
    let named = aside.rare.as_deref().filter(|rare| rare.filter_is_named);
    Ok(Body::Dlq { queue, count, filter: named.map(|rare| rare.filter.unwrap_or_default()) })
}

fn take_retry_dlq<'a>(f: &mut Fields<'a>, aside: &mut Aside<'a>) -> Result<Body<'a>, Error> {
    let (queue, job) = (f.text("queue"), f.job_or_none("jobId"));
    let filter = aside.rare.as_deref().and_then(|rare| rare.filter);
    if job.is_some() && filter.is_some() {
        return Err(ErrorKind::JobIdAndFilter.into());
    }
    Ok(Body::RetryDlq { queue, job, count: f.integer_or_none("count"), filter })
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

fn batch<'a>(aside: &mut Aside<'a>) -> Result<Batch<'a>, Error> {
    if aside.tokens.len() > aside.ids.len() {
        return Err(ErrorKind::TokensLength.into());
    }
    let Aside { ids, tokens, results, flags, integers, .. } = std::mem::take(aside);
    Ok(Batch::new(ids, tokens, results).with(flags, integers))
}

fn take_cron<'a>(f: &mut Fields<'a>, aside: &mut Aside<'a>) -> Result<Body<'a>, Error> {
    let (name, queue, data) = (f.text("name"), f.text("queue"), f.raw("data"));
    let every = match (f.text_or_none("schedule"), f.integer_or_none("repeatEvery")) {
        (Some(expression), None) => Cadence::Expression(expression),
        (None, Some(interval_ms)) => Cadence::Interval(interval_ms),
        (None, None) => return Err(ErrorKind::CadenceRequired.into()),
        (Some(_), Some(_)) => return Err(ErrorKind::CadenceTwice.into()),
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
        disabled: false,
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
    let cron = Cron { name, queue, data, every, priority, runs_max, timezone, job, rules };
    Ok(Body::Cron { cron })
}

/// The bit of the second of two orders.
const DESCENDING: u32 = 1 << 1;

/// Takes the fields of a page of jobs, which stand behind all others: `newest_first` if no order is given.
fn take_job_page<'a>(f: &mut Fields<'a>, newest_first: bool) -> JobPage<'a> {
    JobPage {
        after: f.text_or_none("after"),
        newest_first: f.mask("order").map_or(newest_first, |order| order == DESCENDING),
        fields: f.mask("fields"),
        data: DataForm::of(f.mask("data")),
        name: f.text_or_none("name"),
        tag: f.text_or_none("tag"),
        group: f.text_or_none("group"),
        from_ms: f.integer_or_none("from"),
        to_ms: f.integer_or_none("to"),
    }
}

#[allow(clippy::unnecessary_wraps, reason = "some rows can be refused")]
fn take_get_jobs<'a>(f: &mut Fields<'a>, _: &mut Aside<'a>) -> Result<Body<'a>, Error> {
    let (queue, states) = (f.text("queue"), f.mask("state").map(StateFilter));
    let (limit, offset) = (f.integer("limit") as u32, f.integer("offset") as u64);
    let oldest_first = f.flag_or_none("asc");
    let by_cursor = !f.rest_is_absent();
    let page = by_cursor.then(|| Box::new(take_job_page(f, oldest_first == Some(false))));
    Ok(Body::GetJobs { queue, states, limit, offset, oldest_first, page })
}

#[allow(clippy::unnecessary_wraps, reason = "some rows can be refused")]
fn take_search<'a>(f: &mut Fields<'a>, _: &mut Aside<'a>) -> Result<Body<'a>, Error> {
    let queue = f.text_or_none("queue");
    let (text, path, value) = (f.text_or_none("text"), f.text_or_none("path"), f.raw("value"));
    let (states, limit) = (f.mask("state"), f.integer("limit") as u32);
    let (budget_ms, page) = (f.integer("budgetMs") as u64, take_job_page(f, false));
    let search = Search { queue, text, path, value, states, limit, budget_ms, page };
    Ok(Body::Search { search: Box::new(search) })
}

#[allow(clippy::unnecessary_wraps, reason = "some rows can be refused")]
fn take_bulk<'a>(f: &mut Fields<'a>, aside: &mut Aside<'a>) -> Result<Body<'a>, Error> {
    let (action, queue, ids) = (f.choice("action"), f.text_or_none("queue"), f.raw("ids"));
    let has_filter = f.aside("filter");
    let filter = aside.rare.as_deref().and_then(|rare| rare.bulk).filter(|_| has_filter);
    let bulk = Bulk {
        action,
        queue,
        ids: (!ids.is_empty()).then(|| Texts::new(ids)),
        filter,
        delay_ms: f.integer_or_none("delay"),
        priority: f.whole_or_none("priority").map(|priority| priority as i32),
        // 0 is no limit, as in every command that acts.
        limit: f.integer_or_none("limit").filter(|limit| *limit > 0),
        dry_run: f.flag("dryRun"),
    };
    Ok(Body::Bulk { bulk: Box::new(bulk) })
}

#[allow(clippy::unnecessary_wraps, reason = "some rows can be refused")]
fn take_list_queues<'a>(f: &mut Fields<'a>, _: &mut Aside<'a>) -> Result<Body<'a>, Error> {
    if f.rest_is_absent() {
        return Ok(Body::ListQueues { page: None });
    }
    let prefix = f.text_or_none("prefix");
    let (sort, order) = (QueueSort::of(f.mask("sort")), f.mask("order"));
    let page = QueuePage {
        prefix,
        sort,
        descending: order.map_or(sort != QueueSort::Name, |order| order == DESCENDING),
        limit: f.integer_or_none("limit").map_or(LISTING_DEFAULT as u32, |limit| limit as u32),
        after: f.text_or_none("after"),
        fields: f.mask("fields"),
    };
    Ok(Body::ListQueues { page: Some(Box::new(page)) })
}
