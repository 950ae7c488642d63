//! How much of a turn every command of the table takes, at its bounds. The fear: one client whose command of a few
//! bytes holds everybody else on its shard.
//!
//! `cargo test` takes sizes that are small for a slow machine and yet several times what a turn may do, and
//! looks at the server's own count of steps, never at time. `make turns` (`CORQ_TURNS=full`) takes the bounds
//! themselves and a release build, prints the longest turn of each command, and fails if one is above 5 ms; of a batch, which is
//! done in one turn, above 20 ms.

mod allocations;
mod cases;
mod world;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::support::{Start, until};
use corq::api::commands::{COMMANDS, Class, CommandSpec, Op};
use rustix::process::Signal;
use serde_json::json;
use world::{Sizes, World};

/// Steps of one kind of work in one turn.
const STEPS_MAX: u64 = 5000;

/// Length of a turn at full size.
const LENGTH_MS_MAX: f64 = 5.0;

/// A batch is done in one turn: so many times what other commands may do.
const BATCH_TIMES: u64 = 6;
const BATCH_LENGTH_TIMES: f64 = 4.0;

/// The longest turns of a kind of work since the start of a server.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
struct Longest {
    steps: u64,
    length_ms: f64,
}

/// By the name of the work.
type Turns = BTreeMap<String, Longest>;

fn turns_of(world: &mut World) -> Turns {
    let mut turns = Turns::new();
    for line in world.metrics().lines() {
        let Some((family, rest)) = line.split_once("{shard=\"0\",command=\"") else { continue };
        let (work, value) = rest.split_once("\"} ").unwrap();
        let longest = turns.entry(work.to_owned()).or_default();
        match family {
            "corq_turn_steps_max" => longest.steps = value.parse().unwrap(),
            "corq_longest_turn_seconds" => longest.length_ms = value.parse::<f64>().unwrap() * 1e3,
            _ => {}
        }
    }
    turns
}

/// A kind of work that took too much of a turn, and during which case that was seen.
#[derive(Debug)]
struct Finding {
    case: &'static str,
    work: String,
    longest: Longest,
}

/// Plays the cases of some commands against one server, and looks after each whether a turn was too long.
struct Run {
    steps_max: u64,
    length_ms_max: f64,
    all: Turns,
    findings: Vec<Finding>,
}

impl Run {
    fn new(steps_max: u64, length_ms_max: f64) -> Self {
        Self { steps_max, length_ms_max, all: Turns::new(), findings: Vec::new() }
    }

    fn play<'a>(&mut self, sizes: Sizes, commands: impl IntoIterator<Item = &'a CommandSpec>) {
        let mut world = World::new(sizes);
        // Only what a case adds to the longest turns so far is its own.
        let mut before = turns_of(&mut world);
        for command in commands {
            cases::play(command.op, &mut world);
            let after = turns_of(&mut world);
            let counted = after.get(command.name).map_or(0, |longest| longest.steps);
            assert!(counted > 0, "{} is played by its case, and counted", command.name);
            for (work, &longest) in &after {
                let past = before.get(work).copied().unwrap_or_default();
                let (steps_max, length_ms_max) = self.bounds(work);
                let steps = longest.steps > steps_max && longest.steps > past.steps;
                let length =
                    longest.length_ms > length_ms_max && longest.length_ms > past.length_ms;
                if steps || length {
                    let (case, work) = (command.name, work.clone());
                    self.findings.push(Finding { case, work, longest });
                }
                let most = self.all.entry(work.clone()).or_default();
                most.steps = most.steps.max(longest.steps);
                most.length_ms = most.length_ms.max(longest.length_ms);
            }
            before = after;
        }
    }

    /// Most steps and milliseconds of a turn of some work.
    fn bounds(&self, work: &str) -> (u64, f64) {
        let spec = COMMANDS.iter().find(|spec| spec.name == work);
        if spec.is_some_and(|spec| matches!(spec.class, Class::Batch(_))) {
            let steps_max = self.steps_max.saturating_mul(BATCH_TIMES);
            return (steps_max, self.length_ms_max * BATCH_LENGTH_TIMES);
        }
        (self.steps_max, self.length_ms_max)
    }

    /// All commands of the table. Questions about all queues have a server of their own: with so many queues, each
    /// look at the metrics would be such a question.
    fn play_all(&mut self, sizes: Sizes) {
        let only = std::env::var("CORQ_TURNS_ONLY").unwrap_or_default();
        let wanted = |command: &&CommandSpec| {
            only.is_empty() || only.split(',').any(|it| it == command.name)
        };
        let about_queues = |command: &&CommandSpec| {
            matches!(command.op, Op::ListQueues | Op::Stats | Op::Prometheus | Op::Metrics)
        };
        self.play(sizes, COMMANDS.iter().filter(wanted).filter(|it| !about_queues(it)));
        self.play(sizes, COMMANDS.iter().filter(wanted).filter(about_queues));
    }

    fn print(&self) {
        println!("{:<28} {:>10} {:>12}", "work", "steps", "ms");
        for (work, longest) in &self.all {
            let mark = if longest.length_ms > self.bounds(work).1 { "  <--" } else { "" };
            println!("{work:<28} {:>10} {:>12.3}{mark}", longest.steps, longest.length_ms);
        }
        for Finding { case, work, longest } in &self.findings {
            let Longest { steps, length_ms } = longest;
            println!("{case}: a turn of {work} took {steps} steps, {length_ms:.3} ms at most");
        }
    }
}

/// Whether the bounds themselves are taken, and times are looked at.
fn is_full() -> bool {
    std::env::var("CORQ_TURNS").is_ok_and(|sizes| sizes == "full")
}

#[test]
fn every_command_at_its_bounds_is_in_slices() {
    let full = is_full();
    let mut run =
        if full { Run::new(u64::MAX, LENGTH_MS_MAX) } else { Run::new(STEPS_MAX, f64::INFINITY) };
    run.play_all(if full { Sizes::FULL } else { Sizes::SMALL });
    run.print();
    assert!(run.findings.is_empty(), "turns that are too long: {:#?}", run.findings);
}

/// The fear: a machine of workers is gone, and its shard hears of all their connections in the same turn.
#[test]
fn connections_that_end_at_once_do_so_a_slice_a_turn() {
    // Each gives back what it held, and then is gone.
    const STEPS_PER_END: u64 = 3;
    let (count, length_ms_max) =
        if is_full() { (4000, LENGTH_MS_MAX) } else { (600, f64::INFINITY) };
    let mut world = World::new(Sizes::SMALL);
    let clients: Vec<_> = (0..count).map(|_| world.server.client()).collect();
    until("all connections to be there", || (connections(&mut world) > count).then_some(()));
    // The server hears of all of them at once.
    world.server.freeze();
    drop(clients);
    world.server.signal(Signal::CONT);
    until("all connections to be gone", || (connections(&mut world) == 1).then_some(()));
    let longest = turns_of(&mut world)["disconnect"];
    println!("disconnect: {longest:?}");
    assert!(longest.steps > 0, "ends are counted");
    assert!(longest.steps < 1000 + STEPS_PER_END, "{longest:?}");
    assert!(longest.length_ms <= length_ms_max, "{longest:?}");
}

fn figure(world: &mut World, family: &str) -> u64 {
    let text = world.metrics();
    let line = text.lines().find_map(|line| line.strip_prefix(family));
    line.unwrap().parse().unwrap()
}

fn connections(world: &mut World) -> u64 {
    figure(world, "corq_connections ")
}

/// The fear: many clients stop within a frame, and all of them are given up in the same turn.
#[test]
fn connections_whose_deadlines_pass_together_are_given_up_a_slice_a_turn() {
    const TIMEOUT: Duration = Duration::from_millis(300);
    const STEPS_PER_END: u64 = 5;
    let (count, length_ms_max) =
        if is_full() { (4000, LENGTH_MS_MAX) } else { (600, f64::INFINITY) };
    let start = Start::new().env("SHARDS", 1).env("FRAME_TIMEOUT_MS", TIMEOUT.as_millis());
    let server = start.start();
    let client = server.client();
    let mut world = World { server, client, sizes: Sizes::SMALL };
    let mut clients: Vec<_> = (0..count).map(|_| world.server.client()).collect();
    until("all connections to be there", || (connections(&mut world) > count).then_some(()));
    let received = |world: &mut World| figure(world, "corq_received_bytes_total ");
    let mut beginning = vec![0; 1000];
    beginning[2] = 0xff;
    let all = received(&mut world) + count * beginning.len() as u64;
    world.server.freeze();
    for client in &mut clients {
        client.send_bytes(&beginning).unwrap();
    }
    world.server.signal(Signal::CONT);
    until("all beginnings to be there", || (received(&mut world) >= all).then_some(()));
    // All deadlines have passed when the server goes on.
    world.server.freeze();
    let frozen = Instant::now();
    until("the deadlines to pass", || (frozen.elapsed() > TIMEOUT).then_some(()));
    world.server.signal(Signal::CONT);
    until("all connections to be gone", || (connections(&mut world) == 1).then_some(()));
    let turns = turns_of(&mut world);
    println!("due: {:?}, disconnect: {:?}", turns["due"], turns.get("disconnect"));
    assert!(turns["due"].steps > 0, "ends are counted");
    assert!(turns["due"].steps < 1000 + STEPS_PER_END, "{turns:?}");
    assert!(turns["due"].length_ms <= length_ms_max, "{turns:?}");
}

/// The fear: rows of which each is short make a turn of megabytes, or all of them are moved at the end.
#[test]
fn a_page_of_dead_letters_with_long_errors_is_written_a_slice_a_turn() {
    const JOBS: usize = 60;
    let mut world = World::new(Sizes::SMALL);
    let error = "e".repeat(60_000);
    for _ in 0..JOBS {
        world.client.push_with("dead", 1, json!({"maxAttempts": 1}));
        let (job, token) = world.client.pull_owned("dead", 60_000);
        world.ok("FAIL", json!({"id": job["id"], "token": token, "error": error}));
    }
    let page = json!({"queue": "dead", "count": JOBS, "filter": {"offset": 0}});
    let shown = world.ok("Dlq", page);
    let (jobs, entries) = (shown["jobs"].as_array().unwrap(), shown["entries"].as_array().unwrap());
    assert_eq!((jobs.len(), entries.len()), (JOBS, JOBS));
    for (job, entry) in jobs.iter().zip(entries) {
        assert_eq!((&entry["job"], &entry["error"]), (job, &json!(error)));
    }
    let turns = turns_of(&mut world);
    // A row is 90 steps, and a slice ends with the row that fills it; a turn may begin and go on.
    let steps = ["Dlq", "due"].map(|work| turns.get(work).map_or(0, |longest| longest.steps));
    assert!(steps.iter().all(|&steps| steps < 700), "{steps:?}");
    assert!(steps.iter().any(|&steps| steps > 200), "bytes are counted: {steps:?}");
}

/// A pull of a thousand jobs is one turn: by a bound below that, it has to be seen.
#[test]
fn canary_a_command_that_is_not_in_slices_is_seen() {
    let mut run = Run::new(900, f64::INFINITY);
    run.play(Sizes::SMALL, COMMANDS.iter().filter(|command| command.op == Op::PullBatch));
    let seen = run.findings.iter().any(|it| it.case == "PULLB" && it.work == "PULLB");
    assert!(seen, "{:?}", run.findings);
    // Batches of a thousand have filled the queue.
    let push = run.all["PUSHB"];
    assert!((1000..2000).contains(&push.steps) && push.length_ms > 0.0, "{push:?}");
}
