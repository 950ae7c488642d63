//! Cold reads: replies that wait for the disk. A pulled job's payload may lie too far back to be in memory: its reply is
//! written with a placeholder of the right size, filled when the record has been read. A query runs again once its records
//! are there.

use super::engine::Fetched;
use crate::server::commands::job_record::Show;
use crate::server::connection::reply_writer::Placeholder;
use crate::server::multi_shard::child_values::ChildValueRead;
use crate::server::multi_shard::messages::Link;
use crate::server::numbered::Entries;
use crate::server::shard_mail::envelope::{Origin, Step};
use crate::server::shard_mail::request_context::Lookup;
use corq_shards::family::Report;
use corq_shards::log_record::location::LogRef;

/// What to do once the records are there.
#[derive(Debug)]
pub enum Continuation {
    /// Fill the holes of this frame and send it.
    Send {
        frame: Vec<u8>,
        /// Its holes, from the frame's start.
        placeholders: Vec<Placeholder>,
    },
    /// Ask again.
    Ask {
        /// The frame of the query.
        frame: Box<[u8]>,
        /// What the directory knows of its job.
        lookup: Lookup,
    },
    /// Show these jobs.
    Show(Show),
    /// Go on with what became of children.
    ChildValues(Box<ChildValueRead>),
    /// Answer those who wait for this value.
    SharedValue(LogRef),
    /// Tell webhooks of the event at this place.
    PostWebhook {
        /// See [`crate::server::webhooks::outbox`].
        place: u64,
    },
    /// Tell a parent.
    Report(Box<Report>),
    /// Write a parent into the data of a child.
    ParentLink {
        /// Who waits.
        step: Step,
        /// What is written into the child.
        link: Link,
    },
    /// Tell of the event at this place.
    PublishEvent {
        /// See `events`.
        place: u64,
    },
}

/// A reply that waits.
#[derive(Debug)]
pub struct Waiting {
    /// Who asked.
    pub origin: Origin,
    /// What follows.
    pub continuation: Continuation,
    /// What has been read so far.
    pub fetched: Vec<Fetched>,
    missing: usize,
    /// What its answer takes in memory meanwhile.
    bytes: usize,
}

#[derive(Clone, Copy)]
struct Read {
    waiting: u32,
    stored: LogRef,
}

/// All replies of a shard that wait for the disk.
#[derive(Default)]
pub struct ColdReplies {
    waiting: Entries<Waiting>,
    reads: Entries<Read>,
    /// Of all answers together.
    bytes: usize,
}

impl ColdReplies {
    /// Takes in a reply and says which reads to start, each with its token. `fetched` is what has been
    /// read for it before: it is kept, so that every round needs less than the last.
    pub fn wait(
        &mut self,
        origin: Origin,
        continuation: Continuation,
        records: &[LogRef],
        mut fetched: Vec<Fetched>,
    ) -> Vec<(u64, LogRef)> {
        fetched.reserve(records.len());
        let missing = records.len();
        let of_records = || records.iter().chain(fetched.iter().map(|one| &one.stored));
        let bytes: usize = match &continuation {
            Continuation::Send { frame, .. } => {
                frame.len() + of_records().map(|one| one.record_bytes as usize).sum::<usize>()
            }
            Continuation::Ask { .. }
            | Continuation::Show(_)
            | Continuation::ChildValues(_)
            | Continuation::SharedValue(_) => {
                of_records().map(|one| one.record_bytes as usize).sum()
            }
            // These answer no client.
            Continuation::PostWebhook { .. }
            | Continuation::Report(_)
            | Continuation::ParentLink { .. }
            | Continuation::PublishEvent { .. } => 0,
        };
        self.bytes += bytes;
        let waiting =
            self.waiting.insert(Waiting { origin, continuation, fetched, missing, bytes });
        let read =
            |&stored: &LogRef| (u64::from(self.reads.insert(Read { waiting, stored })), stored);
        records.iter().map(read).collect()
    }

    /// A record has come, or `None` if it could not be read. Returns the reply if it was the last.
    pub fn arrived(&mut self, token: u64, bytes: Option<Box<[u8]>>) -> Option<Waiting> {
        let read = self.reads.remove(token as u32)?;
        let waiting = self.waiting.get_mut(read.waiting)?;
        waiting.fetched.push(Fetched { stored: read.stored, bytes });
        waiting.missing -= 1;
        if waiting.missing > 0 {
            return None;
        }
        self.bytes -= waiting.bytes;
        self.waiting.remove(read.waiting)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes that they take: those of answers to requests.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl Waiting {
    /// Fills the holes. False if a payload could not be read.
    pub fn fill(frame: &mut [u8], placeholders: &[Placeholder], fetched: &[Fetched]) -> bool {
        placeholders.iter().all(|placeholder| {
            let found =
                fetched.iter().find(|one| one.stored.position == placeholder.stored.position);
            let Some(record) = found.and_then(|one| one.bytes.as_deref()) else { return false };
            let Some((_, payload)) = placeholder.stored.parted(record) else { return false };
            let place =
                frame.get_mut(placeholder.at..).and_then(|behind| behind.get_mut(..payload.len()));
            place.map(|place| place.copy_from_slice(payload)).is_some()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_not_as_long_as_it_should_be_fills_nothing() {
        let stored = LogRef { position: 8, record_bytes: 6, payload_bytes: 4 };
        let filled = |at: usize, record: Option<&[u8]>| {
            let mut frame = *b"....----";
            let fetched = [Fetched { stored, bytes: record.map(Into::into) }];
            Waiting::fill(&mut frame, &[Placeholder { at, stored }], &fetched).then_some(frame)
        };
        assert_eq!(filled(4, Some(b"abcdef")), Some(*b"....cdef"));
        for (at, record) in
            [(4, Some(&b"abc"[..])), (4, Some(b"")), (4, None), (5, Some(b"abcdef"))]
        {
            assert_eq!(filled(at, record), None);
        }
        assert_eq!(filled(usize::MAX, Some(b"abcdef")), None);
    }
}
