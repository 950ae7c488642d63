//! Tokens and cookies as they are kept: as hashes, which open nothing.

use ring::{digest, hmac};

/// A token, as it is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Tag([u8; 32]);

impl Tag {
    /// That of a token, under the key of this process.
    pub fn of(key: &hmac::Key, token: &str) -> Self {
        let mut tag = [0; 32];
        tag.copy_from_slice(hmac::sign(key, token.as_bytes()).as_ref());
        Self(tag)
    }
}

#[cfg(test)]
impl Tag {
    pub(super) fn of_test(number: u8) -> Self {
        Self([number; 32])
    }
}

/// The stored form of a cookie: its SHA-256.
pub(super) fn hash_of(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    hash
}
