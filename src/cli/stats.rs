//! `stats`, `metrics`, `health` and `ping`: how the server is doing.

use std::time::Instant;

use clap::Args;

use super::context::{Context, fetch, hello};
use super::failure::Failure;
use super::output::{Cell, Output, Style};
use super::request::Request;
use super::value::Value;
use super::words;
use crate::api::spec::Op;
use crate::protocol::write::Writer;

/// What `metrics` takes.
#[derive(Args, Debug)]
pub struct Metrics {
    /// All families as Prometheus reads them
    #[arg(long)]
    prometheus: bool,
}

/// Jobs by state, totals and rates.
pub fn stats(context: &mut Context) -> Result<(), Failure> {
    context.ask(Request::new(Op::Stats), |out, reply| pairs(out, reply.get("stats")))
}

/// Totals, means and sizes.
pub fn metrics(context: &mut Context, metrics: &Metrics) -> Result<(), Failure> {
    if metrics.prometheus {
        return context.ask(Request::new(Op::Prometheus), |out, reply| {
            out.text(reply.get("data").get("metrics").text().unwrap_or_default())
        });
    }
    context.ask(Request::new(Op::Metrics), |out, reply| pairs(out, reply.get("metrics")))
}

/// Numbers below their names, with the unit that the name tells.
fn pairs(out: &mut Output, numbers: Value<'_>) -> std::io::Result<()> {
    let told = |name: &str, value: Value<'_>| {
        let number = value.number().unwrap_or(0.0);
        match name {
            "uptime" => words::duration(number as i64),
            name if name.ends_with("Mb") => words::bytes(number * f64::from(1 << 20)),
            name if name.ends_with("Ms") => format!("{} ms", words::figure(number)),
            name if name.ends_with("PerSec") => words::figure(number),
            _ => format!("{number:.0}"),
        }
    };
    let pairs: Vec<(&str, Cell)> = numbers
        .entries()
        .filter_map(|(name, value)| Some((name.text()?, told(name.text()?, value).into())))
        .collect();
    out.pairs(&pairs)
}

/// Whether the server lives and keeps time with this machine.
pub fn ping(context: &mut Context) -> Result<(), Failure> {
    let mut client = context.client()?;
    let asked = Instant::now();
    let reply = client.call(Request::new(Op::Ping))?;
    let took_ms = asked.elapsed().as_secs_f64() * 1000.0;
    context.show(&reply, |out, _| out.line(&format!("pong after {} ms", words::figure(took_ms))))
}

/// Whether the server does its work: asked over the port that all commands use, so that it can be
/// asked wherever they can. `--json` has the shape of `GET /health`, as far as the port tells it.
pub fn health(context: &mut Context) -> Result<(), Failure> {
    let mut client = context.client()?;
    let hello = hello(&mut client)?;
    let stats = fetch(&mut client, Op::Stats)?;
    let metrics = fetch(&mut client, Op::Metrics)?;
    let (hello, stats) = (hello.value(), stats.value().get("stats"));
    let metrics = metrics.value().get("metrics");
    let version = hello.get("version").text().unwrap_or_default();
    let uptime_ms = stats.get("uptime").integer().unwrap_or(0);
    let connections = metrics.get("activeConnections").count();
    let memory_mb = metrics.get("memoryUsageMb").number().unwrap_or(0.0);
    let jobs = [
        ("waiting", stats.get("queued").count()),
        ("active", stats.get("processing").count()),
        ("delayed", stats.get("delayed").count()),
        ("completed", stats.get("completed").count()),
        ("dlq", stats.get("dlq").count()),
    ];
    if context.target.json {
        let mut health = Vec::new();
        let mut writer = Writer::new(&mut health);
        writer.map(7);
        writer.str("ok");
        writer.bool(true);
        writer.str("status");
        writer.str("healthy");
        writer.str("uptime");
        writer.number((uptime_ms / 1000) as f64);
        writer.str("version");
        writer.str(version);
        writer.str("queues");
        writer.map(jobs.len());
        for (state, count) in jobs {
            writer.str(state);
            writer.uint(count);
        }
        writer.str("connections");
        writer.map(1);
        writer.str("total");
        writer.uint(connections);
        writer.str("memory");
        writer.map(1);
        writer.str("rss");
        writer.number(memory_mb);
        return context.out.json(&health);
    }
    let server = hello.get("server").text().unwrap_or("server");
    let mut pairs = vec![
        ("status", Cell::styled("healthy", Style::Good)),
        ("server", format!("{server} {version} at {}", context.target.address()).into()),
        ("up for", words::duration(uptime_ms).into()),
        ("memory", words::bytes(memory_mb * f64::from(1 << 20)).into()),
        ("connections", connections.to_string().into()),
    ];
    pairs.extend(jobs.map(|(state, count)| (state, count.to_string().into())));
    Ok(context.out.pairs(&pairs)?)
}
