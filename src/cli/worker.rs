//! `worker`: who works.

use clap::{Args, Subcommand};

use super::context::Context;
use super::failure::Failure;
use super::output::{Cell, Style, Table};
use super::paging::{Rows, follow};
use super::request::Request;
use super::show;
use super::value::Value;
use crate::api::commands::Op;

/// Commands on workers.
#[derive(Subcommand, Debug)]
pub enum Worker {
    /// List the registered workers with the jobs that they have
    List(Workers),
}

/// Arguments of `worker list` and `workers`.
#[derive(Args, Debug)]
pub struct Workers {
    /// Only those that registered for this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Maximum number of workers; else all
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

/// Carries one out.
pub fn run(context: &mut Context, worker: &Worker) -> Result<(), Failure> {
    let Worker::List(workers) = worker;
    list(context, workers)
}

/// Workers with where they run, how they are and which jobs they have.
pub fn list(context: &mut Context, workers: &Workers) -> Result<(), Failure> {
    let request = || {
        Request::new(Op::ListWorkers)
            .with(|fields| fields.text_if("queue", workers.queue.as_deref()))
    };
    let mut table = Table::new(&[
        "ID",
        "NAME",
        "HOST",
        ">PID",
        "STATUS",
        ">ACTIVE",
        ">PROCESSED",
        ">FAILED",
        "SEEN",
        "QUEUES",
        "JOBS",
    ]);
    let rows = Rows { within: "data", name: "workers" };
    follow(context, rows, workers.limit.unwrap_or(u64::MAX), request, |page| {
        page.get("workers").items().for_each(|worker| table.row(row(worker)));
    })?;
    if context.target.json {
        return Ok(());
    }
    let out = &mut context.out;
    Ok(if table.is_empty() { out.line("no worker is registered") } else { out.table(&table) }?)
}

fn row(worker: Value<'_>) -> Vec<Cell> {
    let count = |field: &str| Cell::from(worker.get(field).count().to_string());
    let named = |text: Option<&str>| match text.filter(|text| !text.is_empty()) {
        Some(text) => text.into(),
        None => Cell::styled("-", Style::Dim),
    };
    let status = worker.get("status").text().unwrap_or("-");
    let jobs: Vec<&str> =
        worker.get("jobs").items().filter_map(|job| job.get("id").text()).collect();
    vec![
        show::text(worker.get("id")),
        show::text(worker.get("name")),
        named(worker.get("hostname").text()),
        count("pid"),
        Cell::styled(status, if status == "stale" { Style::Warn } else { Style::Plain }),
        format!("{}/{}", worker.get("activeJobs").count(), worker.get("concurrency").count())
            .into(),
        count("processedJobs"),
        count("failedJobs"),
        show::from_now(worker.get("lastSeen")),
        show::texts(worker.get("queues")).into(),
        named(Some(&jobs.join(","))),
    ]
}
