//! An exhaustive model of the rules by which the log of a shard lies in a database: who may append to it, and who may speak for
//! it. Two nodes, one log, a database and its standby; every order of what can happen to them, within small bounds. The fear is
//! the order that no test of real processes meets.
//!
//! | file | responsibility |
//! |---|---|
//! | `promises` | what must hold in every state |
//! | `reduction` | what of a state cannot matter any more |
//! | `rules` | the rules, the flaws that are planted in them, the bounds |
//! | `search` | the search, and the way to a broken promise |
//! | `state` | a moment of a fleet |
//! | `steps` | all that can happen next |
//!
//! A rule of the product that changes is to change here, too. Left out are the tables of a log, rows that are put back as fewer
//! and longer ones, clocks that do not run equally fast, and a database that goes back twice.

mod promises;
mod reduction;
mod rules;
mod search;
mod state;
mod steps;

use rules::{Bounds, Flaw, Rules, Standby};
use search::search;

const BOUNDS: Bounds = Bounds { rows: 3, claims: 3, processes: 3 };

/// Steps that a search must have taken, so that no mistake in a rule or a bound makes it one of nothing.
const TAKEN: &[&str] = &[
    "beats, and may speak again",
    "beats, was declared dead and ends",
    "claims, and copies the rows",
    "claims, and keeps the tail of its files",
    "claims, cuts its files and copies the rows",
    "finds itself fenced, and ends",
    "finds that its append was not stored",
    "finds that its append was stored",
    "has its late append carried out",
    "puts a row of its files back",
];

/// Searches everything and finds no broken promise, but so many states at least, and these steps on the way.
fn holds(standby: Standby, bounds: Bounds, states_min: usize, also: &str) {
    let found = search(Rules { standby, flaw: Flaw::None, bounds, excuses_undone: true });
    println!("{} states", found.states);
    if let Some(violation) = found.violation {
        panic!("{violation}");
    }
    assert!(found.states >= states_min, "only {} states", found.states);
    for step in [TAKEN, &[also]].concat() {
        assert!(found.taken.contains(step), "no node {step}");
    }
}

#[test]
fn a_synchronous_fleet_loses_nothing_and_never_speaks_twice() {
    let bounds = Bounds { processes: 4, ..BOUNDS };
    holds(Standby::Synchronous, bounds, 1_400_000, "cannot find out what became of its append");
}

#[test]
fn an_asynchronous_fleet_loses_nothing_but_with_its_owner() {
    holds(Standby::Asynchronous, BOUNDS, 1_500_000, "finds that the database has gone back");
}

/// Documents a limit: a node whose claim has gone with the primary speaks until its next beat asks for the claim.
#[test]
fn an_asynchronous_database_that_loses_a_claim_has_two_speakers_for_a_while() {
    let rules = Rules {
        standby: Standby::Asynchronous,
        flaw: Flaw::None,
        bounds: BOUNDS,
        excuses_undone: false,
    };
    let violation = search(rules).violation.map(|it| it.promise);
    assert_eq!(violation, Some("no node speaks once another has claimed"));
}

/// The flaw breaks a promise, and this one first.
fn sees(standby: Standby, flaw: Flaw, promise: &str) {
    let found = search(Rules { standby, flaw, bounds: BOUNDS, excuses_undone: true });
    let Some(violation) = found.violation else { panic!("{flaw:?} was never seen") };
    println!("{flaw:?}, {} states: {violation}", found.states);
    assert_eq!(violation.promise, promise, "{violation}");
}

macro_rules! canaries {
    ($($name:ident: $standby:ident $flaw:ident breaks $promise:literal;)*) => {
        $(#[test] fn $name() { sees(Standby::$standby, Flaw::$flaw, $promise); })*
    };
}

canaries! {
    canary_an_outcome_that_is_settled_by_a_read_is_seen:
        Synchronous SettlesByRead breaks "a synchronous standby has every acknowledged row";
    canary_a_look_behind_the_write_that_settles_is_seen:
        Synchronous LooksBehindWrite breaks "a synchronous standby has every acknowledged row";
    canary_a_warning_that_is_taken_for_a_commit_is_seen:
        Synchronous WarningIsCommit breaks "a synchronous standby has every acknowledged row";
    canary_other_bytes_after_an_unknown_outcome_are_seen:
        Synchronous OtherBytes breaks "an acknowledged row is at its place";
    canary_an_append_that_does_not_ask_for_the_row_before_is_seen:
        Asynchronous NoChain breaks "a row stands behind the one that it was written behind";
    canary_an_append_that_does_not_ask_for_the_claim_is_seen:
        Synchronous NoFence breaks "no row is stored under an older claim";
    canary_a_claim_that_changes_nothing_is_seen:
        Synchronous SameFence breaks "no row is stored under an older claim";
    canary_claims_with_the_epoch_of_a_lost_one_are_seen:
        Asynchronous EpochAlone breaks "no row is stored under an older claim";
    canary_a_death_with_the_epoch_of_a_lost_claim_is_seen:
        Asynchronous DeathKeepsNonce breaks "no row is stored under an older claim";
    canary_a_reply_before_the_commit_is_seen:
        Synchronous EarlyReply breaks "an acknowledged row is at its place";
    canary_a_reply_of_rows_that_were_in_the_files_is_seen:
        Synchronous SpeaksOfTail breaks "an acknowledged row is at its place";
    canary_a_node_that_speaks_without_a_lease_is_seen:
        Synchronous NoSelfFence breaks "no node speaks once another has claimed";
    canary_a_lease_from_the_answer_on_is_seen:
        Synchronous LeaseFromAnswer breaks "no node speaks once another has claimed";
    canary_a_beat_of_a_node_that_was_declared_dead_is_seen:
        Synchronous BeatOfTheDead breaks "no node speaks once another has claimed";
    canary_an_end_that_speaks_without_a_lease_is_seen:
        Synchronous SpeaksAtEnd breaks "no node speaks once another has claimed";
    canary_a_death_before_the_end_of_the_lease_is_seen:
        Synchronous HastyDeath breaks "no node speaks once another has claimed";
    canary_a_watch_over_two_connections_is_seen:
        Asynchronous WatchGoesOn breaks "no node speaks once another has claimed";
    canary_a_watch_from_before_the_question_is_seen:
        Synchronous WatchFromQuestion breaks "no node speaks once another has claimed";
    canary_a_tail_behind_rows_of_another_node_is_seen:
        Synchronous KeepsAnyTail breaks "no row of an older claim stands behind one of a newer";
    canary_a_tail_that_is_cut_off_is_seen:
        Asynchronous KeepsNoTail breaks "an acknowledged row is at its place";
    canary_rows_that_are_not_put_back_are_seen:
        Asynchronous PutsNothingBack breaks "the node that speaks has every acknowledged row";
}
