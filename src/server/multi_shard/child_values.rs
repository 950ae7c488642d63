//! Outcomes of the children of a job: there may be a hundred thousand, so the answer is written slice by slice, a slice
//! a turn, in the order in which they ended. A child that ends meanwhile may or may not be in the answer.

use crate::api::error::ErrorKind;
use crate::api::request::JobRef;
use crate::protocol::frame::FRAME_BYTES_MAX;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply;
use crate::server::operations::operation::{ChildValueRead, Operation, Sliced};
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use crate::server::storage::engine::{Absent, Fetched, Records};
use corq_io::net::Connections;
use corq_shards::family::{ChildEnd, ChildEnded, Family, How};
use corq_shards::job::id::JobId;
use corq_shards::log_record::Record;
use corq_shards::log_record::location::LogRef;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Children that one slice looks at.
const SLICE_CHILDREN: usize = 500;

/// Bytes of records after which a slice ends.
const SLICE_BYTES: u64 = 256 << 10;

impl ShardServer {
    /// Begins an answer; most are complete with their first slice.
    pub(crate) fn children_values(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        job: JobRef<'_>,
        how: How,
    ) {
        if self.try_as_name(conns, ctx, job) {
            return;
        }
        // No job bears the zero id.
        let job = ctx.id_of(job).unwrap_or_default();
        let (origin, req_id) = (ctx.origin, ctx.req_id.map(Into::into));
        let (after, shown, count, pieces, bytes) = (None, BTreeSet::new(), 0, Vec::new(), 0);
        let valuing =
            ChildValueRead { origin, req_id, job, how, after, shown, count, pieces, bytes };
        self.begin_operation(conns, Operation::ChildValues(Box::new(valuing)));
    }

    /// Writes the next slice. `fetched` holds records that had to be read for it first.
    pub(crate) fn read_child_values_on(
        &mut self,
        conns: &mut Connections,
        mut valuing: Box<ChildValueRead>,
        fetched: Vec<Fetched>,
    ) -> Sliced {
        let found = self.engine.shard.find(valuing.job);
        let Some(index) = found else {
            // In version 3 a job that there is not has no values.
            let refused = (!valuing.origin.version.is_three()).then_some(ErrorKind::JobNotFound);
            return self.end_child_values(conns, *valuing, refused);
        };
        let options = self.engine.shard.view(index).options;
        let family = options.and_then(|options| options.family.as_deref());
        let (ends, next) = slice_of(family, &valuing);
        self.meter.note(ends.len());
        let is_new =
            |end: &&ChildEnd| end.how == valuing.how && !valuing.shown.contains(&end.child);
        let needed: Vec<ChildEnd> = ends.iter().filter(is_new).copied().collect();
        let records = Records::new(&self.engine.journal, &fetched);
        let missing = |stored: &LogRef| records.record(stored) == Err(Absent::Cold);
        let missing: Vec<LogRef> = needed.iter().map(|end| end.stored).filter(missing).collect();
        if !missing.is_empty() {
            return Sliced::Reads(Operation::ChildValues(valuing), missing, fetched);
        }
        let mut piece = Vec::new();
        let mut writer = Writer::new(&mut piece);
        let mut count = 0;
        for ChildEnd { child, stored, .. } in needed {
            if !valuing.shown.insert(child) {
                continue;
            }
            let Some(ended) = records.record(&stored).ok().and_then(ended_of) else {
                return self.end_child_values(conns, *valuing, Some(ErrorKind::Damaged));
            };
            write_value(&mut writer, &ended, valuing.how);
            count += 1;
        }
        valuing.count += count;
        self.meter.note_bytes(piece.len());
        valuing.bytes += piece.len() + count * size_of::<JobId>();
        if !piece.is_empty() {
            valuing.pieces.push(piece);
        }
        if valuing.bytes > FRAME_BYTES_MAX {
            return self.end_child_values(conns, *valuing, Some(ErrorKind::ReplyTooLarge));
        }
        if next.is_none() {
            return self.end_child_values(conns, *valuing, None);
        }
        valuing.after = next;
        Sliced::More(Operation::ChildValues(valuing))
    }

    fn end_child_values(
        &mut self,
        conns: &mut Connections,
        valuing: ChildValueRead,
        refused: Option<ErrorKind>,
    ) -> Sliced {
        let ChildValueRead { origin, req_id, how, count, mut pieces, .. } = valuing;
        let req_id = req_id.as_deref();
        if let Some(error) = refused {
            self.refuse(conns, origin, req_id, error);
            return Sliced::Done;
        }
        let mut head = Vec::new();
        let mut reply = reply::begin(&mut head, true, req_id);
        // As many as there are children, each written in its turn.
        if how == How::Completed {
            reply.map("data").key("values").map(count);
        } else {
            reply.key("values").map(count);
        }
        drop(reply);
        pieces.insert(0, head);
        self.send_pieces(conns, origin, req_id, pieces);
        Sliced::Done
    }
}

/// The next ends, and the place of the last of them if there are more.
fn slice_of(family: Option<&Family>, valuing: &ChildValueRead) -> (Vec<ChildEnd>, Option<u64>) {
    let Some(family) = family else { return (Vec::new(), None) };
    let behind = valuing.after.map_or(Bound::Unbounded, Bound::Excluded);
    let rest = family.ends.range((behind, Bound::Unbounded));
    let (mut ends, mut bytes) = (Vec::new(), 0);
    for (&place, end) in rest {
        ends.push(*end);
        bytes += u64::from(end.stored.record_bytes);
        if ends.len() == SLICE_CHILDREN || bytes >= SLICE_BYTES {
            return (ends, Some(place));
        }
    }
    (ends, None)
}

/// An id as the part of a key behind the last colon: a colon in it would let two children have one key.
fn key_part(id: &str) -> Cow<'_, str> {
    if id.contains([':', '%']) {
        Cow::Owned(id.replace('%', "%25").replace(':', "%3A"))
    } else {
        Cow::Borrowed(id)
    }
}

fn write_value(writer: &mut Writer<'_>, ended: &ChildEnded<'_>, how: How) {
    let (queue, id) = (ended.queue, key_part(ended.known_as));
    writer.str_head(queue.len() + 1 + id.len());
    for part in [queue, ":", &id] {
        writer.raw(part.as_bytes());
    }
    match how {
        How::Completed => writer.raw_or_nil(ended.value),
        _ => writer.str(std::str::from_utf8(ended.value).unwrap_or_default()),
    }
}

fn ended_of(record: &[u8]) -> Option<ChildEnded<'_>> {
    match Record::decode_original(record).ok()? {
        Record::ChildEnded(ended) => Some(ended),
        _ => None,
    }
}
