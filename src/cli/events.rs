//! `events`: what happens to jobs, as it happens.

use std::thread;
use std::time::Duration;

use clap::Args;

use super::context::Context;
use super::failure::{Failure, complain};
use super::input;
use super::output::{Cell, Output, Style};
use super::show;
use super::stream::{HttpPort, Stream};
use super::value::Value;
use super::words;

/// Pauses before attempts to come back to a server that went away.
const PAUSE: Duration = Duration::from_secs(1);

/// What `events` takes.
#[derive(Args, Debug)]
pub struct Events {
    /// Only events of this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only these types, separated by commas: pushed, pulled, completed, failed ...
    #[arg(long = "type", value_delimiter = ',', value_name = "TYPES")]
    types: Vec<String>,
    /// Reconnect when the server goes away, instead of ending
    #[arg(long, short)]
    follow: bool,
    /// End after this many events
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    http: HttpPort,
}

/// Prints events until the stream ends.
pub fn run(context: &mut Context, events: &Events) -> Result<(), Failure> {
    let mut left = events.count.unwrap_or(u64::MAX);
    let mut stream = open(context, events)?;
    while left > 0 {
        let failure = match stream.next() {
            Ok(Some(event)) => {
                left -= u64::from(print(context, events, &event)?);
                continue;
            }
            Ok(None) => Failure::Failed("the server ended the stream".to_owned()),
            Err(failure) => failure,
        };
        if !events.follow {
            return Err(failure);
        }
        stream = reopen(context, events, &failure)?;
    }
    Ok(())
}

fn open(context: &Context, events: &Events) -> Result<Stream, Failure> {
    Stream::open(&context.target, &events.http, events.queue.as_deref())
}

/// Comes back once the server is there again. What happened meanwhile is not told again by it.
fn reopen(context: &Context, events: &Events, failure: &Failure) -> Result<Stream, Failure> {
    if let Failure::Failed(text) = failure {
        complain(&format!("{text}; trying again"));
    }
    loop {
        thread::sleep(PAUSE);
        match open(context, events) {
            Ok(stream) => return Ok(stream),
            Err(Failure::Failed(_)) => {}
            Err(failure) => return Err(failure),
        }
    }
}

/// Prints one event, if it is wanted.
fn print(context: &mut Context, events: &Events, text: &[u8]) -> Result<bool, Failure> {
    let event = input::encode(text)
        .map_err(|error| Failure::Failed(format!("the server sent what is no event: {error}")))?;
    let event = Value::of(&event)
        .map_err(|error| Failure::Failed(format!("the server sent what is no event: {error}")))?;
    let kind = event.get("eventType").text().unwrap_or_default();
    if kind.is_empty() || !(events.types.is_empty() || events.types.iter().any(|it| it == kind)) {
        return Ok(false);
    }
    if context.target.json {
        context.out.json_line(text)?;
    } else {
        context.out.pieces(&line(event, kind))?;
    }
    context.out.flush()?;
    Ok(true)
}

/// An event on one line: when, where, what, which job, and what else it tells.
fn line(event: Value<'_>, kind: &str) -> Vec<Cell> {
    let style = match kind {
        "completed" => Style::Good,
        "failed" | "stalled" => Style::Bad,
        "retried" | "removed" | "drained" => Style::Warn,
        _ => Style::Plain,
    };
    let at_ms = event.get("timestamp").integer().unwrap_or_else(Output::now_ms);
    let mut cells = vec![
        Cell::styled(words::date(at_ms), Style::Dim),
        event.get("queue").text().unwrap_or("-").into(),
        Cell::styled(kind, style),
    ];
    // An event of a whole queue has no job.
    cells.extend(event.get("jobId").text().filter(|id| !id.is_empty()).map(Cell::from));
    let told = ["eventType", "queue", "jobId", "timestamp"];
    for (name, value) in event.entries() {
        let name = name.text().unwrap_or_default();
        if told.contains(&name) {
            continue;
        }
        let shown = match (name, value.integer()) {
            ("delay", Some(delay)) => words::duration(delay),
            _ => show::json_text(value),
        };
        cells.push(Cell::styled(format!("{name}={shown}"), Style::Dim));
    }
    cells
}
