//! `flow`: a job and those below it, as a tree.

use std::collections::HashMap;

use clap::Args;

use super::context::Context;
use super::failure::Failure;
use super::output::{Cell, Output, Style, Table};
use super::request::Request;
use super::show;
use super::value::Value;
use crate::api::commands::Op;

/// Arguments of `flow`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  corq flow order-17\n  corq flow order-17 --depth 2 --limit 1000"
)]
pub struct Flow {
    /// Id of the job at the top: generated, or its custom id
    id: String,
    /// How many levels below it
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    depth: Option<i64>,
    /// Maximum number of jobs
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    limit: Option<i64>,
}

/// Shows it.
pub fn run(context: &mut Context, flow: &Flow) -> Result<(), Failure> {
    let request = Request::on_job(Op::GetFlow, &flow.id).with(|fields| {
        fields.integer_if("depth", flow.depth);
        fields.integer_if("limit", flow.limit);
    });
    context.ask(request, |out, reply| {
        let told = reply.get("data");
        out.table(&tree(told.get("jobs")))?;
        if told.get("truncated").is_true() {
            out.line("there are more: say --depth and --limit")?;
        }
        Ok(())
    })
}

/// Jobs as a tree, each below its parent.
pub fn tree(jobs: Value<'_>) -> Table {
    let jobs: Vec<Value<'_>> = jobs.items().collect();
    let mut below: HashMap<&str, Vec<usize>> = HashMap::new();
    let ids: HashMap<&str, usize> = jobs
        .iter()
        .enumerate()
        .filter_map(|(place, job)| Some((job.get("id").text()?, place)))
        .collect();
    let mut left = Vec::new();
    for (place, job) in jobs.iter().enumerate().rev() {
        match job.get("parentId").text().filter(|parent| ids.contains_key(parent)) {
            Some(parent) => below.entry(parent).or_default().push(place),
            // The top, and what hangs on a job that is not shown.
            None => left.push((place, 0)),
        }
    }
    let mut table =
        Table::new(&["JOB", "STATE", "QUEUE", "NAME", ">ATTEMPTS", ">CHILDREN", "CREATED"]);
    while let Some((place, indent)) = left.pop() {
        let job = jobs[place];
        table.row(row(job, indent));
        // Each place is below one job only, so this ends.
        let children = job.get("id").text().and_then(|id| below.remove(id)).unwrap_or_default();
        left.extend(children.into_iter().map(|child| (child, indent + 1)));
    }
    table
}

fn row(job: Value<'_>, indent: usize) -> Vec<Cell> {
    let counts = |done: &str, all: &str| {
        let known = job.get(all).integer();
        known.map_or(Cell::styled("-", Style::Dim), |all| {
            format!("{}/{all}", job.get(done).count()).into()
        })
    };
    vec![
        format!("{:1$}{2}", "", 2 * indent, job.get("id").text().unwrap_or("-")).into(),
        show::state(job.get("state").text().unwrap_or("-")),
        show::text(job.get("queue")),
        show::text(job.get("name")),
        counts("attempts", "maxAttempts"),
        counts("childrenCompleted", "children"),
        show::from_now(job.get("createdAt")),
    ]
}

/// Jobs as a tree with a line before it, if there are any.
pub fn section(out: &mut Output, head: &str, jobs: Value<'_>) -> std::io::Result<()> {
    if jobs.items().next().is_none() {
        return Ok(());
    }
    out.line("")?;
    out.line(head)?;
    out.table(&tree(jobs))
}
