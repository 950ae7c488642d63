//! JSON text to `MessagePack`, strictly by RFC 8259.

use super::{Fault, JSON_DEPTH_MAX, JsonError, plain_length};
use crate::protocol::write::Writer;
use rmp::Marker;

/// Containers deeper than this begin with room for any count. A shallower one begins with room for
/// fifteen and is moved when it has more, so that a text is moved this often at most.
const TIGHT_DEPTH_MAX: u32 = 8;

/// Entries that the one byte of a small container can count.
const TIGHT_COUNT_MAX: usize = 15;

/// Digits that always fit a `u64`.
const SAFE_DIGITS: usize = 19;

/// Writes the one JSON value that `text` is behind what `out` holds. On an error `out` is as it was.
///
/// Integers of up to 64 bits become integers; every other number, `-0` too, the nearest float. A
/// number beyond all floats is refused, one that is too small to tell from zero is zero.
pub fn to_msgpack(text: &[u8], out: &mut Vec<u8>) -> Result<(), JsonError> {
    to_msgpack_within(text, out, usize::MAX)
}

/// As [`to_msgpack`], of a value that may take about so many bytes: what takes more is read no further.
pub fn to_msgpack_within(
    text: &[u8],
    out: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), JsonError> {
    if let Err(error) = std::str::from_utf8(text) {
        return Err(JsonError { at: error.valid_up_to(), fault: Fault::NotUtf8 });
    }
    let start = out.len();
    let mut parser = Parser { text, at: 0, out, end: start.saturating_add(bytes_max) };
    let parsed = parser.whole();
    let at = parser.at;
    parsed.map_err(|fault| {
        out.truncate(start);
        JsonError { at, fault }
    })
}

struct Parser<'t, 'o> {
    /// UTF-8, as has been checked.
    text: &'t [u8],
    /// The next byte; on an error, the one that is wrong.
    at: usize,
    out: &'o mut Vec<u8>,
    /// Where the value has to end.
    end: usize,
}

impl<'t> Parser<'t, '_> {
    fn whole(&mut self) -> Result<(), Fault> {
        self.value(JSON_DEPTH_MAX)?;
        match self.skip_space() {
            None => Ok(()),
            Some(_) => Err(Fault::Trailing),
        }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Steps over white space and says which byte follows.
    #[inline]
    fn skip_space(&mut self) -> Option<u8> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                other => return other,
            }
        }
    }

    /// What it means that another byte was hoped for here.
    #[cold]
    fn unexpected(&self) -> Fault {
        if self.at < self.text.len() { Fault::Unexpected } else { Fault::Truncated }
    }

    /// A value within which `depth` more containers may open.
    fn value(&mut self, depth: u32) -> Result<(), Fault> {
        match self.skip_space() {
            Some(b'"') => self.string(),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true", Marker::True),
            Some(b'f') => self.word(b"false", Marker::False),
            Some(b'n') => self.word(b"null", Marker::Null),
            _ => Err(self.unexpected()),
        }
    }

    fn word(&mut self, word: &[u8], meaning: Marker) -> Result<(), Fault> {
        for &byte in word {
            if self.peek() != Some(byte) {
                return Err(self.unexpected());
            }
            self.at += 1;
        }
        self.out.push(meaning.to_u8());
        Ok(())
    }

    fn array(&mut self, depth: u32) -> Result<(), Fault> {
        let open = self.open(depth, Kind::Array)?;
        let mut items = 0;
        if self.skip_space() == Some(b']') {
            self.at += 1;
        } else {
            loop {
                self.value(depth - 1)?;
                items += 1;
                if self.ends(b']')? {
                    break;
                }
            }
        }
        self.close(open, items);
        Ok(())
    }

    fn object(&mut self, depth: u32) -> Result<(), Fault> {
        let open = self.open(depth, Kind::Map)?;
        let mut entries = 0;
        if self.skip_space() == Some(b'}') {
            self.at += 1;
        } else {
            loop {
                if self.skip_space() != Some(b'"') {
                    return Err(self.unexpected());
                }
                self.string()?;
                if self.skip_space() != Some(b':') {
                    return Err(self.unexpected());
                }
                self.at += 1;
                self.value(depth - 1)?;
                entries += 1;
                if self.ends(b'}')? {
                    break;
                }
            }
        }
        self.close(open, entries);
        Ok(())
    }

    /// Steps over what follows an item; true if it is the end.
    #[inline]
    fn ends(&mut self, end: u8) -> Result<bool, Fault> {
        let next = self.skip_space();
        if next != Some(b',') && next != Some(end) {
            return Err(self.unexpected());
        }
        if self.out.len() > self.end {
            return Err(Fault::TooLong);
        }
        self.at += 1;
        Ok(next == Some(end))
    }

    /// Begins a container, whose count is known at its end.
    fn open(&mut self, depth: u32, kind: Kind) -> Result<Open, Fault> {
        if depth == 0 {
            return Err(Fault::Depth);
        }
        self.at += 1;
        let at = self.out.len();
        let wide = depth <= JSON_DEPTH_MAX - TIGHT_DEPTH_MAX;
        let room = if wide { &[kind.widest(), 0, 0, 0, 0][..] } else { &[kind.tight(0)] };
        self.out.extend_from_slice(room);
        Ok(Open { at, wide, kind })
    }

    fn close(&mut self, open: Open, count: usize) {
        let Open { at, wide, kind } = open;
        // No text of as much as four gigabytes comes here.
        let [a, b, c, d] = (count as u32).to_be_bytes();
        if wide {
            self.out[at + 1..at + 5].copy_from_slice(&[a, b, c, d]);
        } else if count <= TIGHT_COUNT_MAX {
            self.out[at] = kind.tight(d);
        } else if u16::try_from(count).is_ok() {
            self.out.splice(at..=at, [kind.wide(), c, d]);
        } else {
            self.out.splice(at..=at, [kind.widest(), a, b, c, d]);
        }
    }

    fn string(&mut self) -> Result<(), Fault> {
        self.at += 1;
        let start = self.at;
        self.at += plain_length(&self.text[start..]);
        if self.peek() == Some(b'"') {
            let text = &self.text[start..self.at];
            self.at += 1;
            Writer::new(self.out).str_head(text.len());
            self.out.extend_from_slice(text);
            return Ok(());
        }
        self.string_with_escapes(start)
    }

    /// The length is known at the end only, and its width with it: the head is put in front then.
    fn string_with_escapes(&mut self, start: usize) -> Result<(), Fault> {
        let out_start = self.out.len();
        let mut plain = start;
        loop {
            self.out.extend_from_slice(&self.text[plain..self.at]);
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                Some(_) => return Err(Fault::Control),
                None => return Err(Fault::Truncated),
            }
            plain = self.at;
            self.at += plain_length(&self.text[plain..]);
        }
        self.at += 1;
        let length = self.out.len() - out_start;
        Writer::new(self.out).str_head(length);
        let head = self.out.len() - out_start - length;
        self.out[out_start..].rotate_right(head);
        Ok(())
    }

    fn escape(&mut self) -> Result<(), Fault> {
        let byte = match self.text.get(self.at + 1) {
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(&same @ (b'"' | b'\\' | b'/')) => same,
            Some(b'u') => {
                let character = self.unicode()?;
                self.out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            Some(_) => return Err(Fault::Escape),
            None => return Err(Fault::Truncated),
        };
        self.out.push(byte);
        self.at += 2;
        Ok(())
    }

    /// `\uXXXX`, or two of them that make one character.
    fn unicode(&mut self) -> Result<char, Fault> {
        let first = self.unit(self.at)?;
        let (units, used) = match first {
            0xd800..=0xdbff => ([first, self.unit(self.at + 6)?], 12),
            _ => ([first, 0], 6),
        };
        match char::decode_utf16(units).next() {
            Some(Ok(character)) => {
                self.at += used;
                Ok(character)
            }
            _ => Err(Fault::Escape),
        }
    }

    /// The number of the `\uXXXX` at `at`.
    fn unit(&self, at: usize) -> Result<u16, Fault> {
        let Some(text) = self.text.get(at..at + 6) else {
            return Err(Fault::Escape);
        };
        if !text.starts_with(b"\\u") {
            return Err(Fault::Escape);
        }
        text[2..].iter().try_fold(0, |unit, &digit| {
            let value = char::from(digit).to_digit(16).ok_or(Fault::Escape)?;
            Ok(unit << 4 | value as u16)
        })
    }

    fn number(&mut self) -> Result<(), Fault> {
        let start = self.at;
        let negative = self.peek() == Some(b'-');
        self.at += usize::from(negative);
        let whole = self.digits()?;
        if whole.len() > 1 && whole[0] == b'0' {
            self.at -= whole.len() - 1;
            return Err(Fault::Unexpected);
        }
        let is_whole = !matches!(self.peek(), Some(b'.' | b'e' | b'E'));
        if is_whole && write_integer(self.out, negative, whole) {
            return Ok(());
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        // What has the grammar of JSON is ASCII and has the grammar of Rust.
        let text = std::str::from_utf8(&self.text[start..self.at]).map_err(|_| Fault::NotUtf8)?;
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => {
                Writer::new(self.out).f64(value);
                Ok(())
            }
            _ => {
                self.at = start;
                Err(Fault::NumberRange)
            }
        }
    }

    /// One digit at least.
    #[inline]
    fn digits(&mut self) -> Result<&'t [u8], Fault> {
        let text = self.text;
        let rest = &text[self.at..];
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return Err(self.unexpected());
        }
        self.at += count;
        Ok(&rest[..count])
    }
}

/// Writes a whole number. False if 64 bits cannot hold it, or its sign if it is zero.
fn write_integer(out: &mut Vec<u8>, negative: bool, digits: &[u8]) -> bool {
    let digit = |byte: &u8| u64::from(byte - b'0');
    let value = if digits.len() <= SAFE_DIGITS {
        Some(digits.iter().fold(0, |value, byte| value * 10 + digit(byte)))
    } else {
        digits.iter().try_fold(0_u64, |value, byte| value.checked_mul(10)?.checked_add(digit(byte)))
    };
    let Some(value) = value else { return false };
    let mut writer = Writer::new(out);
    if !negative {
        writer.whole_uint(value);
        return true;
    }
    match 0_i64.checked_sub_unsigned(value) {
        Some(below) if below < 0 => {
            writer.whole_int(below);
            true
        }
        _ => false,
    }
}

/// A container that is being written.
#[derive(Clone, Copy)]
struct Open {
    at: usize,
    wide: bool,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Array,
    Map,
}

impl Kind {
    fn tight(self, count: u8) -> u8 {
        match self {
            Self::Array => Marker::FixArray(count).to_u8(),
            Self::Map => Marker::FixMap(count).to_u8(),
        }
    }

    fn wide(self) -> u8 {
        match self {
            Self::Array => Marker::Array16.to_u8(),
            Self::Map => Marker::Map16.to_u8(),
        }
    }

    fn widest(self) -> u8 {
        match self {
            Self::Array => Marker::Array32.to_u8(),
            Self::Map => Marker::Map32.to_u8(),
        }
    }
}
