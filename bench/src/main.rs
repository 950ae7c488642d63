//! `corq-bench`: load for a job queue server of this protocol, and an honest account of it.
//!
//! It may not know anything about corq beyond the wire, so that every server of the protocol is
//! measured with the same ruler. What it prints is named for what it is: a closed loop's round
//! trip is not a latency, and CPU time per job is the figure that a shared machine leaves intact.

mod control;
mod engine;
mod listen;
mod machine;
mod options;
mod peer;
mod phase;
mod pipeline;
mod process;
mod quick;
mod reply;
mod report;
mod seen;
mod socket;
mod tally;
mod target;
mod wire;

use std::io::IsTerminal;
use std::num::NonZeroU64;
use std::process::ExitCode;

use control::{Control, Field};
use engine::Engine;
use listen::Listeners;
use options::{Job, Options, Workload};
use phase::{Plan, Waiting};
use pipeline::Connection;
use process::{Spent, Usage};
use report::Report;
use socket::Socket;
use tally::Tally;
use target::Target;
use wire::{Shape, Templates};

/// How long a run takes unless it is said, and how much it pushes then: a server has to hold it.
const SECONDS: f64 = 5.0;
const PUSHES_MAX: u32 = 5_000_000;
/// Jobs of the first part of a run that takes jobs for some time, and the most of a later one.
const PART_JOBS: u64 = 20_000;
const PART_JOBS_MAX: f64 = 500_000.0;
const PREFILL_BATCH: u32 = 500;

fn main() -> ExitCode {
    let outcome = match options::read() {
        Job::Quick(quick) => quick::run(&quick).map(|table| {
            let text = if quick.json { format!("{}\n", table.json()) } else { table.text() };
            (text, table.is_sound())
        }),
        Job::Load(workload) => run(&workload).map(|report| {
            let json = workload.options().json;
            let text = if json { format!("{}\n", report.json()) } else { report.text() };
            (text, report.problems.is_empty())
        }),
    };
    match outcome {
        Ok((text, is_sound)) => {
            print!("{text}");
            if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
    let mut control = Control::new(connect(&options.target)?);
    let server = control.server()?;
    refuse_existing(options, &mut control, &queues)?;
    let mut engine = engine(options, &queues, plan.producers)?;
    // A due time in an open loop is a few microseconds; the usual slack of a timer is fifty.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).map_err(|e| e.to_string())?;

    let outcome = measure(workload, plan, &mut engine, &mut control, &queues);
    // Connections go first: a job that a failed run still holds goes back before the cleaning up.
    drop(engine);
    let cleaned = if options.keep { Ok(()) } else { clean(&mut control, &queues) };
    // The first error is the cause: a server that is gone cannot be cleaned up, either.
    let mut report = outcome?;
    if !report.is_cut_short() {
        cleaned?;
    } else if let Err(error) = cleaned {
        report.problems.push(format!("the queues of this run could not be removed: {error}"));
    }
    report.server = server;
    Ok(report)
}

fn clean(control: &mut Control, queues: &[String]) -> Result<(), String> {
    queues
        .iter()
        .try_for_each(|queue| control.call("Obliterate", &[Field::Text("queue", queue)]).map(drop))
}

/// Jobs of other programs are not for a load generator: it would take them, and remove their queues at the end.
fn refuse_existing(
    options: &Options,
    control: &mut Control,
    queues: &[String],
) -> Result<(), String> {
    if options.queue_prefix.is_none() || options.use_existing || options.resume {
        return Ok(());
    }
    match control.existing(queues)? {
        None => Ok(()),
        Some(queue) => Err(format!(
            "the queue {queue} exists: this run would take its jobs and remove it; choose another --queue-prefix, or \
             go on with --use-existing"
        )),
    }
}

fn measure(
    workload: &Workload,
    plan: Plan,
    engine: &mut Engine,
    control: &mut Control,
    queues: &[String],
) -> Result<Report, String> {
    let options = workload.options();
    let mut jobs = prefill_jobs(workload, &plan);
    let (plan, mut stock) = if options.resume {
        resume(&plan, engine, control, queues, options.jobs)?
    } else {
        (plan, 0)
    };
    // Jobs that are taken for some time are pushed in parts, as many as the time turns out to need.
    let by_parts = workload.takes() && options.prefill.is_none() && !options.resume;
    let time_ns = plan.stop_after_ns.filter(|_| by_parts).unwrap_or(0);
    let pid = options.target.pid.or_else(|| control.process());
    let listeners = Listeners::open(options, queues)?;
    let (mut tally, mut own_cpu_us, mut spent) = (Tally::new(), 0.0, None::<Spent>);
    loop {
        prefill(workload, &plan, jobs, engine)?;
        stock += jobs;
        let left_ns = plan.stop_after_ns.map(|limit| limit.saturating_sub(tally.span_ns));
        let part = Plan { stop_after_ns: left_ns, ..plan.clone() };
        let before = pid.map(Usage::read).transpose()?;
        let own_before = process::own_cpu_us();
        tally.add(&engine.run(&part));
        own_cpu_us += process::own_cpu_us() - own_before;
        // A server that has ended has no figures any more.
        let after = pid.and_then(|pid| Usage::read(pid).ok());
        if let Some((before, after)) = before.zip(after) {
            let part = Spent::between(&before, &after);
            spent = Some(spent.map_or(part, |spent| spent.and(part)));
        }
        let left_ns = time_ns.saturating_sub(tally.span_ns);
        let failed = tally.errors > 0 || tally.cut_short.is_some();
        // The numbers of jobs have 32 bits.
        let numbers_left = f64::from(u32::MAX - engine.ledger.next_sequence);
        if failed || left_ns <= time_ns / 20 || numbers_left < PART_JOBS_MAX {
            break;
        }
        let wanted = tally.received as f64 / tally.span_ns as f64 * left_ns as f64 * 1.1;
        jobs = wanted.clamp(1_000.0, PART_JOBS_MAX) as u64;
    }

    let mut report = Report::new(workload, plan.window, stock, tally);
    report.own_cpu_us = own_cpu_us;
    report.process = pid.zip(spent);
    report.check(&engine.ledger.seen, &plan);
    let heard = (options.listeners > 0).then(|| listeners.close());
    if report.is_cut_short() {
        return Ok(report);
    }
    report.check_listeners(heard);
    let pushes_only = plan.producers == engine.connections.len();
    if pushes_only || workload.takes() && plan.stop_after_ns.is_some() {
        let mut waiting = 0;
        for queue in queues {
            waiting += control.count(queue)?;
        }
        if pushes_only {
            report.check_count(waiting);
        } else {
            report.check_left(&engine.ledger.seen, waiting);
        }
    }
    Ok(report)
}

/// How many jobs the workload needs to find.
fn prefill_jobs(workload: &Workload, plan: &Plan) -> u64 {
    let options = workload.options();
    let default = match plan.stop_after_ns {
        _ if !workload.takes() || options.resume => 0,
        Some(_) => PART_JOBS,
        None => plan.jobs_to_take,
    };
    options.prefill.map_or(default, u64::from)
}

fn prefill(workload: &Workload, plan: &Plan, jobs: u64, engine: &mut Engine) -> Result<(), String> {
    if jobs == 0 {
        return Ok(());
    }
    let tally = engine.run(&prefill_plan(workload, plan, jobs));
    match tally.first_error.or(tally.cut_short) {
        Some(error) => Err(format!("while prefilling: {error}")),
        None => Ok(()),
    }
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
    let default = || (options.jobs.is_none() && !options.resume).then_some(SECONDS);
    let by_time = options.seconds.or_else(default).map(|seconds| (seconds * 1e9) as u64);
    let unlimited = options.seconds.is_some() || workload.takes();
    let unsaid = if unlimited { u32::MAX / 2 } else { PUSHES_MAX };
    let jobs = u64::from(options.jobs.unwrap_or(unsaid));
    let both = matches!(workload, Workload::Mixed(_) | Workload::Open(_));
    if both && connections < 2 {
        return Err("--connections must be at least 2: some push and some pull".to_owned());
    }
    if !(options.rate > 0.0 && options.rate <= 1e8) {
        return Err("--rate must be above 0 and at most 100000000".to_owned());
    }
    let takes = workload.takes();
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
        delayed: options.delay_ms.is_some(),
        settle_ns: u64::from(options.settle_ms) * 1_000_000,
        patience_ns: (options.patience.max(0.1) * 1e9) as u64,
    })
}

fn prefill_plan(workload: &Workload, plan: &Plan, jobs: u64) -> Plan {
    let options = workload.options();
    Plan {
        name: "prefill",
        producers: options.connections as usize,
        first_worker: usize::MAX,
        window: 2,
        batch: Some(PREFILL_BATCH),
        waiting: Waiting::Stocked,
        jobs_to_push: jobs,
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
        noise_bytes: options.noise_bytes as usize,
        durable: options.durable,
        priorities: options.priorities,
        delay_ms: options.delay_ms,
        owner: options.owner.then_some(&owner),
        lock_ttl_ms: options.lock_ttl_ms,
    });
    let mut connections = Vec::new();
    for index in 0..options.connections {
        let connection = Connection::new(connect(&options.target)?, share(options, index, group));
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

fn connect(target: &Target) -> Result<Socket, String> {
    let token = target.token.as_deref().filter(|token| !token.is_empty());
    control::connect(Socket::frames(target)?, token)
}

fn queue_names(options: &Options) -> Vec<String> {
    let own = format!("bench-{}", std::process::id());
    let prefix = options.queue_prefix.as_ref().unwrap_or(&own);
    (0..options.queues).map(|index| format!("{prefix}-{index}")).collect()
}
