//! `demo`: sample work for a minute, so that a page or a graph has something to show: jobs that succeed, that are tried again and
//! that die, a flow, schedules, delays, limits, a paused queue, and one from which nothing takes jobs.
//!
//! | file | responsibility |
//! |---|---|
//! | `crew` | workers: what they take, how long it takes them, and how it ends |
//! | `orders` | requests that have to be granted, and values of its own texts |
//! | `samples` | the jobs |
//!
//! A job in a queue of its own marks a server as one that this command has filled. It is the first thing that is pushed and the
//! last that is removed: without it the queues are other people's work, and are left alone.

mod crew;
mod orders;
mod samples;

use std::time::{Duration, Instant};

use clap::{Args, value_parser};

use self::crew::Crew;
use self::orders::{order, value};
use self::samples::{Dice, MARK, MARK_QUEUE, PAUSED, QUEUES, SCHEDULES, Samples};
use super::client::Client;
use super::context::Context;
use super::failure::{Failure, Refusal};
use super::request::Request;
use crate::api::commands::Op;
use crate::api::error::Code;
use crate::protocol::msgpack::writer::MapWriter;

/// How often work comes and goes.
const TICK: Duration = Duration::from_millis(100);

/// How long queues may take to be gone.
const REMOVAL_PATIENCE: Duration = Duration::from_mins(1);

/// Arguments of `demo`.
#[derive(Args, Debug)]
pub struct Demo {
    /// How long work comes, in seconds
    #[arg(long, default_value_t = 60, value_parser = value_parser!(u64).range(1..=86_400), value_name = "N")]
    seconds: u64,
    /// Jobs per second
    #[arg(long, default_value_t = 40, value_parser = value_parser!(u64).range(1..=1000), value_name = "N")]
    rate: u64,
    /// Remove the queues and schedules of earlier runs, with their jobs
    #[arg(long, conflicts_with_all = ["seconds", "rate"])]
    remove: bool,
}

/// Whose the queues are that `demo` uses.
enum Standing {
    /// There are none.
    Free,
    /// An earlier run has made them.
    Own,
    /// Others have: these.
    Strange(Vec<String>),
}

/// Fills a server, or removes what was left.
pub fn run(context: &mut Context, demo: &Demo) -> Result<(), Failure> {
    let mut client = context.client()?;
    match standing(&mut client)? {
        Standing::Strange(names) => Err(Failure::Failed(format!(
            "the server has {} that 'corq demo' has not made: it changes nothing there",
            names.join(", ")
        ))),
        Standing::Free if demo.remove => {
            say(context, "nothing of 'corq demo' is on this server", &[], &[])
        }
        Standing::Own if demo.remove => remove(context, &mut client),
        Standing::Free | Standing::Own => fill(context, &mut client, demo),
    }
}

/// Asks, and says whether that was granted. What does not exist is not.
fn is_granted(client: &mut Client, request: Request) -> Result<bool, Failure> {
    let reply = client.call(request)?;
    match reply.refusal() {
        None => Ok(true),
        Some(Refusal { code: Some(Code::NotFound), .. }) => Ok(false),
        Some(refusal) => Err(Failure::refused(refusal)),
    }
}

fn standing(client: &mut Client) -> Result<Standing, Failure> {
    let mark = Request::new(Op::GetJobByCustomId).with(|fields| fields.text("customId", MARK));
    let reply = client.call(mark)?;
    match reply.refusal() {
        None if reply.value().get("job").get("queue").text() == Some(MARK_QUEUE) => {
            return Ok(Standing::Own);
        }
        None => return Ok(Standing::Strange(vec![format!("the job {MARK}")])),
        Some(Refusal { code: Some(Code::NotFound), .. }) => {}
        Some(refusal) => return Err(Failure::refused(refusal)),
    }
    let mut names: Vec<String> =
        there(client)?.into_iter().map(|name| format!("the queue {name}")).collect();
    for (name, _) in SCHEDULES {
        let schedule = Request::new(Op::CronGet).with(|fields| fields.text("name", name));
        if is_granted(client, schedule)? {
            names.push(format!("the schedule {name}"));
        }
    }
    Ok(if names.is_empty() { Standing::Free } else { Standing::Strange(names) })
}

/// Names the queues of the demo that there are.
fn there(client: &mut Client) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    for queue in QUEUES.iter().chain([&MARK_QUEUE]) {
        let list = Request::new(Op::ListQueues).with(|fields| {
            fields.text("prefix", queue);
            fields.integer("limit", 1);
            fields.texts("fields", &["total".to_owned()]);
        });
        let reply = client.call(list)?.granted()?;
        let rows = reply.value().get("queues");
        if rows.items().any(|row| row.get("name").text() == Some(*queue)) {
            names.push((*queue).to_owned());
        }
    }
    Ok(names)
}

/// Sets up what is there from the beginning: the mark, limits, a paused queue, schedules.
fn furnish(client: &mut Client, seconds: u64) -> Result<(), Failure> {
    let mark = Request::on_queue(Op::Push, MARK_QUEUE).with(|fields| {
        fields.text("jobId", MARK);
        fields.text("name", "about");
        fields.raw("data", &value(samples::ABOUT));
        fields.integer("delay", samples::MARK_DELAY_MS);
    });
    order(client, mark)?;
    order(client, Request::on_queue(Op::Pause, PAUSED))?;
    let rate = Request::on_queue(Op::RateLimit, "demo.sync");
    order(client, rate.with(|fields| fields.integer("limit", 2)))?;
    let concurrency = Request::on_queue(Op::SetConcurrency, "demo.images");
    order(client, concurrency.with(|fields| fields.integer("limit", 4)))?;
    for (name, schedule) in SCHEDULES {
        let delete = Request::new(Op::CronDelete).with(|fields| fields.text("name", name));
        is_granted(client, delete)?;
        let cron = Request::new(Op::Cron).with(|fields| {
            fields.text("name", name);
            fields.text("queue", schedule.queue);
            fields.raw("data", &value(schedule.data));
            fields.text_if("schedule", schedule.cron);
            fields.integer_if("repeatEvery", schedule.every_ms);
            // The schedule runs for a bounded number of times, so that it ends if it is forgotten.
            let runs =
                schedule.every_ms.map_or(30, |every_ms| seconds as i64 * 1000 / every_ms + 1);
            fields.integer("maxLimit", runs);
        });
        order(client, cron)?;
    }
    Ok(())
}

fn fill(context: &mut Context, client: &mut Client, demo: &Demo) -> Result<(), Failure> {
    furnish(client, demo.seconds)?;
    let mut crews = Vec::new();
    for about in crew::CREWS {
        crews.push(Crew::begin(context.client()?, about, demo.rate)?);
    }
    if !context.target.json {
        context.out.line(&format!(
            "sample work comes for {} s, {} jobs a second, in queues that begin with demo.",
            demo.seconds, demo.rate
        ))?;
        context.out.flush()?;
    }
    let mut samples = Samples::new(Dice::new());
    let (began, length) = (Instant::now(), Duration::from_secs(demo.seconds));
    let mut pushed = 0;
    loop {
        let passed = began.elapsed();
        if passed >= length {
            break;
        }
        let due = passed.as_millis() as u64 * demo.rate / 1000 + 1;
        pushed += samples.push(client, due.saturating_sub(pushed))?;
        if samples.wants_flow(passed) {
            pushed += samples.push_flow(client)?;
        }
        for crew in &mut crews {
            crew.work(Instant::now())?;
        }
        std::thread::sleep(TICK);
    }
    let (mut completed, mut failed) = (0, 0);
    for crew in crews {
        let done = crew.end()?;
        (completed, failed) = (completed + done.0, failed + done.1);
    }
    let text = format!(
        "pushed {pushed} jobs: {completed} completed, {failed} attempts failed; what is left can be looked at, and removed with \
         'corq demo --remove'"
    );
    let numbers = [("pushed", pushed), ("completed", completed), ("failed", failed)];
    say(context, &text, &numbers, &[])
}

fn remove(context: &mut Context, client: &mut Client) -> Result<(), Failure> {
    for (name, _) in SCHEDULES {
        let delete = Request::new(Op::CronDelete).with(|fields| fields.text("name", name));
        is_granted(client, delete)?;
    }
    for queue in QUEUES {
        for op in [Op::Resume, Op::RateLimitClear, Op::ClearConcurrency, Op::Obliterate] {
            order(client, Request::on_queue(op, queue))?;
        }
    }
    await_gone(client, |names| names.iter().all(|name| name == MARK_QUEUE))?;
    order(client, Request::on_queue(Op::Obliterate, MARK_QUEUE))?;
    await_gone(client, <[String]>::is_empty)?;
    let text = format!(
        "removed {} queues with their jobs and {} schedules",
        QUEUES.len(),
        SCHEDULES.len()
    );
    say(context, &text, &[], QUEUES)
}

/// Waits until queues are gone, which takes a while if they had many jobs.
fn await_gone(client: &mut Client, is_done: impl Fn(&[String]) -> bool) -> Result<(), Failure> {
    let began = Instant::now();
    loop {
        let left = there(client)?;
        if is_done(&left) {
            return Ok(());
        }
        if began.elapsed() > REMOVAL_PATIENCE {
            let text = format!("{} is still being removed: look again later", left.join(", "));
            return Err(Failure::Failed(text));
        }
        std::thread::sleep(TICK);
    }
}

/// Says what was done: to people, or as JSON.
fn say(
    context: &mut Context,
    text: &str,
    numbers: &[(&str, u64)],
    removed: &[&str],
) -> Result<(), Failure> {
    if !context.target.json {
        return Ok(context.out.line(text)?);
    }
    let mut bytes = Vec::new();
    let mut map = MapWriter::begin(&mut bytes);
    map.key("ok").bool(true);
    for (name, number) in numbers {
        map.key(name).uint(*number);
    }
    map.key("removed").strs(removed);
    drop(map);
    context.out.json(&bytes)
}
