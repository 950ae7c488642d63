//! The simulator: the real shards and the real log, on a disk that fails on purpose, under virtual
//! time and a schedule that follows from a seed; beside them a naive model. The fear is the bug that
//! needs a crash, a late disk and three clients at the wrong moment.
//!
//! ```text
//! world   mail, time, the schedule      client   what a worker believes it holds
//! node    one shard: engine, log, directory, model; nothing leaves before the log has it
//! names   commands in several steps over several shards
//! reclaim giving up the beginning of the log
//! crash   ends of the process and what the next one finds      drain   the end of a run
//! model, judge, limits, awaits, compare   what should be     ledger   what clients were told
//! check   every promise, by name      canary  proof that each check can fail
//! ops/    the commands, a family per file: how they are given, what the model makes of them
//! ```
//!
//! `CORQ_SIM_SEEDS=n` runs n seeds, `CORQ_SIM_FIRST=k` starts at seed k. `CORQ_SIM_SEED=n` runs one
//! seed and prints all that happens. Each seed is run twice and must do the same twice.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod awaits;
mod book;
mod canary;
mod check;
mod client;
mod compare;
mod crash;
mod dice;
mod drain;
mod judge;
mod ledger;
mod limits;
mod model;
mod names;
mod node;
mod ops;
mod reclaim;
mod settings;
mod trace;
mod world;

use check::Checks;
use settings::{Flaw, Settings};
use std::any::Any;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use world::World;

/// Seeds of a run that nobody asked for more of.
const SEEDS: u64 = 120;

/// Lives the life of a seed and returns the hash of its trace.
fn live(seed: u64, flaw: Flaw, checks: Checks, print: bool) -> u64 {
    World::new(Settings::of_seed(seed, flaw, checks), print).live()
}

fn message_of(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<String>().cloned();
    text.or_else(|| cause.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text}")))
}

/// Runs a seed twice.
fn try_seed(seed: u64) {
    let run = || live(seed, Flaw::None, Checks::default(), false);
    let twice = catch_unwind(|| (run(), run()));
    let how = format!("CORQ_SIM_SEED={seed} cargo test --test sim every_seed");
    let Ok((one, other)) = twice else { panic!("seed {seed} failed; run it alone: {how}") };
    assert_eq!(one, other, "two runs of seed {seed} differ: {how}");
}

#[test]
fn every_seed_keeps_every_promise() {
    if let Some(seed) = setting("CORQ_SIM_SEED") {
        live(seed, Flaw::None, Checks::default(), true);
        return;
    }
    let first = setting("CORQ_SIM_FIRST").unwrap_or(0);
    let seeds = setting("CORQ_SIM_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        return;
                    }
                    try_seed(seed);
                }
            });
        }
    });
}
