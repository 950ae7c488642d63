//! A record as one value that people and programs can read: its place, its kind, and all that it says.
//!
//! Names are those of the record's fields in `docs/log-format.md`, in the style of the protocol; payloads are
//! the values that clients gave.

use corq_shards::job::id::JobId;
use corq_shards::log_record::codec::Malformed;
use corq_shards::log_record::settings::Grouped;
use corq_shards::log_record::show::Show;
use corq_shards::log_record::snapshot::Kept;
use corq_shards::log_record::{Limited, Record, Revived, Ruled, kind_name};

use crate::protocol::msgpack::writer::Writer;

use super::pen::Pen;

/// Where a record lies.
#[derive(Clone, Copy, Debug)]
pub struct Whereabouts<'a> {
    pub shard: u16,
    pub position: u64,
    /// The segment's file.
    pub file: &'a str,
    /// Where in that file.
    pub offset: u64,
}

/// Writes a record as one `MessagePack` map behind what `out` holds. One that cannot be decoded is written with
/// the reason instead of its content.
pub fn describe(place: Whereabouts<'_>, bytes: &[u8], out: &mut Vec<u8>) {
    let mut writer = Writer::new(out);
    let map = writer.open_map();
    let mut pen = Pen { writer, entries: 0 };
    pen.uint("shard", u64::from(place.shard));
    pen.uint("position", place.position);
    pen.text("file", place.file);
    pen.uint("offset", place.offset);
    pen.uint("bytes", bytes.len() as u64);
    match Record::decode(bytes) {
        Ok(record) => {
            pen.text("kind", kind_name(bytes).unwrap_or("unknown"));
            record.show(&mut pen);
        }
        Err(Malformed(reason)) => {
            pen.text("kind", kind_name(bytes).unwrap_or("unknown"));
            pen.text("error", reason);
        }
    }
    map.close(&mut pen.writer, pen.entries);
}

/// The queue that a record names, if it names one.
pub fn queue_of<'a>(record: &'a Record<'_>) -> Option<&'a str> {
    match record {
        Record::Pushed(pushed) => Some(pushed.queue),
        Record::Staged(staged) => Some(staged.pushed.queue),
        Record::Limited(Limited { queue, .. })
        | Record::Ruled(Ruled { queue, .. })
        | Record::Paused { queue, .. }
        | Record::Grouped(Grouped { queue, .. })
        | Record::GroupsCleared { queue }
        | Record::Kept(Kept::Evicted { queue, .. }) => Some(queue),
        Record::CronSet(set) => Some(set.queue),
        Record::CronRan(ran) => Some(ran.pushed.queue),
        Record::Repeated(repeated) => Some(repeated.next.pushed.queue),
        Record::Kept(Kept::Job(kept)) => Some(kept.pushed.queue),
        Record::WebhookAdded(added) => added.queue,
        Record::Kept(Kept::Moved(moved)) => {
            // The record inside names its queue, if anything does.
            match Record::decode(moved.record) {
                Ok(Record::Pushed(pushed)) => Some(pushed.queue),
                Ok(Record::CronRan(ran)) => Some(ran.pushed.queue),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The jobs that a record is about.
pub fn jobs_of(record: &Record<'_>) -> Vec<JobId> {
    match record {
        Record::Pushed(pushed) => vec![pushed.id],
        Record::Leased(leased) => leased.entries.iter().map(|(id, _)| id).collect(),
        Record::Completed(ended) => vec![ended.id],
        Record::Retried(retried) => vec![retried.id],
        Record::Buried(buried) => vec![buried.id],
        Record::Stalled { id }
        | Record::Released { id }
        | Record::Revived(Revived { id, .. })
        | Record::Removed { id }
        | Record::Blocked { id }
        | Record::Settled { child: id }
        | Record::Met { id, .. } => vec![*id],
        Record::ChildEnded(ended) => vec![ended.parent, ended.child],
        Record::Adopted(adopted) => vec![adopted.parent, adopted.child],
        Record::Staged(staged) => vec![staged.pushed.id],
        Record::Flow { flow, .. } => vec![*flow],
        Record::FlowSlice { first, last, .. } => vec![*first, *last],
        Record::Kept(Kept::Unreported(left)) => vec![left.child],
        Record::Changed(changed) => vec![changed.id()],
        Record::CronRan(ran) => vec![ran.pushed.id],
        Record::Repeated(repeated) => vec![repeated.ended.id, repeated.next.pushed.id],
        Record::Kept(Kept::Job(kept)) => vec![kept.pushed.id],
        Record::Kept(Kept::Moved(moved)) => vec![moved.id],
        Record::Limited(Limited { .. })
        | Record::Ruled(Ruled { .. })
        | Record::Paused { .. }
        | Record::Grouped(_)
        | Record::GroupsCleared { .. }
        | Record::ClockSetBack { .. }
        | Record::CronSet(_)
        | Record::CronMissed { .. }
        | Record::CronRemoved { .. }
        | Record::WebhookAdded(_)
        | Record::WebhookRemoved { .. }
        | Record::Kept(
            Kept::Evicted { .. } | Kept::Ids { .. } | Kept::Clock { .. } | Kept::GivenUp { .. },
        ) => Vec::new(),
        Record::Kept(Kept::CompletedIds(ids)) => ids.iter().collect(),
        Record::Kept(Kept::CompletedNames(names)) => names.iter().map(|(_, id)| id).collect(),
    }
}
