//! `job`: everything about one job.

use clap::{Args, Subcommand};

use super::context::Context;
use super::failure::Failure;
use super::flow;
use super::input;
use super::job_bulk::{self, Bulk};
use super::output::{Cell, Style, Table};
use super::request::Request;
use super::show;
use super::value::Value;
use super::words::{self, any_text, milliseconds};
use super::work::on_active;
use crate::api::commands::Op;
use crate::api::error::ErrorKind;

/// The job that a command is about.
#[derive(Args, Debug)]
pub struct Id {
    /// Id of the job: generated, or its custom id
    pub id: String,
}

/// Commands on one job.
#[derive(Subcommand, Debug)]
pub enum Job {
    /// Show a job with all its fields
    Get(Id),
    /// Show its state; an unknown job is `unknown`
    State(Id),
    /// Say why it does not run, and when it may start
    Explain(Id),
    /// Show all about it: its record, attempts, log and children
    #[command(
        after_help = "Examples:\n  corq job detail order-17\n  corq job detail order-17 --json"
    )]
    Detail(Id),
    /// Print its result as JSON
    Result(Id),
    /// Wait for its end; exit code 1 if it fails, is removed, or does not end in time
    Wait {
        #[command(flatten)]
        job: Id,
        /// Maximum time to wait (milliseconds, or 30s, 5m ...)
        #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
        timeout: Option<i64>,
    },
    /// Remove it, unless it is active
    Cancel {
        #[command(flatten)]
        job: Id,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
    /// Show its progress, or report one for an active job
    Progress {
        #[command(flatten)]
        job: Id,
        /// Progress in percent
        #[arg(allow_negative_numbers = true)]
        progress: Option<f64>,
        /// Progress message
        #[arg(long, value_name = "TEXT", requires = "progress", value_parser = any_text())]
        message: Option<String>,
    },
    /// Replace its payload
    Update {
        #[command(flatten)]
        job: Id,
        /// Payload: JSON, @file, or - for standard input (also when it is left out)
        #[arg(allow_negative_numbers = true)]
        data: Option<String>,
    },
    /// Change its priority
    Priority {
        #[command(flatten)]
        job: Id,
        /// Higher is delivered first
        #[arg(allow_negative_numbers = true)]
        priority: i64,
    },
    /// Make a delayed job ready now
    Promote(Id),
    /// Take an active job from its worker and delay it
    Delay {
        #[command(flatten)]
        job: Id,
        /// Delay from now (milliseconds, or 30s, 5m ...)
        #[arg(value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
        delay: i64,
    },
    /// Move it to the dead-letter queue from any state
    Discard(Id),
    /// Show its log
    Logs(Id),
    /// Add a line to its log
    Log {
        #[command(flatten)]
        job: Id,
        /// The line
        #[arg(allow_hyphen_values = true, value_parser = any_text())]
        message: String,
        /// Level of the line: info, warn or error
        #[arg(long)]
        level: Option<String>,
    },
    /// Do one thing with many jobs: of a queue, or by their ids
    Bulk(Box<Bulk>),
}

/// Carries one out.
pub fn run(context: &mut Context, job: &Job) -> Result<(), Failure> {
    match job {
        Job::Get(Id { id }) => context.ask(Request::on_job(Op::GetJob, id), |out, reply| {
            out.pairs(&show::job_pairs(reply.get("job")))
        }),
        Job::State(Id { id }) => context.ask(Request::on_job(Op::GetState, id), |out, reply| {
            out.pieces(&[show::state(reply.get("state").text().unwrap_or("-"))])
        }),
        Job::Explain(Id { id }) => explain(context, id),
        Job::Detail(Id { id }) => detail(context, id),
        Job::Result(Id { id }) => result(context, id),
        Job::Wait { job, timeout } => wait(context, &job.id, *timeout),
        Job::Cancel { job: Id { id }, yes } => {
            input::confirm(*yes, &format!("remove job {id} for good"))?;
            context.tell(Request::on_job(Op::Cancel, id), &format!("cancelled {id}"))
        }
        Job::Progress { job: Id { id }, progress: None, .. } => progress_of(context, id),
        Job::Progress { job: Id { id }, progress: Some(progress), message } => {
            let request = Request::on_job(Op::Progress, id).with(|fields| {
                fields.number("progress", *progress);
                fields.text_if("message", message.as_deref());
            });
            let done = format!("progress of {id} is {} %", words::figure(*progress));
            on_active(context, id, request, &done)
        }
        Job::Update { job: Id { id }, data } => {
            let data = input::payload_or_stdin("data", data.as_deref(), None)?;
            let request = Request::on_job(Op::Update, id).with(|fields| fields.raw("data", &data));
            context.tell(request, &format!("updated {id}"))
        }
        Job::Priority { job: Id { id }, priority } => {
            let request = Request::on_job(Op::ChangePriority, id)
                .with(|fields| fields.integer("priority", *priority));
            context.tell(request, &format!("priority of {id} is {priority}"))
        }
        Job::Promote(Id { id }) => {
            context.tell(Request::on_job(Op::Promote, id), &format!("promoted {id}"))
        }
        Job::Delay { job: Id { id }, delay } => {
            let request = Request::on_job(Op::MoveToDelayed, id)
                .with(|fields| fields.integer("delay", *delay));
            let done = format!("delayed {id} for {}", words::duration(*delay));
            on_active(context, id, request, &done)
        }
        Job::Discard(Id { id }) => context
            .tell(Request::on_job(Op::Discard, id), &format!("{id} is in the dead-letter queue")),
        Job::Logs(Id { id }) => logs(context, id),
        Job::Log { job: Id { id }, message, level } => {
            let request = Request::on_job(Op::AddLog, id).with(|fields| {
                fields.text("message", message);
                fields.text_if("level", level.as_deref());
            });
            context.tell(request, &format!("logged to {id}"))
        }
        Job::Bulk(bulk) => job_bulk::run(context, bulk),
    }
}

/// The result of a job. One that has none is another thing than no job.
fn result(context: &mut Context, id: &str) -> Result<(), Failure> {
    let mut client = context.client()?;
    let reply = client.call(Request::on_job(Op::GetResult, id))?;
    let is_none = reply.refusal().is_none() && reply.value().get("result").is_nil();
    if is_none {
        let state = client.call(Request::on_job(Op::GetState, id))?.granted()?;
        if state.value().get("state").text() == Some("unknown") {
            context.show(&reply, |_, _| Ok(()))?;
            return Err(Failure::Failed(ErrorKind::JobNotFound.text().to_owned()));
        }
    }
    context.show(&reply, |out, reply| out.line(&show::json_text(reply.get("result"))))
}

/// All that is in the way of a job, a line each.
pub fn explain(context: &mut Context, id: &str) -> Result<(), Failure> {
    context.ask(Request::on_job(Op::Explain, id), |out, reply| {
        let told = reply.get("data");
        let state = show::state(told.get("state").text().unwrap_or("-"));
        let mut pairs = vec![("queue", show::text(told.get("queue"))), ("state", state)];
        for (place, reason) in told.get("reasons").items().enumerate() {
            let name = if place == 0 { "because" } else { "" };
            pairs.push((name, because(reason).into()));
        }
        if let Some(at) = show::time(told.get("estimatedStart")) {
            pairs.push(("starts", at));
        }
        out.pairs(&pairs)
    })
}

/// A job in full, and below it what else is known of it.
fn detail(context: &mut Context, id: &str) -> Result<(), Failure> {
    context.ask(Request::on_job(Op::GetJobDetail, id), |out, reply| {
        let told = reply.get("data");
        out.pairs(&show::job_pairs(told.get("job")))?;
        let mut attempts = Table::new(&[">ATTEMPT", "STARTED", "ENDED", "WORKER", "ERROR"]);
        for attempt in told.get("attempts").items() {
            attempts.row(vec![
                attempt.get("attempt").count().to_string().into(),
                show::from_now(attempt.get("startedAt")),
                show::from_now(attempt.get("endedAt")),
                show::text(attempt.get("worker")),
                Cell::styled(attempt.get("error").text().unwrap_or("-"), Style::Bad),
            ]);
        }
        if !attempts.is_empty() {
            out.line("")?;
            out.table(&attempts)?;
        }
        let log = log_table(told.get("logs"));
        if !log.is_empty() {
            out.line("")?;
            out.table(&log)?;
        }
        let children = told.get("children");
        let (done, all) = (children.get("completed").count(), children.get("count").count());
        flow::section(out, &format!("children, {done} of {all} done:"), children.get("jobs"))
    })
}

/// A reason for people, with the jobs that it names.
fn because(reason: Value<'_>) -> String {
    let job = |job: Value<'_>| match (job.text(), job.get("id").text()) {
        (Some(id), _) => id.to_owned(),
        (None, Some(id)) => format!("{id} ({})", job.get("state").text().unwrap_or("-")),
        (None, None) => "-".to_owned(),
    };
    let jobs: Vec<String> = reason.get("jobs").items().map(job).collect();
    let text = reason.get("text").text().unwrap_or_default();
    if jobs.is_empty() { text.to_owned() } else { format!("{text}: {}", jobs.join(", ")) }
}

fn wait(context: &mut Context, id: &str, timeout: Option<i64>) -> Result<(), Failure> {
    let request =
        Request::on_job(Op::WaitJob, id).with(|fields| fields.integer_if("timeout", timeout));
    let reply = context.client()?.call(request)?;
    context.show(&reply, |out, reply| {
        if reply.get("completed").is_true() {
            out.line(&show::json_text(reply.get("result")))?;
        }
        Ok(())
    })?;
    let reply = reply.value();
    match (reply.get("completed").is_true(), reply.get("state").text()) {
        (true, _) => Ok(()),
        (false, Some(state)) => {
            let error = reply.get("error").text().unwrap_or("no reason was given");
            Err(Failure::Failed(format!("job {id} is {state}: {error}")))
        }
        (false, None) => Err(Failure::Failed(format!(
            "job {id} has not ended in time: wait longer with --timeout"
        ))),
    }
}

fn progress_of(context: &mut Context, id: &str) -> Result<(), Failure> {
    context.ask(Request::on_job(Op::GetProgress, id), |out, reply| {
        let progress = words::figure(reply.get("progress").number().unwrap_or(0.0));
        let message = reply.get("message").text().unwrap_or_default();
        out.line(format!("{progress} % {message}").trim_end())
    })
}

fn logs(context: &mut Context, id: &str) -> Result<(), Failure> {
    context.ask(Request::on_job(Op::GetLogs, id), |out, reply| {
        let table = log_table(reply.get("data").get("logs"));
        if table.is_empty() { out.line("its log is empty") } else { out.table(&table) }
    })
}

/// The lines of a log.
fn log_table(lines: Value<'_>) -> Table {
    let mut table = Table::new(&["TIME", "LEVEL", "MESSAGE"]);
    for entry in lines.items() {
        let level = entry.get("level").text().unwrap_or("-");
        let style = match level {
            "error" => Style::Bad,
            "warn" => Style::Warn,
            _ => Style::Plain,
        };
        table.row(vec![
            show::from_now(entry.get("timestamp")),
            Cell::styled(level, style),
            show::text(entry.get("message")),
        ]);
    }
    table
}
