//! The names under which workers pull, each held once for all jobs and waiting pulls that bear it: what people are shown of
//! who has a job. They decide nothing, stand in no record, and are gone after a restart.
//!
//! A name that is not used any more stays for a while, so that a worker with one job at a time costs no allocation for each.

use crate::collections::count::Count;
use crate::collections::slab::{NONE, Slab};
use std::collections::{BTreeMap, VecDeque};

/// Names without users that are kept.
const UNUSED_MAX: usize = 1000;

/// A use of a name, or of none. Each is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnerRef(u32);

impl Default for OwnerRef {
    fn default() -> Self {
        Self(NONE)
    }
}

#[derive(Default)]
struct Owner {
    name: Box<str>,
    users: u32,
    /// The name is in `Owners::unused`.
    unused: bool,
}

/// All names of a shard.
pub(crate) struct Owners {
    slab: Slab<Owner>,
    by_name: BTreeMap<Box<str>, u32>,
    /// Names that had no users at some time, oldest first: each once.
    unused: VecDeque<u32>,
    /// The last name that was used: most pulls repeat it.
    last: u32,
}

impl Owners {
    /// No names.
    pub(crate) fn new() -> Self {
        let (slab, by_name, unused) = (Slab::new(), BTreeMap::new(), VecDeque::new());
        Self { slab, by_name, unused, last: NONE }
    }

    /// Adds a use of a name.
    pub(crate) fn take(&mut self, name: Option<&str>) -> OwnerRef {
        let Some(name) = name else { return OwnerRef::default() };
        if self.last == NONE || *self.slab[self.last].name != *name {
            self.last = self.find_or_insert(name);
        }
        self.slab[self.last].users += 1;
        OwnerRef(self.last)
    }

    fn find_or_insert(&mut self, name: &str) -> u32 {
        if let Some(&known) = self.by_name.get(name) {
            return known;
        }
        let index = self.slab.insert(Owner { name: name.into(), ..Owner::default() });
        self.by_name.insert(name.into(), index);
        index
    }

    /// Adds a use of the name that another use has.
    pub(crate) fn again(&mut self, owner: OwnerRef) -> OwnerRef {
        if owner.0 != NONE {
            self.slab[owner.0].users += 1;
        }
        owner
    }

    /// Gives a use back.
    pub(crate) fn give_back(&mut self, owner: OwnerRef) {
        if owner.0 == NONE {
            return;
        }
        let about = &mut self.slab[owner.0];
        about.users.take_out(1);
        if about.users == 0 && !std::mem::replace(&mut about.unused, true) {
            self.unused.push_back(owner.0);
            if self.unused.len() > UNUSED_MAX {
                self.forget_oldest();
            }
        }
    }

    /// Forgets the name that has had no users for longest, if it still has none.
    #[cold]
    fn forget_oldest(&mut self) {
        let Some(oldest) = self.unused.pop_front() else { return };
        self.slab[oldest].unused = false;
        if self.slab[oldest].users > 0 {
            return;
        }
        if self.last == oldest {
            self.last = NONE;
        }
        self.by_name.remove(&*self.slab[oldest].name);
        self.slab.remove(oldest);
    }

    /// The name of a use.
    pub(crate) fn name(&self, owner: OwnerRef) -> Option<&str> {
        (owner.0 != NONE).then(|| &*self.slab[owner.0].name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_held_once_for_all_that_bear_it_and_few_that_no_one_bears_are_kept() {
        let mut owners = Owners::new();
        let none = owners.take(None);
        assert_eq!((none, owners.name(none)), (OwnerRef::default(), None));
        owners.give_back(none);
        let first = owners.take(Some("w"));
        let other = owners.take(Some("v"));
        assert_eq!((owners.take(Some("w")), owners.again(first)), (first, first));
        assert_eq!((owners.name(first), owners.name(other)), (Some("w"), Some("v")));
        for _ in 0..3 {
            owners.give_back(first);
        }
        for n in 0..3 * UNUSED_MAX {
            let one = owners.take(Some(&n.to_string()));
            owners.give_back(one);
            // A name that is used again and again is not made anew.
            let again = owners.take(Some("v"));
            assert_eq!(again, other);
            owners.give_back(again);
        }
        assert!(owners.slab.len() <= UNUSED_MAX + 1 && owners.unused.len() <= UNUSED_MAX);
        let back = owners.take(Some("w"));
        assert_eq!((owners.name(back), owners.name(other)), (Some("w"), Some("v")));
    }
}
