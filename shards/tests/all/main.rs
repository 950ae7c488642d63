//! All tests of the engine as one program, for `make mutants`: it is linked anew for each mutant. Not built
//! otherwise.
#![allow(clippy::unwrap_used, clippy::duplicate_mod)]

#[path = "../change.rs"]
mod change;
#[path = "../chores.rs"]
mod chores;
#[path = "../cron.rs"]
mod cron;
#[path = "../cron_rules.rs"]
mod cron_rules;
#[path = "../dependency.rs"]
mod dependency;
#[path = "../edges.rs"]
mod edges;
#[path = "../events.rs"]
mod events;
#[path = "../flow.rs"]
mod flow;
#[path = "../groups.rs"]
mod groups;
#[path = "../life.rs"]
mod life;
#[path = "../limits.rs"]
mod limits;
#[path = "../newer.rs"]
mod newer;
#[path = "../reclaim.rs"]
mod reclaim;
#[path = "../repeat.rs"]
mod repeat;
#[path = "../replay.rs"]
mod replay;
#[path = "../reshard.rs"]
mod reshard;
#[path = "../rules.rs"]
mod rules;
#[path = "../schedule.rs"]
mod schedule;
#[path = "../upkeep.rs"]
mod upkeep;

#[test]
fn no_test_of_the_engine_is_left_out() {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).unwrap();
    for file in files.flatten() {
        let name = file.file_name().into_string().unwrap();
        let is_test = file.path().extension().is_some_and(|extension| extension == "rs");
        assert!(!is_test || include_str!("main.rs").contains(&name), "{name} is missing here");
    }
}
