//! `group`: groups of jobs within a queue.

use clap::{Args, Subcommand};

use super::context::Context;
use super::failure::Failure;
use super::output::{Cell, Style, Table};
use super::request::{Fields, Request};
use super::rest;
use super::show;
use super::value::Value;
use super::words::{self, milliseconds};
use crate::api::commands::Op;

/// The group that a command is about.
#[derive(Args, Debug)]
pub struct Name {
    /// Name of the queue
    queue: String,
    /// Name of the group
    group: String,
}

/// Commands on groups.
#[derive(Subcommand, Debug)]
pub enum Group {
    /// List the groups of a queue with their jobs and settings
    List {
        /// Name of the queue
        queue: String,
        /// Maximum number of groups [default: 100]
        #[arg(long, allow_negative_numbers = true, value_name = "N")]
        limit: Option<i64>,
        /// Continue after this group
        #[arg(long, value_name = "GROUP")]
        after: Option<String>,
    },
    /// Pause: stop delivery of its jobs
    Pause(Name),
    /// Resume delivery
    Resume(Name),
    /// Stop delivery for a time
    Hold {
        #[command(flatten)]
        name: Name,
        /// Duration (milliseconds, or 30s, 5m ...)
        #[arg(value_parser = milliseconds, allow_negative_numbers = true)]
        time: i64,
    },
    /// Limit its active jobs; without a number, remove the limit
    Concurrency {
        #[command(flatten)]
        name: Name,
        /// Maximum number of active jobs
        #[arg(allow_negative_numbers = true)]
        limit: Option<i64>,
    },
    /// Limit its jobs per time; without a number, remove the limit
    RateLimit {
        #[command(flatten)]
        name: Name,
        /// Number of jobs
        #[arg(allow_negative_numbers = true)]
        limit: Option<i64>,
        /// Per this time (milliseconds, or 30s, 5m ...)
        #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME", default_value = "1s")]
        per: i64,
    },
    /// Set how many jobs it gives per turn of the rotation
    Weight {
        #[command(flatten)]
        name: Name,
        /// Number of jobs
        #[arg(allow_negative_numbers = true)]
        weight: i64,
    },
}

fn on(op: Op, name: &Name, write: impl FnOnce(&mut Fields)) -> Request {
    Request::on_queue(op, &name.queue).with(|fields| {
        fields.text("groupId", &name.group);
        write(fields);
    })
}

/// Carries one out.
pub fn run(context: &mut Context, group: &Group) -> Result<(), Failure> {
    let nothing = |_: &mut Fields| {};
    match group {
        Group::List { queue, limit, after } => {
            let request = Request::on_queue(Op::GetGroups, queue).with(|fields| {
                fields.integer_if("limit", *limit);
                fields.text_if("after", after.as_deref());
            });
            let last = list(context, request)?;
            let Some((shown @ rest::LISTED_MAX.., last)) = last.filter(|_| limit.is_none()) else {
                return Ok(());
            };
            let next =
                context.client()?.call(Request::on_queue(Op::GetGroups, queue).with(|fields| {
                    fields.integer("limit", 1);
                    fields.text("after", &last);
                }))?;
            match next.value().get("groups").items().next() {
                Some(_) => {
                    Ok(rest::tell_unlisted(&mut context.out, shown, None, "--limit or --after")?)
                }
                None => Ok(()),
            }
        }
        Group::Pause(name) => {
            context.tell(on(Op::PauseGroup, name, nothing), &format!("paused {}", name.group))
        }
        Group::Resume(name) => {
            context.tell(on(Op::ResumeGroup, name, nothing), &format!("resumed {}", name.group))
        }
        Group::Hold { name, time } => {
            let request = on(Op::RateLimitGroup, name, |fields| fields.integer("duration", *time));
            let done = format!("{}: no jobs for {}", name.group, words::duration(*time));
            context.tell(request, &done)
        }
        Group::Concurrency { name, limit: Some(limit) } => {
            let request =
                on(Op::SetGroupConcurrency, name, |fields| fields.integer("concurrency", *limit));
            context.tell(request, &format!("{}: at most {limit} active jobs at a time", name.group))
        }
        Group::Concurrency { name, limit: None } => context.tell(
            on(Op::RemoveGroupConcurrency, name, nothing),
            &format!("{}: no limit on active jobs at a time", name.group),
        ),
        Group::RateLimit { name, limit: Some(limit), per } => {
            let request = on(Op::SetGroupRateLimit, name, |fields| {
                fields.integer("max", *limit);
                fields.integer("duration", *per);
            });
            let per = words::duration(*per);
            context.tell(request, &format!("{}: at most {limit} jobs in {per}", name.group))
        }
        Group::RateLimit { name, limit: None, .. } => context.tell(
            on(Op::RemoveGroupRateLimit, name, nothing),
            &format!("{}: no limit on jobs in a time", name.group),
        ),
        Group::Weight { name, weight } => {
            let request = on(Op::SetGroupWeight, name, |fields| fields.integer("weight", *weight));
            context.tell(request, &format!("{}: {weight} jobs in a turn", name.group))
        }
    }
}

/// Shows groups; answers how many and the last of them, if there are any and they are shown to people.
fn list(context: &mut Context, request: Request) -> Result<Option<(u64, String)>, Failure> {
    let mut last = None;
    context.ask(request, |out, reply| {
        let ids = reply.get("groups").items().filter_map(|group| group.get("id").text());
        last = ids.enumerate().last().map(|(place, id)| (place as u64 + 1, id.to_owned()));
        let mut table = Table::new(&[
            "GROUP",
            ">PENDING",
            ">ACTIVE",
            ">MAX ACTIVE",
            "RATE",
            ">WEIGHT",
            "STATE",
        ]);
        for group in reply.get("groups").items() {
            table.row(vec![
                show::text(group.get("id")),
                group.get("count").count().to_string().into(),
                group.get("active").count().to_string().into(),
                number(group.get("concurrency")),
                rate(group.get("limit")),
                group.get("weight").count().to_string().into(),
                state(group),
            ]);
        }
        if table.is_empty() { out.line("no groups") } else { out.table(&table) }
    })?;
    Ok(last)
}

fn number(value: Value<'_>) -> Cell {
    match value.integer() {
        Some(number) => number.to_string().into(),
        None => Cell::styled("-", Style::Dim),
    }
}

fn rate(limit: Value<'_>) -> Cell {
    match (limit.get("max").integer(), limit.get("duration").integer()) {
        (Some(max), Some(per)) => format!("{max} in {}", words::duration(per)).into(),
        _ => Cell::styled("-", Style::Dim),
    }
}

fn state(group: Value<'_>) -> Cell {
    if group.get("paused").is_true() {
        return Cell::styled("paused", Style::Warn);
    }
    match group.get("heldFor").integer() {
        Some(ms) => Cell::styled(format!("held for {}", words::duration(ms)), Style::Warn),
        None => "running".into(),
    }
}
