//! `pull`, `ack` and `fail`: a worker's commands, by hand or from a script.

use clap::Args;

use super::client::Client;
use super::context::Context;
use super::failure::Failure;
use super::input;
use super::output::{Cell, Output, Style};
use super::request::Request;
use super::show;
use super::value::Value;
use super::words::{self, any_text, milliseconds};
use crate::api::commands::Op;
use crate::api::error::ErrorKind;
use std::io;

/// Arguments of `pull`.
#[derive(Args, Debug)]
pub struct Pull {
    /// Queue to pull from
    queue: String,
    /// Maximum number of jobs
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    count: Option<i64>,
    /// Time to wait for the first job; exit code 1 if none comes (milliseconds, or 30s, 1m ...)
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    timeout: Option<i64>,
    /// Owner of the locks, for information
    #[arg(long, default_value = "corq", value_name = "NAME")]
    owner: String,
    /// Duration of the lock without a heartbeat
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    lock_ttl: Option<i64>,
}

/// Arguments of `ack`.
#[derive(Args, Debug)]
pub struct Ack {
    /// Id of the active job
    id: String,
    /// Result of the job: JSON, @file, or - for standard input
    #[arg(long, allow_negative_numbers = true, value_name = "JSON", value_parser = any_text())]
    result: Option<String>,
    /// Lock token from the pull
    #[arg(long, value_name = "TOKEN")]
    lock_token: Option<String>,
}

/// Arguments of `fail`.
#[derive(Args, Debug)]
pub struct Fail {
    /// Id of the active job
    id: String,
    /// Error text
    #[arg(long, value_name = "TEXT", value_parser = any_text())]
    error: Option<String>,
    /// Lock token from the pull
    #[arg(long, value_name = "TOKEN")]
    lock_token: Option<String>,
    /// No further attempts: move the job to the dead-letter queue
    #[arg(long)]
    unrecoverable: bool,
}

/// Takes jobs. They are locked and outlive the connection, which ends with this command; until they
/// are acknowledged or the lock expires, the holder of the token owns them.
pub fn pull(context: &mut Context, pull: &Pull) -> Result<(), Failure> {
    let op = if pull.count.is_some() { Op::PullBatch } else { Op::Pull };
    let request = Request::on_queue(op, &pull.queue).with(|fields| {
        fields.integer_if("count", pull.count);
        fields.integer_if("timeout", pull.timeout);
        fields.text("owner", &pull.owner);
        fields.integer_if("lockTtl", pull.lock_ttl);
        fields.flag_if("detach", true);
    });
    let mut client = context.client()?;
    let reply = client.call(request)?;
    let none = reply.refusal().is_none()
        && reply.value().get("job").is_nil()
        && reply.value().get("jobs").items().next().is_none();
    let why = if none && !context.target.json { why_none(&mut client, &pull.queue)? } else { None };
    context.show(&reply, |out, reply| {
        let mut some = false;
        let one = (reply.get("job"), reply.get("token"));
        let many = reply.get("jobs").items().zip(reply.get("tokens").items());
        for (job, token) in [one].into_iter().filter(|(job, _)| !job.is_nil()).chain(many) {
            if std::mem::replace(&mut some, true) {
                out.line("")?;
            }
            delivered(out, job, token)?;
        }
        // A wait in vain is a failure, see below.
        if some || pull.timeout.is_some() {
            return Ok(());
        }
        out.line(&match &why {
            Some(why) => format!("no job can be taken from {}: {why}", pull.queue),
            None => format!("no job waits in {}", pull.queue),
        })
    })?;
    let Some(timeout) = pull.timeout.filter(|_| none) else { return Ok(()) };
    let mut text = format!("no job came to {} within {}", pull.queue, words::duration(timeout));
    if let Some(why) = why {
        text.push_str(": ");
        text.push_str(&why);
    }
    Err(Failure::Failed(text))
}

/// Why a queue gives no job, if it is paused or jobs wait in it: what is in the way of the oldest of those. The answer to a
/// pull is the same in any case.
fn why_none(client: &mut Client, queue: &str) -> Result<Option<String>, Failure> {
    let paused = client.call(Request::on_queue(Op::IsPaused, queue))?;
    if paused.value().get("paused").is_true() {
        return Ok(Some("the queue is paused".to_owned()));
    }
    let oldest = client.call(Request::on_queue(Op::GetJobs, queue).with(|fields| {
        fields.text("state", "waiting");
        fields.integer("limit", 1);
    }))?;
    let oldest = oldest.value().get("jobs").items().next();
    let Some(id) = oldest.and_then(|job| job.get("id").text()) else { return Ok(None) };
    let told = client.call(Request::on_job(Op::Explain, id))?;
    let reasons = told.value().get("data").get("reasons");
    let holds = |reason: &Value<'_>| {
        let code = reason.get("code").text();
        !matches!(code, Some("next" | "jobs_before" | "no_worker" | "ttl"))
    };
    let texts = reasons.items().filter(holds).filter_map(|reason| reason.get("text").text());
    let texts: Vec<&str> = texts.collect();
    Ok((!texts.is_empty()).then(|| texts.join(", and ")))
}

fn delivered(out: &mut Output, job: Value<'_>, token: Value<'_>) -> io::Result<()> {
    let mut pairs = show::job_pairs(job);
    pairs.push(("token", Cell::styled(token.text().unwrap_or_default(), Style::Good)));
    out.pairs(&pairs)
}

/// Sends a command on an active job. The server has one text for all jobs that are not active; people are told which case it is.
pub fn on_active(
    context: &mut Context,
    id: &str,
    request: Request,
    done: &str,
) -> Result<(), Failure> {
    let mut client = context.client()?;
    let reply = client.call(request)?;
    let shown = context.show(&reply, |out, _| out.line(done));
    if reply.refusal().is_none_or(|refusal| refusal.text != ErrorKind::NotActive.text()) {
        return shown;
    }
    let state = client.call(Request::on_job(Op::GetState, id))?;
    Err(match state.value().get("state").text() {
        None => return shown,
        Some("unknown") => Failure::Failed(format!("there is no job {id}")),
        Some("completed") => Failure::Failed(format!("job {id} is already completed")),
        Some("failed") => Failure::Failed(format!("job {id} has already failed for good")),
        Some(state) => Failure::Failed(format!(
            "job {id} is {state}: its lock has expired, or another worker has it"
        )),
    })
}

/// Completes a job.
pub fn ack(context: &mut Context, ack: &Ack) -> Result<(), Failure> {
    let result = ack.result.as_deref().map(input::outcome).transpose()?;
    let request = Request::on_job(Op::Ack, &ack.id).with(|fields| {
        fields.text_if("token", ack.lock_token.as_deref());
        if let Some(result) = &result {
            fields.raw("result", result);
        }
    });
    on_active(context, &ack.id, request, &format!("completed {}", ack.id))
}

/// Fails an attempt of a job.
pub fn fail(context: &mut Context, fail: &Fail) -> Result<(), Failure> {
    let request = Request::on_job(Op::Fail, &fail.id).with(|fields| {
        fields.text_if("error", fail.error.as_deref());
        fields.text_if("token", fail.lock_token.as_deref());
        fields.flag_if("unrecoverable", fail.unrecoverable);
    });
    on_active(context, &fail.id, request, &format!("failed {}", fail.id))
}
