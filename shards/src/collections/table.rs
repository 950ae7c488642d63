//! A hash table that clients may fill: it never moves more than a few hundred entries at once, and it
//! gives its memory back as it empties.
//!
//! Linear hashing: the table is a row of small parts. For each so many entries more, one part is dealt
//! out to itself and a new one at the end; for each so many fewer, the last part joins the one that it
//! was dealt out of. Which part that is follows from the number of parts alone, so there is neither an
//! old and a new table nor a moment at which all entries move.
//!
//! Entries are found by a hash that the owner of the table makes with its [`HashKey`]: what is said here of
//! steps holds for hashes that clients cannot foresee. The order of entries says something of the key and
//! must decide nothing.
#![allow(clippy::disallowed_types)] // The parts are small: this is what bounds them.

use crate::caller::ClientId;
use crate::collections::chunked_vec::ChunkedVec;
use crate::collections::hash_key::HashKey;
use crate::job::id::JobId;
use hashbrown::HashTable;

/// Entries per part at which one more part is made. A part that is about to be dealt out has twice as many.
const PART_LEN: usize = 48;
/// A part smaller than this keeps its room.
const PART_KEPT: usize = 14;
/// The highest seven bits of a hash and the lowest ones tell entries of one part apart.
const PART_SHIFT: u32 = 25;

/// A hash table that grows by a part at a time.
pub struct Table<T> {
    parts: ChunkedVec<HashTable<T>>,
    len: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { parts: ChunkedVec::default(), len: 0 }
    }
}

/// Says nothing of the order of its entries.
impl<T> std::fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("len", &self.len).finish_non_exhaustive()
    }
}

/// The part of a hash among so many, at least one.
fn part_of(hash: u64, parts: usize) -> usize {
    let number = (hash >> PART_SHIFT) as u32 as usize;
    let mask = parts.next_power_of_two() - 1;
    let place = number & mask;
    if place < parts { place } else { place & (mask >> 1) }
}

/// The part of which part `place` was dealt out.
fn origin_of(place: usize) -> usize {
    place - (1 << place.ilog2())
}

impl<T> Table<T> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn part(&self, hash: u64) -> Option<&HashTable<T>> {
        (!self.parts.is_empty()).then(|| &self.parts[part_of(hash, self.parts.len())])
    }

    /// The entry of this hash that is `same`.
    pub fn find(&self, hash: u64, same: impl FnMut(&T) -> bool) -> Option<&T> {
        self.part(hash)?.find(hash, same)
    }

    /// The entry of this hash that is `same`, to be changed, though not what its hash is made of.
    pub fn find_mut(&mut self, hash: u64, same: impl FnMut(&T) -> bool) -> Option<&mut T> {
        if self.parts.is_empty() {
            return None;
        }
        let place = part_of(hash, self.parts.len());
        self.parts[place].find_mut(hash, same)
    }

    /// Adds an entry, beside others of its hash if there are any. `hash_of` tells the hash of each entry.
    pub fn insert(&mut self, hash: u64, entry: T, hash_of: impl Fn(&T) -> u64) {
        if self.len >= self.parts.len() * PART_LEN {
            self.deal_out(&hash_of);
        }
        let place = part_of(hash, self.parts.len());
        self.parts[place].insert_unique(hash, entry, &hash_of);
        self.len += 1;
    }

    /// Takes out the entry of this hash that is `same`.
    pub fn remove(
        &mut self,
        hash: u64,
        same: impl FnMut(&T) -> bool,
        hash_of: impl Fn(&T) -> u64,
    ) -> Option<T> {
        if self.parts.is_empty() {
            return None;
        }
        let place = part_of(hash, self.parts.len());
        let part = &mut self.parts[place];
        let (entry, _) = part.find_entry(hash, same).ok()?.remove();
        if part.capacity() > PART_KEPT && part.len() * 4 < part.capacity() {
            part.shrink_to(part.len() * 2, &hash_of);
        }
        self.len -= 1;
        if self.len < (self.parts.len() - 1) * (PART_LEN / 4) {
            self.join(&hash_of);
        }
        Some(entry)
    }

    /// Makes one part more.
    fn deal_out(&mut self, hash_of: &impl Fn(&T) -> u64) {
        let place = self.parts.len();
        self.parts.push(HashTable::new());
        if place == 0 {
            return;
        }
        let origin = origin_of(place);
        let goes = |entry: &mut T| part_of(hash_of(entry), place + 1) == place;
        let gone: Vec<T> = self.parts[origin].extract_if(goes).collect();
        let new = &mut self.parts[place];
        new.reserve(gone.len(), hash_of);
        for entry in gone {
            new.insert_unique(hash_of(&entry), entry, hash_of);
        }
        self.parts[origin].shrink_to_fit(hash_of);
    }

    /// Makes one part less.
    fn join(&mut self, hash_of: &impl Fn(&T) -> u64) {
        let origin = origin_of(self.parts.len() - 1);
        let Some(mut last) = self.parts.pop() else { return };
        let part = &mut self.parts[origin];
        part.reserve(last.len(), hash_of);
        for entry in last.drain() {
            part.insert_unique(hash_of(&entry), entry, hash_of);
        }
    }

    /// Forgets some entries, no matter which, of a table that nobody needs any more: what takes long to drop is
    /// dropped bit by bit. False once there is none left.
    pub fn shed(&mut self) -> bool {
        if let Some(last) = self.parts.pop() {
            self.len -= last.len();
        }
        !self.is_empty()
    }

    /// All entries, in an order that must decide nothing.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().flatten()
    }

    /// Entries of the part that has most.
    #[cfg(test)]
    pub(crate) fn longest_part(&self) -> usize {
        self.parts.iter().map(HashTable::len).max().unwrap_or(0)
    }

    /// Entries for which there is room.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.parts.iter().map(HashTable::capacity).sum()
    }
}

/// A key of a [`Map`].
pub(crate) trait MapKey: Copy + Eq {
    /// Hash of the key, under the shard's secret.
    fn hash(self, key: HashKey) -> u64;
}

impl MapKey for JobId {
    fn hash(self, key: HashKey) -> u64 {
        key.id(self)
    }
}

impl MapKey for ClientId {
    fn hash(self, key: HashKey) -> u64 {
        key.number(self.0)
    }
}

/// The place of something in a slab.
impl MapKey for u32 {
    fn hash(self, key: HashKey) -> u64 {
        key.number(u64::from(self))
    }
}

/// Values by key, in a [`Table`].
pub(crate) struct Map<K, V> {
    key: HashKey,
    table: Table<(K, V)>,
}

impl<K: MapKey, V> Map<K, V> {
    /// An empty one.
    pub(crate) fn new(key: HashKey) -> Self {
        Self { key, table: Table::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub(crate) fn get(&self, at: K) -> Option<&V> {
        self.table.find(at.hash(self.key), |entry| entry.0 == at).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, at: K) -> Option<&mut V> {
        self.table.find_mut(at.hash(self.key), |entry| entry.0 == at).map(|(_, value)| value)
    }

    pub(crate) fn contains(&self, at: K) -> bool {
        self.get(at).is_some()
    }

    /// Sets a value. Returns the one before.
    pub(crate) fn insert(&mut self, at: K, value: V) -> Option<V> {
        if let Some(known) = self.get_mut(at) {
            return Some(std::mem::replace(known, value));
        }
        self.add(at, value);
        None
    }

    fn add(&mut self, at: K, value: V) {
        let key = self.key;
        self.table.insert(at.hash(key), (at, value), |entry| entry.0.hash(key));
    }

    /// The value of a key, made if there was none.
    pub(crate) fn get_or_insert_with(&mut self, at: K, make: impl FnOnce() -> V) -> &mut V {
        if !self.contains(at) {
            self.add(at, make());
        }
        // The entry was there, or was just added.
        self.get_mut(at).expect("an entry that was just added")
    }

    pub(crate) fn remove(&mut self, at: K) -> Option<V> {
        let key = self.key;
        let hash_of = |entry: &(K, V)| entry.0.hash(key);
        let removed = self.table.remove(at.hash(key), |entry| entry.0 == at, hash_of);
        removed.map(|(_, value)| value)
    }

    /// In no order that may decide anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.table.iter().map(|(at, value)| (*at, value))
    }

    /// In no order that may decide anything.
    pub(crate) fn keys(&self) -> impl Iterator<Item = K> {
        self.table.iter().map(|(at, _)| *at)
    }

    /// In no order that may decide anything.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.table.iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::id::Chance;
    use std::cell::Cell;
    use std::collections::BTreeMap;

    /// Entries whose hash may be asked for in one step: two parts, each before and after.
    const STEP_MAX: usize = 8 * PART_LEN;

    const KEY: HashKey = HashKey::new(0x5eed_0f70_ab1e_5000_0000_0001_2345_6789);

    /// A table of numbers that counts how often a hash is asked for.
    #[derive(Default)]
    struct Counted {
        table: Table<u64>,
        asked: Cell<usize>,
        most: usize,
    }

    impl Counted {
        fn step(&mut self, act: impl FnOnce(&mut Table<u64>, &dyn Fn(&u64) -> u64)) {
            let asked = &self.asked;
            asked.set(0);
            let hash_of = |number: &u64| {
                asked.set(asked.get() + 1);
                KEY.number(*number)
            };
            act(&mut self.table, &hash_of);
            self.most = self.most.max(self.asked.get());
        }

        fn insert(&mut self, number: u64) {
            self.step(|table, hash_of| table.insert(KEY.number(number), number, hash_of));
        }

        fn remove(&mut self, number: u64) -> Option<u64> {
            let mut removed = None;
            self.step(|table, hash_of| {
                removed = table.remove(KEY.number(number), |it| *it == number, hash_of);
            });
            removed
        }
    }

    /// Guards against a shard that stands still while a table is made larger or smaller.
    #[test]
    fn no_step_moves_more_than_two_parts() {
        const ALL: u64 = 1 << 20;
        let mut counted = Counted::default();
        (0..ALL).for_each(|number| counted.insert(number));
        assert!((1..=STEP_MAX).contains(&counted.most), "{} at growing", counted.most);
        counted.most = 0;
        // Ones that go as they came, and at the border of a step, again and again.
        for number in 0..ALL / 2 {
            assert_eq!(counted.remove(number), Some(number));
            if number.is_multiple_of(1000) {
                (0..200).for_each(|again| counted.insert(ALL + again));
                (0..200).for_each(|again| _ = counted.remove(ALL + again));
            }
        }
        (0..ALL / 2).for_each(|number| counted.insert(number));
        (0..ALL).for_each(|number| assert_eq!(counted.remove(number), Some(number)));
        assert!(counted.most <= STEP_MAX, "{} at shrinking", counted.most);
        assert!(counted.table.is_empty());
    }

    /// The canary of the test above: one whole table is seen to move at once.
    #[test]
    fn canary_a_table_that_doubles_at_once_is_seen() {
        let (mut table, asked) = (HashTable::new(), Cell::new(0));
        let mut most = 0;
        for number in 0..10_000_u64 {
            asked.set(0);
            table.insert_unique(KEY.number(number), number, |number| {
                asked.set(asked.get() + 1);
                KEY.number(*number)
            });
            most = most.max(asked.get());
        }
        assert!(most > STEP_MAX, "{most}");
    }

    #[test]
    fn memory_follows_the_entries_down() {
        let mut counted = Counted::default();
        let capacity = |counted: &Counted| counted.table.capacity();
        for peak in [1000, 300_000] {
            (0..peak).for_each(|number| counted.insert(number));
            assert!(capacity(&counted) <= 3 * peak as usize, "{}", capacity(&counted));
            for left in [peak / 3, peak / 30, 10, 0] {
                (left..peak).for_each(|number| _ = counted.remove(number));
                let (room, kept) = (capacity(&counted), left as usize);
                assert!(room <= 5 * kept + 2 * PART_LEN, "{kept} of {peak} have room for {room}");
            }
            assert!(counted.table.parts.len() <= 2 && counted.table.parts.capacity() <= 32);
        }
    }

    #[test]
    fn it_finds_what_a_map_finds() {
        for seed in 0..40 {
            let mut chance = Chance::new(seed);
            let (mut counted, mut model) = (Counted::default(), BTreeMap::new());
            let range = [10, 300, 20_000][seed as usize % 3];
            let mut growing = true;
            for step in 0..30_000 {
                if chance.draw().is_multiple_of(5000) {
                    growing = !growing;
                }
                let number = chance.draw() % range;
                let hash = KEY.number(number);
                if (chance.draw() % 8 < 6) == growing {
                    if model.insert(number, step).is_none() {
                        counted.insert(number);
                    }
                } else {
                    let removed = counted.remove(number);
                    assert_eq!(removed, model.remove(&number).map(|_| number));
                }
                let found = counted.table.find(hash, |it| *it == number).copied();
                assert_eq!(found.is_some(), model.contains_key(&number));
                assert_eq!(counted.table.len(), model.len());
            }
            let mut all: Vec<u64> = counted.table.iter().copied().collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(model.into_keys()), "seed {seed}");
        }
    }

    #[test]
    fn a_table_is_shed_bit_by_bit() {
        let mut counted = Counted::default();
        (0..10_000).for_each(|number| counted.insert(number));
        let mut before = counted.table.len();
        while counted.table.shed() {
            assert!(before - counted.table.len() <= STEP_MAX);
            before = counted.table.len();
        }
        assert!(before <= STEP_MAX && counted.table.is_empty());
        assert!(!counted.table.shed() && counted.table.find(KEY.number(1), |_| true).is_none());
        counted.insert(1);
        assert_eq!(counted.remove(1), Some(1));
    }

    /// Several jobs may hold one key.
    #[test]
    fn entries_of_one_hash_stand_beside_each_other() {
        let mut table = Table::default();
        let hash_of = |entry: &(u64, u32)| KEY.number(entry.0);
        for number in 0..10_000 {
            for twin in 0..3 {
                table.insert(KEY.number(number), (number, twin), hash_of);
            }
        }
        for number in 0..10_000 {
            for twin in 0..3 {
                assert!(table.find(KEY.number(number), |it| *it == (number, twin)).is_some());
            }
            assert!(table.remove(KEY.number(number), |it| *it == (number, 1), hash_of).is_some());
        }
        assert_eq!(table.len(), 20_000);
    }

    #[test]
    fn a_map_replaces_and_forgets() {
        let mut map = Map::new(KEY);
        assert!(map.get(JobId(1)).is_none() && map.remove(JobId(1)).is_none() && map.is_empty());
        for id in 0..1000 {
            assert_eq!(map.insert(JobId(id), id), None);
            assert_eq!(map.insert(JobId(id), id + 1), Some(id));
            assert_eq!(*map.get_or_insert_with(JobId(id), || 0), id + 1);
        }
        assert_eq!((map.len(), map.get(JobId(7)), map.iter().count()), (1000, Some(&8), 1000));
        assert_eq!((map.remove(JobId(7)), map.get_mut(JobId(7))), (Some(8), None));
        assert_eq!(*map.get_or_insert_with(JobId(7), || 3), 3);
    }
}
