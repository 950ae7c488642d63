//! `events`: what happens to jobs, as it happens.

use std::thread;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::context::Context;
use super::failure::{Failure, complain};
use super::input;
use super::output::{Cell, Output, Style};
use super::show;
use super::stream::{self, Stream};
use super::value::Value;
use super::words;
use crate::api::limits::EVENT_SAMPLE_MAX;
use crate::api::objects::EVENT_TYPES;

/// Pauses before attempts to come back to a server that went away.
const PAUSE: Duration = Duration::from_secs(1);

/// Arguments of `events`.
#[derive(Args, Debug)]
pub struct Events {
    /// Only events of these queues, separated by commas; one * in a name stands for any characters
    #[arg(long = "queue", value_delimiter = ',', value_name = "QUEUES")]
    queues: Vec<String>,
    /// Only these types, separated by commas
    #[arg(long = "type", value_delimiter = ',', value_name = "TYPES", value_parser = PossibleValuesParser::new(EVENT_TYPES))]
    types: Vec<String>,
    /// Only events of these jobs, separated by commas
    #[arg(long = "job", value_delimiter = ',', value_name = "IDS")]
    jobs: Vec<String>,
    /// Only the events of one in so many jobs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=EVENT_SAMPLE_MAX))]
    sample: Option<u32>,
    /// Without the data of jobs, and without results
    #[arg(long)]
    no_data: bool,
    /// Reconnect when the server goes away, instead of ending
    #[arg(long, short)]
    follow: bool,
    /// End after this many events
    #[arg(long, value_name = "N")]
    count: Option<u64>,
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
        let last_id = stream.last_id.take();
        stream = reopen(context, events, last_id.as_deref(), &failure)?;
    }
    Ok(())
}

fn open(context: &Context, events: &Events) -> Result<Stream, Failure> {
    Stream::open(&context.target, &path(events), None)
}

/// Path of the stream. Following asks for ids, to miss nothing when the connection breaks.
fn path(events: &Events) -> String {
    let list = |name: &str, items: &[String]| {
        let items: Vec<String> = items.iter().map(|item| stream::escaped(item)).collect();
        (!items.is_empty()).then(|| format!("{name}={}", items.join(",")))
    };
    let (path, queues) = match &events.queues[..] {
        [queue] if !queue.contains('*') => (stream::path_of(queue), None),
        queues => ("/events".to_owned(), list("queue", queues)),
    };
    let parameters = [
        queues,
        list("type", &events.types),
        list("job", &events.jobs),
        events.sample.map(|sample| format!("sample={sample}")),
        events.no_data.then(|| "data=0".to_owned()),
        events.follow.then(|| "ids=1".to_owned()),
    ];
    let query: Vec<String> = parameters.into_iter().flatten().collect();
    if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
}

/// Says what was missed while the server was not there.
fn tell_missed(hello: &[u8]) {
    let Ok(hello) = input::encode(hello) else { return };
    let Ok(hello) = Value::of(&hello) else { return };
    let names: Vec<&str> = hello.entries().filter_map(|(name, _)| name.text()).collect();
    match hello.get("missed").integer() {
        Some(0) => {}
        Some(missed) => complain(&format!("{missed} events were missed")),
        None if names.contains(&"missed") => complain("events may have been missed"),
        None => {}
    }
}

/// Comes back once the server is there again. What happened meanwhile comes first, if the server still has it.
fn reopen(
    context: &Context,
    events: &Events,
    last_id: Option<&str>,
    failure: &Failure,
) -> Result<Stream, Failure> {
    if let Failure::Failed(text) | Failure::Refused(text) = failure {
        complain(&format!("{text}; trying again"));
    }
    loop {
        thread::sleep(PAUSE);
        match Stream::open(&context.target, &path(events), last_id) {
            Ok(stream) => {
                tell_missed(&stream.hello);
                return Ok(stream);
            }
            Err(Failure::Failed(_) | Failure::Refused(_)) => {}
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
    if kind == "missed" {
        complain(&format!(
            "{} events were missed",
            event.get("count").integer().unwrap_or_default()
        ));
        return Ok(false);
    }
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
