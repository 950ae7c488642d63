//! JSON and `MessagePack`, two faces of one value: from text to bytes and back in one pass, without a
//! tree in between.
//!
//! What a client gives as JSON comes back as the same JSON, and to a client of the other face as the
//! value it means: integers of up to 64 bits exactly, other numbers as the nearest float, texts, order
//! and repeated keys as they stand. `MessagePack` can say more than JSON: [`from_msgpack`] tells how
//! that is shown. What the values mean is not known here, but for one thing: [`from_reply`] knows
//! which parts of a reply came from clients.
//!
//! | file | responsibility |
//! |---|---|
//! | `find` | a field of an object whose beginning has come |
//! | `mend` | text that is nearly JSON, for outcomes |
//! | `parse` | JSON to MessagePack |
//! | `print` | MessagePack to JSON |
//! | `scalar` | numbers, strings, bytes and times as JSON |

mod find;
mod mend;
mod parse;
mod print;
mod scalar;

use std::fmt;

pub use find::{text_of, value_of};
pub use mend::{Mend, mended};
pub use parse::{FieldFate, FieldNames, Parse, to_msgpack, to_msgpack_within};
pub use print::{
    EXPANSION_MAX, Print, TEXT_BYTES_MAX, Unshown, from_msgpack, from_msgpack_within, from_record,
    from_record_within, from_reply, from_reply_within,
};
pub use scalar::{integer, number, string};

use crate::api::limits::DEPTH_MAX;

/// Containers that a command puts around a payload: `{"jobs":[{"data":…}]}`. With room for them a
/// payload may be as deep as on the other surfaces, and one that is deeper is refused by name.
const ENVELOPE_DEPTH: u32 = 4;

/// Deepest nesting of a whole text.
pub const JSON_DEPTH_MAX: u32 = DEPTH_MAX + ENVELOPE_DEPTH;

/// Why a text is not one JSON value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JsonError {
    /// The byte of the text where that shows.
    pub at: usize,
    pub fault: Fault,
}

/// Fault of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The text ends in the middle of a value.
    Truncated,
    /// A byte that cannot stand there.
    Unexpected,
    /// Something follows the value.
    Trailing,
    /// A number that no float can hold, or of more than 65,536 digits in a row.
    NumberRange,
    /// An escape that is none, or half of a surrogate pair, which is no character.
    Escape,
    /// A control character in a string.
    Control,
    /// The text nests deeper than [`JSON_DEPTH_MAX`].
    Depth,
    /// The text is not UTF-8.
    NotUtf8,
    /// The value would be longer than it may be.
    TooLong,
}

impl Fault {
    /// Whether [`mended`] may help.
    pub fn is_mendable(self) -> bool {
        matches!(
            self,
            Self::Unexpected | Self::NumberRange | Self::Escape | Self::Control | Self::NotUtf8
        )
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.fault {
            Fault::Truncated => "it ends in the middle of a value",
            Fault::Unexpected => "unexpected character",
            Fault::Trailing => "something follows the value",
            Fault::NumberRange => "number out of range",
            Fault::Escape => "bad escape",
            Fault::Control => "control character in a string",
            Fault::Depth => "lists and maps nest too deep",
            Fault::NotUtf8 => "it is not valid UTF-8",
            Fault::TooLong => "it is too long",
        };
        write!(out, "{text} at byte {}", self.at)
    }
}

/// How many bytes from the front of a string stand for themselves: up to a quote, a backslash or a
/// control character. Eight are looked at together: a byte's highest bit is set in `seen` if it is one
/// of those, and perhaps in bytes behind such a one.
#[inline]
fn plain_length(text: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH_BITS: u64 = ONES << 7;
    let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word;
    let mut length = 0;
    while let Some(chunk) = text[length..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let quotes = zero_bytes(word ^ (ONES * u64::from(b'"')));
        let slashes = zero_bytes(word ^ (ONES * u64::from(b'\\')));
        let controls = word.wrapping_sub(ONES * 0x20) & !word;
        let seen = (quotes | slashes | controls) & HIGH_BITS;
        if seen != 0 {
            return length + seen.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    let plain = |byte: &&u8| !matches!(byte, b'"' | b'\\' | 0..=0x1f);
    length + text[length..].iter().take_while(plain).count()
}

/// The value of a JSON text, for tests.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) fn packed(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    to_msgpack(text.as_bytes(), &mut bytes).unwrap();
    bytes
}
