//! `dlq`: the jobs that failed for good.

use clap::Subcommand;

use super::context::{Context, counted};
use super::failure::Failure;
use super::input;
use super::output::{Cell, Style, Table};
use super::request::{Fields, Request};
use super::rest;
use super::rules::{self, DlqConfig};
use super::show;
use crate::api::commands::Op;

/// Commands on dead-letter queues.
#[derive(Subcommand, Debug)]
pub enum Dlq {
    /// List the failed jobs of a queue, oldest first
    List {
        /// Name of the queue
        queue: String,
        /// Maximum number of jobs [default: 100]
        #[arg(long, allow_negative_numbers = true, value_name = "N")]
        count: Option<i64>,
        /// Only those that failed for this reason
        #[arg(long, value_name = "REASON")]
        reason: Option<String>,
    },
    /// Retry them, with all their attempts
    Retry {
        /// Name of the queue
        queue: String,
        /// Only this job
        job: Option<String>,
        /// Only this many, the oldest
        #[arg(long, allow_negative_numbers = true, value_name = "N", conflicts_with = "job")]
        count: Option<i64>,
        /// Only those that failed for this reason
        #[arg(long, value_name = "REASON", conflicts_with = "job")]
        reason: Option<String>,
    },
    /// Count them by reason
    Stats {
        /// Name of the queue
        queue: String,
    },
    /// Count them by their errors, the most frequent first
    Groups {
        /// Name of the queue; all queues without
        queue: Option<String>,
        /// Maximum number of groups
        #[arg(long, allow_negative_numbers = true, value_name = "N")]
        limit: Option<i64>,
    },
    /// Set the automatic rules of the queue, and show them
    Config(DlqConfig),
    /// Remove them all
    Purge {
        /// Name of the queue
        queue: String,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
}

/// Carries one out.
pub fn run(context: &mut Context, dlq: &Dlq) -> Result<(), Failure> {
    match dlq {
        Dlq::List { queue, count, reason } => {
            let request = Request::on_queue(Op::Dlq, queue).with(|fields| {
                fields.integer_if("count", *count);
                filter(fields, reason.as_deref());
            });
            let shown = list(context, request)?;
            if count.is_some() || shown < rest::LISTED_MAX {
                return Ok(());
            }
            let all = counted_by_reason(context, queue, reason.as_deref())?;
            Ok(rest::tell_unlisted(&mut context.out, shown, all, "--count")?)
        }
        Dlq::Retry { queue, job, count, reason } => {
            let request = Request::on_queue(Op::RetryDlq, queue).with(|fields| {
                fields.text_if("jobId", job.as_deref());
                fields.integer_if("count", *count);
                filter(fields, reason.as_deref());
            });
            let reply = context.client()?.call(request)?;
            let is_none = reply.refusal().is_none() && reply.value().get("count").count() == 0;
            let unknown = job.as_ref().filter(|_| is_none);
            context.show(&reply, |out, reply| match unknown {
                None => counted(out, "retried", reply),
                Some(_) => Ok(()),
            })?;
            match unknown {
                None => Ok(()),
                Some(job) => Err(Failure::Failed(format!(
                    "job {job} is not in the dead-letter queue of {queue}"
                ))),
            }
        }
        Dlq::Stats { queue } => rules::dlq_stats(context, queue),
        Dlq::Groups { queue, limit } => groups(context, queue.as_deref(), *limit),
        Dlq::Config(config) => rules::dlq_config(context, config),
        Dlq::Purge { queue, yes } => {
            input::confirm(*yes, &format!("remove all failed jobs of queue {queue}"))?;
            context.count(Request::on_queue(Op::PurgeDlq, queue), "removed")
        }
    }
}

/// Only jobs that failed for a reason.
fn filter(fields: &mut Fields, reason: Option<&str>) {
    if reason.is_some() {
        let mut filter = Fields::of_dlq_filter();
        filter.text_if("reason", reason);
        fields.raw("filter", &filter.finish());
    }
}

fn groups(context: &mut Context, queue: Option<&str>, limit: Option<i64>) -> Result<(), Failure> {
    let request = Request::new(Op::DlqGroups).with(|fields| {
        fields.text_if("queue", queue);
        fields.integer_if("limit", limit);
    });
    context.ask(request, |out, reply| {
        let mut table = Table::new(&[">COUNT", "OLDEST", "NEWEST", "SAMPLE", "ERROR"]);
        for group in reply.get("groups").items() {
            table.row(vec![
                group.get("count").count().to_string().into(),
                show::from_now(group.get("oldest")),
                show::from_now(group.get("newest")),
                show::text(group.get("sample")),
                Cell::styled(group.get("error").text().unwrap_or("-"), Style::Bad),
            ]);
        }
        if table.is_empty() {
            return out.line("no job has failed for good");
        }
        out.table(&table)?;
        match reply.get("others").count() {
            0 => Ok(()),
            others => out.line(&format!("{others} more in other groups")),
        }
    })
}

/// The failed jobs of a queue, or those that failed for a reason. None where the server does not tell.
fn counted_by_reason(
    context: &Context,
    queue: &str,
    reason: Option<&str>,
) -> Result<Option<u64>, Failure> {
    let reply = context.client()?.call(Request::on_queue(Op::GetDlqStats, queue))?;
    let stats = reply.value().get("data").get("stats");
    let all = match reason {
        Some(reason) => stats.get("byReason").get(reason),
        None => stats.get("total"),
    };
    Ok(all.integer().map(i64::cast_unsigned))
}

/// Shows jobs; answers how many, none of them under `--json`.
fn list(context: &mut Context, request: Request) -> Result<u64, Failure> {
    let mut shown = 0;
    context.ask(request, |out, reply| {
        shown = reply.get("jobs").items().count() as u64;
        let mut table = Table::new(&["ID", "FAILED", ">ATTEMPTS", "ERROR", "DATA"]);
        for job in reply.get("jobs").items() {
            table.row(vec![
                show::text(job.get("id")),
                show::from_now(job.get("failedAt")),
                job.get("attempts").count().to_string().into(),
                Cell::styled(job.get("failedReason").text().unwrap_or("-"), Style::Bad),
                show::json_text(job.get("data")).into(),
            ]);
        }
        if table.is_empty() { out.line("no job has failed for good") } else { out.table(&table) }
    })?;
    Ok(shown)
}
