//! asynq: a hash per task with a message of Protocol Buffers, and lists of their ids, in Redis.

use std::path::PathBuf;

use super::model::{Death, ForeignJob, ForeignSchedule, Mark, State, payload, queue_name, short};
use super::protobuf::Message;
use super::redis::{Hash, ListPages, Redis, SetPages};
use super::sidekiq::write_backoff;
use super::sink::Sink;
use crate::cli::failure::Failure;

/// Where tasks of a state are, and whether that is a list.
const PLACES: [(&str, bool, State); 6] = [
    ("pending", true, State::Waiting),
    ("active", true, State::Active),
    ("scheduled", false, State::Delayed),
    ("retry", false, State::Retrying),
    ("archived", false, State::Dead),
    ("completed", false, State::Completed),
];

/// A source.
#[derive(Debug)]
pub struct Asynq {
    redis: Redis,
}

impl Asynq {
    pub fn open(url: &str, authority: Option<&PathBuf>) -> Result<Self, Failure> {
        Ok(Self { redis: Redis::open(url, authority)? })
    }

    pub fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), Failure> {
        for queue in self.redis.members("asynq:queues")? {
            if !sink.options.takes_queue(&queue) {
                continue;
            }
            for (place, is_list, state) in PLACES {
                self.read_place(&queue, (place, is_list, state), sink)?;
            }
            // Tasks that wait to be handled together are in a set for each group.
            for group in self.redis.members(&format!("asynq:{{{queue}}}:groups"))? {
                self.read_place(&queue, (&format!("g:{group}"), false, State::Waiting), sink)?;
            }
            if self.redis.call(&["EXISTS", &format!("asynq:{{{queue}}}:paused")])?.integer() > 0 {
                sink.report.dropped(
                    "pause of the queue",
                    "pausing is left to you: corq queue pause",
                    &queue,
                );
            }
        }
        self.read_schedules(sink)
    }

    fn read_place(
        &mut self,
        queue: &str,
        (place, is_list, state): (&str, bool, State),
        sink: &mut Sink<'_>,
    ) -> Result<(), Failure> {
        let key = format!("asynq:{{{queue}}}:{place}");
        if !sink.takes(state) {
            let size = if is_list { "LLEN" } else { "ZCARD" };
            for _ in 0..self.redis.call(&[size, &key])?.integer() {
                sink.report.read(state);
                sink.report.left(state);
            }
            return Ok(());
        }
        let (mut list, mut set) = (ListPages::of(key.clone()), SetPages::of(key.clone()));
        loop {
            let page: Vec<(Vec<u8>, f64)> = if is_list {
                let Some(page) = list.next(&mut self.redis)? else { return Ok(()) };
                page.into_iter().map(|id| (id, 0.0)).collect()
            } else {
                let Some(page) = set.next(&mut self.redis)? else { return Ok(()) };
                page
            };
            let task = |id: &[u8]| format!("asynq:{{{queue}}}:t:{}", String::from_utf8_lossy(id));
            let mut rest = &page[..];
            while !rest.is_empty() {
                let keys: Vec<String> = rest.iter().map(|(id, _)| task(id)).collect();
                let hashes = self.redis.hashes(&keys)?;
                let (these, others) = rest.split_at(hashes.len());
                for ((id, score), hash) in these.iter().zip(&hashes) {
                    let at_ms = (*score * 1000.0) as i64;
                    take(queue, (id, at_ms, &task(id)), hash, (&key, state), sink)?;
                }
                rest = others;
            }
            for mark in sink.settle()? {
                let gone = if is_list {
                    self.redis.call(&[b"LREM", mark.place.as_bytes(), b"-1", &mark.member[..]])?
                } else {
                    self.redis.call(&[b"ZREM", mark.place.as_bytes(), &mark.member[..]])?
                };
                set.forget(&mark.member);
                let was_there = gone.integer() > 0;
                if was_there {
                    let words = [vec!["DEL".to_owned()], mark.with].concat();
                    self.redis.call(&words)?;
                }
                sink.report.removed(was_there);
            }
        }
    }

    /// Reads the schedules of schedulers that run now: they are kept in the program, and listed in Redis while it
    /// lives.
    fn read_schedules(&mut self, sink: &mut Sink<'_>) -> Result<(), Failure> {
        let mut pages = SetPages::of("asynq:schedulers".to_owned());
        let mut keys = Vec::new();
        while let Some(page) = pages.next(&mut self.redis)? {
            keys.extend(
                page.into_iter().map(|(key, _)| String::from_utf8_lossy(&key).into_owned()),
            );
        }
        for key in keys {
            let mut entries = ListPages::of(key);
            while let Some(page) = entries.next(&mut self.redis)? {
                for entry in page {
                    take_schedule(&entry, sink)?;
                }
            }
        }
        Ok(())
    }
}

fn take(
    queue: &str,
    (id, at_ms, task): (&[u8], i64, &str),
    hash: &Hash,
    (key, state): (&str, State),
    sink: &mut Sink<'_>,
) -> Result<(), Failure> {
    let shown = String::from_utf8_lossy(id).into_owned();
    let Some(message) = hash.get("msg").and_then(Message::of) else {
        if !hash.is_empty() {
            sink.report.read(state);
            sink.report.refused(state, &shown, "its message cannot be read");
        }
        return Ok(());
    };
    let mut job = ForeignJob::new(&queue_name(queue), format!("{queue}:{shown}"), state);
    job.fields.raw("data", &payload(message.bytes(2)));
    sink.report.carried("payload (JSON, else text, else bytes)", "data", &shown);
    if !message.text(1).is_empty() {
        job.fields.text("name", &short(message.text(1)));
        sink.report.carried("type", "name", &shown);
    }
    // The time of the push is not kept.
    let pending_ns = hash.integer("pending_since").filter(|_| state == State::Waiting);
    job.created_ms = pending_ns.map(|at| at / 1_000_000);
    let (retry, retried) = (message.integer(5), message.integer(6));
    let ends = matches!(state, State::Dead | State::Completed);
    let left = if ends { retry + 1 } else { (retry + 1 - retried).max(1) };
    job.fields.integer("maxAttempts", left.clamp(1, 1000));
    sink.report.carried("MaxRetry, retried", "maxAttempts: those that are left", &shown);
    write_backoff(&mut job.fields);
    sink.report.carried("RetryDelayFunc", "backoff: 15 s, exponential, a day at most", &shown);
    let timeout_s = message.integer(8);
    if timeout_s > 0 {
        job.fields.integer("timeout", (timeout_s * 1000).min(86_400_000));
        sink.report.carried("Timeout", "timeout", &shown);
    }
    let deadline_s = message.integer(9);
    if deadline_s > 0 {
        sink.report.dropped(
            "Deadline",
            "there is no time after which a job that runs ends: see ttl and timeout",
            &shown,
        );
    }
    let mut with = vec![task.to_owned()];
    if !message.text(10).is_empty() {
        with.push(message.text(10).to_owned());
        if ends {
            sink.report.dropped("Unique", "of a task that has ended", &shown);
        } else {
            // The key without what is the same for all of its queue.
            let own =
                message.text(10).rsplit_once("unique:").map_or(message.text(10), |(_, own)| own);
            job.fields.text("uniqueKey", &short(own));
            sink.report.carried("Unique", "uniqueKey, until the job ends", &shown);
        }
    }
    if message.integer(12) > 0 {
        sink.report.dropped(
            "Retention",
            "how many completed jobs are kept is COMPLETED_MAX of the server",
            &shown,
        );
    } else {
        job.fields.flag_if("removeOnComplete", true);
        sink.report.carried("no Retention", "removeOnComplete", &shown);
    }
    if !message.text(14).is_empty() {
        sink.report.dropped("Group", "tasks are not aggregated: each is a job of its own", &shown);
    }
    if message.all(15).next().is_some() {
        let mut trace = None;
        for entry in message.all(15) {
            match Message::of(entry) {
                Some(entry) if entry.text(1) == "traceparent" => {
                    trace = Some(entry.text(2).to_owned());
                }
                _ => sink.report.dropped("Headers", "corq has none but traceparent", &shown),
            }
        }
        if let Some(trace) = trace {
            job.fields.text("traceparent", &trace);
            sink.report.carried("Headers: traceparent", "traceparent", &shown);
        }
    }
    match state {
        State::Dead => {
            let error = message.text(7).to_owned();
            // The attempt that was the last is not counted.
            job.death =
                Some(Death { error, reason: "max_attempts_exceeded", attempts: retried + 1 });
            sink.report.carried("error_msg", "error of the dead letter", &shown);
        }
        State::Delayed | State::Retrying => job.run_at_ms = Some(at_ms),
        _ => {}
    }
    job.mark = Mark { place: key.to_owned(), member: id.to_vec(), with };
    sink.job(job)
}

fn take_schedule(entry: &[u8], sink: &mut Sink<'_>) -> Result<(), Failure> {
    let Some(message) = Message::of(entry) else {
        sink.report.schedule_refused("", "its message cannot be read");
        return Ok(());
    };
    let (id, spec, kind) = (message.text(1), message.text(2), message.text(3));
    let option = |name: &str| {
        message.all(5).find_map(|text| {
            let text = std::str::from_utf8(text).ok()?;
            Some(
                text.strip_prefix(name)?
                    .strip_prefix('(')?
                    .strip_suffix(')')?
                    .trim_matches('"')
                    .to_owned(),
            )
        })
    };
    let queue = option("Queue").unwrap_or_else(|| "default".to_owned());
    if !sink.options.takes_queue(&queue) {
        return Ok(());
    }
    // Ids are new at each start of a scheduler; what it does is not.
    let name = format!("{queue}:{kind}:{spec}");
    let mut schedule = ForeignSchedule::new(name, &queue_name(&queue), payload(message.bytes(4)));
    schedule.text("jobName", &short(kind));
    match spec.strip_prefix("@every ").map(every_ms) {
        Some(Some(every)) => schedule.integer("repeatEvery", every),
        Some(None) => {
            sink.report.schedule_refused(id, "its interval cannot be read");
            return Ok(());
        }
        None => match spec
            .strip_prefix("CRON_TZ=")
            .or_else(|| spec.strip_prefix("TZ="))
            .and_then(|it| it.split_once(' '))
        {
            Some((zone, spec)) => {
                schedule.text("timezone", zone);
                schedule.text("schedule", spec.trim());
            }
            None => schedule.text("schedule", spec),
        },
    }
    if let Some(retry) = option("MaxRetry").and_then(|text| text.parse::<i64>().ok()) {
        let mut options = crate::cli::request::Fields::of_cron_job();
        options.integer("maxAttempts", (retry + 1).clamp(1, 1000));
        schedule.fields.push(("jobOptions", options.finish()));
    }
    sink.report.carried("spec of a scheduler's entry", "schedule", id);
    sink.schedule(&schedule)
}

/// The milliseconds of a duration as Go writes it: `1h30m`, `1.5s`.
fn every_ms(text: &str) -> Option<i64> {
    let (mut rest, mut all) = (text.trim(), 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let unit_end = rest[digits..]
            .find(|it: char| it.is_ascii_digit())
            .map_or(rest.len(), |at| digits + at);
        all += number
            * match &rest[digits..unit_end] {
                "h" => 3_600_000.0,
                "m" => 60_000.0,
                "s" => 1000.0,
                "ms" => 1.0,
                _ => return None,
            };
        rest = &rest[unit_end..];
    }
    Some(all as i64).filter(|every| *every > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read() {
        assert_eq!(every_ms("1h30m0s"), Some(5_400_000));
        assert_eq!(every_ms("1.5s"), Some(1500));
        assert_eq!(every_ms("250ms"), Some(250));
        assert_eq!(every_ms("soon"), None);
        assert_eq!(every_ms("5"), None);
    }
}
