//! The simulator: the real shards and the real log, on a disk that fails on purpose, under virtual
//! time and a schedule that follows from a seed; beside them a naive model. The fear is the bug that
//! needs a crash, a late disk and three clients at the wrong moment.
//!
//! ```text
//! world   mail, time, the schedule      client   what a worker believes it holds
//! clock   the machine's clock, which jumps, and starts after it was ahead
//! node    one shard: engine, log, directory, model; nothing leaves before the log has it
//! names, needs, flows   commands in several steps over several shards
//! reclaim giving up the beginning of the log
//! crash   ends of the process and what the next one finds      drain   the end of a run
//! model, job_rules, keys, limits, groups, awaits, chores, repeat, schedules, family, staged, sift, hooks, events, compare   what should be
//! ledger  what clients had answers to      played  what a life has played, and what none does
//! check   every promise, by name      canary  wrongness planted to see that a check sees it
//! ops/    the commands, a family per file: how they are given, what the model makes of them
//! ```
//!
//! Which seeds are run, and the proof that each check can fail, stand in the tests of this crate.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

pub mod awaits;
pub mod book;
pub mod bulk_operations;
pub mod canary;
pub mod check;
pub mod client;
pub mod clock;
pub mod compare;
pub mod crash;
pub mod dice;
pub mod drain;
pub mod events;
pub mod family;
pub mod flows;
pub mod groups;
pub mod hooks;
pub mod job_rules;
pub mod keys;
pub mod ledger;
pub mod limits;
pub mod model;
pub mod names;
pub mod needs;
pub mod node;
pub mod ops;
pub mod played;
pub mod reclaim;
pub mod repeat;
pub mod rules;
pub mod scan;
pub mod schedules;
pub mod settings;
pub mod staged;
pub mod trace;
pub mod world;

use check::Checks;
use played::Played;
use settings::{Flaw, Settings};
use world::World;

/// The summary of a life.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Life {
    /// The hash of all that happened.
    pub hash: u64,
    /// Virtual time that passed, whatever clocks showed.
    pub lived_ms: u64,
    /// Jobs that were pushed, but for those that a loss of power took back.
    pub jobs: u64,
    /// Starts after the first.
    pub restarts: u64,
    /// Starts that followed a loss of power.
    pub power_losses: u64,
    /// Logs that were found to be written by a clock that was ahead.
    pub set_back: u64,
    /// Commands and options that clients have used.
    pub played: Played,
}

/// Lives the life of a seed.
pub fn live(seed: u64, flaw: Flaw, checks: Checks, print: bool) -> Life {
    World::new(Settings::of_seed(seed, flaw, checks), print).live()
}
