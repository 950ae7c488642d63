//! Frames with payloads of megabytes, or with thousands of payloads: checked a slice at a time, then kept as they are for as
//! long as their command needs them, wherever that is, and read again without going through the payloads.

use crate::protocol::msgpack::known::{Known, Span};
use crate::protocol::msgpack::{Malformed, Reader};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A frame whose payloads have been checked.
#[derive(Debug)]
pub struct LargeFrame {
    bytes: Vec<u8>,
    /// Where the frame begins: what stands before it is not its own.
    start: usize,
    checked: Checked,
}

/// Values of a frame that are not gone through again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Payloads, and lists that hold some, in the order in which they begin.
    pub(super) values: Vec<Span>,
    /// The bytes of the payload that a record keeps, if the frame is about one job: of a text its content only.
    kept: Range<usize>,
}

impl Checked {
    /// Adds a value, which begins behind all others. Returns its place among them.
    pub fn note(&mut self, start: usize, bytes: usize) -> usize {
        self.values.push((start as u32, (start + bytes) as u32));
        self.values.len() - 1
    }

    /// Sets where the value at a place ends.
    pub fn end(&mut self, place: usize, end: usize) {
        self.values[place].1 = end as u32;
    }

    /// Sets which bytes a record keeps, of a frame about one job.
    pub fn keep(&mut self, kept: Range<usize>) {
        self.kept = kept;
    }

    /// Memory held.
    pub fn held_bytes(&self) -> usize {
        self.values.capacity() * size_of::<Span>()
    }
}

impl LargeFrame {
    /// The frame at the end of `bytes`, which a [`LargeScan`] has checked.
    ///
    /// [`LargeScan`]: super::large_scan::LargeScan
    pub fn new(bytes: Vec<u8>, start: usize, checked: Checked) -> Self {
        Self { bytes, start, checked }
    }

    /// Memory held.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.checked.held_bytes()
    }
}

/// A frame, and its payloads if they have been checked before.
#[derive(Clone, Copy, Debug)]
pub struct FrameRef<'a> {
    bytes: &'a [u8],
    large: Option<&'a Arc<LargeFrame>>,
}

impl<'a> FrameRef<'a> {
    /// The frame.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The values that have been checked.
    #[inline]
    pub fn known(self) -> Known<'a> {
        let values = self.large.map_or(&[][..], |large| &large.checked.values);
        Known::of(self.bytes, values)
    }

    /// The payload as a record keeps it; empty if it has not been checked, or the frame is about several jobs.
    pub fn payload(self) -> &'a [u8] {
        self.large.map_or(&[], |large| &self.bytes[large.checked.kept.clone()])
    }

    /// Where the payload begins within a value, if it is a part of it that goes to its end.
    pub(crate) fn payload_within(self, value: Range<usize>) -> Option<usize> {
        let kept = self.large.map(|large| &large.checked.kept)?;
        let is_within = value.start <= kept.start && value.end == kept.end && !kept.is_empty();
        is_within.then(|| kept.start - value.start)
    }

    /// Steps over a value, without a look into it if it is known.
    pub(crate) fn pass(self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        match reader.skip_known(self.known()) {
            Some(_) => Ok(()),
            None => reader.pass(),
        }
    }

    /// The frame to be kept, if that takes no copy.
    pub fn shared(self) -> Option<Arc<LargeFrame>> {
        self.large.cloned()
    }
}

impl<'a> From<&'a [u8]> for FrameRef<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, large: None }
    }
}

impl<'a> From<&'a Arc<LargeFrame>> for FrameRef<'a> {
    fn from(large: &'a Arc<LargeFrame>) -> Self {
        Self { bytes: &large.bytes[large.start..], large: Some(large) }
    }
}

impl Deref for LargeFrame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

impl From<FrameRef<'_>> for Box<[u8]> {
    fn from(frame: FrameRef<'_>) -> Self {
        frame.bytes.into()
    }
}

impl Deref for FrameRef<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// A frame that its command keeps while it waits.
#[derive(Clone, Debug)]
pub enum KeptFrame {
    /// A copy.
    Copied(Box<[u8]>),
    /// The frame itself.
    Shared(Arc<LargeFrame>),
}

impl KeptFrame {
    /// As it was.
    pub fn view(&self) -> FrameRef<'_> {
        match self {
            Self::Copied(bytes) => (&**bytes).into(),
            Self::Shared(large) => large.into(),
        }
    }
}

impl Default for KeptFrame {
    fn default() -> Self {
        Self::Copied(Box::default())
    }
}

impl From<FrameRef<'_>> for KeptFrame {
    fn from(frame: FrameRef<'_>) -> Self {
        frame.shared().map_or_else(|| Self::Copied(frame.into()), Self::Shared)
    }
}

impl From<Vec<u8>> for KeptFrame {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Copied(bytes.into())
    }
}

impl Deref for KeptFrame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.view().bytes
    }
}
