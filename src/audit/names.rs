//! Short names of tokens: the front of a hash under a key that lies beside the audit log. They tell tokens apart over restarts,
//! and neither open anything nor can be compared between two servers.

use ring::hmac;
use std::fmt;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// Digits of a name.
const DIGITS: usize = 8;

/// The short name of a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TokenName([u8; DIGITS]);

impl TokenName {
    pub fn as_str(&self) -> &str {
        // Digits are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// Key of a server from which the short names of tokens are derived.
#[derive(Clone, Debug)]
pub struct NameKey(hmac::Key);

impl NameKey {
    pub fn new(key: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// The name of a token.
    pub fn name_of(&self, token: &str) -> TokenName {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let tag = hmac::sign(&self.0, token.as_bytes());
        let mut name = [b'0'; DIGITS];
        for (digits, byte) in name.chunks_exact_mut(2).zip(tag.as_ref()) {
            digits[0] = HEX[usize::from(byte >> 4)];
            digits[1] = HEX[usize::from(byte & 15)];
        }
        TokenName(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_follows_from_the_token_and_the_key_alone() {
        let (key, other) = (NameKey::new(&[1; KEY_BYTES]), NameKey::new(&[2; KEY_BYTES]));
        let name = key.name_of("secret");
        assert_eq!(name, NameKey::new(&[1; KEY_BYTES]).name_of("secret"));
        assert!(name != key.name_of("secret ") && name != other.name_of("secret"));
        assert!(name.as_str().len() == 8 && name.as_str().chars().all(|it| it.is_ascii_hexdigit()));
    }
}
