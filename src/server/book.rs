//! The shard's log as the engine's journal.
//!
//! On a full disk room is given in this order: what comes must leave all that is reserved; what ends
//! jobs must leave one segment, in which the oldest one's live records can be written again; what is
//! brought by time asks for nothing, and waits in memory for its room if there is none at all.

use corq_io::log::{Disk, Log};
use corq_io::store::Store;
use corq_shards::job::Stored;
use corq_shards::record::{Journal, Record};

/// A log without this much room for what comes, and none to be had, is full.
const ROOM_BYTES: u64 = 1 << 20;

/// See the module.
pub struct Book<D = Store>(pub Log<D>);

impl<D: Disk> Book<D> {
    /// Whether pushes are refused for want of room: not whether a very large one was.
    pub fn is_full(&self) -> bool {
        self.0.lacks_space() && !self.0.has_room(self.0.reserve_bytes() + ROOM_BYTES)
    }
}

impl<D: Disk> Journal for Book<D> {
    fn append(&mut self, record: &Record<'_>) -> Stored {
        let record_bytes = record.encoded_len();
        let (position, bytes) = self.0.append(record_bytes);
        record.encode(bytes);
        Stored {
            position: position.0,
            record_bytes: record_bytes as u32,
            payload_bytes: record.payload_len() as u32,
        }
    }

    fn require_sync(&mut self) {
        self.0.require_sync();
    }

    fn takes_more(&mut self, bytes: u64) -> bool {
        bytes == 0 || self.0.make_room(self.0.reserve_bytes() + bytes)
    }

    fn takes_ends(&mut self, bytes: u64) -> bool {
        self.0.make_room(self.0.segment_bytes() + bytes)
    }
}
