//! `BullMQ`: a hash per job and lists of their ids, in Redis.

use std::path::PathBuf;

use super::model::{
    Death, ForeignJob, ForeignSchedule, Mark, State, json_value, payload, queue_name, short, text,
};
use super::redis::{Hash, ListPages, Redis, SetPages};
use super::sink::Sink;
use crate::api::commands::Op;
use crate::api::limits::PRIORITY_MAX;
use crate::cli::failure::Failure;
use crate::cli::request::{Fields, Request};
use crate::cli::value::Value;

/// Milliseconds and a counter in the score of a delayed job.
const DELAY_SCALE: f64 = 4096.0;
/// Reason given for dead letters, since the source tells none.
const ATTEMPTS_OVER: &str = "max_attempts_exceeded";

/// Where jobs of a state are: the key behind the queue's, a list or a sorted set.
const PLACES: [(&str, bool, State); 8] = [
    ("wait", true, State::Waiting),
    ("paused", true, State::Waiting),
    ("prioritized", false, State::Waiting),
    ("active", true, State::Active),
    ("delayed", false, State::Delayed),
    ("failed", false, State::Dead),
    ("completed", false, State::Completed),
    ("waiting-children", false, State::Parents),
];

/// A source.
#[derive(Debug)]
pub struct BullMq {
    redis: Redis,
    prefix: String,
}

/// A job as it is listed.
struct Listed {
    id: Vec<u8>,
    score: f64,
}

impl BullMq {
    pub fn open(url: &str, prefix: &str, authority: Option<&PathBuf>) -> Result<Self, Failure> {
        Ok(Self { redis: Redis::open(url, authority)?, prefix: prefix.to_owned() })
    }

    /// Reads everything.
    pub fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), Failure> {
        let head = format!("{}:", self.prefix);
        let metas = self.redis.keys(&format!("{head}*:meta"))?;
        let names = metas.iter().filter_map(|key| key.strip_prefix(&head)?.strip_suffix(":meta"));
        let queues: Vec<String> =
            names.filter(|name| sink.options.takes_queue(name)).map(str::to_owned).collect();
        for queue in &queues {
            self.read_settings(queue, sink)?;
            self.read_schedules(queue, sink)?;
        }
        // Parents, which may wait for jobs of any queue, come last.
        for parents in [false, true] {
            for queue in &queues {
                for (place, is_list, state) in PLACES {
                    let is_asked =
                        matches!(state, State::Active | State::Completed) || sink.takes(state);
                    if (state == State::Parents) == parents && is_asked {
                        self.read_place(queue, place, is_list, state, sink)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn key(&self, queue: &str, rest: &str) -> String {
        format!("{}:{queue}:{rest}", self.prefix)
    }

    fn read_place(
        &mut self,
        queue: &str,
        place: &str,
        is_list: bool,
        state: State,
        sink: &mut Sink<'_>,
    ) -> Result<(), Failure> {
        let key = self.key(queue, place);
        if !sink.takes(state) {
            // Counted, not read.
            let size = if is_list { "LLEN" } else { "ZCARD" };
            let count = self.redis.call(&[size, &key])?.integer();
            for _ in 0..count {
                sink.report.read(state);
                sink.report.left(state);
            }
            return Ok(());
        }
        let mut list = ListPages::of(key.clone());
        let mut set = SetPages::of(key.clone());
        loop {
            let page: Vec<Listed> = if is_list {
                let Some(page) = list.next(&mut self.redis)? else { break };
                page.into_iter().map(|id| Listed { id, score: 0.0 }).collect()
            } else {
                let Some(page) = set.next(&mut self.redis)? else { break };
                page.into_iter().map(|(id, score)| Listed { id, score }).collect()
            };
            let mut rest = &page[..];
            while !rest.is_empty() {
                let keys: Vec<String> = rest
                    .iter()
                    .map(|listed| self.key(queue, &String::from_utf8_lossy(&listed.id)))
                    .collect();
                let hashes = self.redis.hashes(&keys)?;
                let (these, others) = rest.split_at(hashes.len());
                for (listed, hash) in these.iter().zip(&hashes) {
                    self.take(queue, listed, hash, (&key, state), sink)?;
                }
                rest = others;
            }
            for mark in sink.settle()? {
                let was_there = self.remove(&mark, is_list)?;
                set.forget(&mark.member);
                sink.report.removed(was_there);
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        queue: &str,
        listed: &Listed,
        hash: &Hash,
        (key, state): (&str, State),
        sink: &mut Sink<'_>,
    ) -> Result<(), Failure> {
        let id = String::from_utf8_lossy(&listed.id).into_owned();
        if hash.is_empty() {
            // A mark that wakes workers, or a job that has ended since.
            return Ok(());
        }
        if hash.get("rjk").is_some() && state == State::Delayed {
            sink.report.read(state);
            sink.report.left(state);
            sink.report.dropped("next run of a repeatable job", "its schedule pushes it", &id);
            return Ok(());
        }
        let attempts = hash.integer("atm").or_else(|| hash.integer("attemptsMade")).unwrap_or(0);
        let shown = match state {
            State::Delayed if attempts > 0 => State::Retrying,
            other => other,
        };
        let mut job = ForeignJob::new(&queue_name(queue), format!("{queue}:{id}"), shown);
        job.mark = Mark {
            place: key.to_owned(),
            member: listed.id.clone(),
            with: vec![self.key(queue, &id)],
        };
        job.created_ms = hash.integer("timestamp");
        if matches!(state, State::Delayed) {
            job.run_at_ms = Some((listed.score / DELAY_SCALE) as i64);
            sink.report.carried("delay", "delay, counted from timestamp", &id);
        }
        let data = hash.get("data").unwrap_or(b"{}");
        job.fields.raw("data", &payload(data));
        if let Some(name) = hash.text("name").filter(|name| !name.is_empty()) {
            job.fields.text("name", &short(name));
            sink.report.carried("name", "name", &id);
        }
        let options = json_value(hash.get("opts").unwrap_or(b"{}")).unwrap_or_default();
        let options = Value::of(&options).unwrap_or_else(|_| nothing());
        let ends = matches!(state, State::Dead | State::Completed);
        map_options(&mut job.fields, options, (attempts, ends), &id, sink);
        let priority = hash.integer("priority").unwrap_or(0);
        map_priority(&mut job.fields, priority, &id, sink);
        if let Some(key) = hash.text("deid") {
            if ends {
                sink.report.dropped("deduplication.id", "of a job that has ended", &id);
            } else {
                job.fields.text("uniqueKey", &short(key));
                sink.report.carried("deduplication.id", "uniqueKey", &id);
            }
        }
        if state == State::Dead {
            let error = hash.text("failedReason").unwrap_or_default().to_owned();
            job.death = Some(Death { error, reason: ATTEMPTS_OVER, attempts });
            sink.report.carried("failedReason", "error of the dead letter", &id);
            sink.report.carried("attemptsMade", "attempts", &id);
            if hash.text("stacktrace").is_some_and(|text| text.len() > 2) {
                sink.report.dropped(
                    "stacktrace",
                    "a dead letter is imported with its error alone",
                    &id,
                );
            }
        }
        for (name, why) in [
            ("returnvalue", "a job that is moved has no result"),
            ("progress", "progress is of an attempt"),
        ] {
            if hash.text(name).is_some_and(|value| !matches!(value, "" | "null" | "0" | "{}")) {
                sink.report.dropped(name, why, &id);
            }
        }
        if let Some(parent) = hash.text("parentKey") {
            let parent = parent.strip_prefix(&format!("{}:", self.prefix)).unwrap_or(parent);
            job.fields.text("parentId", &sink.custom_id(parent));
            sink.report.carried("parent", "parentId", &id);
        }
        if state == State::Parents {
            self.take_children(queue, &id, &mut job, sink)?;
        }
        sink.job(job)
    }

    /// The children that a job still waits for.
    fn take_children(
        &mut self,
        queue: &str,
        id: &str,
        job: &mut ForeignJob,
        sink: &mut Sink<'_>,
    ) -> Result<(), Failure> {
        let children = self.redis.members(&self.key(queue, &format!("{id}:dependencies")))?;
        let head = format!("{}:", self.prefix);
        let ids: Vec<String> = children
            .iter()
            .map(|child| sink.custom_id(child.strip_prefix(&head).unwrap_or(child)))
            .collect();
        job.fields.texts_if("dependsOn", &ids);
        job.fields.texts_if("childrenIds", &ids);
        sink.report.carried("children", "dependsOn, childrenIds", id);
        let done = self.redis.call(&["HLEN", &self.key(queue, &format!("{id}:processed"))])?;
        if done.integer() > 0 {
            sink.report.dropped(
                "results of children",
                "of those that have completed before the move",
                id,
            );
        }
        Ok(())
    }

    /// Takes a job out of its list, and forgets it if it was still there.
    fn remove(&mut self, mark: &Mark, is_list: bool) -> Result<bool, Failure> {
        let gone = if is_list {
            self.redis.call(&[b"LREM", mark.place.as_bytes(), b"-1", &mark.member[..]])?
        } else {
            self.redis.call(&[b"ZREM", mark.place.as_bytes(), &mark.member[..]])?
        };
        if gone.integer() == 0 {
            return Ok(false);
        }
        for key in &mark.with {
            let logs = format!("{key}:logs");
            self.redis.call(&["DEL", key, &logs])?;
        }
        Ok(true)
    }

    fn read_settings(&mut self, queue: &str, sink: &mut Sink<'_>) -> Result<(), Failure> {
        let meta = self.redis.hash(&self.key(queue, "meta"))?;
        let here = sink.options.into.clone().unwrap_or_else(|| queue_name(queue));
        let mut requests = Vec::new();
        if let Some(limit) = meta.integer("concurrency").filter(|limit| *limit > 0) {
            requests.push(
                Request::on_queue(Op::SetConcurrency, &here)
                    .with(|fields| fields.integer("limit", limit)),
            );
            sink.report.carried("global concurrency", "concurrency limit of the queue", queue);
        }
        if let (Some(max), Some(duration)) = (meta.integer("max"), meta.integer("duration")) {
            requests.push(Request::on_queue(Op::RateLimit, &here).with(|fields| {
                fields.integer("limit", max);
                fields.integer("duration", duration);
            }));
            sink.report.carried("global rate limit", "rate limit of the queue", queue);
        }
        if meta.integer("paused") == Some(1) {
            let why = "pausing is left to you: corq queue pause";
            sink.report.dropped("pause of the queue", why, queue);
        }
        if requests.is_empty() { Ok(()) } else { sink.settings(requests) }
    }

    fn read_schedules(&mut self, queue: &str, sink: &mut Sink<'_>) -> Result<(), Failure> {
        let mut pages = SetPages::of(self.key(queue, "repeat"));
        while let Some(page) = pages.next(&mut self.redis)? {
            for (member, _) in page {
                let id = String::from_utf8_lossy(&member).into_owned();
                let hash = self.redis.hash(&self.key(queue, &format!("repeat:{id}")))?;
                Self::take_schedule(queue, &id, &hash, sink)?;
            }
        }
        Ok(())
    }

    fn take_schedule(
        queue: &str,
        id: &str,
        hash: &Hash,
        sink: &mut Sink<'_>,
    ) -> Result<(), Failure> {
        // Schedules of older releases are spelled in their keys: name, id, end, time zone, cadence.
        let parts: Vec<&str> = id.split(':').collect();
        let old = (parts.len() >= 5 && hash.text("pattern").is_none()).then(|| {
            let cadence = parts[4..].join(":");
            (parts[0], parts[3], cadence)
        });
        let every = hash.integer("every").or_else(|| old.as_ref()?.2.parse().ok());
        let pattern = hash.text("pattern").map(str::to_owned);
        let pattern = pattern.or_else(|| old.as_ref().map(|(_, _, cadence)| cadence.clone()));
        let data = payload(hash.get("data").unwrap_or(b"{}"));
        let mut schedule = ForeignSchedule::new(format!("{queue}:{id}"), &queue_name(queue), data);
        match (every, pattern) {
            (Some(every), _) => schedule.integer("repeatEvery", every),
            (None, Some(pattern)) => schedule.text("schedule", &pattern),
            (None, None) => {
                sink.report.schedule_refused(id, "it has neither a pattern nor an interval");
                return Ok(());
            }
        }
        let name = hash.text("name").or_else(|| old.as_ref().map(|(name, _, _)| *name));
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            schedule.text("jobName", &short(name));
        }
        let zone = hash.text("tz").or_else(|| old.as_ref().map(|(_, zone, _)| *zone));
        if let Some(zone) = zone.filter(|zone| !zone.is_empty()) {
            schedule.text("timezone", zone);
        }
        let runs = hash.integer("ic").unwrap_or(0);
        if let Some(limit) = hash.integer("limit") {
            // The runs that there have been are those of the source.
            schedule.integer("maxLimit", (limit - runs).max(1));
            sink.report.carried("limit of a schedule", "maxLimit: what is left of it", id);
        }
        for name in ["startDate", "endDate"] {
            if hash.get(name).is_some() {
                sink.report.dropped(
                    name,
                    "a schedule begins at once and ends by maxLimit or 'corq cron remove'",
                    id,
                );
            }
        }
        if let Some(options) = json_value(hash.get("opts").unwrap_or(b"{}")) {
            let options = Value::of(&options).unwrap_or_else(|_| nothing());
            let mut job = Fields::of_cron_job();
            map_attempts(&mut job, options, (0, false), id, sink);
            map_removal(&mut job, options, id, sink);
            if !job.is_empty() {
                schedule.fields.push(("jobOptions", job.finish()));
            }
            if let Some(priority) = options.get("priority").integer().filter(|it| *it != 0) {
                schedule.integer("priority", -priority.min(PRIORITY_MAX));
            }
        }
        sink.schedule(&schedule)
    }
}

fn nothing() -> Value<'static> {
    Value::of(&[0xc0]).unwrap_or_else(|error| unreachable!("{error}"))
}

/// Lower numbers go first there, and those without one before all others.
fn map_priority(fields: &mut Fields, priority: i64, id: &str, sink: &mut Sink<'_>) {
    if priority == 0 {
        return;
    }
    if priority > PRIORITY_MAX {
        sink.report.dropped("priority beyond 1000000", "the lowest here is -1000000", id);
    }
    fields.integer("priority", -priority.min(PRIORITY_MAX));
    sink.report.carried("priority", "priority, negative", id);
}

fn map_options(
    fields: &mut Fields,
    options: Value<'_>,
    (attempts, ends): (i64, bool),
    id: &str,
    sink: &mut Sink<'_>,
) {
    map_attempts(fields, options, (attempts, ends), id, sink);
    map_removal(fields, options, id, sink);
    for (key, value) in options.entries() {
        let Some(name) = key.text() else { continue };
        match name {
            // Elsewhere, or a part of what is.
            "attempts" | "backoff" | "removeOnComplete" | "removeOnFail" | "priority" | "delay"
            | "timestamp" | "jobId" | "parent" | "attempt" | "prevMillis" | "repeatJobKey"
            | "jobSchedulerId" | "debounce" => {}
            "lifo" => {
                fields.flag_if("lifo", value.is_true());
                sink.report.carried("lifo", "lifo", id);
            }
            "sizeLimit" | "stackTraceLimit" => {
                if let Some(limit) = value.integer() {
                    fields.integer(
                        if name == "sizeLimit" { "sizeLimit" } else { "stackTraceLimit" },
                        limit,
                    );
                    sink.report.carried(name, name, id);
                }
            }
            "kl" | "keepLogs" => {
                if let Some(lines) = value.integer() {
                    fields.integer("keepLogs", lines);
                    sink.report.carried("keepLogs", "keepLogs", id);
                }
            }
            "de" | "deduplication" => {
                let ttl = value.get("ttl").integer().filter(|_| !ends);
                let (extend, replace) =
                    (value.get("extend").is_true(), value.get("replace").is_true());
                if !ends && (ttl.is_some() || extend || replace) {
                    let mut dedup = Fields::of_dedup();
                    dedup.integer_if("ttl", ttl);
                    dedup.flag_if("extend", extend);
                    dedup.flag_if("replace", replace);
                    fields.raw("dedup", &dedup.finish());
                    sink.report.carried("deduplication.ttl, extend, replace", "dedup", id);
                }
            }
            "fpof" | "failParentOnFailure" => {
                policy(fields, "failParentOnFailure", value, id, sink);
            }
            "cpof" | "continueParentOnFailure" => {
                policy(fields, "continueParentOnFailure", value, id, sink);
            }
            "idof" | "ignoreDependencyOnFailure" => {
                policy(fields, "ignoreDependencyOnFailure", value, id, sink);
            }
            "rdof" | "removeDependencyOnFailure" => {
                policy(fields, "removeDependencyOnFailure", value, id, sink);
            }
            "tm" | "telemetry" => {
                let metadata = if name == "tm" { value } else { value.get("metadata") };
                let carrier = metadata.text().and_then(|text| json_value(text.as_bytes()));
                let carrier = carrier.unwrap_or_default();
                let trace = Value::of(&carrier).ok().and_then(|it| it.get("traceparent").text());
                match trace {
                    Some(trace) => {
                        fields.text("traceparent", trace);
                        sink.report.carried("telemetry.metadata", "traceparent", id);
                    }
                    None => sink.report.dropped("telemetry.metadata", "it has no traceparent", id),
                }
            }
            "repeat" => sink.report.dropped("repeat", "its schedule is moved by itself", id),
            other => sink.report.dropped(&short(other), "there is no such option here", id),
        }
    }
}

fn policy(
    fields: &mut Fields,
    name: &'static str,
    value: Value<'_>,
    id: &str,
    sink: &mut Sink<'_>,
) {
    fields.flag_if(name, value.is_true());
    sink.report.carried(name, name, id);
}

/// How often, and how long between: attempts that were made are taken off those that there may be.
fn map_attempts(
    fields: &mut Fields,
    options: Value<'_>,
    (made, ends): (i64, bool),
    id: &str,
    sink: &mut Sink<'_>,
) {
    let most = options.get("attempts").integer().unwrap_or(1).max(1);
    let left = if ends { most } else { (most - made).max(1) };
    fields.integer("maxAttempts", left.min(1000));
    let becomes =
        if made > 0 && !ends { "maxAttempts: those that are left" } else { "maxAttempts" };
    sink.report.carried("attempts (1 if absent)", becomes, id);
    let backoff = options.get("backoff");
    if backoff.is_nil() {
        // There is none, and the next attempt follows at once.
        fields.integer("backoff", 0);
        return;
    }
    let (delay, kind) = match backoff.integer() {
        Some(delay) => (delay, "fixed"),
        None => (
            backoff.get("delay").integer().unwrap_or(0),
            backoff.get("type").text().unwrap_or("fixed"),
        ),
    };
    if !matches!(kind, "fixed" | "exponential") {
        sink.report.dropped(
            "backoff of a type of one's own",
            "fixed is taken: the function is the worker's",
            id,
        );
    }
    if !backoff.get("jitter").is_nil() {
        sink.report.dropped(
            "backoff.jitter",
            "exponential has a fifth at random here, fixed none",
            id,
        );
    }
    let mut object = Fields::of_backoff();
    object.integer("delay", delay.clamp(0, 86_400_000));
    object.raw("type", &text(if kind == "exponential" { "exponential" } else { "fixed" }));
    object.integer("maxDelay", 86_400_000);
    fields.raw("backoff", &object.finish());
    sink.report.carried("backoff", "backoff, at most a day", id);
}

/// True removes; a number or an age keeps for a while, which is a setting of the server here.
fn map_removal(fields: &mut Fields, options: Value<'_>, id: &str, sink: &mut Sink<'_>) {
    for name in ["removeOnComplete", "removeOnFail"] {
        let value = options.get(name);
        if value.is_true() || value.integer() == Some(0) {
            fields.flag_if(name, true);
            sink.report.carried(name, name, id);
        } else if !value.is_nil() && !value.is_false() {
            let why = if name == "removeOnComplete" {
                "how many are kept is COMPLETED_MAX of the server"
            } else {
                "how many and how long is a rule of the queue: corq dlq config"
            };
            sink.report.dropped(&format!("{name} by age or count"), why, id);
        }
    }
}
