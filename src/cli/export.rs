//! `export`: jobs, schedules and settings of queues as lines of JSON, which `import ndjson` reads again. A payload is JSON where that
//! gives the same bytes when it is read, and the base64 of its `MessagePack` elsewhere.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::Args;

use super::client::Client;
use super::context::Context;
use super::failure::{Failure, complain};
use super::import::ndjson::VERSION;
use super::import::served::{JobPages, queues_of, whole_schedule_data};
use super::input;
use super::output::Output;
use super::request::Request;
use super::value::Value;
use crate::api::commands::Op;
use crate::protocol::json;

/// The options of `corq export`.
#[derive(Args, Debug)]
#[group(id = "Export", multiple = true)]
pub struct Export {
    /// File to write, which must not exist [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Queue to export; may be given several times [default: all]
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<String>,
    /// Completed jobs, too, with their results; an import leaves them out
    #[arg(long)]
    completed: bool,
}

/// Fields that a job is exported with, beside its payload, if it has them.
const JOB: &[&str] = &[
    "id",
    "queue",
    "state",
    "name",
    "createdAt",
    "runAt",
    "priority",
    "attempts",
    "maxAttempts",
    "backoff",
    "backoffConfig",
    "ttl",
    "timeout",
    "uniqueKey",
    "deduplicationTtl",
    "deduplicationExtend",
    "deduplicationReplace",
    "tags",
    "groupId",
    "lifo",
    "removeOnComplete",
    "removeOnFail",
    "durable",
    "stallTimeout",
    "stackTraceLimit",
    "keepLogs",
    "sizeLimit",
    "repeat",
    "dependsOn",
    "parentId",
    "childrenIds",
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
    "traceparent",
    "tracestate",
    "failedReason",
    "failedAt",
    "completedAt",
    "returnvalue",
];

/// The states, those last that wait for jobs of the others.
const STATES: [&str; 6] =
    ["waiting", "delayed", "active", "failed", "completed", "waiting-children"];

/// Where lines go, and how many went.
struct Lines<'a> {
    out: Box<dyn Write + 'a>,
    jobs: u64,
    schedules: u64,
    active: u64,
    /// Settings, jobs or schedules that changed while they were read, so that they are not there.
    gone: u64,
}

/// Writes everything.
pub fn run(context: &mut Context, export: &Export) -> Result<(), Failure> {
    let mut client = context.client()?;
    let Context { out, .. } = context;
    let mut file = None;
    let target: Box<dyn Write + '_> = match &export.output {
        Some(path) => {
            let made = File::create_new(path)
                .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
            file = Some(made.try_clone().map_err(|error| cannot_write(&error))?);
            Box::new(BufWriter::new(made))
        }
        None => Box::new(ToOutput(out)),
    };
    let mut lines = Lines { out: target, jobs: 0, schedules: 0, active: 0, gone: 0 };
    lines
        .write(&format!("{{\"corqExport\":{VERSION},\"at\":{}}}", Output::now_ms()).into_bytes())?;
    let queues = queues_of(&mut client)?;
    let wanted = |name: &str| export.queues.is_empty() || export.queues.iter().any(|it| it == name);
    let queues: Vec<String> = queues.into_iter().filter(|name| wanted(name)).collect();
    for queue in &queues {
        lines.settings(&mut client, queue)?;
    }
    for state in STATES.into_iter().filter(|state| *state != "completed" || export.completed) {
        for queue in &queues {
            let mut pages = JobPages::of(queue, state);
            while let Some(page) = pages.next(&mut client)? {
                let page = Value::of(&page).unwrap_or_else(|error| unreachable!("{error}"));
                for job in page.items() {
                    lines.job(&mut client, job)?;
                }
            }
        }
    }
    let reply = client.call(Request::new(Op::CronList))?.granted()?;
    for cron in reply.value().get("crons").items() {
        if wanted(cron.get("queue").text().unwrap_or_default()) {
            lines.schedule(&mut client, cron)?;
        }
    }
    lines.out.flush().map_err(|error| cannot_write(&error))?;
    let Lines { jobs, schedules, active, gone, .. } = lines;
    if let Some(file) = file {
        file.sync_all().map_err(|error| cannot_write(&error))?;
    }
    complain(&format!("exported {jobs} jobs, {schedules} schedules, {} queues", queues.len()));
    if active > 0 {
        complain(&format!(
            "{active} of the jobs were with a worker: an import pushes them, too, so that they run again"
        ));
    }
    if gone > 0 {
        complain(&format!(
            "{gone} jobs could not be read: 'corq log verify' says whether the log is damaged"
        ));
    }
    Ok(())
}

fn cannot_write(error: &std::io::Error) -> Failure {
    Failure::failed("the export cannot be written", error)
}

/// Standard output as a writer.
struct ToOutput<'a>(&'a mut Output);

impl Write for ToOutput<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.bytes(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Lines<'_> {
    fn write(&mut self, line: &[u8]) -> Result<(), Failure> {
        let written = self.out.write_all(line).and_then(|()| self.out.write_all(b"\n"));
        written.map_err(Failure::from)
    }

    fn job(&mut self, client: &mut Client, job: Value<'_>) -> Result<(), Failure> {
        if job.get("id").text().is_none() || job.get("damaged").is_true() {
            self.gone += 1;
            return Ok(());
        }
        let mut line = Object::begin("job");
        for name in JOB {
            let value = job.get(name);
            match *name {
                "dependsOn" | "childrenIds"
                    if job.get("state").text() == Some("waiting-children") =>
                {
                    let open = still_open(client, value)?;
                    if !open.is_empty() {
                        line.texts(name, &open);
                    }
                }
                "dependsOn" | "childrenIds" => {}
                _ if says_nothing(value) => {}
                _ => line.value(name, value.bytes())?,
            }
        }
        line.payload(job.get("data").bytes());
        self.jobs += 1;
        self.active += u64::from(job.get("state").text() == Some("active"));
        self.write(&line.finish())
    }

    fn schedule(&mut self, client: &mut Client, cron: Value<'_>) -> Result<(), Failure> {
        let mut line = Object::begin("schedule");
        for (key, value) in cron.entries() {
            let name = key.text().unwrap_or_default();
            if !matches!(name, "nextRun" | "data") && !value.is_nil() {
                line.value(name, value.bytes())?;
            }
        }
        line.payload(&whole_schedule_data(client, cron)?);
        self.schedules += 1;
        self.write(&line.finish())
    }

    /// Writes the settings of a queue that differ from the defaults.
    fn settings(&mut self, client: &mut Client, queue: &str) -> Result<(), Failure> {
        let mut line = Object::begin("queue");
        line.text("name", queue);
        let before = line.entries;
        let mut ask = |op: Op| {
            client.call(Request::on_queue(op, queue)).and_then(super::client::Reply::granted)
        };
        if ask(Op::IsPaused)?.value().get("paused").is_true() {
            line.raw("paused", b"true");
        }
        let reply = ask(Op::GetQueueLimits)?;
        let limits = reply.value().get("data").get("limits");
        if !limits.get("rateLimit").is_nil() {
            line.value("rateLimit", limits.get("rateLimit").bytes())?;
        }
        if !limits.get("concurrencyLimit").is_nil() {
            line.value("concurrency", limits.get("concurrencyLimit").bytes())?;
        }
        let reply = ask(Op::GetDlqConfig)?;
        let config = reply.value().get("config");
        let is_usual = config.get("autoRetry").is_false()
            && config.get("autoRetryInterval").count() == 3_600_000
            && config.get("maxAutoRetries").count() == 3
            && config.get("maxAge").is_nil()
            && config.get("maxEntries").is_nil();
        if !is_usual {
            line.value("dlq", config.bytes())?;
        }
        let reply = ask(Op::GetStallConfig)?;
        let config = reply.value().get("config");
        let is_usual = config.get("enabled").is_true()
            && config.get("stallInterval").count() == 30_000
            && config.get("maxStalls").count() == 3
            && config.get("gracePeriod").count() == 5000;
        if !is_usual {
            line.value("stall", config.bytes())?;
        }
        let groups = groups_of(client, queue)?;
        if !groups.is_empty() {
            line.raw("groups", &[b"[", groups.join(&b","[..]).as_slice(), b"]"].concat());
        }
        if line.entries == before { Ok(()) } else { self.write(&line.finish()) }
    }
}

/// The groups of a queue that have a setting, as JSON.
fn groups_of(client: &mut Client, queue: &str) -> Result<Vec<Vec<u8>>, Failure> {
    let (mut found, mut after) = (Vec::new(), None::<String>);
    loop {
        let request = Request::on_queue(Op::GetGroups, queue).with(|fields| {
            fields.integer("limit", 1000);
            fields.text_if("after", after.as_deref());
        });
        let reply = client.call(request)?.granted()?;
        let groups = reply.value().get("groups");
        let last =
            groups.items().last().and_then(|group| group.get("id").text().map(str::to_owned));
        for group in groups.items() {
            let mut object = Object::plain();
            for name in ["id", "paused", "weight", "concurrency", "limit"] {
                let value = group.get(name);
                let usual = says_nothing(value) || (name == "weight" && value.integer() == Some(1));
                if !usual {
                    object.value(name, value.bytes())?;
                }
            }
            if object.entries > 1 {
                found.push(object.finish());
            }
        }
        match last {
            Some(last) if groups.items().count() == 1000 => after = Some(last),
            _ => return Ok(found),
        }
    }
}

/// Names the jobs, of some, that have not been completed.
fn still_open(client: &mut Client, ids: Value<'_>) -> Result<Vec<String>, Failure> {
    let mut open = Vec::new();
    for id in ids.items().filter_map(Value::text) {
        let reply = client.call(Request::on_job(Op::GetState, id))?.granted()?;
        if !matches!(reply.value().get("state").text(), Some("completed" | "unknown")) {
            open.push(id.to_owned());
        }
    }
    Ok(open)
}

/// Whether a field would be the same if it was left out.
fn says_nothing(value: Value<'_>) -> bool {
    let is_empty_list = value.bytes().first() == Some(&0x90);
    value.is_nil() || value.is_false() || is_empty_list || value.text() == Some("")
}

/// An object of JSON in the making.
struct Object {
    text: Vec<u8>,
    entries: usize,
    ends: &'static [u8],
}

impl Object {
    fn begin(name: &str) -> Self {
        Self { text: format!("{{\"{name}\":{{").into_bytes(), entries: 0, ends: b"}}" }
    }

    fn plain() -> Self {
        Self { text: b"{".to_vec(), entries: 0, ends: b"}" }
    }

    fn raw(&mut self, name: &str, value: &[u8]) {
        if self.entries > 0 {
            self.text.push(b',');
        }
        self.entries += 1;
        self.text.extend_from_slice(format!("\"{name}\":").as_bytes());
        self.text.extend_from_slice(value);
    }

    fn value(&mut self, name: &str, value: &[u8]) -> Result<(), Failure> {
        let mut text = Vec::new();
        json::from_reply(value, &mut text)
            .map_err(|error| Failure::Failed(format!("{name} cannot be written: {error}")))?;
        self.raw(name, &text);
        Ok(())
    }

    fn text(&mut self, name: &str, value: &str) {
        let mut text = Vec::new();
        json::string(&mut text, value);
        self.raw(name, &text);
    }

    fn texts(&mut self, name: &str, values: &[String]) {
        let mut text = vec![b'['];
        for (place, value) in values.iter().enumerate() {
            if place > 0 {
                text.push(b',');
            }
            json::string(&mut text, value);
        }
        text.push(b']');
        self.raw(name, &text);
    }

    /// A payload: JSON if that is the same when it is read.
    fn payload(&mut self, data: &[u8]) {
        let mut text = Vec::new();
        let shown = json::from_msgpack(data, &mut text).is_ok();
        if shown && input::encode(&text).is_ok_and(|again| again == data) {
            self.raw("data", &text);
            return;
        }
        let base64 = data_encoding::BASE64.encode(data);
        self.raw("dataMsgpack", format!("\"{base64}\"").as_bytes());
    }

    fn finish(mut self) -> Vec<u8> {
        self.text.extend_from_slice(self.ends);
        self.text
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn written(data: &[u8]) -> String {
        let mut object = Object::plain();
        object.payload(data);
        String::from_utf8(object.finish()).unwrap()
    }

    #[test]
    fn a_payload_is_json_where_that_is_the_same_and_its_bytes_elsewhere() {
        assert_eq!(written(&[0x81, 0xa1, b'a', 1]), r#"{"data":{"a":1}}"#);
        for (data, base64) in [
            (&[0xc4, 1, 7][..], "xAEH"),
            // An extension, a whole number that is wider than it needs to be.
            (&[0xd4, 5, 1], "1AUB"),
            (&[0xcd, 0, 1], "zQAB"),
        ] {
            assert_eq!(written(data), format!(r#"{{"dataMsgpack":"{base64}"}}"#));
        }
        assert!(written(&[0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).len() > 20);
    }
}
