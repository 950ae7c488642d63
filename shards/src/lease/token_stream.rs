//! Numbers that cannot be guessed from any others of them: the key stream of `ChaCha20` (RFC 8439) under a key
//! from outside.
//!
//! Lock tokens are made here. Ids need no more than [`crate::job::id::Chance`]: they are shown to all, and a
//! guessed one grants nothing.

use crate::job::id::Chance;
use std::fmt;

/// What the numbers of a shard follow from: random, and another one at each start and on each shard. All of
/// them are known with it, so it is shown nowhere.
#[derive(Clone, Copy)]
pub struct SecretKey([u32; 8]);

impl SecretKey {
    /// The key of these bytes, which come from the randomness of the system.
    pub fn new(bytes: &[u8; 32]) -> Self {
        let (words, _) = bytes.as_chunks::<4>();
        let mut key = [0; 8];
        key.iter_mut().zip(words).for_each(|(word, &bytes)| *word = u32::from_le_bytes(bytes));
        Self(key)
    }

    /// A key that follows from a seed, and is no secret: for runs that are to be repeated.
    pub fn of_seed(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        Self(std::array::from_fn(|_| chance.draw() as u32))
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey")
    }
}

/// Makes lock tokens from a secret key.
pub(crate) struct Secrets {
    key: SecretKey,
    /// The number of the next block.
    next: u64,
    /// What is left of the last block.
    left: [u128; 4],
    count: usize,
}

impl Secrets {
    pub(crate) fn new(key: SecretKey) -> Self {
        Self { key, next: 0, left: [0; 4], count: 0 }
    }

    /// The next 128 bits.
    pub(crate) fn draw(&mut self) -> u128 {
        if self.count == 0 {
            let stream = block(self.key, [self.next as u32, (self.next >> 32) as u32, 0, 0]);
            for (number, words) in self.left.iter_mut().zip(stream.as_chunks::<4>().0) {
                *number = words.iter().fold(0, |bits, &word| bits << 32 | u128::from(word));
            }
            self.next += 1;
            self.count = self.left.len();
        }
        self.count -= 1;
        // A number that was handed out is not kept here.
        std::mem::take(&mut self.left[self.count])
    }
}

fn quarter(state: &mut [u32; 16], [a, b, c, d]: [usize; 4]) {
    for (add, to, turn, bits) in [(b, a, d, 16), (d, c, b, 12), (b, a, d, 8), (d, c, b, 7)] {
        state[to] = state[to].wrapping_add(state[add]);
        state[turn] = (state[turn] ^ state[to]).rotate_left(bits);
    }
}

/// One block of the key stream.
fn block(SecretKey(key): SecretKey, counter_and_nonce: [u32; 4]) -> [u32; 16] {
    let mut first = [0; 16];
    first[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
    first[4..12].copy_from_slice(&key);
    first[12..].copy_from_slice(&counter_and_nonce);
    let mut state = first;
    for _ in 0..10 {
        for column in 0..4 {
            quarter(&mut state, [column, 4 + column, 8 + column, 12 + column]);
        }
        for column in 0..4 {
            let at = |row: usize| 4 * row + (column + row) % 4;
            quarter(&mut state, [at(0), at(1), at(2), at(3)]);
        }
    }
    std::array::from_fn(|word| state[word].wrapping_add(first[word]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439, 2.3.2.
    #[test]
    fn a_block_is_that_of_the_standard() {
        let key = SecretKey::new(&std::array::from_fn(|byte| byte as u8));
        let expected = [
            0xe4e7_f110,
            0x1559_3bd1,
            0x1fdd_0f50,
            0xc471_20a3,
            0xc7f4_d1c7,
            0x0368_c033,
            0x9aaa_2204,
            0x4e6c_d4c3,
            0x4664_82d2,
            0x09aa_9f07,
            0x05d7_c214,
            0xa202_8bd9,
            0xd19c_12b5,
            0xb94e_16de,
            0xe883_d0cb,
            0x4e3c_50a2,
        ];
        assert_eq!(block(key, [1, 0x0900_0000, 0x4a00_0000, 0]), expected);
    }

    #[test]
    fn numbers_are_those_of_their_key_and_come_once() {
        let draw = |seed| {
            let mut secrets = Secrets::new(SecretKey::of_seed(seed));
            (0..1000).map(move |_| secrets.draw())
        };
        assert!(draw(1).eq(draw(1)));
        let all: std::collections::BTreeSet<u128> = draw(1).chain(draw(2)).collect();
        assert_eq!(all.len(), 2000);
        assert_eq!(format!("{:?}", SecretKey::of_seed(1)), "SecretKey");
    }
}
