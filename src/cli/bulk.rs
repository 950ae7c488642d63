//! `push --bulk`: lines of JSON, gathered into batches of which several are under way at a time, with a
//! bar on a terminal. An error names the line, and which lines were pushed.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::client::{Client, Reply};
use super::context::Context;
use super::failure::Failure;
use super::input;
use super::push::Push;
use super::request::{Fields, Request};
use super::wording::Wording;
use crate::api::commands::Op;

/// Jobs of a batch.
const JOBS_MAX: usize = 1000;
/// Bytes of jobs after which a batch is sent.
const BYTES_MAX: usize = 1 << 20;
/// Batches under way. Enough to keep a server busy from afar, few enough to stop soon.
const UNDER_WAY_MAX: usize = 8;

/// A batch that is being gathered or is under way.
#[derive(Default)]
struct Batch {
    /// The jobs, encoded, behind each other.
    jobs: Vec<u8>,
    /// The line of each.
    lines: Vec<u64>,
}

/// Lines that were sent and their outcomes so far.
struct Bulk<'a> {
    push: &'a Push,
    client: Client,
    /// Batches under way, in the order of their numbers.
    under_way: VecDeque<(u64, Vec<u64>)>,
    next_number: u64,
    /// Lines that the server has taken.
    pushed: u64,
    /// Of those, how many were there already: their custom ids or keys were known.
    known: u64,
    /// Nothing reads the answers any more.
    unread: bool,
    /// The first refusal, as a line for people.
    refusal: Option<String>,
    /// First and last line of every batch that was refused.
    left_out: Vec<(u64, u64)>,
    /// The last line that was sent.
    sent_to: u64,
    /// Whether all lines were.
    at_end: bool,
    bar: ProgressBar,
}

/// Pushes every line of `file`.
pub fn run(context: &mut Context, push: &Push, file: &Path) -> Result<(), Failure> {
    let (lines, size) = open(file)?;
    let bar = bar(size);
    let mut bulk = Bulk {
        push,
        client: context.client()?,
        under_way: VecDeque::new(),
        next_number: 0,
        pushed: 0,
        known: 0,
        unread: false,
        refusal: None,
        left_out: Vec::new(),
        sent_to: 0,
        at_end: false,
        bar,
    };
    let wrong = bulk.read(context, lines);
    // Wait for the batches under way whatever went wrong, so that the account is exact.
    let waited = bulk.wait_for(context, 0);
    bulk.bar.finish_and_clear();
    let account = account(
        bulk.pushed.saturating_sub(bulk.known),
        &bulk.left_out,
        Some(bulk.sent_to).filter(|_| !bulk.at_end),
    );
    let known = duplicates(bulk.known);
    if let Some(refusal) = bulk.refusal {
        return Err(Failure::Failed(format!("{refusal}; {account}{known}")));
    }
    match wrong.and(waited) {
        Ok(()) if bulk.unread => {
            let stopped = if bulk.at_end { "" } else { "stopped, since " };
            Err(Failure::Failed(format!(
                "{stopped}nothing reads the output any more; {account}{known}"
            )))
        }
        Ok(()) if context.target.json => Ok(()),
        Ok(()) => Ok(context.out.line(&format!("{account} to {}{known}", push.queue))?),
        Err(Failure::Usage(text)) => Err(Failure::Usage(format!("{text}; {account}{known}"))),
        Err(Failure::Failed(text) | Failure::Refused(text)) => {
            Err(Failure::Failed(format!("{text}; {account}{known}")))
        }
        Err(Failure::Gone) => Err(Failure::Gone),
    }
}

/// How many lines stood for jobs that were there already.
fn duplicates(known: u64) -> String {
    match known {
        0 => String::new(),
        1 => "; 1 was there already".to_owned(),
        known => format!("; {known} were there already"),
    }
}

/// Names how many jobs were pushed, and which lines were not. `sent_to` is the last line that was sent, if others
/// follow.
fn account(pushed: u64, left_out: &[(u64, u64)], sent_to: Option<u64>) -> String {
    let jobs = if pushed == 1 { "job" } else { "jobs" };
    let mut missing: Vec<String> =
        left_out.iter().map(|(first, last)| format!("{first} to {last}")).collect();
    missing.extend(sent_to.map(|last| format!("{} and on", last + 1)));
    let mut text = format!("pushed {pushed} {jobs}");
    if !missing.is_empty() {
        text += ", not lines ";
        text += &missing.join(", ");
    }
    text
}

impl Bulk<'_> {
    /// Reads lines and sends them, until they end or something is wrong.
    fn read(&mut self, context: &mut Context, mut lines: impl BufRead) -> Result<(), Failure> {
        let mut batch = Batch::default();
        let mut text = Vec::new();
        let mut number = 0;
        loop {
            text.clear();
            let read = (&mut lines).take(input::TEXT_BYTES_MAX + 1).read_until(b'\n', &mut text);
            let bytes =
                read.map_err(|error| Failure::failed("the lines cannot be read", &error))?;
            number += 1;
            if bytes == 0 {
                self.send(context, &mut batch)?;
                self.at_end = self.refusal.is_none() || self.sent_to + 1 >= number;
                return Ok(());
            }
            self.bar.inc(bytes as u64);
            if text.trim_ascii().is_empty() {
                continue;
            }
            let job = match text.len() as u64 {
                ..=input::TEXT_BYTES_MAX => self.job(&text),
                _ => Err("it has more than 64 MB".to_owned()),
            };
            let job = match job {
                Ok(job) => job,
                Err(reason) => {
                    self.send(context, &mut batch)?;
                    return Err(Failure::Usage(format!("line {number} is not JSON: {reason}")));
                }
            };
            batch.jobs.extend_from_slice(&job);
            batch.lines.push(number);
            if batch.lines.len() >= JOBS_MAX || batch.jobs.len() >= BYTES_MAX {
                self.send(context, &mut batch)?;
            }
            if self.refusal.is_some() || self.unread {
                return Ok(());
            }
        }
    }

    /// The job that a line stands for.
    fn job(&self, line: &[u8]) -> Result<Vec<u8>, String> {
        let value = input::encode(line)?;
        if self.push.jobs {
            return Ok(value);
        }
        let mut job = Fields::of_job();
        job.raw("data", &value);
        self.push.write_options(&mut job);
        Ok(job.finish())
    }

    /// Sends what is gathered, once there is room for it on the way.
    fn send(&mut self, context: &mut Context, batch: &mut Batch) -> Result<(), Failure> {
        let Batch { jobs, lines } = std::mem::take(batch);
        if lines.is_empty() {
            return Ok(());
        }
        self.wait_for(context, UNDER_WAY_MAX - 1)?;
        if self.refusal.is_some() {
            return Ok(());
        }
        let request = Request::on_queue(Op::PushBatch, &self.push.queue)
            .with(|fields| fields.raw_list("jobs", lines.len(), &jobs))
            .numbered(self.next_number);
        self.client.send(request)?;
        self.sent_to = lines.last().copied().unwrap_or(self.sent_to);
        self.under_way.push_back((self.next_number, lines));
        self.next_number += 1;
        Ok(())
    }

    /// Takes answers until at most `left` batches are under way.
    fn wait_for(&mut self, context: &mut Context, left: usize) -> Result<(), Failure> {
        while self.under_way.len() > left {
            let reply = self.client.receive()?;
            self.take(context, &reply)?;
        }
        Ok(())
    }

    fn take(&mut self, context: &mut Context, reply: &Reply) -> Result<(), Failure> {
        let number = reply.number().unwrap_or(-1);
        let Some(place) = self.under_way.iter().position(|(it, _)| *it as i64 == number) else {
            return Err(Failure::Failed("the server answered what nobody had asked".to_owned()));
        };
        let (_, lines) = self.under_way.remove(place).unwrap_or_default();
        if context.target.json && !self.unread {
            // The account goes on: what is under way is pushed, whether its answer is read or not.
            match context.out.json(reply.value().bytes()) {
                Err(Failure::Gone) => self.unread = true,
                other => other?,
            }
        }
        let Some(refusal) = reply.refusal() else {
            self.pushed += reply.value().get("ids").items().count() as u64;
            self.known += reply.value().get("known").count();
            self.bar.set_message(self.pushed.to_string());
            return Ok(());
        };
        // The fields of whole jobs are those of the protocol.
        let wording = Some(&context.wording).filter(|_| !self.push.jobs);
        self.refusal.get_or_insert_with(|| at_line(refusal.text, &lines, wording));
        self.left_out.extend(lines.first().copied().zip(lines.last().copied()));
        self.left_out.sort_unstable();
        Ok(())
    }
}

/// A refusal that counts the jobs of its batch, told by the line.
fn at_line(error: &str, lines: &[u64], wording: Option<&Wording>) -> String {
    let worded = |text: &str| wording.map_or_else(|| text.to_owned(), |it| it.of_refusal(text));
    let place = error.strip_prefix("jobs[").and_then(|rest| rest.split_once(']'));
    let Some((place, rest)) = place else {
        return worded(error);
    };
    let line = place.parse().ok().and_then(|place: usize| lines.get(place));
    match line {
        Some(line) => {
            format!("line {line}: {}", worded(rest.trim_start_matches(':').trim_start()))
        }
        None => error.to_owned(),
    }
}

fn open(file: &Path) -> Result<(Box<dyn BufRead>, Option<u64>), Failure> {
    if file.as_os_str() == "-" {
        return Ok((Box::new(io::stdin().lock()), None));
    }
    // The @ that payloads need before a file is forgiven here.
    let name = file.to_str().and_then(|name| name.strip_prefix('@')).map(Path::new);
    let file = name.unwrap_or(file);
    let fail = |error: &io::Error| Failure::Usage(format!("{}: {error}", file.display()));
    let opened = File::open(file).map_err(|error| fail(&error))?;
    let size = opened.metadata().map_err(|error| fail(&error))?;
    let size = Some(size.len()).filter(|_| size.is_file());
    Ok((Box::new(BufReader::with_capacity(1 << 18, opened)), size))
}

/// A bar that only people see.
fn bar(size: Option<u64>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match size {
        Some(bytes) => (
            ProgressBar::new(bytes),
            "{bar:30} {percent}% · {msg} jobs pushed · {elapsed}, {eta} to go",
        ),
        None => (ProgressBar::new_spinner(), "{spinner} {msg} jobs pushed · {elapsed}"),
    };
    bar.enable_steady_tick(Duration::from_millis(100));
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style).with_message("0"),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_line_of_its_job() {
        let lines = [4, 6, 7];
        let told = at_line("jobs[1]: priority must be an integer", &lines, None);
        assert_eq!(told, "line 6: priority must be an integer");
        assert_eq!(at_line("jobs[2] must be an object", &lines, None), "line 7: must be an object");
        assert_eq!(at_line("jobs[9]: x", &lines, None), "jobs[9]: x");
        assert_eq!(at_line("queue is required", &lines, None), "queue is required");
    }

    #[test]
    fn the_account_tells_what_is_missing() {
        assert_eq!(account(1, &[], None), "pushed 1 job");
        let told = account(3000, &[(1001, 2000)], Some(4000));
        assert_eq!(told, "pushed 3000 jobs, not lines 1001 to 2000, 4001 and on");
    }
}
