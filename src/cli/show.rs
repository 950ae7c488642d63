//! Jobs as people read them: one in full, many in a table.

use super::output::{Cell, Output, Style, Table};
use super::value::Value;
use super::words;
use crate::protocol::json;

/// A value of a client as JSON text on one line.
pub fn json_text(value: Value<'_>) -> String {
    let mut text = Vec::new();
    match json::from_msgpack(value.bytes(), &mut text) {
        Ok(()) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) => format!("({error})"),
    }
}

/// The name of a state, in the colour of its meaning.
pub fn state(name: &str) -> Cell {
    let style = match name {
        "completed" => Style::Good,
        "active" => Style::Warn,
        "failed" | "unknown" => Style::Bad,
        _ => Style::Plain,
    };
    Cell::styled(name, style)
}

/// A point in time, from now and by the calendar.
pub fn time(at: Value<'_>) -> Option<Cell> {
    let at_ms = at.integer()?;
    let from_now = words::relative(Output::now_ms(), at_ms);
    Some(format!("{from_now} ({})", words::date(at_ms)).into())
}

/// A point in time from now; `-` for none.
pub fn from_now(at: Value<'_>) -> Cell {
    match at.integer() {
        Some(at_ms) => words::relative(Output::now_ms(), at_ms).into(),
        None => Cell::styled("-", Style::Dim),
    }
}

/// A text, or `-`.
pub fn text(value: Value<'_>) -> Cell {
    match value.text() {
        Some(text) => text.into(),
        None => Cell::styled("-", Style::Dim),
    }
}

/// Texts of a list on one line.
pub fn texts(list: Value<'_>) -> String {
    list.items().filter_map(Value::text).collect::<Vec<_>>().join(",")
}

/// Times of a job, by their field and their name for people.
const TIMES: [(&str, &str); 5] = [
    ("createdAt", "created"),
    ("runAt", "due"),
    ("startedAt", "started"),
    ("completedAt", "completed"),
    ("failedAt", "failed"),
];

/// How an option is shown.
type Teller = fn(Value<'_>) -> String;

/// Options of a job that are told if they are there, and how they are told.
const OPTIONS: [(&str, Teller); 22] = [
    ("name", plain),
    ("tags", texts),
    ("dependsOn", texts),
    ("childrenIds", texts),
    ("parentId", plain),
    ("uniqueKey", plain),
    ("deduplicationTtl", length),
    ("deduplicationExtend", yes),
    ("deduplicationReplace", yes),
    ("groupId", plain),
    ("ttl", length),
    ("timeout", length),
    ("backoff", length),
    ("backoffConfig", backoff),
    ("stallTimeout", length),
    ("keepLogs", number),
    ("sizeLimit", number),
    ("lifo", yes),
    ("removeOnComplete", yes),
    ("removeOnFail", yes),
    ("durable", yes),
    ("repeat", repeat),
];

fn plain(value: Value<'_>) -> String {
    value.text().unwrap_or_default().to_owned()
}

fn length(value: Value<'_>) -> String {
    value.integer().map(words::duration).unwrap_or_default()
}

fn number(value: Value<'_>) -> String {
    value.integer().map(|number| number.to_string()).unwrap_or_default()
}

fn backoff(value: Value<'_>) -> String {
    let growth = plain(value.get("type"));
    match value.get("maxDelay").integer() {
        Some(most) => format!("{growth}, at most {}", words::duration(most)),
        None => growth,
    }
}

fn yes(value: Value<'_>) -> String {
    if value.is_true() { "yes".to_owned() } else { String::new() }
}

fn repeat(value: Value<'_>) -> String {
    let every = value.get("every").integer().map(words::duration).unwrap_or_default();
    let count = value.get("count").count();
    match value.get("limit").integer() {
        _ if every.is_empty() => every,
        Some(limit) => format!("every {every}, run {count} of {limit}"),
        None => format!("every {every}, run {count}"),
    }
}

/// A job in full; what it has not is left out.
pub fn job_pairs(job: Value<'_>) -> Vec<(&'static str, Cell)> {
    let mut pairs = vec![("id", text(job.get("id"))), ("queue", text(job.get("queue")))];
    if let Some(name) = job.get("state").text() {
        pairs.push(("state", state(name)));
    }
    pairs.push(("data", json_text(job.get("data")).into()));
    pairs.push(("priority", job.get("priority").integer().unwrap_or(0).to_string().into()));
    pairs.push(("attempts", attempts(job).into()));
    if job.get("stallCount").count() > 0 {
        let stalls = job.get("stallCount").count().to_string();
        pairs.push(("stalls", Cell::styled(stalls, Style::Warn)));
    }
    let progress = job.get("progress").number().unwrap_or(0.0);
    let message = job.get("progressMessage").text();
    if progress > 0.0 || message.is_some() {
        let line = format!("{} % {}", words::figure(progress), message.unwrap_or_default());
        pairs.push(("progress", line.trim_end().into()));
    }
    let times = TIMES.iter().filter_map(|(field, name)| Some((*name, time(job.get(field))?)));
    pairs.extend(times);
    for (field, told) in OPTIONS {
        let told = told(job.get(field));
        if !told.is_empty() {
            pairs.push((field, told.into()));
        }
    }
    if !job.get("returnvalue").is_nil() {
        pairs.push(("result", Cell::styled(json_text(job.get("returnvalue")), Style::Good)));
    }
    if let Some(reason) = job.get("failedReason").text() {
        pairs.push(("error", Cell::styled(reason, Style::Bad)));
    }
    // The first line of a stack is often the error once more.
    let stack = job.get("stacktrace").items().filter_map(Value::text);
    let reason = job.get("failedReason").text();
    pairs.extend(stack.filter(|line| Some(*line) != reason).map(|line| ("", line.into())));
    pairs
}

fn attempts(job: Value<'_>) -> String {
    format!("{}/{}", job.get("attempts").count(), job.get("maxAttempts").count())
}

/// The heads of a table of jobs.
pub const JOB_HEADS: [&str; 6] = ["ID", "STATE", ">PRIORITY", ">ATTEMPTS", "CREATED", "DATA"];

/// A table of jobs.
pub fn job_table<'a>(jobs: impl Iterator<Item = Value<'a>>) -> Table {
    let mut table = Table::new(&JOB_HEADS);
    for job in jobs {
        table.row(vec![
            text(job.get("id")),
            state(job.get("state").text().unwrap_or("-")),
            job.get("priority").integer().unwrap_or(0).to_string().into(),
            attempts(job).into(),
            from_now(job.get("createdAt")),
            json_text(job.get("data")).into(),
        ]);
    }
    table
}

/// The row of a job of which only its end is known.
pub fn gone_row(id: &str, end: &str) -> Vec<Cell> {
    let none = || Cell::styled("-", Style::Dim);
    vec![id.into(), state(end), none(), none(), none(), none()]
}
