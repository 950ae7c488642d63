//! The text of a UUID, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, to and from its 128 bits.
//!
//! On the way of every job, in both directions, so it works on words rather than digits.

/// Characters of the text.
pub const UUID_CHARS: usize = 36;

/// Where the hyphens stand.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

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

/// Marks a digit in upper case, beside its value.
const UPPER: u8 = 0x10;
/// Marks a byte that is no digit.
const NO_DIGIT: u8 = 0x80;

const DIGITS: [u8; 256] = {
    let mut table = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        table["0123456789abcdef".as_bytes()[value] as usize] = value as u8;
        if value >= 10 {
            table["0123456789ABCDEF".as_bytes()[value] as usize] = value as u8 | UPPER;
        }
        value += 1;
    }
    table
};

/// The bits of a text in lower case: the only form that [`format`] would give back unchanged, and
/// so the only one that may stand for a job's id.
#[inline]
pub fn parse_exact(text: &str) -> Option<u128> {
    parse_digits(text, NO_DIGIT | UPPER)
}

/// The bits of a text in either case.
#[inline]
pub fn parse(text: &str) -> Option<u128> {
    parse_digits(text, NO_DIGIT)
}

#[inline]
fn parse_digits(text: &str, refused: u8) -> Option<u128> {
    let text: &[u8; UUID_CHARS] = text.as_bytes().try_into().ok()?;
    if HYPHENS.iter().any(|at| text[*at] != b'-') {
        return None;
    }
    let mut seen = 0;
    let mut word = |from: usize, to: usize| {
        let mut value = 0_u64;
        for byte in &text[from..to] {
            let digit = DIGITS[usize::from(*byte)];
            seen |= digit;
            value = value << 4 | u64::from(digit & 0xf);
        }
        value
    };
    let high = word(0, 8) << 32 | word(9, 13) << 16 | word(14, 18);
    let low = word(19, 23) << 48 | word(24, 36);
    (seen & refused == 0).then_some(u128::from(high) << 64 | u128::from(low))
}
