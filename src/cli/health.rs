//! `health`: what `/health` and `/ready` say, for people and scripts. Asked over HTTP, which is answered while the
//! server starts, is overloaded, or waits for its disk, and without a token.

use std::io;

use super::context::Context;
use super::failure::Failure;
use super::failure::wants_tls;
use super::get::{Answer, get};
use super::input;
use super::output::{Cell, Output, Style};
use super::value::Value;
use super::words;

/// Shows it, and fails unless the server is healthy.
pub fn run(context: &mut Context) -> Result<(), Failure> {
    let mut answer = get(&context.target, "/health")?;
    let address = context.target.http_place().to_string();
    if answer.status == 403 {
        // A server without tokens tells its figures only to those who use a name that it knows.
        answer = get(&context.target, "/ready")?;
    }
    if answer.speaks_tls() {
        return Err(wants_tls(&address));
    }
    let stranger = || {
        Failure::Failed(format!(
            "the server at {address} does not say how it is: it is no corq, or --http-port is not its HTTP_PORT"
        ))
    };
    let encoded = input::encode(&answer.body).map_err(|_| stranger())?;
    let told = Value::of(&encoded).map_err(|_| stranger())?;
    let Some(state) = State::of(&answer, told) else { return Err(stranger()) };
    if context.target.json {
        context.out.json_line(answer.body.trim_ascii())?;
    } else {
        show(&mut context.out, &state, told, &address)?;
    }
    if state.status == HEALTHY {
        return Ok(());
    }
    let why = state.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    Err(Failure::Failed(format!("the server at {address} is {}{why}", state.status)))
}

const HEALTHY: &str = "healthy";

/// How it is, and why.
struct State<'a> {
    status: &'a str,
    reason: Option<&'a str>,
}

impl<'a> State<'a> {
    /// Of `/health`, which has a status, or of `/ready`, which has none.
    fn of(answer: &Answer, told: Value<'a>) -> Option<Self> {
        let reason = told.get("reason").text().or_else(|| told.get("error").text());
        let status = match (told.get("status").text(), answer.status) {
            (Some(status), 200 | 503) => status,
            (None, 200) if told.get("ready").is_true() => HEALTHY,
            (None, 503) if told.get("progress").text().is_some() => "starting",
            (None, 503) if !told.get("ready").is_nil() => "not ready",
            _ => return None,
        };
        Some(Self { status, reason })
    }
}

fn show(out: &mut Output, state: &State<'_>, told: Value<'_>, address: &str) -> io::Result<()> {
    let style = match state.status {
        HEALTHY => Style::Good,
        "degraded" | "not ready" => Style::Bad,
        _ => Style::Warn,
    };
    let mut pairs: Vec<(&str, Cell)> = vec![("status", Cell::styled(state.status, style))];
    pairs.extend(state.reason.map(|reason| ("reason", reason.into())));
    pairs.extend(told.get("progress").text().map(|progress| ("progress", progress.into())));
    let version = told.get("version").text().map(|version| format!("corq {version} at {address}"));
    pairs.push(("server", version.unwrap_or_else(|| address.to_owned()).into()));
    if let Some(uptime_s) = told.get("uptime").integer() {
        pairs.push(("up for", words::duration(uptime_s.saturating_mul(1000)).into()));
    }
    if let Some(memory_mb) = told.get("memory").get("rss").number() {
        pairs.push(("memory", words::bytes(memory_mb * f64::from(1 << 20)).into()));
    }
    let kinds = ["tcp", "ws", "sse"];
    let connections = kinds.map(|kind| told.get("connections").get(kind).integer());
    if let [Some(tcp), Some(ws), Some(sse)] = connections {
        pairs.push(("connections", format!("{tcp} tcp, {ws} ws, {sse} sse").into()));
    }
    if let Some(ahead_ms) = told.get("clockAheadMs").integer() {
        pairs.push(("clock ahead", Cell::styled(words::duration(ahead_ms), Style::Warn)));
    }
    if let Some(back_ms) = told.get("clockSetBackMs").integer() {
        pairs.push(("clock set back", Cell::styled(words::duration(back_ms), Style::Warn)));
    }
    for state in ["waiting", "active", "delayed", "completed", "dlq"] {
        let count = told.get("queues").get(state).integer();
        pairs.extend(count.map(|count| (state, count.to_string().into())));
    }
    out.pairs(&pairs)
}
