//! The text of a UUID, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, to and from its 128 bits.
//!
//! On the way of every job, in both directions, so it works on words rather than digits.

/// Characters of the text.
pub const UUID_CHARS: usize = 36;

/// The text in lower case.
#[inline]
pub fn format(bits: u128) -> [u8; UUID_CHARS] {
    let a = hex8((bits >> 96) as u32);
    let b = hex8((bits >> 64) as u32);
    let c = hex8((bits >> 32) as u32);
    let d = hex8(bits as u32);
    let mut text = [b'-'; UUID_CHARS];
    text[..8].copy_from_slice(&a);
    text[9..13].copy_from_slice(&b[..4]);
    text[14..18].copy_from_slice(&b[4..]);
    text[19..23].copy_from_slice(&c[..4]);
    text[24..28].copy_from_slice(&c[4..]);
    text[28..].copy_from_slice(&d);
    text
}

/// Eight hex digits at once: the nibbles are spread to one per byte, then each byte is moved to
/// `0`..`9` or, where adding six carries out of the nibble, on to `a`..`f`.
#[inline]
fn hex8(word: u32) -> [u8; 8] {
    let word = u64::from(word);
    let halves = (word << 16 | word) & 0x0000_ffff_0000_ffff;
    let bytes = (halves << 8 | halves) & 0x00ff_00ff_00ff_00ff;
    let nibbles = (bytes << 4 | bytes) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = ((nibbles + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    (nibbles + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'0' - 10)).to_be_bytes()
}

/// The other way round, for eight bytes that are hex digits in lower case; of others it makes
/// something that is not their number.
#[inline]
fn word(digits: [u8; 8]) -> u32 {
    let digits = u64::from_be_bytes(digits);
    let letters = (digits >> 6) & 0x0101_0101_0101_0101;
    let nibbles = (digits & 0x0f0f_0f0f_0f0f_0f0f) + letters * 9;
    let bytes = (nibbles | nibbles >> 4) & 0x00ff_00ff_00ff_00ff;
    let halves = (bytes | bytes >> 8) & 0x0000_ffff_0000_ffff;
    (halves | halves >> 16) as u32
}

/// The bits of a text in lower case: the only form that [`format()`] would give back unchanged, and
/// so the only one that may stand for a job's id.
#[inline]
pub fn parse_exact(text: &str) -> Option<u128> {
    parse_lower(text.as_bytes().try_into().ok()?)
}

/// The bits of a text in either case.
#[inline]
pub fn parse(text: &str) -> Option<u128> {
    let text: [u8; UUID_CHARS] = text.as_bytes().try_into().ok()?;
    // What sets letters apart from digits and hyphens is the bit above the one of their case.
    parse_lower(&text.map(|byte| byte | (byte & 0x40) >> 1))
}

/// Reads without looking, then checks by writing: what comes back the same was a UUID.
#[inline]
fn parse_lower(text: &[u8; UUID_CHARS]) -> Option<u128> {
    let mut digits = [0; 32];
    digits[..8].copy_from_slice(&text[..8]);
    digits[8..12].copy_from_slice(&text[9..13]);
    digits[12..16].copy_from_slice(&text[14..18]);
    digits[16..20].copy_from_slice(&text[19..23]);
    digits[20..].copy_from_slice(&text[24..]);
    let bits = digits
        .as_chunks::<8>()
        .0
        .iter()
        .fold(0, |bits, digits| bits << 32 | u128::from(word(*digits)));
    (format(bits) == *text).then_some(bits)
}
