//! The parts of a state that cannot matter any more, which are left out of it, so that states that differ in nothing else are
//! searched once.

use super::rules::Rules;
use super::state::{Life, State, Watch};

/// Leaves out what cannot matter any more.
pub fn reduce(rules: &Rules, state: &mut State) {
    beats(state);
    for of in 0..2 {
        // On one primary epochs only rise and rows only come: a statement that does not fit now never will.
        state.nodes[of].late = state.nodes[of].late.filter(|late| rules.fits(state, *late));
        let node = &mut state.nodes[of];
        if node.life == Life::Ended && state.processes == rules.bounds.processes {
            // No process comes that could read them: they are only looked through for what was acknowledged.
            node.claim = 0;
            for (content, acknowledged) in node.files.iter_mut().zip(state.acknowledged) {
                *content = if *content == acknowledged { *content } else { 0 };
            }
        }
    }
    for database in [Some(&mut state.primary), state.standby.as_mut()].into_iter().flatten() {
        // Epochs rise along the rows: the next row's is compared with that of the last one.
        let last = database.count().saturating_sub(1);
        database.rows[..last].iter_mut().for_each(|row| row.epoch = 0);
    }
}

/// Beats are compared and never measured: 0 is that of the primary, 1 another one of the standby. The watch of any other one
/// can never come true, and neither can that of a node which is not the owner, since the next owner has beaten in between.
fn beats(state: &mut State) {
    for of in 0..2 {
        let there = state.primary.members[of].beat;
        let kept = state.standby.map(|standby| standby.members[of].beat);
        let is_owner = state.primary.part.owner == Some(of as u8);
        let watch = state.nodes[1 - of].watch.filter(|_| is_owner);
        state.nodes[1 - of].watch = watch.and_then(|watch| match watch.beat {
            beat if beat == there => Some(Watch { beat: 0, ..watch }),
            beat if Some(beat) == kept => Some(Watch { beat: 1, ..watch }),
            _ => None,
        });
        if let Some(standby) = &mut state.standby {
            standby.members[of].beat = u8::from(kept != Some(there));
        }
        state.primary.members[of].beat = 0;
    }
}
