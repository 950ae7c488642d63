//! Jobs and schedules as a server of this protocol shows them: of bunqueue, of another corq, and of the lines that
//! `corq export` writes.

use super::model::{Death, ForeignJob, ForeignSchedule, State, queue_name, short};
use super::place::Url;
use super::sink::Sink;
use crate::api::commands::Op;
use crate::cli::client::Client;
use crate::cli::failure::Failure;
use crate::cli::request::{Fields, Request};
use crate::cli::target::Target;
use crate::cli::value::Value;

const PORT: u16 = 6789;
/// Jobs of a page. Their payloads may have 10 MB each; a server ends a page before that becomes too much, or it did not.
pub const PAGE: i64 = 100;
/// Fields that are taken as they are.
const SAME: &[&str] = &[
    "name",
    "priority",
    "tags",
    "groupId",
    "stallTimeout",
    "stackTraceLimit",
    "keepLogs",
    "sizeLimit",
    "traceparent",
    "tracestate",
    "repeat",
];
const FLAGS: &[&str] = &[
    "lifo",
    "removeOnComplete",
    "removeOnFail",
    "durable",
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
];

/// The state that a server calls so.
pub fn state_of(job: Value<'_>) -> State {
    let attempts = job.get("attempts").count();
    match job.get("state").text() {
        Some("delayed") if attempts > 0 => State::Retrying,
        Some("delayed") => State::Delayed,
        Some("failed") => State::Dead,
        Some("active") => State::Active,
        Some("completed") => State::Completed,
        Some("waiting-children") => State::Parents,
        Some(_) => State::Waiting,
        None if job.get("runAt").is_nil() => State::Waiting,
        None => State::Delayed,
    }
}

/// A job as it is shown, with its payload beside it.
pub fn map_job(job: Value<'_>, data: &[u8], sink: &mut Sink<'_>) -> ForeignJob {
    let state = state_of(job);
    let id = job.get("customId").text().or_else(|| job.get("id").text());
    let id = id.filter(|id| !id.is_empty()).map(str::to_owned);
    let mut mapped = ForeignJob::new(job.get("queue").text().unwrap_or_default(), "", state);
    let shown = id.clone().unwrap_or_default();
    mapped.id = id;
    mapped.created_ms = job.get("createdAt").integer();
    if matches!(state, State::Delayed | State::Retrying) {
        mapped.run_at_ms = job.get("runAt").integer();
    }
    let fields = &mut mapped.fields;
    fields.raw("data", data);
    for name in SAME {
        let value = job.get(name);
        let is_empty = value.items().next().is_none()
            && value.text().is_none()
            && value.number().is_none()
            && value.entries().next().is_none();
        if !value.is_nil() && !is_empty {
            fields.raw(name, value.bytes());
        }
    }
    for name in FLAGS {
        fields.flag_if(name, job.get(name).is_true());
    }
    let (most, made) =
        (job.get("maxAttempts").integer(), job.get("attempts").integer().unwrap_or(0));
    let ends = matches!(state, State::Dead | State::Completed);
    if let Some(most) = most {
        fields.integer("maxAttempts", if ends { most } else { (most - made).max(1) });
        if made > 0 && !ends {
            sink.report.carried("attempts", "maxAttempts: those that are left", &shown);
        }
    }
    map_backoff(fields, job);
    fields.integer_if("timeout", job.get("timeout").integer().filter(|ms| *ms > 0));
    let ttl = job.get("ttl").integer().filter(|ms| *ms > 0);
    if ends && ttl.is_some() {
        sink.report.dropped("ttl", "of a job that has ended", &shown);
    } else {
        fields.integer_if("ttl", ttl);
    }
    match job.get("uniqueKey").text() {
        Some(_) if ends => sink.report.dropped("uniqueKey", "of a job that has ended", &shown),
        Some(key) => {
            fields.text("uniqueKey", &short(key));
            let ttl = job.get("deduplicationTtl").integer().filter(|ms| *ms > 0);
            let flag = |name| job.get(name).is_true();
            let (extend, replace) = (flag("deduplicationExtend"), flag("deduplicationReplace"));
            if ttl.is_some() || extend || replace {
                let mut dedup = Fields::of_dedup();
                dedup.integer_if("ttl", ttl);
                dedup.flag_if("extend", extend);
                dedup.flag_if("replace", replace);
                fields.raw("dedup", &dedup.finish());
            }
        }
        None => {}
    }
    if let Some(parent) = job.get("parentId").text() {
        fields.text("parentId", &sink.custom_id(parent));
    }
    if state == State::Parents {
        for name in ["dependsOn", "childrenIds"] {
            let ids: Vec<String> = job
                .get(name)
                .items()
                .filter_map(|id| id.text().map(|id| sink.custom_id(id)))
                .collect();
            fields.texts_if(name, &ids);
        }
    }
    if state == State::Dead {
        mapped.death = Some(Death {
            error: job.get("failedReason").text().unwrap_or_default().to_owned(),
            reason: reason_of(job.get("deadReason").text()),
            attempts: made,
        });
    }
    for (name, why) in [
        ("stacktrace", "a dead letter is imported with its error alone"),
        ("returnvalue", "a job that is moved has no result"),
    ] {
        let value = job.get(name);
        if ends && (value.items().nth(1).is_some() || (name == "returnvalue" && !value.is_nil())) {
            sink.report.dropped(name, why, &shown);
        }
    }
    mapped
}

fn reason_of(word: Option<&str>) -> &'static str {
    let words = corq_shards::dead_letter::reason::Cause::NAMES;
    words.iter().copied().find(|known| Some(*known) == word).unwrap_or("unknown")
}

fn map_backoff(fields: &mut Fields, job: Value<'_>) {
    let config = job.get("backoffConfig");
    if let Some(kind) = config.get("type").text() {
        let mut backoff = Fields::of_backoff();
        let delay = config.get("delay").integer().or_else(|| job.get("backoff").integer());
        backoff.integer_if("delay", delay);
        backoff.text("type", if kind == "fixed" { "fixed" } else { "exponential" });
        backoff.integer_if("maxDelay", config.get("maxDelay").integer());
        fields.raw("backoff", &backoff.finish());
    } else if !job.get("backoff").is_nil() {
        fields.raw("backoff", job.get("backoff").bytes());
    }
}

/// A schedule as it is shown.
pub fn map_schedule(from: Value<'_>, data: Vec<u8>) -> Option<ForeignSchedule> {
    let (name, queue) = (from.get("name").text()?, from.get("queue").text().unwrap_or_default());
    let mut schedule = ForeignSchedule::new(name, &queue_name(queue), data);
    for name in [
        "schedule",
        "repeatEvery",
        "priority",
        "timezone",
        "jobName",
        "uniqueKey",
        "dedup",
        "immediately",
        "skipIfNoWorker",
        "skipMissedOnRestart",
        "preventOverlap",
        "jobOptions",
    ] {
        let value = from.get(name);
        let is_default = name == "priority" && value.integer() == Some(0);
        if !value.is_nil() && !is_default {
            schedule.fields.push((name, value.bytes().to_vec()));
        }
    }
    // The runs that there have been are those of the source.
    if let Some(limit) = from.get("maxLimit").integer() {
        schedule
            .integer("maxLimit", (limit - from.get("executions").integer().unwrap_or(0)).max(1));
    }
    schedule.enabled = !from.get("enabled").is_false();
    Some(schedule)
}

/// A running server of this protocol as a source.
pub struct Served {
    client: Client,
}

impl Served {
    pub fn open(text: &str, target: &Target) -> Result<Self, Failure> {
        let url = Url::parse(text, &["tcp", "tcp+tls", "tcp+unix"])?;
        let host = if url.host.is_empty() { "127.0.0.1".to_owned() } else { url.host.clone() };
        let socket = (url.scheme == "tcp+unix").then(|| url.path.clone().into());
        let source = Target {
            host,
            port: url.port.unwrap_or(PORT),
            socket,
            tls: url.scheme == "tcp+tls",
            tls_ca: target.tls_ca.clone(),
            token: url.password,
            ..Target::default()
        };
        Ok(Self { client: Client::connect(&source)? })
    }

    pub fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), Failure> {
        if sink.options.remove {
            return Err(Failure::Usage(
                "--remove is not for this source: obliterate its queues once all is moved"
                    .to_owned(),
            ));
        }
        let queues = queues_of(&mut self.client)?;
        let queues: Vec<String> =
            queues.into_iter().filter(|name| sink.options.takes_queue(name)).collect();
        // Parents, which may wait for jobs of any queue, come last.
        for parents in [false, true] {
            for queue in &queues {
                self.read_queue(queue, parents, sink)?;
            }
        }
        let reply = self.client.call(Request::new(Op::CronList))?.granted()?;
        for cron in reply.value().get("crons").items() {
            let queue = cron.get("queue").text().unwrap_or_default();
            if !sink.options.takes_queue(queue) {
                continue;
            }
            let data = whole_schedule_data(&mut self.client, cron)?;
            if let Some(schedule) = map_schedule(cron, data) {
                sink.schedule(&schedule)?;
            }
        }
        Ok(())
    }

    fn read_queue(
        &mut self,
        queue: &str,
        parents: bool,
        sink: &mut Sink<'_>,
    ) -> Result<(), Failure> {
        if parents {
            self.read_state(queue, "waiting-children", sink)?;
            return Ok(());
        }
        let by_cursor = self.read_state(queue, "waiting", sink)?;
        // Elsewhere these are states of their own; here they are waiting ones.
        let others: &[&str] = if by_cursor { &[] } else { &["prioritized", "paused"] };
        for state in others.iter().chain(&["delayed", "active", "completed", "failed"]) {
            self.read_state(queue, state, sink)?;
        }
        Ok(())
    }

    /// Reads the jobs in one state, and says whether the server has cursors.
    fn read_state(
        &mut self,
        queue: &str,
        state: &str,
        sink: &mut Sink<'_>,
    ) -> Result<bool, Failure> {
        let mut pages = JobPages::of(queue, state);
        while let Some(jobs) = pages.next(&mut self.client)? {
            let page = Value::of(&jobs).unwrap_or_else(|error| unreachable!("{error}"));
            for job in page.items() {
                let mut mapped = map_job(job, job.get("data").bytes(), sink);
                mapped.queue = queue_name(queue);
                sink.job(mapped)?;
            }
        }
        Ok(pages.offset.is_none())
    }
}

/// The payload of a schedule, which lists do not show.
pub fn whole_schedule_data(client: &mut Client, listed: Value<'_>) -> Result<Vec<u8>, Failure> {
    if !listed.get("data").is_nil() {
        return Ok(listed.get("data").bytes().to_vec());
    }
    let name = listed.get("name").text().unwrap_or_default();
    let reply = client.call(Request::new(Op::CronGet).with(|fields| fields.text("name", name)))?;
    Ok(reply.value().get("cron").get("data").bytes().to_vec())
}

/// The names of all queues.
pub fn queues_of(client: &mut Client) -> Result<Vec<String>, Failure> {
    let reply = client.call(Request::new(Op::ListQueues))?.granted()?;
    let name =
        |queue: Value<'_>| queue.text().or_else(|| queue.get("name").text()).map(str::to_owned);
    Ok(reply.value().get("queues").items().filter_map(name).collect())
}

/// The jobs of a queue in one state, page by page, oldest first: by a cursor, or by an offset where there is none.
pub struct JobPages {
    queue: String,
    state: String,
    after: Option<String>,
    offset: Option<i64>,
    ended: bool,
}

impl JobPages {
    pub fn of(queue: &str, state: &str) -> Self {
        Self {
            queue: queue.to_owned(),
            state: state.to_owned(),
            after: None,
            offset: None,
            ended: false,
        }
    }

    /// The next page: a list of jobs, encoded.
    pub fn next(&mut self, client: &mut Client) -> Result<Option<Vec<u8>>, Failure> {
        if self.ended {
            return Ok(None);
        }
        let request = Request::on_queue(Op::GetJobs, &self.queue).with(|fields| {
            fields.text("state", &self.state);
            fields.integer("limit", PAGE);
            if let Some(offset) = self.offset {
                fields.integer("offset", offset);
            } else {
                fields.text("data", "full");
                fields.text_if("after", self.after.as_deref());
            }
        });
        let reply = client.call(request)?.granted()?;
        let value = reply.value();
        let jobs = value.get("jobs");
        let count = jobs.items().count() as i64;
        let has_cursor = value.entries().any(|(key, _)| key.text() == Some("next"));
        if has_cursor {
            self.after = value.get("next").text().map(str::to_owned);
            self.ended = self.after.is_none();
        } else {
            self.offset = Some(self.offset.unwrap_or(0) + count);
            self.ended = count < PAGE;
        }
        // A page by a cursor may be empty and not be the last one.
        Ok(Some(jobs.bytes().to_vec()))
    }
}
