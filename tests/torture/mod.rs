//! Everything at once: valid commands of every kind from several clients over every surface, on few
//! queues, keys and ids, with kills, stops, changed settings and other numbers of shards in between.
//! The fears are a server that ends by itself, a job that is lost or comes back, figures that do not
//! agree, and a job, a lease or a name that is stuck for good.
//!
//! A life is a server with its data from its first start to the moment when all is worked off. Without
//! settings there are a few short ones, bounded by commands. `CORQ_TORTURE_SECONDS` plays lives for as
//! long; `CORQ_TORTURE_SEED` says with which to begin (each life has a seed of its own, which a finding
//! names); `CORQ_TORTURE_COMMANDS` how many commands a round has; `CORQ_TORTURE_SKIP` names commands, fields
//! and `odd` payloads to leave out; `CORQ_TORTURE_BIN` another build of the server, such as one with a
//! sanitizer. A finding leaves the last commands and the server's log in a file that it names, and the data.

mod audit;
mod canary;
mod commands;
mod face;
mod known;
mod ledger;
mod life;
mod player;
mod refusals;
mod settle;
mod trace;

use std::time::{Duration, Instant};

use corq::api::commands::COMMANDS;

use life::{Life, Plan};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

#[test]
fn commands_of_every_kind_leave_nothing_lost_and_nothing_stuck() {
    let seed = setting("CORQ_TORTURE_SEED", 1);
    let seconds = Duration::from_secs(setting("CORQ_TORTURE_SECONDS", 0));
    let commands = setting("CORQ_TORTURE_COMMANDS", 1500);
    let lives = setting("CORQ_TORTURE_LIVES", if seconds.is_zero() { 3 } else { 1 });
    let (start, mut life_seed) = (Instant::now(), seed);
    let mut played = std::collections::BTreeMap::new();
    while life_seed < seed + lives || start.elapsed() < seconds {
        let plan = Plan { commands, ..Plan::of(life_seed) };
        let life = Life::begin(plan).play();
        for (name, counts) in life {
            let sum: &mut (u64, u64) = played.entry(name).or_default();
            *sum = (sum.0 + counts.0, sum.1 + counts.1);
        }
        let elapsed = start.elapsed().as_secs();
        let total: u64 = played.values().map(|counts| counts.1).sum();
        let done: u64 = played.values().map(|counts| counts.0).sum();
        eprintln!(
            "{elapsed:>6} s: life {life_seed} is over; {total} commands answered, {done} with ok"
        );
        life_seed += 1;
    }
    eprintln!("answered with ok, of all: {played:?}");
    // A few lives of their normal length are enough for each command to be done at least once.
    let never: Vec<&str> = COMMANDS
        .iter()
        .map(|spec| spec.name)
        .filter(|name| played.get(name).is_none_or(|counts| counts.0 == 0))
        .filter(|name| !life::skipped().iter().any(|skipped| skipped == name))
        .collect();
    if lives >= 3 && commands >= 1500 {
        assert!(never.is_empty(), "never done: {never:?}");
    }
}
