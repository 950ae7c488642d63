//! Cold reads: replies that wait for the disk. A pulled job's payload may lie too far back to be in memory: its reply is
//! written with a placeholder of the right size, filled when the record has been read. A query runs again once its records
//! are there.

use super::engine::{Fetched, fetched_at};
use crate::protocol::frame::{FRAME_BYTES_MAX, PREFIX_BYTES};
use crate::protocol::large::KeptFrame;
use crate::server::connection::reply_writer::{Placeholder, TagsPlace};
use crate::server::multi_shard::looks::JobDetail;
use crate::server::multi_shard::messages::Link;
use crate::server::numbered::Entries;
use crate::server::operations::operation::Operation;
use crate::server::shard_mail::envelope::{Origin, Step};
use crate::server::shard_mail::request_context::Lookup;
use corq_shards::command::ClientId;
use corq_shards::family::Report;
use corq_shards::log_record::location::LogRef;
use corq_shards::log_record::tags::tags_of;
use std::collections::BTreeSet;

/// The step that follows once the records have been read.
#[derive(Debug)]
pub enum Continuation {
    /// Fill the holes of this frame and send it.
    Send {
        frame: Vec<u8>,
        /// Where payloads go into the frame, from its start.
        placeholders: Vec<Placeholder>,
    },
    /// Ask again.
    Ask {
        /// The frame of the query.
        frame: KeptFrame,
        /// The directory's answer for the job's custom id, so that it is not asked again.
        lookup: Lookup,
    },
    /// Go on with this answer, by a slice.
    Operation(Operation),
    /// Show this job with all that is known of it.
    Detail(Box<JobDetail>),
    /// Go on with this task.
    Task { number: u64 },
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
        /// The link to the parent, to be written into the child.
        link: Link,
    },
    /// Tell of the event at this place.
    PublishEvent {
        /// See `events`.
        place: u64,
    },
    /// Nothing: its client is gone.
    Nothing,
}

/// A reply that waits.
#[derive(Debug)]
pub struct Waiting {
    /// Who asked.
    pub origin: Origin,
    pub continuation: Continuation,
    /// Records read so far; once all are there, in the order of the log.
    pub fetched: Vec<Fetched>,
    missing: usize,
    /// Bytes of the answer's frame and records, counted until it is sent.
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
    /// Operations, by client and number, to find those of a client that goes.
    operations: BTreeSet<(u64, u32)>,
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
            | Continuation::Operation(_)
            | Continuation::Detail(_)
            | Continuation::Task { .. }
            | Continuation::SharedValue(_) => {
                of_records().map(|one| one.record_bytes as usize).sum()
            }
            // These answer no client.
            Continuation::Nothing
            | Continuation::PostWebhook { .. }
            | Continuation::Report(_)
            | Continuation::ParentLink { .. }
            | Continuation::PublishEvent { .. } => 0,
        };
        self.bytes += bytes;
        let is_operation = matches!(continuation, Continuation::Operation(_));
        let waiting =
            self.waiting.insert(Waiting { origin, continuation, fetched, missing, bytes });
        if is_operation {
            self.operations.insert((origin.client.0, waiting));
        }
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
        waiting.fetched.sort_unstable_by_key(|one| one.stored.position);
        self.bytes -= waiting.bytes;
        self.operations.remove(&(waiting.origin.client.0, read.waiting));
        self.waiting.remove(read.waiting)
    }

    /// A client is gone: takes out its operations. The reads that were begun end by themselves.
    pub fn forget(&mut self, client: ClientId) -> Vec<Operation> {
        let of_client = self.operations.range((client.0, 0)..=(client.0, u32::MAX));
        let numbers: Vec<u32> = of_client.map(|(_, number)| *number).collect();
        let mut gone = Vec::new();
        for number in numbers {
            self.operations.remove(&(client.0, number));
            let Some(waiting) = self.waiting.get_mut(number) else { continue };
            let continuation = std::mem::replace(&mut waiting.continuation, Continuation::Nothing);
            if let Continuation::Operation(operation) = continuation {
                gone.push(operation);
            }
        }
        gone
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
    /// Fills the holes of a frame, and puts in the tags that the records have. False if a payload could not be read.
    pub fn fill(frame: &mut Vec<u8>, placeholders: &[Placeholder], fetched: &[Fetched]) -> bool {
        let mut tags = Vec::new();
        let filled = placeholders.iter().all(|placeholder| {
            let found = fetched_at(fetched, placeholder.stored.position);
            let Some(record) = found.and_then(|one| one.bytes.as_deref()) else { return false };
            let Some((_, payload)) = placeholder.stored.parted(record) else { return false };
            let place =
                frame.get_mut(placeholder.at..).and_then(|behind| behind.get_mut(..payload.len()));
            let found = placeholder.tags.map(|place| (place, tags_of(record)));
            tags.extend(found.filter(|(_, tags)| !tags.is_empty()));
            place.map(|place| place.copy_from_slice(payload)).is_some()
        });
        if filled {
            insert_tags(frame, &tags);
        }
        filled
    }
}

/// Puts tags into a frame, in the order of their places. One that they would make too long goes without them.
fn insert_tags(frame: &mut Vec<u8>, tags: &[(TagsPlace, &[u8])]) {
    /// `tags`, as the key of an entry.
    const KEY: &[u8] = b"\xa4tags";
    let bytes: usize = tags.iter().map(|(_, tags)| KEY.len() + tags.len()).sum();
    let length = (frame.len() + bytes).saturating_sub(PREFIX_BYTES);
    if bytes == 0 || length > FRAME_BYTES_MAX {
        return;
    }
    let mut whole = Vec::with_capacity(frame.len() + bytes);
    let mut from = 0;
    for (TagsPlace { count_at, at }, tags) in tags {
        let count = &mut frame[*count_at..count_at + 2];
        let entries = u16::from_be_bytes([count[0], count[1]]) + 1;
        count.copy_from_slice(&entries.to_be_bytes());
        whole.extend_from_slice(&frame[from..*at]);
        whole.extend_from_slice(KEY);
        whole.extend_from_slice(tags);
        from = *at;
    }
    whole.extend_from_slice(&frame[from..]);
    whole[..PREFIX_BYTES].copy_from_slice(&(length as u32).to_be_bytes());
    *frame = whole;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::msgpack::writer::Writer;
    use corq_shards::job::id::JobId;
    use corq_shards::job::new_job::NewJob;
    use corq_shards::log_record::{Pushed, Record};

    #[test]
    fn a_record_that_is_not_as_long_as_it_should_be_fills_nothing() {
        let stored = LogRef { position: 8, record_bytes: 6, payload_bytes: 4 };
        let filled = |at: usize, record: Option<&[u8]>| {
            let mut frame = b"....----".to_vec();
            let fetched = [Fetched { stored, bytes: record.map(Into::into) }];
            let placeholders = [Placeholder { at, stored, tags: None }];
            Waiting::fill(&mut frame, &placeholders, &fetched).then_some(frame)
        };
        assert_eq!(filled(4, Some(b"abcdef")), Some(b"....cdef".to_vec()));
        for (at, record) in
            [(4, Some(&b"abc"[..])), (4, Some(b"")), (4, None), (5, Some(b"abcdef"))]
        {
            assert_eq!(filled(at, record), None);
        }
        assert_eq!(filled(usize::MAX, Some(b"abcdef")), None);
    }
    /// Two jobs whose records were read: one has tags, the other could have had some.
    #[test]
    fn tags_of_records_that_were_read_become_the_last_entry_of_their_job() {
        let record = |data: &[u8], tags: &'static [u8]| {
            let job = NewJob { data, tags, name: Some("n"), ..NewJob::default() };
            let pushed = Pushed { id: JobId(1), queue: "q", run_at_ms: 2, job: job.into() };
            let record = Record::Pushed(pushed);
            let mut bytes = vec![0; record.encoded_len()];
            record.encode(&mut bytes);
            bytes
        };
        let records = [record(b"\x07", b"\x92\xa1a\xa1b"), record(b"\x08", b"")];
        let mut frame = vec![0; PREFIX_BYTES];
        let mut writer = Writer::new(&mut frame);
        writer.array(records.len());
        let mut placeholders = Vec::new();
        let mut fetched = Vec::new();
        for (position, record) in (0..).zip(&records) {
            let open = writer.open_map();
            writer.str("data");
            let at = writer.raw_hole(1);
            let count_at = open.count_at();
            open.close(&mut writer, 1);
            let tags = Some(TagsPlace { count_at, at: writer.raw_hole(0) });
            let record_bytes = record.len() as u32;
            let stored = LogRef { position, record_bytes, payload_bytes: 1 };
            placeholders.push(Placeholder { at, stored, tags });
            fetched.push(Fetched { stored, bytes: Some(record.as_slice().into()) });
        }
        assert!(Waiting::fill(&mut frame, &placeholders, &fetched));
        let (prefix, mut payload) = frame.split_at(PREFIX_BYTES);
        assert_eq!(prefix, (payload.len() as u32).to_be_bytes());
        let value = rmpv::decode::read_value(&mut payload).ok();
        let expected = r#"[{"data": 7, "tags": ["a", "b"]}, {"data": 8}]"#;
        assert_eq!(value.map(|value| value.to_string()), Some(expected.to_owned()));
    }
}
