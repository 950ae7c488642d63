//! Little-endian fields in and out of byte slices: what records are made of.

use crate::job::id::JobId;

/// Where some bytes lie, as long as they do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Their address.
    pub address: usize,
    /// How many they are.
    pub bytes: usize,
}

impl Place {
    /// That of these.
    pub fn of(bytes: &[u8]) -> Self {
        Self { address: bytes.as_ptr().addr(), bytes: bytes.len() }
    }
}

/// Writes fields into a slice that was measured before.
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
    payload: Payload,
}

/// Where a writer puts the payload, which is the last piece of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Payload {
    /// The payload is written like all else.
    Written,
    /// The payload has no room, and its place in memory will be noted.
    Skipped,
    /// The payload was left out, and lies at this place in memory.
    Noted(Place),
    /// The bytes without room were more or less than the payload.
    Inseparable,
}

impl<'a> Writer<'a> {
    /// Starts at the beginning of `bytes`.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0, payload: Payload::Written }
    }

    /// Starts a writer for all but the payload, which is the last piece of bytes.
    pub fn before_payload(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0, payload: Payload::Skipped }
    }

    /// Raw bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        match self.bytes.get_mut(self.at..self.at + bytes.len()) {
            Some(place) => place.copy_from_slice(bytes),
            None => return self.leave_out(bytes),
        }
        self.at += bytes.len();
    }

    #[cold]
    fn leave_out(&mut self, bytes: &[u8]) {
        let is_last = self.at == self.bytes.len() && self.payload == Payload::Skipped;
        assert!(self.payload != Payload::Written, "a record is no longer than it was measured");
        self.payload =
            if is_last { Payload::Noted(Place::of(bytes)) } else { Payload::Inseparable };
    }

    /// Writes one byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Sixteen bytes.
    pub fn id(&mut self, id: JobId) {
        self.bytes(&id.0.to_le_bytes());
    }

    /// A length of two bytes and as many bytes. The length was checked when the value came.
    pub fn short(&mut self, bytes: &[u8]) {
        assert!(u16::try_from(bytes.len()).is_ok(), "a short field has a short length");
        self.u16(bytes.len() as u16);
        self.bytes(bytes);
    }

    /// Ends the writing; the slice must be full. Returns where the payload is, if that was to be left out and is a piece
    /// by itself: a record that was moved holds another one with its payload.
    pub fn finish(&self) -> Option<Place> {
        match self.payload {
            Payload::Noted(place) if self.at == self.bytes.len() => Some(place),
            Payload::Noted(_) | Payload::Inseparable => None,
            Payload::Written | Payload::Skipped => {
                assert_eq!(self.at, self.bytes.len(), "a record is as long as it was measured");
                None
            }
        }
    }
}

/// Bytes that are not a record of this program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(
    /// The part that was being read.
    pub &'static str,
);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "malformed record: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Reads fields from a slice, checking every length.
#[derive(Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// `count` raw bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed("too short"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed("too short"))?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Reads one byte.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// Sixteen bytes.
    pub fn id(&mut self) -> Result<JobId, Malformed> {
        self.array().map(|bytes| JobId(u128::from_le_bytes(bytes)))
    }

    /// Bytes behind a length of two bytes.
    pub fn short(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.u16()?;
        self.bytes(usize::from(count))
    }

    /// Text behind a length of two bytes.
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.short()?).map_err(|_| Malformed("text is not UTF-8"))
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// All that is left.
    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// All that is left, as text.
    pub fn rest_text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.rest).map_err(|_| Malformed("text is not UTF-8"))
    }
}
