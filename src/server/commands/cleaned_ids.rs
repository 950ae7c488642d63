//! The answer of `Clean`: it names up to a million jobs, so it is written a slice a turn.

use crate::protocol::frame::FRAME_BYTES_MAX;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply::{self, Frame};
use crate::server::operations::operation::{CleanedIds, Operation, Sliced};
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::effect::KnownAs;
use std::sync::Arc;

/// Ids written at a time, and in about the time of a step.
const SLICE_IDS: usize = 8000;
const IDS_PER_STEP: usize = 8;

/// Bytes of an id in the answer that the server gave: a UUID's text with its marker.
const ID_BYTES: usize = 38;

impl ShardServer {
    /// Answers `Clean`; most answers are complete with their first slice.
    pub(crate) fn write_cleaned(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        ids: &Arc<Vec<Box<[KnownAs]>>>,
    ) {
        let count = ids.iter().map(|slice| slice.len()).sum::<usize>();
        let expected_bytes = count * ID_BYTES;
        // Memory that is not written to costs nothing, and moving what is written would.
        let mut reply = Vec::with_capacity(expected_bytes.min(FRAME_BYTES_MAX));
        let framing = Frame::begin(&mut reply);
        let mut map = reply::begin(&mut reply, true, req_id);
        map.key("count").uint(count as u64);
        map.key("ids").array(count);
        drop(map);
        let (ids, written, gone, req_id) = (Arc::clone(ids), 0, 0, req_id.map(Into::into));
        let cleaned =
            CleanedIds { origin, req_id, ids, written, gone, framing, reply, expected_bytes };
        self.begin_operation(conns, Operation::Cleaned(Box::new(cleaned)));
    }

    /// Writes the next slice.
    pub(crate) fn name_cleaned(
        &mut self,
        conns: &mut Connections,
        mut cleaned: Box<CleanedIds>,
    ) -> Sliced {
        let mut writer = Writer::new(&mut cleaned.reply);
        let mut left = SLICE_IDS;
        while left > 0
            && let Some(slice) = cleaned.ids.get(cleaned.written)
        {
            slice.iter().for_each(|id| write_known_as(&mut writer, id));
            left = left.saturating_sub(slice.len());
            cleaned.written += 1;
        }
        self.meter.note((SLICE_IDS - left) / IDS_PER_STEP);
        // In the turn in which they came others still have them, such as those who carry the answer.
        if let Some(ids) = Arc::get_mut(&mut cleaned.ids) {
            ids[cleaned.gone..cleaned.written].fill_with(Default::default);
            cleaned.gone = cleaned.written;
        }
        if cleaned.written < cleaned.ids.len() {
            return Sliced::More(Operation::Cleaned(cleaned));
        }
        let CleanedIds { origin, req_id, framing, reply, .. } = *cleaned;
        self.end_with_frame(conns, (origin, req_id.as_deref()), framing, reply)
    }
}

fn write_known_as(writer: &mut Writer<'_>, id: &KnownAs) {
    match id {
        KnownAs::Id(id) => writer.uuid(id.0),
        KnownAs::Custom(name) => writer.str(name),
    }
}
