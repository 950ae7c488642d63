//! `MessagePack` to JSON text.

use std::fmt;
use std::io::Write;

use chrono::DateTime;
use data_encoding::BASE64;

use super::JSON_DEPTH_MAX;
use crate::api::limits::PAYLOAD_BYTES_MAX;
use crate::protocol::msgpack::{Malformed, Reader};
use crate::protocol::step::Step;

/// Integers beyond this have neighbours that are the same float.
const EXACT_FLOAT_MAX: f64 = 9_007_199_254_740_992.0;

/// The extension type that `MessagePack` keeps for points in time.
const TIMESTAMP: i8 = -1;

/// Most bytes of JSON for a byte of `MessagePack`: `false` as a key, with its quotes and its colon. No value
/// takes more, however it is nested, since nothing is escaped twice.
pub const EXPANSION_MAX: usize = 8;

/// Most bytes of one text. A payload, whatever is in it, has room, with all that is said beside it; a list of such
/// payloads has not.
pub const TEXT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX as usize * EXPANSION_MAX + (16 << 20);

/// Why a value is not shown as JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unshown {
    /// It is none.
    Malformed(Malformed),
    /// Its text would be longer than it may be.
    TooLong,
}

impl From<Malformed> for Unshown {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl fmt::Display for Unshown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => malformed.fmt(out),
            Self::TooLong => out.write_str("its text is too long"),
        }
    }
}

/// Writes the one value that `value` is as JSON behind what `out` holds, on one line. On an error
/// `out` is as it was.
///
/// Integers are exact. A float shows that it is one (`1.0`), so that it comes back as one; no number
/// and the infinities are `null`. Bytes become base64 text, points in time RFC 3339 text, an extension
/// of type 0 (`undefined`) `null`, other extensions the base64 text of their bytes. A key that is no
/// string becomes the text that it would be as a value; a list or map as a key the base64 text of its
/// `MessagePack`: as JSON it would be escaped again at each level, and double each time.
///
/// The text has at most [`TEXT_BYTES_MAX`], which is looked at while it is written.
pub fn from_msgpack(value: &[u8], out: &mut Vec<u8>) -> Result<(), Unshown> {
    print(value, Origin::Client, out, TEXT_BYTES_MAX)
}

/// As [`from_msgpack`], with at most `bytes_max` of text.
pub fn from_msgpack_within(
    value: &[u8],
    out: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), Unshown> {
    print(value, Origin::Client, out, bytes_max)
}

/// Writes a record of the server, such as a job. Its integers beyond 32 bits come as floats, which is
/// how they travel to JavaScript clients, and are shown as integers, except within what a client gave:
/// `data`, `result`, `returnvalue` and `values`. All else is as with [`from_msgpack`].
pub fn from_record(value: &[u8], out: &mut Vec<u8>) -> Result<(), Unshown> {
    print(value, Origin::Record, out, TEXT_BYTES_MAX)
}

/// As [`from_record`], with at most `bytes_max` of text.
pub fn from_record_within(
    value: &[u8],
    out: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), Unshown> {
    print(value, Origin::Record, out, bytes_max)
}

/// Writes a reply, the payload of a frame. As [`from_record`], but its own `data` is an envelope, and
/// `reqId` comes from the client.
pub fn from_reply(value: &[u8], out: &mut Vec<u8>) -> Result<(), Unshown> {
    print(value, Origin::Reply, out, TEXT_BYTES_MAX)
}

/// As [`from_reply`], with at most `bytes_max` of text.
pub fn from_reply_within(value: &[u8], out: &mut Vec<u8>, bytes_max: usize) -> Result<(), Unshown> {
    print(value, Origin::Reply, out, bytes_max)
}

/// Who made a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Client,
    Record,
    Reply,
}

impl Origin {
    /// Who made the value of a key.
    fn of(self, key: &str) -> Self {
        match (self, key) {
            (Self::Record, "data")
            | (Self::Record | Self::Reply, "result" | "returnvalue" | "values")
            | (Self::Reply, "reqId")
            | (Self::Client, _) => Self::Client,
            (Self::Record | Self::Reply, _) => Self::Record,
        }
    }
}

fn print(value: &[u8], origin: Origin, out: &mut Vec<u8>, bytes_max: usize) -> Result<(), Unshown> {
    let start = out.len();
    let mut printer =
        Printer { reader: Reader::new(value), end: start.saturating_add(bytes_max), out };
    let mut printed = printer.value(origin, JSON_DEPTH_MAX);
    if printed.is_ok() && !printer.reader.rest().is_empty() {
        printed = Err(Malformed::Trailing.into());
    }
    printed.inspect_err(|_| out.truncate(start))
}

struct Printer<'v, 'o> {
    reader: Reader<'v>,
    out: &'o mut Vec<u8>,
    /// Where the text has to end.
    end: usize,
}

impl<'v> Printer<'v, '_> {
    /// A value within which `depth` more containers may open.
    fn value(&mut self, origin: Origin, depth: u32) -> Result<(), Unshown> {
        let step = self.reader.step()?;
        match step {
            Step::Array(items) => {
                let inside = depth.checked_sub(1).ok_or(Malformed::Depth)?;
                self.out.push(b'[');
                for item in 0..items {
                    if item > 0 {
                        self.out.push(b',');
                    }
                    self.value(origin, inside)?;
                }
                self.out.push(b']');
                self.within()
            }
            Step::Map(entries) => {
                let inside = depth.checked_sub(1).ok_or(Malformed::Depth)?;
                self.out.push(b'{');
                for entry in 0..entries {
                    if entry > 0 {
                        self.out.push(b',');
                    }
                    let key = self.key()?;
                    self.out.push(b':');
                    self.value(origin.of(key), inside)?;
                }
                self.out.push(b'}');
                self.within()
            }
            _ => self.scalar(step, origin),
        }
    }

    /// Returns the key if it is a string.
    fn key(&mut self) -> Result<&'v str, Unshown> {
        let mut ahead = self.reader;
        match ahead.step()? {
            Step::Text(key) => {
                self.reader = ahead;
                self.text(key)?;
                return Ok(key);
            }
            // A text must not hold the text of another key: its escapes would be escaped.
            Step::Array(_) | Step::Map(_) => {
                let bytes = self.reader.skip()?;
                self.base64(bytes)?;
            }
            step => {
                self.reader = ahead;
                let start = self.out.len();
                self.scalar(step, Origin::Client)?;
                if self.out[start] != b'"' {
                    // A number or a word, in which nothing needs an escape.
                    self.out.insert(start, b'"');
                    self.out.push(b'"');
                }
            }
        }
        Ok("")
    }

    /// Whether what has been written is no more than may be.
    #[inline]
    fn within(&self) -> Result<(), Unshown> {
        if self.out.len() <= self.end { Ok(()) } else { Err(Unshown::TooLong) }
    }

    /// Whether so many bytes more may be written.
    #[inline]
    fn has_room(&self, bytes: usize) -> Result<(), Unshown> {
        let room = self.end.saturating_sub(self.out.len());
        if bytes <= room { Ok(()) } else { Err(Unshown::TooLong) }
    }

    fn text(&mut self, text: &str) -> Result<(), Unshown> {
        // Few texts come near the limit: only those are measured before they are written.
        if self.has_room(text.len().saturating_mul(ESCAPE_BYTES_MAX) + 2).is_err() {
            self.has_room(escaped_length(text.as_bytes()) + 2)?;
        }
        string(self.out, text);
        Ok(())
    }

    fn base64(&mut self, bytes: &[u8]) -> Result<(), Unshown> {
        self.has_room(BASE64.encode_len(bytes.len()) + 2)?;
        base64(self.out, bytes);
        Ok(())
    }

    fn scalar(&mut self, step: Step<'_>, origin: Origin) -> Result<(), Unshown> {
        let out = &mut *self.out;
        match step {
            Step::Bool(true) => out.extend_from_slice(b"true"),
            Step::Bool(false) => out.extend_from_slice(b"false"),
            Step::Uint(value) => integer(out, value),
            Step::Int(value) => integer(out, value),
            Step::Float(value) => float(out, value, origin),
            Step::Text(text) => return self.text(text),
            Step::Binary(bytes) => return self.base64(bytes),
            Step::Extension(TIMESTAMP, bytes) => match time(bytes) {
                // Nothing in such a text needs an escape, and a vector takes all that it is given.
                Some(time) => drop(write!(out, "\"{time:?}\"")),
                None => return self.base64(bytes),
            },
            Step::Extension(kind, bytes) if kind != 0 => return self.base64(bytes),
            // Containers are not scalars and do not come here.
            Step::Nil | Step::Extension(..) | Step::Array(_) | Step::Map(_) => {
                out.extend_from_slice(b"null");
            }
        }
        self.within()
    }
}

/// Writes a whole number.
pub fn integer(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Writes a number of the server, without a fraction where it has none.
pub fn number(out: &mut Vec<u8>, value: f64) {
    float(out, value, Origin::Record);
}

fn float(out: &mut Vec<u8>, value: f64, origin: Origin) {
    if !value.is_finite() {
        out.extend_from_slice(b"null");
    } else if origin != Origin::Client && value.fract() == 0.0 && value.abs() <= EXACT_FLOAT_MAX {
        integer(out, value as i64);
    } else {
        out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
    }
}

fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + BASE64.encode_len(bytes.len()), 0);
    BASE64.encode_mut(bytes, &mut out[start..]);
    out.push(b'"');
}

/// The point in time that the bytes of a timestamp are, in any of its three forms.
fn time(bytes: &[u8]) -> Option<DateTime<chrono::Utc>> {
    let (seconds, nanos) = match bytes.len() {
        4 => (i64::from(u32::from_be_bytes(bytes.try_into().ok()?)), 0),
        8 => {
            let both = u64::from_be_bytes(bytes.try_into().ok()?);
            ((both & 0x3_ffff_ffff) as i64, (both >> 34) as u32)
        }
        _ => {
            let (nanos, seconds) = bytes.split_first_chunk()?;
            (i64::from_be_bytes(seconds.try_into().ok()?), u32::from_be_bytes(*nanos))
        }
    };
    DateTime::from_timestamp(seconds, nanos)
}

/// Writes a string with its quotes.
pub fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    escaped(out, text.as_bytes());
    out.push(b'"');
}

/// How a byte is written within a string: as itself, as `\u00XX`, or as the letter behind a backslash.
const SELF: u8 = 0;
const UNIT: u8 = b'u';
const ESCAPES: [u8; 256] = {
    let mut table = [SELF; 256];
    let mut control = 0;
    while control < 0x20 {
        table[control] = UNIT;
        control += 1;
    }
    table[0x08] = b'b';
    table[0x0c] = b'f';
    table[b'\n' as usize] = b'n';
    table[b'\r' as usize] = b'r';
    table[b'\t' as usize] = b't';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table
};

/// Most bytes that one byte of a text becomes: `\u00XX`.
const ESCAPE_BYTES_MAX: usize = 6;

/// How long a text is once it is escaped, without its quotes.
fn escaped_length(text: &[u8]) -> usize {
    let length = |byte: &u8| match ESCAPES[usize::from(*byte)] {
        SELF => 1,
        UNIT => ESCAPE_BYTES_MAX,
        _ => 2,
    };
    text.iter().map(length).sum()
}

fn escaped(out: &mut Vec<u8>, mut text: &[u8]) {
    loop {
        let (plain, rest) = text.split_at(super::plain_length(text));
        out.extend_from_slice(plain);
        let Some((&byte, behind)) = rest.split_first() else { return };
        match ESCAPES[usize::from(byte)] {
            UNIT => {
                let hex = |digit: u8| b"0123456789abcdef"[usize::from(digit)];
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte & 15)]);
            }
            letter => out.extend_from_slice(&[b'\\', letter]),
        }
        text = behind;
    }
}
