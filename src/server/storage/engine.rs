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

impl Engine {
    /// Steps of the state machine, and of what it had copied into the log.
    #[inline]
    pub fn steps(&self) -> u64 {
        self.shard.steps() + self.journal.staged.copied_steps()
    }
}

/// A record that had to be read back from the disk.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub stored: LogRef,
    /// Bytes of the record; `None` if the disk did not give back what was written.
    pub bytes: Option<Box<[u8]>>,
}

/// The record at a position, among those that were read, in the order of the log.
pub fn fetched_at(fetched: &[Fetched], position: u64) -> Option<&Fetched> {
    let found = fetched.binary_search_by_key(&position, |one| one.stored.position);
    found.ok().map(|place| &fetched[place])
}

/// Where records are looked up while a reply is written: in memory, and among those fetched for it.
pub struct Records<'a> {
    journal: &'a LogJournal,
    fetched: &'a [Fetched],
}

/// Why a record is not at hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absent {
    /// The record has to be read from the disk first.
    Cold,
    /// The record was read, and differs from what was written.
    Damaged,
}

impl<'a> Records<'a> {
    /// Looks in `journal` and `fetched`, which is in the order of the log: a list may need thousands.
    pub fn new(journal: &'a LogJournal, fetched: &'a [Fetched]) -> Self {
        debug_assert!(fetched.is_sorted_by_key(|one| one.stored.position));
        Self { journal, fetched }
    }

    /// A whole record.
    #[inline]
    pub fn record(&self, stored: &LogRef) -> Result<&'a [u8], Absent> {
        let position = corq_io::log::Position(stored.position);
        if let Some(bytes) = self.journal.log.read(position, stored.record_bytes as usize) {
            return Ok(bytes);
        }
        let found = fetched_at(self.fetched, stored.position);
        found.map_or(Err(Absent::Cold), |one| one.bytes.as_deref().ok_or(Absent::Damaged))
    }

    /// The payload of a record.
    #[inline]
    pub fn payload(&self, stored: &LogRef) -> Result<&'a [u8], Absent> {
        let record = self.record(stored)?;
        stored.parted(record).map(|(_, payload)| payload).ok_or(Absent::Damaged)
    }
}
