//! `job bulk`: one thing with many jobs. First it is tried without changing anything, so that a person knows what it
//! would do; then it is done, as a task of the server that goes on whatever becomes of this program.

use clap::Args;
use corq_io::signal::Signals;

use super::context::Context;
use super::failure::Failure;
use super::input;
use super::request::{Fields, Request};
use super::task;
use super::value::Value;
use super::words::milliseconds;
use crate::api::commands::Op;

/// The action, and the jobs that it is for.
#[derive(Args, Debug)]
pub struct Bulk {
    /// Action: retry, remove, cancel, promote, discard, delay or priority
    action: String,
    /// Name of the queue
    #[arg(long, value_name = "QUEUE", required_unless_present = "ids")]
    queue: Option<String>,
    /// Only this job; may be repeated
    #[arg(long = "id", value_name = "ID")]
    ids: Vec<String>,
    /// Only jobs in this state; may be repeated
    #[arg(long, value_name = "STATE", conflicts_with = "ids")]
    state: Vec<String>,
    /// Only jobs of this name
    #[arg(long, value_name = "NAME", conflicts_with = "ids")]
    name: Option<String>,
    /// Only jobs with this tag
    #[arg(long, value_name = "TAG", conflicts_with = "ids")]
    tag: Option<String>,
    /// Only jobs of this group
    #[arg(long, value_name = "GROUP", conflicts_with = "ids")]
    group: Option<String>,
    /// Only jobs made at this time or later (milliseconds since 1970)
    #[arg(long, value_name = "MS", conflicts_with = "ids")]
    from: Option<i64>,
    /// Only jobs made at this time or before (milliseconds since 1970)
    #[arg(long, value_name = "MS", conflicts_with = "ids")]
    to: Option<i64>,
    /// Only jobs with this text in their payload
    #[arg(long, value_name = "TEXT", conflicts_with = "ids")]
    text: Option<String>,
    /// Only jobs with a value at this path of their payload
    #[arg(long, value_name = "PATH", conflicts_with = "ids")]
    path: Option<String>,
    /// Only if the value at --path is this one: JSON, @file, or - for standard input
    #[arg(long, value_name = "JSON", requires = "path")]
    value: Option<String>,
    /// Only dead letters with this text in their error
    #[arg(long, value_name = "TEXT", conflicts_with = "ids")]
    error: Option<String>,
    /// Only dead letters of this group of errors, as 'corq dlq groups' shows it
    #[arg(long, value_name = "TEXT", conflicts_with = "ids")]
    error_group: Option<String>,
    /// For the action delay: delay from now (milliseconds, or 30s, 5m ...)
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    delay: Option<i64>,
    /// For the action priority: higher is delivered first
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    priority: Option<i64>,
    /// At most this many jobs, the oldest
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    limit: Option<i64>,
    /// Only count what would be changed
    #[arg(long)]
    dry_run: bool,
    /// Print the id of the task instead of waiting for its end
    #[arg(long, conflicts_with = "dry_run")]
    detach: bool,
    /// Do not count first, and do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

impl Bulk {
    fn request(&self, dry_run: bool) -> Result<Request, Failure> {
        let mut filter = Fields::of_bulk_filter();
        filter.texts_if("state", &self.state);
        filter.text_if("name", self.name.as_deref());
        filter.text_if("tag", self.tag.as_deref());
        filter.text_if("group", self.group.as_deref());
        filter.integer_if("from", self.from);
        filter.integer_if("to", self.to);
        filter.text_if("text", self.text.as_deref());
        filter.text_if("path", self.path.as_deref());
        if let Some(value) = &self.value {
            filter.raw("value", &input::payload("value", value)?);
        }
        filter.text_if("error", self.error.as_deref());
        filter.text_if("errorGroup", self.error_group.as_deref());
        Ok(Request::new(Op::Bulk).with(|fields| {
            fields.text("action", &self.action);
            fields.text_if("queue", self.queue.as_deref());
            if self.ids.is_empty() {
                fields.raw("filter", &filter.finish());
            } else {
                fields.texts("ids", &self.ids);
            }
            fields.integer_if("delay", self.delay);
            fields.integer_if("priority", self.priority);
            fields.integer_if("limit", self.limit);
            fields.flag_if("dryRun", dry_run);
        }))
    }

    /// The outcome of a task, or of its dry run, in one line.
    fn told(&self, task: Value<'_>, verb: &str) -> String {
        let changed = task.get("changed").count();
        let jobs = if changed == 1 { "job" } else { "jobs" };
        let of =
            self.queue.as_deref().map_or_else(String::new, |queue| format!(" of queue {queue}"));
        let skipped = task::skipped(task);
        let rest = if skipped == "none" {
            String::new()
        } else {
            format!("; left as they are: {skipped}")
        };
        format!("{verb}: {changed} {jobs}{of}{rest}")
    }
}

/// Does it.
pub fn run(context: &mut Context, bulk: &Bulk) -> Result<(), Failure> {
    let mut client = context.client()?;
    if bulk.dry_run || !bulk.yes {
        let id = task::begin(&mut client, bulk.request(true)?)?;
        let reply = task::wait(&mut client, None, &id)?;
        let told = bulk.told(reply.value().get("task"), &format!("would {}", bulk.action));
        if bulk.dry_run {
            return context.show(&reply, |out, _| out.line(&told));
        }
        input::confirm(false, told.trim_start_matches("would "))?;
    }
    // From here on an interruption leaves a task behind, which has to be said.
    let signals = Signals::block().map_err(|error| Failure::failed("signals", &error))?;
    let id = task::begin(&mut client, bulk.request(false)?)?;
    if bulk.detach {
        return Ok(context.out.line(&id)?);
    }
    let reply = task::wait(&mut client, Some(&signals), &id)?;
    let task = reply.value().get("task");
    let told = bulk.told(task, &bulk.action);
    context.show(&reply, |out, _| out.line(&told))?;
    match (task.get("state").text(), task.get("error").text()) {
        (Some("done"), _) => Ok(()),
        (_, Some(error)) => Err(Failure::Failed(format!("the task failed: {error}"))),
        _ => Err(Failure::Failed("the task was cancelled".to_owned())),
    }
}
