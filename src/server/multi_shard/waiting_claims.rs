//! Who waits at a custom id that a push has claimed, until it is known what comes of that.

use crate::protocol::large::KeptFrame;
use crate::server::shard_mail::envelope::{Origin, Step};
use crate::server::shard_mail::request_context::Lookup;
use std::collections::{BTreeMap, VecDeque};

/// Names that are looked at in about the time of a step.
pub(super) const NAMES_PER_STEP: usize = 8;

/// A push that waits until another one says what came of a name that both want.
#[derive(Debug)]
pub struct WaitingClaim {
    pub(super) step: Step,
    pub(super) names: Vec<Box<str>>,
    /// The name that is looked at first: the one that it has waited for last.
    pub(super) first: usize,
    /// The jobs that bear some of the names are still there, as far as could be known when it came.
    pub(super) sounded: bool,
    /// The jobs that bear some of the names have to be on the disk before the push is answered.
    pub(super) durable: bool,
}

impl WaitingClaim {
    /// The place of a name that another push has claimed, if there is one, and how many were looked at. Looked for where the
    /// last one was found: of many that are claimed, it is mostly one close by.
    pub(super) fn claimed_by_others(
        &self,
        is_claimed: impl Fn(&str) -> bool,
    ) -> (Option<usize>, usize) {
        let count = self.names.len();
        let places = (self.first..count).chain(0..self.first);
        let mut looks = 0;
        let found = places.inspect(|_| looks += 1).find(|&place| is_claimed(&self.names[place]));
        (found, looks)
    }
}

/// Who waits until it is known what comes of a name that a push has claimed.
#[derive(Debug)]
pub enum WaitingForName {
    /// Another push that wants the name.
    Claim(WaitingClaim),
    /// A command about the job of that name. Its client may know already that the job was pushed.
    Command {
        /// Who asked.
        origin: Origin,
        /// The command.
        frame: KeptFrame,
        /// How far its name has been looked up.
        lookup: Lookup,
    },
}

/// Pushes and commands that wait for a name, each push with the first of its names that another one has claimed: what
/// becomes of that name concerns no others.
#[derive(Debug, Default)]
pub struct WaitingClaims {
    by_name: BTreeMap<Box<str>, VecDeque<WaitingForName>>,
    /// Names for which some wait and of which it has been said what came of them.
    free: VecDeque<Box<str>>,
}

impl WaitingClaims {
    pub(super) fn push(&mut self, name: Box<str>, waiting: WaitingForName) {
        self.by_name.entry(name).or_default().push_back(waiting);
    }

    /// Whether some can go on.
    pub fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Notes that a claim on a name has ended: pushes that wait for the name go on, a few in each turn.
    pub(super) fn note_free(&mut self, name: &str) {
        if self.by_name.contains_key(name) {
            self.free.push_back(name.into());
        }
    }

    /// The one that has waited for a free name for longest. Of a name that is claimed again no more go on.
    pub(super) fn pop(&mut self, is_claimed: impl Fn(&str) -> bool) -> Option<WaitingForName> {
        loop {
            let name = self.free.front()?;
            let waiting = self.by_name.get_mut(name).filter(|_| !is_claimed(name));
            let first = waiting.and_then(VecDeque::pop_front);
            if first.is_some() {
                return first;
            }
            if self.by_name.get(name).is_some_and(VecDeque::is_empty) {
                self.by_name.remove(name);
            }
            self.free.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn claim(names: usize) -> WaitingClaim {
        let names = (0..names).map(|name| format!("n{name:05}").into()).collect();
        let step = Step { shard: 0, task: 0, round: 0 };
        WaitingClaim { step, names, first: 0, sounded: false, durable: false }
    }

    /// The fear: each name that others let go of costs a look at all that come before the next.
    #[test]
    fn a_claim_whose_names_come_free_one_by_one_looks_at_each_about_once() {
        let mut claim = claim(2000);
        let mut taken: BTreeSet<Box<str>> = claim.names.iter().cloned().collect();
        let mut looks_in_all = 0;
        while let (Some(place), looks) = claim.claimed_by_others(|name| taken.contains(name)) {
            looks_in_all += looks;
            claim.first = place;
            taken.remove(&claim.names[place]);
        }
        assert!(taken.is_empty() && looks_in_all <= 2 * claim.names.len(), "{looks_in_all}");
    }

    #[test]
    fn claims_that_wait_for_a_name_go_on_in_their_order_until_one_has_it() {
        let mut waiting = WaitingClaims::default();
        for first in 0..3 {
            waiting.push("a".into(), WaitingForName::Claim(WaitingClaim { first, ..claim(3) }));
        }
        let first = |waiting: &mut WaitingClaims| match waiting.pop(|_| false)? {
            WaitingForName::Claim(claim) => Some(claim.first),
            WaitingForName::Command { .. } => None,
        };
        assert!(!waiting.has_free() && first(&mut waiting).is_none());
        waiting.note_free("b");
        assert!(!waiting.has_free(), "none waits for it");
        waiting.note_free("a");
        assert_eq!(first(&mut waiting), Some(0));
        assert_eq!(first(&mut waiting), Some(1));
        assert!(waiting.pop(|_| true).is_none() && !waiting.has_free(), "it is claimed again");
        waiting.note_free("a");
        assert_eq!(first(&mut waiting), Some(2));
        assert!(first(&mut waiting).is_none() && waiting.by_name.is_empty());
    }
}
