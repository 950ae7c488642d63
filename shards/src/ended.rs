//! The jobs of a queue that have come to one kind of end, in the order in which they did.
//!
//! In life each joins the back of a list. After a restart a job may be told of late, because its
//! records were written again: those are kept apart, in a tree, until they leave.

use crate::job::{InQueue, Jobs, flags};
use crate::slab::List;
use std::collections::BTreeMap;

/// See the module.
#[derive(Default)]
pub struct Ended {
    list: List<InQueue>,
    strays: BTreeMap<u64, u32>,
}

impl Ended {
    /// The job that has been here for longest.
    pub fn front(&self, jobs: &Jobs) -> Option<u32> {
        match (self.list.front(), self.strays.first_key_value()) {
            (Some(listed), Some((&order, _))) if jobs.end_order(listed) < order => Some(listed),
            (listed, stray) => stray.map(|(_, &index)| index).or(listed),
        }
    }

    /// Adds a job, whose outcome is set.
    pub fn insert(&mut self, jobs: &mut Jobs, index: u32) {
        let order = jobs.end_order(index);
        let in_order = self.list.back().is_none_or(|back| jobs.end_order(back) < order);
        if in_order {
            self.list.push_back(&mut jobs.slab, index);
            return;
        }
        jobs.slab[index].flags |= flags::STRAY;
        let before = self.strays.insert(order, index);
        assert!(before.is_none(), "one record ends one job");
    }

    /// Takes a job out, whose outcome is still set.
    pub fn remove(&mut self, jobs: &mut Jobs, index: u32) {
        if !jobs.slab[index].has(flags::STRAY) {
            self.list.remove(&mut jobs.slab, index);
            return;
        }
        jobs.slab[index].flags &= !flags::STRAY;
        self.strays.remove(&jobs.end_order(index));
    }

    /// All of them, oldest end first.
    pub fn iter<'a>(&'a self, jobs: &'a Jobs) -> impl Iterator<Item = u32> + 'a {
        let mut next = self.list.front();
        let mut strays = self.strays.iter().peekable();
        std::iter::from_fn(move || {
            let stray = strays.peek().map(|&(&order, &index)| (order, index));
            match (next, stray) {
                (Some(listed), None) => {
                    next = List::<InQueue>::after(&jobs.slab, listed);
                    Some(listed)
                }
                (Some(listed), Some((order, _))) if jobs.end_order(listed) < order => {
                    next = List::<InQueue>::after(&jobs.slab, listed);
                    Some(listed)
                }
                (_, stray) => {
                    strays.next();
                    stray.map(|(_, index)| index)
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Chance, JobId};
    use crate::job::{Job, Outcome, State};

    #[test]
    fn the_order_is_that_of_the_ends_however_they_are_told() {
        for seed in 0..100 {
            let mut chance = Chance::new(seed);
            let (mut jobs, mut ended) = (Jobs::default(), Ended::default());
            let mut model = BTreeMap::new();
            for step in 0..200_u64 {
                let dice = chance.draw();
                if dice.is_multiple_of(3)
                    && let Some(&order) = model.keys().nth(dice as usize / 3 % 40)
                {
                    let index = model.remove(&order).unwrap_or_default();
                    ended.remove(&mut jobs, index);
                    jobs.outcomes.remove(jobs.slab[index].detail);
                    jobs.slab[index].detail = crate::slab::NONE;
                    jobs.remove(index);
                } else {
                    let late = chance.draw() % 4 * (chance.draw() % 30);
                    let order = (step * 2).saturating_sub(late * 2) | u64::from(late > 0);
                    if model.contains_key(&order) {
                        continue;
                    }
                    let detail = jobs.outcomes.insert(Outcome { order, ..Outcome::default() });
                    let id = JobId(u128::from(step + 1) << 42);
                    let state = State::Failed;
                    let index = jobs.insert(Job { id, detail, state, ..Job::default() });
                    ended.insert(&mut jobs, index);
                    model.insert(order, index);
                }
                let found: Vec<u32> = ended.iter(&jobs).collect();
                assert_eq!(found, model.values().copied().collect::<Vec<_>>(), "seed {seed}");
                assert_eq!(ended.front(&jobs), found.first().copied());
            }
        }
    }
}
