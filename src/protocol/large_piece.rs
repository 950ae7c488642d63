//! Puts an item of megabytes of a long request into a frame of its own and checks it, a slice at a time, so that its
//! payload is copied once and checked once.

use super::decode::pieces::{LargeItem, Walk};
use super::large::{LargeFrame, LargeScan, Place, payload_field_of};
use super::msgpack::scan::Scan;
use super::msgpack::{Malformed, Reader};
use crate::api::commands::{FieldSpec, JOB_FIELDS, Kind};
use crate::api::error::Error;
use crate::api::limits::PAYLOAD_BYTES_MAX;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are copied at a time.
const COPIED_PER_SLICE: usize = 128 << 10;

/// Values that are checked at a time.
const VALUES_PER_SLICE: usize = 16 << 10;

/// Part of the item that is checked.
#[derive(Debug)]
enum Check {
    /// The item is a job: its data.
    Job(LargeScan),
    /// The item is a result.
    Result { list: &'static FieldSpec, scan: Scan },
    /// The item is a job of a flow, which is large by the names in it, and is read as a whole.
    Nothing,
}

/// A frame with one item, on its way.
#[derive(Debug)]
pub struct LargePiece {
    /// The place of the item in the request.
    from: usize,
    bytes: Vec<u8>,
    /// Where the item begins in it.
    head: usize,
    /// Bytes of the item still to be copied, in the frame of the request.
    rest: Range<usize>,
    check: Check,
    done: Option<Arc<LargeFrame>>,
}

impl LargePiece {
    /// The piece that begins with an item, if that has megabytes and can be checked by itself.
    pub fn begin(walk: &Walk, frame: &[u8], queue: Option<&str>, from: usize) -> Option<Box<Self>> {
        let LargeItem { list, place: rest } = walk.large_item(from)?;
        // Leave an item that is no object to the decoder, which refuses it as any other.
        let is_map = || matches!(Reader::new(&frame[rest.clone()]).map(), Ok(Some(_)));
        if list.kind == Kind::Jobs && !is_map() {
            return None;
        }
        let mut head = Vec::new();
        walk.write_head(frame, queue, from, &mut head);
        let mut bytes = Vec::with_capacity(head.len() + rest.len());
        bytes.extend_from_slice(&head);
        let check = match list.kind {
            Kind::Jobs => Check::Job(LargeScan::new(payload_field_of(JOB_FIELDS)?)),
            Kind::Results => Check::Result { list, scan: Scan::at(head.len()) },
            _ => Check::Nothing,
        };
        Some(Box::new(Self { from, bytes, head: head.len(), rest, check, done: None }))
    }

    /// The place of the item in the request.
    pub fn from(&self) -> usize {
        self.from
    }

    /// Memory held.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.done.as_ref().map_or(0, |done| done.held_bytes())
    }

    /// The frame, once it is complete.
    pub fn done(&self) -> Option<&Arc<LargeFrame>> {
        self.done.as_ref()
    }

    /// Copies or checks the next slice of the item of `frame`. Returns how many bytes were copied and values checked.
    pub fn go_on(&mut self, frame: &[u8]) -> Result<(usize, usize), Error> {
        if self.done.is_some() {
            return Ok((0, 0));
        }
        if !self.rest.is_empty() {
            let end = self.rest.end.min(self.rest.start + COPIED_PER_SLICE);
            let copied = self.rest.start..end;
            self.rest.start = end;
            self.bytes.extend_from_slice(&frame[copied.clone()]);
            return Ok((copied.len(), 0));
        }
        let mut values = VALUES_PER_SLICE;
        let from = self.from;
        let payload = match &mut self.check {
            Check::Job(scan) => {
                let item = &self.bytes[self.head..];
                let is_through = scan.go_on(item, &mut values);
                let is_through = is_through.map_err(|error| error.in_job(from))?;
                is_through.then(|| scan.payload().behind(self.head))
            }
            Check::Result { list, scan } => {
                let is_through = match scan.go_on(&self.bytes, &mut values) {
                    Err(Malformed::NotUtf8 | Malformed::Depth) => return Err(list.wrong_item(from)),
                    checked => checked?,
                };
                let value = self.head..scan.place();
                if value.len() > PAYLOAD_BYTES_MAX as usize {
                    return Err(list.wrong_item(from));
                }
                is_through.then(|| Place::of_value(value))
            }
            Check::Nothing => Some(Place::default()),
        };
        if let Some(payload) = payload {
            let bytes = std::mem::take(&mut self.bytes);
            self.done = Some(Arc::new(LargeFrame::new(bytes, 0, payload)));
        }
        Ok((0, VALUES_PER_SLICE - values))
    }
}
