//! Names that clients give to kinds of jobs ("send-mail"): a queue has few such names and many jobs, so each is held
//! once per queue, and a job says which one is its own in a byte that it has to spare.
//!
//! A queue with more names than fit a byte has the others beside the options of each job. Knows texts and
//! numbers; which job has which is not known here.

use crate::collections::count::Count;
use crate::collections::hash_key::HashKey;
use crate::collections::table::Table;

/// Names that a queue holds once. Further ones stand with each job.
pub const NAMES_MAX: usize = 254;

/// Which name of its queue a job has. The default is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NameRef(u8);

impl NameRef {
    /// The name stands with the job's options.
    pub const APART: Self = Self(u8::MAX);

    fn place(self) -> Option<usize> {
        (self.0 != 0 && self != Self::APART).then(|| usize::from(self.0) - 1)
    }
}

#[derive(Debug, Default)]
struct Place {
    name: Box<str>,
    jobs: u64,
}

/// The names of one queue.
#[derive(Debug)]
pub struct JobNames {
    key: HashKey,
    places: Vec<Place>,
    /// Places without a job.
    free: Vec<u8>,
    by_name: Table<u8>,
    /// The place that was found last: most jobs follow one of the same name.
    last: u8,
}

impl JobNames {
    /// No names.
    pub fn new(key: HashKey) -> Self {
        let (places, free) = (Vec::new(), Vec::new());
        Self { key, places, free, by_name: Table::default(), last: 0 }
    }

    /// A job of this name comes.
    pub fn take(&mut self, name: &str) -> NameRef {
        let Some(place) = self.find(name).or_else(|| self.insert(name)) else {
            return NameRef::APART;
        };
        self.last = place;
        self.places[usize::from(place)].jobs += 1;
        NameRef(place + 1)
    }

    fn find(&self, name: &str) -> Option<u8> {
        let named = |place: u8| *self.places[usize::from(place)].name == *name;
        if self.places.get(usize::from(self.last)).is_some_and(|place| *place.name == *name) {
            return Some(self.last);
        }
        self.by_name.find(self.key.text(name), |&place| named(place)).copied()
    }

    fn insert(&mut self, name: &str) -> Option<u8> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.places.len() < NAMES_MAX => {
                self.places.push(Place::default());
                (self.places.len() - 1) as u8
            }
            None => return None,
        };
        self.places[usize::from(place)].name = name.into();
        let (key, places) = (self.key, &self.places);
        self.by_name
            .insert(key.text(name), place, |&other| key.text(&places[usize::from(other)].name));
        Some(place)
    }

    /// A job goes that had this name.
    pub fn release(&mut self, name: NameRef) {
        let Some(place) = name.place() else { return };
        self.places[place].jobs.take_out(1);
        if self.places[place].jobs > 0 {
            return;
        }
        let (key, places) = (self.key, &self.places);
        let hash_of = |&other: &u8| key.text(&places[usize::from(other)].name);
        let same = |&other: &u8| usize::from(other) == place;
        self.by_name.remove(hash_of(&(place as u8)), same, hash_of);
        self.places[place].name = Box::default();
        self.free.push(place as u8);
    }

    /// The text of a name that a job has.
    pub fn get(&self, name: NameRef) -> Option<&str> {
        name.place().map(|place| &*self.places[place].name)
    }

    /// How many jobs have each name, in no order.
    pub fn counts(&self) -> impl Iterator<Item = (&str, u64)> {
        let used = self.places.iter().filter(|place| place.jobs > 0);
        used.map(|place| (&*place.name, place.jobs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::id::Chance;
    use std::collections::BTreeMap;

    #[test]
    fn names_are_what_was_taken_and_those_that_nobody_has_cost_nothing() {
        let mut chance = Chance::new(7);
        let mut names = JobNames::new(HashKey::new(1));
        let mut held: Vec<(NameRef, String)> = Vec::new();
        for step in 0..20_000_u64 {
            let growing = (step / 4000).is_multiple_of(2);
            if chance.draw() % 10 < if growing { 7 } else { 3 } || held.is_empty() {
                let name = format!("name {}", chance.draw() % 400);
                held.push((names.take(&name), name));
            } else {
                let (name, _) = held.swap_remove(chance.draw() as usize % held.len());
                names.release(name);
            }
        }
        let mut counted = BTreeMap::new();
        for (name, text) in &held {
            if *name == NameRef::APART {
                assert_eq!(names.get(*name), None);
                continue;
            }
            assert_eq!(names.get(*name), Some(&**text));
            *counted.entry(&**text).or_insert(0) += 1;
        }
        assert_eq!(names.counts().collect::<BTreeMap<_, _>>(), counted);
        held.drain(..).for_each(|(name, _)| names.release(name));
        assert_eq!((names.counts().count(), names.by_name.len()), (0, 0));
        assert!(names.places.len() <= NAMES_MAX);
    }

    #[test]
    fn a_queue_with_more_names_than_it_holds_says_which_stand_apart() {
        let mut names = JobNames::new(HashKey::new(1));
        let held: Vec<NameRef> = (0..NAMES_MAX).map(|n| names.take(&n.to_string())).collect();
        assert!(!held.contains(&NameRef::APART));
        assert_eq!(names.take("one more"), NameRef::APART);
        assert_eq!(names.take("7"), held[7]);
        names.release(held[0]);
        assert_eq!(names.take("one more"), held[0]);
        assert_eq!(names.get(NameRef::default()), None);
    }
}
