//! Answers to clients that finish or renew attempts, beside ok.
//!
//! A ground type: of the server it imports ground types only.

use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply;
use crate::server::connection::reply_writer::{ReplyWriter, framed};

/// Why the outcome of an attempt is not taken that the server has ended for its time.
pub(crate) const TOO_LATE: &str = "already-finalized";

/// The answer to a client that finishes an attempt which is over already.
pub(super) fn write_too_late(sink: &mut ReplyWriter<'_>, req_id: Option<&[u8]>) {
    framed(sink, req_id, |sink| {
        let mut reply = reply::begin(sink.out, true, req_id);
        let mut data = reply.map("data");
        data.key("applied").bool(false);
        data.key("reason").str(TOO_LATE);
    });
}

/// How many jobs were renewed, and the places of those that were not.
pub(crate) fn write_renewed(
    sink: &mut ReplyWriter<'_>,
    req_id: Option<&[u8]>,
    renewed: u64,
    gone: &[usize],
) {
    framed(sink, req_id, |sink| {
        let mut reply = reply::begin(sink.out, true, req_id);
        let mut data = reply.map("data");
        data.key("ok").bool(true);
        data.key("count").uint(renewed);
        if !gone.is_empty() {
            let mut places = data.key("goneIndices");
            places.array(gone.len());
            for &place in gone {
                places.uint(place as u64);
            }
        }
    });
}

/// The answer with the completions that came too late, by place and id: `ids` writes those.
pub(crate) fn write_ignored(
    sink: &mut ReplyWriter<'_>,
    req_id: Option<&[u8]>,
    places: &[usize],
    ids: impl FnOnce(&mut Writer<'_>),
) {
    framed(sink, req_id, |sink| {
        let mut reply = reply::begin(sink.out, true, req_id);
        let mut data = reply.map("data");
        let mut list = data.key("ignoredIndices");
        list.array(places.len());
        for &place in places {
            list.uint(place as u64);
        }
        let mut list = data.key("ignoredIds");
        list.array(places.len());
        ids(&mut list);
    });
}
