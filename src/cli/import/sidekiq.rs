//! Sidekiq, and Faktory by the Redis below it: jobs are JSON in lists and sorted sets.

use std::path::PathBuf;

use super::faktory::map_faktory;
use super::model::{
    Death, ForeignJob, ForeignSchedule, Mark, State, json_value, payload, queue_name, short,
};
use super::redis::{ListPages, Redis, SetPages};
use super::sink::Sink;
use crate::cli::failure::Failure;
use crate::cli::request::Fields;
use crate::cli::value::Value;

/// Attempts after the first, if a job does not say.
const RETRIES_DEFAULT: i64 = 25;

/// Whose jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    Sidekiq,
    Faktory,
}

/// A source.
#[derive(Debug)]
pub struct JsonJobs {
    redis: Redis,
    dialect: Dialect,
    /// Prefix of all keys.
    head: String,
}

impl JsonJobs {
    pub fn open(
        url: &str,
        dialect: Dialect,
        namespace: Option<&str>,
        authority: Option<&PathBuf>,
    ) -> Result<Self, Failure> {
        let head = namespace.map(|name| format!("{name}:")).unwrap_or_default();
        Ok(Self { redis: Redis::open(url, authority)?, dialect, head })
    }

    pub fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), Failure> {
        let queues = self.redis.members(&format!("{}queues", self.head))?;
        for queue in queues.iter().filter(|queue| sink.options.takes_queue(queue)) {
            // Faktory names a list as the queue.
            let key = match self.dialect {
                Dialect::Sidekiq => format!("{}queue:{queue}", self.head),
                Dialect::Faktory => queue.clone(),
            };
            self.read_list(&key, sink)?;
        }
        let (retry, scheduled) = match self.dialect {
            Dialect::Sidekiq => ("retry", "schedule"),
            Dialect::Faktory => ("retries", "scheduled"),
        };
        for (name, state) in
            [(scheduled, State::Delayed), (retry, State::Retrying), ("dead", State::Dead)]
        {
            self.read_set(&format!("{}{name}", self.head), state, sink)?;
        }
        if self.dialect == Dialect::Sidekiq {
            self.read_schedules(sink)?;
        }
        Ok(())
    }

    fn read_list(&mut self, key: &str, sink: &mut Sink<'_>) -> Result<(), Failure> {
        let mut pages = ListPages::of(key.to_owned());
        while let Some(page) = pages.next(&mut self.redis)? {
            for member in page {
                self.take(key, &member, (State::Waiting, None), sink)?;
            }
            for mark in sink.settle()? {
                let words: [&[u8]; 4] = [b"LREM", mark.place.as_bytes(), b"-1", &mark.member];
                let gone = self.redis.call(&words)?.integer();
                sink.report.removed(gone > 0);
            }
        }
        Ok(())
    }

    fn read_set(&mut self, key: &str, state: State, sink: &mut Sink<'_>) -> Result<(), Failure> {
        let mut pages = SetPages::of(key.to_owned());
        while let Some(page) = pages.next(&mut self.redis)? {
            for (member, score) in page {
                // Scores are seconds.
                self.take(key, &member, (state, Some((score * 1000.0) as i64)), sink)?;
            }
            for mark in sink.settle()? {
                let words: [&[u8]; 3] = [b"ZREM", mark.place.as_bytes(), &mark.member];
                let gone = self.redis.call(&words)?.integer();
                pages.forget(&mark.member);
                sink.report.removed(gone > 0);
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        key: &str,
        member: &[u8],
        (state, at_ms): (State, Option<i64>),
        sink: &mut Sink<'_>,
    ) -> Result<(), Failure> {
        let Some(bytes) = json_value(member) else {
            sink.report.read(state);
            sink.report.refused(state, key, "it is no JSON");
            return Ok(());
        };
        let value = Value::of(&bytes).unwrap_or_else(|error| unreachable!("{error}"));
        let mapped = match self.dialect {
            Dialect::Sidekiq => map_sidekiq(value, state, sink),
            Dialect::Faktory => map_faktory(value, state, sink),
        };
        let mut job = match mapped {
            Ok(job) => job,
            Err(reason) => {
                sink.report.read(state);
                sink.report.refused(state, key, &reason);
                return Ok(());
            }
        };
        if !sink.options.takes_queue(&job.queue) {
            return Ok(());
        }
        job.queue = queue_name(&job.queue);
        if state != State::Dead {
            job.run_at_ms = at_ms;
        }
        job.mark = Mark { place: key.to_owned(), member: member.to_vec(), with: Vec::new() };
        sink.job(job)
    }

    /// Reads the schedules of sidekiq-cron, if it is used.
    fn read_schedules(&mut self, sink: &mut Sink<'_>) -> Result<(), Failure> {
        for set in ["cron_jobs", "cron_jobs:default"] {
            for name in self.redis.members(&format!("{}{set}", self.head))? {
                let hash = self.redis.hash(&format!("{}{name}", self.head))?;
                let Some(cron) = hash.text("cron") else { continue };
                let short_name = hash.text("name").unwrap_or(&name).to_owned();
                let class = hash.text("klass").or_else(|| hash.text("class")).unwrap_or_default();
                let queue =
                    hash.text("queue_name").or_else(|| hash.text("queue")).unwrap_or("default");
                if !sink.options.takes_queue(queue) {
                    continue;
                }
                let data =
                    payload(hash.get("args").filter(|args| !args.is_empty()).unwrap_or(b"[]"));
                let mut schedule =
                    ForeignSchedule::new(short_name.clone(), &queue_name(queue), data);
                if !class.is_empty() {
                    schedule.text("jobName", &short(class));
                }
                // A sixth word is the time zone.
                let words: Vec<&str> = cron.split_whitespace().collect();
                match words.as_slice() {
                    [fields @ .., zone]
                        if fields.len() >= 5
                            && zone.chars().any(char::is_alphabetic)
                            && zone.contains('/') =>
                    {
                        schedule.text("schedule", &fields.join(" "));
                        schedule.text("timezone", zone);
                    }
                    _ => schedule.text("schedule", cron),
                }
                schedule.enabled = hash.text("status") != Some("disabled");
                sink.report.carried("cron of sidekiq-cron", "schedule", &short_name);
                sink.schedule(&schedule)?;
            }
        }
        Ok(())
    }
}

/// A time that is seconds, as a float, or milliseconds, as newer releases have it.
fn seconds(value: Value<'_>) -> Option<i64> {
    let number = value.number()?;
    Some(if number > 1e11 { number as i64 } else { (number * 1000.0) as i64 })
}

fn map_sidekiq(value: Value<'_>, state: State, sink: &mut Sink<'_>) -> Result<ForeignJob, String> {
    let id = value.get("jid").text().ok_or("it has no jid")?.to_owned();
    let queue = value.get("queue").text().unwrap_or("default");
    let mut job = ForeignJob::new(queue, id.clone(), state);
    let args = value.get("args");
    let args = if args.is_nil() { &[0x90][..] } else { args.bytes() };
    job.fields.raw("data", args);
    sink.report.carried("args", "data", &id);
    let class = value.get("wrapped").text().or_else(|| value.get("class").text());
    if let Some(class) = class.filter(|class| !class.is_empty()) {
        job.fields.text("name", &short(class));
        sink.report.carried("class (of Active Job: wrapped)", "name", &id);
    }
    job.created_ms = seconds(value.get("created_at")).or_else(|| seconds(value.get("enqueued_at")));
    let retry = value.get("retry");
    let retries = match retry.integer() {
        Some(retries) => retries.max(0),
        None if retry.is_false() => 0,
        None => RETRIES_DEFAULT,
    };
    // `retry_count` counts from the second failure on: 0 after the first.
    let made = value.get("retry_count").integer().map_or(0, |count| count + 1);
    let left = if state == State::Dead { retries + 1 } else { (retries + 1 - made).max(1) };
    job.fields.integer("maxAttempts", left.min(1000));
    sink.report.carried(
        "retry (25 if absent), retry_count",
        "maxAttempts: those that are left",
        &id,
    );
    write_backoff(&mut job.fields);
    sink.report.carried(
        "the wait between attempts",
        "backoff: 15 s, exponential, a day at most",
        &id,
    );
    if value.get("dead").is_false() {
        job.fields.flag_if("removeOnFail", true);
        sink.report.carried("dead: false", "removeOnFail", &id);
    }
    if let Some(seconds) = value.get("expires_in").number() {
        job.fields.integer("ttl", (seconds * 1000.0) as i64);
        sink.report.carried("expires_in", "ttl", &id);
    }
    let tags: Vec<String> =
        value.get("tags").items().filter_map(|tag| tag.text().map(short)).take(100).collect();
    if !tags.is_empty() {
        job.fields.texts_if("tags", &tags);
        sink.report.carried("tags", "tags", &id);
    }
    if state == State::Dead {
        let class = value.get("error_class").text().unwrap_or_default();
        let message = value.get("error_message").text().unwrap_or_default();
        let error =
            if class.is_empty() { message.to_owned() } else { format!("{class}: {message}") };
        job.death = Some(Death { error, reason: "max_attempts_exceeded", attempts: made.max(1) });
        sink.report.carried("error_class, error_message", "error of the dead letter", &id);
    } else if !value.get("error_message").is_nil() {
        sink.report.dropped(
            "error_class, error_message",
            "the error of an attempt that another follows",
            &id,
        );
    }
    for (name, why) in [
        ("error_backtrace", "a dead letter is imported with its error alone"),
        ("bid", "corq has flows, not batches: docs/migrating.md"),
        ("unique_for", "the lock of a job that runs is not moved"),
        ("lock_digest", "the lock of a job that runs is not moved"),
        ("cattr", "attributes of the request are not a part of a job here"),
        ("encrypt", "the last argument stays encrypted: workers decrypt it"),
        ("at", "it is the score of the set"),
    ] {
        let there = !value.get(name).is_nil();
        if there && name != "at" {
            sink.report.dropped(name, why, &id);
        }
    }
    Ok(job)
}

/// The backoff nearest to waits that grow with the fourth power.
pub fn write_backoff(fields: &mut Fields) {
    let mut backoff = Fields::of_backoff();
    backoff.integer("delay", 15_000);
    backoff.text("type", "exponential");
    backoff.integer("maxDelay", 86_400_000);
    fields.raw("backoff", &backoff.finish());
}
