//! The shard's log as the engine's journal.

use corq_io::log::Log;
use corq_io::store::Store;
use corq_shards::job::Stored;
use corq_shards::record::{Journal, Record};

/// See the module.
pub struct Book(pub Log<Store>);

impl Journal for Book {
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
}
