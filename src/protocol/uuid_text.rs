//! The text of a UUID, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, to and from its 128 bits, by the crate `uuid`.
//!
//! The crate reads further forms (braces, no hyphens, a URN). They are no ids here: an id has one text, and any other text is one
//! that a client has chosen.

use uuid::Uuid;

/// Characters of the text.
pub const UUID_CHARS: usize = 36;

/// The text in lower case.
#[inline]
pub fn format(bits: u128) -> [u8; UUID_CHARS] {
    let mut text = [0; UUID_CHARS];
    Uuid::from_u128(bits).hyphenated().encode_lower(&mut text);
    text
}

/// The bits of a text in lower case: the only form that [`format()`] would give back unchanged, and
/// so the only one that may stand for a job's id.
#[inline]
pub fn parse_exact(text: &str) -> Option<u128> {
    let text: &[u8; UUID_CHARS] = text.as_bytes().try_into().ok()?;
    // All of them are looked at, which needs no branch per character.
    let is_lower = text.iter().fold(true, |lower, byte| lower & !byte.is_ascii_uppercase());
    if is_lower { read(text) } else { None }
}

/// The bits of a text in either case.
#[inline]
pub fn parse(text: &str) -> Option<u128> {
    read(text.as_bytes().try_into().ok()?)
}

/// Of the forms that the crate reads, only the one with hyphens has so many characters.
#[inline]
fn read(text: &[u8; UUID_CHARS]) -> Option<u128> {
    Uuid::try_parse_ascii(text).ok().map(|uuid| uuid.as_u128())
}
