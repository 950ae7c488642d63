//! A step through `MessagePack`: the next scalar, or how many values the next container holds.
//!
//! For code that shows values of clients: every type is distinguished, and nothing is lost of
//! a number. Readers of commands know what they look for and ask [`Reader`] for that.

use rmp::Marker;

use super::{Malformed, Reader};

/// A scalar, or the head of a container.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Step<'a> {
    /// The value nil.
    Nil,
    Bool(bool),
    /// A whole number from zero.
    Uint(u64),
    /// A whole number below zero, or one that came as signed.
    Int(i64),
    /// A float. One of 32 bits has been widened, which changes no value.
    Float(f64),
    Text(&'a str),
    /// A binary value.
    Binary(&'a [u8]),
    /// An extension: its type and its bytes.
    Extension(i8, &'a [u8]),
    /// An array of so many items, which follow.
    Array(usize),
    /// A map of so many entries, which follow.
    Map(usize),
}

impl<'a> Reader<'a> {
    /// Reads a scalar, or enters a container.
    #[inline]
    pub fn step(&mut self) -> Result<Step<'a>, Malformed> {
        let (&first, behind) = self.rest().split_first().ok_or(Malformed::Truncated)?;
        let mut bytes = Bytes(behind);
        let step = match Marker::from_u8(first) {
            Marker::Null => Step::Nil,
            Marker::False => Step::Bool(false),
            Marker::True => Step::Bool(true),
            Marker::FixPos(value) => Step::Uint(u64::from(value)),
            Marker::FixNeg(value) => Step::Int(i64::from(value)),
            Marker::U8 => Step::Uint(bytes.uint::<1>()?),
            Marker::U16 => Step::Uint(bytes.uint::<2>()?),
            Marker::U32 => Step::Uint(bytes.uint::<4>()?),
            Marker::U64 => Step::Uint(bytes.uint::<8>()?),
            Marker::I8 => Step::Int(i64::from(i8::from_be_bytes(bytes.chunk()?))),
            Marker::I16 => Step::Int(i64::from(i16::from_be_bytes(bytes.chunk()?))),
            Marker::I32 => Step::Int(i64::from(i32::from_be_bytes(bytes.chunk()?))),
            Marker::I64 => Step::Int(i64::from_be_bytes(bytes.chunk()?)),
            Marker::F32 => Step::Float(f64::from(f32::from_be_bytes(bytes.chunk()?))),
            Marker::F64 => Step::Float(f64::from_be_bytes(bytes.chunk()?)),
            Marker::FixStr(length) => bytes.text(usize::from(length))?,
            Marker::Str8 => bytes.sized::<1>().and_then(text)?,
            Marker::Str16 => bytes.sized::<2>().and_then(text)?,
            Marker::Str32 => bytes.sized::<4>().and_then(text)?,
            Marker::Bin8 => Step::Binary(bytes.sized::<1>()?),
            Marker::Bin16 => Step::Binary(bytes.sized::<2>()?),
            Marker::Bin32 => Step::Binary(bytes.sized::<4>()?),
            Marker::FixExt1 => bytes.extension(1)?,
            Marker::FixExt2 => bytes.extension(2)?,
            Marker::FixExt4 => bytes.extension(4)?,
            Marker::FixExt8 => bytes.extension(8)?,
            Marker::FixExt16 => bytes.extension(16)?,
            Marker::Ext8 => bytes.sized_extension::<1>()?,
            Marker::Ext16 => bytes.sized_extension::<2>()?,
            Marker::Ext32 => bytes.sized_extension::<4>()?,
            Marker::FixArray(items) => bytes.array(u64::from(items))?,
            Marker::Array16 => bytes.wide_array::<2>()?,
            Marker::Array32 => bytes.wide_array::<4>()?,
            Marker::FixMap(entries) => bytes.map(u64::from(entries))?,
            Marker::Map16 => bytes.wide_map::<2>()?,
            Marker::Map32 => bytes.wide_map::<4>()?,
            Marker::Reserved => return Err(Malformed::Reserved),
        };
        *self = Self::new(bytes.0);
        Ok(step)
    }
}

fn text(bytes: &[u8]) -> Result<Step<'_>, Malformed> {
    std::str::from_utf8(bytes).map(Step::Text).map_err(|_| Malformed::NotUtf8)
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (chunk, rest) = self.0.split_first_chunk().ok_or(Malformed::Truncated)?;
        self.0 = rest;
        Ok(*chunk)
    }

    fn uint<const N: usize>(&mut self) -> Result<u64, Malformed> {
        Ok(self.chunk::<N>()?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// As many bytes as a length of `N` bytes says.
    fn sized<const N: usize>(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.uint::<N>()?;
        self.take(length as usize)
    }

    fn text(&mut self, length: usize) -> Result<Step<'a>, Malformed> {
        self.take(length).and_then(text)
    }

    fn extension(&mut self, length: usize) -> Result<Step<'a>, Malformed> {
        let [kind] = self.chunk()?;
        Ok(Step::Extension(kind as i8, self.take(length)?))
    }

    fn sized_extension<const N: usize>(&mut self) -> Result<Step<'a>, Malformed> {
        let length = self.uint::<N>()?;
        self.extension(length as usize)
    }

    fn wide_array<const N: usize>(&mut self) -> Result<Step<'a>, Malformed> {
        let items = self.uint::<N>()?;
        self.array(items)
    }

    fn wide_map<const N: usize>(&mut self) -> Result<Step<'a>, Malformed> {
        let entries = self.uint::<N>()?;
        self.map(entries)
    }

    fn array(&mut self, items: u64) -> Result<Step<'a>, Malformed> {
        self.counted(items, 1).map(Step::Array)
    }

    fn map(&mut self, entries: u64) -> Result<Step<'a>, Malformed> {
        self.counted(entries, 2).map(Step::Map)
    }

    /// A count that the bytes behind it can hold, so that a lying one costs nothing.
    fn counted(&mut self, count: u64, bytes_min: usize) -> Result<usize, Malformed> {
        let count = count as usize;
        if count > self.0.len() / bytes_min { Err(Malformed::Count) } else { Ok(count) }
    }
}
