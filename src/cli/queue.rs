//! `queue`: queues as wholes.

use clap::{Args, Subcommand};

use super::context::{Context, counted};
use super::failure::Failure;
use super::follow;
use super::input;
use super::listing::{Jobs, Name, listing, states};
use super::output::{Cell, Output, Style, Table};
use super::paging::{Rows, follow};
use super::request::Request;
use super::rest;
use super::rules::{self, Stalls};
use super::show;
use super::value::Value;
use super::words::{self, milliseconds};
use crate::api::commands::Op;

/// `queue list`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    corq queue list\n  \
    corq queue list --prefix mail- --sort waiting --limit 10\n  \
    corq queue list --sort oldest --limit 3 --json")]
pub struct List {
    /// Only queues whose names begin so
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Sort by name, waiting, delayed, active, completed, failed, total, rate or oldest; figures from the largest
    #[arg(long, value_name = "FIGURE")]
    sort: Option<String>,
    /// The other way round
    #[arg(long)]
    reverse: bool,
    /// Maximum number of queues; else all
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

/// Commands on queues.
#[derive(Subcommand, Debug)]
pub enum Queue {
    /// List the queues, how many jobs they have, and their limits
    List(List),
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
    /// Pause: stop delivery; asks if there is no such queue
    Pause {
        #[command(flatten)]
        name: Name,
        /// Do not ask whether a queue that is not there is meant
        #[arg(long, short)]
        yes: bool,
    },
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

impl Queue {
    /// Whether it has no end of its own.
    pub fn goes_on(&self) -> bool {
        matches!(self, Self::Jobs(jobs) if jobs.follow)
    }
}

/// Carries one out.
pub fn run(context: &mut Context, queue: &Queue) -> Result<(), Failure> {
    match queue {
        Queue::List(wanted) => list(context, wanted),
        Queue::Jobs(jobs) => {
            if jobs.follow {
                return follow::jobs(context, jobs);
            }
            let mut shown = 0;
            context.ask(listing(jobs), |out, reply| {
                let table = show::job_table(reply.get("jobs").items());
                shown = reply.get("jobs").items().count() as u64;
                if table.is_empty() { out.line("no such jobs") } else { out.table(&table) }
            })?;
            rest::tell_unlisted_jobs(context, jobs, shown)
        }
        Queue::Counts { name, by_priority: false } => counts(context, &name.queue),
        Queue::Counts { name, by_priority: true } => priorities(context, &name.queue),
        Queue::Pause { name: Name { queue }, yes } => {
            if !yes && !is_there(context, queue)? {
                input::confirm(false, &format!("pause queue {queue}, which is not there yet"))?;
            }
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
            let mut removed = 0;
            context.ask(request, |out, reply| {
                removed = reply.get("count").count();
                counted(out, "removed", reply)
            })?;
            if limit.is_some() || removed < rest::CLEANED_MAX {
                return Ok(());
            }
            rest::tell_uncleaned(context, queue, state, *grace)
        }
        Queue::Obliterate { name: Name { queue }, yes } => {
            let deed = format!("remove queue {queue} with all its jobs and settings");
            input::confirm(*yes, &deed)?;
            context.tell(Request::on_queue(Op::Obliterate, queue), &format!("removed {queue}"))
        }
    }
}

/// Fields of queues that the columns of the list need.
const SHOWN: [&str; 8] = [
    "waiting",
    "delayed",
    "active",
    "completed",
    "failed",
    "paused",
    "rateLimit",
    "concurrencyLimit",
];

fn list(context: &mut Context, list: &List) -> Result<(), Failure> {
    let is_plain =
        list.prefix.is_none() && list.sort.is_none() && list.limit.is_none() && !list.reverse;
    // All of them in one reply, also for tokens that are limited to queues and get no pages.
    if is_plain && (context.target.json || is_limited(context)?) {
        return context.ask(Request::new(Op::ListQueues), |out, reply| {
            let mut queues: Vec<Value<'_>> = reply.get("queues").items().collect();
            queues.sort_by_key(|queue| queue.get("name").text());
            print(out, queues.into_iter().map(row).collect())
        });
    }
    let by_name = list.sort.as_deref().is_none_or(|sort| sort == "name");
    let request = || {
        Request::new(Op::ListQueues).with(|fields| {
            fields.text_if("prefix", list.prefix.as_deref());
            fields.text_if("sort", list.sort.as_deref());
            fields.text_if("order", list.reverse.then_some(if by_name { "desc" } else { "asc" }));
            fields.texts("fields", &SHOWN.map(str::to_owned));
        })
    };
    let mut queues = Vec::new();
    let rows = Rows { within: "", name: "queues" };
    follow(context, rows, list.limit.unwrap_or(u64::MAX), request, |page| {
        queues.extend(page.get("queues").items().map(row));
    })?;
    if context.target.json { Ok(()) } else { Ok(print(&mut context.out, queues)?) }
}

/// Whether there is a queue of this name. Unless it can be told, there is.
fn is_there(context: &Context, queue: &str) -> Result<bool, Failure> {
    let mut client = context.client()?;
    let page = client.call(Request::new(Op::ListQueues).with(|fields| {
        fields.text("prefix", queue);
        fields.integer("limit", 1);
        fields.texts("fields", &["paused".to_owned()]);
    }))?;
    // A token that is limited to queues may get all of its own, and no pages. What is wrong with the name, the
    // command itself says.
    let list = match page.refusal() {
        None => page,
        Some(_) => client.call(Request::new(Op::ListQueues))?,
    };
    let mut names = list.value().get("queues").items();
    let is_there = names.any(|it| it.get("name").text() == Some(queue));
    Ok(list.refusal().is_some() || is_there)
}

/// Whether the token is limited to queues.
fn is_limited(context: &Context) -> Result<bool, Failure> {
    if context.target.token.is_none() {
        return Ok(false);
    }
    let who = context.client()?.call(Request::new(Op::Whoami))?;
    Ok(who.value().get("data").get("queues").items().next().is_some())
}

fn print(out: &mut Output, queues: Vec<Vec<Cell>>) -> std::io::Result<()> {
    let mut table = Table::new(&[
        "QUEUE",
        ">WAITING",
        ">DELAYED",
        ">ACTIVE",
        ">COMPLETED",
        ">FAILED",
        "LIMITS",
        "STATE",
    ]);
    for queue in queues {
        table.row(queue);
    }
    if table.is_empty() { out.line("there are no queues") } else { out.table(&table) }
}

fn row(queue: Value<'_>) -> Vec<Cell> {
    let count = |state: &str| match queue.get(state).integer() {
        Some(count) => Cell::from(count.to_string()),
        None => Cell::styled("-", Style::Dim),
    };
    let failed = match queue.get("failed").integer() {
        Some(failed @ 1..) => Cell::styled(failed.to_string(), Style::Bad),
        _ => count("failed"),
    };
    let paused = queue.get("paused").is_true();
    vec![
        show::text(queue.get("name")),
        count("waiting"),
        count("delayed"),
        count("active"),
        count("completed"),
        failed,
        limits(queue),
        if paused { Cell::styled("paused", Style::Warn) } else { "running".into() },
    ]
}

/// The limits of a queue, as `5 per 1s, 3 active`.
fn limits(queue: Value<'_>) -> Cell {
    let rate = queue.get("rateLimit");
    let rate = rate.get("max").integer().map(|max| {
        format!("{max} per {}", words::duration(rate.get("duration").integer().unwrap_or(0)))
    });
    let active = queue.get("concurrencyLimit").integer().map(|most| format!("{most} active"));
    match (rate, active) {
        (None, None) => Cell::styled("-", Style::Dim),
        (rate, active) => rate.into_iter().chain(active).collect::<Vec<_>>().join(", ").into(),
    }
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
