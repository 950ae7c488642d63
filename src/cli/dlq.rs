//! `dlq`: the jobs that failed for good.

use clap::Subcommand;

use super::context::Context;
use super::failure::Failure;
use super::input;
use super::output::{Cell, Style, Table};
use super::request::Request;
use super::show;
use crate::api::spec::Op;

/// Commands on dead-letter queues.
#[derive(Subcommand, Debug)]
pub enum Dlq {
    /// List the failed jobs of a queue, oldest first
    List {
        /// Name of the queue
        queue: String,
        /// So many at most
        #[arg(long, allow_negative_numbers = true, value_name = "N")]
        count: Option<i64>,
    },
    /// Let them run again, with all their attempts
    Retry {
        /// Name of the queue
        queue: String,
        /// Only this job
        job: Option<String>,
        /// Only so many, the oldest
        #[arg(long, allow_negative_numbers = true, value_name = "N", conflicts_with = "job")]
        count: Option<i64>,
    },
    /// Remove them all
    Purge {
        /// Name of the queue
        queue: String,
        /// Do it without asking
        #[arg(long, short)]
        yes: bool,
    },
}

/// Carries one out.
pub fn run(context: &mut Context, dlq: &Dlq) -> Result<(), Failure> {
    match dlq {
        Dlq::List { queue, count } => {
            let request =
                Request::on_queue(Op::Dlq, queue).with(|fields| fields.integer_if("count", *count));
            list(context, request)
        }
        Dlq::Retry { queue, job, count } => {
            let request = Request::on_queue(Op::RetryDlq, queue).with(|fields| {
                fields.text_if("jobId", job.as_deref());
                fields.integer_if("count", *count);
            });
            context.count(request, "retried")
        }
        Dlq::Purge { queue, yes } => {
            input::confirm(*yes, &format!("remove all failed jobs of queue {queue}"))?;
            context.count(Request::on_queue(Op::PurgeDlq, queue), "removed")
        }
    }
}

fn list(context: &mut Context, request: Request) -> Result<(), Failure> {
    context.ask(request, |out, reply| {
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
    })
}
