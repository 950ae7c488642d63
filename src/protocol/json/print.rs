//! `MessagePack` to JSON text.

use std::io::Write;

use chrono::DateTime;
use data_encoding::BASE64;

use super::JSON_DEPTH_MAX;
use crate::protocol::msgpack::{Malformed, Reader};
use crate::protocol::step::Step;

/// Integers beyond this have neighbours that are the same float.
const EXACT_FLOAT_MAX: f64 = 9_007_199_254_740_992.0;

/// The extension type that `MessagePack` keeps for points in time.
const TIMESTAMP: i8 = -1;

/// Writes the one value that `value` is as JSON behind what `out` holds, on one line. On an error
/// `out` is as it was.
///
/// Integers are exact. A float shows that it is one (`1.0`), so that it comes back as one; no number
/// and the infinities are `null`. Bytes become base64 text, points in time RFC 3339 text, an extension
/// of type 0 (`undefined`) `null`, other extensions the base64 text of their bytes. A key that is no
/// string becomes the text that it would be as a value.
pub fn from_msgpack(value: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    print(value, Origin::Client, out)
}

/// Writes a record of the server, such as a job. Its integers beyond 32 bits come as floats, which is
/// how they travel to JavaScript clients, and are shown as integers, except within what a client gave:
/// `data`, `result` and `returnvalue`. All else is as with [`from_msgpack`].
pub fn from_record(value: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    print(value, Origin::Record, out)
}

/// Writes a reply, the payload of a frame. As [`from_record`], but its own `data` is an envelope, and
/// `reqId` comes from the client.
pub fn from_reply(value: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    print(value, Origin::Reply, out)
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
            | (Self::Record | Self::Reply, "result" | "returnvalue")
            | (Self::Reply, "reqId")
            | (Self::Client, _) => Self::Client,
            (Self::Record | Self::Reply, _) => Self::Record,
        }
    }
}

fn print(value: &[u8], origin: Origin, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let start = out.len();
    let mut printer = Printer { reader: Reader::new(value), out };
    let mut printed = printer.value(origin, JSON_DEPTH_MAX);
    if printed.is_ok() && !printer.reader.rest().is_empty() {
        printed = Err(Malformed::Trailing);
    }
    printed.inspect_err(|_| out.truncate(start))
}

struct Printer<'v, 'o> {
    reader: Reader<'v>,
    out: &'o mut Vec<u8>,
}

impl<'v> Printer<'v, '_> {
    /// A value within which `depth` more containers may open.
    fn value(&mut self, origin: Origin, depth: u32) -> Result<(), Malformed> {
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
            }
            Step::Map(entries) => {
                let inside = depth.checked_sub(1).ok_or(Malformed::Depth)?;
                self.out.push(b'{');
                for entry in 0..entries {
                    if entry > 0 {
                        self.out.push(b',');
                    }
                    let key = self.key(inside)?;
                    self.out.push(b':');
                    self.value(origin.of(key), inside)?;
                }
                self.out.push(b'}');
            }
            _ => self.scalar(step, origin),
        }
        Ok(())
    }

    /// Returns the key if it is a string.
    fn key(&mut self, depth: u32) -> Result<&'v str, Malformed> {
        let mut ahead = self.reader;
        if let Step::Text(key) = ahead.step()? {
            self.reader = ahead;
            string(self.out, key);
            return Ok(key);
        }
        let start = self.out.len();
        self.value(Origin::Client, depth)?;
        if self.out[start] != b'"' {
            let text = self.out.split_off(start);
            self.out.push(b'"');
            escaped(self.out, &text);
            self.out.push(b'"');
        }
        Ok("")
    }

    fn scalar(&mut self, step: Step<'_>, origin: Origin) {
        let out = &mut *self.out;
        match step {
            Step::Bool(true) => out.extend_from_slice(b"true"),
            Step::Bool(false) => out.extend_from_slice(b"false"),
            Step::Uint(value) => integer(out, value),
            Step::Int(value) => integer(out, value),
            Step::Float(value) => float(out, value, origin),
            Step::Text(text) => string(out, text),
            Step::Binary(bytes) => base64(out, bytes),
            Step::Extension(TIMESTAMP, bytes) => match time(bytes) {
                // Nothing in such a text needs an escape, and a vector takes all that it is given.
                Some(time) => drop(write!(out, "\"{time:?}\"")),
                None => base64(out, bytes),
            },
            Step::Extension(kind, bytes) if kind != 0 => base64(out, bytes),
            // Containers are not scalars and do not come here.
            Step::Nil | Step::Extension(..) | Step::Array(_) | Step::Map(_) => {
                out.extend_from_slice(b"null");
            }
        }
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
