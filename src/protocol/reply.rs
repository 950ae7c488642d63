//! Replies: a map of `ok`, then `reqId` as it was sent, then the command's own fields; over TCP with
//! its length in front.
//!
//! Written straight into the connection's output; nothing is built in between. Which fields a
//! command answers with is not known here.

use corq_shards::job::id::JobId;

use crate::api::error::{ErrorKind, ErrorRef};

use super::frame::{FRAME_BYTES_MAX, PREFIX_BYTES};
use super::msgpack::Reader;
use super::msgpack::writer::MapWriter;

/// A frame being written: what is put into the vector until [`Frame::finish`] is its payload.
#[derive(Debug)]
#[must_use = "a frame that is not finished has no length"]
pub struct Frame {
    start: usize,
}

/// A reply outgrew a frame and was taken back; the client needs an error instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyTooLarge;

impl Frame {
    /// Leaves room for the length.
    #[inline]
    pub fn begin(out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; PREFIX_BYTES]);
        Self { start }
    }

    /// Writes the length. A payload that no frame can hold is removed from `out` again.
    #[inline]
    pub fn finish(self, out: &mut Vec<u8>) -> Result<(), ReplyTooLarge> {
        let payload = self.start + PREFIX_BYTES;
        let length = out.len() - payload;
        if length > FRAME_BYTES_MAX {
            out.truncate(self.start);
            return Err(ReplyTooLarge);
        }
        out[self.start..payload].copy_from_slice(&(length as u32).to_be_bytes());
        Ok(())
    }
}

/// Begins the map of a reply: `ok` and `reqId` if there is one. The caller writes the command's own fields.
#[inline]
pub fn begin<'o>(out: &'o mut Vec<u8>, ok: bool, req_id: Option<&[u8]>) -> MapWriter<'o> {
    let mut reply = MapWriter::begin(out);
    reply.key("ok").bool(ok);
    if let Some(req_id) = req_id {
        reply.key("reqId").raw(req_id);
    }
    reply
}

/// The `reqId` in the payload of a reply written here.
pub fn req_id_of(payload: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(payload);
    for _ in 0..reader.map().ok()?? {
        let key = reader.key().ok()?;
        let value = reader.skip().ok()?;
        if key == b"reqId" {
            return Some(value);
        }
    }
    None
}

/// A whole frame that says no more than ok.
#[inline]
pub fn ok(out: &mut Vec<u8>, req_id: Option<&[u8]>) {
    small(out, |out| {
        begin(out, true, req_id);
    });
}

/// A whole frame with the id of a pushed job.
#[inline]
pub fn id(out: &mut Vec<u8>, req_id: Option<&[u8]>, id: JobId) {
    small(out, |out| {
        begin(out, true, req_id).key("id").uuid(id.0);
    });
}

/// A whole frame that says what went wrong.
#[cold]
pub fn error<'e>(out: &mut Vec<u8>, req_id: Option<&[u8]>, error: impl Into<ErrorRef<'e>>) {
    let error = error.into();
    small(out, |out| write_error(out, req_id, error));
}

/// The fields of an error: the only place where one is written as `MessagePack`.
fn write_error(out: &mut Vec<u8>, req_id: Option<&[u8]>, error: ErrorRef<'_>) {
    put_error(&mut begin(out, false, req_id), error);
}

/// Puts an error into the map of a reply that has more to say.
pub fn put_error(reply: &mut MapWriter<'_>, ErrorRef { code, text }: ErrorRef<'_>) {
    reply.key("error").str(text);
    reply.key("code").str(code.name());
}

/// Frames a reply that is small beside its `reqId`. A client whose `reqId` alone all but fills a
/// frame gets its answer without it.
#[inline]
fn small(out: &mut Vec<u8>, write: impl Fn(&mut Vec<u8>)) {
    let frame = Frame::begin(out);
    write(out);
    if frame.finish(out).is_err() {
        let frame = Frame::begin(out);
        write_error(out, None, ErrorKind::ReplyTooLarge.into());
        // A fixed text of a few bytes always fits.
        let _ = frame.finish(out);
    }
}
