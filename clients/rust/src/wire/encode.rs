//! Writes values at the end of a request. Large payloads that exist as bytes already are not copied: they
//! are kept aside with their place, and go out from where they are.

use bytes::Bytes;
use rmp::encode as mp;
use serde::Serialize;

use crate::error::Error;
use crate::raw::Raw;

/// Payloads from this size on are worth a send of their own.
const ASIDE_BYTES_MIN: usize = 16 << 10;

/// Values that follow each other.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
    /// Large payloads, each with the offset in `bytes` before which it belongs.
    aside: Vec<(usize, Bytes)>,
}

/// Unwraps the result of an `rmp` write into a vector, which cannot fail.
#[allow(clippy::needless_pass_by_value)] // A result is there to be consumed.
fn sure<T, E>(written: Result<T, E>) {
    assert!(written.is_ok(), "a vector takes every write");
}

impl Encoder {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub(crate) fn aside(&self) -> &[(usize, Bytes)] {
        &self.aside
    }

    /// Bytes of all that was written, what is kept aside included.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.aside.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
    }

    pub(crate) fn map(&mut self, entries: u32) {
        sure(mp::write_map_len(&mut self.bytes, entries));
    }

    pub(crate) fn array(&mut self, items: usize) {
        sure(mp::write_array_len(&mut self.bytes, items as u32));
    }

    pub(crate) fn str(&mut self, text: &str) {
        sure(mp::write_str(&mut self.bytes, text));
    }

    pub(crate) fn uint(&mut self, number: u64) {
        sure(mp::write_uint(&mut self.bytes, number));
    }

    pub(crate) fn int(&mut self, number: i64) {
        sure(mp::write_sint(&mut self.bytes, number));
    }

    pub(crate) fn float(&mut self, number: f64) {
        sure(mp::write_f64(&mut self.bytes, number));
    }

    pub(crate) fn nil(&mut self) {
        sure(mp::write_nil(&mut self.bytes));
    }

    pub(crate) fn bool(&mut self, value: bool) {
        sure(mp::write_bool(&mut self.bytes, value));
    }

    /// Bytes as they are.
    pub(crate) fn splice(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A value that is encoded already.
    pub(crate) fn raw(&mut self, value: &Raw) {
        let bytes = value.as_bytes();
        if bytes.len() < ASIDE_BYTES_MIN {
            self.bytes.extend_from_slice(bytes);
        } else {
            self.aside.push((self.bytes.len(), bytes.clone()));
        }
    }

    /// Any value. If it cannot be written, nothing of it is.
    pub(crate) fn serialize<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let start = self.bytes.len();
        let mut serializer =
            rmp_serde::Serializer::new(&mut self.bytes).with_struct_map().with_human_readable();
        value.serialize(&mut serializer).map_err(|error| {
            self.bytes.truncate(start);
            Error::Payload(error.to_string().into())
        })
    }

    /// All that another encoder has.
    pub(crate) fn append(&mut self, other: &Self) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.aside.extend(other.aside.iter().map(|(at, bytes)| (start + at, bytes.clone())));
    }

    /// Begins a map whose entries are counted by the caller; says where its count lies.
    pub(crate) fn open_map(&mut self) -> usize {
        self.bytes.extend_from_slice(&[rmp::Marker::Map16.to_u8(), 0, 0]);
        self.bytes.len() - 2
    }

    pub(crate) fn close_map(&mut self, count_at: usize, entries: u16) {
        self.bytes[count_at..count_at + 2].copy_from_slice(&entries.to_be_bytes());
    }

    /// All written values as one piece.
    pub(crate) fn into_bytes(self) -> Bytes {
        if self.aside.is_empty() {
            return self.bytes.into();
        }
        let mut whole = Vec::with_capacity(self.len());
        let mut from = 0;
        for (at, bytes) in &self.aside {
            whole.extend_from_slice(&self.bytes[from..*at]);
            whole.extend_from_slice(bytes);
            from = *at;
        }
        whole.extend_from_slice(&self.bytes[from..]);
        whole.into()
    }
}
