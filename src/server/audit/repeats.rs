//! Refusals that a client can cause again and again: a wrong token, a command that is not for its role. The first of a
//! kind within a minute has an entry; the others are counted, and summed up in one entry at the end of the minute.
//! After [`DIFFERENT_MAX`] different ones, as from many addresses, new ones are only counted, too.
//!
//! A ground type: of the server it imports nothing.

use crate::audit::entry::{Entry, Face, Peer, UNKNOWN, Who};
use crate::audit::names::TokenName;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Time for which refusals are counted.
const SPAN_MS: u64 = 60 * 1000;

/// Entries that differ, within that time, on one shard.
pub const DIFFERENT_MAX: usize = 60;

/// The entry of what had none of its own: it counts these.
const OTHERS: &str = "EntriesLeftOut";

/// Attributes of entries that count as the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    face: Face,
    address: Option<IpAddr>,
    token: Option<TokenName>,
    command: &'static str,
    outcome: &'static str,
}

impl Key {
    fn of(entry: &Entry) -> Self {
        let Who { face, peer, token, .. } = entry.who;
        let address = match peer {
            Peer::At(address) => Some(address.ip()),
            Peer::None | Peer::Unix => None,
        };
        Self { face, address, token, command: entry.command, outcome: entry.outcome }
    }
}

/// Refusals of the current minute.
#[derive(Debug, Default)]
pub struct Repeats {
    /// When the minute ends, if one has begun.
    ends_ms: Option<u64>,
    known: BTreeMap<Key, Entry>,
    /// Entries that came when there were too many different ones.
    others: u64,
    /// Entries that were counted instead of written, since the start.
    pub left_out: u64,
}

impl Repeats {
    /// Counts one. Returns it if it is to be written.
    pub fn admit(&mut self, entry: Entry, now_ms: u64) -> Option<Entry> {
        self.ends_ms.get_or_insert(now_ms + SPAN_MS);
        let key = Key::of(&entry);
        if let Some(known) = self.known.get_mut(&key) {
            known.repeated += 1;
            self.left_out += 1;
            return None;
        }
        if self.known.len() >= DIFFERENT_MAX {
            self.others += 1;
            self.left_out += 1;
            return None;
        }
        self.known.insert(key, entry.clone());
        Some(entry)
    }

    /// When to ask for what was counted.
    pub fn next_ms(&self) -> u64 {
        self.ends_ms.unwrap_or(u64::MAX)
    }

    /// Takes the sums once the minute is over, or at once at the end.
    pub fn take(&mut self, now_ms: u64) -> Vec<Entry> {
        if self.ends_ms.is_none_or(|ends_ms| now_ms < ends_ms) {
            return Vec::new();
        }
        self.ends_ms = None;
        let known = std::mem::take(&mut self.known).into_values();
        let mut told: Vec<Entry> = known.filter(|entry| entry.repeated > 0).collect();
        for entry in &mut told {
            entry.at_ms = now_ms;
        }
        let others = std::mem::take(&mut self.others);
        if others > 0 {
            let entry = Entry::new(now_ms, Who::SERVER, OTHERS).ended(UNKNOWN);
            told.push(Entry { count: Some(others), ..entry });
        }
        told
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn failed(address: &str) -> Entry {
        let peer = Peer::At(format!("{address}:1").parse().unwrap());
        let who = Who { face: Face::Tcp, peer, role: None, token: None };
        Entry::new(5, who, "Auth").ended("unauthorized")
    }

    #[test]
    fn the_first_of_a_minute_has_an_entry_and_the_others_one_together() {
        let mut repeats = Repeats::default();
        assert_eq!(repeats.next_ms(), u64::MAX);
        assert_eq!(repeats.admit(failed("10.0.0.1"), 0), Some(failed("10.0.0.1")));
        assert!((0..100).all(|_| repeats.admit(failed("10.0.0.1"), 1).is_none()));
        assert!(repeats.admit(failed("10.0.0.2"), 2).is_some());
        assert!(repeats.admit(failed("10.0.0.2").ended("forbidden"), 2).is_some());
        assert!(repeats.take(SPAN_MS - 1).is_empty());
        let told = repeats.take(SPAN_MS);
        let expected = Entry { at_ms: SPAN_MS, repeated: 100, ..failed("10.0.0.1") };
        assert_eq!((told, repeats.left_out), (vec![expected], 100));
        assert!(repeats.admit(failed("10.0.0.1"), SPAN_MS + 1).is_some(), "another minute");
    }

    #[test]
    fn many_addresses_have_no_more_entries_than_so_many() {
        let mut repeats = Repeats::default();
        let admitted = (0..1000_u32).filter(|number| {
            let address = format!("10.0.{}.{}", number / 256, number % 256);
            repeats.admit(failed(&address), 0).is_some()
        });
        assert_eq!(admitted.count(), DIFFERENT_MAX);
        let told = repeats.take(SPAN_MS);
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].command, told[0].count), (OTHERS, Some(940)));
    }
}
