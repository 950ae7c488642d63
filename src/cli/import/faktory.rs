//! Faktory over its protocol, which has no command that lists: jobs are fetched one by one and acknowledged once they are on
//! the server, so that they are removed. What is scheduled, retried or dead is read from the Redis below it (`sidekiq`).

use std::path::PathBuf;

use ring::digest;

use super::model::{Death, ForeignJob, Mark, State, json_value, queue_name, short, time_ms};
use super::place::{Stream, Url};
use super::sidekiq::write_backoff;
use super::sink::Sink;
use crate::cli::failure::Failure;
use crate::cli::value::Value;

/// Schemes of URLs.
pub const SCHEMES: &[&str] = &["tcp", "tcp+tls"];
const PORT: u16 = 7419;
/// Jobs that are fetched before they are pushed.
const HELD_MAX: usize = 200;
/// Attempts after the first, if a job does not say.
const RETRIES_DEFAULT: i64 = 25;
/// Most rounds of hashing a password: a server that asks for more asks too much.
const ROUNDS_MAX: i64 = 1_000_000;

/// A connection to a server.
#[derive(Debug)]
pub struct Faktory {
    stream: Stream,
}

impl Faktory {
    pub fn open(text: &str, authority: Option<&PathBuf>) -> Result<Self, Failure> {
        let url = Url::parse(text, SCHEMES)?;
        let mut faktory =
            Self { stream: Stream::open(&url, PORT, url.scheme == "tcp+tls", authority)? };
        let hi = faktory.answer()?.unwrap_or_default();
        let hi = hi.strip_prefix(b"HI ").unwrap_or_default();
        let Some(hi) = json_value(hi) else {
            return Err(faktory.stream.lost("it does not speak the protocol of Faktory"));
        };
        let hi = Value::of(&hi).unwrap_or_else(|error| unreachable!("{error}"));
        let salt = hi.get("s").text();
        let rounds = hi.get("i").integer().unwrap_or(1);
        let secret = match (salt, &url.password) {
            (Some(salt), Some(password)) if (1..=ROUNDS_MAX).contains(&rounds) => {
                format!(",\"pwdhash\":\"{}\"", hashed(password, salt, rounds))
            }
            (Some(_), Some(_)) => {
                return Err(faktory
                    .stream
                    .lost("it asks for more rounds of hashing than is sensible"));
            }
            (Some(_), None) => {
                return Err(Failure::Usage(
                    "the Faktory server wants a password: tcp://:PASSWORD@HOST:7419".to_owned(),
                ));
            }
            (None, _) => String::new(),
        };
        faktory.ask(&format!(
            "HELLO {{\"v\":2,\"wid\":\"corq-import\",\"hostname\":\"corq\",\"pid\":1,\"labels\":[\"corq-import\"]{secret}}}"
        ))?;
        Ok(faktory)
    }

    fn ask(&mut self, line: &str) -> Result<Option<Vec<u8>>, Failure> {
        self.stream.send(format!("{line}\r\n").as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let line = self.stream.line()?;
        let strange = || self.stream.lost("it does not speak the protocol of Faktory");
        let (kind, rest) = line.split_first().ok_or_else(strange)?;
        match kind {
            b'+' => Ok(Some(rest.to_vec())),
            b'-' => {
                Err(Failure::Failed(format!("Faktory refused: {}", String::from_utf8_lossy(rest))))
            }
            b'$' => {
                let length =
                    std::str::from_utf8(rest).ok().and_then(|text| text.parse::<i64>().ok());
                match length.ok_or_else(strange)? {
                    ..0 => Ok(None),
                    length => Ok(Some(self.stream.value(length as usize)?)),
                }
            }
            _ => Err(strange()),
        }
    }

    /// The queues that it has, with their lengths.
    fn queues(&mut self) -> Result<Vec<(String, u64)>, Failure> {
        let info = self.ask("INFO")?.unwrap_or_default();
        let info = json_value(&info).unwrap_or_default();
        let Ok(info) = Value::of(&info) else { return Ok(Vec::new()) };
        let queues = info.get("faktory").get("queues");
        let named = queues
            .entries()
            .filter_map(|(name, size)| Some((name.text()?.to_owned(), size.count())));
        Ok(named.collect())
    }

    /// Counts what there is, or moves it if it may be removed.
    pub fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), Failure> {
        for (queue, size) in self.queues()? {
            if !sink.options.takes_queue(&queue) {
                continue;
            }
            if sink.options.remove && sink.takes(State::Waiting) {
                self.move_queue(&queue, sink)?;
            } else {
                for _ in 0..size {
                    sink.report.read(State::Waiting);
                    sink.report.left(State::Waiting);
                }
                sink.report.dropped(
                    "jobs of a queue",
                    "only counted: this protocol gives them with --remove",
                    &queue,
                );
            }
        }
        let redis =
            "read from its Redis: corq import faktory redis+unix:///var/lib/faktory/db/redis.sock";
        sink.report.dropped("scheduled, retrying and dead jobs", redis, "");
        Ok(())
    }

    fn move_queue(&mut self, queue: &str, sink: &mut Sink<'_>) -> Result<(), Failure> {
        loop {
            let mut held = 0;
            while held < HELD_MAX {
                let Some(text) =
                    self.ask(&format!("FETCH {queue}"))?.filter(|text| !text.is_empty())
                else {
                    break;
                };
                held += 1;
                let Some(bytes) = json_value(&text) else { continue };
                let value = Value::of(&bytes).unwrap_or_else(|error| unreachable!("{error}"));
                match map_faktory(value, State::Waiting, sink) {
                    Ok(mut job) => {
                        job.queue = queue_name(&job.queue);
                        let member =
                            value.get("jid").text().unwrap_or_default().as_bytes().to_vec();
                        job.mark = Mark { member, ..Mark::default() };
                        sink.job(job)?;
                    }
                    Err(reason) => {
                        sink.report.read(State::Waiting);
                        sink.report.refused(State::Waiting, queue, &reason);
                    }
                }
            }
            for mark in sink.settle()? {
                let id = escaped(&String::from_utf8_lossy(&mark.member));
                self.ask(&format!("ACK {{\"jid\":\"{id}\"}}"))?;
                sink.report.removed(true);
            }
            if held < HELD_MAX {
                return Ok(());
            }
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// The password as the server wants to see it.
fn hashed(password: &str, salt: &str, rounds: i64) -> String {
    let mut hash = digest::digest(&digest::SHA256, format!("{password}{salt}").as_bytes());
    for _ in 1..rounds {
        hash = digest::digest(&digest::SHA256, hash.as_ref());
    }
    data_encoding::HEXLOWER.encode(hash.as_ref())
}

/// A job, whichever way it came.
pub fn map_faktory(
    value: Value<'_>,
    state: State,
    sink: &mut Sink<'_>,
) -> Result<ForeignJob, String> {
    let id = value.get("jid").text().ok_or("it has no jid")?.to_owned();
    let queue = value.get("queue").text().unwrap_or("default");
    let mut job = ForeignJob::new(queue, id.clone(), state);
    let args = value.get("args");
    job.fields.raw("data", if args.is_nil() { &[0x90] } else { args.bytes() });
    sink.report.carried("args", "data", &id);
    if let Some(kind) = value.get("jobtype").text().filter(|kind| !kind.is_empty()) {
        job.fields.text("name", &short(kind));
        sink.report.carried("jobtype", "name", &id);
    }
    job.created_ms = value.get("created_at").text().and_then(time_ms);
    let retries = value.get("retry").integer().unwrap_or(RETRIES_DEFAULT);
    let failure = value.get("failure");
    let made =
        if failure.is_nil() { 0 } else { failure.get("retry_count").integer().unwrap_or(0) + 1 };
    let left =
        if state == State::Dead { retries.max(0) + 1 } else { (retries.max(0) + 1 - made).max(1) };
    job.fields.integer("maxAttempts", left.min(1000));
    sink.report.carried(
        "retry (25 if absent), failure.retry_count",
        "maxAttempts: those that are left",
        &id,
    );
    if retries < 0 {
        job.fields.flag_if("removeOnFail", true);
        sink.report.carried("retry: -1", "removeOnFail", &id);
    }
    write_backoff(&mut job.fields);
    sink.report.carried(
        "the wait between attempts",
        "backoff: 15 s, exponential, a day at most",
        &id,
    );
    if let Some(seconds) = value.get("reserve_for").integer().filter(|seconds| *seconds > 0) {
        job.fields.integer("timeout", (seconds * 1000).min(86_400_000));
        sink.report.carried("reserve_for", "timeout", &id);
    }
    if state == State::Dead {
        let kind = failure.get("errtype").text().unwrap_or_default();
        let message = failure.get("message").text().unwrap_or_default();
        let error = if kind.is_empty() { message.to_owned() } else { format!("{kind}: {message}") };
        job.death = Some(Death { error, reason: "max_attempts_exceeded", attempts: made.max(1) });
        sink.report.carried("failure.errtype, message", "error of the dead letter", &id);
    }
    for (name, why) in [
        ("custom", "corq has no fields of one's own: put them into args"),
        ("backtrace", "how many lines are kept is for the worker to say"),
        ("priority", "a priority within a queue is corq's: docs/migrating.md"),
    ] {
        if !value.get(name).is_nil() {
            sink.report.dropped(name, why, &id);
        }
    }
    Ok(job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hashed_as_often_as_asked() {
        let once = hashed("secret", "salt", 1);
        assert_eq!(once.len(), 64);
        let twice = digest::digest(
            &digest::SHA256,
            &data_encoding::HEXLOWER.decode(once.as_bytes()).unwrap_or_default(),
        );
        assert_eq!(hashed("secret", "salt", 2), data_encoding::HEXLOWER.encode(twice.as_ref()));
    }
}
