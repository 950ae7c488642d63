//! Numbers that cannot be guessed from any others of them: the key stream of `ChaCha` under a key from outside.
//!
//! Lock tokens are made here. Ids need no more than [`crate::job::id::Chance`]: they are shown to all, and a
//! guessed one grants nothing.

use crate::job::id::Chance;
use std::fmt;

/// Key from which the lock tokens of a shard are derived: random, and another one at each start and on each shard. All
/// tokens can be computed from it, so it is shown nowhere.
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

/// Double rounds of a block: no attack on more than seven rounds is known that beats a search through all keys. The ten of
/// RFC 8439 are a margin for decades of secrecy, and a token lives as long as a lock.
const DOUBLE_ROUNDS: usize = 4;

/// Blocks made at once: each step takes one word of all of them, which is one instruction of a vector.
const BLOCKS: usize = 4;

/// A word of each block.
type Words = [u32; BLOCKS];

/// Makes lock tokens from a secret key.
pub(crate) struct Secrets {
    key: SecretKey,
    /// The number of the next block.
    next: u64,
    /// Unused numbers of the last blocks; the next number is the last one.
    left: [u128; 4 * BLOCKS],
    count: usize,
}

impl Secrets {
    pub(crate) fn new(key: SecretKey) -> Self {
        Self { key, next: 0, left: [0; 4 * BLOCKS], count: 0 }
    }

    /// The next 128 bits.
    #[inline]
    pub(crate) fn draw(&mut self) -> u128 {
        if self.count == 0 {
            self.refill();
        }
        self.count -= 1;
        // A number that was handed out is not kept here.
        std::mem::take(&mut self.left[self.count])
    }

    fn refill(&mut self) {
        let numbers: [u64; BLOCKS] = std::array::from_fn(|block| self.next + block as u64);
        let (low, high) =
            (numbers.map(|number| number as u32), numbers.map(|number| (number >> 32) as u32));
        let stream = blocks::<DOUBLE_ROUNDS>(self.key, [low, high, [0; BLOCKS], [0; BLOCKS]]);
        for block in 0..BLOCKS {
            // The first block is handed out first, and of each the last number.
            let left = self.left[4 * (BLOCKS - 1 - block)..].iter_mut();
            for (number, words) in left.zip(stream.as_chunks::<4>().0) {
                *number = words.iter().fold(0, |bits, word| bits << 32 | u128::from(word[block]));
            }
        }
        self.next += BLOCKS as u64;
        self.count = self.left.len();
    }
}

#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "eight times per double round of the only caller, whose words stay in registers"
)]
fn quarter(state: &mut [Words; 16], [a, b, c, d]: [usize; 4]) {
    for (add, to, turn, bits) in [(b, a, d, 16), (d, c, b, 12), (b, a, d, 8), (d, c, b, 7)] {
        let added = state[add];
        for (word, more) in state[to].iter_mut().zip(added) {
            *word = word.wrapping_add(more);
        }
        let mixed = state[to];
        for (word, with) in state[turn].iter_mut().zip(mixed) {
            *word = (*word ^ with).rotate_left(bits);
        }
    }
}

/// Blocks of the key stream. What differs between them is the counter and the nonce.
fn blocks<const DOUBLE_ROUNDS: usize>(
    SecretKey(key): SecretKey,
    counters_and_nonces: [Words; 4],
) -> [Words; 16] {
    let constants = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];
    let mut first = [[0; BLOCKS]; 16];
    for (words, word) in first.iter_mut().zip(constants.into_iter().chain(key)) {
        *words = [word; BLOCKS];
    }
    first[12..].copy_from_slice(&counters_and_nonces);
    let mut state = first;
    for _ in 0..DOUBLE_ROUNDS {
        for column in 0..4 {
            quarter(&mut state, [column, 4 + column, 8 + column, 12 + column]);
        }
        for column in 0..4 {
            let at = |row: usize| 4 * row + (column + row) % 4;
            quarter(&mut state, [at(0), at(1), at(2), at(3)]);
        }
    }
    for (words, first) in state.iter_mut().zip(first) {
        words.iter_mut().zip(first).for_each(|(word, first)| *word = word.wrapping_add(first));
    }
    state
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
        for place in 0..BLOCKS {
            let mut ends = [[7; BLOCKS]; 4];
            for (words, end) in ends.iter_mut().zip([1, 0x0900_0000, 0x4a00_0000, 0]) {
                words[place] = end;
            }
            assert_eq!(blocks::<10>(key, ends).map(|words| words[place]), expected, "{place}");
        }
    }

    /// Numbers must stay as they are, since runs that are repeated follow from them. The expected ones are from another
    /// implementation: a nonce of zeros, block by block, and of each block the last number first.
    #[test]
    fn numbers_are_those_of_the_key_stream_in_their_order() {
        let mut secrets = Secrets::new(SecretKey::new(&std::array::from_fn(|byte| byte as u8)));
        let drawn: Vec<u128> = (0..24).map(|_| secrets.draw()).collect();
        let expected = [
            (0, 0x271d_838f_93df_b0c7_82ed_b9b3_d656_a238),
            (3, 0x8fb2_1540_6aab_126e_7b66_e8d9_3312_c531),
            (4, 0xf891_5672_33b4_a739_5310_b6a5_e0ae_9bd9),
            (15, 0xfc23_b459_addd_39d5_920d_6910_0641_4085),
            (16, 0x505e_5670_980d_6127_0393_8aa0_20b5_07f4),
            (23, 0x8f67_cf6d_27ba_e019_190c_1bb5_fcb2_779d),
        ];
        for (place, number) in expected {
            assert_eq!(drawn[place], number, "{place}");
        }
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
