//! Reads `MessagePack` values one after the other out of a frame. Texts are borrowed, payloads share the
//! frame's memory; nothing is built in between.

use bytes::Bytes;
use rmp::Marker;

use crate::raw::Raw;

/// The bytes are not what the protocol says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

pub(crate) type Read<T> = Result<T, Malformed>;

const ENDS_EARLY: Malformed = Malformed("it breaks off");

/// A number, as it stood there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    /// From zero.
    Whole(u64),
    /// Below zero.
    Negative(i64),
    /// A float.
    Float(f64),
}

/// Where in a frame the next value begins.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    frame: &'a Bytes,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(frame: &'a Bytes) -> Self {
        Self { frame, at: 0 }
    }

    /// How many bytes have been read.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    fn bytes(&mut self, count: usize) -> Read<&'a [u8]> {
        let end = self.at.checked_add(count).ok_or(ENDS_EARLY)?;
        let bytes = self.frame.get(self.at..end).ok_or(ENDS_EARLY)?;
        self.at = end;
        Ok(bytes)
    }

    fn fixed<const N: usize>(&mut self) -> Read<[u8; N]> {
        let bytes = self.bytes(N)?;
        // `bytes` answers exactly as many as it was asked for.
        bytes.try_into().map_err(|_| ENDS_EARLY)
    }

    fn marker(&mut self) -> Read<Marker> {
        self.fixed::<1>().map(|[byte]| Marker::from_u8(byte))
    }

    fn length<const N: usize>(&mut self) -> Read<usize> {
        let bytes = self.fixed::<N>()?;
        Ok(bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)))
    }

    /// Entries of the map that begins here.
    pub(crate) fn map(&mut self) -> Read<usize> {
        match self.marker()? {
            Marker::FixMap(entries) => Ok(usize::from(entries)),
            Marker::Map16 => self.length::<2>(),
            Marker::Map32 => self.length::<4>(),
            _ => Err(Malformed("a map was expected")),
        }
    }

    /// Items of the list that begins here.
    pub(crate) fn array(&mut self) -> Read<usize> {
        match self.marker()? {
            Marker::FixArray(items) => Ok(usize::from(items)),
            Marker::Array16 => self.length::<2>(),
            Marker::Array32 => self.length::<4>(),
            _ => Err(Malformed("a list was expected")),
        }
    }

    /// A text.
    pub(crate) fn str(&mut self) -> Read<&'a str> {
        let length = match self.marker()? {
            Marker::FixStr(length) => usize::from(length),
            Marker::Str8 => self.length::<1>()?,
            Marker::Str16 => self.length::<2>()?,
            Marker::Str32 => self.length::<4>()?,
            _ => return Err(Malformed("a text was expected")),
        };
        std::str::from_utf8(self.bytes(length)?).map_err(|_| Malformed("a text is not UTF-8"))
    }

    /// True or false.
    pub(crate) fn bool(&mut self) -> Read<bool> {
        match self.marker()? {
            Marker::True => Ok(true),
            Marker::False => Ok(false),
            _ => Err(Malformed("true or false was expected")),
        }
    }

    /// A number of whatever width.
    pub(crate) fn number(&mut self) -> Read<Number> {
        let signed =
            |number: i64| u64::try_from(number).map_or(Number::Negative(number), Number::Whole);
        Ok(match self.marker()? {
            Marker::FixPos(number) => Number::Whole(number.into()),
            Marker::FixNeg(number) => Number::Negative(number.into()),
            Marker::U8 => Number::Whole(u8::from_be_bytes(self.fixed()?).into()),
            Marker::U16 => Number::Whole(u16::from_be_bytes(self.fixed()?).into()),
            Marker::U32 => Number::Whole(u32::from_be_bytes(self.fixed()?).into()),
            Marker::U64 => Number::Whole(u64::from_be_bytes(self.fixed()?)),
            Marker::I8 => signed(i8::from_be_bytes(self.fixed()?).into()),
            Marker::I16 => signed(i16::from_be_bytes(self.fixed()?).into()),
            Marker::I32 => signed(i32::from_be_bytes(self.fixed()?).into()),
            Marker::I64 => signed(i64::from_be_bytes(self.fixed()?)),
            Marker::F32 => Number::Float(f32::from_be_bytes(self.fixed()?).into()),
            Marker::F64 => Number::Float(f64::from_be_bytes(self.fixed()?)),
            _ => return Err(Malformed("a number was expected")),
        })
    }

    /// Takes a nil if one is next.
    pub(crate) fn nil(&mut self) -> bool {
        let nil = self.frame.get(self.at) == Some(&Marker::Null.to_u8());
        self.at += usize::from(nil);
        nil
    }

    /// Passes over one value, however deep. Counts instead of calling itself: what comes from the network
    /// must not decide how much stack is used.
    pub(crate) fn skip(&mut self) -> Read<()> {
        let mut left: u64 = 1;
        while left > 0 {
            left -= 1;
            let bytes = match self.marker()? {
                Marker::FixPos(_)
                | Marker::FixNeg(_)
                | Marker::Null
                | Marker::True
                | Marker::False => 0,
                Marker::U8 | Marker::I8 => 1,
                Marker::U16 | Marker::I16 | Marker::FixExt1 => 2,
                Marker::FixExt2 => 3,
                Marker::U32 | Marker::I32 | Marker::F32 => 4,
                Marker::FixExt4 => 5,
                Marker::U64 | Marker::I64 | Marker::F64 => 8,
                Marker::FixExt8 => 9,
                Marker::FixExt16 => 17,
                Marker::FixStr(length) => usize::from(length),
                Marker::Str8 | Marker::Bin8 => self.length::<1>()?,
                Marker::Str16 | Marker::Bin16 => self.length::<2>()?,
                Marker::Str32 | Marker::Bin32 => self.length::<4>()?,
                Marker::Ext8 => self.length::<1>()? + 1,
                Marker::Ext16 => self.length::<2>()? + 1,
                Marker::Ext32 => self.length::<4>()? + 1,
                Marker::FixArray(items) => {
                    left += u64::from(items);
                    0
                }
                Marker::Array16 => {
                    left += self.length::<2>()? as u64;
                    0
                }
                Marker::Array32 => {
                    left += self.length::<4>()? as u64;
                    0
                }
                Marker::FixMap(entries) => {
                    left += 2 * u64::from(entries);
                    0
                }
                Marker::Map16 => {
                    left += 2 * self.length::<2>()? as u64;
                    0
                }
                Marker::Map32 => {
                    left += 2 * self.length::<4>()? as u64;
                    0
                }
                Marker::Reserved => return Err(Malformed("a byte that stands for nothing")),
            };
            self.bytes(bytes)?;
        }
        Ok(())
    }

    /// The next value as it stands there.
    pub(crate) fn raw(&mut self) -> Read<Raw> {
        let start = self.at;
        self.skip()?;
        Ok(Raw::of_value(self.frame.slice(start..self.at)))
    }
}
