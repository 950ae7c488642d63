//! `queue`: queues as wholes.

use clap::{Args, Subcommand};

use super::context::Context;
use super::failure::Failure;
use super::follow;
use super::input;
use super::output::{Cell, Style, Table};
use super::request::{Fields, Request};
use super::rules::{self, Stalls};
use super::show;
use super::stream::HttpPort;
use super::value::Value;
use super::words::milliseconds;
use crate::api::commands::Op;

/// The queue that a command is about.
#[derive(Args, Debug)]
pub struct Name {
    /// Name of the queue
    pub queue: String,
}

/// `queue jobs`.
#[derive(Args, Debug)]
pub struct Jobs {
    #[command(flatten)]
    pub name: Name,
    /// Only jobs in these states, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "STATES")]
    pub state: Vec<String>,
    /// Maximum number of jobs
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    limit: Option<i64>,
    /// Number of jobs to skip
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    offset: Option<i64>,
    /// Follow: add a row for every change of a job
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    pub http: HttpPort,
}

/// Commands on queues.
#[derive(Subcommand, Debug)]
pub enum Queue {
    /// List the queues and how many jobs they have
    List,
    /// List the jobs of a queue
    Jobs(Jobs),
    /// Count its jobs by state
    Counts {
        #[command(flatten)]
        name: Name,
        /// Count the waiting jobs by priority instead
        #[arg(long)]
        by_priority: bool,
    },
    /// Pause: stop delivery
    Pause(Name),
    /// Resume delivery
    Resume(Name),
    /// Set when its jobs count as stalled, and show it
    Stalls(Stalls),
    /// Remove all waiting jobs
    Drain {
        #[command(flatten)]
        name: Name,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
    /// Remove old jobs
    Clean {
        #[command(flatten)]
        name: Name,
        /// Jobs at least this old (milliseconds, or 30m, 12h, 7d ...)
        #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
        grace: i64,
        /// Only jobs in these states, separated by commas; else all but active ones
        #[arg(long, value_delimiter = ',', value_name = "STATES")]
        state: Vec<String>,
        /// Maximum number of jobs
        #[arg(long, allow_negative_numbers = true, value_name = "N")]
        limit: Option<i64>,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
    /// Remove the queue with all its jobs, active ones too, its limits, rules and its pause
    Obliterate {
        #[command(flatten)]
        name: Name,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
}

/// Carries one out.
pub fn run(context: &mut Context, queue: &Queue) -> Result<(), Failure> {
    match queue {
        Queue::List => list(context),
        Queue::Jobs(jobs) => {
            if jobs.follow {
                return follow::jobs(context, jobs);
            }
            context.ask(listing(jobs), |out, reply| {
                let table = show::job_table(reply.get("jobs").items());
                if table.is_empty() { out.line("no such jobs") } else { out.table(&table) }
            })
        }
        Queue::Counts { name, by_priority: false } => counts(context, &name.queue),
        Queue::Counts { name, by_priority: true } => priorities(context, &name.queue),
        Queue::Pause(Name { queue }) => {
            context.tell(Request::on_queue(Op::Pause, queue), &format!("paused {queue}"))
        }
        Queue::Resume(Name { queue }) => {
            context.tell(Request::on_queue(Op::Resume, queue), &format!("resumed {queue}"))
        }
        Queue::Stalls(stalls) => rules::stalls(context, stalls),
        Queue::Drain { name: Name { queue }, yes } => {
            input::confirm(*yes, &format!("remove all waiting jobs of queue {queue}"))?;
            context.count(Request::on_queue(Op::Drain, queue), "removed")
        }
        Queue::Clean { name: Name { queue }, grace, state, limit, yes } => {
            input::confirm(*yes, &format!("remove old jobs of queue {queue}"))?;
            let request = Request::on_queue(Op::Clean, queue).with(|fields| {
                fields.integer("grace", *grace);
                states(fields, state);
                fields.integer_if("limit", *limit);
            });
            context.count(request, "removed")
        }
        Queue::Obliterate { name: Name { queue }, yes } => {
            let deed = format!("remove queue {queue} with all its jobs and settings");
            input::confirm(*yes, &deed)?;
            context.tell(Request::on_queue(Op::Obliterate, queue), &format!("removed {queue}"))
        }
    }
}

/// The request for the jobs of a queue.
pub fn listing(jobs: &Jobs) -> Request {
    Request::on_queue(Op::GetJobs, &jobs.name.queue).with(|fields| {
        states(fields, &jobs.state);
        fields.integer_if("limit", jobs.limit);
        fields.integer_if("offset", jobs.offset);
    })
}

/// One state goes alone, so that a refusal names it as it was given.
fn states(fields: &mut Fields, states: &[String]) {
    match states {
        [one] => fields.text("state", one),
        several => fields.texts_if("state", several),
    }
}

fn list(context: &mut Context) -> Result<(), Failure> {
    context.ask(Request::new(Op::ListQueues), |out, reply| {
        let mut table = Table::new(&["QUEUE", ">WAITING", ">DELAYED", ">ACTIVE", "STATE"]);
        let mut queues: Vec<Value<'_>> = reply.get("queues").items().collect();
        queues.sort_by_key(|queue| queue.get("name").text());
        for queue in queues {
            let count = |state: &str| Cell::from(queue.get(state).count().to_string());
            let paused = queue.get("paused").is_true();
            table.row(vec![
                show::text(queue.get("name")),
                count("waiting"),
                count("delayed"),
                count("active"),
                if paused { Cell::styled("paused", Style::Warn) } else { "running".into() },
            ]);
        }
        if table.is_empty() { out.line("there are no queues") } else { out.table(&table) }
    })
}

fn counts(context: &mut Context, queue: &str) -> Result<(), Failure> {
    context.ask(Request::on_queue(Op::GetJobCounts, queue), |out, reply| {
        let mut table = Table::new(&["STATE", ">JOBS"]);
        for (state, count) in reply.get("counts").entries() {
            table.row(vec![
                show::state(state.text().unwrap_or_default()),
                count.count().to_string().into(),
            ]);
        }
        out.table(&table)
    })
}

fn priorities(context: &mut Context, queue: &str) -> Result<(), Failure> {
    context.ask(Request::on_queue(Op::GetCountsPerPriority, queue), |out, reply| {
        let mut rows: Vec<(i64, u64)> = reply
            .get("counts")
            .entries()
            .filter_map(|(priority, count)| Some((priority.text()?.parse().ok()?, count.count())))
            .collect();
        rows.sort_unstable_by_key(|(priority, _)| std::cmp::Reverse(*priority));
        let mut table = Table::new(&[">PRIORITY", ">WAITING"]);
        for (priority, count) in rows {
            table.row(vec![priority.to_string().into(), count.to_string().into()]);
        }
        if table.is_empty() { out.line("no jobs wait") } else { out.table(&table) }
    })
}
