//! Walks `MessagePack` on a slice: reads, checks and skips values without building any.
//!
//! Every read takes the bytes it needs or says that the frame is malformed; no length that a frame
//! announces is trusted before the bytes are there. What a value means is not known here.
//!
//! | file | responsibility |
//! |---|---|
//! | `known` | values that have been checked before |
//! | `patch` | a map with some entries changed |
//! | `scan` | the check of a long value, a slice at a time |
//! | `step` | one step: the next scalar, or the size of the next container |
//! | `writer` | writes values into a byte vector |

pub mod known;
pub(crate) mod patch;
pub(crate) mod scan;
pub mod step;
pub mod writer;

use std::fmt;

use rmp::Marker;

use crate::api::limits::DEPTH_MAX;
use known::Known;

/// Why bytes are not a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// They end in the middle of one.
    Truncated,
    /// A list or map announces more entries than bytes follow.
    Count,
    /// Arrays and maps nest deeper than [`DEPTH_MAX`].
    Depth,
    /// The marker that the format never uses.
    Reserved,
    /// A string that is not UTF-8.
    NotUtf8,
    /// Something follows the value.
    Trailing,
}

impl fmt::Display for Malformed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Truncated => "it ends in the middle of a value",
            Self::Count => "a list or map announces more entries than it holds",
            Self::Depth => "lists and maps nest too deep",
            Self::Reserved => "the byte 0xc1 begins no value",
            Self::NotUtf8 => "a string is not valid UTF-8",
            Self::Trailing => "bytes follow the value",
        })
    }
}

/// A number of any width. Unsigned ones beyond the signed range are held at its end, which every
/// bound excludes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// A whole number.
    Whole(i64),
    /// A number that came as a float.
    Float(f64),
}

/// A place in a slice of values. Reading moves it; a read that finds another type leaves it.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the front of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes that have not been read.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    fn marker(&self) -> Result<(Marker, &'a [u8]), Malformed> {
        let (first, behind) = self.rest.split_first().ok_or(Malformed::Truncated)?;
        Ok((Marker::from_u8(*first), behind))
    }

    /// Steps over a value that counts as absent: nil, or an extension of type 0, which is how
    /// JavaScript clients send `undefined`.
    #[inline]
    pub fn absent(&mut self) -> Result<bool, Malformed> {
        let first = *self.rest.first().ok_or(Malformed::Truncated)?;
        if first < Marker::Null.to_u8() || first > Marker::FixExt16.to_u8() {
            return Ok(false);
        }
        self.absent_slow()
    }

    #[inline(never)]
    fn absent_slow(&mut self) -> Result<bool, Malformed> {
        let (marker, behind) = self.marker()?;
        let type_at = match marker {
            Marker::Null => {
                self.rest = behind;
                return Ok(true);
            }
            Marker::FixExt1
            | Marker::FixExt2
            | Marker::FixExt4
            | Marker::FixExt8
            | Marker::FixExt16 => 0,
            Marker::Ext8 => 1,
            Marker::Ext16 => 2,
            Marker::Ext32 => 4,
            _ => return Ok(false),
        };
        if *behind.get(type_at).ok_or(Malformed::Truncated)? != 0 {
            return Ok(false);
        }
        self.skip()?;
        Ok(true)
    }

    /// Enters a map and says how many entries follow; `None` if another type stands here.
    #[inline]
    pub fn map(&mut self) -> Result<Option<usize>, Malformed> {
        let before = *self;
        let Some(count) = self.map_begun()? else { return Ok(None) };
        // Two bytes is the least an entry can take, so a lying count costs nothing.
        if count > self.rest.len() / 2 {
            *self = before;
            return Err(Malformed::Count);
        }
        Ok(Some(count))
    }

    /// As [`Self::map`], for a map of which some entries may not have come.
    #[inline]
    pub fn map_begun(&mut self) -> Result<Option<usize>, Malformed> {
        let (marker, behind) = self.marker()?;
        let (count, rest) = match marker {
            Marker::FixMap(count) => (usize::from(count), behind),
            Marker::Map16 => be16(behind)?,
            Marker::Map32 => be32(behind)?,
            _ => return Ok(None),
        };
        self.rest = rest;
        Ok(Some(count))
    }

    /// Enters an array and says how many items follow; `None` if another type stands here.
    #[inline]
    pub fn array(&mut self) -> Result<Option<usize>, Malformed> {
        let (marker, behind) = self.marker()?;
        let (count, rest) = match marker {
            Marker::FixArray(count) => (usize::from(count), behind),
            Marker::Array16 => be16(behind)?,
            Marker::Array32 => be32(behind)?,
            _ => return Ok(None),
        };
        if count > rest.len() {
            return Err(Malformed::Count);
        }
        self.rest = rest;
        Ok(Some(count))
    }

    /// Reads a string without looking at its encoding; `None` if another type stands here.
    #[inline]
    pub fn text_bytes(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let (marker, behind) = self.marker()?;
        let (length, behind) = match marker {
            Marker::FixStr(length) => (usize::from(length), behind),
            Marker::Str8 => be8(behind)?,
            Marker::Str16 => be16(behind)?,
            Marker::Str32 => be32(behind)?,
            _ => return Ok(None),
        };
        let (text, rest) = behind.split_at_checked(length).ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(Some(text))
    }

    /// Reads the key of a map's entry. One that is no string reads as empty, which names no field.
    #[inline]
    pub fn key(&mut self) -> Result<&'a [u8], Malformed> {
        match self.text_bytes()? {
            Some(key) => Ok(key),
            None => self.skip().map(|_| &[][..]),
        }
    }

    /// Reads a string; `None` if another type stands here.
    #[inline]
    pub fn text(&mut self) -> Result<Option<&'a str>, Malformed> {
        match self.text_bytes()? {
            Some(bytes) => std::str::from_utf8(bytes).map(Some).map_err(|_| Malformed::NotUtf8),
            None => Ok(None),
        }
    }

    /// Reads a boolean; `None` if another type stands here.
    #[inline]
    pub fn flag(&mut self) -> Result<Option<bool>, Malformed> {
        let (marker, behind) = self.marker()?;
        let value = match marker {
            Marker::True => true,
            Marker::False => false,
            _ => return Ok(None),
        };
        self.rest = behind;
        Ok(Some(value))
    }

    /// Reads a number of any width; `None` if another type stands here.
    #[inline]
    pub fn number(&mut self) -> Result<Option<Number>, Malformed> {
        let (marker, behind) = self.marker()?;
        let (number, rest) = match marker {
            Marker::FixPos(value) => (Number::Whole(i64::from(value)), behind),
            Marker::FixNeg(value) => (Number::Whole(i64::from(value)), behind),
            Marker::U8 => whole(behind, |bytes: [u8; 1]| i64::from(bytes[0]))?,
            Marker::U16 => whole(behind, |bytes| i64::from(u16::from_be_bytes(bytes)))?,
            Marker::U32 => whole(behind, |bytes| i64::from(u32::from_be_bytes(bytes)))?,
            Marker::U64 => {
                whole(behind, |bytes| i64::try_from(u64::from_be_bytes(bytes)).unwrap_or(i64::MAX))?
            }
            Marker::I8 => whole(behind, |bytes| i64::from(i8::from_be_bytes(bytes)))?,
            Marker::I16 => whole(behind, |bytes| i64::from(i16::from_be_bytes(bytes)))?,
            Marker::I32 => whole(behind, |bytes| i64::from(i32::from_be_bytes(bytes)))?,
            Marker::I64 => whole(behind, i64::from_be_bytes)?,
            Marker::F32 => {
                let (bytes, rest) = chunk(behind)?;
                (Number::Float(f64::from(f32::from_be_bytes(bytes))), rest)
            }
            Marker::F64 => {
                let (bytes, rest) = chunk(behind)?;
                (Number::Float(f64::from_be_bytes(bytes)), rest)
            }
            _ => return Ok(None),
        };
        self.rest = rest;
        Ok(Some(number))
    }

    /// Steps over one value of any type and returns its bytes, checked: well-formed, all strings
    /// UTF-8, nested at most [`DEPTH_MAX`] deep.
    #[inline]
    pub fn skip(&mut self) -> Result<&'a [u8], Malformed> {
        let end = skip_values::<true>(self.rest, 0, 1, DEPTH_MAX)?;
        let (value, rest) = self.rest.split_at_checked(end).ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(value)
    }

    /// Steps over a value that has been checked before, if that is what stands here.
    #[inline]
    pub(crate) fn skip_known(&mut self, known: Known<'_>) -> Option<&'a [u8]> {
        let (value, rest) = self.rest.split_at_checked(known.length_at(self.rest)?)?;
        self.rest = rest;
        Some(value)
    }

    /// As [`Self::skip`], but looks at no more than so many bytes: `None` if the value has more.
    pub fn skip_within(&mut self, bytes_max: usize) -> Result<Option<&'a [u8]>, Malformed> {
        let within = &self.rest[..self.rest.len().min(bytes_max)];
        match skip_values::<true>(within, 0, 1, DEPTH_MAX) {
            Ok(end) => {
                let (value, rest) = self.rest.split_at(end);
                self.rest = rest;
                Ok(Some(value))
            }
            // The value seems to end too early only because `within` was cut.
            Err(Malformed::Truncated | Malformed::Count) if within.len() < self.rest.len() => {
                Ok(None)
            }
            Err(malformed) => Err(malformed),
        }
    }

    /// Steps over one value whose edges are all that matters: its texts and depth are not checked.
    /// For looking behind a value that may be the very one that is refused.
    pub fn pass(&mut self) -> Result<(), Malformed> {
        let end = skip_values::<false>(self.rest, 0, 1, 0)?;
        self.rest = self.rest.get(end..).ok_or(Malformed::Truncated)?;
        Ok(())
    }

    /// As [`Self::pass`], but steps over no more than `steps` values and counts them down: `left` is how many are still to
    /// be stepped over, with those inside of them. One call goes on where the last ended.
    pub fn pass_some(&mut self, left: &mut usize, steps: &mut usize) -> Result<(), Malformed> {
        while *left > 0 && *steps > 0 {
            let (end, inside) = pass_one(self.rest)?;
            self.rest = self.rest.get(end..).ok_or(Malformed::Truncated)?;
            // Two billion entries of four billion values each would have to be there first.
            *left = *left - 1 + inside;
            *steps -= 1;
        }
        Ok(())
    }

    /// Reads the key of a map's entry as [`Self::key`] does, with no more checks than
    /// [`Self::pass`].
    pub fn pass_key(&mut self) -> Result<&'a [u8], Malformed> {
        match self.text_bytes()? {
            Some(key) => Ok(key),
            None => self.pass().map(|()| &[][..]),
        }
    }
}

/// Walks over `count` values from `at` and returns where they end.
///
/// `STRICT` recurses per container, and `depth` more of them may open; otherwise their items join
/// the count, so that any depth can be walked, and texts are taken as they are.
fn skip_values<const STRICT: bool>(
    bytes: &[u8],
    mut at: usize,
    mut count: usize,
    depth: u32,
) -> Result<usize, Malformed> {
    while count > 0 {
        count -= 1;
        let first = *bytes.get(at).ok_or(Malformed::Truncated)?;
        at += 1;
        // Most values are short texts and small integers, which need no table.
        if first & 0xe0 == Marker::FixStr(0).to_u8() {
            at = skip_text::<STRICT>(bytes, at, usize::from(first & 0x1f))?;
            continue;
        }
        let marker = Marker::from_u8(first);
        // Scalars say how many bytes follow; texts and containers go their own way.
        let width = match marker {
            Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null | Marker::True | Marker::False => {
                continue;
            }
            Marker::U8 | Marker::I8 => 1,
            Marker::U16 | Marker::I16 | Marker::FixExt1 => 2,
            Marker::FixExt2 => 3,
            Marker::U32 | Marker::I32 | Marker::F32 => 4,
            Marker::FixExt4 => 5,
            Marker::U64 | Marker::I64 | Marker::F64 => 8,
            Marker::FixExt8 => 9,
            Marker::FixExt16 => 17,
            // The length of an extension leaves out the byte of its type.
            Marker::Bin8 => 1 + length_at(bytes, at, 1)?,
            Marker::Bin16 => 2 + length_at(bytes, at, 2)?,
            Marker::Bin32 => 4 + length_at(bytes, at, 4)?,
            Marker::Ext8 => 2 + length_at(bytes, at, 1)?,
            Marker::Ext16 => 3 + length_at(bytes, at, 2)?,
            Marker::Ext32 => 5 + length_at(bytes, at, 4)?,
            // The short ones were taken above.
            Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => {
                let width = length_width(marker);
                let length = length_at(bytes, at, width)?;
                at = skip_text::<STRICT>(bytes, at + width, length)?;
                continue;
            }
            Marker::FixArray(_)
            | Marker::FixMap(_)
            | Marker::Array16
            | Marker::Array32
            | Marker::Map16
            | Marker::Map32 => {
                let (items, behind) = items_at(bytes, at, marker)?;
                at = behind;
                if STRICT {
                    at = skip_container(bytes, at, items, depth)?;
                } else {
                    count += items;
                }
                continue;
            }
            Marker::Reserved => return Err(Malformed::Reserved),
        };
        at += width;
        if at > bytes.len() {
            return Err(Malformed::Truncated);
        }
    }
    Ok(at)
}

/// Where the value at the front ends, or where those in it begin, and how many these are.
fn pass_one(bytes: &[u8]) -> Result<(usize, usize), Malformed> {
    let first = *bytes.first().ok_or(Malformed::Truncated)?;
    match Marker::from_u8(first) {
        marker @ (Marker::FixArray(_)
        | Marker::FixMap(_)
        | Marker::Array16
        | Marker::Array32
        | Marker::Map16
        | Marker::Map32) => {
            let (items, behind) = items_at(bytes, 1, marker)?;
            if items > bytes.len() - behind { Err(Malformed::Count) } else { Ok((behind, items)) }
        }
        _ => Ok((skip_values::<false>(bytes, 0, 1, 0)?, 0)),
    }
}

/// How many values a container holds, and where they begin. A map's entry is two.
#[inline]
fn items_at(bytes: &[u8], at: usize, marker: Marker) -> Result<(usize, usize), Malformed> {
    match marker {
        Marker::FixArray(items) => Ok((usize::from(items), at)),
        Marker::FixMap(entries) => Ok((usize::from(entries) * 2, at)),
        _ => {
            let width = length_width(marker);
            let per_entry = if matches!(marker, Marker::Map16 | Marker::Map32) { 2 } else { 1 };
            Ok((length_at(bytes, at, width)? * per_entry, at + width))
        }
    }
}

#[inline]
fn skip_container(bytes: &[u8], at: usize, items: usize, depth: u32) -> Result<usize, Malformed> {
    if depth == 0 {
        return Err(Malformed::Depth);
    }
    if items > bytes.len() - at {
        return Err(Malformed::Count);
    }
    skip_values::<true>(bytes, at, items, depth - 1)
}

#[inline]
fn skip_text<const STRICT: bool>(
    bytes: &[u8],
    at: usize,
    length: usize,
) -> Result<usize, Malformed> {
    let text = bytes.get(at..at + length).ok_or(Malformed::Truncated)?;
    if !STRICT || is_short_ascii(text) || is_text(text) {
        Ok(at + length)
    } else {
        Err(Malformed::NotUtf8)
    }
}

/// Whether a text is surely ASCII, which is most of what there is. Two overlapping words cover
/// keys and short values without a loop or a call; of longer ones nothing is said.
#[inline]
fn is_short_ascii(text: &[u8]) -> bool {
    const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
    if let (Some(front), Some(back)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        let seen = u64::from_ne_bytes(*front) | u64::from_ne_bytes(*back);
        text.len() <= 16 && seen & HIGH_BITS == 0
    } else if let (Some(front), Some(back)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        let seen = u32::from_ne_bytes(*front) | u32::from_ne_bytes(*back);
        seen & HIGH_BITS as u32 == 0
    } else {
        text.iter().fold(0, |seen, byte| seen | byte) < 0x80
    }
}

/// ASCII is quicker to see than UTF-8 is to check.
#[inline(never)]
fn is_text(text: &[u8]) -> bool {
    text.is_ascii() || std::str::from_utf8(text).is_ok()
}

/// Bytes of the length that follows a marker with one.
fn length_width(marker: Marker) -> usize {
    match marker {
        Marker::Str8 => 1,
        Marker::Str16 | Marker::Array16 | Marker::Map16 => 2,
        _ => 4,
    }
}

#[inline]
fn length_at(bytes: &[u8], at: usize, width: usize) -> Result<usize, Malformed> {
    let digits = bytes.get(at..at + width).ok_or(Malformed::Truncated)?;
    Ok(digits.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
}

#[inline]
fn chunk<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8]), Malformed> {
    match bytes.split_first_chunk::<N>() {
        Some((chunk, rest)) => Ok((*chunk, rest)),
        None => Err(Malformed::Truncated),
    }
}

#[inline]
fn whole<const N: usize>(
    bytes: &[u8],
    value: impl Fn([u8; N]) -> i64,
) -> Result<(Number, &[u8]), Malformed> {
    let (chunk, rest) = chunk(bytes)?;
    Ok((Number::Whole(value(chunk)), rest))
}

#[inline]
fn be8(bytes: &[u8]) -> Result<(usize, &[u8]), Malformed> {
    let (chunk, rest) = chunk::<1>(bytes)?;
    Ok((usize::from(chunk[0]), rest))
}

#[inline]
fn be16(bytes: &[u8]) -> Result<(usize, &[u8]), Malformed> {
    let (chunk, rest) = chunk(bytes)?;
    Ok((usize::from(u16::from_be_bytes(chunk)), rest))
}

#[inline]
fn be32(bytes: &[u8]) -> Result<(usize, &[u8]), Malformed> {
    let (chunk, rest) = chunk(bytes)?;
    Ok((u32::from_be_bytes(chunk) as usize, rest))
}

/// The texts of an array that was checked when it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Texts<'a> {
    bytes: &'a [u8],
}

impl<'a> Texts<'a> {
    /// Wraps a `MessagePack` array of strings, or nothing for none.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The array as it came; empty for none.
    pub fn raw(self) -> &'a [u8] {
        self.bytes
    }

    /// The texts in order. Bytes that are no array of strings end it early.
    pub fn iter(self) -> impl Iterator<Item = &'a str> {
        let mut reader = Reader::new(self.bytes);
        let count = reader.array().ok().flatten().unwrap_or(0);
        (0..count).map_while(move |_| reader.text().ok().flatten())
    }

    /// How many there are.
    pub fn len(self) -> usize {
        Reader::new(self.bytes).array().ok().flatten().unwrap_or(0)
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}
