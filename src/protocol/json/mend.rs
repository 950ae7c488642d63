//! Text that is nearly JSON, as programs write that do not escape what they quote: for outcomes, which are taken in any
//! form. What is no text becomes U+FFFD, what is no number `null`.

use super::plain_length;
use crate::api::limits::PAYLOAD_BYTES_MAX;

/// A byte order mark.
pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

/// The mark in place of bytes that are no character.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

/// Words that some languages write for what is no number. The longer come before those that they begin with.
const NO_NUMBERS: [&[u8]; 6] = [b"-Infinity", b"+Infinity", b"Infinity", b"-NaN", b"+NaN", b"NaN"];

/// Digits of a longer number are not read.
const NUMBER_BYTES_MAX: usize = 1 << 16;

/// How much of a string is looked through at a time.
const STRING_STEP_BYTES: usize = 16 << 10;

/// A text with its mistakes mended as far as they are in texts and numbers; `None` if that changes nothing. What is mended is
/// not mended again.
#[cold]
pub fn mended(text: &[u8]) -> Option<Vec<u8>> {
    let mut mend = Mend::default();
    while !mend.go_on(text, usize::MAX) {}
    mend.into_changed()
}

/// A text that is being mended, a slice at a time: see [`mended`].
#[derive(Debug, Default)]
pub struct Mend {
    /// The next byte of the text.
    at: usize,
    state: State,
    out: Vec<u8>,
    is_changed: bool,
    /// Whether what is no text would grow beyond a payload, and has a shorter mark.
    is_short: bool,
}

/// Where in a text something stands.
#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Front,
    /// Outside of any string.
    Outside,
    /// In the digits of a number that is too long.
    LongNumber,
    Inside,
}

impl Mend {
    /// Memory held.
    pub fn held_bytes(&self) -> usize {
        self.out.len()
    }

    /// The mended text, once all of it has been gone through; `None` if nothing changed.
    pub fn into_changed(mut self) -> Option<Vec<u8>> {
        self.out.shrink_to_fit();
        self.is_changed.then_some(self.out)
    }

    /// Goes on by about so many bytes of the text. True once it is at the end.
    pub fn go_on(&mut self, text: &[u8], bytes: usize) -> bool {
        if self.at == 0 {
            // The other form is seldom three times as long. Memory that is not written to costs nothing, and moving it would.
            self.out.reserve(3 * text.len());
        }
        let until = self.at.saturating_add(bytes);
        while self.at < until {
            let rest = &text[self.at..];
            if rest.is_empty() {
                return true;
            }
            self.at += match self.state {
                State::Front if rest.starts_with(BOM) => {
                    self.is_changed = true;
                    BOM.len()
                }
                State::Front | State::Outside => self.outside(rest),
                State::LongNumber => self.digits(rest),
                State::Inside => self.inside(rest),
            };
            if self.is_changed && !self.is_short && self.out.len() > PAYLOAD_BYTES_MAX as usize {
                *self = Self { is_short: true, ..Self::default() };
                return false;
            }
        }
        self.at >= text.len()
    }

    /// Writes something else in place of what stands in the text.
    fn replace(&mut self, other: &[u8]) {
        self.is_changed = true;
        self.out.extend_from_slice(other);
    }

    /// Writes what is at the front outside of any string. Returns how many bytes that was.
    fn outside(&mut self, rest: &[u8]) -> usize {
        self.state = State::Outside;
        if let Some(word) = NO_NUMBERS.iter().find(|word| rest.starts_with(word)) {
            self.replace(b"null");
            return word.len();
        }
        match rest[0] {
            b'-' if !rest.get(1).is_some_and(u8::is_ascii_digit) => self.out.push(b'-'),
            b'-' | b'0'..=b'9' => return self.number(rest),
            // No value begins so, and the text is refused for it, but not for what it is made of.
            0x80.. => self.replace(REPLACEMENT),
            first => {
                if first == b'"' {
                    self.state = State::Inside;
                }
                self.out.push(first);
            }
        }
        1
    }

    fn number(&mut self, rest: &[u8]) -> usize {
        let number = &rest[..number_length(rest)];
        let value = std::str::from_utf8(number).ok().and_then(|text| text.parse::<f64>().ok());
        let is_long = number.len() > NUMBER_BYTES_MAX;
        if is_long || value.is_some_and(f64::is_infinite) {
            self.replace(b"null");
        } else {
            self.out.extend_from_slice(number);
        }
        if is_long {
            self.state = State::LongNumber;
        }
        number.len()
    }

    /// Steps over more of a number that is too long.
    fn digits(&mut self, rest: &[u8]) -> usize {
        let length = number_length(rest);
        if length <= NUMBER_BYTES_MAX {
            self.state = State::Outside;
        }
        length
    }

    /// Writes what is at the front of the rest of a string. Returns how many bytes that was.
    fn inside(&mut self, rest: &[u8]) -> usize {
        match rest[0] {
            b'"' => {
                self.out.push(b'"');
                self.state = State::Outside;
                1
            }
            b'\\' => self.escape(rest),
            byte @ 0..=0x1f => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                let [high, low] = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
                self.replace(&[b'\\', b'u', b'0', b'0', high, low]);
                1
            }
            _ => {
                let seen = &rest[..rest.len().min(STRING_STEP_BYTES)];
                let plain = plain_length(seen);
                // A character that goes on behind the step belongs to the next.
                let goes_on = |at: &usize| rest.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
                let begins = (plain.saturating_sub(3).max(1)..=plain).rev().find(|at| !goes_on(at));
                let plain = begins.unwrap_or(plain);
                let mark = if self.is_short { b"?" } else { REPLACEMENT };
                for chunk in rest[..plain].utf8_chunks() {
                    self.out.extend_from_slice(chunk.valid().as_bytes());
                    if !chunk.invalid().is_empty() {
                        self.replace(mark);
                    }
                }
                plain
            }
        }
    }

    /// Writes the escape at the front, or the backslash that is none. Returns how many bytes that was.
    fn escape(&mut self, rest: &[u8]) -> usize {
        let length = match (rest.get(1), unit(rest)) {
            (Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't'), _) => 2,
            (_, Some(0xd800..=0xdbff)) if matches!(unit(&rest[6..]), Some(0xdc00..=0xdfff)) => 12,
            (_, Some(0xd800..=0xdfff)) => {
                self.replace(b"\\ufffd");
                return 6;
            }
            (_, Some(_)) => 6,
            // The text ends there, and is refused for that.
            (None, None) => 1,
            (Some(_), None) => {
                self.replace(b"\\\\");
                return 1;
            }
        };
        self.out.extend_from_slice(&rest[..length]);
        length
    }
}

/// How many bytes at the front may be parts of a number: no more than one over what a number may have.
fn number_length(rest: &[u8]) -> usize {
    let is_part = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    rest.iter().take(NUMBER_BYTES_MAX + 1).take_while(is_part).count()
}

/// The UTF-16 unit of the escape at the front.
fn unit(rest: &[u8]) -> Option<u16> {
    let digits = rest.strip_prefix(b"\\u")?.get(..4)?;
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::to_msgpack;
    use super::*;

    #[test]
    fn what_is_no_text_or_no_number_is_replaced() {
        for (given, meant) in [
            (&br#"{"result":"half \ud83d"}"#[..], r#"{"result":"half \ufffd"}"#),
            (br#"["\udc00\ud83d\ude00\ud83dx"]"#, r#"["\ufffd\ud83d\ude00\ufffdx"]"#),
            (b"{\"result\":NaN}", r#"{"result":null}"#),
            (b"[Infinity,-Infinity,-NaN,1e999,-1e999,12]", "[null,null,null,null,null,12]"),
            (b"\xef\xbb\xbf{}", "{}"),
            (b"\"a\xffb\"", "\"a\u{fffd}b\""),
            (b"\"a\nb\x00\"", r#""a\u000ab\u0000""#),
            (br#""C:\dir\u12""#, r#""C:\\dir\\u12""#),
        ] {
            assert!(to_msgpack(given, &mut Vec::new()).is_err(), "{meant}");
            let out = mended(given).unwrap();
            assert_eq!(String::from_utf8_lossy(&out), meant);
            to_msgpack(&out, &mut Vec::new()).unwrap();
            assert_eq!(mended(&out), None, "{meant}: once is enough");
        }
    }

    #[test]
    fn what_is_json_and_what_is_far_from_it_stay() {
        for text in
            [r#"{"NaN":"Infinity \u0000 \"","a":[-1.5e3,0]}"#, "{", "\"a", "nul", "\"\\", ""]
        {
            assert_eq!(mended(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_text_that_is_mended_in_slices_is_what_it_is_at_once() {
        let long = "\u{e9}\u{20ac}\u{1f600}".repeat(4000);
        let digits = "7".repeat(2 * NUMBER_BYTES_MAX + 1);
        let rest = b"\x80".repeat(20_000);
        let text = [
            BOM,
            BOM,
            b"[\"",
            long.as_bytes(),
            b"\xff\xe2\x82",
            &rest,
            &long.as_bytes()[1..],
            br#"\ud83d\ude00\ud83d\x\\\"",NaN,1e999,"#,
            digits.as_bytes(),
            b",7]",
        ]
        .concat();
        let at_once = mended(&text).unwrap();
        to_msgpack(&at_once, &mut Vec::new()).unwrap();
        assert!(at_once.ends_with(b",null,null,null,7]"));
        let grown = [&b"[\""[..], &b"\xff".repeat(4_000_000), b"\"]"].concat();
        assert!(mended(&grown).unwrap().ends_with(b"????\"]"));
        for slice in [1, 2, 7, 5000] {
            let mut mend = Mend::default();
            while !mend.go_on(&text, slice) {}
            assert_eq!(mend.into_changed().unwrap(), at_once, "by {slice}");
        }
    }
}
