//! A record as one value that people and programs can read: its place, its kind, and all that it says.
//!
//! Names are those of the record's fields in `docs/log-format.md`, in the style of the protocol; payloads are
//! the values that clients gave.

use corq_shards::command::{Limit, Stack};
use corq_shards::dead_letter::policy::Rule;
use corq_shards::family::unreported::KeptRemains;
use corq_shards::family::{ChildEnded, End, How, NewKin, Policy};
use corq_shards::flow::Fate;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::job::overrides::{Extras, Growth};
use corq_shards::job::{State, flags};
use corq_shards::log_record::codec::Malformed;
use corq_shards::log_record::cron::{CronRan, CronSet};
use corq_shards::log_record::group::Grouped;
use corq_shards::log_record::job_change::Changed;
use corq_shards::log_record::snapshot::{Kept, KeptJob, Place};
use corq_shards::log_record::webhook::WebhookAdded;
use corq_shards::log_record::{Buried, Ended, Pushed, Record, kind_name};
use corq_shards::queue::retention::Evicts;

use crate::api::spec::LOG_LEVELS;
use crate::protocol::msgpack::writer::Writer;

use super::pen::Pen;

/// Where a record lies.
#[derive(Clone, Copy, Debug)]
pub struct Whereabouts<'a> {
    /// The shard.
    pub shard: u16,
    /// Its address.
    pub position: u64,
    /// The segment's file.
    pub file: &'a str,
    /// Where in that file.
    pub offset: u64,
}

/// Writes a record as one `MessagePack` map behind what `out` holds. One that cannot be decoded is written with
/// the reason instead of its content.
pub fn describe(place: Whereabouts<'_>, bytes: &[u8], out: &mut Vec<u8>) {
    let mut writer = Writer::new(out);
    let map = writer.open_map();
    let mut pen = Pen { writer, entries: 0 };
    pen.uint("shard", u64::from(place.shard));
    pen.uint("position", place.position);
    pen.text("file", place.file);
    pen.uint("offset", place.offset);
    pen.uint("bytes", bytes.len() as u64);
    match Record::decode(bytes) {
        Ok(record) => {
            pen.text("kind", kind_name(bytes).unwrap_or("unknown"));
            pen.record(&record);
        }
        Err(Malformed(reason)) => {
            pen.text("kind", kind_name(bytes).unwrap_or("unknown"));
            pen.text("error", reason);
        }
    }
    map.close(&mut pen.writer, pen.entries);
}

fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Fail => "failParent",
        Policy::Continue => "continueParent",
        Policy::Ignore => "ignoreDependency",
        Policy::Remove => "removeDependency",
    }
}

fn fate_name(fate: Fate) -> &'static str {
    match fate {
        Fate::Committed => "committed",
        Fate::CommittedHere => "committed-here",
        Fate::Released => "released",
        Fate::Dropped => "dropped",
        Fate::Done => "done",
    }
}

fn how_name(how: How) -> &'static str {
    match how {
        How::Completed => "completed",
        How::Failed => "failed",
        How::Ignored => "ignored",
        How::Dropped => "dropped",
        How::Detached => "detached",
    }
}

/// The queue that a record names, if it names one.
pub fn queue_of<'a>(record: &'a Record<'_>) -> Option<&'a str> {
    match record {
        Record::Pushed(pushed) => Some(pushed.queue),
        Record::Staged(staged) => Some(staged.pushed.queue),
        Record::Limited { queue, .. }
        | Record::Ruled { queue, .. }
        | Record::Paused { queue, .. }
        | Record::Grouped(Grouped { queue, .. })
        | Record::GroupsCleared { queue }
        | Record::Kept(Kept::Evicted { queue, .. }) => Some(queue),
        Record::CronSet(set) => Some(set.queue),
        Record::CronRan(ran) => Some(ran.pushed.queue),
        Record::Repeated(repeated) => Some(repeated.next.pushed.queue),
        Record::Kept(Kept::Job(kept)) => Some(kept.pushed.queue),
        Record::WebhookAdded(added) => added.queue,
        Record::Kept(Kept::Moved(moved)) => {
            // What was moved names its queue, if anything does.
            match Record::decode(moved.record) {
                Ok(Record::Pushed(pushed)) => Some(pushed.queue),
                Ok(Record::CronRan(ran)) => Some(ran.pushed.queue),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The jobs that a record is about.
pub fn jobs_of(record: &Record<'_>) -> Vec<JobId> {
    match record {
        Record::Pushed(pushed) => vec![pushed.id],
        Record::Leased(leased) => leased.entries.iter().map(|(id, _)| id).collect(),
        Record::Completed(ended) => vec![ended.id],
        Record::Retried(retried) => vec![retried.id],
        Record::Buried(buried) => vec![buried.id],
        Record::Stalled { id }
        | Record::Released { id }
        | Record::Revived { id, .. }
        | Record::Removed { id }
        | Record::Blocked { id }
        | Record::Settled { child: id }
        | Record::Met { id, .. } => vec![*id],
        Record::ChildEnded(ended) => vec![ended.parent, ended.child],
        Record::Adopted(adopted) => vec![adopted.parent, adopted.child],
        Record::Staged(staged) => vec![staged.pushed.id],
        Record::Flow { flow, .. } => vec![*flow],
        Record::Kept(Kept::Remains(left)) => vec![left.child],
        Record::Changed(changed) => vec![changed.id()],
        Record::CronRan(ran) => vec![ran.pushed.id],
        Record::Repeated(repeated) => vec![repeated.ended.id, repeated.next.pushed.id],
        Record::Kept(Kept::Job(kept)) => vec![kept.pushed.id],
        Record::Kept(Kept::Moved(moved)) => vec![moved.id],
        Record::Limited { .. }
        | Record::Ruled { .. }
        | Record::Paused { .. }
        | Record::Grouped(_)
        | Record::GroupsCleared { .. }
        | Record::CronSet(_)
        | Record::CronMissed { .. }
        | Record::CronRemoved { .. }
        | Record::WebhookAdded(_)
        | Record::WebhookRemoved { .. }
        | Record::Kept(Kept::Evicted { .. } | Kept::Ids { .. } | Kept::GivenUp { .. }) => {
            Vec::new()
        }
        Record::Kept(Kept::Past(ids)) => ids.iter().collect(),
    }
}

impl Pen<'_> {
    fn record(&mut self, record: &Record<'_>) {
        match record {
            Record::Pushed(pushed) => self.pushed(pushed),
            Record::Leased(leased) => {
                self.uint("at", leased.at_ms);
                self.uint("lockTtl", u64::from(leased.ttl_ms));
                let pairs: Vec<_> = leased.entries.iter().collect();
                let writer = self.key("jobs");
                writer.array(pairs.len());
                for (id, token) in pairs {
                    writer.map(2);
                    writer.str("id");
                    writer.uuid(id.0);
                    writer.str("token");
                    writer.uuid(token.0);
                }
            }
            Record::Completed(ended) => self.ended(ended),
            Record::Retried(retried) => {
                self.id("id", retried.id);
                self.uint("at", retried.at_ms);
                self.uint("runAt", retried.run_at_ms);
                self.text("error", retried.error);
            }
            Record::Buried(buried) => self.buried(buried),
            Record::Stalled { id } | Record::Released { id } | Record::Removed { id } => {
                self.id("id", *id);
            }
            Record::Revived { id, run_at_ms, .. } => {
                self.id("id", *id);
                self.uint("runAt", *run_at_ms);
            }
            Record::Changed(changed) => self.changed(changed),
            Record::Limited { queue, limit } => {
                self.text("queue", queue);
                let rate = if let Limit::Rate(rate) = limit { *rate } else { None };
                let limit = if let Limit::Active(limit) = limit { *limit } else { None };
                let limit = limit.or(rate.map(|rate| rate.jobs));
                self.key("limit").uint_or_nil(limit.map(u64::from));
                if let Some(rate) = rate {
                    self.uint("duration", u64::from(rate.span_ms));
                    self.some_uint("until", Some(rate.until_ms).filter(|&until_ms| until_ms > 0));
                }
            }
            Record::Ruled { queue, rule } => {
                self.text("queue", queue);
                self.rule(rule);
            }
            Record::Paused { queue, paused } => {
                self.text("queue", queue);
                self.key("paused").bool(*paused);
            }
            Record::Grouped(Grouped { queue, group, settings }) => {
                self.text("queue", queue);
                self.text("groupId", group);
                if let Some(rate) = settings.rate {
                    self.uint("max", rate.jobs);
                    self.uint("duration", rate.span_ms);
                }
                self.some_uint("concurrency", settings.active_max);
                self.uint("weight", u64::from(settings.weight));
                self.flag("paused", settings.paused);
                let held_until_ms = settings.held_until_ms;
                self.some_uint("heldUntil", (held_until_ms > 0).then_some(held_until_ms));
            }
            Record::GroupsCleared { queue } => self.text("queue", queue),
            Record::CronSet(set) => self.cron_set(set),
            Record::CronRan(CronRan { name, next_run_ms, pushed }) => {
                self.text("name", name);
                self.key("nextRun").uint_or_nil(*next_run_ms);
                self.pushed(pushed);
            }
            Record::CronMissed { name, next_run_ms } => {
                self.text("name", name);
                self.uint("nextRun", *next_run_ms);
            }
            Record::CronRemoved { name } => self.text("name", name),
            Record::Met { id, dependency, at_ms } => {
                self.id("id", *id);
                self.id("dependency", *dependency);
                self.uint("at", *at_ms);
            }
            Record::ChildEnded(ended) => self.child_ended(ended),
            Record::Blocked { id } | Record::Settled { child: id } => self.id("id", *id),
            Record::Staged(staged) => {
                self.id("flow", staged.flow);
                self.pushed(&staged.pushed);
            }
            Record::Flow { flow, fate } => {
                self.id("flow", *flow);
                self.text("fate", fate_name(*fate));
            }
            Record::Adopted(adopted) => {
                self.id("id", adopted.parent);
                self.id("child", adopted.child);
                self.text("name", adopted.name);
                self.flag("waits", adopted.waits);
            }
            Record::Repeated(repeated) => {
                self.ended(&repeated.ended);
                self.nested("next", |pen| pen.kept_job(&repeated.next));
            }
            Record::WebhookAdded(added) => self.webhook(added),
            Record::WebhookRemoved { id } => self.id("id", JobId(*id)),
            Record::Kept(kept) => self.kept(kept),
        }
    }

    fn rule(&mut self, rule: &Rule) {
        match rule {
            Rule::Dlq(rule) => {
                self.key("autoRetry").bool(rule.auto_retry);
                self.uint("autoRetryInterval", rule.retry_interval_ms);
                self.uint("maxAutoRetries", u64::from(rule.retries_max));
                self.some_uint("maxAge", rule.age_max_ms);
                self.some_uint("maxEntries", rule.entries_max.map(u64::from));
            }
            Rule::Stall(rule) => {
                self.key("enabled").bool(rule.enabled);
                self.some_uint("stallInterval", rule.interval_ms.map(u64::from));
                self.uint("maxStalls", u64::from(rule.stalls_max));
                self.uint("gracePeriod", u64::from(rule.grace_ms));
            }
        }
    }

    fn nested(&mut self, name: &str, write: impl FnOnce(&mut Pen<'_>)) {
        let mut inside = Vec::new();
        let mut writer = Writer::new(&mut inside);
        let map = writer.open_map();
        let mut pen = Pen { writer, entries: 0 };
        write(&mut pen);
        map.close(&mut pen.writer, pen.entries);
        self.key(name).raw(&inside);
    }

    fn pushed(&mut self, pushed: &Pushed<'_>) {
        let job: &NewJob<'_> = &pushed.job;
        self.id("id", pushed.id);
        self.text("queue", pushed.queue);
        self.uint("runAt", pushed.run_at_ms);
        self.asked(job);
    }

    /// What a job is pushed with.
    fn asked(&mut self, job: &NewJob<'_>) {
        self.some_text("name", job.name);
        self.uint("delay", job.delay_ms);
        self.key("priority").int(i64::from(job.priority));
        self.uint("maxAttempts", u64::from(job.max_attempts));
        self.uint("backoff", u64::from(job.backoff_ms));
        self.some_uint("ttl", job.ttl_ms);
        self.some_uint("timeout", job.timeout_ms.map(u64::from));
        self.some_text("uniqueKey", job.unique_key);
        self.some_text("customId", job.custom_id);
        self.some_text("groupId", job.group_id);
        self.value("tags", job.tags);
        self.value("dependsOn", job.depends_on);
        let unmet: Vec<JobId> = job.unmet.iter().map(|(id, _)| id).collect();
        if !unmet.is_empty() {
            let writer = self.key("unmet");
            writer.array(unmet.len());
            for id in &unmet {
                writer.uuid(id.0);
            }
        }
        if let Some(kin) = &job.kin {
            self.kin(kin);
        }
        if let Some(repeat) = job.repeat {
            let writer = self.key("repeat");
            writer.map(3);
            writer.str("every");
            writer.uint(repeat.every_ms);
            writer.str("limit");
            writer.uint_or_nil(repeat.limit);
            writer.str("count");
            writer.uint(repeat.count);
        }
        self.flag("lifo", job.lifo);
        self.flag("removeOnComplete", job.remove_on_complete);
        self.flag("removeOnFail", job.remove_on_fail);
        self.flag("durable", job.durable);
        if let Some(extras) = &job.extras {
            self.extras(extras);
        }
        self.value("data", job.data);
    }

    fn kin(&mut self, kin: &NewKin<'_>) {
        self.some_text("parentId", kin.parent);
        self.value("childrenIds", kin.children);
        if let Some(policy) = kin.policy {
            self.text("onFailure", policy_name(policy));
        }
        let open: Vec<JobId> = kin.open.iter().map(|(id, _)| id).collect();
        if !open.is_empty() {
            let writer = self.key("open");
            writer.array(open.len());
            for id in open {
                writer.uuid(id.0);
            }
        }
    }

    fn child_ended(&mut self, ended: &ChildEnded<'_>) {
        self.id("id", ended.parent);
        self.id("child", ended.child);
        self.uint("at", ended.at_ms);
        self.text("how", how_name(ended.how));
        if ended.how != How::Dropped {
            self.text("queue", ended.queue);
            self.text("childId", ended.known_as);
        }
        match ended.how {
            How::Completed => self.value("result", ended.value),
            How::Failed | How::Ignored => {
                self.text("error", std::str::from_utf8(ended.value).unwrap_or_default());
            }
            How::Dropped | How::Detached => {}
        }
    }

    fn remains(&mut self, left: &KeptRemains<'_>) {
        self.id("id", left.child);
        self.text("queue", left.queue);
        self.some_text("customId", left.custom_id);
        match left.end {
            End::Completed => self.value("result", left.value),
            End::Failed(policy) => {
                self.text("onFailure", policy_name(policy));
                self.text("error", std::str::from_utf8(left.value).unwrap_or_default());
            }
        }
    }

    fn extras(&mut self, extras: &Extras) {
        self.flag("fixedBackoff", extras.backoff == Some(Growth::Fixed));
        self.some_uint("maxBackoff", extras.backoff_max_ms.map(u64::from));
        self.some_uint("stallTimeout", extras.stall_timeout_ms.map(u64::from));
        self.some_uint("keepLogs", extras.keep_logs.map(u64::from));
        self.some_uint("sizeLimit", extras.size_limit.map(u64::from));
        self.some_uint("stackTraceLimit", extras.stack_lines_max.map(u64::from));
        self.some_uint("timestamp", extras.made_at_ms);
        if let Some(dedup) = extras.dedup {
            self.nested("dedup", |pen| {
                pen.uint("ttl", dedup.ttl_ms);
                pen.flag("extend", dedup.extend);
                pen.flag("replace", dedup.replace);
                pen.uint("until", dedup.until_ms);
            });
        }
    }

    fn ended(&mut self, ended: &Ended<'_>) {
        self.id("id", ended.id);
        self.uint("at", ended.at_ms);
        self.uint("startedAt", ended.started_at_ms);
        match ended.evicts {
            Evicts::Unsaid | Evicts::Nothing => {}
            Evicts::Below(below) => self.uint("forgottenBelow", below),
            Evicts::Itself => self.text("forgotten", "itself"),
        }
        self.value("result", ended.result);
    }

    fn buried(&mut self, buried: &Buried<'_>) {
        self.id("id", buried.id);
        self.uint("at", buried.at_ms);
        self.uint("startedAt", buried.started_at_ms);
        self.uint("attempts", u64::from(buried.attempts));
        self.uint("stalls", u64::from(buried.stalls));
        self.text("cause", buried.cause.name());
        let Stack { lines, texts } = buried.stack;
        if lines > 0 {
            let writer = self.key("stacktrace");
            writer.array(lines as usize);
            writer.raw(texts);
        }
        self.text("error", buried.error);
    }

    fn changed(&mut self, changed: &Changed<'_>) {
        self.id("id", changed.id());
        match changed {
            Changed::Prioritized { priority, lifo, .. } => {
                self.key("priority").int(i64::from(*priority));
                if let Some(lifo) = lifo {
                    self.key("lifo").bool(*lifo);
                }
            }
            Changed::Promoted { at_ms, .. } => self.uint("at", *at_ms),
            Changed::Flagged { flag, .. } => {
                self.flag("lifo", flag & flags::LIFO != 0);
                self.flag("removeOnComplete", flag & flags::REMOVE_ON_COMPLETE != 0);
                self.flag("removeOnFail", flag & flags::REMOVE_ON_FAIL != 0);
            }
            Changed::KeyFreed { .. } => {}
            Changed::KeyExtended { until_ms, .. } | Changed::Renewed { until_ms, .. } => {
                self.uint("until", *until_ms);
            }
            Changed::LogCut { keep, .. } => self.uint("keepLogs", u64::from(*keep)),
            Changed::PutOff { at_ms, run_at_ms, .. } => {
                self.uint("at", *at_ms);
                self.uint("runAt", *run_at_ms);
            }
            Changed::Progressed { progress, message, .. } => {
                self.key("progress").number(*progress);
                self.some_text("message", *message);
            }
            Changed::Logged { at_ms, level, message, .. } => {
                self.uint("at", *at_ms);
                self.text("level", LOG_LEVELS[*level as usize]);
                self.text("message", message);
            }
        }
    }

    fn cron_set(&mut self, set: &CronSet<'_>) {
        self.text("name", set.name);
        self.text("queue", set.queue);
        self.some_text("schedule", set.schedule);
        self.some_uint("repeatEvery", set.repeat_every_ms);
        self.some_text("timezone", set.timezone);
        self.key("priority").int(i64::from(set.priority));
        self.some_uint("maxLimit", set.runs_max);
        self.uint("executions", set.executions);
        self.uint("version", set.version);
        self.uint("nextRun", set.next_run_ms);
        self.flag("immediately", set.rules.immediately);
        self.flag("skipIfNoWorker", set.rules.skip_if_no_worker);
        self.flag("catchesUp", set.rules.catch_up);
        self.flag("preventOverlap", set.rules.prevent_overlap);
        if !set.template.is_empty() {
            self.nested("job", |pen| pen.asked(&set.job()));
        }
        self.value("data", set.data);
    }

    fn webhook(&mut self, added: &WebhookAdded<'_>) {
        self.id("id", JobId(added.id));
        self.uint("createdAt", added.created_at_ms);
        self.text("url", added.url);
        let events: Vec<_> = added.events.iter().collect();
        let writer = self.key("events");
        writer.array(events.len());
        for event in &events {
            writer.str(event.name());
        }
        self.some_text("queue", added.queue);
        self.flag("disabled", !added.events.is_enabled());
        // What it is stays in the log.
        self.flag("hasSecret", added.secret.is_some());
    }

    fn kept(&mut self, kept: &Kept<'_>) {
        match kept {
            Kept::Job(job) => self.kept_job(job),
            Kept::Moved(moved) => {
                self.id("id", moved.id);
                self.uint("from", moved.from);
                self.nested("record", |pen| {
                    pen.text("kind", kind_name(moved.record).unwrap_or("unknown"));
                    match Record::decode(moved.record) {
                        Ok(record) => pen.record(&record),
                        Err(Malformed(reason)) => pen.text("error", reason),
                    }
                });
            }
            Kept::Evicted { queue, below } => {
                self.text("queue", queue);
                self.uint("below", *below);
            }
            Kept::Past(ids) => {
                let ids: Vec<JobId> = ids.iter().collect();
                let writer = self.key("ids");
                writer.array(ids.len());
                for id in &ids {
                    writer.uuid(id.0);
                }
            }
            Kept::Remains(left) => self.remains(left),
            Kept::Ids { highest } => self.id("highest", *highest),
            Kept::GivenUp { until } => self.uint("until", *until),
        }
    }

    fn kept_job(&mut self, job: &KeptJob<'_>) {
        match &job.place {
            Place::Pending(state) => self.text("state", state.name()),
            Place::Active { token, ttl_ms, at_ms } => {
                self.text("state", "active");
                self.id("token", JobId(token.0));
                self.uint("lockTtl", u64::from(*ttl_ms));
                self.uint("at", *at_ms);
            }
            Place::Ended(state, outcome) => {
                self.text("state", state.name());
                self.uint("at", outcome.finished_at_ms);
                self.uint("startedAt", outcome.started_at_ms);
                self.uint("order", outcome.order);
                if *state == State::Failed {
                    self.text("cause", outcome.cause.name());
                }
                self.stored("outcome", &outcome.stored);
            }
        }
        self.uint("attempts", u64::from(job.attempts));
        self.uint("stalls", u64::from(job.stalls));
        if let Some(rare) = &job.rare {
            self.some_uint("expiresAt", Some(rare.expires_at_ms).filter(|&at_ms| at_ms > 0));
            if let Some(notes) = &rare.notes {
                self.key("progress").number(notes.progress);
                if let Some(message) = &notes.message {
                    self.stored("message", message);
                }
                self.uint("logLines", notes.logs.iter().count() as u64);
            }
            if let Some(before) = rare.redelivered {
                self.uint("redelivered", u64::from(before.times));
                self.uint("redeliveredAt", before.last_at_ms);
            }
            if let Some(ends) = rare.kin {
                self.flag("freed", ends.freed);
                self.uint("childrenEnded", ends.iter().count() as u64);
            }
            if let Some((due_ms, continued)) = rare.run {
                self.uint("due", due_ms);
                self.flag("continued", continued);
            }
        }
        if let Some(shared) = &job.shared {
            self.stored("shared", shared);
        }
        self.pushed(&job.pushed);
    }
}
