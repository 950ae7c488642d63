//! Where a reply is written: into the output of a connection, or into a batch for the shard that has the connection. A
//! payload that has to be read from the disk first leaves a placeholder of its length.
//!
//! A ground type: it imports nothing of the server.

use crate::api::error::ErrorKind;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply::{self, Frame};
use corq_shards::log_record::location::LogRef;

/// A payload that is missing in a reply.
#[derive(Clone, Copy, Debug)]
pub struct Placeholder {
    /// Where it goes.
    pub at: usize,
    /// Which it is.
    pub stored: LogRef,
    /// Where the tags of the job go that the same record holds, if it may have any.
    pub tags: Option<TagsPlace>,
}

/// Where the tags of a job go, as the last entry of its map, once its record is there and has some.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TagsPlace {
    /// Where the two bytes of the number of entries are.
    pub count_at: usize,
    /// Where the map ends.
    pub at: usize,
}

impl Placeholder {
    /// Moves the placeholder to the front by `start` bytes, which were cut off.
    pub fn cut_off(&mut self, start: usize) {
        self.at -= start;
        if let Some(TagsPlace { count_at, at }) = &mut self.tags {
            *count_at -= start;
            *at -= start;
        }
    }
}

/// A reply being written.
pub struct ReplyWriter<'a> {
    /// The connection's output, or the batch that carries it there.
    pub out: &'a mut Vec<u8>,
    /// Payloads that are still missing in it.
    pub placeholders: &'a mut Vec<Placeholder>,
}

/// Frames what `write` writes; a reply too large for a frame becomes an error.
pub(crate) fn framed(
    sink: &mut ReplyWriter<'_>,
    req_id: Option<&[u8]>,
    write: impl FnOnce(&mut ReplyWriter<'_>),
) {
    let placeholders = sink.placeholders.len();
    let frame = Frame::begin(sink.out);
    write(sink);
    if frame.finish(sink.out).is_err() {
        sink.placeholders.truncate(placeholders);
        reply::error(sink.out, req_id, ErrorKind::ReplyTooLarge);
    }
}

/// An answer that says one thing, in `data`.
pub(crate) fn write_data(
    sink: &mut ReplyWriter<'_>,
    req_id: Option<&[u8]>,
    name: &str,
    write: impl FnOnce(&mut Writer<'_>),
) {
    framed(sink, req_id, |sink| {
        let mut reply = reply::begin(sink.out, true, req_id);
        write(&mut reply.map("data").key(name));
    });
}
