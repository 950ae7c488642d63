//! Protobuf, as far as OTLP needs it: <https://protobuf.dev/programming-guides/encoding/>. Fields that are empty or 0 are left
//! out, as its third version has it.

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const FIXED32: u8 = 5;

/// Writes fields of a message, in the order in which they are given.
#[derive(Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    fn key(&mut self, field: u8, kind: u8) {
        // All fields of OTLP that are written here are below 32, so that their keys take two bytes at most.
        self.varint(u64::from(field) << 3 | u64::from(kind));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(super) fn bytes(&mut self, field: u8, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.key(field, BYTES);
            self.varint(bytes.len() as u64);
            self.0.extend_from_slice(bytes);
        }
    }

    pub(super) fn text(&mut self, field: u8, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    pub(super) fn uint(&mut self, field: u8, value: u64) {
        if value != 0 {
            self.key(field, VARINT);
            self.varint(value);
        }
    }

    pub(super) fn fixed64(&mut self, field: u8, value: u64) {
        if value != 0 {
            self.key(field, FIXED64);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    pub(super) fn fixed32(&mut self, field: u8, value: u32) {
        if value != 0 {
            self.key(field, FIXED32);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// A message within this one, also if it is empty.
    pub(super) fn message(&mut self, field: u8, write: impl FnOnce(&mut Self)) {
        self.key(field, BYTES);
        let at = self.0.len();
        write(self);
        let mut length = Self::default();
        length.varint((self.0.len() - at) as u64);
        // The bytes written move on by those of their length, which was not known before.
        self.0.splice(at..at, length.0);
    }

    /// An attribute: a `KeyValue` whose value is a text.
    pub(super) fn attribute(&mut self, field: u8, key: &str, value: &str) {
        self.message(field, |pair| {
            pair.text(1, key);
            // A value that is an empty text is one all the same.
            pair.message(2, |any| {
                any.key(1, BYTES);
                any.varint(value.len() as u64);
                any.0.extend_from_slice(value.as_bytes());
            });
        });
    }

    /// An attribute whose value is a number.
    pub(super) fn number(&mut self, field: u8, key: &str, value: u64) {
        self.message(field, |pair| {
            pair.text(1, key);
            pair.message(2, |any| {
                any.key(3, VARINT);
                any.varint(value);
            });
        });
    }
}

/// A field as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// A number of fixed length, which no answer has.
    Other,
}

/// Reads the fields of a message. Ends early where it is none.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, bytes: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(bytes).ok()?)?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.varint()?;
        let value = match key as u8 & 7 {
            VARINT => Value::Varint(self.varint()?),
            BYTES => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            FIXED64 => self.take(8).map(|_| Value::Other)?,
            FIXED32 => self.take(4).map(|_| Value::Other)?,
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut message = Message::default();
        message.uint(1, 300);
        message.message(2, |inner| {
            inner.text(1, &"x".repeat(200));
            inner.fixed64(7, 1);
            inner.fixed32(16, 2);
        });
        message.uint(3, 0);
        let fields: Vec<_> = Fields(&message.0).collect();
        assert_eq!(fields[0], (1, Value::Varint(300)));
        let (2, Value::Bytes(inner)) = fields[1] else { panic!("{fields:?}") };
        let inner: Vec<_> = Fields(inner).collect();
        assert_eq!(inner[0], (1, Value::Bytes(&[b'x'; 200])));
        assert_eq!(inner[1..], [(7, Value::Other), (16, Value::Other)]);
        assert_eq!(fields.len(), 2, "a field that is 0 is left out");
    }

    #[test]
    fn what_is_no_message_ends_where_it_is_none() {
        for bytes in [&b"\x0a\x05ab"[..], b"\xff\xff", b"\x0b", b"\x09\x01", &[0xff; 20]] {
            assert_eq!(Fields(bytes).count(), 0, "{bytes:?}");
        }
    }
}
