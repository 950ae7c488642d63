//! A job as clients see it: the short form that a pull hands out, and the long form of the queries.

use crate::api::commands::GROWTHS;
use crate::protocol::msgpack::writer::Writer;
use crate::server::connection::reply_writer::Placeholder;
use crate::server::storage::engine::{Absent, Engine, Records};
use corq_shards::effect::PushedJob;
use corq_shards::family::{Family, Policy};
use corq_shards::job::overrides::Extras;
use corq_shards::job::progress::Notes;
use corq_shards::job::{State, flags};
use corq_shards::log_record::location::LogRef;
use corq_shards::log_record::{Buried, Pushed, Record};
use corq_shards::query::JobView;

/// The id of a job as its clients know it.
pub fn write_id(writer: &mut Writer<'_>, view: &JobView<'_>) {
    match view.options.and_then(|options| options.custom_id.as_deref()) {
        Some(name) => writer.str(name),
        None => writer.uuid(view.job.id.0),
    }
}

/// The id by which clients know a job that they pushed, whatever has become of it since.
pub fn write_pushed(writer: &mut Writer<'_>, pushed: &PushedJob) {
    match pushed.custom_id.as_deref() {
        Some(name) => writer.str(name),
        None => writer.uuid(pushed.id.0),
    }
}

/// A job on its way to a worker (`docs/protocol.md`, "Push, pull, finish"). A payload that has to be read from the disk
/// leaves a hole.
pub fn write_delivery(
    writer: &mut Writer<'_>,
    engine: &Engine,
    view: &JobView<'_>,
    placeholders: &mut Vec<Placeholder>,
) {
    let extras = extras_of(view);
    let stack_lines_max = extras.and_then(|extras| extras.stack_lines_max);
    let family = view.options.and_then(|options| options.family.as_deref());
    let group = engine.shard.group_name_in(view);
    let shown = [view.name.is_some(), stack_lines_max.is_some(), group.is_some()];
    let shown: usize = shown.into_iter().map(usize::from).sum();
    writer.map(11 + shown + family.map_or(0, link_fields));
    writer.str("id");
    write_id(writer, view);
    if let Some(name) = view.name {
        writer.str("name");
        writer.str(name);
    }
    writer.str("queue");
    writer.str(view.queue);
    writer.str("data");
    match Records::new(&engine.journal, &[]).payload(&view.data) {
        Ok(payload) => writer.raw(payload),
        Err(_) => {
            let at = writer.raw_hole(view.data.payload_bytes as usize);
            placeholders.push(Placeholder { at, stored: view.data });
        }
    }
    writer.str("priority");
    writer.int(i64::from(view.job.priority));
    writer.str("createdAt");
    writer.uint(view.created_at_ms());
    writer.str("runAt");
    writer.uint(view.job.run_at_ms);
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
    if let Some(lines) = stack_lines_max {
        writer.str("stackTraceLimit");
        writer.uint(u64::from(lines));
    }
    if let Some(group) = group {
        writer.str("groupId");
        writer.str(group);
    }
    if let Some(family) = family {
        write_links(writer, family);
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

/// The records that the long form needs besides what is in memory.
pub fn records_of(view: &JobView<'_>) -> impl Iterator<Item = LogRef> + use<> {
    let failed = view.job.state == State::Failed;
    let ended = view.outcome.map(|outcome| outcome.stored);
    // The record of a failure holds more than its payload.
    let ended = ended.filter(|stored| failed || stored.payload_bytes > 0);
    let message = notes_of(view).and_then(|notes| notes.message);
    std::iter::once(view.data).chain(ended).chain(message)
}

/// The text that is the payload of a record.
pub fn text_of<'a>(records: &Records<'a>, stored: &LogRef) -> Result<&'a str, Absent> {
    match stored.payload_bytes {
        0 => Ok(""),
        _ => std::str::from_utf8(records.payload(stored)?).map_err(|_| Absent::Damaged),
    }
}

/// A job in full.
pub fn write_job(
    writer: &mut Writer<'_>,
    view: &JobView<'_>,
    records: &Records<'_>,
) -> Result<(), Absent> {
    let pushed = pushed_of(records.record(&view.data)?)?;
    let map = writer.open_map();
    let mut fields = Fields { writer, count: 0 };
    write_place(&mut fields, view);
    fields.raw("data", pushed.job.data);
    write_trials(&mut fields, view);
    write_progress(&mut fields, view, records)?;
    write_options(&mut fields, view, &pushed);
    write_end(&mut fields, view, records)?;
    write_timeline(&mut fields, view);
    let count = fields.count;
    map.close(writer, count);
    Ok(())
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

/// A map that counts its entries as they are written.
struct Fields<'w, 'o> {
    writer: &'w mut Writer<'o>,
    count: u16,
}

impl<'o> Fields<'_, 'o> {
    fn key(&mut self, key: &str) -> &mut Writer<'o> {
        self.count += 1;
        self.writer.str(key);
        self.writer
    }

    fn uint(&mut self, key: &str, value: u64) {
        self.key(key).uint(value);
    }

    fn bool(&mut self, key: &str, value: bool) {
        self.key(key).bool(value);
    }

    fn raw(&mut self, key: &str, value: &[u8]) {
        self.key(key).raw(value);
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key).str(value);
    }
}

fn write_place(fields: &mut Fields<'_, '_>, view: &JobView<'_>) {
    write_id(fields.key("id"), view);
    if let Some(name) = view.name {
        fields.text("name", name);
    }
    fields.text("queue", view.queue);
    fields.text("state", view.job.state.name());
}

fn write_trials(fields: &mut Fields<'_, '_>, view: &JobView<'_>) {
    let job = view.job;
    let started_at_ms = match (view.lease, view.outcome) {
        (Some(lease), _) => Some(lease.started_at_ms),
        (None, Some(outcome)) => Some(outcome.started_at_ms).filter(|&at_ms| at_ms > 0),
        (None, None) => None,
    };
    let completed = view.outcome.filter(|_| job.state == State::Completed);
    fields.key("priority").int(i64::from(job.priority));
    fields.uint("createdAt", view.created_at_ms());
    fields.uint("runAt", job.run_at_ms);
    fields.key("startedAt").uint_or_nil(started_at_ms);
    fields.key("completedAt").uint_or_nil(completed.map(|outcome| outcome.finished_at_ms));
    fields.uint("attempts", u64::from(job.attempts));
    fields.uint("maxAttempts", u64::from(job.max_attempts));
    fields.uint("backoff", u64::from(job.backoff_ms));
    fields.uint("stallCount", u64::from(job.stalls));
    fields.bool("lifo", job.has(flags::LIFO));
    fields.bool("removeOnComplete", job.has(flags::REMOVE_ON_COMPLETE));
    fields.bool("removeOnFail", job.has(flags::REMOVE_ON_FAIL));
}

fn write_progress(
    fields: &mut Fields<'_, '_>,
    view: &JobView<'_>,
    records: &Records<'_>,
) -> Result<(), Absent> {
    let notes = notes_of(view);
    let message = notes.and_then(|notes| notes.message);
    let message = message.map(|stored| text_of(records, &stored)).transpose()?;
    fields.key("progress").number(notes.map_or(0.0, |notes| notes.progress));
    fields.key("progressMessage").str_or_nil(message);
    Ok(())
}

fn write_options(fields: &mut Fields<'_, '_>, view: &JobView<'_>, pushed: &Pushed<'_>) {
    const NO_TEXTS: &[u8] = &[0x90];
    let given = &pushed.job;
    fields.raw("tags", if given.tags.is_empty() { NO_TEXTS } else { given.tags });
    fields.raw("dependsOn", if given.depends_on.is_empty() { NO_TEXTS } else { given.depends_on });
    fields.key("groupId").str_or_nil(given.group_id);
    write_family(fields, view);
    fields.key("ttl").uint_or_nil(given.ttl_ms);
    fields.key("timeout").uint_or_nil(given.timeout_ms.map(u64::from));
    fields.bool("durable", given.durable);
    let options = view.options;
    fields.key("uniqueKey").str_or_nil(options.and_then(|has| has.unique_key.as_deref()));
    fields.key("customId").str_or_nil(options.and_then(|has| has.custom_id.as_deref()));
    if let Some(extras) = extras_of(view) {
        write_extras(fields, extras, view.job.backoff_ms);
    }
    if let Some(repeat) = options.and_then(|has| has.series.as_deref()) {
        let writer = fields.key("repeat");
        writer.map(2 + usize::from(repeat.limit.is_some()));
        writer.str("every");
        writer.uint(repeat.every_ms);
        writer.str("count");
        writer.uint(repeat.count);
        if let Some(limit) = repeat.limit {
            writer.str("limit");
            writer.uint(limit);
        }
    }
}

fn write_family(fields: &mut Fields<'_, '_>, view: &JobView<'_>) {
    let none = Family::default();
    let family = view.options.and_then(|has| has.family.as_deref()).unwrap_or(&none);
    fields.key("parentId").str_or_nil(family.parent.as_deref());
    write_children(fields.key("childrenIds"), family);
    fields.uint("childrenCompleted", family.completed() as u64);
    for (name, policy) in [
        ("failParentOnFailure", Policy::Fail),
        ("continueParentOnFailure", Policy::Continue),
        ("ignoreDependencyOnFailure", Policy::Ignore),
        ("removeDependencyOnFailure", Policy::Remove),
    ] {
        fields.bool(name, family.policy == Some(policy));
    }
}

/// The steps of a job that are known, as far as there are records of them: when it came, when its last
/// attempt began, when it ended.
fn write_timeline(fields: &mut Fields<'_, '_>, view: &JobView<'_>) {
    let (job, outcome) = (view.job, view.outcome);
    let first = if job.run_at_ms > view.created_at_ms() { State::Delayed } else { State::Waiting };
    let started_at_ms = match (view.lease, outcome) {
        (Some(lease), _) => lease.started_at_ms,
        (None, Some(outcome)) => outcome.started_at_ms,
        (None, None) => 0,
    };
    let steps = [
        Some((first, view.created_at_ms())),
        (started_at_ms > 0).then_some((State::Active, started_at_ms)),
        outcome.map(|outcome| (job.state, outcome.finished_at_ms)),
    ];
    let writer = fields.key("timeline");
    writer.array(steps.iter().flatten().count());
    for (state, at_ms) in steps.into_iter().flatten() {
        writer.map(2);
        writer.str("state");
        writer.str(state.name());
        writer.str("timestamp");
        writer.uint(at_ms);
    }
}

/// The rules that a job was given; those that it was not are not shown.
fn write_extras(fields: &mut Fields<'_, '_>, extras: &Extras, backoff_ms: u32) {
    if let Some(growth) = extras.backoff {
        let writer = fields.key("backoffConfig");
        writer.map(2 + usize::from(extras.backoff_max_ms.is_some()));
        writer.str("type");
        writer.str(GROWTHS[growth as usize]);
        writer.str("delay");
        writer.uint(u64::from(backoff_ms));
        if let Some(max_ms) = extras.backoff_max_ms {
            writer.str("maxDelay");
            writer.uint(u64::from(max_ms));
        }
    }
    for (name, number) in [
        ("stallTimeout", extras.stall_timeout_ms),
        ("stackTraceLimit", extras.stack_lines_max),
        ("keepLogs", extras.keep_logs),
        ("sizeLimit", extras.size_limit),
    ] {
        if let Some(number) = number {
            fields.uint(name, u64::from(number));
        }
    }
    if let Some(dedup) = extras.dedup {
        fields.key("deduplicationTtl").uint_or_nil((dedup.ttl_ms > 0).then_some(dedup.ttl_ms));
        fields.bool("deduplicationExtend", dedup.extend);
        fields.bool("deduplicationReplace", dedup.replace);
    }
}

fn write_end(
    fields: &mut Fields<'_, '_>,
    view: &JobView<'_>,
    records: &Records<'_>,
) -> Result<(), Absent> {
    let Some(outcome) = view.outcome else { return Ok(()) };
    if view.job.state == State::Completed {
        let result = match outcome.stored.payload_bytes {
            0 => &[],
            _ => records.payload(&outcome.stored)?,
        };
        fields.key("returnvalue").raw_or_nil(result);
        return Ok(());
    }
    let buried = buried_of(records.record(&outcome.stored)?)?;
    fields.text("failedReason", buried.error);
    fields.uint("failedAt", outcome.finished_at_ms);
    let writer = fields.key("stacktrace");
    if buried.stack.lines > 0 {
        writer.array(buried.stack.lines as usize);
        writer.raw(buried.stack.texts);
    } else {
        writer.array(1);
        writer.str(buried.error);
    }
    Ok(())
}
