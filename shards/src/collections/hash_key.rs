//! The secret of the hash tables: a client who does not know it cannot pick names or keep jobs that meet in
//! one place of a table. It is drawn anew at each start, outside, and never leaves the process.
//!
//! Nothing that is kept or shown may follow from these hashes: neither what the log holds nor the order of
//! an answer. What decides where a queue or a name lives is [`crate::job::id::fnv1a`], which ids carry.

use crate::job::id::JobId;
use siphasher::sip::SipHasher13;

/// The secret key of all hashes.
#[derive(Clone, Copy)]
pub struct HashKey {
    first: u64,
    second: u64,
}

/// Says nothing of what it is.
impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HashKey(..)")
    }
}

impl HashKey {
    /// The key of these bits, which must come from the randomness of the system where clients are served.
    pub const fn new(secret: u128) -> Self {
        Self { first: secret as u64, second: (secret >> 64) as u64 }
    }

    /// The hash of a name that a client chose.
    #[inline]
    pub fn text(self, name: &str) -> u64 {
        self.bytes(name.as_bytes())
    }

    /// The hash of bytes that a client chose.
    #[inline]
    pub fn bytes(self, bytes: &[u8]) -> u64 {
        SipHasher13::new_with_keys(self.first, self.second).hash(bytes)
    }

    /// The hash of a name that means something within one queue only.
    #[inline]
    pub fn in_queue(self, queue: u32, name: &str) -> u64 {
        // Under another key per queue, so that names which meet in one queue need not meet in the next.
        let first = self.first ^ u64::from(queue).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        SipHasher13::new_with_keys(first, self.second).hash(name.as_bytes())
    }

    /// The hash of an id. Clients do not make ids, but choose which jobs stay, end or are waited for.
    #[inline]
    pub fn id(self, id: JobId) -> u64 {
        self.bytes(&id.0.to_le_bytes())
    }

    /// The hash of two ids.
    #[inline]
    pub fn pair(self, one: JobId, other: JobId) -> u64 {
        let mut both = [0; 32];
        both[..16].copy_from_slice(&one.0.to_le_bytes());
        both[16..].copy_from_slice(&other.0.to_le_bytes());
        self.bytes(&both)
    }

    /// The hash of a number that the server made, and of which clients choose at most whether it stays: one
    /// wide multiplication.
    #[inline]
    pub fn number(self, number: u64) -> u64 {
        let once = folded(number ^ self.first, self.second | 1);
        folded(once ^ self.second, 0x9e37_79b9_7f4a_7c15)
    }
}

/// Both halves of a product.
fn folded(one: u64, other: u64) -> u64 {
    let wide = u128::from(one) * u128::from(other);
    (wide as u64) ^ ((wide >> 64) as u64)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // To show what it is not good for.
mod tests {
    use super::*;
    use crate::job::id::fnv1a;

    /// Texts that FNV-1a sends to one place of a table of 2^16 buckets.
    fn crafted(count: usize) -> Vec<String> {
        let alike = |name: &String| fnv1a(name.as_bytes()) & 0xffff == 0x1234;
        (0_u64..).map(|n| format!("{n:x}")).filter(alike).take(count).collect()
    }

    /// Largest number of hashes that agree in their low 16 bits.
    fn most_alike(hashes: impl Iterator<Item = u64>) -> usize {
        let mut counts = vec![0; 1 << 16];
        hashes.for_each(|hash| counts[hash as usize & 0xffff] += 1);
        counts.into_iter().max().unwrap_or(0)
    }

    /// Guards against names that a client picked so that they meet.
    #[test]
    fn what_is_crafted_against_a_known_hash_is_scattered() {
        let names = crafted(64);
        let known = || names.iter().map(|name| fnv1a(name.as_bytes()));
        assert_eq!(most_alike(known()), names.len(), "the names are not crafted");
        for secret in [0, 1, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let key = HashKey::new(secret);
            assert!(most_alike(names.iter().map(|name| key.text(name))) < 4);
            assert!(most_alike(names.iter().map(|name| key.in_queue(3, name))) < 4);
            let numbers = || (0..1 << 12).map(|n: u64| n << 40);
            assert!(most_alike(numbers().map(|n| key.number(n))) < 12);
            assert!(most_alike(numbers().map(|n| key.id(JobId(u128::from(n) << 3)))) < 12);
        }
    }

    #[test]
    fn hashes_follow_from_the_key_which_is_never_shown() {
        let (one, same, other) = (HashKey::new(7), HashKey::new(7), HashKey::new(7 << 64));
        assert_eq!(one.text("x"), same.text("x"));
        assert_ne!(one.text("x"), other.text("x"));
        assert_ne!(one.number(1), other.number(1));
        assert_ne!(one.in_queue(1, "x"), one.in_queue(2, "x"));
        assert_eq!(format!("{:?}", HashKey::new(0x1234)), "HashKey(..)");
    }
}
