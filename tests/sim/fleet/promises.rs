//! The promises, which are checked in every state.

use super::rules::{Flaw, Rules};
use super::state::{OTHER_BYTES, ROWS, State};

/// Notes what the nodes have acknowledged. A reply leaves at any time at which its row is known to be stored and the lease is
/// good: the first such moment promises the most.
pub fn acknowledge(rules: &Rules, state: &mut State) {
    for node in state.nodes.iter().filter(|node| rules.speaks(node) && !node.undone) {
        let is_early = rules.has(Flaw::EarlyReply);
        let known = if is_early { node.count() } else { usize::from(node.stored.max(node.said)) };
        for (acknowledged, content) in state.acknowledged.iter_mut().zip(&node.files[..known]) {
            if *acknowledged == 0 {
                *acknowledged = *content;
            }
        }
    }
}

/// Excuses acknowledged rows that are lost with their owner: the database has gone back behind them, and they are not `kept` in
/// files from which they could be put back.
pub fn excuse(rules: &Rules, state: &mut State, kept: impl Fn(&State, usize) -> bool) {
    if rules.is_synchronous() || !state.promoted {
        return;
    }
    for place in 0..ROWS {
        let is_there = state.primary.rows[place].content == state.acknowledged[place];
        if !is_there && !kept(state, place) {
            state.acknowledged[place] = 0;
        }
    }
}

/// The promise that is broken, if one is.
pub fn broken(rules: &Rules, state: &State) -> Option<&'static str> {
    let speakers = || {
        let excused = |undone: bool| undone && rules.excuses_undone;
        state.nodes.iter().filter(move |node| rules.speaks(node) && !excused(node.undone))
    };
    if speakers().count() > 1 || speakers().any(|node| node.claim < state.answered) {
        return Some("no node speaks once another has claimed");
    }
    let acknowledged =
        || (0..ROWS).map(|place| (place, state.acknowledged[place])).filter(|(_, it)| *it != 0);
    if speakers().any(|node| acknowledged().any(|(place, it)| node.files[place] != it)) {
        return Some("the node that speaks has every acknowledged row");
    }
    for (place, content) in acknowledged() {
        let there = state.primary.rows[place].content;
        let may_be_put_back = !rules.is_synchronous() && state.promoted && there == 0;
        let is_in_files = || state.nodes.iter().any(|node| node.files[place] == content);
        if there != content && !(may_be_put_back && is_in_files()) {
            return Some("an acknowledged row is at its place");
        }
        let kept = state.standby.filter(|_| rules.is_synchronous());
        if kept.is_some_and(|kept| kept.rows[place].content != content) {
            return Some("a synchronous standby has every acknowledged row");
        }
    }
    for two in state.primary.rows.windows(2).filter(|two| two[1].content != 0) {
        if two[0].content == 0 || two[0].content != two[1].after {
            return Some("a row stands behind the one that it was written behind");
        }
        let [before, behind] = [two[0], two[1]].map(|row| row.content % OTHER_BYTES);
        if before > behind {
            return Some("no row of an older claim stands behind one of a newer");
        }
    }
    state.is_stale.then_some("no row is stored under an older claim")
}
