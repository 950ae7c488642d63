//! The check of one long value, a slice at a time: what [`Reader::skip`] checks at once.
//!
//! A [`Scan`] holds how many values are still to come of each container that is open, so it can stop after any value, and
//! within a long text.
//!
//! [`Reader::skip`]: super::Reader::skip

use rmp::Marker;

use super::{Malformed, items_at, length_at, length_width, skip_values};
use crate::api::limits::DEPTH_MAX;

/// Bytes of a text that are checked in about the time in which a small value is.
const TEXT_BYTES_PER_STEP: usize = 32;

/// A text of more bytes is checked in pieces.
const TEXT_PIECE_BYTES: usize = 16 << 10;

/// A value on its way through the check.
#[derive(Clone, Debug)]
pub struct Scan {
    at: usize,
    /// Values to come of the containers that are open, the innermost last; of none, the value itself.
    open: Vec<usize>,
    /// Bytes to come of the text that is being checked.
    text_left: usize,
}

impl Scan {
    /// Of the value that begins there.
    pub fn at(start: usize) -> Self {
        Self { at: start, open: vec![1], text_left: 0 }
    }

    /// Where it is: behind the value, once that is checked.
    pub fn place(&self) -> usize {
        self.at
    }

    /// Goes on by about `steps` small values, which it counts down. True once the value is checked.
    pub fn go_on(&mut self, bytes: &[u8], steps: &mut usize) -> Result<bool, Malformed> {
        while *steps > 0 {
            if self.text_left > 0 {
                self.check_text(bytes, steps)?;
                continue;
            }
            let Some(left) = self.open.last_mut() else { return Ok(true) };
            let Some(fewer) = left.checked_sub(1) else {
                self.open.pop();
                continue;
            };
            *left = fewer;
            *steps -= 1;
            self.enter(bytes)?;
        }
        Ok(self.open.iter().all(|left| *left == 0) && self.text_left == 0)
    }

    /// Steps over a scalar, or into a container or a long text.
    fn enter(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let marker = Marker::from_u8(*bytes.get(self.at).ok_or(Malformed::Truncated)?);
        let behind = self.at + 1;
        match marker {
            Marker::FixArray(_)
            | Marker::FixMap(_)
            | Marker::Array16
            | Marker::Array32
            | Marker::Map16
            | Marker::Map32 => {
                let (items, at) = items_at(bytes, behind, marker)?;
                // The value itself is not in a container.
                if self.open.len() > DEPTH_MAX as usize {
                    return Err(Malformed::Depth);
                }
                if items > bytes.len() - at {
                    return Err(Malformed::Count);
                }
                self.open.push(items);
                self.at = at;
            }
            Marker::Str32 => {
                let width = length_width(marker);
                let length = length_at(bytes, behind, width)?;
                if length > bytes.len() - (behind + width) {
                    return Err(Malformed::Truncated);
                }
                (self.at, self.text_left) = (behind + width, length);
            }
            _ => self.at = skip_values::<true>(bytes, self.at, 1, 0)?,
        }
        Ok(())
    }

    /// Checks the next piece of a text, up to the end of a character.
    fn check_text(&mut self, bytes: &[u8], steps: &mut usize) -> Result<(), Malformed> {
        let length = self.text_left.min(TEXT_PIECE_BYTES);
        let piece = &bytes[self.at..self.at + length];
        let checked = match std::str::from_utf8(piece) {
            Ok(_) => length,
            // A character that goes on behind the piece.
            Err(error) if error.error_len().is_none() && length < self.text_left => {
                error.valid_up_to()
            }
            Err(_) => return Err(Malformed::NotUtf8),
        };
        self.at += checked;
        self.text_left -= checked;
        *steps = steps.saturating_sub(1 + length / TEXT_BYTES_PER_STEP);
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::protocol::json;
    use crate::protocol::msgpack::Reader;

    /// Length of the value at the front, or its fault, as a check in slices of `slice` steps finds it.
    fn scanned(bytes: &[u8], slice: usize) -> Result<usize, Malformed> {
        let mut scan = Scan::at(0);
        while !scan.go_on(bytes, &mut slice.clone())? {}
        Ok(scan.place())
    }

    fn agrees(bytes: &[u8]) {
        let mut reader = Reader::new(bytes);
        let expected = reader.skip().map(<[u8]>::len);
        for slice in [1, 2, 7, usize::MAX] {
            assert_eq!(scanned(bytes, slice), expected, "{:?}", &bytes[..bytes.len().min(40)]);
        }
    }

    #[test]
    fn a_check_in_slices_says_what_the_check_at_once_says() {
        let mut values: Vec<Vec<u8>> = Vec::new();
        for text in [
            r#"{"a":[1,2.5,-3,null,true,"x",{"b":[]},[[[]]]],"c":"0123456789012345678901234567890123456789"}"#,
            "[]",
            "7",
            r#""a text""#,
        ] {
            values.push(json::packed(text));
        }
        values.push(b"\xc7\x03\x05abc".to_vec());
        values.push(b"\xc4\x03abc\x00".to_vec());
        values.push(b"\xc1".to_vec());
        values.push(b"\x92\x01\xa1\xff".to_vec());
        values.push(b"\xdd\xff\xff\xff\xff\x01".to_vec());
        values.push(b"\xdb\xff\xff\xff\xff\x01".to_vec());
        for depth in [DEPTH_MAX, DEPTH_MAX + 1] {
            let mut nested = vec![0x91; depth as usize];
            nested.push(0xc0);
            values.push(nested);
        }
        for value in &values {
            for cut in 0..=value.len() {
                agrees(&value[..cut]);
            }
        }
    }

    #[test]
    fn a_long_text_is_checked_across_its_pieces() {
        for (letter, extra) in [("x", ""), ("ä", "x"), ("€", "xy"), ("🙂", "xyz")] {
            let text = format!("{extra}{}", letter.repeat(40_000));
            let mut bytes = vec![0xdb];
            bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
            agrees(&bytes);
            let (last, middle) = (bytes.len() - 1, bytes.len() / 2);
            for place in [last, middle, 5] {
                let mut broken = bytes.clone();
                broken[place] = 0xff;
                agrees(&broken);
            }
            // A text that ends within a character.
            if letter.len() > 1 {
                let mut cut = bytes[..last].to_vec();
                cut[1..5].copy_from_slice(&(text.len() as u32 - 1).to_be_bytes());
                agrees(&cut);
            }
        }
    }

    #[test]
    fn no_slice_checks_more_than_it_may() {
        let mut numbers = b"\xdd\x00\x0f\x42\x40".to_vec();
        numbers.resize(5 + 1_000_000, 1);
        let mut text = b"\xdb\x00\x0f\x42\x40".to_vec();
        text.resize(5 + 1_000_000, b'x');
        for (value, most) in [(numbers, 1100), (text, 1100 * TEXT_BYTES_PER_STEP)] {
            let (mut scan, mut before) = (Scan::at(0), 0);
            while !scan.go_on(&value, &mut 1000).unwrap() {
                assert!(scan.place() - before <= most, "{}", scan.place() - before);
                before = scan.place();
            }
        }
    }
}
