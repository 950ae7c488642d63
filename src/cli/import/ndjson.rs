//! Lines of JSON, one thing each, as `corq export` writes them and docs/migrating.md describes them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::model::{ForeignJob, ForeignSchedule, json_value, queue_name};
use super::served::{map_job, map_schedule};
use super::sink::Sink;
use crate::api::commands::Op;
use crate::cli::failure::Failure;
use crate::cli::input::TEXT_BYTES_MAX;
use crate::cli::request::{Fields, Request};
use crate::cli::value::Value;

/// The format that is written and read.
pub const VERSION: i64 = 1;

/// Reads a file, `-` for standard input.
pub fn read(path: &Path, sink: &mut Sink<'_>) -> Result<(), Failure> {
    let reader: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(path)
            .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        Box::new(file)
    };
    let mut lines = BufReader::with_capacity(1 << 20, reader);
    let mut text = Vec::new();
    let mut number = 0_u64;
    loop {
        text.clear();
        let read = (&mut lines).take(TEXT_BYTES_MAX + 1).read_until(b'\n', &mut text);
        if read.map_err(|error| Failure::failed("the lines cannot be read", &error))? == 0 {
            return Ok(());
        }
        number += 1;
        if text.trim_ascii().is_empty() {
            continue;
        }
        if text.len() as u64 > TEXT_BYTES_MAX {
            return Err(Failure::Failed(format!("line {number} has more than 64 MB")));
        }
        let Some(bytes) = json_value(&text) else {
            return Err(Failure::Failed(format!(
                "line {number} is not JSON; what stands before it was taken"
            )));
        };
        let value = Value::of(&bytes).unwrap_or_else(|error| unreachable!("{error}"));
        take(value, number, sink)?;
    }
}

fn take(line: Value<'_>, number: u64, sink: &mut Sink<'_>) -> Result<(), Failure> {
    let wrong = |what: &str| {
        Failure::Failed(format!("line {number}: {what}; what stands before it was taken"))
    };
    if let Some(version) = line.get("corqExport").integer() {
        if version > VERSION {
            return Err(wrong(&format!(
                "format {version} is of a later release: this one reads {VERSION}"
            )));
        }
        return Ok(());
    }
    let (job, schedule, queue) = (line.get("job"), line.get("schedule"), line.get("queue"));
    if !job.is_nil() {
        let name = job.get("queue").text().ok_or_else(|| wrong("the job has no queue"))?;
        if !sink.options.takes_queue(name) {
            return Ok(());
        }
        let data = data_of(job).map_err(|what| wrong(&what))?;
        let mut mapped: ForeignJob = map_job(job, &data, sink);
        mapped.queue = queue_name(name);
        return sink.job(mapped);
    }
    if !schedule.is_nil() {
        let name =
            schedule.get("queue").text().ok_or_else(|| wrong("the schedule has no queue"))?;
        if !sink.options.takes_queue(name) {
            return Ok(());
        }
        let data = data_of(schedule).map_err(|what| wrong(&what))?;
        let mapped: ForeignSchedule =
            map_schedule(schedule, data).ok_or_else(|| wrong("the schedule has no name"))?;
        return sink.schedule(&mapped);
    }
    let Some(name) = queue.get("name").text() else {
        return Err(wrong("neither a job nor a schedule nor a queue"));
    };
    if !sink.options.takes_queue(name) {
        return Ok(());
    }
    let here = sink.options.into.clone().unwrap_or_else(|| queue_name(name));
    sink.settings(settings_of(queue, &here))
}

/// The payload: `data`, or `dataMsgpack`, the base64 of a value of `MessagePack`, for what JSON cannot hold.
fn data_of(of: Value<'_>) -> Result<Vec<u8>, String> {
    if let Some(text) = of.get("dataMsgpack").text() {
        let bytes = data_encoding::BASE64.decode(text.as_bytes());
        let bytes = bytes.map_err(|_| "dataMsgpack is not base64".to_owned())?;
        Value::of(&bytes).map_err(|_| "dataMsgpack is not one value of MessagePack".to_owned())?;
        return Ok(bytes);
    }
    Ok(of.get("data").bytes().to_vec())
}

/// Requests that set a queue up as its line says.
fn settings_of(queue: Value<'_>, name: &str) -> Vec<Request> {
    let mut requests = Vec::new();
    if queue.get("paused").is_true() {
        requests.push(Request::on_queue(Op::Pause, name));
    }
    let rate = queue.get("rateLimit");
    if let Some(max) = rate.get("max").integer() {
        requests.push(Request::on_queue(Op::RateLimit, name).with(|fields| {
            fields.integer("limit", max);
            fields.integer_if("duration", rate.get("duration").integer());
            fields.integer_if("ttl", rate.get("ttl").integer());
        }));
    }
    if let Some(limit) = queue.get("concurrency").integer() {
        requests.push(
            Request::on_queue(Op::SetConcurrency, name)
                .with(|fields| fields.integer("limit", limit)),
        );
    }
    let config = |op: Op, name_of: &str, begin: fn() -> Fields| {
        let from = queue.get(name_of);
        if from.is_nil() {
            return None;
        }
        let mut config = begin();
        for (key, value) in from.entries() {
            if let Some(key) = key.text() {
                config.raw_known(key, value.bytes());
            }
        }
        let config = config.finish();
        Some(Request::on_queue(op, name).with(|fields| fields.raw("config", &config)))
    };
    requests.extend(config(Op::SetDlqConfig, "dlq", Fields::of_dlq_config));
    requests.extend(config(Op::SetStallConfig, "stall", Fields::of_stall_config));
    for group in queue.get("groups").items() {
        let Some(id) = group.get("id").text() else { continue };
        let of_group =
            |op: Op| Request::on_queue(op, name).with(|fields| fields.text("groupId", id));
        if group.get("paused").is_true() {
            requests.push(of_group(Op::PauseGroup));
        }
        if let Some(weight) = group.get("weight").integer() {
            requests
                .push(of_group(Op::SetGroupWeight).with(|fields| fields.integer("weight", weight)));
        }
        if let Some(limit) = group.get("concurrency").integer() {
            requests.push(
                of_group(Op::SetGroupConcurrency)
                    .with(|fields| fields.integer("concurrency", limit)),
            );
        }
        let limit = group.get("limit");
        if let (Some(max), Some(duration)) =
            (limit.get("max").integer(), limit.get("duration").integer())
        {
            requests.push(of_group(Op::SetGroupRateLimit).with(|fields| {
                fields.integer("max", max);
                fields.integer("duration", duration);
            }));
        }
    }
    requests
}
