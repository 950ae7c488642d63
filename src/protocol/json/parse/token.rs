//! Escapes within strings, and numbers.

use super::{Fault, Reading};
use crate::protocol::msgpack::writer::Writer;

/// Digits that always fit a `u64`.
const SAFE_DIGITS: usize = 19;

/// Most digits in a row of one number.
const DIGITS_MAX: usize = 64 << 10;

impl<'t> Reading<'t, '_> {
    pub(super) fn escape(&mut self) -> Result<(), Fault> {
        let byte = match self.text.get(self.parse.at + 1) {
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
        self.parse.at += 2;
        Ok(())
    }

    /// `\uXXXX`, or two of them that make one character.
    fn unicode(&mut self) -> Result<char, Fault> {
        let first = self.unit(self.parse.at)?;
        let (units, used) = match first {
            0xd800..=0xdbff => ([first, self.unit(self.parse.at + 6)?], 12),
            _ => ([first, 0], 6),
        };
        match char::decode_utf16(units).next() {
            Some(Ok(character)) => {
                self.parse.at += used;
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

    pub(super) fn number(&mut self) -> Result<(), Fault> {
        let start = self.parse.at;
        let negative = self.peek() == Some(b'-');
        self.parse.at += usize::from(negative);
        let whole = self.digits()?;
        if whole.len() > 1 && whole[0] == b'0' {
            self.parse.at -= whole.len() - 1;
            return Err(Fault::Unexpected);
        }
        let is_whole = !matches!(self.peek(), Some(b'.' | b'e' | b'E'));
        if is_whole && write_integer(self.out, negative, whole) {
            return Ok(());
        }
        if self.peek() == Some(b'.') {
            self.parse.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.parse.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.parse.at += 1;
            }
            self.digits()?;
        }
        // A number in the grammar of JSON is ASCII, and fits the grammar of Rust.
        let text =
            std::str::from_utf8(&self.text[start..self.parse.at]).map_err(|_| Fault::NotUtf8)?;
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => {
                Writer::new(self.out).f64(value);
                Ok(())
            }
            _ => {
                self.parse.at = start;
                Err(Fault::NumberRange)
            }
        }
    }

    /// Reads at least one digit.
    #[inline]
    fn digits(&mut self) -> Result<&'t [u8], Fault> {
        let text = self.text;
        let rest = &text[self.parse.at..text.len().min(self.parse.at + DIGITS_MAX + 1)];
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        match count {
            0 => return Err(self.unexpected()),
            1..=DIGITS_MAX => {}
            _ => return Err(Fault::NumberRange),
        }
        self.parse.at += count;
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
