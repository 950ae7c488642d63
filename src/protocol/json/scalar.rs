//! How single values look as JSON: numbers, strings, bytes, points in time.

use chrono::DateTime;
use data_encoding::BASE64;

use super::plain_length;

/// Integers beyond this have neighbours that are the same float.
const EXACT_FLOAT_MAX: f64 = 9_007_199_254_740_992.0;

/// Writes a whole number.
pub fn integer(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Writes a number of the server, without a fraction where it has none.
pub fn number(out: &mut Vec<u8>, value: f64) {
    float(out, value, true);
}

/// Writes a float; one of the server's `own` without a fraction where it has none.
pub(super) fn float(out: &mut Vec<u8>, value: f64, own: bool) {
    if !value.is_finite() {
        out.extend_from_slice(b"null");
    } else if own && value.fract() == 0.0 && value.abs() <= EXACT_FLOAT_MAX {
        integer(out, value as i64);
    } else {
        out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
    }
}

/// Writes bytes as base64, without quotes.
pub(super) fn encode(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + BASE64.encode_len(bytes.len()), 0);
    BASE64.encode_mut(bytes, &mut out[start..]);
}

/// The point in time that the bytes of a timestamp are, in any of its three forms.
pub(super) fn time(bytes: &[u8]) -> Option<DateTime<chrono::Utc>> {
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
pub(super) const ESCAPE_BYTES_MAX: usize = 6;

/// How long a text is once it is escaped, without its quotes.
pub(super) fn escaped_length(text: &[u8]) -> usize {
    let length = |byte: &u8| match ESCAPES[usize::from(*byte)] {
        SELF => 1,
        UNIT => ESCAPE_BYTES_MAX,
        _ => 2,
    };
    text.iter().map(length).sum()
}

pub(super) fn escaped(out: &mut Vec<u8>, mut text: &[u8]) {
    loop {
        let (plain, rest) = text.split_at(plain_length(text));
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
