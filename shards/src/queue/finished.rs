//! The jobs of a queue that have come to one kind of end, in the order in which they did.
//!
//! In life each joins the back of a list. After a restart a job may be told of late, because its
//! records were written again: those are kept apart, in a tree, until they leave.

use crate::collections::slab::{List, NONE};
use crate::job::{InQueue, Jobs, flags};
use std::collections::BTreeMap;

/// Jobs of one queue in the order of their ends.
pub struct Ended {
    list: List<InQueue>,
    out_of_order: BTreeMap<u64, u32>,
    /// How far a walk has come that goes on: the next job of the list, and no stray before this place.
    next_listed: u32,
    next_order: u64,
}

impl Default for Ended {
    fn default() -> Self {
        let (list, out_of_order) = (List::default(), BTreeMap::new());
        Self { list, out_of_order, next_listed: NONE, next_order: 0 }
    }
}

impl Ended {
    /// The job that has been here for longest.
    pub fn front(&self, jobs: &Jobs) -> Option<u32> {
        match (self.list.front(), self.out_of_order.first_key_value()) {
            (Some(listed), Some((&order, _))) if jobs.end_order(listed) < order => Some(listed),
            (listed, unlisted) => unlisted.map(|(_, &index)| index).or(listed),
        }
    }

    /// Whatever comes to its end from now on comes at this place or behind it.
    pub fn end(&self, jobs: &Jobs) -> u64 {
        let listed = self.list.back().map(|back| jobs.end_order(back));
        let unlisted = self.out_of_order.last_key_value().map(|(&order, _)| order);
        listed.max(unlisted).map_or(0, |last| last + 1)
    }

    /// Adds a job, whose outcome is set.
    pub fn insert(&mut self, jobs: &mut Jobs, index: u32) {
        let order = jobs.end_order(index);
        let in_order = self.list.back().is_none_or(|back| jobs.end_order(back) < order);
        if in_order {
            self.list.push_back(&mut jobs.slab, index);
            return;
        }
        jobs.slab[index].flags |= flags::OUT_OF_ORDER;
        let before = self.out_of_order.insert(order, index);
        assert!(before.is_none(), "one record ends one job");
    }

    /// Takes a job out, whose outcome is still set.
    pub fn remove(&mut self, jobs: &mut Jobs, index: u32) {
        if !jobs.slab[index].has(flags::OUT_OF_ORDER) {
            if index == self.next_listed {
                self.next_listed = List::<InQueue>::after(&jobs.slab, index).unwrap_or(NONE);
            }
            self.list.remove(&mut jobs.slab, index);
            return;
        }
        jobs.slab[index].flags &= !flags::OUT_OF_ORDER;
        self.out_of_order.remove(&jobs.end_order(index));
    }

    /// Begins a walk over all that are here now, oldest end first. There is one at a time.
    pub fn begin_walk(&mut self) {
        (self.next_listed, self.next_order) = (self.list.front().unwrap_or(NONE), 0);
    }

    /// The next job of the walk. What comes or goes meanwhile changes nothing for the others.
    pub fn walk_on(&mut self, jobs: &Jobs) -> Option<u32> {
        let listed = (self.next_listed != NONE).then_some(self.next_listed);
        let listed = listed.map(|index| (jobs.end_order(index), index));
        let unlisted = self.out_of_order.range(self.next_order..).next();
        let unlisted = unlisted.map(|(&order, &index)| (order, index));
        let (order, index) = match (listed, unlisted) {
            (Some(listed), Some(unlisted)) => listed.min(unlisted),
            (listed, unlisted) => listed.or(unlisted)?,
        };
        if listed == Some((order, index)) {
            self.next_listed = List::<InQueue>::after(&jobs.slab, index).unwrap_or(NONE);
        }
        self.next_order = order + 1;
        Some(index)
    }

    /// All of them, oldest end first.
    pub fn iter<'a>(&'a self, jobs: &'a Jobs) -> impl Iterator<Item = u32> + 'a {
        let mut next = self.list.front();
        let mut out_of_order = self.out_of_order.iter().peekable();
        std::iter::from_fn(move || {
            let unlisted = out_of_order.peek().map(|&(&order, &index)| (order, index));
            match (next, unlisted) {
                (Some(listed), None) => {
                    next = List::<InQueue>::after(&jobs.slab, listed);
                    Some(listed)
                }
                (Some(listed), Some((order, _))) if jobs.end_order(listed) < order => {
                    next = List::<InQueue>::after(&jobs.slab, listed);
                    Some(listed)
                }
                (_, unlisted) => {
                    out_of_order.next();
                    unlisted.map(|(_, index)| index)
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collections::hash_key::HashKey;
    use crate::job::id::{Chance, JobId};
    use crate::job::{Job, Outcome, State};

    #[test]
    fn the_order_is_that_of_the_ends_however_they_are_told() {
        for seed in 0..100 {
            let mut chance = Chance::new(seed);
            let (mut jobs, mut ended) = (Jobs::new(HashKey::new(1)), Ended::default());
            let mut model = BTreeMap::new();
            for step in 0..200_u64 {
                let dice = chance.draw();
                if dice.is_multiple_of(3)
                    && let Some(&order) = model.keys().nth(dice as usize / 3 % 40)
                {
                    let index = model.remove(&order).unwrap_or_default();
                    ended.remove(&mut jobs, index);
                    jobs.outcomes.remove(jobs.slab[index].detail);
                    jobs.slab[index].detail = crate::collections::slab::NONE;
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

    /// Guards against a slice that begins where a job has gone, and a job that is met twice.
    #[test]
    fn a_walk_meets_everybody_who_stays_once_and_in_order() {
        for seed in 0..200 {
            let mut chance = Chance::new(seed);
            let (mut jobs, mut ended) = (Jobs::new(HashKey::new(1)), Ended::default());
            let mut here = BTreeMap::new();
            let come = |jobs: &mut Jobs, ended: &mut Ended, order: u64| {
                let detail = jobs.outcomes.insert(Outcome { order, ..Outcome::default() });
                let (id, state) = (JobId(u128::from(order + 1) << 42), State::Failed);
                let index = jobs.insert(Job { id, detail, state, ..Job::default() });
                ended.insert(jobs, index);
                index
            };
            for step in 0..60_u64 {
                // Some are told of late.
                let order =
                    if chance.draw().is_multiple_of(4) { 2 * (step / 3) + 1 } else { 2 * step };
                if let std::collections::btree_map::Entry::Vacant(place) = here.entry(order) {
                    place.insert(come(&mut jobs, &mut ended, order));
                }
            }
            let mut stay = here.clone();
            ended.begin_walk();
            let mut met = Vec::new();
            let mut late = 1000;
            while let Some(index) = ended.walk_on(&jobs) {
                let order = jobs.end_order(index);
                assert!(
                    met.last().is_none_or(|&last| last < order),
                    "seed {seed}: {met:?}, {order}"
                );
                met.push(order);
                let gone = here.keys().nth(chance.draw() as usize % here.len()).copied();
                if let Some(order) = gone.filter(|_| chance.draw().is_multiple_of(2)) {
                    let index = here.remove(&order).unwrap_or_default();
                    stay.remove(&order);
                    ended.remove(&mut jobs, index);
                    jobs.outcomes.remove(jobs.slab[index].detail);
                    jobs.slab[index].detail = NONE;
                    jobs.remove(index);
                }
                if chance.draw().is_multiple_of(5) && late < 1010 {
                    late += 1;
                    here.insert(late, come(&mut jobs, &mut ended, late));
                }
            }
            assert!(stay.keys().all(|order| met.contains(order)), "seed {seed}: {met:?}");
        }
    }
}
