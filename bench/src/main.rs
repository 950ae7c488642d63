//! `corq-bench`: load for a job queue server of this protocol, and an honest account of it.
//!
//! It may not know anything about corq beyond the wire, so that every server of the protocol is
//! measured with the same ruler. What it prints is named for what it is: a closed loop's round
//! trip is not a latency, and CPU time per job is the figure that a shared machine leaves intact.

mod control;
mod engine;
mod listen;
mod options;
mod phase;
mod pipeline;
mod process;
mod reply;
mod report;
mod seen;
mod socket;
mod tally;
mod wire;

use std::io::IsTerminal;
use std::num::NonZeroU64;
use std::process::ExitCode;

use clap::Parser;

use control::{Control, Field};
use engine::Engine;
use listen::Listeners;
use options::{Cli, Options, Workload};
use phase::{Plan, Waiting};
use pipeline::Connection;
use process::Usage;
use report::Report;
use socket::Socket;
use wire::{Shape, Templates};

const JOBS: u32 = 200_000;
const PREFILL_BATCH: u32 = 500;

fn main() -> ExitCode {
    let workload = Cli::parse().workload;
    match run(&workload) {
        Ok(report) => {
            if workload.options().json {
                println!("{}", report.json());
            } else {
                print!("{}", report.text());
            }
            if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("corq-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(workload: &Workload) -> Result<Report, String> {
    let options = workload.options();
    let plan = plan(workload)?;
    let queues = queue_names(options);
    let mut control = Control::new(connect(options)?);
    let server = control.server()?;
    let mut engine = engine(options, &queues, plan.producers)?;
    // A due time in an open loop is a few microseconds; the usual slack of a timer is fifty.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).map_err(|e| e.to_string())?;

    let outcome = measure(workload, &plan, &mut engine, &mut control, &queues);
    // Connections go first: a job that a failed run still holds goes back before the cleaning up.
    drop(engine);
    if !options.keep {
        for queue in &queues {
            control.call("Obliterate", &[Field::Text("queue", queue)])?;
        }
    }
    let mut report = outcome?;
    report.server = server;
    Ok(report)
}

fn measure(
    workload: &Workload,
    plan: &Plan,
    engine: &mut Engine,
    control: &mut Control,
    queues: &[String],
) -> Result<Report, String> {
    let options = workload.options();
    let (plan, stock) = &if options.resume {
        resume(plan, engine, control, queues, options.jobs)?
    } else {
        (plan.clone(), prefill(workload, plan, engine)?)
    };
    let listeners = Listeners::open(options, queues)?;
    let usage = || options.pid.map(Usage::read).transpose();
    let (before, own_before) = (usage()?, process::own_cpu_us());
    let tally = engine.run(plan)?;
    let (after, own_after) = (usage()?, process::own_cpu_us());

    let mut report = Report::new(workload, plan.window, *stock, tally);
    report.own_cpu_us = own_after - own_before;
    report.server_usage = before.zip(after);
    report.check_listeners((options.listeners > 0).then(|| listeners.close()));
    report.check(&engine.ledger.seen, plan);
    if plan.producers == engine.connections.len() {
        let mut waiting = 0;
        for queue in queues {
            waiting += control.count(queue)?;
        }
        report.check_count(waiting);
    }
    Ok(report)
}

/// Pushes what the workload needs to find, and says how much that was.
fn prefill(workload: &Workload, plan: &Plan, engine: &mut Engine) -> Result<u64, String> {
    let prefill = prefill_plan(workload, plan);
    if prefill.jobs_to_push > 0 {
        let tally = engine.run(&prefill)?;
        if let Some(error) = tally.first_error {
            return Err(format!("while prefilling: {error}"));
        }
    }
    Ok(prefill.jobs_to_push)
}

/// Takes over what the queues hold: an earlier run numbered its jobs from zero on, so their count says which
/// numbers there are.
fn resume(
    plan: &Plan,
    engine: &mut Engine,
    control: &mut Control,
    queues: &[String],
    jobs: Option<u32>,
) -> Result<(Plan, u64), String> {
    let ledger = &mut engine.ledger;
    for (queue, stock) in queues.iter().zip(&mut ledger.stock) {
        *stock = control.count(queue)?;
    }
    let total = ledger.stock.iter().sum();
    ledger.next_sequence = u32::try_from(total).map_err(|_| "more than 2^32 jobs wait")?;
    let jobs_to_take = jobs.map_or(total, u64::from);
    if total < jobs_to_take {
        return Err(format!("{total} of {jobs_to_take} jobs wait"));
    }
    let plan = Plan { jobs_to_take, ..plan.clone() };
    Ok((plan, total))
}

fn plan(workload: &Workload) -> Result<Plan, String> {
    let options = workload.options();
    let connections = options.connections as usize;
    let by_time = options.seconds.map(|seconds| (seconds * 1e9) as u64);
    let unlimited = by_time.map_or(JOBS, |_| u32::MAX / 2);
    let jobs = u64::from(options.jobs.unwrap_or(unlimited));
    let both = matches!(workload, Workload::Mixed(_) | Workload::Open(_));
    if both && connections < 2 {
        return Err("--connections must be at least 2: some push and some pull".to_owned());
    }
    if !(options.rate > 0.0 && options.rate <= 1e8) {
        return Err("--rate must be above 0 and at most 100000000".to_owned());
    }
    let takes = matches!(workload, Workload::Worker(_) | Workload::Drain(_));
    if options.resume && !takes {
        return Err("--resume is for worker and drain".to_owned());
    }
    let rate = matches!(workload, Workload::Open(_)).then_some(options.rate);
    Ok(Plan {
        name: workload.name(),
        producers: if takes { 0 } else { connections / (1 + usize::from(both)) },
        first_worker: if takes { 0 } else { connections / (1 + usize::from(both)) },
        window: workload.window(),
        batch: workload.batch(),
        waiting: if both {
            Waiting::LongPoll { timeout_ms: options.pull_timeout_ms }
        } else {
            Waiting::Stocked
        },
        owner: options.owner,
        jobs_to_push: if takes { 0 } else { jobs },
        jobs_to_take: jobs,
        stop_after_ns: by_time,
        rate,
        settle_ns: u64::from(options.settle_ms) * 1_000_000,
        patience_ns: (options.patience.max(0.1) * 1e9) as u64,
    })
}

fn prefill_plan(workload: &Workload, plan: &Plan) -> Plan {
    let options = workload.options();
    let takes = plan.producers == 0;
    let jobs = options.prefill.unwrap_or(if takes { options.jobs.unwrap_or(JOBS) } else { 0 });
    Plan {
        name: "prefill",
        producers: options.connections as usize,
        first_worker: usize::MAX,
        window: 2,
        batch: Some(PREFILL_BATCH),
        waiting: Waiting::Stocked,
        jobs_to_push: u64::from(jobs),
        jobs_to_take: 0,
        stop_after_ns: None,
        rate: None,
        ..*plan
    }
}

fn engine(options: &Options, queues: &[String], producers: usize) -> Result<Engine, String> {
    // A phase without producers shares the queues among all of its connections.
    let group = if producers == 0 { options.connections } else { producers as u32 };
    let owner = format!("corq-bench-{}", std::process::id());
    let templates = Templates::new(&Shape {
        queues,
        payload_bytes: options.payload_bytes as usize,
        durable: options.durable,
        priorities: options.priorities,
        delay_ms: options.delay_ms,
        owner: options.owner.then_some(&owner),
        lock_ttl_ms: options.lock_ttl_ms,
    });
    let mut connections = Vec::new();
    for index in 0..options.connections {
        let connection = Connection::new(connect(options)?, share(options, index, group));
        connections.push(connection.map_err(|error| error.to_string())?);
    }
    let progress = options.progress || std::io::stderr().is_terminal();
    Engine::new(connections, templates, queues.len(), progress).map_err(|error| error.to_string())
}

/// The queues that a connection works on. `group` connections share them out among themselves:
/// where some push and some pull, each half covers all the queues.
fn share(options: &Options, index: u32, group: u32) -> Vec<u16> {
    let (own, queues) = (index % group, options.queues);
    let mine = |queue: &u32| options.spread || queue % group == own % queues;
    (0..queues).filter(mine).map(|queue| queue as u16).collect()
}

fn connect(options: &Options) -> Result<Socket, String> {
    control::connect(Socket::frames(options)?, options.token.as_deref())
}

fn queue_names(options: &Options) -> Vec<String> {
    let own = format!("bench-{}", std::process::id());
    let prefix = options.queue_prefix.as_ref().unwrap_or(&own);
    (0..options.queues).map(|index| format!("{prefix}-{index}")).collect()
}
