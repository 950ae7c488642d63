//! The line of clients that come back. Finding what a client has missed takes a look at each kept event of each shard, and
//! a comparison with each pattern of its choice; thousands come back at once after a proxy has restarted. So only those
//! whose looks fit within [`LOOKS_MAX`] are looked for at a time, and one at least; the others keep their place and are sent
//! nothing yet.
//!
//! A client is in the line once, under the number of its subscription, until its stream begins or it has gone: the line is
//! as long as there are connections.

use std::collections::{BTreeMap, VecDeque};

/// Most looks for clients that the shards have been asked for and that have not begun.
const LOOKS_MAX: usize = 50_000;

/// Clients that came back and whose streams have not begun, by the numbers of their subscriptions.
#[derive(Debug, Default)]
pub(super) struct Returns {
    /// Each with its place in the table of clients, and its looks.
    waiting: BTreeMap<u64, (u32, usize)>,
    /// Clients whose events the shards have been asked for, with their looks.
    asked: BTreeMap<u64, usize>,
    /// Sum of the looks in `asked`.
    looks: usize,
    /// Clients for whom all shards have answered, and since when they wait to be looked for.
    heard: VecDeque<Heard>,
}

/// A client whose events are known, but not which of them it is owed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Heard {
    /// The number of the client's subscription.
    pub(super) time: u64,
    /// The client's place in the table of clients.
    pub(super) key: u32,
    pub(super) since_ms: u64,
}

impl Returns {
    pub(super) fn wait(&mut self, time: u64, key: u32, looks: usize) {
        self.waiting.insert(time, (key, looks));
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the first may go on.
    pub(super) fn is_open(&self) -> bool {
        let first = self.waiting.first_key_value();
        first
            .is_some_and(|(_, (_, looks))| self.asked.is_empty() || self.looks + looks <= LOOKS_MAX)
    }

    /// The first, if it may go on: its subscription, and its place in the table of clients.
    pub(super) fn next(&mut self) -> Option<(u64, u32)> {
        if !self.is_open() {
            return None;
        }
        let (time, (key, looks)) = self.waiting.pop_first()?;
        self.asked.insert(time, looks);
        self.looks += looks;
        Some((time, key))
    }

    /// All shards have said what they have kept for a client.
    pub(super) fn hear(&mut self, heard: Heard) {
        self.heard.push_back(heard);
    }

    /// The first of those.
    pub(super) fn first_heard(&self) -> Option<Heard> {
        self.heard.front().copied()
    }

    /// A stream begins, or its client has gone.
    pub(super) fn end(&mut self, time: u64) {
        self.waiting.remove(&time);
        self.heard.retain(|other| other.time != time);
        self.looks -= self.asked.remove(&time).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_whose_looks_fit_go_on_in_their_order_and_the_others_after_them() {
        let mut returns = Returns::default();
        for time in 0..1000 {
            returns.wait(time, time as u32, LOOKS_MAX / 10);
        }
        let mut gone_on = 0;
        while returns.waiting() > 0 {
            let now: Vec<u64> =
                std::iter::from_fn(|| returns.next()).map(|(time, _)| time).collect();
            assert_eq!(now, (gone_on..gone_on + 10).collect::<Vec<_>>());
            assert!(returns.looks <= LOOKS_MAX && !returns.is_open());
            gone_on += 10;
            for time in now {
                returns.end(time);
            }
        }
        assert_eq!((returns.looks, returns.asked.len()), (0, 0));
    }

    #[test]
    fn one_that_is_too_much_alone_goes_on_alone_and_who_has_gone_holds_none_up() {
        let mut returns = Returns::default();
        for time in 0..4 {
            returns.wait(time, 0, LOOKS_MAX * 2);
        }
        returns.end(0);
        assert_eq!((returns.next(), returns.next()), (Some((1, 0)), None));
        returns.end(2);
        assert_eq!(returns.next(), None);
        returns.end(1);
        assert_eq!((returns.next(), returns.waiting()), (Some((3, 0)), 0));
        let heard = Heard { time: 3, key: 0, since_ms: 0 };
        returns.hear(heard);
        assert_eq!(returns.first_heard(), Some(heard));
        returns.end(3);
        assert_eq!(returns.first_heard(), None);
        assert!(returns.looks == 0 && !returns.is_open());
    }
}
