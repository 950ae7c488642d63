//! A queue of work of many clients. The oldest entry is next, and the entries of a client are found without a look at
//! what others have: thousands of connections that end together would otherwise each go over the work of all.
//!
//! A ground type: it imports nothing of the server.

use corq_shards::command::ClientId;
use std::collections::{BTreeMap, BTreeSet};

/// Entries in the order of their turns, each of a client.
#[derive(Debug)]
pub struct TurnQueue<T> {
    /// By their places in the queue.
    entries: BTreeMap<i64, (ClientId, T)>,
    /// The clients of all entries, with the places.
    places: BTreeSet<(u64, i64)>,
}

impl<T> Default for TurnQueue<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), places: BTreeSet::new() }
    }
}

impl<T> TurnQueue<T> {
    /// Puts an entry behind all others.
    pub fn push_back(&mut self, client: ClientId, entry: T) {
        let place = self.entries.last_key_value().map_or(0, |(last, _)| last + 1);
        self.insert(place, client, entry);
    }

    /// Puts an entry before all others.
    pub fn push_front(&mut self, client: ClientId, entry: T) {
        let place = self.entries.first_key_value().map_or(0, |(first, _)| first - 1);
        self.insert(place, client, entry);
    }

    fn insert(&mut self, place: i64, client: ClientId, entry: T) {
        self.entries.insert(place, (client, entry));
        self.places.insert((client.0, place));
    }

    /// The entry whose turn it is.
    pub fn pop_front(&mut self) -> Option<T> {
        let (place, (client, entry)) = self.entries.pop_first()?;
        self.places.remove(&(client.0, place));
        Some(entry)
    }

    /// Takes out those entries of a client that are meant, in their order.
    pub fn take_of(&mut self, client: ClientId, is_meant: impl Fn(&T) -> bool) -> Vec<T> {
        let of_client = self.places.range((client.0, i64::MIN)..=(client.0, i64::MAX));
        let is_meant = |place: &i64| self.entries.get(place).is_some_and(|(_, it)| is_meant(it));
        let places: Vec<i64> = of_client.map(|(_, place)| *place).filter(is_meant).collect();
        let mut taken = Vec::with_capacity(places.len());
        for place in places {
            self.places.remove(&(client.0, place));
            taken.extend(self.entries.remove(&place).map(|(_, entry)| entry));
        }
        taken
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(queue: &mut TurnQueue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop_front()).collect()
    }

    #[test]
    fn entries_have_their_turns_in_order_and_one_may_come_first_again() {
        let mut queue = TurnQueue::default();
        (0..4).for_each(|entry| queue.push_back(ClientId(u64::from(entry) % 2), entry));
        let first = queue.pop_front().unwrap_or_default();
        queue.push_front(ClientId(0), first);
        let second = queue.pop_front().unwrap_or_default();
        queue.push_back(ClientId(0), second);
        assert_eq!(queue.len(), 4);
        assert_eq!((all(&mut queue), queue.is_empty()), (vec![1, 2, 3, 0], true));
        assert!(queue.places.is_empty());
    }

    #[test]
    fn what_a_client_has_is_taken_out_and_all_else_keeps_its_turn() {
        let mut queue = TurnQueue::default();
        (0..9).for_each(|entry| queue.push_back(ClientId(u64::from(entry) % 3), entry));
        assert_eq!(queue.take_of(ClientId(1), |entry| *entry != 4), [1, 7]);
        assert_eq!(queue.take_of(ClientId(5), |_| true), [0; 0]);
        assert_eq!(queue.take_of(ClientId(2), |_| true), [2, 5, 8]);
        assert_eq!(all(&mut queue), [0, 3, 4, 6]);
        assert!(queue.places.is_empty());
    }
}
