//! Commands on schedules that wait because another is at work on the same name, by name and in their order.
//!
//! They wait with their frames, which can hold a payload of 10 MB each: their number and their bytes have a bound.
//!
//! A ground type: of the server it imports the envelope only.

use crate::server::shard_mail::envelope::Origin;
use std::collections::{BTreeMap, VecDeque};

/// Commands that may wait, of all names together.
pub const WAITING_MAX: usize = 10_000;

type Line = VecDeque<(Origin, Box<[u8]>)>;

/// The commands that wait, by name.
#[derive(Debug, Default)]
pub struct CronBacklog {
    /// Most bytes of all frames together. One of any length may wait if it is the only one.
    bytes_max: usize,
    by_name: BTreeMap<Box<str>, Line>,
    commands: usize,
    bytes: usize,
}

impl CronBacklog {
    /// None, whose frames together may have `bytes_max`.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    /// Takes in a command on `name`. False if there is no room for it.
    #[must_use]
    pub fn push(&mut self, name: &str, origin: Origin, frame: &[u8]) -> bool {
        let bytes = self.bytes + frame.len();
        if self.commands >= WAITING_MAX || self.commands > 0 && bytes > self.bytes_max {
            return false;
        }
        self.bytes = bytes;
        self.commands += 1;
        let line = match self.by_name.get_mut(name) {
            Some(line) => line,
            None => self.by_name.entry(name.into()).or_default(),
        };
        line.push_back((origin, frame.into()));
        true
    }

    /// The next command on `name`.
    pub fn pop(&mut self, name: &str) -> Option<(Origin, Box<[u8]>)> {
        let line = self.by_name.get_mut(name)?;
        let next = line.pop_front();
        if line.is_empty() {
            self.by_name.remove(name);
        }
        let (origin, frame) = next?;
        self.commands -= 1;
        self.bytes -= frame.len();
        Some((origin, frame))
    }

    /// Whether a command on `name` waits.
    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.commands
    }

    /// Bytes of their frames.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corq_io::net::ConnId;
    use corq_shards::command::ClientId;

    fn origin(index: u32) -> Origin {
        let conn = ConnId { index, generation: 0 };
        let client = ClientId(u64::from(index));
        Origin { client, ..Origin::of_none(0, conn) }
    }

    #[test]
    fn frames_that_wait_for_a_schedule_have_a_limit_in_bytes_and_leave_in_their_order() {
        let mut backlog = CronBacklog::new(16 << 20);
        let frame = vec![0; 4 << 20];
        let taken = (0..50).take_while(|&n| backlog.push("c", origin(n), &frame)).count();
        assert_eq!((taken, backlog.bytes()), (4, 16 << 20));
        assert!(!backlog.push("d", origin(50), &[0]), "of all names together");
        let left: Vec<u32> =
            std::iter::from_fn(|| backlog.pop("c")).map(|(origin, _)| origin.conn.index).collect();
        assert_eq!(left, [0, 1, 2, 3]);
        assert_eq!((backlog.len(), backlog.bytes(), backlog.has("c")), (0, 0, false));
        let large = vec![0; (16 << 20) + 1];
        assert!(backlog.push("c", origin(0), &large), "the only one");
        assert!(!backlog.push("c", origin(1), &large));
    }

    #[test]
    fn commands_that_wait_for_schedules_have_a_limit_in_number() {
        let mut backlog = CronBacklog::new(16 << 20);
        for n in 0..WAITING_MAX {
            assert!(backlog.push(&format!("c{}", n % 7), origin(0), &[0]));
        }
        assert!(!backlog.push("c0", origin(0), &[0]));
        assert!(backlog.pop("c3").is_some() && backlog.push("c0", origin(0), &[0]));
    }
}
