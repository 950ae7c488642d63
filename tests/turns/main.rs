//! How much of a turn every command of the table takes, at its bounds. The fear: one client whose command of a few
//! bytes holds everybody else on its shard.
//!
//! `cargo test` takes sizes that are small for a slow machine and yet several times what a turn may do, and
//! looks at the server's own count of steps, never at time. `make turns` (`CORQ_TURNS=full`) takes the bounds
//! themselves and a release build, prints the longest turn of each command, and fails if one is above 5 ms.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod cases;
mod world;

use std::collections::BTreeMap;

use corq::api::commands::{COMMANDS, CommandSpec, Op};
use world::{Sizes, World};

/// Steps of one kind of work in one turn.
const STEPS_MAX: u64 = 5000;

/// Length of a turn at full size.
const LENGTH_MS_MAX: f64 = 5.0;

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
                let steps = longest.steps > self.steps_max && longest.steps > past.steps;
                let length =
                    longest.length_ms > self.length_ms_max && longest.length_ms > past.length_ms;
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
            let mark = if longest.length_ms > self.length_ms_max { "  <--" } else { "" };
            println!("{work:<28} {:>10} {:>12.3}{mark}", longest.steps, longest.length_ms);
        }
        for Finding { case, work, longest } in &self.findings {
            let Longest { steps, length_ms } = longest;
            println!("{case}: a turn of {work} took {steps} steps, {length_ms:.3} ms at most");
        }
    }
}

#[test]
fn every_command_at_its_bounds_is_in_slices() {
    let full = std::env::var("CORQ_TURNS").is_ok_and(|sizes| sizes == "full");
    let mut run =
        if full { Run::new(u64::MAX, LENGTH_MS_MAX) } else { Run::new(STEPS_MAX, f64::INFINITY) };
    run.play_all(if full { Sizes::FULL } else { Sizes::SMALL });
    run.print();
    assert!(run.findings.is_empty(), "turns that are too long: {:#?}", run.findings);
}

/// A pull of a thousand jobs is one turn: by a bound below that, it has to be seen.
#[test]
fn canary_a_command_that_is_not_in_slices_is_seen() {
    let mut run = Run::new(900, f64::INFINITY);
    run.play(Sizes::SMALL, COMMANDS.iter().filter(|command| command.op == Op::PullBatch));
    let seen = run.findings.iter().any(|it| it.case == "PULLB" && it.work == "PULLB");
    assert!(seen, "{:?}", run.findings);
}
