//! `task`: actions on many jobs that the server carries out, and how they are waited for.

use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand};
use corq_io::signal::{Signal, Signals};
use indicatif::{ProgressBar, ProgressStyle};

use super::client::{Client, Reply};
use super::context::Context;
use super::failure::Failure;
use super::output::{Cell, Style, Table};
use super::request::Request;
use super::show;
use super::value::Value;
use crate::api::commands::Op;

/// How often a task is asked how far it is.
const LOOK: Duration = Duration::from_millis(200);

/// The task that a command is about.
#[derive(Args, Debug)]
pub struct Id {
    /// Id of the task
    id: String,
}

/// Commands on tasks.
#[derive(Subcommand, Debug)]
pub enum Task {
    /// List those that run and the last that have ended
    List,
    /// Show how far a task is
    Get(Id),
    /// Stop a task; what it has changed stays
    Cancel(Id),
}

/// Carries one out.
pub fn run(context: &mut Context, task: &Task) -> Result<(), Failure> {
    match task {
        Task::List => list(context),
        Task::Get(Id { id }) => context
            .ask(on_task(Op::GetTask, id), |out, reply| out.pairs(&pairs_of(reply.get("task")))),
        Task::Cancel(Id { id }) => context
            .ask(on_task(Op::CancelTask, id), |out, reply| out.pairs(&pairs_of(reply.get("task")))),
    }
}

fn on_task(op: Op, id: &str) -> Request {
    Request::new(op).with(|fields| fields.text("task", id))
}

fn state(task: Value<'_>) -> Cell {
    let name = task.get("state").text().unwrap_or("-");
    let style = match name {
        "done" => Style::Good,
        "running" => Style::Warn,
        _ => Style::Bad,
    };
    let paused = if task.get("paused").is_true() { " (paused)" } else { "" };
    Cell::styled(format!("{name}{paused}"), style)
}

fn list(context: &mut Context) -> Result<(), Failure> {
    context.ask(Request::new(Op::ListTasks), |out, reply| {
        let heads =
            ["ID", "ACTION", "QUEUE", "STATE", ">CHANGED", ">MATCHED", ">LOOKED AT", "STARTED"];
        let mut table = Table::new(&heads);
        for task in reply.get("tasks").items() {
            let dry = if task.get("dryRun").is_true() { " (dry run)" } else { "" };
            let action = task.get("action").text().unwrap_or("-");
            let count = |name: &str| Cell::from(task.get(name).count().to_string());
            table.row(vec![
                show::text(task.get("id")),
                format!("{action}{dry}").into(),
                show::text(task.get("queue")),
                state(task),
                count("changed"),
                count("matched"),
                count("counted"),
                show::from_now(task.get("startedAt")),
            ]);
        }
        if table.is_empty() { out.line("no task runs or has run") } else { out.table(&table) }
    })
}

fn pairs_of(task: Value<'_>) -> Vec<(&'static str, Cell)> {
    let dry = if task.get("dryRun").is_true() { " (dry run: nothing is changed)" } else { "" };
    let action = task.get("action").text().unwrap_or("-");
    let count = |name: &str| Cell::from(task.get(name).count().to_string());
    let mut pairs = vec![
        ("id", show::text(task.get("id"))),
        ("action", format!("{action}{dry}").into()),
        ("queue", show::text(task.get("queue"))),
        ("state", state(task)),
        (
            "looked at",
            format!("{} of {}", task.get("counted").count(), task.get("total").count()).into(),
        ),
        ("matched", count("matched")),
        ("changed", count("changed")),
        ("skipped", skipped(task).into()),
    ];
    if let Some(error) = task.get("error").text() {
        pairs.push(("error", error.into()));
    }
    let times = [("started", "startedAt"), ("ended", "endedAt")];
    pairs
        .extend(times.into_iter().filter_map(|(name, at)| Some((name, show::time(task.get(at))?))));
    pairs.push(("started by", show::text(task.get("startedBy"))));
    pairs
}

/// How many jobs were left as they are, and why.
pub fn skipped(task: Value<'_>) -> String {
    let reasons = task.get("skipped");
    let words = [
        ("notFound", "not found"),
        ("active", "active"),
        ("state", "in another state"),
        ("damaged", "damaged"),
    ];
    let told = words.into_iter().filter_map(|(name, words)| {
        let count = reasons.get(name).count();
        (count > 0).then(|| format!("{count} {words}"))
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { "none".to_owned() } else { told.join(", ") }
}

/// Begins a task.
pub fn begin(client: &mut Client, bulk: Request) -> Result<String, Failure> {
    let reply = client.call(bulk)?.granted()?;
    Ok(reply.value().get("taskId").text().unwrap_or_default().to_owned())
}

/// Waits until a task has ended, with a bar on a terminal. With `signals`, an interruption tells how the task is stopped.
pub fn wait(client: &mut Client, signals: Option<&Signals>, id: &str) -> Result<Reply, Failure> {
    let bar = bar();
    loop {
        let reply = client.call(on_task(Op::GetTask, id))?.granted()?;
        let task = reply.value().get("task");
        bar.set_length(task.get("total").count());
        bar.set_position(task.get("counted").count().min(task.get("total").count()));
        bar.set_message(format!("{} changed", task.get("changed").count()));
        if task.get("state").text() != Some("running") {
            bar.finish_and_clear();
            return Ok(reply);
        }
        let Some(signals) = signals else {
            thread::sleep(LOOK);
            continue;
        };
        let signal = signals.wait_for(LOOK).map_err(|error| Failure::failed("signals", &error))?;
        if signal.is_some_and(Signal::is_stop) {
            bar.finish_and_clear();
            return Err(Failure::Failed(format!(
                "the task goes on: 'corq task get {id}' shows it, 'corq task cancel {id}' stops it"
            )));
        }
    }
}

fn bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    match ProgressStyle::with_template("{bar:30} {percent}% · {pos} of {len} looked at, {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
