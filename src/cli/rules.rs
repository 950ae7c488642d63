//! `dlq config`, `dlq stats` and `queue stalls`: what a queue does with its jobs by itself.

use clap::Args;

use super::context::Context;
use super::failure::Failure;
use super::input;
use super::output::{Cell, Output, Table};
use super::request::{Fields, Request};
use super::show;
use super::value::Value;
use super::words::{self, milliseconds};
use crate::api::commands::Op;

/// A number that may be none.
#[derive(Clone, Copy, Debug)]
struct Bound(Option<i64>);

fn age(text: &str) -> Result<Bound, String> {
    match text {
        "never" => Ok(Bound(None)),
        text => Ok(Bound(Some(milliseconds(text)?))),
    }
}

fn entries(text: &str) -> Result<Bound, String> {
    match text {
        "any" => Ok(Bound(None)),
        text => {
            let number = text.parse().map_err(|_| "a number, or any".to_owned())?;
            Ok(Bound(Some(number)))
        }
    }
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("on or off".to_owned()),
    }
}

/// `dlq config`.
#[derive(Args, Debug)]
#[group(id = "DlqConfig", multiple = true)]
pub struct DlqConfig {
    /// Name of the queue
    queue: String,
    /// Retry failed jobs automatically: on or off
    #[arg(long, value_parser = switch, value_name = "SWITCH")]
    auto_retry: Option<bool>,
    /// Time from a failure to the first automatic retry (milliseconds, or 30m, 12h ...)
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    retry_interval: Option<i64>,
    /// Automatic retries per job
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    max_retries: Option<i64>,
    /// Remove failed jobs after this time; 'never' keeps them
    #[arg(long, value_parser = age, allow_negative_numbers = true, value_name = "TIME")]
    max_age: Option<Bound>,
    /// Keep at most N, the newest; 'any' for no limit
    #[arg(long, value_parser = entries, allow_negative_numbers = true, value_name = "N")]
    max_entries: Option<Bound>,
    /// Do not ask for confirmation where the new rules remove jobs at once
    #[arg(long, short)]
    yes: bool,
}

/// `queue stalls`.
#[derive(Args, Debug)]
#[group(id = "Stalls", multiple = true)]
pub struct Stalls {
    /// Name of the queue
    queue: String,
    /// Detect stalled jobs: on or off
    #[arg(long, value_parser = switch, value_name = "SWITCH")]
    detect: Option<bool>,
    /// A job stalls without a heartbeat for this long (milliseconds, or 30s, 5m ...)
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    interval: Option<i64>,
    /// Stalls after which a job goes to the dead-letter queue; 0 for any number
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    #[allow(clippy::struct_field_names)] // It is the name of the option.
    max_stalls: Option<i64>,
    /// Time after the pull in which silence does not count
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    grace: Option<i64>,
}

impl Fields {
    fn bound_if(&mut self, name: &str, bound: Option<Bound>) {
        match bound {
            None => {}
            Some(Bound(Some(number))) => self.integer(name, number),
            Some(Bound(None)) => self.nil(name),
        }
    }
}

/// Sets what is given, and shows what holds.
fn config(
    context: &mut Context,
    queue: &str,
    (set, get): (Op, Op),
    config: Option<Fields>,
    rows: impl FnOnce(Value<'_>) -> Vec<(&'static str, Cell)>,
) -> Result<(), Failure> {
    let mut client = context.client()?;
    if let Some(config) = config {
        let config = config.finish();
        let request = Request::on_queue(set, queue).with(|fields| fields.raw("config", &config));
        client.call(request)?.granted()?;
    }
    let reply = client.call(Request::on_queue(get, queue))?;
    context.show(&reply, |out, reply| out.pairs(&rows(reply.get("config"))))
}

fn time_or(value: Value<'_>, none: &str) -> Cell {
    value.integer().map_or_else(|| none.to_owned(), words::duration).into()
}

fn on(value: Value<'_>) -> Cell {
    if value.is_true() { "on" } else { "off" }.into()
}

/// The failed jobs that new rules would remove at once, in words; none, if there are none.
fn doomed(context: &Context, given: &DlqConfig) -> Result<Option<String>, Failure> {
    let bound = |bound: Option<Bound>| bound.and_then(|Bound(bound)| bound);
    let (age_ms, most) = (bound(given.max_age), bound(given.max_entries));
    if age_ms.is_none() && most.is_none() {
        return Ok(None);
    }
    let reply = context.client()?.call(Request::on_queue(Op::GetDlqStats, &given.queue))?;
    if reply.refusal().is_some() {
        // The command itself is refused likewise, or says why.
        return Ok(None);
    }
    let stats = reply.value().get("data").get("stats");
    let total = stats.get("total").count();
    let surplus = most.map_or(0, |most| total.saturating_sub(most.max(0).cast_unsigned()));
    let is_old = |name: &str, age_ms: i64| {
        let failed_ms = stats.get(name).integer();
        failed_ms.is_some_and(|at_ms| Output::now_ms().saturating_sub(at_ms) >= age_ms)
    };
    let (queue, jobs) = (&given.queue, |count| if count == 1 { "job" } else { "jobs" });
    Ok(match age_ms.filter(|age_ms| is_old("oldestEntry", *age_ms)) {
        Some(age_ms) if is_old("newestEntry", age_ms) => {
            Some(format!("remove all {total} failed {} of queue {queue}", jobs(total)))
        }
        Some(age_ms) => {
            let age = words::duration(age_ms);
            Some(format!(
                "remove those of the {total} failed jobs of queue {queue} that failed more than {age} ago{}",
                if surplus > 0 {
                    format!(", and at least the {surplus} oldest")
                } else {
                    String::new()
                }
            ))
        }
        None if surplus > 0 => Some(format!(
            "remove the {surplus} oldest of {total} failed {} of queue {queue}",
            jobs(total)
        )),
        None => None,
    })
}

/// Carries `dlq config` out.
pub fn dlq_config(context: &mut Context, given: &DlqConfig) -> Result<(), Failure> {
    if !given.yes
        && let Some(deed) = doomed(context, given)?
    {
        input::confirm(false, &deed)?;
    }
    let mut fields = Fields::of_dlq_config();
    fields.bool_if("autoRetry", given.auto_retry);
    fields.integer_if("autoRetryInterval", given.retry_interval);
    fields.integer_if("maxAutoRetries", given.max_retries);
    fields.bound_if("maxAge", given.max_age);
    fields.bound_if("maxEntries", given.max_entries);
    let fields = Some(fields).filter(|fields| !fields.is_empty());
    config(context, &given.queue, (Op::SetDlqConfig, Op::GetDlqConfig), fields, |config| {
        let entries = config.get("maxEntries").integer();
        vec![
            ("auto retry", on(config.get("autoRetry"))),
            ("retry interval", time_or(config.get("autoRetryInterval"), "-")),
            ("max retries", config.get("maxAutoRetries").count().to_string().into()),
            ("max age", time_or(config.get("maxAge"), "never")),
            ("max entries", entries.map_or("any".to_owned(), |most| most.to_string()).into()),
        ]
    })
}

/// Carries `queue stalls` out.
pub fn stalls(context: &mut Context, given: &Stalls) -> Result<(), Failure> {
    let mut fields = Fields::of_stall_config();
    fields.bool_if("enabled", given.detect);
    fields.integer_if("stallInterval", given.interval);
    fields.integer_if("maxStalls", given.max_stalls);
    fields.integer_if("gracePeriod", given.grace);
    let fields = Some(fields).filter(|fields| !fields.is_empty());
    config(context, &given.queue, (Op::SetStallConfig, Op::GetStallConfig), fields, |config| {
        let most = config.get("maxStalls").count();
        vec![
            ("detect", on(config.get("enabled"))),
            ("interval", time_or(config.get("stallInterval"), "-")),
            ("max stalls", if most == 0 { "any".into() } else { most.to_string().into() }),
            ("grace", time_or(config.get("gracePeriod"), "-")),
        ]
    })
}

/// Carries `dlq stats` out.
pub fn dlq_stats(context: &mut Context, queue: &str) -> Result<(), Failure> {
    context.ask(Request::on_queue(Op::GetDlqStats, queue), |out, reply| {
        let stats = reply.get("data").get("stats");
        let mut table = Table::new(&["REASON", ">JOBS"]);
        for (reason, count) in stats.get("byReason").entries() {
            if count.count() > 0 {
                table.row(vec![show::text(reason), count.count().to_string().into()]);
            }
        }
        if table.is_empty() {
            return out.line("no job has failed for good");
        }
        out.table(&table)?;
        out.pairs(&[
            ("oldest", show::from_now(stats.get("oldestEntry"))),
            ("newest", show::from_now(stats.get("newestEntry"))),
            ("to be retried", stats.get("pendingRetry").count().to_string().into()),
        ])
    })
}
