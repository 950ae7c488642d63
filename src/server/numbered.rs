//! Slots by number for the commands and connections of a shard that are under way. Memory comes and goes a chunk at a
//! time, so that no peak makes a turn long, and none stays behind it. A number is given again once its entry is
//! removed.

use corq_shards::Slab;

/// Entries by number, the lowest free number first.
pub struct Entries<T> {
    slab: Slab<Option<T>>,
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self { slab: Slab::new() }
    }
}

impl<T> std::fmt::Debug for Entries<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} entries", self.len())
    }
}

impl<T> Entries<T> {
    /// Takes an entry in, and says under which number.
    pub fn insert(&mut self, entry: T) -> u32 {
        self.slab.insert(Some(entry))
    }

    /// The entry of this number, if there is one.
    pub fn get(&self, number: u32) -> Option<&T> {
        if number < self.slab.end() { self.slab.peek(number).as_ref() } else { None }
    }

    /// The entry of this number, to be changed; `None` if there is none.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.get(number)?;
        self.slab[number].as_mut()
    }

    /// Takes out the entry of this number, if there is one.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        self.get(number)?;
        self.slab.remove(number)
    }

    /// All entries, by number.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.slab.end()).filter_map(|number| self.get(number))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Entries for which there is memory.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.slab.capacity()
    }
}

impl<T> std::ops::Index<u32> for Entries<T> {
    type Output = T;
    fn index(&self, number: u32) -> &T {
        self.get(number).expect("an entry that is there")
    }
}

impl<T> std::ops::IndexMut<u32> for Entries<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        self.get_mut(number).expect("an entry that is there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_after_a_peak() {
        let mut entries = Entries::default();
        let numbers: Vec<u32> = (0..100_000_u64).map(|n| entries.insert(n)).collect();
        assert!(entries.capacity() < 103_000, "and comes as it is needed: {}", entries.capacity());
        for &number in &numbers {
            assert_eq!(entries.remove(number), Some(u64::from(number)));
        }
        assert!(entries.is_empty() && entries.capacity() <= 2048, "{}", entries.capacity());
    }

    #[test]
    fn a_number_without_an_entry_is_none() {
        let mut entries = Entries::default();
        let number = entries.insert('a');
        assert_eq!((entries.get(number), entries.get(number + 1)), (Some(&'a'), None));
        assert_eq!(entries.get(u32::MAX), None);
        assert_eq!(entries.remove(5000), None);
        assert_eq!((entries.remove(number), entries.remove(number)), (Some('a'), None));
        assert_eq!(entries.get_mut(number), None);
        assert_eq!(entries.iter().count(), 0);
    }
}
