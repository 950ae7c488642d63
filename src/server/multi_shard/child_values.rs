//! Outcomes of the children of a job: there may be a hundred thousand, so the answer is written slice by slice, a slice
//! a turn, in the order in which they ended. A child that ends meanwhile may or may not be in the answer.

use super::child_value_read::ChildValueRead;
use crate::api::error::ErrorKind;
use crate::api::request::JobRef;
use crate::protocol::frame::FRAME_BYTES_MAX;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use crate::server::storage::cold_reads::Continuation;
use crate::server::storage::engine::{Absent, Fetched, Records};
use corq_io::net::Connections;
use corq_shards::command::ClientId;
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
        let (after, shown) = (None, BTreeSet::new());
        let (count, pieces, bytes) = (0, Vec::new(), 0);
        let in_data = how == How::Completed;
        let valuing = ChildValueRead {
            origin,
            req_id,
            job,
            how,
            in_data,
            after,
            shown,
            count,
            pieces,
            bytes,
        };
        self.read_child_values_on(conns, valuing, &[]);
    }

    /// Writes a slice of the answer whose turn it is. True if there is more to do.
    pub(crate) fn read_child_values_in_turn(&mut self, conns: &mut Connections) -> bool {
        let Some(valuing) = self.child_value_reads.pop_front() else { return false };
        self.answered(valuing.origin);
        self.read_child_values_on(conns, valuing, &[]);
        !self.child_value_reads.is_empty()
    }

    /// Writes the next slice. `fetched` holds records that had to be read for it first.
    pub(crate) fn read_child_values_on(
        &mut self,
        conns: &mut Connections,
        mut valuing: ChildValueRead,
        fetched: &[Fetched],
    ) {
        let found = self.engine.shard.find(valuing.job);
        let Some(index) = found else {
            // In version 3 a job that there is not has no values.
            let refused = (!valuing.origin.version.is_three()).then_some(ErrorKind::JobNotFound);
            self.end_child_values(conns, valuing, refused);
            return;
        };
        let options = self.engine.shard.view(index).options;
        let family = options.and_then(|options| options.family.as_deref());
        let (ends, next) = slice_of(family, &valuing);
        self.meter.note(ends.len());
        let is_new =
            |end: &&ChildEnd| end.how == valuing.how && !valuing.shown.contains(&end.child);
        let needed: Vec<ChildEnd> = ends.iter().filter(is_new).copied().collect();
        let records = Records::new(&self.engine.journal, fetched);
        let missing = |stored: &LogRef| records.record(stored) == Err(Absent::Cold);
        let missing: Vec<LogRef> = needed.iter().map(|end| end.stored).filter(missing).collect();
        if !missing.is_empty() {
            let (origin, then) = (valuing.origin, Continuation::ChildValues(Box::new(valuing)));
            self.read_first(origin, then, &missing, fetched.to_vec());
            return;
        }
        let mut piece = Vec::new();
        let mut writer = Writer::new(&mut piece);
        let mut count = 0;
        for ChildEnd { child, stored, .. } in needed {
            if !valuing.shown.insert(child) {
                continue;
            }
            let Some(ended) = records.record(&stored).ok().and_then(ended_of) else {
                self.end_child_values(conns, valuing, Some(ErrorKind::Damaged));
                return;
            };
            write_value(&mut writer, &ended, valuing.how);
            count += 1;
        }
        valuing.count += count;
        let bytes = piece.len() + count * size_of::<JobId>();
        valuing.bytes += bytes;
        self.large_replies.note_begun(bytes);
        if !piece.is_empty() {
            valuing.pieces.push(piece);
        }
        if valuing.bytes > FRAME_BYTES_MAX {
            self.end_child_values(conns, valuing, Some(ErrorKind::ReplyTooLarge));
            return;
        }
        match next {
            Some(after) => {
                valuing.after = Some(after);
                self.deferred(valuing.origin);
                self.child_value_reads.push_back(valuing.origin.client, valuing);
            }
            None => self.end_child_values(conns, valuing, None),
        }
    }

    fn end_child_values(
        &mut self,
        conns: &mut Connections,
        valuing: ChildValueRead,
        refused: Option<ErrorKind>,
    ) {
        let ChildValueRead { origin, req_id, in_data, count, mut pieces, bytes, .. } = valuing;
        self.large_replies.note_shown(bytes);
        let req_id = req_id.as_deref();
        if let Some(error) = refused {
            self.refuse(conns, origin, req_id, error);
            return;
        }
        let mut head = Vec::new();
        let mut reply = reply::begin(&mut head, true, req_id);
        // As many as there are children, each written in its turn.
        if in_data {
            reply.map("data").key("values").map(count);
        } else {
            reply.key("values").map(count);
        }
        drop(reply);
        pieces.insert(0, head);
        self.send_pieces(conns, origin, req_id, pieces);
    }

    /// Ends the answers to a client that is gone.
    pub(crate) fn stop_child_values(&mut self, client: ClientId) {
        for valuing in self.child_value_reads.take_of(client, |_| true) {
            self.large_replies.note_shown(valuing.bytes);
        }
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
