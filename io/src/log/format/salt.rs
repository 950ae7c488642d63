//! Salts, which tell the blocks of one life of a file from all else that may lie in it.
//!
//! Behind the end of a log lies what its file held before, and most of that was chosen by clients. So a file gets a
//! salt when it becomes a segment: each of its blocks bears it, and the checksum of each record begins with it. No
//! client can see or guess it: it comes from a key that is drawn at each start, and is shown nowhere.
//!
//! Knows numbers only.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

/// The salt of a segment. One of format version 1 has none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Salt(pub(crate) Option<u64>);

impl Salt {
    pub(crate) const NONE: Self = Self(None);

    /// The format version of the segment.
    pub(crate) const fn version(self) -> u16 {
        if self.0.is_some() { 2 } else { 1 }
    }
}

/// Keeps the number out of all that is printed.
impl std::fmt::Debug for Salt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Salt" } else { "no salt" })
    }
}

/// The salts of all segments of a log, those that it has and those that it will make.
#[derive(Debug)]
pub(crate) struct Salts {
    key: Key,
    /// Segments from this one on are made with the key.
    from: u64,
    known: BTreeMap<u64, Salt>,
}

struct Key([u64; 2]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Salts {
    /// Of a log whose segments are `known`, and that goes on in segment `from`. The key must be one that was
    /// never used and that nobody can guess.
    pub(crate) fn new(key: [u64; 2], from: u64, known: BTreeMap<u64, Salt>) -> Self {
        Self { key: Key(key), from, known }
    }

    pub(crate) fn of(&self, segment: u64) -> Salt {
        if segment < self.from {
            return self.known.get(&segment).copied().unwrap_or(Salt::NONE);
        }
        // The numbers of segments are never used twice. A keyed hash of them tells nothing about another's.
        let mut hasher = DefaultHasher::new();
        for part in [self.key.0[0], self.key.0[1], segment] {
            hasher.write_u64(part);
        }
        Salt(Some(hasher.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_segment_and_every_start_has_a_salt_of_its_own() {
        let known = BTreeMap::from([(3, Salt::NONE), (4, Salt(Some(99)))]);
        let salts = Salts::new([1, 2], 5, known.clone());
        assert_eq!((salts.of(3), salts.of(4)), (Salt::NONE, Salt(Some(99))));
        let mut seen = std::collections::BTreeSet::new();
        for key in [[1, 2], [2, 1], [1, 3]] {
            let salts = Salts::new(key, 5, known.clone());
            seen.extend((5..1005).filter_map(|segment| salts.of(segment).0));
        }
        assert_eq!(seen.len(), 3000);
    }

    #[test]
    fn a_salt_is_not_printed() {
        let salts = Salts::new(
            [0x1234_5678, 0x1234_5678],
            5,
            BTreeMap::from([(4, Salt(Some(0x1234_5678)))]),
        );
        let printed = format!("{salts:?} {:?}", salts.of(4));
        assert!(!printed.contains("305419896") && !printed.contains("12345678"), "{printed}");
    }
}
