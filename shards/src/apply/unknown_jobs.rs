//! Records about jobs that a replay does not know. Where the beginning of a log was given up there are
//! such records, and they mean nothing; any other is a sign that something was lost, by the disk or by
//! a bug.
//!
//! Which is which follows from records alone. The ids that a shard gives out rise, so a job that is not
//! younger than the first that the log brings has been told of in it. And a record says up to where all
//! that was needed has been written again ([`crate::log_record::snapshot::Kept::GivenUp`]): once that covers what
//! is gone, every job that still matters is known.

use crate::job::id::JobId;

/// Counts records about jobs that are not known.
#[derive(Debug, Default)]
pub(crate) struct Unknown {
    records: u64,
    /// Where the part of the log begins that holds its first record.
    begins_at: Option<u64>,
    /// All that was needed of what lies before has been told again.
    recorded_until: u64,
    /// The first job that the log brings as new.
    first_new: Option<JobId>,
}

impl Unknown {
    /// A record lies there, in a log that goes in parts of so many addresses, as a power of two.
    #[inline]
    pub(crate) fn note_record(&mut self, position: u64, span_bits: u32) {
        if self.begins_at.is_none() {
            self.begins_at = Some(position >> span_bits << span_bits);
        }
    }

    /// A job was given its id here, and came.
    #[inline]
    pub(crate) fn note_new(&mut self, id: JobId) {
        if self.first_new.is_none() {
            self.first_new = Some(id);
        }
    }

    /// All that was needed of what lies before `until` has been told again.
    pub(crate) fn note_given_up(&mut self, until: u64) {
        self.recorded_until = self.recorded_until.max(until);
    }

    /// A record is about a job that is not known.
    #[cold]
    pub(crate) fn note_unknown(&mut self, id: JobId) {
        let all_recorded = self.begins_at.is_none_or(|begins_at| begins_at <= self.recorded_until);
        if all_recorded || self.first_new.is_some_and(|first| id >= first) {
            self.records += 1;
        }
    }

    pub(crate) fn records(&self) -> u64 {
        self.records
    }
}
