//! Records of the log: one per fact, with the payload, if any, as its last bytes.
//!
//! Records hold facts, not orders: replaying one needs no clock and cannot be refused.
//!
//! Recipe for a change. A kind keeps its number and the meaning of its bytes for ever, so:
//!
//! 1. *Something new is to be said*: a new kind with a number that was never used: see `kind`.
//! 2. *A kind is to say more*: a new kind beside it, as 26 stands beside 5. The old one is still
//!    decoded, into the same variant, with what it does not say filled in; it is written no more, or
//!    only where the new one has nothing to add. A part that few jobs have gets a bit in `part` of
//!    `push` or `snapshot` instead, if one is free: an older release refuses a bit that it
//!    does not know.
//! 3. *All kinds are to change*: `VERSION` rises, and `decode` goes on reading the older ones.
//! 4. *The files around the records are to change*: see `io/src/log/format/block.rs` and the page.
//!
//! Then, in the same commit: a row in `kind` with all that is said; the bytes in `docs/log-format.md`; what it does, in
//! `apply/replay.rs`, and whether compaction needs it, in `compaction/rewrite.rs`, which do not compile before (of a change of
//! one job only what it does, in `job/change.rs`); a sample in `tests.rs`; and a log that holds it, written once and never
//! again: `tests/compat/mod.rs` says how. Logs of older versions
//! stay as they are.
//!
//! | file | responsibility |
//! |---|---|
//! | `codec` | numbers and texts as bytes |
//! | `completed` | a job is done |
//! | `cron` | schedules |
//! | `failed` | an attempt fails; a job comes back from the dead-letter queue |
//! | `job_change` | a job is changed |
//! | `kind` | the table: every kind, its number, its name, and what it says |
//! | `lease` | a lease begins |
//! | `location` | where a record lies |
//! | `push` | a job comes |
//! | `remembered` | ids of completed jobs that are gone |
//! | `repeated` | a run of a repeated job is done, and the next one comes |
//! | `row` | what a row of the table is made of |
//! | `settings` | what is set for queues and groups, and webhooks |
//! | `show` | what a record says, for people |
//! | `snapshot` | a job as compaction writes it again |
//! | `tags` | the tags of a job |

pub mod codec;
pub mod completed;
pub mod cron;
pub mod failed;
pub mod job_change;
pub(crate) mod kind;
pub mod lease;
pub mod location;
pub mod push;
pub mod remembered;
pub mod repeated;
pub(crate) mod row;
pub mod settings;
pub mod show;
pub mod snapshot;
pub mod tags;
#[cfg(test)]
mod tests;

use crate::compaction::space_forecast::SpaceForecast;
use crate::log_record::codec::{Malformed, Place, Reader, Writer};
pub use crate::log_record::completed::Ended;
pub use crate::log_record::failed::{Attempt, Buried, Retried, Revived};
pub use crate::log_record::kind::{Changed, KINDS, Kept, Record};
use crate::log_record::location::LogRef;
pub use crate::log_record::push::{Given, Pushed};
pub use crate::log_record::settings::{Limited, Ruled};
use crate::log_record::snapshot::Moved;

/// Version of the encoding of every kind below.
const VERSION: u8 = 1;

/// Where records go. It gives each record its address and keeps its bytes.
pub trait Journal {
    /// Appends a record.
    fn append(&mut self, record: &Record<'_>) -> LogRef;
    /// All that was appended, and the answers to this command, may not be shown before the disk has it.
    fn require_sync(&mut self);
    /// Whether there is room for `bytes` more of what comes: jobs, and texts about them. Always for 0.
    /// `space_forecast` is what those there are may still take; it goes before.
    fn can_append_new(&mut self, bytes: u64, space_forecast: impl Fn() -> SpaceForecast) -> bool;
    /// Whether there is room for `bytes` more that stay and that jobs bring with them as they go their
    /// way, for which a little is set aside: why they failed, that a queue is paused.
    fn can_append_text(&mut self, bytes: u64, space_forecast: impl Fn() -> SpaceForecast) -> bool;
    /// Whether there is room for `bytes` more that stay and that can be done without: as much is left behind them as lets
    /// jobs come for a while, and nothing is forgotten or refused for them.
    fn can_append_spare(&mut self, bytes: u64, space_forecast: impl Fn() -> SpaceForecast) -> bool;
    /// Whether there is room for `bytes` more of what ends jobs, for which some is set aside.
    fn can_append_completion(
        &mut self,
        bytes: u64,
        space_forecast: impl Fn() -> SpaceForecast,
    ) -> bool;
}

/// The name of a record's kind, from its encoding; `None` if this release does not know it.
pub fn kind_name(bytes: &[u8]) -> Option<&'static str> {
    kind::name_of(*bytes.first()?)
}

impl<'a> Record<'a> {
    /// Length of the encoding, payload included.
    pub fn encoded_len(&self) -> usize {
        2 + self.body_len()
    }

    /// Writes the record into `bytes`, which is [`Record::encoded_len`] long.
    pub fn encode(&self, bytes: &mut [u8]) {
        let mut out = Writer::new(bytes);
        out.u8(self.kind());
        out.u8(VERSION);
        self.encode_body(&mut out);
        // As long as it was measured: what points to it, and its payload, goes by that length.
        out.finish();
    }

    /// Writes all but the payload, for which `head` has no room. Returns where that is.
    pub fn encode_head(&self, head: &mut [u8]) -> Option<Place> {
        let mut out = Writer::before_payload(head);
        out.u8(self.kind());
        out.u8(VERSION);
        self.encode_body(&mut out);
        out.finish()
    }

    /// Reads a record back.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        let kind = from.u8()?;
        if from.u8()? != VERSION {
            return Err(Malformed("its version is not known to this release"));
        }
        let unknown = Malformed("its kind is not known to this release");
        Self::decode_body(kind, from)?.ok_or(unknown)
    }

    /// Reads a record as it was written first, if this one only says that it was moved.
    pub fn decode_original(bytes: &'a [u8]) -> Result<Self, Malformed> {
        match Self::decode(bytes)? {
            Self::Kept(Kept::Moved(Moved { record, .. })) => Self::decode(record),
            record => Ok(record),
        }
    }

    /// The job that the record holds, as pushed.
    pub fn into_pushed(self) -> Option<Pushed<'a>> {
        match self {
            Self::Pushed(pushed) => Some(pushed),
            Self::CronRan(ran) => Some(ran.pushed),
            Self::Staged(staged) => Some(staged.pushed),
            Self::Repeated(repeated) => Some(repeated.next.pushed),
            Self::Kept(Kept::Job(job)) => Some(job.pushed),
            _ => None,
        }
    }
}
