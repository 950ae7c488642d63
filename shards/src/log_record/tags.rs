//! The tags of a job, as its record holds them: they are nowhere else. A delivery looks for them, so it must cost jobs
//! without tags next to nothing.

use crate::log_record::location::LogRef;
use crate::log_record::push::has_tags;
use crate::log_record::{Record, VERSION, kind};

/// Bytes of a plain job's record beside its payload and the name of its queue: kind, version, and the parts that every
/// job has.
const PLAIN_BYTES: usize = 2 + 2 + 16 + 8 + 8 + 4 + 2 + 4 + 2;

/// Whether a job of `queue` may have tags, by where its record lies: one that is as long as that of a plain job has none.
pub fn may_have_tags_at(stored: &LogRef, queue: &str) -> bool {
    (stored.record_bytes - stored.payload_bytes) as usize != PLAIN_BYTES + queue.len()
}

/// The tags of the job that a record holds: a MessagePack array of texts, or nothing if it has none. Of a record of the
/// commonest kind that is one look.
#[inline]
pub fn tags_of(record: &[u8]) -> &[u8] {
    match record {
        [kind::PUSHED, VERSION, low, high, ..] if !has_tags(u16::from_le_bytes([*low, *high])) => {
            &[]
        }
        _ => decode_tags(record),
    }
}

fn decode_tags(record: &[u8]) -> &[u8] {
    let record = Record::decode_original(record).ok();
    record.and_then(Record::into_pushed).map_or(&[], |pushed| pushed.job.tags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::id::JobId;
    use crate::job::new_job::NewJob;
    use crate::log_record::Pushed;
    use crate::log_record::snapshot::{Kept, Moved};

    const TAGS: &[u8] = b"\x92\xa1a\xa1b";

    fn encoded(record: &Record<'_>) -> Vec<u8> {
        let mut bytes = vec![0; record.encoded_len()];
        record.encode(&mut bytes);
        bytes
    }

    fn pushed(job: NewJob<'_>) -> Vec<u8> {
        encoded(&Record::Pushed(Pushed {
            id: JobId(1),
            queue: "mail",
            run_at_ms: 2,
            job: job.into(),
        }))
    }

    fn lies_as(record: &[u8], data: &[u8]) -> LogRef {
        let (record_bytes, payload_bytes) = (record.len() as u32, data.len() as u32);
        LogRef { position: 8, record_bytes, payload_bytes }
    }

    #[test]
    fn tags_are_found_in_every_record_that_holds_a_job() {
        let job = NewJob { data: b"\x01", tags: TAGS, ..NewJob::default() };
        let record = pushed(job);
        assert_eq!(tags_of(&record), TAGS);
        let moved = Moved { id: JobId(1), from: 8, record: &record, payload_bytes: 1 };
        assert_eq!(tags_of(&encoded(&Record::Kept(Kept::Moved(moved)))), TAGS);
        let named = NewJob { data: b"\x01", name: Some("n"), ..NewJob::default() };
        assert_eq!(tags_of(&pushed(named)), b"");
        for damaged in [&b""[..], b"\x01", &record[..9]] {
            assert_eq!(tags_of(damaged), b"");
        }
    }

    /// Guards a shortcut of pulls: the length of a record says that a job has no rare parts, tags among them.
    #[test]
    fn a_plain_job_is_known_by_the_length_of_its_record() {
        let data = b"\x93\x01\x02\x03";
        let plain = NewJob { data, lifo: true, priority: 7, delay_ms: 5, ..NewJob::default() };
        assert!(!may_have_tags_at(&lies_as(&pushed(plain.clone()), data), "mail"));
        for tags in [TAGS, b"\x91\xa0"] {
            let job = NewJob { tags, ..plain.clone() };
            assert!(may_have_tags_at(&lies_as(&pushed(job), data), "mail"));
        }
    }
}
