//! A job as clients see it: the short form that a pull hands out, and the long form of the queries.

use super::given_options::{count_given, is_plain, write_given, write_traceparent};
use crate::api::commands::GROWTHS;
use crate::api::request::JobRef;
use crate::protocol::msgpack::writer::{MapWriter, Writer};
use crate::protocol::uuid_text;
use crate::server::connection::reply_writer::{Placeholder, TagsPlace};
use crate::server::storage::engine::{Absent, Engine, Records};
use corq_shards::command::Stack;
use corq_shards::effect::PushedJob;
use corq_shards::family::{Family, Policy};
use corq_shards::job::overrides::Extras;
use corq_shards::job::progress::Notes;
use corq_shards::job::recurrence::{KeptRecurrence, Recurrence};
use corq_shards::job::{State, flags};
use corq_shards::log_record::location::LogRef;
use corq_shards::log_record::tags::{may_have_tags_at, tags_of};
use corq_shards::log_record::{Attempt, Buried, Pushed, Record, Retried};
use corq_shards::query::JobView;

/// The id of a job as its clients know it.
pub fn write_id(writer: &mut Writer<'_>, view: &JobView<'_>) {
    match view.options.and_then(|options| options.custom_id.as_deref()) {
        Some(name) => writer.str(name),
        None => writer.uuid(view.job.id.0),
    }
}

/// The id of a job as its clients know it, as text.
pub fn job_text(view: &JobView<'_>) -> Box<str> {
    match view.options.and_then(|options| options.custom_id.as_deref()) {
        Some(name) => name.into(),
        // The text of a UUID is ASCII.
        None => std::str::from_utf8(&uuid_text::format(view.job.id.0)).unwrap_or_default().into(),
    }
}

/// The id by which clients know a job that they pushed, whatever has become of it since.
pub fn write_pushed(writer: &mut Writer<'_>, pushed: &PushedJob) {
    match pushed.custom_id.as_deref() {
        Some(name) => writer.str(name),
        None => writer.uuid(pushed.id.0),
    }
}

/// A job as the client named it that asks for it.
pub(crate) fn write_ref(writer: &mut Writer<'_>, job: JobRef<'_>) {
    match job {
        JobRef::Id(id) => writer.uuid(id.0),
        JobRef::Custom(name) => writer.str(name),
    }
}

/// A job on its way to a worker (`docs/protocol.md`, "Push, pull, finish"). A payload that has to be read from the disk
/// leaves a hole, and its tags, if it may have any, a place.
pub fn write_delivery(
    writer: &mut Writer<'_>,
    engine: &Engine,
    view: &JobView<'_>,
    placeholders: &mut Vec<Placeholder>,
) {
    let family = view.options.and_then(|options| options.family.as_deref());
    let group = engine.shard.group_name_in(view);
    let is_plain = is_plain(view.job, view.options);
    let given = if is_plain { 0 } else { count_given(view.job, view.options) };
    let record = Records::new(&engine.journal, &[]).record(&view.data).ok();
    let tags = record.map_or(&[][..], tags_of);
    let shown = [view.name.is_some(), group.is_some(), !tags.is_empty()];
    let shown: usize = shown.into_iter().map(usize::from).sum();
    let entries = 11 + shown + given + family.map_or(0, link_fields);
    // Counted first: its payload may be a placeholder, whose place in the reply must not move. It may turn out to have
    // one entry more.
    let open =
        (record.is_none() && may_have_tags_at(&view.data, view.queue)).then(|| writer.open_map());
    if open.is_none() {
        writer.map(entries);
    }
    writer.str("id");
    write_id(writer, view);
    if let Some(name) = view.name {
        writer.str("name");
        writer.str(name);
    }
    writer.str("queue");
    writer.str(view.queue);
    writer.str("data");
    let payload = record.and_then(|record| view.data.parted(record));
    let mut hole = None;
    match payload {
        Some((_, payload)) => writer.raw(payload),
        None => hole = Some(writer.raw_hole(view.data.payload_bytes as usize)),
    }
    writer.str("priority");
    writer.int(i64::from(view.job.priority));
    writer.str("createdAt");
    writer.uint(view.created_at_ms());
    writer.str("runAt");
    writer.uint(view.run_at_ms());
    writer.str("startedAt");
    writer.uint_or_nil(view.lease.map(|lease| lease.started_at_ms));
    writer.str("attempts");
    writer.uint(u64::from(view.job.attempts));
    writer.str("maxAttempts");
    writer.uint(u64::from(view.job.max_attempts));
    writer.str("stallCount");
    writer.uint(u64::from(view.job.stalls));
    writer.str("progress");
    writer.number(notes_of(view).map_or(0.0, |notes| notes.progress));
    if !is_plain {
        write_given(writer, view.job, view.options);
    }
    if let Some(group) = group {
        writer.str("groupId");
        writer.str(group);
    }
    if let Some(family) = family {
        write_links(writer, family);
    }
    if !tags.is_empty() {
        writer.str("tags");
        writer.raw(tags);
    }
    let tags = open.map(|open| {
        let count_at = open.count_at();
        open.close(writer, entries as u16);
        TagsPlace { count_at, at: writer.raw_hole(0) }
    });
    if let Some(at) = hole {
        placeholders.push(Placeholder { at, stored: view.data, tags });
    }
}

/// How many fields the short form has for a parent and children.
fn link_fields(family: &Family) -> usize {
    usize::from(family.parent.is_some()) + usize::from(!family.children.is_empty())
}

fn write_links(writer: &mut Writer<'_>, family: &Family) {
    if let Some(parent) = &family.parent {
        writer.str("parentId");
        writer.str(parent);
    }
    if !family.children.is_empty() {
        writer.str("childrenIds");
        write_children(writer, family);
    }
}

fn write_children(writer: &mut Writer<'_>, family: &Family) {
    writer.array(family.children.len());
    writer.raw(family.children.bytes());
}

fn extras_of<'a>(view: &JobView<'a>) -> Option<&'a Extras> {
    view.options?.extras.as_deref()
}

fn notes_of<'a>(view: &JobView<'a>) -> Option<&'a Notes> {
    view.options?.notes.as_deref()
}

/// How far a job is, from 0 to 100.
pub fn progress_of(view: &JobView<'_>) -> f64 {
    match view.job.state {
        State::Completed => 100.0,
        _ => notes_of(view).map_or(0.0, |notes| notes.progress),
    }
}

/// The records that the long form needs besides what is in memory.
pub fn records_of<'a>(view: &JobView<'a>) -> impl Iterator<Item = LogRef> + use<'a> {
    let failed = view.job.state == State::Failed;
    let ended = view.outcome.map(|outcome| outcome.stored);
    // The record of a failure holds more than its payload.
    let ended = ended.filter(|stored| failed || stored.payload_bytes > 0);
    let message = notes_of(view).and_then(|notes| notes.message);
    let attempts = view.failures().iter().copied();
    std::iter::once(view.data).chain(ended).chain(message).chain(attempts)
}

/// The text that is the payload of a record.
pub fn text_of<'a>(records: &Records<'a>, stored: &LogRef) -> Result<&'a str, Absent> {
    match stored.payload_bytes {
        0 => Ok(""),
        _ => std::str::from_utf8(records.payload(stored)?).map_err(|_| Absent::Damaged),
    }
}

/// The payload of a record as bytes, for a text that may have megabytes: it was checked where it came in.
pub fn text_bytes_of<'a>(records: &Records<'a>, stored: &LogRef) -> Result<&'a [u8], Absent> {
    match stored.payload_bytes {
        0 => Ok(&[]),
        _ => records.payload(stored),
    }
}

/// A job in full.
pub fn write_job(
    writer: &mut Writer<'_>,
    view: &JobView<'_>,
    records: &Records<'_>,
) -> Result<(), Absent> {
    let pushed = pushed_of(records.record(&view.data)?)?;
    let mut fields = writer.begin_wide_map();
    write_place(&mut fields, view);
    fields.key("data").raw(pushed.job.data);
    write_trials(&mut fields, view);
    write_progress(&mut fields, view, records)?;
    write_options(&mut fields, view, &pushed);
    write_end(&mut fields, view, records)?;
    write_timeline(&mut fields, view, records)
}

/// The job as pushed, in the record that holds it.
pub fn pushed_of(record: &[u8]) -> Result<Pushed<'_>, Absent> {
    let record = Record::decode_original(record).ok();
    record.and_then(Record::into_pushed).ok_or(Absent::Damaged)
}

/// The failure, in the record that holds it.
pub fn buried_of(record: &[u8]) -> Result<Buried<'_>, Absent> {
    match Record::decode_original(record) {
        Ok(Record::Buried(buried)) => Ok(buried),
        _ => Err(Absent::Damaged),
    }
}

/// An attempt that another followed, in the record that tells of it.
fn attempt_of(record: &[u8]) -> Result<(Retried<'_>, Attempt<'_>), Absent> {
    match Record::decode_original(record) {
        Ok(Record::Retried(retried)) => match retried.attempt {
            Some(attempt) => Ok((retried, attempt)),
            None => Err(Absent::Damaged),
        },
        _ => Err(Absent::Damaged),
    }
}

/// The attempts of a job that are remembered, oldest first, without those whose records the disk has lost: the job is
/// shown without them.
pub fn attempts_of<'a>(
    view: &JobView<'_>,
    records: &Records<'a>,
) -> Result<Vec<(Retried<'a>, Attempt<'a>)>, Absent> {
    let read = |stored: &LogRef| match records.record(stored).and_then(attempt_of) {
        Err(Absent::Damaged) => None,
        found => Some(found),
    };
    view.failures().iter().filter_map(read).collect()
}

fn write_place(fields: &mut MapWriter<'_>, view: &JobView<'_>) {
    write_id(&mut fields.key("id"), view);
    if let Some(name) = view.name {
        fields.key("name").str(name);
    }
    fields.key("queue").str(view.queue);
    fields.key("state").str(view.job.state.name());
}

fn write_trials(fields: &mut MapWriter<'_>, view: &JobView<'_>) {
    let job = view.job;
    let started_at_ms = match (view.lease, view.outcome) {
        (Some(lease), _) => Some(lease.started_at_ms),
        (None, Some(outcome)) => Some(outcome.started_at_ms).filter(|&at_ms| at_ms > 0),
        (None, None) => None,
    };
    let completed = view.outcome.filter(|_| job.state == State::Completed);
    fields.key("priority").int(i64::from(job.priority));
    fields.key("createdAt").uint(view.created_at_ms());
    fields.key("runAt").uint(view.run_at_ms());
    fields.key("startedAt").uint_or_nil(started_at_ms);
    fields.key("completedAt").uint_or_nil(completed.map(|outcome| outcome.finished_at_ms));
    fields.key("attempts").uint(u64::from(job.attempts));
    fields.key("maxAttempts").uint(u64::from(job.max_attempts));
    fields.key("backoff").uint(u64::from(job.backoff_ms));
    fields.key("stallCount").uint(u64::from(job.stalls));
    fields.key("lifo").bool(job.has(flags::LIFO));
    fields.key("removeOnComplete").bool(job.has(flags::REMOVE_ON_COMPLETE));
    fields.key("removeOnFail").bool(job.has(flags::REMOVE_ON_FAIL));
}

fn write_progress(
    fields: &mut MapWriter<'_>,
    view: &JobView<'_>,
    records: &Records<'_>,
) -> Result<(), Absent> {
    let notes = notes_of(view);
    let message = notes.and_then(|notes| notes.message);
    let message = message.map(|stored| text_bytes_of(records, &stored)).transpose()?;
    fields.key("progress").number(progress_of(view));
    fields.key("progressMessage").checked_str_or_nil(message);
    Ok(())
}

fn write_options(fields: &mut MapWriter<'_>, view: &JobView<'_>, pushed: &Pushed<'_>) {
    const NO_TEXTS: &[u8] = &[0x90];
    let given = &pushed.job;
    for (name, texts) in [("tags", given.tags), ("dependsOn", given.depends_on)] {
        fields.key(name).raw(if texts.is_empty() { NO_TEXTS } else { texts });
    }
    fields.key("groupId").str_or_nil(given.group_id);
    write_family(fields, view);
    fields.key("ttl").uint_or_nil(given.ttl_ms);
    fields.key("timeout").uint_or_nil(given.timeout_ms.map(u64::from));
    fields.key("durable").bool(given.durable);
    let options = view.options;
    fields.key("uniqueKey").str_or_nil(options.and_then(|has| has.unique_key.as_deref()));
    fields.key("customId").str_or_nil(options.and_then(|has| has.custom_id.as_deref()));
    // Clients take a job without it for one that has a key.
    let dedup_ms = extras_of(view).and_then(|extras| extras.dedup).map(|dedup| dedup.ttl_ms);
    fields.key("deduplicationTtl").uint_or_nil(dedup_ms.filter(|&ttl_ms| ttl_ms > 0));
    if let Some(extras) = extras_of(view) {
        write_extras(fields, extras, view.job.backoff_ms);
    }
    if let Some(trace) = options.and_then(|has| has.trace.as_deref()) {
        write_traceparent(&mut fields.key("traceparent"), &trace.parent);
        if !trace.state.is_empty() {
            fields.key("tracestate").str(&trace.state);
        }
    }
    if let Some(repeat) = options.and_then(|has| has.series.as_deref()) {
        let recurrence = repeat.recurrence.as_deref().map(KeptRecurrence::given);
        let Recurrence { pattern, timezone, until_ms, .. } = recurrence.unwrap_or_default();
        let mut shown = fields.map("repeat");
        if pattern.is_none() {
            shown.key("every").uint(repeat.every_ms);
        }
        shown.key("count").uint(repeat.count);
        if let Some(limit) = repeat.limit {
            shown.key("limit").uint(limit);
        }
        for (name, text) in [("pattern", pattern), ("tz", timezone)] {
            if let Some(text) = text {
                shown.key(name).str(text);
            }
        }
        if let Some(until_ms) = until_ms {
            shown.key("endDate").uint(until_ms);
        }
    }
}

fn write_family(fields: &mut MapWriter<'_>, view: &JobView<'_>) {
    let none = Family::default();
    let family = view.options.and_then(|has| has.family.as_deref()).unwrap_or(&none);
    fields.key("parentId").str_or_nil(family.parent.as_deref());
    write_children(&mut fields.key("childrenIds"), family);
    fields.key("childrenCompleted").uint(family.completed() as u64);
    for (name, policy) in [
        ("failParentOnFailure", Policy::Fail),
        ("continueParentOnFailure", Policy::Continue),
        ("ignoreDependencyOnFailure", Policy::Ignore),
        ("removeDependencyOnFailure", Policy::Remove),
    ] {
        fields.key(name).bool(family.policy == Some(policy));
    }
}

/// The steps of a job that are known, as far as there are records of them: when it came, when its attempts began and how
/// they failed, when it ended.
fn write_timeline(
    fields: &mut MapWriter<'_>,
    view: &JobView<'_>,
    records: &Records<'_>,
) -> Result<(), Absent> {
    let (job, outcome) = (view.job, view.outcome);
    let first =
        if view.run_at_ms() > view.created_at_ms() { State::Delayed } else { State::Waiting };
    let last_began_ms = match (view.lease, outcome) {
        (Some(lease), _) => lease.started_at_ms,
        (None, Some(outcome)) => outcome.started_at_ms,
        (None, None) => 0,
    };
    let mut steps = vec![(first, view.created_at_ms(), None)];
    let began = |at_ms: u64| (at_ms > 0).then_some((State::Active, at_ms, None));
    for (retried, attempt) in attempts_of(view, records)? {
        steps.extend(began(attempt.started_at_ms));
        steps.push((State::Failed, retried.at_ms, Some((attempt.number, retried.error))));
    }
    steps.extend(began(last_began_ms));
    if let Some(outcome) = outcome {
        let failed = job.state == State::Failed;
        let buried = if failed { Some(buried_of(records.record(&outcome.stored)?)?) } else { None };
        let told = buried.map(|buried| (buried.attempts, buried.error));
        steps.push((job.state, outcome.finished_at_ms, told));
    }
    let mut timeline = fields.key("timeline");
    timeline.array(steps.len());
    for (state, at_ms, told) in steps {
        let mut step = timeline.begin_map();
        step.key("state").str(state.name());
        step.key("timestamp").uint(at_ms);
        if let Some((attempt, error)) = told {
            step.key("attempt").uint(u64::from(attempt));
            step.key("error").str(error);
        }
    }
    Ok(())
}

/// The rules that a job was given; those that it was not are not shown.
fn write_extras(fields: &mut MapWriter<'_>, extras: &Extras, backoff_ms: u32) {
    if let Some(growth) = extras.backoff {
        let mut config = fields.map("backoffConfig");
        config.key("type").str(GROWTHS[growth as usize]);
        config.key("delay").uint(u64::from(backoff_ms));
        if let Some(max_ms) = extras.backoff_max_ms {
            config.key("maxDelay").uint(u64::from(max_ms));
        }
    }
    for (name, number) in [
        ("stallTimeout", extras.stall_timeout_ms),
        ("stackTraceLimit", extras.stack_lines_max),
        ("keepLogs", extras.keep_logs),
        ("sizeLimit", extras.size_limit),
    ] {
        if let Some(number) = number {
            fields.key(name).uint(u64::from(number));
        }
    }
    if let Some(dedup) = extras.dedup {
        fields.key("deduplicationExtend").bool(dedup.extend);
        fields.key("deduplicationReplace").bool(dedup.replace);
    }
}

fn write_end(
    fields: &mut MapWriter<'_>,
    view: &JobView<'_>,
    records: &Records<'_>,
) -> Result<(), Absent> {
    let Some(outcome) = view.outcome else { return write_last_failure(fields, view, records) };
    if view.job.state == State::Completed {
        let result = match outcome.stored.payload_bytes {
            0 => &[],
            _ => records.payload(&outcome.stored)?,
        };
        fields.key("returnvalue").raw_or_nil(result);
        return Ok(());
    }
    let buried = buried_of(records.record(&outcome.stored)?)?;
    write_failure(fields, (buried.error, outcome.finished_at_ms), buried.stack);
    Ok(())
}

/// How the last attempt of a job failed that has another one; not if its record cannot be read.
fn write_last_failure(
    fields: &mut MapWriter<'_>,
    view: &JobView<'_>,
    records: &Records<'_>,
) -> Result<(), Absent> {
    let Some(last) = view.failures().last() else { return Ok(()) };
    let (retried, attempt) = match records.record(last).and_then(attempt_of) {
        Err(Absent::Damaged) => return Ok(()),
        found => found?,
    };
    write_failure(fields, (retried.error, retried.at_ms), attempt.stack);
    Ok(())
}

fn write_failure(fields: &mut MapWriter<'_>, (error, at_ms): (&str, u64), stack: Stack<'_>) {
    fields.key("failedReason").str(error);
    fields.key("failedAt").uint(at_ms);
    write_stack(&mut fields.key("stacktrace"), error, stack);
}

/// Where an attempt failed; the reason, if its worker did not say.
pub fn write_stack(writer: &mut Writer<'_>, error: &str, stack: Stack<'_>) {
    if stack.lines > 0 {
        writer.array(stack.lines as usize);
        writer.raw(stack.texts);
    } else {
        writer.array(1);
        writer.str(error);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::server::storage::engine::Fetched;
    use crate::server::storage::journal::LogJournal;
    use corq_io::log::{Log, LogConfig, MemoryDisk, Mode, Position};
    use corq_io::log_ring::Store;
    use corq_shards::collections::hash_key::HashKey;
    use corq_shards::command::{ClientId, Command, Fail, Pull, RequestId};
    use corq_shards::effect::Effects;
    use corq_shards::job::new_job::NewJob;
    use corq_shards::lease::token_stream::SecretKey;
    use corq_shards::{Caller, Config, Out, SLICE, Shard};

    fn journal() -> LogJournal {
        let replay = |_, _: &[u8]| Ok::<(), String>(());
        let disk = Store::Memory(MemoryDisk::new());
        LogJournal::new(Log::open(&LogConfig::new(0, Mode::Written), disk, replay).unwrap().0)
    }

    /// A job whose attempts failed for these reasons, and which waits for the next one.
    fn failed(journal: LogJournal, errors: &[&str]) -> Engine {
        let mut shard = Shard::new(Config {
            completed_max: 9,
            unsaid_completed_max: 9,
            completed_retention_ms: 60_000,
            span_bits: 26,
            bulk_slice: SLICE,
            interval_min_ms: 1,
            scheduled_per_second: 9,
            expired_kept_ms: 0,
            remembered_bytes_max: u64::MAX,
            seed: 1,
            hash_key: HashKey::new(1),
            token_key: SecretKey::of_seed(1),
        });
        shard.restart(1000);
        let mut engine = Engine { shard, journal };
        let mut run = |command: &Command<'_>| {
            let mut effects = Effects::default();
            let Engine { shard, journal } = &mut engine;
            let caller = Caller { client: ClientId(1), request: RequestId(1) };
            shard.apply(2000, caller, command, &mut Out { journal, effects: &mut effects });
            effects.deliveries.first().map(|one| (one.job.id, one.token))
        };
        let job = NewJob { data: b"\x01", max_attempts: 9, backoff_ms: 0, ..NewJob::default() };
        run(&Command::Push { queue: "q", jobs: &[job] });
        for error in errors {
            let pulled = run(&Command::Pull(Pull {
                queue: "q",
                count: 1,
                timeout_ms: 0,
                locked: true,
                lock_ttl_ms: 60_000,
                detach: false,
                owner: None,
                group: None,
            }));
            let (job, token) = pulled.unwrap();
            run(&Command::Fail(Fail { job, token, error, ..Fail::default() }));
        }
        engine
    }

    #[test]
    fn a_job_is_told_without_the_attempts_that_cannot_be_read() {
        let Engine { shard, journal: whole } = failed(journal(), &["one", "two", "three"]);
        let view = shard.view(shard.indices().next().unwrap());
        let failures = view.failures().to_vec();
        assert_eq!(failures.len(), 3);
        // Nothing is in memory, and the disk has lost some of it.
        let told = |lost: &[LogRef]| {
            let read = |stored: LogRef| {
                let bytes = whole.log.read(Position(stored.position), stored.record_bytes as usize);
                let bytes = bytes.filter(|_| !lost.contains(&stored)).map(Into::into);
                Fetched { stored, bytes }
            };
            let fetched: Vec<Fetched> = records_of(&view).map(read).collect();
            let nothing = journal();
            let records = Records::new(&nothing, &fetched);
            let mut out = Vec::new();
            write_job(&mut Writer::new(&mut out), &view, &records)?;
            Ok(rmpv::decode::read_value(&mut &out[..]).unwrap().to_string())
        };
        let has = |job: &str| ["one", "two", "three"].map(|error| job.contains(error));
        assert_eq!(told(&[]).map(|job| has(&job)), Ok([true; 3]));
        assert_eq!(told(&failures[..1]).map(|job| has(&job)), Ok([false, true, true]));
        let job = told(&failures[2..]).unwrap();
        assert_eq!((has(&job), job.contains("failedReason")), ([true, true, false], false));
        assert_eq!(told(&[view.data]), Err(Absent::Damaged), "but not without itself");
    }
}
