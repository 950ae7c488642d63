//! `audit`: who did what that changes more than a job, and who was not let in. Asks the server, or reads the folder of the log in
//! a data directory, which needs no server and no token.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::Args;
use corq_io::line_files;

use super::client::Client;
use super::context::Context;
use super::failure::Failure;
use super::output::{Cell, Output, Style, Table};
use super::request::Request;
use super::rest;
use super::show;
use super::value::Value;
use super::words;
use crate::api::commands::Op;
use crate::audit::FOLDER;
use crate::audit::entry::{OK, time};
use crate::protocol::json;
use crate::tools::place::must_own;

/// Entries that are read at a time.
const PAGE: usize = 500;

/// Between two looks for more.
const LOOK: Duration = Duration::from_millis(500);

const HEADS: [&str; 9] =
    ["TIME", "FROM", "PEER", "ROLE", "TOKEN", "COMMAND", "QUEUE", "OUTCOME", "ABOUT"];

/// Arguments of `audit`.
#[derive(Args, Debug)]
pub struct Audit {
    /// The data directory to read, also while a server is using it; without one the server is asked
    data: Option<PathBuf>,
    /// Go on with entries as they come
    #[arg(long, short)]
    pub follow: bool,
    /// Show at most so many of those that are there, the newest [default: 100]
    #[arg(long)]
    limit: Option<usize>,
    /// Only entries from this time on: a duration before now (30m), or a time (2026-11-23T10:00:00Z)
    #[arg(long, value_parser = since)]
    since: Option<String>,
    /// Only entries of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only entries of this command
    #[arg(long)]
    command: Option<String>,
}

/// A time as entries have it.
fn since(text: &str) -> Result<String, String> {
    if let Ok(before_ms) = words::milliseconds(text) {
        return Ok(time(Output::now_ms().saturating_sub(before_ms).max(0).cast_unsigned()));
    }
    let date: DateTime<Utc> = DateTime::parse_from_rfc3339(text)
        .map_err(|_| {
            format!("'{text}' is neither a duration, as 1h30m, nor a time, as 2026-11-23T10:00:00Z")
        })?
        .into();
    Ok(time(date.timestamp_millis().max(0).cast_unsigned()))
}

/// Where entries come from.
enum Source {
    Folder(PathBuf),
    Server(Box<Client>),
}

/// Some entries, newest first, each as `MessagePack`; and where older ones begin.
struct Page {
    entries: Vec<Vec<u8>>,
    next: Option<u64>,
}

impl Source {
    fn open(context: &Context, data: Option<&Path>) -> Result<Self, Failure> {
        let Some(data) = data else { return Ok(Self::Server(Box::new(context.client()?))) };
        must_own(data)?;
        let folder = data.join(FOLDER);
        if folder.is_dir() {
            return Ok(Self::Folder(folder));
        }
        Err(Failure::Failed(format!(
            "{} is not there: {} is no data directory, or was never served with an audit log",
            folder.display(),
            data.display()
        )))
    }

    fn page(&mut self, before: Option<u64>) -> Result<Page, Failure> {
        match self {
            Self::Folder(folder) => from_folder(folder, before)
                .map_err(|error| Failure::failed(folder.display(), &error)),
            Self::Server(client) => {
                let request = Request::new(Op::AuditLog).with(|fields| {
                    fields.integer("limit", PAGE as i64);
                    fields.integer_if("before", before.map(u64::cast_signed));
                });
                let reply = client.call(request)?.granted()?;
                let entries = reply.value().get("entries").items();
                let entries = entries.map(|entry| entry.bytes().to_vec()).collect();
                let next = reply.value().get("next").integer().map(i64::cast_unsigned);
                Ok(Page { entries, next })
            }
        }
    }
}

fn from_folder(folder: &Path, before: Option<u64>) -> io::Result<Page> {
    let lines = line_files::page(folder, before.unwrap_or(u64::MAX), PAGE)?;
    let next = lines.last().filter(|_| lines.len() == PAGE);
    let next = next.and_then(|line| line_files::number_of(line));
    let read = |line: &Vec<u8>| {
        let mut entry = Vec::new();
        json::to_msgpack(line, &mut entry).ok().map(|()| entry)
    };
    Ok(Page { entries: lines.iter().filter_map(read).collect(), next })
}

fn number_of(entry: &[u8]) -> u64 {
    Value::of(entry).map_or(0, |entry| entry.get("seq").count())
}

impl Audit {
    fn wants(&self, entry: &[u8]) -> bool {
        let Ok(entry) = Value::of(entry) else { return false };
        let is = |field: &str, wanted: Option<&str>| {
            let has = entry.get(field).text().unwrap_or_default();
            wanted.is_none_or(|wanted| has.eq_ignore_ascii_case(wanted))
        };
        is("queue", self.queue.as_deref()) && is("command", self.command.as_deref())
    }

    fn is_over(&self, entry: &[u8]) -> bool {
        let since = self.since.as_deref().unwrap_or_default();
        Value::of(entry).is_ok_and(|entry| entry.get("time").text().unwrap_or_default() < since)
    }

    /// Entries behind a number that are wanted, oldest first, at most `most`; and the newest number of all.
    fn gather(
        &self,
        source: &mut Source,
        behind: u64,
        most: usize,
    ) -> Result<(Vec<Vec<u8>>, u64), Failure> {
        let (mut wanted, mut before, mut newest) = (Vec::new(), None, behind);
        'pages: loop {
            let page = source.page(before)?;
            for entry in page.entries {
                newest = newest.max(number_of(&entry));
                if number_of(&entry) <= behind || self.is_over(&entry) || wanted.len() >= most {
                    break 'pages;
                }
                if self.wants(&entry) {
                    wanted.push(entry);
                }
            }
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        wanted.reverse();
        Ok((wanted, newest))
    }
}

/// Shows entries.
pub fn run(context: &mut Context, audit: &Audit) -> Result<(), Failure> {
    let mut source = Source::open(context, audit.data.as_deref())?;
    // Without a limit, another entry says whether there are older ones.
    let most = audit.limit.unwrap_or(rest::LISTED_MAX as usize + 1);
    let (mut entries, mut newest) = audit.gather(&mut source, 0, most)?;
    let is_cut = audit.limit.is_none() && entries.len() == most;
    if is_cut {
        entries.remove(0);
    }
    if context.target.json {
        show_lines(context, &entries)?;
    } else {
        show_table(context, &entries, audit.follow)?;
    }
    if !audit.follow {
        let is_told = is_cut && !context.target.json;
        let shown = entries.len() as u64;
        let told = is_told.then(|| rest::tell_unlisted(&mut context.out, shown, None, "--limit"));
        return Ok(told.transpose().map(|_| ())?);
    }
    loop {
        context.out.flush()?;
        thread::sleep(LOOK);
        let (entries, last) = audit.gather(&mut source, newest, usize::MAX)?;
        newest = last;
        if context.target.json {
            show_lines(context, &entries)?;
        } else {
            context.out.rows(&table_of(&entries).steady())?;
        }
    }
}

fn show_table(context: &mut Context, entries: &[Vec<u8>], goes_on: bool) -> Result<(), Failure> {
    let table = table_of(entries);
    if goes_on {
        context.out.table(&table.steady())?;
    } else if table.is_empty() {
        context.out.line("there is no such entry")?;
    } else {
        context.out.table(&table)?;
    }
    Ok(())
}

fn show_lines(context: &mut Context, entries: &[Vec<u8>]) -> Result<(), Failure> {
    entries.iter().try_for_each(|entry| context.out.json(entry))
}

fn table_of(entries: &[Vec<u8>]) -> Table {
    let mut table = Table::new(&HEADS);
    for entry in entries.iter().filter_map(|entry| Value::of(entry).ok()) {
        table.row(vec![
            show::text(entry.get("time")),
            show::text(entry.get("face")),
            show::text(entry.get("peer")),
            show::text(entry.get("role")),
            show::text(entry.get("token")),
            show::text(entry.get("command")),
            show::text(entry.get("queue")),
            outcome(entry),
            about(entry).into(),
        ]);
    }
    table
}

fn outcome(entry: Value<'_>) -> Cell {
    let outcome = entry.get("outcome").text().unwrap_or("-");
    Cell::styled(outcome, if outcome == OK { Style::Good } else { Style::Bad })
}

/// The text of an entry, its count of jobs or entries, and its repetitions, parted by `; `.
fn about(entry: Value<'_>) -> String {
    // Entries that were lost or left out are counted, too.
    let is_of_entries = entry.get("command").text().is_some_and(|it| it.starts_with("Entries"));
    let noun = if is_of_entries { ["entry", "entries"] } else { ["job", "jobs"] };
    let count = entry.get("count").integer();
    let count = count.map(|count| format!("{count} {}", noun[usize::from(count != 1)]));
    let repeated = entry.get("repeated").count();
    let repeated = (repeated > 0).then(|| format!("{repeated} times more"));
    let text = entry.get("about").text().map(str::to_owned);
    [text, count, repeated].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_time_may_be_told_by_the_clock_or_from_now() {
        assert_eq!(since("2026-11-23T11:00:00+01:00").unwrap(), "2026-11-23T10:00:00.000Z");
        assert!(since("1h").unwrap().as_str() > "2020");
        assert!(since("yesterday").unwrap_err().contains("neither a duration"));
    }
}
