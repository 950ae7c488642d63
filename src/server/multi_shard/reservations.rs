//! Reservations of a shard for long commands that have been judged: space in its log, and places in groups. Other
//! commands cannot use them, so that nothing can refuse a piece of the command any more.

use crate::server::shard_mail::envelope::Step;
use crate::server::storage::journal::SpacePressure;
use corq_shards::{Foresight, Shard};
use std::collections::BTreeMap;

/// Space and places that are reserved for one long command.
#[derive(Debug, Default)]
pub struct Reservation {
    /// Space in the log.
    bytes: u64,
    /// Places in groups, by queue.
    pub(super) places: BTreeMap<Box<str>, Foresight>,
}

/// The command that something is reserved for: its shard, its number there, and the round of that number.
type Key = (u16, u32, u32);

fn key_of(step: Step) -> Key {
    (step.shard, step.task, step.round)
}

/// The reservations of a shard, for commands of any shard.
#[derive(Debug, Default)]
pub struct Reservations {
    of_commands: BTreeMap<Key, Reservation>,
    /// Places in groups that are being returned.
    returning: Vec<(Box<str>, Foresight)>,
}

impl Reservations {
    /// Whether something is being returned.
    pub fn has_left(&self) -> bool {
        !self.returning.is_empty()
    }

    /// That of a command; nothing at first.
    pub fn of(&mut self, step: Step) -> &mut Reservation {
        self.of_commands.entry(key_of(step)).or_default()
    }

    /// Reserves space in the log for a command, which there is.
    pub fn add(&mut self, step: Step, bytes: u64, pressure: &mut SpacePressure) {
        self.of(step).bytes += bytes;
        pressure.reserved_bytes += bytes;
    }

    /// Uses space that was reserved for a command.
    pub fn use_up(&mut self, step: Step, bytes: u64, pressure: &mut SpacePressure) {
        let reservation = self.of(step);
        let used = reservation.bytes.min(bytes);
        reservation.bytes -= used;
        pressure.reserved_bytes -= used;
    }

    /// A command is over: what is left of its space is free at once, its places in groups some at a time.
    pub fn end(&mut self, step: Step, pressure: &mut SpacePressure) {
        if let Some(Reservation { bytes, places }) = self.of_commands.remove(&key_of(step)) {
            pressure.reserved_bytes -= bytes;
            self.returning.extend(places);
        }
    }

    /// Returns at most so many places in groups.
    pub fn return_some(&mut self, shard: &mut Shard, most: usize) {
        let Some((queue, sight)) = self.returning.last_mut() else { return };
        if shard.give_up_places(queue, sight, most) {
            self.returning.pop();
        }
    }
}
