//! `search`: jobs by what is in their payloads.

use clap::Args;

use super::context::Context;
use super::failure::{Failure, warn};
use super::listing;
use super::output::{Cell, Table};
use super::paging::{Rows, follow};
use super::request::Request;
use super::rest;
use super::show;
use super::value::Value;
use crate::api::commands::Op;

/// Arguments of `search`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    corq search ada@example.org\n  \
    corq search --queue emails --path order.lines.0.sku --value A-17 --state failed,delayed\n  \
    corq search timeout --queue emails --tag nightly --newest --limit 5 --json")]
pub struct Search {
    /// Text that a payload has, in a value or a key
    #[arg(required_unless_present = "path", allow_hyphen_values = true)]
    text: Option<String>,
    /// Only jobs of this queue; else of all
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Path in a payload at which there is a value, as order.lines.0.sku
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// This value at the path: a text, a number, true, false or null
    #[arg(long, value_name = "VALUE", requires = "path", allow_hyphen_values = true)]
    value: Option<String>,
    /// Only jobs in these states, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "STATES")]
    state: Vec<String>,
    /// Only jobs of this name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only jobs with this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Only jobs of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Begin with the newest job of the queue
    #[arg(long, requires = "queue")]
    newest: bool,
    /// Maximum number of jobs [default: 100]
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

/// Searches until enough is found, or all is searched.
pub fn run(context: &mut Context, search: &Search) -> Result<(), Failure> {
    let request = || {
        Request::new(Op::Search).with(|fields| {
            fields.text_if("queue", search.queue.as_deref());
            fields.text_if("text", search.text.as_deref());
            fields.text_if("path", search.path.as_deref());
            fields.text_if("value", search.value.as_deref());
            listing::states(fields, &search.state);
            fields.text_if("name", search.name.as_deref());
            fields.text_if("tag", search.tag.as_deref());
            fields.text_if("group", search.group.as_deref());
            fields.text_if("order", search.newest.then_some("desc"));
            fields.text("data", "preview");
        })
    };
    let mut table = Table::new(&["ID", "QUEUE", "STATE", "CREATED", "DATA"]);
    let (mut jobs, mut partly, mut damaged) = (0, 0, 0);
    let limit = search.limit.unwrap_or(rest::LISTED_MAX);
    let is_cut = follow(context, Rows { within: "", name: "jobs" }, limit, request, |page| {
        page.get("jobs").items().for_each(|job| table.row(row(job)));
        let covered = |what: &str| page.get("covered").get(what).count();
        jobs += covered("jobs");
        partly += covered("partly");
        damaged += covered("damaged");
    })?;
    if context.target.json {
        return Ok(());
    }
    if table.is_empty() {
        context.out.line(&format!("no such jobs among {jobs}"))?;
    } else {
        context.out.table(&table)?;
    }
    if is_cut && search.limit.is_none() {
        rest::tell_unlisted(&mut context.out, limit, None, "--limit")?;
    }
    context.out.flush()?;
    if partly > 0 {
        warn(&format!("of {partly} large payloads only the first 256 KB were searched"));
    }
    if damaged > 0 {
        warn(&format!("{damaged} jobs could not be read"));
    }
    Ok(())
}

fn row(job: Value<'_>) -> Vec<Cell> {
    let preview = job.get("dataPreview").text().unwrap_or("-");
    let cut = if job.get("dataCut").is_true() { "…" } else { "" };
    vec![
        show::text(job.get("id")),
        show::text(job.get("queue")),
        show::state(job.get("state").text().unwrap_or("-")),
        show::from_now(job.get("createdAt")),
        format!("{preview}{cut}").into(),
    ]
}
