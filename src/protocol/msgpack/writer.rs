//! Writes `MessagePack` into a byte vector, value by value, without building a tree first.
//!
//! Integers that do not fit 32 bits become floats: JavaScript clients would read them as `BigInt`
//! otherwise. What the values mean is not known here.

use rmp::Marker;

use crate::protocol::uuid_text;
use crate::protocol::uuid_text::UUID_CHARS;

/// Writes values at the end of a vector.
#[derive(Debug)]
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
}

/// A map whose number of entries is not known yet, for one who owns the vector and so cannot keep a [`MapWriter`].
#[derive(Debug)]
#[must_use = "a map that is not closed has a wrong count"]
pub struct OpenMap {
    count_at: usize,
}

/// An array whose number of items is not known yet.
#[derive(Debug)]
#[must_use = "an array that is not closed has a wrong count"]
pub struct OpenArray {
    count_at: usize,
}

/// A map that counts its entries while they are written, and writes the count when it is dropped.
///
/// Its count takes one byte up to 15 entries; with more, what is written moves by two bytes, unless the map was begun as
/// a wide one.
#[derive(Debug)]
pub struct MapWriter<'o> {
    out: &'o mut Vec<u8>,
    head_at: usize,
    entries: u16,
}

impl<'o> MapWriter<'o> {
    /// Begins a map behind what `out` holds.
    #[inline]
    pub fn begin(out: &'o mut Vec<u8>) -> Self {
        let head_at = out.len();
        out.push(Marker::FixMap(0).to_u8());
        Self { out, head_at, entries: 0 }
    }

    /// Begins a map that may have more than 15 entries: its count takes three bytes, and what is written stays where it
    /// is, which matters for large values.
    #[inline]
    pub fn begin_wide(out: &'o mut Vec<u8>) -> Self {
        let head_at = out.len();
        out.extend_from_slice(&[Marker::Map16.to_u8(), 0, 0]);
        Self { out, head_at, entries: 0 }
    }

    /// Begins an entry: one value must follow.
    #[inline]
    pub fn key(&mut self, key: &str) -> Writer<'_> {
        self.entries += 1;
        let mut writer = Writer::new(self.out);
        writer.str(key);
        writer
    }

    /// Begins an entry whose value is a map.
    #[inline]
    pub fn map(&mut self, key: &str) -> MapWriter<'_> {
        self.key(key);
        MapWriter::begin(self.out)
    }

    /// Counts entries that are written behind the map after it is dropped: in a later turn, or into another vector.
    #[inline]
    pub fn count_later(&mut self, entries: u16) {
        self.entries += entries;
    }

    /// Whether it has no entry yet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Where the next entry begins in the vector.
    #[inline]
    pub fn position(&self) -> usize {
        self.out.len()
    }
}

impl Drop for MapWriter<'_> {
    #[inline]
    fn drop(&mut self) {
        let [high, low] = self.entries.to_be_bytes();
        let head = [Marker::Map16.to_u8(), high, low];
        if self.out[self.head_at] == Marker::Map16.to_u8() {
            self.out[self.head_at..self.head_at + 3].copy_from_slice(&head);
        } else if self.entries < 16 {
            self.out[self.head_at] = Marker::FixMap(0).to_u8() | self.entries as u8;
        } else {
            self.out.splice(self.head_at..=self.head_at, head);
        }
    }
}

impl OpenMap {
    /// Where its count is, in two bytes.
    #[inline]
    pub fn count_at(&self) -> usize {
        self.count_at
    }

    /// Ends the map, in the vector it was begun in.
    #[inline]
    pub fn close(self, writer: &mut Writer<'_>, entries: u16) {
        writer.out[self.count_at..self.count_at + 2].copy_from_slice(&entries.to_be_bytes());
    }
}

impl OpenArray {
    /// Ends the array, in the vector it was begun in.
    #[inline]
    pub fn close(self, writer: &mut Writer<'_>, items: u32) {
        writer.out[self.count_at..self.count_at + 4].copy_from_slice(&items.to_be_bytes());
    }
}

impl<'o> Writer<'o> {
    /// Writes behind what `out` holds.
    #[inline]
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Begins a map of `entries` entries: as many keys and values must follow.
    #[inline]
    pub fn map(&mut self, entries: usize) {
        self.head(entries, Marker::FixMap(0).to_u8(), Marker::Map16, Marker::Map32);
    }

    /// Begins an array of `items` items.
    #[inline]
    pub fn array(&mut self, items: usize) {
        self.head(items, Marker::FixArray(0).to_u8(), Marker::Array16, Marker::Array32);
    }

    #[inline]
    fn head(&mut self, count: usize, fixed: u8, wide: Marker, widest: Marker) {
        if count < 16 {
            self.out.push(fixed | count as u8);
        } else if let Ok(count) = u16::try_from(count) {
            self.marked(wide, count.to_be_bytes());
        } else {
            self.marked(widest, (count as u32).to_be_bytes());
        }
    }

    #[inline]
    fn marked<const N: usize>(&mut self, marker: Marker, bytes: [u8; N]) {
        self.out.push(marker.to_u8());
        self.out.extend_from_slice(&bytes);
    }

    /// Begins a map that counts its entries itself.
    #[inline]
    pub fn begin_map(&mut self) -> MapWriter<'_> {
        MapWriter::begin(self.out)
    }

    /// Begins a map that counts its entries itself and may have more than 15.
    #[inline]
    pub fn begin_wide_map(&mut self) -> MapWriter<'_> {
        MapWriter::begin_wide(self.out)
    }

    /// Begins a map of up to 65,535 entries, to be counted when it is closed.
    #[inline]
    pub fn open_map(&mut self) -> OpenMap {
        self.marked(Marker::Map16, [0; 2]);
        OpenMap { count_at: self.out.len() - 2 }
    }

    /// Begins an array to be counted when it is closed.
    #[inline]
    pub fn open_array(&mut self) -> OpenArray {
        self.marked(Marker::Array32, [0; 4]);
        OpenArray { count_at: self.out.len() - 4 }
    }

    #[inline]
    pub fn str(&mut self, text: &str) {
        self.str_head(text.len());
        self.out.extend_from_slice(text.as_bytes());
    }

    /// An array of strings.
    pub fn strs(&mut self, texts: &[&str]) {
        self.array(texts.len());
        for text in texts {
            self.str(text);
        }
    }

    /// Begins a string of `length` bytes, which must follow.
    #[inline]
    pub fn str_head(&mut self, length: usize) {
        if length < 32 {
            self.out.push(Marker::FixStr(0).to_u8() | length as u8);
        } else if let Ok(length) = u8::try_from(length) {
            self.marked(Marker::Str8, [length]);
        } else if let Ok(length) = u16::try_from(length) {
            self.marked(Marker::Str16, length.to_be_bytes());
        } else {
            self.marked(Marker::Str32, (length as u32).to_be_bytes());
        }
    }

    /// A string, or nil.
    #[inline]
    pub fn str_or_nil(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.str(text),
            None => self.nil(),
        }
    }

    /// As [`Self::str_or_nil`], for a text that was checked before, of which only the bytes are known.
    pub fn checked_str_or_nil(&mut self, text: Option<&[u8]>) {
        let Some(text) = text else { return self.nil() };
        self.str_head(text.len());
        self.out.extend_from_slice(text);
    }

    /// The text of a UUID: a job's id or a lock's token.
    #[inline]
    pub fn uuid(&mut self, bits: u128) {
        let mut text = [0; UUID_CHARS + 2];
        text[0] = Marker::Str8.to_u8();
        text[1] = UUID_CHARS as u8;
        text[2..].copy_from_slice(&uuid_text::format(bits));
        self.out.extend_from_slice(&text);
    }

    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.out.push(if value { Marker::True } else { Marker::False }.to_u8());
    }

    /// A whole number from zero.
    #[inline]
    pub fn uint(&mut self, value: u64) {
        if value < 128 {
            self.out.push(value as u8);
        } else if let Ok(value) = u8::try_from(value) {
            self.marked(Marker::U8, [value]);
        } else if let Ok(value) = u16::try_from(value) {
            self.marked(Marker::U16, value.to_be_bytes());
        } else if let Ok(value) = u32::try_from(value) {
            self.marked(Marker::U32, value.to_be_bytes());
        } else {
            self.f64(value as f64);
        }
    }

    /// A whole number.
    #[inline]
    pub fn int(&mut self, value: i64) {
        if value >= 0 {
            self.uint(value as u64);
        } else if value >= -32 {
            self.out.push(value as u8);
        } else if let Ok(value) = i8::try_from(value) {
            self.marked(Marker::I8, value.to_be_bytes());
        } else if let Ok(value) = i16::try_from(value) {
            self.marked(Marker::I16, value.to_be_bytes());
        } else if let Ok(value) = i32::try_from(value) {
            self.marked(Marker::I32, value.to_be_bytes());
        } else {
            self.f64(value as f64);
        }
    }

    /// A whole number, or nil.
    #[inline]
    pub fn uint_or_nil(&mut self, value: Option<u64>) {
        match value {
            Some(value) => self.uint(value),
            None => self.nil(),
        }
    }

    /// A whole number from zero as one, however large: for what a client gave.
    #[inline]
    pub fn whole_uint(&mut self, value: u64) {
        if u32::try_from(value).is_ok() {
            self.uint(value);
        } else {
            self.marked(Marker::U64, value.to_be_bytes());
        }
    }

    /// A whole number as one, however large: for what a client gave.
    #[inline]
    pub fn whole_int(&mut self, value: i64) {
        if let Ok(value) = u64::try_from(value) {
            self.whole_uint(value);
        } else if i32::try_from(value).is_ok() {
            self.int(value);
        } else {
            self.marked(Marker::I64, value.to_be_bytes());
        }
    }

    /// A float, always as one.
    #[inline]
    pub fn f64(&mut self, value: f64) {
        self.marked(Marker::F64, value.to_be_bytes());
    }

    /// A number that may have a fraction: as an integer where it has none and fits 32 bits, since
    /// clients read whole numbers with integer accessors.
    #[inline]
    pub fn number(&mut self, value: f64) {
        let fits = (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&value);
        if fits && value.fract() == 0.0 {
            self.int(value as i64);
        } else {
            self.f64(value);
        }
    }

    /// Writes nil.
    #[inline]
    pub fn nil(&mut self) {
        self.out.push(Marker::Null.to_u8());
    }

    /// A value that is encoded already.
    #[inline]
    pub fn raw(&mut self, value: &[u8]) {
        self.out.extend_from_slice(value);
    }

    /// A value that is encoded already, or nil where there is none.
    #[inline]
    pub fn raw_or_nil(&mut self, value: &[u8]) {
        if value.is_empty() { self.nil() } else { self.raw(value) }
    }

    /// Leaves `bytes` zeros for an encoded value that has to be fetched first, and says where in
    /// the vector they begin.
    #[inline]
    pub fn raw_hole(&mut self, bytes: usize) -> usize {
        let at = self.out.len();
        self.out.resize(at + bytes, 0);
        at
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rmpv::Value;

    fn read(bytes: &[u8]) -> Value {
        let mut rest = bytes;
        let value = rmpv::decode::read_value(&mut rest).unwrap();
        assert!(rest.is_empty(), "{} bytes behind the map", rest.len());
        value
    }

    fn fill(map: &mut MapWriter<'_>, entries: usize) {
        (0..entries).for_each(|n| map.key(&n.to_string()).uint(n as u64));
    }

    #[test]
    fn a_map_has_as_many_entries_as_were_written_and_a_short_head_up_to_15() {
        for entries in [0, 1, 15, 16, 300] {
            let mut bytes = vec![0xc0];
            let mut outer = MapWriter::begin(&mut bytes);
            fill(&mut outer.map("inner"), entries);
            outer.key("behind").bool(true);
            drop(outer);
            assert_eq!(bytes[1], 0x82);
            let value = read(&bytes[1..]);
            assert_eq!(value["inner"].as_map().unwrap().len(), entries);
            assert_eq!(value["behind"], Value::from(true));
            let mut counted = Vec::new();
            Writer::new(&mut counted).map(entries);
            assert_eq!(bytes[2 + 1 + "inner".len()..][..counted.len()], counted);
        }
    }

    /// Placeholders in it are filled by where they were written.
    #[test]
    fn what_a_wide_map_holds_stays_where_it_was_written() {
        for entries in [1, 40] {
            let mut bytes = Vec::new();
            let mut map = MapWriter::begin_wide(&mut bytes);
            let at = map.key("hole").raw_hole(1);
            fill(&mut map, entries);
            drop(map);
            bytes[at] = 0xc3;
            let value = read(&bytes);
            assert_eq!(value["hole"], Value::from(true));
            assert_eq!(value.as_map().unwrap().len(), entries + 1);
        }
    }

    #[test]
    fn entries_that_follow_a_map_later_are_counted() {
        let mut bytes = Vec::new();
        let mut map = MapWriter::begin(&mut bytes);
        assert!(map.is_empty());
        map.key("now").bool(true);
        map.count_later(1);
        drop(map);
        let mut later = Writer::new(&mut bytes);
        later.str("later");
        later.bool(true);
        assert_eq!(read(&bytes)["later"], Value::from(true));
    }
}
