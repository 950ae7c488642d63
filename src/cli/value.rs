//! A reply as the command line reads it: values borrowed from the frame, none copied, none built.
//!
//! What is absent or of another type reads as nil, since a server of another version may say less.

use crate::protocol::msgpack::{Malformed, Number, Reader};

/// A `MessagePack` value whose edges are known to be right.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    bytes: &'a [u8],
}

const NIL: Value<'static> = Value { bytes: &[0xc0] };

impl<'a> Value<'a> {
    /// The one value that `bytes` hold. Depth is not bounded: a reply nests deeper than a payload.
    pub fn of(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        reader.pass()?;
        if reader.rest().is_empty() { Ok(Self { bytes }) } else { Err(Malformed::Count) }
    }

    /// The value as it came.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    fn reader(self) -> Reader<'a> {
        Reader::new(self.bytes)
    }

    /// Whether nothing stands here.
    pub fn is_nil(self) -> bool {
        self.reader().absent().unwrap_or(true)
    }

    /// The value of a map's entry; nil where there is none.
    pub fn get(self, key: &str) -> Self {
        let found = self.entries().find(|(name, _)| name.text() == Some(key));
        found.map_or(NIL, |(_, value)| value)
    }

    /// The entries of a map.
    pub fn entries(self) -> impl Iterator<Item = (Self, Self)> {
        let mut reader = self.reader();
        let count = reader.map().ok().flatten().unwrap_or(0);
        (0..count).map_while(move |_| Some((next(&mut reader)?, next(&mut reader)?)))
    }

    /// The items of a list.
    pub fn items(self) -> impl Iterator<Item = Self> {
        let mut reader = self.reader();
        let count = reader.array().ok().flatten().unwrap_or(0);
        (0..count).map_while(move |_| next(&mut reader))
    }

    pub fn text(self) -> Option<&'a str> {
        self.reader().text().ok().flatten()
    }

    pub fn number(self) -> Option<f64> {
        match self.reader().number().ok().flatten()? {
            Number::Whole(whole) => Some(whole as f64),
            Number::Float(float) => Some(float),
        }
    }

    /// A number as a whole one; those beyond 32 bits travel as floats.
    pub fn integer(self) -> Option<i64> {
        match self.reader().number().ok().flatten()? {
            Number::Whole(whole) => Some(whole),
            Number::Float(float) => Some(float as i64),
        }
    }

    /// A number as a whole one from zero; zero where there is none.
    pub fn count(self) -> u64 {
        self.integer().and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
    }

    /// Whether this is true.
    pub fn is_true(self) -> bool {
        self.reader().flag().ok().flatten() == Some(true)
    }

    /// Whether this is false.
    pub fn is_false(self) -> bool {
        self.reader().flag().ok().flatten() == Some(false)
    }
}

fn next<'a>(reader: &mut Reader<'a>) -> Option<Value<'a>> {
    let before = reader.rest();
    reader.pass().ok()?;
    Some(Value { bytes: &before[..before.len() - reader.rest().len()] })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::protocol::msgpack::writer::Writer;

    fn sample() -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.map(4);
        writer.str("list");
        writer.array(2);
        writer.uint(7);
        writer.uint(1_700_000_000_000);
        writer.str("none");
        writer.nil();
        writer.str("yes");
        writer.bool(true);
        writer.str("text");
        writer.str("words");
        out
    }

    #[test]
    fn values_are_found_by_their_way() {
        let bytes = sample();
        let value = Value::of(&bytes).unwrap();
        let list: Vec<i64> = value.get("list").items().filter_map(Value::integer).collect();
        assert_eq!(list, [7, 1_700_000_000_000]);
        assert!(value.get("none").is_nil() && value.get("yes").is_true());
        assert_eq!(value.get("text").text(), Some("words"));
        assert_eq!(value.entries().count(), 4);
    }

    #[test]
    fn what_is_not_there_is_nil_all_the_way_down() {
        let bytes = sample();
        let value = Value::of(&bytes).unwrap();
        let absent = value.get("text").get("deeper").get("still");
        assert!(absent.is_nil() && absent.items().next().is_none() && absent.text().is_none());
        assert_eq!(absent.count(), 0);
    }

    #[test]
    fn bytes_that_break_off_or_go_on_are_no_value() {
        let bytes = sample();
        assert!(Value::of(&bytes[..bytes.len() - 1]).is_err());
        assert!(Value::of(&[bytes.as_slice(), &[0xc0]].concat()).is_err());
    }
}
