//! `stats`, `metrics`, `ping` and `whoami`: how the server is doing, and what it lets its caller do.

use std::time::Instant;

use clap::Args;

use super::context::Context;
use super::failure::Failure;
use super::output::{Cell, Output};
use super::request::Request;
use super::show;
use super::value::Value;
use super::words;
use crate::api::commands::Op;

/// Arguments of `metrics`.
#[derive(Args, Debug)]
pub struct Metrics {
    /// All metrics in Prometheus format
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

/// Shows what the token may do.
pub fn whoami(context: &mut Context) -> Result<(), Failure> {
    context.ask(Request::new(Op::Whoami), |out, reply| {
        let data = reply.get("data");
        let mut pairs =
            vec![("role", show::text(data.get("role"))), ("known by", show::text(data.get("by")))];
        if data.get("tokenName").text().is_some() {
            pairs.push(("name of the token", show::text(data.get("tokenName"))));
        }
        if data.get("queues").items().next().is_some() {
            pairs.push(("queues", show::texts(data.get("queues")).into()));
        }
        out.pairs(&pairs)
    })
}

/// Whether the server lives and keeps time with this machine.
pub fn ping(context: &mut Context) -> Result<(), Failure> {
    let mut client = context.client()?;
    let asked = Instant::now();
    let reply = client.call(Request::new(Op::Ping))?;
    let took_ms = asked.elapsed().as_secs_f64() * 1000.0;
    context.show(&reply, |out, _| out.line(&format!("pong after {} ms", words::figure(took_ms))))
}
