//! Which shard a command belongs to. Knows names and ids, nothing of what the command does.

use crate::api::request::JobRef;
use corq_shards::job::id::{JobId, SLOTS, Slot, fnv1a};

/// Slots to shards, and names to the shards that keep them.
#[derive(Clone, Debug)]
pub struct Slots {
    table: Box<[u16]>,
    shards: usize,
}

impl Slots {
    /// Deals the slots out to `shards` shards in turn.
    pub fn new(shards: usize) -> Self {
        let table = (0..usize::from(SLOTS)).map(|slot| (slot % shards) as u16).collect();
        Self { table, shards }
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// The shard that owns a queue.
    pub fn of_queue(&self, queue: &str) -> usize {
        self.of_slot(Slot::of_name(queue))
    }

    /// The shard that owns a job.
    pub fn of_job(&self, id: JobId) -> usize {
        self.of_slot(id.slot())
    }

    /// The shard whose directory holds a custom id. One of the form that the server gives out is held where
    /// a job of that id would be, so that this shard can tell whether there is one.
    pub fn of_name(&self, name: &str) -> usize {
        match JobRef::of(name) {
            JobRef::Id(id) => self.of_job(id),
            JobRef::Custom(name) => self.of_bytes(name.as_bytes()),
        }
    }

    /// The shard that keeps what goes by a name of any kind.
    #[allow(clippy::disallowed_methods)] // Decides where the name lives.
    pub fn of_bytes(&self, name: &[u8]) -> usize {
        (fnv1a(name) >> 17) as usize % self.shards
    }

    /// The shard that owns the queues of a slot.
    pub fn of_slot(&self, slot: Slot) -> usize {
        usize::from(self.table[slot.index()])
    }
}
