//! The log as a shard's journal, and beside it every record that was ever given to it.

use super::settings::Flaw;
use corq_io::log::{FaultyDisk, Log, Position};
use corq_shards::compaction::space_forecast::SpaceForecast;
use corq_shards::log_record::location::LogRef;
use corq_shards::log_record::push::Pushed;
use corq_shards::log_record::remembered::CompletedNameBytes;
use corq_shards::log_record::snapshot::Kept;
use corq_shards::log_record::{Journal, Record};

/// The log of a shard.
pub struct Book {
    pub log: Log<FaultyDisk>,
    /// All records there ever were in this log, in order.
    pub written: Vec<(Position, Vec<u8>)>,
    /// Records before this address may be gone from the log.
    pub gone: Position,
    pub flaw: Flaw,
}

impl Book {
    /// The record that was written at an address.
    pub fn record_at(&self, position: u64) -> Option<&[u8]> {
        let place = self.written.binary_search_by_key(&Position(position), |(at, _)| *at);
        place.ok().map(|place| &self.written[place].1[..])
    }

    /// The job whose payload was written at an address.
    pub fn pushed_at(&self, position: u64) -> Option<Pushed<'_>> {
        Record::decode_original(self.record_at(position)?).ok()?.into_pushed()
    }
}

impl Journal for Book {
    fn append(&mut self, record: &Record<'_>) -> LogRef {
        let falsified = match (self.flaw, record) {
            (Flaw::ForgetfulJournal, Record::Retried(retried)) => Some(retried.id),
            (Flaw::LostCompletions, Record::Completed(ended)) => Some(ended.id),
            _ => None,
        };
        let released;
        let mut none = Vec::new();
        let nameless = Record::Kept(Kept::CompletedNames(CompletedNameBytes::new(&[], &mut none)));
        let record = match (self.flaw, record) {
            (Flaw::NamelessReclaim, Record::Kept(Kept::CompletedNames(_))) => &nameless,
            _ => record,
        };
        let record = match falsified {
            Some(id) => {
                released = Record::Released { id };
                &released
            }
            None => record,
        };
        let record_bytes = record.encoded_len();
        let (position, bytes) = self.log.append(record_bytes);
        record.encode(bytes);
        self.written.push((position, bytes.to_vec()));
        LogRef {
            position: position.0,
            record_bytes: record_bytes as u32,
            payload_bytes: record.payload_len() as u32,
        }
    }

    fn can_append_new(&mut self, _bytes: u64, _forecast: impl Fn() -> SpaceForecast) -> bool {
        true
    }

    fn can_append_text(&mut self, _bytes: u64, _forecast: impl Fn() -> SpaceForecast) -> bool {
        true
    }

    fn can_append_spare(&mut self, _bytes: u64, _forecast: impl Fn() -> SpaceForecast) -> bool {
        true
    }

    fn can_append_completion(
        &mut self,
        _bytes: u64,
        _forecast: impl Fn() -> SpaceForecast,
    ) -> bool {
        true
    }

    fn require_sync(&mut self) {
        if self.flaw != Flaw::NoBarrier {
            self.log.require_sync();
        }
    }
}
