//! The deciding part of a shard: its state machine, and the log that holds what it decided.

use super::journal::LogJournal;
use corq_shards::Shard;
use corq_shards::log_record::location::LogRef;

/// The state machine of a shard with its log.
pub struct Engine {
    /// The state machine.
    pub shard: Shard,
    /// The journal, with the log behind it.
    pub journal: LogJournal,
}

/// A record that had to be read back from the disk.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub stored: LogRef,
    /// Its bytes; `None` if the disk did not give back what was written.
    pub bytes: Option<Box<[u8]>>,
}

/// Where records are looked up while a reply is written: in memory, and among those fetched for it.
pub struct Records<'a> {
    journal: &'a LogJournal,
    fetched: &'a [Fetched],
}

/// Why a record is not at hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absent {
    /// It has to be read from the disk first.
    Cold,
    /// It was read, and is not what was written.
    Damaged,
}

impl<'a> Records<'a> {
    /// Looks in `journal` and `fetched`.
    pub fn new(journal: &'a LogJournal, fetched: &'a [Fetched]) -> Self {
        Self { journal, fetched }
    }

    /// A whole record.
    #[inline]
    pub fn record(&self, stored: &LogRef) -> Result<&'a [u8], Absent> {
        let position = corq_io::log::Position(stored.position);
        if let Some(bytes) = self.journal.log.read(position, stored.record_bytes as usize) {
            return Ok(bytes);
        }
        let found = self.fetched.iter().find(|one| one.stored.position == stored.position);
        found.map_or(Err(Absent::Cold), |one| one.bytes.as_deref().ok_or(Absent::Damaged))
    }

    /// The payload of a record.
    #[inline]
    pub fn payload(&self, stored: &LogRef) -> Result<&'a [u8], Absent> {
        let record = self.record(stored)?;
        stored.parted(record).map(|(_, payload)| payload).ok_or(Absent::Damaged)
    }
}
